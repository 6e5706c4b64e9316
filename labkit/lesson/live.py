"""A figure that is redrawn while a cell runs, and stays in the notebook as a picture.

In the cell's output there are two parts. The upper is the picture, which the notebook
keeps. The lower is a widget whose image changes without flicker; while it lives, a
style rule hides the picture. When the cell has ended, the widget gives way to the
sentence that belongs below the picture. Where that never happens, because the kernel
was killed or because a reader's sliders are to stay, other rules hide the widget once
its kernel is gone. Drawing happens on the main thread, outside every measured interval,
at most five times a second.
"""

from __future__ import annotations

import time
import uuid
import weakref
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from labkit import plot
from labkit.core.display import LITERAL, as_html, linked_html
from labkit.lesson.notebook import shell
from labkit.plot.picture import TEXT, Frame, picture_data, sentence_data

FRAME_S = 0.2
_KEPT_S = 2.0  # between two pictures that the notebook keeps while a cell runs
# keys and sizes of all widgets
_LOOK = Path(__file__).with_name("widgets.html").read_text(encoding="utf-8")
# which of the two parts is shown
_RULES = Path(__file__).with_name("kept.css").read_text(encoding="utf-8")
WIDGET = "application/vnd.jupyter.widget-view+json"
_MOVED = "The board goes on in the cell that added to it last."
_ANEW = (
    "The board was begun anew in the cell that made it. Run this cell to add to it"
    " again."
)
# What stands in the notebook, by the cell and the title that it was made with: a cell
# that is run again makes it anew.
_standing: weakref.WeakValueDictionary[tuple[str, str], Live] = (
    weakref.WeakValueDictionary()
)


def publish(
    name: str,
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    *,
    update: bool = True,
) -> None:
    """Show data in the running cell under a name, or with `update` in place of what was
    shown under it.
    """
    from IPython.display import publish_display_data

    if shell() is not None:
        show: Any = publish_display_data
        show(data, metadata or {}, transient={"display_id": name}, update=update)


def publish_widget(name: str, box: Any, text: str) -> None:
    """Show a widget in the running cell under a name; a front end that has no widgets
    shows `text` where it has any.
    """
    import ipywidgets as widgets

    if _LOOK not in [getattr(child, "value", "") for child in box.children]:
        box.children = [*box.children, widgets.HTML(_LOOK, layout={"display": "none"})]
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    publish(name, {WIDGET: view, "text/html": "", "text/plain": text}, update=False)


def publish_question(box: Any, kept: str, text: str) -> str:
    """Show HTML that the notebook keeps, `text` in plain words, and a widget that hides
    it while it lives; its name.
    """
    name = f"labkit-{uuid.uuid4().hex[:8]}"
    box.add_class(f"{name}-live")
    rules = f"<style>{_RULES.replace('NAME', name)}</style>"
    html = f"{rules}<div class='{name}-kept'>{kept}</div>"
    publish(f"{name}-kept", {"text/html": html, "text/plain": text}, update=False)
    publish_widget(f"{name}-live", box, "")
    return name


def spoken_html(text: str) -> str:
    """A sentence that screen readers say when it appears."""
    return f"<div class='{LITERAL}' style='{TEXT}' role='status'>{as_html(text)}</div>"


