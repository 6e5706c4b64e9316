"""A schedule as its reader writes it, checked rank by rank: what is written, missing, doubled or out of order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.core.display import brief_repr
from labkit.core.errors import ScheduleError

Order = Sequence[Sequence[str]]

KINDS = "FBW"
FORWARD, BACKWARD, WEIGHTS = range(3)
_STEP = re.compile(r"([FBW])(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)
_FORM = 'Write a list for each rank, as in [["F0", "B0"], ["F0", "B0"]].'


@dataclass(frozen=True)
class Plan:
    """A checked schedule. Each rank has a list of numbers, 3 * (chunk * microbatches + micro-batch) + kind."""

    microbatches: int
    chunks: int
    split: bool  # whether the backward of the weights is a step of its own
    steps: tuple[list[int], ...]

    @property
    def ranks(self) -> int:
        """How many ranks have a list."""
        return len(self.steps)

    @property
    def stages(self) -> int:
        """Into how many parts the model is cut; chunk c of rank r is stage c * ranks + r."""
        return self.ranks * self.chunks

    def name(self, code: int) -> str:
        """A step as it is written: "F0", or "F0.1" where ranks have several chunks."""
        chunk, microbatch = divmod(code // 3, self.microbatches)
        return f"{KINDS[code % 3]}{microbatch}" + (f".{chunk}" if self.chunks > 1 else "")


def read(order: Order) -> Plan:
    """The checked plan of a schedule written as lists; ScheduleError says what is wrong with it, in one sentence.

    "F0", "B0" and "W0" are forward, backward and backward of the weights of micro-batch 0; "F0.1" is chunk 1 of a
    rank. Every rank has to do every micro-batch of every chunk once, F before B and B before W; W on all ranks or none.
    """
    lists = _lists(order)
    found: dict[str, tuple[int, int, int]] = {}
    for rank, steps in enumerate(lists):
        for text in set(steps).difference(found):
            found[text] = _parsed(text, rank)
    if not found:
        raise ScheduleError(f"Expected steps such as 'F0' in the schedule, got none. {_FORM}")
    microbatches = _count({microbatch for _, microbatch, _ in found.values()}, "micro-batch")
    chunks = _count({chunk for _, _, chunk in found.values()}, "chunk")
    code_of = {text: 3 * (chunk * microbatches + mb) + kind for text, (kind, mb, chunk) in found.items()}
    split = any(kind == WEIGHTS for kind, _, _ in found.values())
    plan = Plan(microbatches, chunks, split, tuple([code_of[text] for text in steps] for steps in lists))
    for rank in range(plan.ranks):
        _check(plan, rank)
    return plan


def _lists(order: Order) -> list[list[str]]:
    if isinstance(order, str) or not isinstance(order, Sequence) or not order:
        raise ScheduleError(f"Expected a schedule with a list of steps for each rank, got {brief_repr(order)}. {_FORM}")
    for rank, steps in enumerate(order):
        if isinstance(steps, str) or not isinstance(steps, Sequence):
            raise ScheduleError(f"Expected a list of steps for rank {rank}, got {brief_repr(steps)}. {_FORM}")
        strange = [step for step in steps if not isinstance(step, str)]
        if strange:
            raise ScheduleError(f"Expected steps such as 'F0' on rank {rank}, got {brief_repr(strange[0])}. {_FORM}")
    return [list(steps) for steps in order]


def _parsed(text: str, rank: int) -> tuple[int, int, int]:
    match = _STEP.fullmatch(text)
    if match is None:
        raise ScheduleError(
            f"Rank {rank} has an unknown step {brief_repr(text)}. "
            f"Write F, B or W and the number of the micro-batch, as in "
            "'F0', with the chunk behind a dot where a rank has several, as in 'F0.1'."
        )
    return KINDS.index(match[1]), int(match[2]), int(match[3] or 0)


def _count(numbers: set[int], what: str) -> int:
    """How many there are, if they are 0, 1, 2 and so on."""
    gap = next(n for n in range(len(numbers) + 1) if n not in numbers)
    if gap < len(numbers):
        raise ScheduleError(
            f"The schedule has {what} {max(numbers)} and no {what} {gap}. Number each {what} from 0 on, without a gap."
        )
    return len(numbers)


def _check(plan: Plan, rank: int) -> None:
    """ScheduleError unless a rank does everything once and nothing before what it needs."""
    done = bytearray(3 * plan.microbatches * plan.chunks)
    for code in plan.steps[rank]:
        if done[code]:
            raise ScheduleError(f"Rank {rank} does {plan.name(code)} twice. Take one of the two out.")
        if code % 3 and not done[code - 1]:
            raise ScheduleError(_too_early(plan, rank, code))
        done[code] = 1
    kinds = (FORWARD, BACKWARD, WEIGHTS) if plan.split else (FORWARD, BACKWARD)
    if sum(done) == len(kinds) * plan.microbatches * plan.chunks:
        return
    code = next(c for c in range(len(done)) if not done[c] and c % 3 in kinds)
    chunk = code // 3 // plan.microbatches
    has = [other for other in range(plan.ranks) if any(c // 3 // plan.microbatches == chunk for c in plan.steps[other])]
    if rank not in has:
        raise ScheduleError(
            f"Rank {has[0]} has a chunk {chunk} and rank {rank} has none. Give each rank the same number of chunks."
        )
    why = " Where one step is a W, each B needs one." if code % 3 == WEIGHTS else ""
    raise ScheduleError(f"Rank {rank} never does {plan.name(code)}. Add it to that rank's list.{why}")


def _too_early(plan: Plan, rank: int, code: int) -> str:
    first, then = plan.name(code - 1), plan.name(code)
    if code - 1 not in plan.steps[rank]:
        return f"Rank {rank} does {then} and never {first}. Put {first} in front of {then}."
    return f"Rank {rank} does {then} before {first}. Put {first} in front of {then}."
