"""The cases of notebook 17: what is broken in each, drawn from a seed; the causes and mends to choose from."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from exercises.nb17 import health
from exercises.nb17.device_memory import MIB
from exercises.nb17.settings import COMM_S, LAYERS, RANKS, SIDE_WORK, STEP_S, Fault, Job, rows_of
from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.core.errors import nearest
from labkit.lesson.checks import NotYet

_HALF_MOST = 65_504.0  # the largest number of float16
_RESTART_MINUTES = 10
_HEALTHY = "The run was repeated with your mend, and is healthy."

CAUSES = {row["cause"]: row["shows"] for row in rows_of("causes")}  # cause -> where it shows
SETTINGS = {row["setting"]: row for row in rows_of("settings")}
ALARMS = {
    "nan": "The loss is NaN.",
    "worse": "The evaluation of the last checkpoint isn't what this job gave last week.",
    "stopped": "The job has logged no step for {minutes:g} minutes.",
    "slow": "A step takes {times:.1f} times as long as last week.",
}
ALARM_OF = {"17.1": "worse", "17.3a": "nan", "17.3b": "worse", "17.4a": "stopped", "17.4c": "stopped",
            "17.5a": "slow", "17.5b": "slow", "17.6": "slow"}  # fmt: skip


@dataclass(frozen=True)
class BrokenRun:
    """One broken training: the job's settings, what is broken, what that is called, and the alarm that it raises."""

    causes: tuple[str, ...]
    job: Job
    fault: Fault
    kind: str = "worse"

    @property
    def launched(self) -> Any:
        """The broken run, which is run once."""
        return health.run(self.job, self.fault)

    def alarm(self) -> str:
        """The sentence that the reader starts from: several causes share it."""
        times = (STEP_S * self.fault.times + COMM_S) / (STEP_S + COMM_S)
        return ALARMS[self.kind].format(times=times, minutes=self.job.time_limit_minutes)

    def judge(self, cause: object, mend: object) -> tuple[str, int]:
        """The sentence of a right answer and its minutes; NotYet, with the minutes it costs, says what is wrong."""
        listed = cause if isinstance(cause, list | tuple | set) else [cause]
        named = {one if isinstance(one, str) else brief_repr(one) for one in listed}
        if unknown := [one for one in named if one not in CAUSES]:
            raise NotYet(f"There is no cause {brief_repr(unknown[0])}; did you mean {_nearest(unknown[0], CAUSES)}?")
        job = mended(self.job, mend, len(self.causes))
        replay = health.run(job, self.fault)
        wrong = health.complaints(replay, job, self.job, self.fault)
        minutes = _RESTART_MINUTES + sum(int(SETTINGS[name]["minutes"]) for name in mend)  # type: ignore[attr-defined]
        outcome = f"The run was repeated with your mend, and isn't healthy. {' '.join(wrong)}" if wrong else _HEALTHY
        if named != {*self.causes}:
            shows = "; ".join(f"{one} would show in {CAUSES[one]}" for one in sorted(named - {*self.causes}))
            outcome = (
                f"That isn't {'all of ' * (named < {*self.causes})}the cause. {shows}{'. ' * bool(shows)}{outcome}"
            )
        if wrong or named != {*self.causes}:
            minutes += health.steps(replay)
            raise NotYet(f"{outcome} This answer costs {minutes} minutes.", minutes=minutes)
        return f"The cause is right. {outcome}", minutes


def _nearest(name: object, known: Iterable[str]) -> str:
    return " or ".join(nearest(str(name), list(known)))


def choices(setting: str) -> str:
    """The values that a setting may have, in words."""
    values = json.loads(SETTINGS[setting]["values"])
    if isinstance(values, dict):
        return f"{values['from']:g} to {values['to']:g}"
    return f"{values[0]} to {values[-1]}" if len(values) > 3 else " or ".join(map(repr, values))


def _allows(setting: str, value: object) -> bool:
    values = json.loads(SETTINGS[setting]["values"])
    if isinstance(values, dict):
        number = as_float(value)
        whole = setting != "rows" or type(value) is int
        return number is not None and whole and values["from"] <= number <= values["to"]
    return any(value == one and type(value) is type(one) for one in values)


def mended(job: Job, mend: object, most: int = 1) -> Job:
    """The job with at most so many settings changed; NotYet for what isn't a mend."""
    if not isinstance(mend, dict) or not 1 <= len(mend) <= most:
        number = "one setting" if most == 1 else f"at most {most} settings"
        raise NotYet(f"Expected a mend that changes {number}, such as {{'rows': 16}}, got {brief_repr(mend)}.")
    for name, value in mend.items():
        if name not in SETTINGS:
            raise NotYet(f"There is no setting {brief_repr(name)}; did you mean {_nearest(name, SETTINGS)}?")
        if not _allows(name, value):
            raise NotYet(f"Expected {name} to be {choices(name)}, got {brief_repr(value)}.")
        if name == "on_all_ranks":
            value = tuple(work for work in SIDE_WORK if work in (*job.on_all_ranks, value))
        job = dataclasses.replace(job, **{name: value})
    return job


