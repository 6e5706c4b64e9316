"""The cases of notebook 17: what is broken in each, drawn from a seed; the causes and mends to choose from."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from exercises.nb17 import health
from exercises.nb17.device_memory import MIB
from exercises.nb17.evidence import EVIDENCE, Evidence
from exercises.nb17.settings import CORES, LAYERS, RANKS, ROWS, SIDE_WORK, STEP_S, Fault, Job
from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.core.errors import nearest
from labkit.lesson.checks import NotYet

_HALF_MOST = 65_504.0  # the largest number of float16
_RESTART_MINUTES = 10
_HEALTHY = "The run was repeated with your mend, and is healthy."

# Cause -> where it shows.
CAUSES = {
    "a rank calls another collective": "the stacks: one rank waits in another call than the others",
    "float16 overflows": "the activations: one layer reaches 65,504, the largest number of float16",
    "memory is in pieces": "the memory picture: much is reserved and free, and no hole is large enough",
    "the CPU computes": "the GPU utilisation: 0 % on the rank, and the timeline is empty there",
    "ranks have different weights": "the checksums of the weights: they differ from rank to rank",
    "one GPU is slow": "the timeline: one rank computes longer than the others, which wait for it",
    "the loader is too slow": "the timeline: a rank computes no longer than usual, and idles before it does",
    "the loss is divided by a wrong count": "a run on one rank, which is right; and equal checksums on all ranks",
    "the learning rate is too high": "the gradient norms: they grow step by step before the loss does",
    "memory leaks": "the memory picture: more of it in use in each step",
    "the model is too large for the GPU": "the memory picture: in use is as much as there is, from the first step on",
    "bad images": "the log: the loss of one step jumps, and that of a run on one rank in the same step",
    "the network is slow": "the timeline: all ranks communicate longer",
    "a GPU is lost": "the log: a rank ends with an error of its GPU, and its utilisation is missing",
}


@dataclass(frozen=True)
class Setting:
    """A setting that a mend may change: the values it can have, or the least and the largest, and what it does."""

    what: str
    values: tuple[Any, ...] = ()
    least: float = -math.inf
    most: float = math.inf

    @property
    def choices(self) -> str:
        """The values in words."""
        if self.values and type(self.values[0]) is int:
            return f"{self.values[0]} to {self.values[-1]}"
        return " or ".join(map(repr, self.values)) if self.values else f"{self.least:g} to {self.most:g}"

    def allows(self, value: object) -> bool:
        """Whether it can have this value."""
        if self.values:
            return any(value == one and type(value) is type(one) for one in self.values)
        number = as_float(value)
        return number is not None and self.least <= number <= self.most


SETTINGS = {
    "precision": Setting("number format of the layers", ("float32", "bfloat16", "float16")),
    "learning_rate": Setting("of gradient descent; 0.1 now", least=1e-4, most=1.0),
    "clip_norm": Setting("largest norm of the gradients", least=1e-3, most=1e3),
    "bad_gradients": Setting("what happens to those that aren't finite", ("set to zero", "skip the step")),
    "time_limit_minutes": Setting("that a rank waits for others; 15 now", least=1, most=30),
    "on_all_ranks": Setting("makes all ranks do this beside the training", SIDE_WORK),
    "start_weights": Setting("where each rank's first weights come from", ("checkpoint of each node", "rank 0")),
    "copy_weights": Setting("sends rank 0's weights to all", ("never", "every step")),
    "reduced": Setting("gradients that are added up over ranks", ("every layer",)),
    "divide_by": Setting("of the summed loss", ("images of all ranks", "images of this rank", "rows")),
    "replace_node": Setting("runs this rank on another machine", tuple(range(RANKS))),
    "leave_out_node": Setting("gives this rank no images", tuple(range(RANKS))),
    "loader_workers": Setting(f"of each rank; 2 now, {CORES} cores", tuple(range(1, CORES + 1))),
    "rows": Setting(f"most images of a rank in a step; {ROWS} now", tuple(range(1, 2 * ROWS + 1))),
    "allocator": Setting("of the GPU's memory", ("default", "expandable segments")),
    "empty_cache": Setting("gives free memory back before each step", (True, False)),
    "torch_cuda": Setting("CUDA version that PyTorch is built for; 13.0 now", ("11.8", "12.4", "12.6", "12.8", "13.0")),
    "stop_without_gpu": Setting("ends a rank that finds no GPU", (True, False)),
}


@dataclass(frozen=True)
class BrokenRun:
    """One broken training: the job's settings, what is broken, and what that is called."""

    cause: str
    job: Job
    fault: Fault

    @property
    def launched(self) -> Any:
        """The broken run, which is run once."""
        return health.run(self.job, self.fault)

    def alarm(self) -> str:
        """The sentence that the reader starts from."""
        return health.alarm(self.launched)

    def evidence(self) -> Mapping[str, Evidence]:
        """By name: what can be looked at, and for how many minutes."""
        return {name: Evidence(e.what, e.minutes, functools.partial(e.show, self)) for name, e in EVIDENCE.items()}

    def judge(self, cause: object, mend: object) -> str:
        """The sentence of a right answer; NotYet, with the minutes it costs, says why a cause or a mend is wrong."""
        if cause not in CAUSES:
            raise NotYet(f"There is no cause {brief_repr(cause)}; did you mean {_nearest(cause, CAUSES)}?")
        job = mended(self.job, mend)
        replay = health.run(job, self.fault)
        wrong, minutes = health.complaints(replay, job, self.fault), _RESTART_MINUTES + health.steps(replay)
        outcome = f"The run was repeated with your mend, and isn't healthy. {' '.join(wrong)}" if wrong else _HEALTHY
        if cause != self.cause:
            outcome = f"The cause is another one: {cause} would show in {CAUSES[str(cause)]}. {outcome}"
        if wrong or cause != self.cause:
            raise NotYet(f"{outcome} This answer costs {minutes} minutes.", minutes=minutes)
        return f"The cause is right. {outcome}"