class Live:
    """A picture with a sentence below it that can be redrawn while a cell runs.

    Subclasses implement `draw(axes) -> sentence`. `show` displays it in the running
    cell; where it stood before, its sentence stays. `finish` draws the last frame.
    Outside a notebook nothing is shown and nothing fails.
    """

    height_in = 3.2
    _dead = ""  # what the reader is told below the kept picture when there is no kernel
    _stays = False  # whether the widget outlives the cell

    def __init__(self) -> None:
        import ipywidgets as widgets

        self.sentence = ""
        self.frames = 0
        self._axes = plot.new_axes(self.height_in)
        self._frame = Frame()
        self._png = b""
        self._last_s = self._kept_s = float("-inf")
        self._shown_in: int | None = None
        self._id = ""
        # IPython 7 finds a callback by its identity, which a method has none of
        self._ending = self._end
        # widgets have a margin of 2 pixels, with which all of the width is too wide
        layout = widgets.Layout(max_width="calc(100% - 4px)", height="auto")
        self._image = widgets.Image(format="png", layout=layout)
        self._image.add_class("labkit-picture")
        self._caption = widgets.HTML()
        self.box = widgets.VBox([self._image, self._caption])
        self._replace_former()

    def _replace_former(self) -> None:
        """Take the place of what the same cell made when it was run before."""
        running = shell()
        if running is None:
            return
        cell = running.get_parent().get("metadata", {}).get("cellId")
        if cell is None:
            return
        place = cell, getattr(self, "title", "")
        former = _standing.get(place)
        if former is not None and former._shown_in != running.execution_count:
            former._move_away(_ANEW)
        _standing[place] = self

    def draw(self, axes: Axes) -> str:
        """Draw the present state; the sentence says what it shows."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw a frame now."""
        sentence = self.draw(self._axes)
        self._png = plot.to_png(self._axes, self._frame, again=True)
        self._image.layout.width = f"{self._frame.size[0]}px"
        self._image.value = self._png
        self.say(sentence)
        self.frames += 1
        self._last_s = time.monotonic()
        if self._stays or self._last_s - self._kept_s >= _KEPT_S:
            self._keep()

    def say(self, sentence: str) -> None:
        """Put a sentence below the picture."""
        self.sentence = sentence
        self._caption.value = f"<div style='{TEXT}'>{linked_html(sentence)}</div>"

    def tick(self) -> None:
        """Draw a frame if the last one is at least 0.2 s old."""
        if time.monotonic() - self._last_s >= FRAME_S:
            self.redraw()

    def show(self) -> None:
        """Display in the running cell, once a cell: a cell that is run again shows it
        again.
        """
        running = shell()
        if running is None or self._shown_in == running.execution_count:
            return
        if not self._png:
            self.redraw()
        self._move_away(_MOVED)
        self._shown_in = running.execution_count
        self._id = f"labkit-{uuid.uuid4().hex[:8]}"
        self.box.add_class(f"{self._id}-live")
        self._keep(update=False)
        publish_widget(f"{self._id}-live", self.box, repr(self))
        if not self._stays:
            running.events.register("post_run_cell", self._ending)

    def finish(self) -> None:
        """Draw the last frame and keep it in the notebook."""
        self.redraw()
        self._keep()
        plot.drop_pixels(self._axes)

    def _end(self, *_: object) -> None:
        """Leave the picture and its sentence in the notebook, without a widget."""
        if (running := shell()) is not None:
            running.events.unregister("post_run_cell", self._ending)
        self.redraw()
        # in this order, or for a moment both images would stand there
        publish(f"{self._id}-live", sentence_data(self.sentence))
        self._keep(live=False)
        plot.drop_pixels(self._axes)

    def _move_away(self, where: str) -> None:
        """Leave the sentence, and where the picture is now, in the place where it
        stands.
        """
        if self._shown_in is not None:
            publish(f"{self._id}-kept", sentence_data(f"{self.sentence} {where}"))
            publish(f"{self._id}-live", {"text/html": "", "text/plain": ""})

    def _keep(self, *, live: bool = True, update: bool = True) -> None:
        """Put the present picture where the notebook keeps it, with its sentence as
        long as the widget shows both.
        """
        self._kept_s = time.monotonic()
        if self._shown_in is None:
            return
        name = f"{self._id}-kept"
        caption = rules = ""
        if live:
            caption = f"{self.sentence} {self._dead}".rstrip()
            rules = _RULES.replace("NAME", self._id)
        data, metadata = self.data(caption, rules, name)
        publish(name, data, metadata, update=update)

    def data(
        self, caption: str, css: str = "", name: str = ""
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Data and metadata of what the notebook keeps: an element of the class `name`,
        with the rules `css`.
        """
        data, metadata = picture_data(
            self._png,
            self._frame.size,
            self.sentence,
            caption=caption,
            css=css,
            name=name,
        )
        return data | {"text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        self._shown_in = None
        self.show()

    def __repr__(self) -> str:  # constant: a notebook test compares it
        return f"<{type(self).__name__}>"
