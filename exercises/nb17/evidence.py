"""What can be looked at in notebook 17's broken trainings: tables and pictures of what the ranks left."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from exercises.nb17 import health
from exercises.nb17.device_memory import MIB
from exercises.nb17.settings import CORES, LAYERS, RankEvidence
from labkit.core.display import Table
from labkit.core.units import significant
from labkit.plot.lines import curves
from labkit.plot.schedules import gantt

_CHARACTER = 16 * MIB  # of a segment, in the picture of the memory
_NOTE = "GPUs, their memory and their times are simulated."


@dataclass(frozen=True)
class Evidence:
    """What `show` shows, and how many minutes that takes; 0 for what is there from the start.

    In `EVIDENCE` `show` takes a broken run; a case's own evidence takes nothing.
    """

    what: str
    minutes: int
    show: Callable[..., object]


def _by_rank(launched: Any, cells: Callable[[RankEvidence], Sequence[object]], *headings: str) -> Table:
    rows = tuple((f"rank {i}", *map(str, cells(rank))) for i, rank in enumerate(health.of(launched)))
    return Table(rows, ("", *headings))


def some_steps(launched: Any) -> list[int]:
    """The first step, the last that all ranks have begun, and two in between."""
    last = min(len(rank.losses) for rank in health.of(launched)) - 1
    return sorted({0, last // 3, 2 * last // 3, max(last, 0)}) if last >= 0 else []


def _loss_curve(broken: Any) -> object:
    return curves({"training": health.losses(broken.launched)}, title="Loss, the mean over all ranks' images")


def _last_lines(rank: RankEvidence, n: int) -> list[str]:
    return [*rank.log[-n:], *([rank.error] if rank.error else [])]


def _log(broken: Any) -> Table:
    return Table(tuple((line,) for line in _last_lines(health.of(broken.launched)[0], 4)), title="Rank 0's last lines")


def _logs(broken: Any) -> Table:
    rows = []
    for i, rank in enumerate(health.of(broken.launched)):
        lines = [line for line in rank.log if not line.startswith("step")] + _last_lines(rank, 1)
        rows += [(f"rank {i}", line) for line in dict.fromkeys(lines)]
    return Table(tuple(rows), title="Each rank's warnings and last lines")


def busy_percent(rank: RankEvidence, step_s: float) -> float:
    """Percent of the steps' time that the GPU computed, in tens."""
    return round(10 * sum(rank.gpu_s) / max(len(rank.gpu_s) * step_s, 1e-9)) * 10


def _utilisation(broken: Any) -> Table:
    step_s = health.step_s(broken.launched)

    def cells(rank: RankEvidence) -> list[str]:
        used = f"{rank.memory.most_reserved / MIB:,.0f} / {rank.memory.capacity / MIB:,.0f} MiB"
        return [f"{busy_percent(rank, step_s):.0f} %", used, f"{rank.celsius} °C", f"{rank.mhz:,} MHz"]

    table = _by_rank(broken.launched, cells, "GPU busy", "memory", "temperature", "clock")
    return dataclasses.replace(table, notes=(_NOTE,))


def _environment(broken: Any) -> Table:
    job = broken.job
    loader = f"{job.loader_workers} of {CORES} cores"
    return _by_rank(
        broken.launched, lambda r: [r.driver, job.torch_cuda, r.device, loader],
        "newest CUDA of the driver", "PyTorch's CUDA", "model is on", "loader's workers",
    )  # fmt: skip


def _stacks(broken: Any) -> Table:
    working = ["is at work, or done: it stands nowhere"]
    return _by_rank(broken.launched, lambda r: [" > ".join(r.stack[-3:] or working)], "outermost to innermost call")


def _timeline(broken: Any) -> object:
    """What the profiler saw of the last three steps."""
    spans = broken.launched.spans
    last_s = max(span.end_s for span in spans)
    since_s = last_s - 4 * health.step_s(broken.launched)
    shown = [dataclasses.replace(s, start_s=max(s.start_s, since_s)) for s in spans if s.end_s > since_s]
    return gantt(shown, title=f"The GPUs in the last steps. {_NOTE}")


