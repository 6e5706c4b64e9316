"""A few threads of a kernel, one access to memory at a time, played or stepped in an
order that the reader chooses.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import html
from typing import Any

from kerneltrace._arguments import whole
from kerneltrace._tables import Table
from kerneltrace._text import cut
from kerneltrace.machine.traced_memory import Array
from kerneltrace.run.stepping import MOST_THREADS, ONE_BY_ONE, ORDERS, SteppedRun, steps

# steps that stand below each other, live and in the table of all steps
_ROWS = 12
_MOST_KEPT = 40
_WIDE = 12  # elements; longer arrays have no column
_STEP_S = 1.5  # enough to read a step
# Okabe and Ito's colors (2008), one for each thread, which color-blind readers can
# tell apart.
_COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#0072B2",
)
_STYLE = (
    ".kernel-steps{display:flex;flex-wrap:wrap;gap:1em 3em;align-items:flex-start;"
    "line-height:1.4}"
    ".kernel-steps td{white-space:pre;font-family:monospace;padding:.1em .7em}"
    ".kernel-threads td{white-space:normal}"
    ".kernel-steps th{padding:.1em .7em}"
)


class ThreadStepper:
    """One block of 1 to 8 threads of a kernel, run on copies of the arguments: play it,
    or go step by step.

    A step is one access to memory by one thread. `order` and a button for each thread
    say whose turn it is; `slider` is the number of steps done, of those in `steps`.
    Needs ipywidgets. Refuses what `trace` refuses.
    """

    def __init__(self, kernel: Any, threads: int, *args: Any) -> None:
        import ipywidgets as widgets

        threads = whole("threads", threads, least=1, most=MOST_THREADS)
        self._run = functools.partial(steps, kernel, threads, args)
        self.order = widgets.Dropdown(
            options=ORDERS,
            description="threads run",
            style={"description_width": "initial"},
        )
        self.slider = widgets.IntSlider(
            description="step", layout=widgets.Layout(width="24em")
        )
        # widgets.Play has buttons without names, which screen readers can't tell apart
        self.play = widgets.Button(description="play", icon="play")
        self.play.on_click(lambda _: self._pressed())
        self._next: asyncio.TimerHandle | None = None
        self.buttons: dict[str | int, Any] = {
            name: widgets.Button(description=name) for name in ("back", "step")
        }
        self.buttons |= {
            n: widgets.Button(description=f"step of thread {n}") for n in range(threads)
        }
        for name, button in self.buttons.items():
            button.on_click(functools.partial(self._clicked, name))
        self.order.observe(lambda _: self._ordered(), "value")
        self.slider.observe(lambda _: self.redraw(), "value")
        self._table = widgets.HTML()
        self._caption = widgets.HTML()
        back, forth, *turns = self.buttons.values()
        wrap = widgets.Layout(flex_flow="row wrap")
        rows = [
            widgets.HBox(row, layout=wrap)
            for row in ([self.play, back, forth, self.slider], [self.order, *turns])
        ]
        self.box = widgets.VBox([*rows, self._table, self._caption])
        self._begin()

    @property
    def memory_at_end(self) -> dict[str, Array]:
        """Each array by its name as the steps leave it, in the order that is shown."""
        return self.steps.memory[-1]

    def _begin(self, *chosen: int) -> None:
        """Run the kernel, with the first turns for the threads `chosen`, and show the
        moment after these.
        """
        self.steps: SteppedRun = self._run(self.order.value, chosen)
        self._result = self.steps.ended or self._compared()
        self.slider.max = len(self.steps.steps)
        self.slider.value = len(chosen)
        self.redraw()

    def _compared(self) -> str:
        """How the run ends, beside one in which the threads run one after another."""
        in_turn = self._run(ONE_BY_ONE)
        ends = []
        for name in self.steps.memory[-1]:
            values = _values(self.steps, -1, name)
            values_in_turn = _values(in_turn, -1, name)
            if values != values_in_turn:
                ends.append(
                    f"{name} is {cut(values, 60)}, with one thread after another it is"
                    f" {cut(values_in_turn, 60)}"
                )
        if not ends:
            return "With one thread after another, memory ends the same."
        return f"In the end {'; '.join(ends)}."

    def _pressed(self) -> None:
        """Play from the step that is shown, from the first one after the last; or
        pause.
        """
        if self._next is not None:
            self._pause()
            return
        if self.slider.value == self.slider.max:
            self.slider.value = 0
        self._advance()

    def _advance(self) -> None:
        """Make a step, and let the next one come in time."""
        self._next = None
        self.slider.value = min(self.slider.value + 1, self.slider.max)
        if self.slider.value == self.slider.max:
            self._pause()
            return
        # no event loop, as in a plain script: nothing plays
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            self._next = loop.call_later(_STEP_S, self._advance)
            self._show_on_button("pause")

    def _pause(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = None
        self._show_on_button("play")

    def _show_on_button(self, what: str) -> None:
        self.play.description = what
        self.play.icon = what

    def _ordered(self) -> None:
        self._pause()
        self._begin()

    def _clicked(self, name: str | int, _button: object) -> None:
        self._pause()
        number = self.slider.value
        if isinstance(name, int):
            self._begin(*(step.thread for step in self.steps.steps[:number]), name)
        elif name == "step":
            self.slider.value = min(number + 1, self.slider.max)
        else:
            self.slider.value = max(number - 1, 0)

    def redraw(self) -> None:
        """Show the moment that the slider names."""
        number = self.slider.value
        count = len(self.steps.steps)
        for thread, (_, waits) in enumerate(self.steps.places[number]):
            self.buttons[thread].disabled = bool(waits)
        shown = self._threads(
            number, max(number - _ROWS, 0), max(number, min(_ROWS, count))
        )
        self._table.value = self._html(number, shown)
        words = (
            "No thread has accessed memory yet. Press ▶, or let a thread make a step."
        )
        if number:
            step = self.steps.steps[number - 1]
            words = f"Step {number} of {count}: thread {step.thread} {step.words}."
        self.say(f"{words} {self._result}" if number == count else words)

    def say(self, sentence: str) -> None:
        """Put a sentence below the steps."""
        self.sentence = sentence
        self._caption.value = html.escape(sentence)

    def _html(self, number: int, shown: Table) -> str:
        """The source, with the lines that come next, beside the steps."""
        threads_by_line: dict[int, list[str]] = {}
        for thread, (line, _) in enumerate(self.steps.places[number]):
            threads_by_line.setdefault(line, []).append(str(thread))
        rows = []
        for line, text in enumerate(self.steps.source, self.steps.first_line):
            threads = ", ".join(threads_by_line.get(line, []))
            rows.append((f"thread {threads} ▶" if threads else "", text))
        source = Table(tuple(rows), ("next", ""))._repr_html_()
        count = len(self.buttons) - 2
        lanes = ""
        for column, color in enumerate(_COLORS[:count], start=2):
            rule = f"background:{color}30;min-width:{52 // count}ch"
            lanes += f".kernel-threads td:nth-child({column}){{{rule}}}"
        style = f"<style>{_STYLE}{lanes}</style>"
        columns = (
            f"<div>{source}</div>"
            f"<div class='kernel-threads'>{shown._repr_html_()}</div>"
        )
        return f"{style}<div class='kernel-steps'>{columns}</div>"

    def _threads(self, number: int, first: int, last: int, *notes: str) -> Table:
        """The steps from `first` to `last`, each below its thread, and what is written,
        up to the moment `number`.
        """
        run = self.steps
        written = dict.fromkeys(step.writes for step in run.steps if step.writes)
        names = [name for name in written if run.memory[-1][name].size <= _WIDE]
        rows = []
        for at in range(first, last + 1):
            cells = [""] * len(run.places[0])
            known = [name for name in names if name in run.memory[at] and at <= number]
            if 0 < at <= number:
                step = run.steps[at - 1]
                cells[step.thread] = step.words
            values = [_values(run, at, name) if name in known else "" for name in names]
            rows.append((f"▶ {at}" if at == number else str(at), *cells, *values))
        heads = (
            "step",
            *(f"thread {thread}" for thread in range(len(run.places[0]))),
            *names,
        )
        return Table(tuple(rows), heads, notes=notes)

    def all_steps(self, advice: str = "") -> tuple[str, str]:
        """All steps, as HTML beside the source and as text, each ending
        with `advice`.
        """
        count = len(self.steps.steps)
        shown = self._threads(
            count, 0, min(count, _MOST_KEPT), f"{self._result} {advice}".rstrip()
        )
        return self._html(count, shown), str(shown)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)


def _values(run: SteppedRun, moment: int, name: str) -> str:
    """What an array holds at a moment; "?" for what nobody has written."""
    array = run.memory[moment][name]
    unwritten = run.unwritten[moment][name]
    if array.size and unwritten.all():
        return "not written yet"
    pairs = zip(array.flat, unwritten.flat, strict=True)
    return " ".join("?" if is_blank else str(value) for value, is_blank in pairs)
