"""A picture that plays, step by step in a live notebook, and by ▶ in a saved one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from labkit.core.parameters import Positive, checked
from labkit.lesson.live import Live
from labkit.plot.moving import film


class Moving(Live):
    """Figures as one picture that plays: ▶, a step back or forth, or a slider.

    `frames` yields 1 to 60 matplotlib Figures, or what functions of `lab.plot` return:
    `lab.Moving((figure(i) for i in range(12)), "Twelve steps of ...")`. `text` says in
    words what is seen to happen; below a frame of `lab.plot` stands its own sentence.
    Nothing moves before the reader presses ▶, and then each frame stays for `frame_s`
    seconds. The notebook keeps all frames as one picture that plays without a kernel.
    Raises BadArgument for other frames.
    """

    _stays = True
    _dead = "Run this cell to go through it step by step."

    @checked
    def __init__(
        self, frames: Any, text: str, *, step: str = "step", frame_s: Positive = 0.8
    ) -> None:
        import ipywidgets as widgets

        self.text = text
        self._step = step
        self._film = film(frames, frame_s=frame_s)
        self._frame_s = frame_s
        self._next: asyncio.TimerHandle | None = None
        super().__init__()
        last = len(self._film.frames) - 1
        self.slider = widgets.IntSlider(
            description=step, max=last, layout=widgets.Layout(width="24em")
        )
        self.slider.observe(lambda _: self.redraw(), "value")
        self.play = widgets.Button(description="play", icon="play")
        self.back = widgets.Button(description="back", icon="step-backward")
        self.forth = widgets.Button(description="forth", icon="step-forward")
        self.play.on_click(lambda _: self._pressed())
        self.back.on_click(lambda _: self._go(-1))
        self.forth.on_click(lambda _: self._go(1))
        wrap = widgets.Layout(flex_flow="row wrap")
        buttons = [self.play, self.back, self.forth, self.slider]
        row = widgets.HBox(buttons, layout=wrap)
        self.box = widgets.VBox([row, self._image, self._caption])
        self.redraw()

    def redraw(self) -> None:
        """Show the frame that the slider names."""
        number = self.slider.value
        self._png = self._film.frames[number]
        self._image.layout.width = f"{self._film.size[0]}px"
        self._image.value = self._png
        where = f"{self._step} {number} of {self.slider.max}"
        sentence = self._film.sentences[number] or self.text
        self.say(f"{where[0].upper()}{where[1:]}: {sentence}")
        self.frames += 1

    def data(
        self, caption: str, css: str = "", name: str = ""
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Data and metadata of what the notebook keeps: all frames, with a sentence for
        them all.
        """
        data, metadata = self._film.data(
            self.text, f"{self.text} {self._dead}", css, name
        )
        return data | {"text/plain": repr(self)}, metadata

    def _go(self, by: int) -> None:
        """Step back or forth, and play no longer."""
        self._pause()
        self.slider.value = min(max(self.slider.value + by, 0), self.slider.max)

    def _pressed(self) -> None:
        if self._next is not None:
            self._pause()
            return
        if self.slider.value == self.slider.max:
            self.slider.value = 0
        self._wait()

    def _wait(self) -> None:
        """Let the next frame come in time."""
        # no event loop, as in a plain script: nothing plays
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            self._next = loop.call_later(self._frame_s, self._advance)
            self.play.description = "pause"
            self.play.icon = "pause"

    def _advance(self) -> None:
        self.slider.value = min(self.slider.value + 1, self.slider.max)
        if self.slider.value == self.slider.max:
            self._pause()
        else:
            self._wait()

    def _pause(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = None
        self.play.description = "play"
        self.play.icon = "play"