def _memory(broken: Any) -> Table:
    """The segments of the fullest rank, or of the one that ran out of memory."""
    ranks = health.of(broken.launched)
    which = health.out_of_memory(broken.launched)
    which = max(range(len(ranks)), key=lambda i: ranks[i].memory.most_used) if which is None else which
    rows = []
    for segment in ranks[which].memory.fullest:
        free = [size for size, owner in segment if not owner]
        bar = "".join(("█" if owner else "░") * max(1, round(size / _CHARACTER)) for size, owner in segment)
        sizes = (
            f"{sum(size for size, _ in segment) / MIB:.0f}",
            f"{sum(free) / MIB:.0f}",
            f"{max(free, default=0) / MIB:.0f}",
        )
        rows.append((bar, *sizes))
    head = ("█ in use, ░ free", "MiB", "free", "largest hole")
    note = f"A character is {_CHARACTER // MIB} MiB or less. {_NOTE}"
    return Table(tuple(rows), head, f"Rank {which}: what it has taken from the driver", (note,))


def queued(rank: RankEvidence) -> int:
    """Batches that lie ready when the rank asks for one: none where it has to wait."""
    return 0 if sum(rank.loader_s) else 2


def _batches(broken: Any) -> Table:
    steps = some_steps(broken.launched)
    head = (*(f"step {i}: images of rows" for i in steps), "batches ready")
    return _by_rank(broken.launched, lambda r: [*(f"{r.images[i]} of {r.rows[i]}" for i in steps), queued(r)], *head)


def _norms(broken: Any) -> Table:
    steps = [i for i in some_steps(broken.launched) if i < health.steps(broken.launched)]
    return _by_rank(
        broken.launched, lambda r: [f"{r.own_norms[i]:.3g} / {r.norms[i]:.3g}" for i in steps],
        *(f"step {i}: own / all ranks'" for i in steps),
    )  # fmt: skip


def _activations(broken: Any) -> Table:
    launched, steps = broken.launched, some_steps(broken.launched)
    done = min(len(rank.activations) for rank in health.of(launched))
    largest = [
        [max((r.activations[i][layer] for r in health.of(launched)), key=nan_last) for i in steps if i < done]
        for layer in range(LAYERS)
    ]
    rows = tuple((f"layer {i + 1}", *(f"{value:,.1f}" for value in values)) for i, values in enumerate(largest))
    return Table(rows, ("largest activation", *(f"step {i}" for i in steps if i < done)))


def nan_last(value: float) -> float:
    """A key for sorting that puts NaN last."""
    return math.inf if math.isnan(value) else value


def _weights(broken: Any) -> Table:
    steps = some_steps(broken.launched)
    return _by_rank(broken.launched, lambda r: [r.checksums[i] for i in steps], *(f"before step {i}" for i in steps))


def alone(broken: Any) -> Any:
    """The broken job on one rank, with the images of all."""
    return health.run(broken.job, broken.fault, 1)


def _one_rank(broken: Any) -> Table:
    def cells(launched: Any) -> tuple[str, ...]:
        rank, found = health.of(launched)[0], health.losses(launched)
        ended = rank.error or f"{health.steps(launched)} steps"
        return ended, *(significant(x, 3) for x in (found[-1] if found else math.nan, rank.held_out_loss))

    rows = tuple((name, *cells(run)) for name, run in (("4 ranks", broken.launched), ("1 rank", alone(broken))))
    return Table(rows, ("", "ended", "last loss", "held-out loss"), "The same images on one rank")


EVIDENCE = {
    "loss curve": Evidence("the mean loss by step", 0, _loss_curve),
    "log of rank 0": Evidence("its last lines", 0, _log),
    "logs": Evidence("warnings and last lines of all ranks", 2, _logs),
    "GPU utilisation": Evidence("busy, memory, temperature and clock by rank", 2, _utilisation),
    "environment": Evidence("driver, CUDA, device and loader by rank", 3, _environment),
    "stacks": Evidence("where each rank stands", 5, _stacks),
    "batches": Evidence("images and rows by rank, and the loader's queue", 5, _batches),
    "memory": Evidence("segments and blocks of a GPU's memory", 10, _memory),
    "timeline": Evidence("a profile of the last steps of all ranks", 10, _timeline),
    "weights": Evidence("checksums by rank, from a rerun", 15, _weights),
    "gradient norms": Evidence("before and after the all-reduce, from a rerun", 20, _norms),
    "activations": Evidence("the largest of each layer, from a rerun", 20, _activations),
    "one rank": Evidence("the same training on a single rank", 60, _one_rank),
}
