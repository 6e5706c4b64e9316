"""Checks of notebook 12, data parallelism. Those on real ranks are in the modules beside this one."""

from __future__ import annotations

import random

from exercises.answers import mistake
from exercises.nb12.data_parallel import gradients, training
from exercises.nb12.ring_all_reduce import ring_all_reduce
from labkit.lesson.checks import NotYet, as_number, close, over_cases
from labkit.plan.costs.collectives import Link, all_reduce_s


def ring_seconds(answer: object) -> str:
    """2 (n - 1) hops and 2 (n - 1) / n of the bytes, on drawn numbers and for one rank."""
    draw = random.Random(1204)
    cases = [(4e6, 5, 0.0, 1e9), (4e6, 3, 1e-4, 1e9), (0.0, 8, 1e-5, 1e9)]
    for _ in range(6):
        link = 10 ** draw.uniform(-6, -3), 10 ** draw.uniform(8, 12)
        cases.append((draw.uniform(1, 1e9), draw.randrange(2, 3000), *link))
    cases.append((1e6, 1, 1e-3, 1e9))
    over_cases(answer, cases, _ring_seconds, close("s", hint=_ring_hint))
    return "Right from 1 rank to thousands, and whether the start of each message or its bytes take longer."


def _ring_seconds(n_bytes: float, ranks: int, alpha_s: float, bytes_per_s: float) -> float:
    return all_reduce_s(n_bytes, ranks, Link(alpha_s, bytes_per_s))


def _ring_hint(value: float, n_bytes: float, n: int, alpha_s: float, bytes_per_s: float) -> str:
    if n == 1:
        return "One rank has nobody to send to."
    wire = n_bytes / bytes_per_s
    trip_s = (n - 1) * (alpha_s + wire / n)
    one_start = "Every message has its start: how many does a rank send one after the other?"
    wrong = {
        trip_s: "That is one trip round the ring. The first adds up; a second spreads the sums.",
        2 * (n - 1) * (alpha_s + wire): "A message carries one part of n, not the whole tensor.",
        2 * alpha_s + 2 * (n - 1) / n * wire: one_start,
        alpha_s + 2 * (n - 1) / n * wire: one_start,
        2 * n * (alpha_s + wire / n): "Each trip has n - 1 messages: a rank's own part is there already.",
        2 * (n - 1) * (alpha_s + 8 * wire / n): "Bytes and bytes per second: no bits here.",
    }
    return mistake(value, wrong, "2 (n - 1) messages one after the other, each alpha_s and bytes / n over the link.")


def best_ranks(answer: object) -> str:
    """How many ranks make a step of a fixed batch shortest: drawn cases, and those at either end."""
    draw = random.Random(1205)
    cases = [(0.01, 4e8, 1e-4, 1e8, 64), (10.0, 1e4, 1e-6, 1e11, 32), (0.5, 1e5, 1e-3, 1e9, 1)]
    for most in (4, 64, 1024, 1000, 300, 4096):
        step = 10 ** draw.uniform(-2, 1), 10 ** draw.uniform(4, 9)
        cases.append((*step, 10 ** draw.uniform(-6, -3), 10 ** draw.uniform(8.5, 11), most))
    over_cases(answer, cases, _step_times, _judge_ranks)
    return "Right where one rank is best, where all are, and between."


def _step_times(compute_s: float, n_bytes: float, alpha_s: float, bytes_per_s: float, most: int) -> dict[int, float]:
    """Seconds of a step, by number of ranks."""
    return {n: compute_s / n + _ring_seconds(n_bytes, n, alpha_s, bytes_per_s) for n in range(1, most + 1)}


def _judge_ranks(got: object, times: dict[int, float], given: str, compute_s: float, *_: float) -> None:
    value = as_number(got, "ranks", given)
    if value not in times:
        raise NotYet(f"For {given}: {value:g} ranks is no whole number from 1 to {len(times)}.")
    best = min(times, key=lambda n: times[n])
    if times[int(value)] > times[best] * (1 + 1e-9):
        raise NotYet(
            f"For {given}: with {value:g} ranks a step takes {times[int(value)]:.4g} s, with {best} it takes "
            f"{times[best]:.4g} s. {_ranks_hint(int(value), compute_s, times)}"
        )


def _ranks_hint(value: int, compute_s: float, times: dict[int, float]) -> str:
    if value == 2 and times[1] < times[2]:
        return "One rank exchanges nothing: it is one of the candidates."
    if value == len(times):
        return "More ranks compute less each, but the exchange grows with them."
    if value == min(times, key=lambda n: times[n] + compute_s - compute_s / n):
        return "The batch is fixed, so each of n ranks computes for compute_s / n."
    powers = [2**i for i in range(13) if 2**i in times]
    if value == min(powers, key=lambda n: times[n]):
        return "The best number need not be a power of two."
    return "compute_s / n + ring_seconds(...) for every n from 1 to most: the n of the least."


CHECKS = {"12.1": gradients, "12.2": training, "12.3": ring_all_reduce, "12.4": ring_seconds, "12.4b": best_ranks}
