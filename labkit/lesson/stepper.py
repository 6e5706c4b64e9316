"""kerneltrace's ThreadStepper, in a notebook that keeps its steps when the kernel is
gone.
"""

from __future__ import annotations

from typing import Any

from kerneltrace import ThreadStepper
from labkit.lesson.live import Live


class Stepper(ThreadStepper, Live):
    """`kerneltrace.ThreadStepper`, which runs a few threads step by step; the notebook
    keeps a table of all steps.
    """

    _stays = True
    _dead = "Run this cell to go through the steps yourself."
    say = Live.say
    _ipython_display_ = Live._ipython_display_

    def __init__(self, kernel: Any, threads: int, *args: Any) -> None:
        Live.__init__(self)
        ThreadStepper.__init__(self, kernel, threads, *args)

    def redraw(self) -> None:
        """Show the moment that the slider names."""
        super().redraw()
        self._keep()

    def data(
        self, caption: str, css: str = "", name: str = ""
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Data and metadata of all steps, as an element of the class `name` with the
        rules `css`.
        """
        steps, text = self.all_steps(self._dead)
        html = f"<style>{css}</style><div class='{name}'>{steps}</div>"
        return {"text/html": html, "text/plain": text}, {}
