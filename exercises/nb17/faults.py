"""What notebook 17's cases have in common: causes, settings, curves, and which evidence shows which fault.

A fault shows in the evidence that differs from a healthy run's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from exercises.nb17 import health
from exercises.nb17.cases import CASES, CAUSES, SETTINGS, BrokenRun, broken as broken
from exercises.nb17.evidence import EVIDENCE, alone, busy_percent, nan_last, queued, some_steps
from exercises.nb17.settings import Fault, Job, RankEvidence
from labkit.core.display import Table

_SEEN, _EXACT = 0.1, 0.02  # shares by which an eye sees a curve differ, and by which a table of numbers does


def told_by() -> dict[str, tuple[str, ...]]:
    """Cause -> the evidence that differs from the healthy run's, of the case that each exercise shows first."""
    healthy, signs = BrokenRun("", Job(), Fault()), _SIGNS.items()
    return {one.cause: tuple(name for name, sign in signs if sign(one) != sign(healthy)) for one in _first_cases(alone)}


def curves() -> dict[str, list[float]]:
    """The loss by step: of the healthy run, and of the first case of each cause."""
    broken = {one.cause: health.losses(one.launched) for one in _first_cases(lambda one: one.launched)}
    return {"healthy": health.losses(health.healthy()), **broken}


def _first_cases(run: Callable[[BrokenRun], object]) -> list[BrokenRun]:
    """The first case of each cause, run. Two run at a time: while one waits in simulated time, the other computes."""
    runs = [draw(0) for draw in CASES]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, runs))
    return runs


def causes() -> Table:
    """The causes to choose from, and where each shows."""
    return Table(tuple(CAUSES.items()), ("cause", "shows in"))


def mends() -> Table:
    """The settings that a mend may change, and their values."""
    rows = tuple((name, setting.what, setting.choices) for name, setting in SETTINGS.items())
    return Table(rows, ("setting", "is", "may be"))


def evidence() -> dict[str, int]:
    """What can be asked for, and its minutes."""
    return {name: piece.minutes for name, piece in EVIDENCE.items() if piece.minutes}


def _ranks(broken: Any) -> Sequence[RankEvidence]:
    return health.of(broken.launched)


def _near(values: Sequence[float], right: Sequence[float], share: float) -> bool:
    """Whether a series is as long as another one and everywhere within a share of it."""
    pairs = zip(values, right, strict=False)
    return len(values) == len(right) and all(abs(a - b) <= share * abs(b) for a, b in pairs)


def _loss(broken: Any) -> object:
    return _near(health.losses(broken.launched), health.losses(health.healthy()), _SEEN)


def _logs(broken: Any) -> object:
    ended = [(bool(rank.error), any("CUDA" in line for line in rank.log)) for rank in _ranks(broken)]
    return ended, health.first_nan(broken.launched) is None


def _utilisation(broken: Any) -> object:
    return [(busy_percent(rank, health.step_s(broken.launched)), rank.mhz) for rank in _ranks(broken)]


def _memory(broken: Any) -> object:
    """Whether a fifth of the memory, or more, is reserved and not in use."""
    return max((r.memory.most_reserved - r.memory.most_used) / r.memory.capacity for r in _ranks(broken)) > 0.2


def _timeline(broken: Any) -> object:
    ranks = _ranks(broken)
    return [[round(1e3 * sum(part) / max(len(part), 1)) for part in (r.gpu_s, r.loader_s)] for r in ranks]


def _weights(broken: Any) -> object:
    return any(len({rank.checksums[i] for rank in _ranks(broken)}) > 1 for i in some_steps(broken.launched))


def _norms(broken: Any) -> object:
    pairs = zip(_ranks(broken), health.of(health.healthy()), strict=True)
    return all(_near(a.own_norms, b.own_norms, _SEEN) and _near(a.norms, b.norms, _SEEN) for a, b in pairs)


def _activations(broken: Any) -> object:
    return max((nan_last(x) for rank in _ranks(broken) for row in rank.activations for x in row), default=0.0) > 1e3


def _one_rank(broken: Any) -> object:
    """Whether one rank ends like four do, and like a healthy one."""
    found, right = health.losses(alone(broken)), health.losses(health.healthy())
    return _near(health.losses(broken.launched), found, _EXACT), _near(found, right, _EXACT)


_SIGNS: dict[str, Callable[[Any], object]] = {
    "loss curve": _loss,
    "logs": _logs,
    "GPU utilisation": _utilisation,
    "environment": lambda broken: [(rank.driver, rank.device) for rank in _ranks(broken)],
    "stacks": lambda broken: len({tuple(rank.stack) for rank in _ranks(broken)}),
    "batches": lambda broken: [(rank.images[:2], queued(rank)) for rank in _ranks(broken)],
    "memory": _memory,
    "timeline": _timeline,
    "weights": _weights,
    "gradient norms": _norms,
    "activations": _activations,
    "one rank": _one_rank,
}
