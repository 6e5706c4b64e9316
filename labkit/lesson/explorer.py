"""Sliders over a pure function, redrawn when one is moved."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes

from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.core.errors import LabError
from labkit.core.parameters import checked
from labkit.lesson.live import FRAME_S, Live


class Explorer(Live):
    """Sliders over a pure function `draw(axes, **values) -> sentence`, redrawn at most
    five times a second.

    Each keyword is a control: (low, high) or (low, high, step) makes a slider, a list a
    slider over its entries that starts at the first of them, numbers in ascending
    order; a bool makes a tick box. `values` holds what they are set to. Axes keep the
    widest limits so far, so that a line is seen to move, unless what is drawn would
    become too small. If the function fails after a slider has moved, its error stands
    below the picture, which stays. Raises LabError for any other control, and for a
    `draw` that can't be called.
    """

    height_in = 3.6
    _stays = True
    _dead = "Run this cell to move the sliders."

    @checked
    def __init__(self, draw: Callable[..., str], **controls: Any) -> None:
        import ipywidgets as widgets

        self._draw = draw
        self._limits: dict[tuple[str, str], tuple[float, float]] = {}
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
        sentence = self._draw(axes, **self.values)
        if not isinstance(sentence, str):
            raise LabError(
                f"The function must return a sentence, got {brief_repr(sentence)}."
            )
        if axes.axison:
            self._widen("x", axes.get_xlim(), axes.get_xscale(), axes.set_xlim)
            self._widen("y", axes.get_ylim(), axes.get_yscale(), axes.set_ylim)
        return sentence

    def _widen(
        self,
        name: str,
        new: tuple[float, float],
        scale: str,
        put: Callable[[float, float], object],
    ) -> None:
        """Widen the new limits of an axis to the widest so far; begin anew where the
        new ones fill an eighth or less.

        Axes that run downwards are left as they are: they are rows, and the figure's
        height goes with their number.
        """
        low, high = new
        if low < high:
            size = math.log if scale == "log" else float
            former_low, former_high = self._limits.get((name, scale), new)
            widest_low = min(low, former_low)
            widest_high = max(high, former_high)
            if 8 * (size(high) - size(low)) > size(widest_high) - size(widest_low):
                low = widest_low
                high = widest_high
            self._limits[name, scale] = low, high
            put(low, high)

    def _draw_or_say(self) -> None:
        """Draw; an error of the function becomes the sentence, since a moved slider has
        no cell to show it in.
        """
        self._waiting = False
        try:
            self.redraw()
        except Exception as error:
            values = ", ".join(f"{name}={value}" for name, value in self.values.items())
            if isinstance(error, LabError):
                self.say(f"For {values}: {error}")
            else:
                name = type(error).__name__
                self.say(f"For {values} the function raised {name}: {error}")
            self._last_s = time.monotonic()

    def _changed(self, _change: object) -> None:
        """Draw now, or the newest values once the frame's time has come, so that the
        last move is never lost.
        """
        wait_s = FRAME_S - (time.monotonic() - self._last_s)
        # no event loop, as in a plain script: nothing to wait in
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            if wait_s > 0:
                if not self._waiting:
                    loop.call_later(wait_s, self._draw_or_say)
                self._waiting = True
                return
        self._draw_or_say()


def _control(name: str, spec: Any) -> Any:
    """A widget for one keyword of an Explorer."""
    import ipywidgets as widgets

    label = {
        "description": name.replace("_", " "),
        "style": {"description_width": "9em"},
    }
    if isinstance(spec, bool):
        return widgets.Checkbox(value=spec, **label)
    layout = widgets.Layout(width="32em")
    if isinstance(spec, list) and spec:
        all_numbers = all(isinstance(choice, int | float) for choice in spec)
        choices = sorted(spec) if all_numbers else spec
        # ipywidgets would take pairs for (label, value)
        options = [(str(choice), choice) for choice in choices]
        return widgets.SelectionSlider(
            options=options, value=spec[0], layout=layout, **label
        )
    limits = dict(zip(("min", "max", "step"), _range(name, spec), strict=False))
    all_whole = all(isinstance(number, int) for number in spec)
    slider = widgets.IntSlider if all_whole else widgets.FloatSlider
    return slider(value=spec[0], layout=layout, **limits, **label)


def _range(name: str, spec: Any) -> tuple[Any, ...]:
    """The spec itself where it is (low, high) or (low, high, step); LabError says what
    a control can be.
    """
    if isinstance(spec, tuple) and len(spec) in (2, 3):
        numbers = [
            number
            for number in map(as_float, spec)
            if number is not None and math.isfinite(number)
        ]
        if len(numbers) == len(spec):
            low, high, *step = numbers
            if low < high and min(step, default=1.0) > 0:
                return tuple(spec)
    raise LabError(
        "Expected (low, high) or (low, high, step) with low below high, a list of"
        f" choices, or True or False for {name!r}, got {brief_repr(spec)}."
    )
