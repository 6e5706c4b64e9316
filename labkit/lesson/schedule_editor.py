"""A pipeline schedule whose steps the reader drags: what they wait for holds, and the bubble follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets
from matplotlib.axes import Axes

from labkit import plot
from labkit.core.display import brief_repr
from labkit.core.errors import ScheduleError
from labkit.core.parameters import Size, checked
from labkit.core.units import format_seconds
from labkit.lesson.live import Live
from labkit.plan.schedule import Schedule, simulate


class _Blocks(anywidget.AnyWidget):
    """The steps as blocks that can be dragged."""

    _esm = Path(__file__).with_suffix(".js")
    rows: Any = traitlets.List().tag(sync=True)
    """For each rank its steps: name, start and length as shares of the chart's width, and the name read out."""
    said = traitlets.Unicode().tag(sync=True)


class ScheduleEditor(Live):
    """A schedule, a list of steps for each rank, whose steps are dragged along their rank, or moved with arrow keys.

    `order` is the schedule as it now is, `plan` what `lab.schedule.simulate` makes of it with `times`, its keyword
    arguments. A move that it refuses is undone, and its reason shown. Raises ScheduleError as it does.
    """

    _stays = True
    _dead = "Run this cell to drag its steps."

    @checked(error=ScheduleError)
    def __init__(self, schedule: Schedule, **times: Any) -> None:
        import ipywidgets as widgets

        self._simulate = lambda order: simulate(order, **times)
        self.plan = self._simulate(schedule)
        self.order = [list(steps) for steps in schedule]
        self._longest_s = self.plan.makespan_s
        super().__init__()
        self.blocks = _Blocks()
        self.blocks.on_msg(lambda _, asked, __: self.move(asked["rank"], asked["name"], asked["by"]))
        self.box = widgets.VBox([self.blocks])
        self.redraw()

    def draw(self, axes: Axes) -> str:
        """Draw the picture that the notebook keeps."""
        return plot.gantt.on(axes, self.plan, title="Your schedule")

    def redraw(self) -> None:
        """Show the schedule as it now is; the chart grows with it and doesn't shrink."""
        super().redraw()
        self._longest_s = max(self._longest_s, self.plan.makespan_s) or 1.0
        self.blocks.rows = [self._row(rank) for rank in range(self.plan.ranks)]
        self.blocks.said = self.sentence

    def _row(self, rank: int) -> list[list[Any]]:
        found = []
        for name, start_s, end_s in zip(
            self.order[rank], self.plan.starts_s[rank], self.plan.ends_s[rank], strict=True
        ):
            label = f"rank {rank}: {name}, {format_seconds(start_s)} to {format_seconds(end_s)}"
            found.append([name, start_s / self._longest_s, (end_s - start_s) / self._longest_s, label])
        return found

    @checked(error=ScheduleError)
    def move(self, rank: Size, name: str, by: int) -> None:
        """Move a step of a rank `by` places to the right, as dragging does. Raises ScheduleError for one it lacks."""
        order = [list(steps) for steps in self.order]
        if rank >= len(order) or name not in order[rank]:
            raise ScheduleError(
                f"Expected a step of a rank, got {brief_repr(name)} of rank {rank}. `order` has them all."
            )
        place = order[rank].index(name)
        order[rank].insert(max(place + by, 0), order[rank].pop(place))
        try:
            self.plan = self._simulate(order)
        except ScheduleError as error:
            self.blocks.said = f"{name} of rank {rank} stays where it was. {error}"
            return
        self.order = order
        self.redraw()
