"""A pipeline schedule whose steps the reader drags: what they wait for holds, and the
bubble follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets
from matplotlib.axes import Axes

from exercises.nb14 import schedule_par
from labkit import plot
from labkit.core.parameters import Count, checked
from labkit.core.units import format_seconds
from labkit.lesson.live import Live
from trainplan.errors import ScheduleError
from trainplan.schedule import Schedule, simulate


class _Blocks(anywidget.AnyWidget):
    """The steps as blocks that can be dragged."""

    _esm = Path(__file__).with_suffix(".js")
    steps: Any = traitlets.List().tag(sync=True)
    """Each step's rank, name, start and length as shares of the chart's width, and the
    name read out.
    """
    said = traitlets.Unicode().tag(sync=True)


class ScheduleEditor(Live):
    """A schedule, a list of steps for each rank, whose steps are dragged along their
    rank, or moved with arrow keys.

    `plan` is what `lab.schedule.simulate` makes of it with `times`, its keyword
    arguments. A move that it refuses is undone, and its reason shown. With `held` it is
    a puzzle: no rank may hold more micro-batches, and each move is scored beside par
    and the reader's best. Raises ScheduleError as it does.
    """

    _stays = True
    _dead = "Run this cell to drag its steps."

    @checked(error=ScheduleError)
    def __init__(
        self, schedule: Schedule, *, held: Count | None = None, **times: Any
    ) -> None:
        import ipywidgets as widgets

        self._times = times
        self._held = held
        self.plan = simulate(schedule, **times)
        self._longest_s = 0.0
        super().__init__()
        self.blocks = _Blocks()
        self.blocks.on_msg(self._moved)
        self.box = widgets.VBox([self.blocks])
        self.redraw()

    @property
    def order(self) -> list[list[str]]:
        """The schedule as it now is, a list of steps for each rank."""
        schedule = self.plan.schedule
        return [[schedule.name(code) for code in steps] for steps in schedule.steps]

    def draw(self, axes: Axes) -> str:
        """Draw the picture that the notebook keeps."""
        sentence = plot.gantt.on(axes, self.plan, title="Your schedule")
        if self._held is None:
            return sentence
        scored = schedule_par.score(self.order, held=self._held)
        return f"{sentence} {schedule_par.in_words(scored)}"

    def redraw(self) -> None:
        """Show the schedule as it now is; the chart grows with it and
        doesn't shrink.
        """
        super().redraw()
        self._longest_s = longest_s = max(self._longest_s, self.plan.makespan_s, 1e-30)
        steps = []
        for span in (span for span in self.plan.spans if span.kind != "communication"):
            name = span.kind + span.label
            times = f"{format_seconds(span.start_s)} to {format_seconds(span.end_s)}"
            text = f"rank {span.rank}: {name}, {times}"
            steps.append(
                [
                    span.rank,
                    name,
                    span.start_s / longest_s,
                    span.seconds / longest_s,
                    text,
                ]
            )
        self.blocks.steps = steps
        self.blocks.said = self.sentence

    def _moved(self, _: object, asked: dict[str, Any], __: object) -> None:
        """Move a step by as many places as the page asks for."""
        order = self.order
        rank = asked["rank"]
        name = asked["name"]
        place = order[rank].index(name)
        order[rank].insert(max(place + asked["by"], 0), order[rank].pop(place))
        try:
            self.plan = simulate(order, **self._times)
        except ScheduleError as error:
            self.blocks.said = f"{name} of rank {rank} stays where it was. {error}"
        else:
            self.redraw()
