"""The check of exercise 16.5: a search for techniques within a budget, in simulated
scripts and in the notebook's own.

A simulated script has techniques that help, that cost, that only help without another
one, and one with which training never reaches the accuracy; their names say nothing,
and its seconds differ from seed to seed. What the search returns is judged by the true
seconds of each set, which only this check knows. The notebook's own script counts
epochs until it gives up, so that a busy machine changes nothing but the seconds; those
are judged where others took little of them.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter, time_ns  # by name: an answer may replace those in `time`
from typing import Any

import labkit
from labkit.core.display import brief_repr
from labkit.core.units import format_seconds
from labkit.lesson.checks import NotYet, call, function
from labkit.lesson.notebook_files import tagged_cells
from labkit.lesson.time_limit import other_limit
from labkit.measure.contention import Watch
from labkit.measure.machine import machine, pick

# of the script without any technique
_BUDGET_RUNS = 40
_REAL_RUNS = 10
_SLACK = 1.2  # times as slow as the best set, at most
_SCRIPTS = 12
# of three, in place of sweeps
RATES = dict.fromkeys(("SGD, batch 4", "SGD, batch 32", "Adam, batch 32"), 0.004)
_FASTER_BY = 1.5  # at full size; the few images of tests leave less to gain

Tried = Callable[[Iterable[str], int], tuple[float, bool]]


def search(answer: object) -> str:
    """Near the best set within the budget in a dozen simulated scripts, then faster
    than the article's for real.
    """
    fn = function(answer)
    for number in range(_SCRIPTS):
        _judge_simulated(fn, _Script(random.Random(f"16.5 {number}")))
    return _judge_real(fn)


class _Script:
    """A simulated script: its techniques, the true seconds of each set of them, and
    what a search has spent on it.
    """

    def __init__(self, draw: random.Random) -> None:
        self.alone_s = draw.uniform(2, 60)
        helps = draw.randrange(2, 4)
        costs = draw.randrange(1, 3)
        self.names = [
            f"technique {letter}"
            for letter in draw.sample("ABCDEFGHJK", helps + costs + 2)
        ]
        drawn = iter(draw.sample(self.names, len(self.names)))
        # never arrives; helps only without its rival
        self.misses = next(drawn)
        self.alone = next(drawn)
        self.factors = {self.misses: 3.0, self.alone: draw.uniform(1.2, 1.5)}
        self.factors |= {next(drawn): draw.uniform(1.3, 4.0) for _ in range(helps)}
        self.rival = draw.choice(list(self.factors)[2:])
        self.factors |= {name: draw.uniform(0.5, 0.85) for name in drawn}
        self.budget_s = _BUDGET_RUNS * self.alone_s
        self.spread = draw.choice((0.02, 0.05))
        self.spent_s = 0.0
        self.runs = 0
        self.late = 0

    def seconds(self, on: frozenset[str]) -> float:
        """The true seconds with a set of techniques on; infinite if training never
        reaches the accuracy.
        """
        if self.misses in on:
            return math.inf
        factors = self.factors | ({self.alone: 0.8} if self.rival in on else {})
        return self.alone_s / math.prod(factors[name] for name in on)

    def tried(self, on: Iterable[str], seed: int) -> tuple[float, bool]:
        """What one training with these techniques takes, and whether it reached the
        accuracy.
        """
        chosen = _known(on, self.names)
        true_s = self.seconds(chosen)
        arrived = math.isfinite(true_s)
        # some seeds need more epochs, with any set
        shared = random.Random(f"seed {seed}").gauss(0, 3 * self.spread)
        own = random.Random(f"{seed} {sorted(chosen)} {self.alone_s}").gauss(
            0, self.spread
        )
        self.late += self.spent_s > self.budget_s
        self.spent_s += (
            found_s := (true_s if arrived else 2 * self.alone_s)
            * math.exp(shared + own)
        )
        self.runs += 1
        return found_s, arrived


def _known(on: Any, names: list[str]) -> frozenset[str]:
    """The techniques in any iterable of their names; NotYet for another object and for
    an unknown name.
    """
    listed = (
        list(itertools.islice(on, 1000))
        if isinstance(on, Iterable) and not isinstance(on, str)
        else [on]
    )
    if not all(isinstance(name, str) and name in names for name in listed):
        raise NotYet(
            f"Expected a list of techniques out of {', '.join(map(repr, names))}, got"
            f" {brief_repr(on)}."
        )
    return frozenset(listed)


def _chosen(
    fn: Callable[..., Any], names: list[str], tried: Tried, budget_s: float
) -> frozenset[str]:
    """The techniques that a search finds; of one that yields them, the search is run
    while they are read.
    """

    @functools.wraps(fn)
    def run(*arguments: Any) -> Any:
        result = fn(*arguments)
        return (
            list(itertools.islice(result, 1000))
            if isinstance(result, Iterator)
            else result
        )

    return _known(call(run, list(names), tried, budget_s), names)


def _judge_simulated(fn: Callable[..., Any], script: _Script) -> None:

    def seconds(on: Iterable[str], seed: int) -> tuple[float, bool]:
        # a bound method would bring the script's true seconds with it
        return script.tried(on, seed)

    chosen = _chosen(fn, script.names, seconds, script.budget_s)
    what = (
        f"a simulated script of {format_seconds(script.alone_s)} and"
        f" {len(script.names)} techniques"
    )
    if script.runs == 0:
        raise NotYet(
            f"For {what}: nothing was tried. Names alone don't tell which techniques"
            " help here."
        )
    if script.late:
        raise NotYet(
            f"For {what}: the search took {format_seconds(script.spent_s)} of training,"
            f" with a budget of {format_seconds(script.budget_s)}. Before each"
            " training, ask whether the budget is used up."
        )
    if script.misses in chosen:
        raise NotYet(
            f"For {what}: {script.misses!r} is in the result, and with it no training"
            " reaches the accuracy."
        )
    sets = (
        set(some)
        for n in range(len(script.names) + 1)
        for some in itertools.combinations(script.names, n)
    )
    best = min(map(frozenset, sets), key=script.seconds)
    times = script.seconds(chosen) / script.seconds(best)
    if times > _SLACK:
        raise NotYet(
            f"For {what}: with {sorted(chosen)} it takes {times:.2f} times as long as"
            f" with {sorted(best)}. {_why(script, chosen)}"
        )


def _why(script: _Script, chosen: frozenset[str]) -> str:
    """What is wrong with a set of techniques, in words."""
    if {script.rival, script.alone} <= chosen:
        return (
            f"{script.alone!r} costs time on top of {script.rival!r}: try each"
            " technique on top of what you keep."
        )
    if costs := sorted(name for name in chosen if script.factors[name] < 1):
        return (
            f"{costs[0]!r} makes it slower. Was it tried with more than one seed,"
            " against the same seeds without it?"
        )
    helps = set(script.names) - chosen - {script.misses, script.alone}
    left = sorted(name for name in helps if script.factors[name] > 1)
    return f"{left[0]!r} is missing." if left else ""


def _judge_real(fn: Callable[..., Any]) -> str:
    """Search for techniques of the notebook's own script; train with them from fresh
    seeds, in turn with none.
    """
    names = tagged_cells(
        "16", "script", lab=labkit, machine=machine(), best=RATES, length=8
    )
    techniques = list(names["rungs"])
    draw = random.Random(time_ns())
    watch = Watch(gpu=bool(machine().gpus))

    def seconds(on: Iterable[str], seed: int) -> tuple[float, bool]:
        switches = names["switched"](_known(on, techniques))
        start_s = perf_counter()
        # the budget limits trainings, not the seconds that an answer has
        with other_limit():
            accuracy, _ = names["train"](seed, **switches)
            machine().sync()
        return perf_counter() - start_s, accuracy >= names["target"]

    budget_s = _REAL_RUNS * seconds([], draw.randrange(10**6))[0]
    spent_s = 0.0

    def tried(on: Iterable[str], seed: int) -> tuple[float, bool]:
        nonlocal spent_s
        if spent_s > budget_s:
            raise NotYet(
                f"Here the search began a training after {format_seconds(spent_s)} of"
                f" training, with a budget of {format_seconds(budget_s)}. Before each"
                " training, ask whether the budget is used up."
            )
        took_s, has_arrived = seconds(on, seed)
        spent_s += took_s
        return took_s, has_arrived

    chosen = _chosen(fn, techniques, tried, budget_s)
    plain = []
    yours = []
    for _ in range(pick(ci=3, cpu=5, gpu=5)):
        seed = draw.randrange(10**6)
        plain.append(seconds([], seed)[0])
        yours.append(seconds(chosen, seed))
    choice = ", ".join(sorted(chosen)) or "nothing"
    if (arrived := sum(there for _, there in yours)) < len(yours) - 1:
        raise NotYet(
            f"With {choice}, only {arrived} of {len(yours)} fresh seeds reached the"
            " accuracy on this machine."
        )
    gain = statistics.median(plain) / statistics.median(took_s for took_s, _ in yours)
    if gain < pick(ci=1.05, cpu=_FASTER_BY, gpu=_FASTER_BY):
        if busy := watch.so_far().reason:
            return (
                f"Right in {_SCRIPTS} simulated scripts; its seconds here were not"
                f" judged, since {busy}."
            )
        raise NotYet(
            f"Right in simulated scripts, but only {gain:.2f} times as fast here, with"
            f" {choice}."
        )
    return (
        f"Right in {_SCRIPTS} simulated scripts; here, from fresh seeds, {gain:.1f}"
        f" times as fast with {choice}."
    )
