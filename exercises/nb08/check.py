"""Checks of notebook 08, whether the trainer waits for data. Those that need images are in shift08 and pipeline08."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from exercises.nb08.pipeline import pipeline
from exercises.nb08.shift import shift_batch
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, as_number, call, function, number_close
from labkit.train.data import BatchTimes


def throughput(answer: object) -> str:
    """The slowest of three limits, at random rates, and where each of the three is the one that counts."""
    fn = function(answer, 1e-3, 1e-3, 1, 2, 1)
    draw = random.Random(2408)
    cases: list[tuple[float, float, int, int, int, str]] = [
        (1e-3, 1e-4, 0, 2, 1, "without workers"),
        (1e-3, 1e-4, 1, 16, 1, "where loading is the slowest"),
        (1e-4, 1e-3, 8, 16, 1, "where training is the slowest"),
        (1e-3, 1e-4, 16, 2, 1, "with more workers than cores"),
        (1e-3, 1e-3, 2, 2, 2, "where training uses both cores"),
        (1e-3, 1e-4, 3, 4, 0, "where training is on a GPU and needs no core"),
    ]
    for _ in range(20):
        prepare_s, train_s = (10 ** draw.uniform(-5, -2) for _ in range(2))
        cores = draw.randint(1, 16)
        cases.append((prepare_s, train_s, draw.randint(0, 32), cores, draw.randint(0, cores), "at random"))
    for prepare_s, train_s, workers, cores, train_cores, why in cases:
        limits = [workers / prepare_s, 1 / train_s, cores / (prepare_s + train_cores * train_s)]
        expected = min(limits) if workers else 1 / (prepare_s + train_s)
        given = (
            f"{1e3 * prepare_s:.3g} ms to prepare, {1e3 * train_s:.3g} ms to train, {workers} workers, {cores} cores, "
            f"{train_cores} of them for training ({why})"
        )
        value = as_number(call(fn, prepare_s, train_s, workers, cores, train_cores), "images/s", given)
        number_close(value, expected, rel=1e-6, unit="images/s", given=given, hint=_rate_hint(value, limits, workers))
    return "Right without workers, with few, with more than cores, and where training needs none of the cores."


def _rate_hint(value: float, limits: list[float], workers: int) -> str:
    if not workers:
        return "Without workers one image is prepared and then trained on: the seconds add up."
    if value > 0 and abs(value * min(1 / limit for limit in limits) - 1) < 1e-6:
        return "That is the fastest of the limits. The slowest one decides."
    if limits[2] == min(limits) and value > limits[2]:
        return "Workers and trainer share the cores: an image costs so many core-seconds, and there are so many cores."
    return "The least of three: what all workers prepare, what the trainer trains, and what all cores together can do."


def waiting_share(answer: object) -> str:
    """The trainer's share of waiting, on random epochs of one to many batches."""
    example = [BatchTimes(0, 0.0, 1.0, 0.0, 1.0), BatchTimes(0, 1.0, 2.0, 1.5, 2.0)]
    fn = function(answer, example)
    draw = random.Random(2308)
    for n in (2, 3, 50):
        for slow_loading in (False, True):
            times = _epoch(draw, n, slow_loading)
            waited_s = sum(batch.taken_s - batch.asked_s for batch in times)
            whole_s = times[-1].taken_s - times[0].asked_s
            given = f"{n} batches that are loaded {'slowly' if slow_loading else 'fast'}"
            value = as_number(call(fn, list(times)), "(no unit)", given)
            loading = sum(batch.ready_s - batch.begun_s for batch in times) / whole_s
            hint = "Only what the trainer spends between asking for a batch and having it is waiting."
            if abs(value - loading) < 1e-9:
                hint = "That is the workers' loading. While they load, the trainer may be at work on another batch."
            elif abs(value - (1 - waited_s / whole_s)) < 1e-9:
                hint = "That is the share of work. How much is left?"
            number_close(value, waited_s / whole_s, rel=1e-9, unit="of the time", given=given, hint=hint)
    return "Right for few and many batches, and for slow and fast workers."


def _epoch(draw: random.Random, n: int, slow_loading: bool) -> list[BatchTimes]:
    clock_s = draw.uniform(10, 1e4)  # the clock started long before
    times = []
    ready_s = clock_s
    for i in range(n):
        begun_s = ready_s if i else clock_s - draw.uniform(0, 1)
        ready_s = begun_s + draw.uniform(0.5, 1.5) * (3 if slow_loading else 0.3)
        taken_s = max(clock_s, ready_s) + draw.uniform(0, 0.01)
        times.append(BatchTimes(i % 3, begun_s, ready_s, clock_s, taken_s))
        clock_s = taken_s + draw.uniform(0.5, 1.5)
    return times


def own_shards(answer: object) -> str:
    """Every shard goes to exactly one worker, whatever their numbers, and no worker gets more than its part."""
    fn = function(answer, ["a"], 0, 1)
    for n, workers in ((6, 2), (7, 3), (5, 4), (3, 8), (1, 5), (10, 1), (4, 0), (1, 0), (0, 2), (257, 16)):
        shards = [f"digits-{i:06d}.tar" for i in range(n)]
        given = f"{n} shards and {workers} workers"
        parts = [_part(fn, shards, worker, workers, given) for worker in range(max(workers, 1))]
        _judge_parts(parts, shards, given)
    return "Every shard is read exactly once, with fewer and more shards than workers, and without any worker."


def _part(fn: Callable[..., Any], shards: list[str], worker: int, workers: int, given: str) -> list[str]:
    passed = list(shards)
    part = call(fn, passed, worker, workers)
    if not isinstance(part, list | tuple) or not set(part) <= set(shards):
        raise NotYet(f"For {given}: expected a list of some of the shards for worker {worker}, got {brief_repr(part)}.")
    if passed != shards:
        raise NotYet(f"For {given}: it has changed the list that it was given, which the other workers share.")
    return list(part)


def _judge_parts(parts: list[list[str]], shards: list[str], given: str) -> None:
    counts = Counter(shard for part in parts for shard in part)
    if doubled := [shard for shard in shards if counts[shard] > 1]:
        times = counts[doubled[0]]
        raise NotYet(f"For {given}: {len(doubled)} shards are read {times} times an epoch: each image comes again.")
    if missing := [shard for shard in shards if not counts[shard]]:
        raise NotYet(f"For {given}: nobody reads {len(missing)} of the shards, {missing[0]} among them.")
    most, least = max(map(len, parts)), min(map(len, parts))
    if most > least + 1:
        raise NotYet(f"For {given}: one worker gets {most} shards and another {least}. The others would wait for it.")


CHECKS = {
    "08.2": throughput,
    "08.3": waiting_share,
    "08.4": own_shards,
    "08.6": shift_batch,
    "08.7": pipeline,
}
