"""Parse a schedule written as lists, and check it rank by rank: unknown, missing,
doubled or too early steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from trainplan._text import brief_repr
from trainplan.arguments import ANYTHING
from trainplan.errors import ScheduleError

# a list of steps for each rank, which `parse` judges
Schedule = Annotated[Sequence[Sequence[str]], ANYTHING]

# Where the stages of the model are. "loop": chunk c of rank r is stage c * ranks + r
# (Narayanan et al. 2021, section 2.2). "v": odd chunks run back from the last rank to
# the first (Qi et al. 2024, section 6). "both ways": each chunk is a pipeline of its
# own, through a copy of the model, and odd ones run back (Li and Hoefler 2021, Chimera;
# DeepSeek-AI 2024, DeepSeek-V3 technical report, section 3.2.1).
Placement = Literal["loop", "v", "both ways"]

KINDS = "FBW"
FORWARD, BACKWARD, WEIGHTS = range(3)
_STEP = re.compile(r"([FBW])(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)
_FORM = 'Write a list for each rank, as in [["F0", "B0"], ["F0", "B0"]].'


@dataclass(frozen=True)
class CheckedSchedule:
    """A schedule in which each rank does everything once and in a possible order.

    A step is coded as 3 * (chunk * microbatches + micro-batch) + kind, so that what it
    needs is found by arithmetic.
    """

    microbatches: int
    chunks: int
    split: bool  # whether the weights' gradients are steps of their own (W)
    steps: tuple[list[int], ...]
    placement: Placement = "loop"

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.steps)

    @property
    def stages(self) -> int:
        """How many parts the chunks of all ranks are, counted along the way of a
        micro-batch.
        """
        return self.ranks * self.chunks

    def stage(self, rank: int, chunk: int) -> int:
        """Which stage a rank's chunk is."""
        place = self.ranks - 1 - rank if self._runs_back(chunk) else rank
        return chunk * self.ranks + place

    def rank(self, stage: int) -> int:
        """Whose a stage is: its chunk is stage // ranks."""
        chunk, place = divmod(stage, self.ranks)
        return self.ranks - 1 - place if self._runs_back(chunk) else place

    def _runs_back(self, chunk: int) -> bool:
        return self.placement != "loop" and chunk % 2 == 1

    def neighbor(self, stage: int, by: int) -> int | None:
        """The stage that is `by` (1 or -1) further on; None beyond the ends of a
        pipeline.
        """
        next_stage = stage + by
        same_chunk = next_stage // self.ranks == stage // self.ranks
        if self.placement == "both ways" and not same_chunk:
            return None
        return next_stage if 0 <= next_stage < self.stages else None

    @property
    def parts(self) -> int:
        """How many parts a rank's share of the model is cut into."""
        return 1 if self.placement == "both ways" else self.chunks

    def chunk(self, code: int) -> int:
        """Which of its rank's chunks a step is of."""
        return code // 3 // self.microbatches

    def name(self, code: int) -> str:
        """A step as it is written: "F0", or "F0.1" where ranks have several chunks."""
        chunk, microbatch = divmod(code // 3, self.microbatches)
        name = f"{KINDS[code % 3]}{microbatch}"
        return f"{name}.{chunk}" if self.chunks > 1 else name


class _Step(NamedTuple):
    """A step as it is written: its kind as a place in KINDS."""

    kind: int
    microbatch: int
    chunk: int


def parse(schedule: Schedule, placement: Placement = "loop") -> CheckedSchedule:
    """The checked form of a schedule written as lists. Raises ScheduleError with what
    is wrong, in one sentence.

    "F0", "B0" and "W0" are forward, backward and backward of the weights of micro-batch
    0; "F0.1" is chunk 1 of a rank. Every rank must do every micro-batch of every chunk
    once, F before B before W; W on all ranks or on none.
    """
    lists = _lists(schedule)
    parsed: dict[str, _Step] = {}
    for rank, texts in enumerate(lists):
        for text in set(texts).difference(parsed):
            parsed[text] = _step(text, rank)
    if not parsed:
        raise ScheduleError(
            f"Expected steps such as 'F0' in the schedule, got none. {_FORM}"
        )
    microbatches = _count({step.microbatch for step in parsed.values()}, "micro-batch")
    chunks = _count({step.chunk for step in parsed.values()}, "chunk")
    code_of = {
        text: 3 * (step.chunk * microbatches + step.microbatch) + step.kind
        for text, step in parsed.items()
    }
    split = any(step.kind == WEIGHTS for step in parsed.values())
    codes = tuple([code_of[text] for text in texts] for texts in lists)
    checked = CheckedSchedule(microbatches, chunks, split, codes, placement)
    for rank in range(checked.ranks):
        _check(checked, rank)
    return checked


def _lists(schedule: Schedule) -> list[list[str]]:
    if not isinstance(schedule, list | tuple) or not schedule:
        raise ScheduleError(
            "Expected a schedule with a list of steps for each rank, got"
            f" {brief_repr(schedule)}. {_FORM}"
        )
    for rank, steps in enumerate(schedule):
        if not isinstance(steps, list | tuple):
            raise ScheduleError(
                f"Expected a list of steps for rank {rank}, got {brief_repr(steps)}."
                f" {_FORM}"
            )
        for step in steps:
            if not isinstance(step, str):
                raise ScheduleError(
                    f"Expected steps such as 'F0' on rank {rank}, got"
                    f" {brief_repr(step)}. {_FORM}"
                )
    return [list(steps) for steps in schedule]


def _step(text: str, rank: int) -> _Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise ScheduleError(
            f"Rank {rank} has an unknown step {brief_repr(text)}. Write F, B or W and"
            " the number of the micro-batch, as in 'F0'; where a rank has several"
            " chunks, the chunk after a dot, as in 'F0.1'."
        )
    kind, microbatch, chunk = match.groups(default="0")
    return _Step(KINDS.index(kind), int(microbatch), int(chunk))


def _count(numbers: set[int], what: str) -> int:
    """How many numbers there are. Raises ScheduleError unless they are 0, 1, 2 and so
    on.
    """
    gap = next(n for n in range(len(numbers) + 1) if n not in numbers)
    if gap < len(numbers):
        raise ScheduleError(
            f"The schedule has {what} {max(numbers)} and no {what} {gap}. Number them"
            " from 0 on, without a gap."
        )
    return len(numbers)


def _check(checked: CheckedSchedule, rank: int) -> None:
    """Raise ScheduleError unless a rank does everything once, and nothing before what
    it needs.
    """
    steps = checked.steps[rank]
    seen = bytearray(3 * checked.microbatches * checked.chunks)  # 1 by code
    for code in steps:
        if seen[code]:
            name = checked.name(code)
            raise ScheduleError(
                f"Rank {rank} does {name} twice. Remove one of the two."
            )
        if code % 3 != FORWARD and not seen[code - 1]:
            name = checked.name(code)
            first = checked.name(code - 1)
            wrong = f"before {first}" if code - 1 in steps else f"and never {first}"
            raise ScheduleError(
                f"Rank {rank} does {name} {wrong}. Put {first} in front of {name}."
            )
        seen[code] = 1
    kinds = (FORWARD, BACKWARD, WEIGHTS) if checked.split else (FORWARD, BACKWARD)
    if sum(seen) == len(kinds) * checked.microbatches * checked.chunks:
        return
    missing = [
        code for code in range(len(seen)) if not seen[code] and code % 3 in kinds
    ]
    code = missing[0]
    chunk = checked.chunk(code)
    has_chunk = [
        any(checked.chunk(other) == chunk for other in codes) for codes in checked.steps
    ]
    if not has_chunk[rank]:
        raise ScheduleError(
            f"Rank {has_chunk.index(True)} has a chunk {chunk} and rank {rank} has"
            " none. Give each rank the same number of chunks."
        )
    why = " Where there is a W, each B needs one." if code % 3 == WEIGHTS else ""
    raise ScheduleError(
        f"Rank {rank} never does {checked.name(code)}. Add it to that rank's list.{why}"
    )
