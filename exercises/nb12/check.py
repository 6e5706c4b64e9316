"""Checks of notebook 12, data parallelism; those that need ranks are in shares12, mended12 and ring12."""

from __future__ import annotations

import math
import random

from exercises.nb12.mended import mended
from exercises.nb12.ring import ring
from exercises.nb12.shares import gradients
from labkit.lesson.checks import NotYet, as_number, call, function, number_close
from labkit.plan.costs.collectives import Link, all_reduce_s


def ring_seconds(answer: object) -> str:
    """2 (n - 1) hops and 2 (n - 1) / n of the bytes, on drawn numbers and for one rank."""
    fn = function(answer, 1e6, 2, 1e-5, 1e9)
    draw = random.Random(1204)
    drawn = [
        (draw.uniform(1, 1e9), draw.randrange(2, 3000), 10 ** draw.uniform(-6, -3), 10 ** draw.uniform(8, 12))
        for _ in range(6)
    ]
    cases = [(4e6, 5, 0.0, 1e9), (4e6, 3, 1e-4, 1e9), (0.0, 8, 1e-5, 1e9), *drawn, (1e6, 1, 1e-3, 1e9)]
    for n_bytes, ranks, alpha_s, bytes_per_s in cases:
        expected = all_reduce_s(n_bytes, ranks, Link(alpha_s, bytes_per_s))
        given = f"{n_bytes:.3g} bytes, {ranks} rank{'s' * (ranks > 1)}, alpha {alpha_s:.3g} s, {bytes_per_s:.3g} B/s"
        value = as_number(call(fn, n_bytes, ranks, alpha_s, bytes_per_s), "s", given)
        hint = _ring_hint(value, n_bytes, ranks, alpha_s, bytes_per_s)
        number_close(value, expected, rel=1e-6, unit="s", given=given, hint=hint)
    return "Right from 1 rank to thousands, where the start of each message rules, and where the bytes do."


def _ring_hint(value: float, n_bytes: float, n: int, alpha_s: float, bytes_per_s: float) -> str:
    wire = n_bytes / bytes_per_s

    def near(seconds: float) -> bool:
        return math.isclose(value, seconds, rel_tol=1e-6)

    if n == 1:
        return "One rank has nobody to send to."
    if near((n - 1) * (alpha_s + wire / n)):
        return "That is one trip round the ring. The first adds up; a second spreads the sums."
    if near(2 * (n - 1) * (alpha_s + wire)):
        return "A message carries one part of n, not the whole tensor."
    if near(2 * alpha_s + 2 * (n - 1) / n * wire) or near(alpha_s + 2 * (n - 1) / n * wire):
        return "Every message has its start: how many does a rank send one after the other?"
    if near(2 * n * (alpha_s + wire / n)):
        return "Each trip has n - 1 messages: a rank's own part is there already."
    if near(2 * (n - 1) * (alpha_s + 8 * wire / n)):
        return "Bytes and bytes per second: no bits here."
    return "2 (n - 1) messages one after the other, each alpha and a part of bytes / n over the link."


def best_ranks(answer: object) -> str:
    """How many ranks make a step of a fixed batch shortest: drawn cases, and those at either end."""
    fn = function(answer, 0.1, 1e6, 1e-5, 1e9, 16)
    draw = random.Random(1205)
    drawn = [
        (
            10 ** draw.uniform(-2, 1),
            10 ** draw.uniform(4, 9),
            10 ** draw.uniform(-6, -3),
            10 ** draw.uniform(8.5, 11),
            most,
        )
        for most in (4, 64, 1024, 1000, 300, 4096)
    ]
    cases = [(0.01, 4e8, 1e-4, 1e8, 64), (10.0, 1e4, 1e-6, 1e11, 32), (0.5, 1e5, 1e-3, 1e9, 1), *drawn]
    for compute_s, n_bytes, alpha_s, bytes_per_s, most in cases:
        link = Link(alpha_s, bytes_per_s)
        times = {n: compute_s / n + all_reduce_s(n_bytes, n, link) for n in range(1, most + 1)}
        value = as_number(call(fn, compute_s, n_bytes, alpha_s, bytes_per_s, most), "ranks")
        given = (
            f"{compute_s:.3g} s of compute, {n_bytes:.3g} bytes, alpha {alpha_s:.3g} s, {bytes_per_s:.3g} B/s, at "
            f"most {most} rank{'s' * (most > 1)}"
        )
        if value not in times:
            raise NotYet(f"For {given}: {value:g} ranks is no whole number from 1 to {most}.")
        best = min(times, key=lambda n: times[n])
        if times[int(value)] > times[best] * (1 + 1e-9):
            raise NotYet(
                f"For {given}: with {value:g} ranks a step takes {times[int(value)]:.4g} s, with {best} it takes "
                f"{times[best]:.4g} s. {_best_hint(int(value), compute_s, link, n_bytes, most, times)}"
            )
    return "Right where one rank is best, where all are, and between."


def _best_hint(value: int, compute_s: float, link: Link, n_bytes: float, most: int, times: dict[int, float]) -> str:
    no_exchange = value == most
    no_compute_shared = value == min(times, key=lambda n: compute_s + all_reduce_s(n_bytes, n, link))
    if value == 2 and times[1] < times[2]:
        return "One rank exchanges nothing: it is one of the candidates."
    if no_exchange:
        return "More ranks compute less each, but the exchange grows with them."
    if no_compute_shared:
        return "The batch is fixed, so each of n ranks computes for compute_s / n."
    powers = [2**i for i in range(13) if 2**i <= most]
    if value in powers and value == min(powers, key=lambda n: times[n]):
        return "The best number need not be a power of two."
    return "compute_s / n + ring_seconds(...) for every n from 1 to most: the n of the least."


CHECKS = {
    "12.1": gradients,
    "12.2": mended,
    "12.3": ring,
    "12.4": ring_seconds,
    "12.4b": best_ranks,
}
