"""Sliders over a pure function, redrawn when one is moved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes

from labkit.live import FRAME_S, Live


class Explorer(Live):
    """Sliders over a pure function `draw(axes, **values) -> sentence`, redrawn at most five times a second.

    Each keyword is a control: a (low, high) or (low, high, step) pair of numbers is a slider, a list is a
    slider over its entries, a bool a tick box. `values` holds what they are set to.
    """

    def __init__(self, draw: Callable[..., str], *, height_in: float = 3.6, **controls: Any) -> None:
        import ipywidgets as widgets

        self.height_in = height_in
        self._draw = draw
        super().__init__()
        self.controls = {name: _control(name, spec) for name, spec in controls.items()}
        self._waiting = False
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        self.box = widgets.VBox([*self.controls.values(), self._image, self._caption])
        self.redraw()

    @property
    def values(self) -> dict[str, Any]:
        """What the controls are set to."""
        return {name: control.value for name, control in self.controls.items()}

    def draw(self, axes: Axes) -> str:
        """Draw the function at the present values."""
        axes.clear()
        return self._draw(axes, **self.values)

    def _changed(self, _change: object) -> None:
        wait_s = FRAME_S - (time.monotonic() - self._last_s)
        if wait_s <= 0:
            self.redraw()
        elif not self._waiting:
            self._draw_later(wait_s)

    def _draw_later(self, wait_s: float) -> None:
        """Draw the newest values once the frame's time has come, so that the last move is never lost."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no event loop, as in a plain script: nothing to wait in
            self.redraw()
            return
        self._waiting = True
        loop.call_later(wait_s, self._draw_waiting)

    def _draw_waiting(self) -> None:
        self._waiting = False
        self.redraw()


def _control(name: str, spec: Any) -> Any:
    """A widget for one keyword of an Explorer."""
    import ipywidgets as widgets

    label = {"description": name.replace("_", " "), "style": {"description_width": "9em"}}
    if isinstance(spec, widgets.Widget):
        return spec
    if isinstance(spec, bool):
        return widgets.Checkbox(value=spec, **label)
    layout = widgets.Layout(width="32em")
    if isinstance(spec, list):
        return widgets.SelectionSlider(options=spec, value=spec[0], layout=layout, **label)
    low, high, *step = spec
    kind = widgets.IntSlider if all(isinstance(v, int) for v in spec) else widgets.FloatSlider
    size = {"step": step[0]} if step else {}
    return kind(min=low, max=high, value=low, layout=layout, **size, **label)