def broken(number: str, seed: int) -> BrokenRun:
    """The case of exercise `number`, as `seed` draws it: one of the causes of its alarm, in 17.6 two at once."""
    draw = random.Random(f"case {number} {seed}")
    kinds = ("slow", "worse") if number == "17.6" else (ALARM_OF[number],)
    picked = {draw.choice([row["cause"] for row in rows_of("causes") if kind in row["alarms"]]): kind for kind in kinds}
    return drawn(picked, draw)


def drawn(picked: dict[str, str], draw: random.Random) -> BrokenRun:
    """A run that breaks for these causes, each with its kind of alarm; the first is what is reported."""
    harmless = {"loader_workers": 3, "time_limit_minutes": draw.choice((12.0, 15.0)), "learning_rate": 0.101,
                "precision": "bfloat16", "allocator": "expandable segments", "clip_norm": 1000.0}  # fmt: skip
    changes = draw.sample(sorted(harmless), 3)
    job: dict[str, Any] = {}
    fault: dict[str, Any] = {"noise": draw.randrange(999), "times": draw.randrange(18, 36) / 10}
    for cause, kind in picked.items():
        changed, broken_by = _DRAWN[cause](draw, kind, fault["times"])
        job, fault = job | changed, fault | broken_by
    heal = {"precision", "allocator"} if "capacity" in fault else {"clip_norm"} if "learning_rate" in job else set()
    job = {name: harmless[name] for name in changes if name not in heal} | job
    return BrokenRun(tuple(picked), Job(**job), Fault(**fault), next(iter(picked.values())))


_Changes = tuple[dict[str, Any], dict[str, Any]]  # of the job and of what is broken


def _half(draw: random.Random, kind: str, times: float) -> _Changes:
    layer, step = draw.randrange(LAYERS - 1), draw.randrange(8, 24)
    ranks = health.of(health.healthy())
    largest = max(row[layer] for rank in ranks for row in rank.activations[: step + 1])
    gain = _HALF_MOST / (0.9 * largest)  # the layer overflows in this step or before, in spite of float16's rounding
    return {"precision": "float16"}, {"gain": (layer, gain)}


def _rate(draw: random.Random, kind: str, times: float) -> _Changes:
    return {"learning_rate": draw.choice((20.0, 30.0, 40.0, 50.0) if kind == "nan" else (0.5, 0.7, 1.0, 1.5))}, {}


def _images(draw: random.Random, kind: str, times: float) -> _Changes:
    return {}, {"bad_images": (draw.randrange(RANKS), draw.randrange(8, 24) if kind == "nan" else -1)}


def _drift(draw: random.Random, kind: str, times: float) -> _Changes:
    return {}, draw.choice(({"stale_rank": draw.randrange(1, RANKS)}, {"unreduced_layer": draw.randrange(LAYERS)}))


def _hang(draw: random.Random, kind: str, times: float) -> _Changes:
    alone = draw.choice(SIDE_WORK)
    others = {"on_all_ranks": tuple(work for work in SIDE_WORK if work != alone)}
    return others, {"side_rank": draw.randrange(RANKS), "side_first": draw.randrange(len(SIDE_WORK))}


def _loader(draw: random.Random, kind: str, times: float) -> _Changes:
    ranks = draw.choice((tuple(range(RANKS)), (draw.randrange(RANKS),)))
    return {"loader_workers": draw.choice((1, 16))}, {"slow_loader": ranks}


def _network(draw: random.Random, kind: str, times: float) -> _Changes:
    return draw.choice((({"nccl_net": "Socket"}, {}), ({}, {"slow_link": draw.randrange(RANKS)})))


def _driver(draw: random.Random, kind: str, times: float) -> _Changes:
    gpu, driver = draw.choice((("A100 SXM4 80GB", 470), ("H100 SXM5 80GB", 550), ("B200 SXM", 570)))
    return {}, {"gpu": gpu, "driver": driver}


_DRAWN: dict[str, Callable[[random.Random, str, float], _Changes]] = {
    "a rank calls another collective": _hang,
    "a GPU is lost": lambda draw, *_: ({}, {"lost_gpu": (draw.randrange(RANKS), draw.randrange(2, 24))}),
    "memory is in pieces": lambda draw, *_: ({}, {"capacity": draw.randrange(800, 892, 4) * MIB}),
    "memory leaks": lambda draw, *_: (
        {"kept_for_metrics": "tensors"},
        {"capacity": draw.randrange(1040, 1300, 4) * MIB},
    ),
    "the model is too large for the GPU": lambda draw, *_: ({}, {"capacity": draw.randrange(620, 716, 4) * MIB}),
    "float16 overflows": _half,
    "the learning rate is too high": _rate,
    "bad images": _images,
    "ranks have different weights": _drift,
    "the loss is divided by a wrong count": lambda draw, *_: (
        {"divide_by": draw.choice(("images of this rank", "rows"))},
        {},
    ),
    "one GPU is slow": lambda draw, *_: ({}, {"slow_rank": draw.randrange(RANKS)}),
    "the loader is too slow": _loader,
    "the CPU computes": _driver,
    "the network is slow": _network,
}
