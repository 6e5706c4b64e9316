"""A few threads of a kernel, one access to memory at a time, played or stepped in an order that the reader chooses."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from kerneltrace.log.traced_memory import Array
from kerneltrace.run.stepping import MOST_THREADS, ONE_BY_ONE, ORDERS, SteppedRun, steps
from labkit.core.display import Table, cut
from labkit.core.errors import KernelError
from labkit.core.kinds import Number
from labkit.core.parameters import checked
from labkit.lesson.live import Live
from labkit.plot.style import CYCLE

_ROWS, _MOST_KEPT = 12, 40  # steps that stand below each other, live and in the saved notebook
_WIDE = 12  # elements; longer arrays have no column
_STYLE = (
    ".labkit-steps{display:flex;flex-wrap:wrap;gap:1em 3em;align-items:flex-start;line-height:1.4}"
    ".labkit-steps td{white-space:pre;font-family:monospace;padding:.1em .7em}.labkit-steps th{padding:.1em .7em}"
)


class Stepper(Live):
    """One block of 1 to 8 threads of a kernel, run on copies of the arguments: play it, or go step by step.

    A step is one access to memory by one thread. `order` and a button for each thread say whose turn it is; `slider` is
    the number of steps done, of those in `steps`. The notebook keeps a table of all steps. Raises KernelError for what
    `lab.trace` can't run.
    """

    _stays = True
    _dead = "Run this cell to go through the steps yourself."

    @checked(error=KernelError)
    def __init__(self, kernel: Any, threads: Annotated[int, Number(least=1, most=MOST_THREADS)], *args: Any) -> None:
        import ipywidgets as widgets

        super().__init__()
        self._run = functools.partial(steps, kernel, threads, args)
        self.order = widgets.Dropdown(options=ORDERS, description="threads run", style={"description_width": "initial"})
        self.slider = widgets.IntSlider(description="step", layout=widgets.Layout(width="24em"))
        self.play = widgets.Play(interval=1500)  # milliseconds: enough to read a step
        widgets.jslink((self.play, "value"), (self.slider, "value"))
        self.buttons: dict[str | int, Any] = {name: widgets.Button(description=name) for name in ("back", "step")}
        self.buttons |= {n: widgets.Button(description=f"step of thread {n}") for n in range(threads)}
        for name, button in self.buttons.items():
            button.on_click(functools.partial(self._clicked, name))
        self.order.observe(lambda _: self._begin(), "value")
        self.slider.observe(lambda _: self.redraw(), "value")
        self._table = widgets.HTML()
        back, forth, *turns = self.buttons.values()
        wrap = widgets.Layout(flex_flow="row wrap")
        rows = [widgets.HBox(row, layout=wrap) for row in ([self.play, back, forth, self.slider], [self.order, *turns])]
        self.box = widgets.VBox([*rows, self._table, self._caption])
        self._begin()

    def _begin(self, *chosen: int) -> None:
        """Run the kernel, with the first turns for the threads `chosen`, and show the moment after these."""
        self.steps: SteppedRun = self._run(self.order.value, chosen)
        self._result = self.steps.ended or self._compared()
        self.play.max = self.slider.max = len(self.steps.steps)
        self.slider.value = len(chosen)
        self.redraw()

    def _compared(self) -> str:
        """How the run ends, beside one in which the threads run one after another."""
        ends = [run.memory[-1].items() for run in (self.steps, self._run(ONE_BY_ONE))]
        mine, plain = ({name: _values(array) for name, array in end} for end in ends)
        apart = [(name, cut(mine[name], 60), cut(plain[name], 60)) for name in mine if mine[name] != plain[name]]
        told = "; ".join(f"{name} is {end}, with one thread after another it is {other}" for name, end, other in apart)
        return f"In the end {told}." if told else "With one thread after another, memory ends the same."

    def _clicked(self, name: str | int, _button: object) -> None:
        if isinstance(name, int):
            self._begin(*(step.thread for step in self.steps.steps[: self.slider.value]), name)
        else:
            self.slider.value = min(max(self.slider.value + (1 if name == "step" else -1), 0), self.slider.max)

    def redraw(self) -> None:
        """Show the moment that the slider names."""
        number, count = self.slider.value, len(self.steps.steps)
        for thread, (_, waits) in enumerate(self.steps.places[number]):
            self.buttons[thread].disabled = bool(waits)
        shown = self._threads(number, max(number - _ROWS, 0), max(number, min(_ROWS, count)))
        self._table.value = self._html(number, shown)
        told = "No thread has accessed memory yet. Press ▶, or let a thread make a step."
        if number:
            step = self.steps.steps[number - 1]
            told = f"Step {number} of {count}: thread {step.thread} {step.words}."
        self.say(f"{told} {self._result}" if number == count else told)
        self._keep()

    def _html(self, number: int, shown: Table) -> str:
        """The source, with the lines that come next, beside the steps."""
        rows = []
        for line, text in enumerate(self.steps.source, self.steps.first_line):
            who = ", ".join(str(thread) for thread, (at, _) in enumerate(self.steps.places[number]) if at == line)
            rows.append((f"thread {who} ▶" if who else "", text))
        source = Table(tuple(rows), ("next", ""))._repr_html_()
        count = len(self.buttons) - 2
        rules = [f"background:{color}30;min-width:{52 // count}ch" for color in (*CYCLE, CYCLE[0])[:count]]
        lanes = "".join(f".labkit-threads td:nth-child({at}){{{rule}}}" for at, rule in enumerate(rules, start=2))
        threads = f"<div class='labkit-threads'>{shown._repr_html_()}</div>"
        return f"<style>{_STYLE}{lanes}</style><div class='labkit-steps'><div>{source}</div>{threads}</div>"

    def _threads(self, number: int, first: int, last: int, *notes: str) -> Table:
        """The steps from `first` to `last`, each below its thread, and what is written, up to the moment `number`."""
        made = self.steps
        written = dict.fromkeys(step.writes for step in made.steps if step.writes)
        names = [name for name in written if made.memory[-1][name].size <= _WIDE]
        rows = []
        for at in range(first, last + 1):
            cells = [""] * len(made.places[0])
            memory = made.memory[at] if at <= number else {}
            if 0 < at <= number:
                step = made.steps[at - 1]
                cells[step.thread] = step.words
            values = [_values(memory[name]) if name in memory else "" for name in names]
            rows.append((f"▶ {at}" if at == number else str(at), *cells, *values))
        heads = ("step", *(f"thread {thread}" for thread in range(len(made.places[0]))), *names)
        return Table(tuple(rows), heads, notes=notes)

    def _kept(self, caption: str, css: str, name: str) -> tuple[dict[str, str], dict[str, Any]]:
        """All steps, as a table and as text."""
        count = len(self.steps.steps)
        shown = self._threads(count, 0, min(count, _MOST_KEPT), f"{self._result} {self._dead}")
        html = f"<style>{css}</style><div class='{name}'>{self._html(count, shown)}</div>"
        return {"text/html": html, "text/plain": str(shown)}, {}


def _values(array: Array) -> str:
    return " ".join(map(str, array.flat))