def _nearest(name: object, known: Iterable[str]) -> str:
    return " or ".join(nearest(str(name), list(known)))


def mended(job: Job, mend: object) -> Job:
    """The job with one setting changed; NotYet for what isn't one."""
    if not isinstance(mend, dict) or len(mend) != 1:
        raise NotYet(f"Expected a mend that changes one setting, such as {{'rows': 16}}, got {brief_repr(mend)}.")
    ((name, value),) = mend.items()
    if name not in SETTINGS:
        raise NotYet(f"There is no setting {brief_repr(name)}; did you mean {_nearest(name, SETTINGS)}?")
    if not SETTINGS[name].allows(value):
        raise NotYet(f"Expected {name} to be {SETTINGS[name].choices}, got {brief_repr(value)}.")
    if name == "on_all_ranks":
        value = tuple(work for work in SIDE_WORK if work in (*job.on_all_ranks, value))
    return dataclasses.replace(job, **{name: value})


def broken(number: str, seed: int) -> BrokenRun:
    """The case of exercise `number`, as `seed` draws it; that of 17.6 is any of the others."""
    draw = random.Random(f"case {number} {seed}")
    return (draw.choice(list(_DRAWN.values())) if number == "17.6" else _DRAWN[number])(draw)


def _nan(draw: random.Random) -> BrokenRun:
    layer, step = draw.randrange(LAYERS - 1), draw.randrange(8, 24)
    ranks = health.of(health.healthy())
    largest = max(row[layer] for rank in ranks for row in rank.activations[: step + 1])
    gain = _HALF_MOST / (0.9 * largest)  # the layer overflows in this step or before, in spite of float16's rounding
    return BrokenRun("float16 overflows", Job(precision="float16"), Fault(gain=(layer, gain), noise=draw.randrange(99)))


def _wrong_count(draw: random.Random) -> BrokenRun:
    job = Job(divide_by=draw.choice(("images of this rank", "rows")))
    return BrokenRun("the loss is divided by a wrong count", job, Fault(noise=draw.randrange(99)))


def _drift(draw: random.Random) -> BrokenRun:
    stale = draw.random() < 0.5
    rank, layer = (draw.randrange(1, RANKS), -1) if stale else (-1, draw.randrange(LAYERS))
    fault = Fault(stale_rank=rank, unreduced_layer=layer, noise=draw.randrange(99))
    return BrokenRun("ranks have different weights", Job(), fault)


def _hang(draw: random.Random) -> BrokenRun:
    alone, first = draw.choice(SIDE_WORK), draw.randrange(len(SIDE_WORK))
    job = Job(on_all_ranks=tuple(work for work in SIDE_WORK if work != alone))
    fault = Fault(side_rank=draw.randrange(RANKS), side_first=first, noise=draw.randrange(99))
    return BrokenRun("a rank calls another collective", job, fault)


def _memory(draw: random.Random) -> BrokenRun:
    fault = Fault(capacity=draw.randrange(812, 892, 4) * MIB, noise=draw.randrange(99))
    return BrokenRun("memory is in pieces", Job(), fault)


def _on_cpu(draw: random.Random) -> BrokenRun:
    ranks = tuple(range(RANKS)) if draw.random() < 0.5 else (draw.randrange(RANKS),)
    fault = Fault(old_driver=ranks, driver=draw.choice(("12.4", "12.6", "12.8")), noise=draw.randrange(99))
    return BrokenRun("the CPU computes", Job(), fault)


def _straggler(draw: random.Random) -> BrokenRun:
    return BrokenRun("one GPU is slow", Job(), Fault(slow_rank=draw.randrange(RANKS), noise=draw.randrange(99)))


def _starving(draw: random.Random) -> BrokenRun:
    decode_s = STEP_S * draw.randrange(6, 13)
    slow = range(RANKS) if draw.random() < 0.5 else [draw.randrange(RANKS)]
    all_s = tuple(decode_s if rank in slow else 0.001 for rank in range(RANKS))
    return BrokenRun("the loader is too slow", Job(), Fault(decode_s=all_s, noise=draw.randrange(99)))


_DRAWN: dict[str, Callable[[random.Random], BrokenRun]] = {
    "17.3a": _nan, "17.3b": _wrong_count, "17.3c": _drift, "17.4a": _hang, "17.4b": _memory,
    "17.5a": _on_cpu, "17.5b": _straggler, "17.5c": _starving,
}  # fmt: skip
CASES = [functools.partial(broken, number) for number in _DRAWN]  # seed -> the case
