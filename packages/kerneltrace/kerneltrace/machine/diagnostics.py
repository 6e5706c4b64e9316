"""Collect what goes wrong while a kernel runs: each kind of mistake once a line, with
its first example and a count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kerneltrace.machine.traced_memory import parts_of

ENDINGS = ("raised", "deadlock", "endless")
"""Kinds of mistakes with which a run ends."""
FROM_END = "from end"
"""What a negative index that is counted from the end has for a kind here; a finding
calls it outside.
"""
COUNTS_FROM_END = (
    " A negative index counts from the end in numba and reads before the array in CUDA"
    " C++."
)
NOTED = ("printed", "layout")
"""Kinds of what may be meant."""
NOT_ALL_RUN = (
    "grid.sync() waits for all blocks of the grid, of which some run here. Trace a"
    ' smaller grid, with blocks="all".'
)
NOT_MET = (
    "the mask {:#x} names {} lanes that don't come here (the first: lane {}). Name"
    " those that do: {:#x}."
)
OUTSIDER = "{}, lane {}, is not in the mask that it passes itself."
ABSENT_LANE = (
    "{} reads the value of lane {}, which does not take part: it is undefined."
)


@dataclass
class Diagnostics:
    """Collects mistakes while a kernel runs."""

    where: Callable[[int], str]
    """Names a thread, counted over the whole grid."""
    line_of: Callable[[int], int]
    """The source line of a key."""
    current_thread: Callable[[], int]
    mistakes: dict[tuple[str, int, str], list[Any]] = field(default_factory=dict)
    """By kind, line and array: how often, the words and the thread of the first."""

    def add(
        self,
        kind: str,
        line: int,
        words: str,
        *,
        array: str = "",
        thread: int | None = None,
    ) -> None:
        """Count a mistake; the words and thread of the first of its kind, line and
        array are kept.
        """
        thread = self.current_thread() if thread is None else thread
        self.mistakes.setdefault((kind, line, array), [0, words, thread])[0] += 1

    @property
    def ended(self) -> bool:
        """Whether the run ended before all threads had returned."""
        return any(kind in ENDINGS for kind, *_ in self.mistakes)

    def out_of_bounds(
        self,
        traced: Any,
        index: Any,
        key: int,
        *,
        writing: bool,
        counted: bool = False,
    ) -> None:
        """Report an access out of bounds, which is not performed.

        One with a negative index that numba has `counted` from the end is performed.
        """
        name = traced.name
        shape = traced.array.shape
        if not traced.array.size:
            size = "no elements"
        elif len(shape) == 1:
            size = f"{shape[0]} elements, 0 to {shape[0] - 1}"
        else:
            size = f"the shape {tuple(shape)}"
        verb = "writes to" if writing else "reads"
        element = f"{name}[{_in_brackets(index)}]"
        words = f"{self._here()} {verb} {element}, but {name} has {size}."
        if any(part < 0 for part in parts_of(index)):
            words += COUNTS_FROM_END
        kind = FROM_END if counted else "outside"
        self.add(kind, self.line_of(key), words, array=name)

    def absent_lane(self, key: int, lane: int) -> None:
        """Report a shuffle that reads from a lane which does not take part."""
        self.add("undefined", self.line_of(key), ABSENT_LANE.format(self._here(), lane))

    def divided_by_zero(self, key: int, dividend: int) -> None:
        """Report an integer division by zero."""
        words = (
            f"{self._here()} divides the integer {dividend} by zero: numba's code gives"
            " 0 and goes on."
        )
        self.add("division", self.line_of(key), words)

    def unset_local(self, traced: Any, index: Any, key: int) -> None:
        """Report the read of an element of local memory that the thread has not
        written.
        """
        words = (
            f"{self._here()} reads {traced.name}[{_in_brackets(index)}] before it"
            " wrote it."
        )
        self.add("unset", self.line_of(key), words, array=traced.name)

    def _here(self) -> str:
        return self.where(self.current_thread())


def _in_brackets(index: Any) -> str:
    return ", ".join(map(str, parts_of(index)))
