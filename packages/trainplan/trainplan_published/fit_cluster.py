"""Fit the constants of trainplan.cluster.constants, and print them beside those in use.

Links: the lines of trainplan.costs.fit_link through
trainplan_published/collectives_busbw_a100_h200.csv. Sends: a line through t_comm of
trainplan_published/zero_bubble_times.csv, most of whose sends stay in a node. The rest:
the fields in FITTED, at once, to the published steps of every table. All tables weigh
the same, since each has one source, and an error counts by its size, not its square, so
that a few odd rows (memory nearly full) don't decide.

Then each table is predicted with constants that were fitted to the others. From these
errors come SPREAD, WIDENED and MEDIAN_LEFT_OUT of the constants.

usage: python -m trainplan_published.fit_cluster
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trainplan._units import GIGA
from trainplan.cluster.agreement import Compared
from trainplan.cluster.constants import (
    CONSTANTS,
    HOP_S,
    LL_HOP_S,
    NVLINK3,
    NVLINK4,
    SEND_SHARE,
    SEND_START_S,
    Constants,
)
from trainplan.cluster.evidence import SOURCES, Nearest, inputs, kind, nearest, rows
from trainplan.cluster.rank_memory import memory, stage_memory
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.step_prediction import RELEASES, Step
from trainplan.cluster.validation import COMPARISONS, compare
from trainplan.costs.collectives import ALGORITHMS, Link, fit_link, wire_s
from trainplan.costs.transformers import Transformer
from trainplan_published import table

TABLES = tuple(name for name in COMPARISONS if "memory" not in name)
# tables of one source and so many models that a model can be left out
BY_MODEL = ("megatron bridge", "megatron bridge 25.09", "megatron bridge 2026")
MEMORY = tuple(name for name in COMPARISONS if "memory" in name)
# power, contention, jitter and async_tensor stay as an earlier fit found them: together
# with the others they drift far without making the errors much smaller
FITTED = (
    "sustained",
    "flash1",
    "flash3",
    "cast",
    "bandwidth",
    "expert_s",
    "all_to_all",
    "counts_s",
    "gb300",
)
START = Constants(sustained=0.8, flash1=0.4, flash2=0.5, flash3=0.6, bandwidth=0.75)
# bytes from which the H200 curve is NVLS, below it is a ring (column "algorithm")
_NVLS_FROM = 2**21


def measured(gpu: str) -> list[tuple[float, float]]:
    """Points of bytes and seconds of the all-reduces over 8 GPUs that were timed at
    every size.
    """
    rows = [
        row
        for row in table("collectives_busbw_a100_h200")
        if row["gpu"] == gpu and row["time_us"]
    ]
    return [(float(row["payload_bytes"]), 1e-6 * float(row["time_us"])) for row in rows]


def bus(algorithm: str) -> list[float]:
    """Bus bandwidths in bytes/s of H200 all-reduces of 8 GiB and more by an algorithm,
    on 4 to 8 GPUs.
    """
    rows = [
        row
        for row in table("collectives_busbw_a100_h200")
        if row["gpu"] == "H200 SXM" and not row["time_us"]
    ]
    chosen = [
        row
        for row in rows
        if row["collective"] == "all-reduce" and row["algorithm"].startswith(algorithm)
    ]
    return [1e9 * float(row["busbw_gbs"]) for row in chosen]


def links() -> dict[str, Link]:
    """NVLINK3 and NVLINK4 as fitted. The H200's ring was timed small, or huge: its bulk
    start is the A100's.
    """
    a100 = two_lines(measured("A100 SXM"), "ring")
    points = measured("H200 SXM")
    ring = _line([point for point in points if point[0] < _NVLS_FROM], "ring", LL_HOP_S)
    switch = two_lines([point for point in points if point[0] >= _NVLS_FROM], "nvls")
    h200 = Link(
        HOP_S,
        statistics.median(bus("Ring")),
        low_latency=ring,
        switch=switch,
        start_s=a100.start_s,
    )
    return {"NVLINK3": a100, "NVLINK4": h200}


def _line(
    points: list[tuple[float, float]], algorithm: str, hop_s: float | None = None
) -> Link:
    """A line through all-reduces over 8 GPUs; of its seconds without bytes `hop_s`
    belong to each hop, unless it is None.
    """
    line = fit_link(
        [size for size, _ in points],
        [time for _, time in points],
        8,
        algorithm=algorithm,
    )
    if hop_s is None:
        return line
    return dataclasses.replace(
        line,
        alpha_s=hop_s,
        start_s=ALGORITHMS[algorithm](8)[0] * (line.alpha_s - hop_s),
    )


def two_lines(points: list[tuple[float, float]], algorithm: str) -> Link:
    """A link with a low-latency line for the smaller sizes; each size is tried as the
    first of the bulk line's.
    """
    points = sorted(points)
    hop, low_hop = (HOP_S, LL_HOP_S) if algorithm == "ring" else (None, None)
    hops, factor = ALGORITHMS[algorithm](8)
    links = [
        dataclasses.replace(
            _line(points[i:], algorithm, hop),
            low_latency=_line(points[:i], algorithm, low_hop),
        )
        for i in range(2, len(points) - 1)
    ]

    def error(link: Link) -> float:
        return sum(
            (wire_s(link, hops, factor * size) / time - 1) ** 2 for size, time in points
        )

    return min(links, key=error)


def sends() -> tuple[float, float]:
    """SEND_START_S and SEND_SHARE as fitted, by least squares of the
    relative errors.
    """
    rows = table("zero_bubble_times")
    n_bytes = np.array(
        [
            2.0 * int(row["hidden"]) * int(row["seq_len"]) * int(row["micro_batch"])
            for row in rows
        ]
    )
    seconds = np.array([1e-3 * float(row["t_comm_ms"]) for row in rows])
    slope, start = np.polyfit(n_bytes, seconds, 1, w=1 / seconds)
    return float(start), float(1 / slope / NVLINK3.bytes_per_s)


def judged(made: Step) -> bool:
    """Whether a step is used: so are experts in 8 bit, which are hard to predict, but
    of which few steps were published.
    """
    return not set(made.unlike) - {RELEASES}


@functools.cache
def used(name: str, without: tuple[int, int] | None) -> tuple[bool, ...]:
    """Whether each step of a table is `judged`, with the constants in use, and not of
    a model left out.
    """
    return tuple(
        judged(row.by) and family(row.by.model) != without for row in compare(name).rows
    )


def family(shape: Transformer) -> tuple[int, int]:
    """What tells models apart, whatever the length of their sequences."""
    return shape.layers, shape.hidden


def residuals(
    constants: Constants,
    tables: tuple[str, ...] = TABLES,
    without: tuple[int, int] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of predicted speed over published of every step that is `used`, and
    its weight.
    """
    errors: list[float] = []
    weights: list[float] = []
    for name in tables:
        chosen = used(name, without)
        rows = [
            math.log1p(row.error)
            for row, is_used in zip(compare(name, constants).rows, chosen, strict=True)
            if is_used
        ]
        errors += rows
        weights += [1 / max(len(rows), 1) / len(tables)] * len(rows)
    return np.array(errors), np.array(weights)


def with_flash2(
    constants: Constants,
    tables: tuple[str, ...],
    change: float,
    without: tuple[int, int] | None = None,
) -> Constants:
    """Constants with a `flash2` of least squares in the steps of whose FLOP attention
    does a fifth.

    It counts half of the square. In all other steps that `flash2` is used in, so little
    time has other causes too.
    """
    made = [
        row.by
        for name in tables
        for row, is_used in zip(
            compare(name, constants).rows, used(name, without), strict=True
        )
        if is_used
    ]
    scores = np.array(
        [
            6 * entry.model.layers * entry.model.query_width * entry.model.seq
            for entry in made
        ]
    )
    errors = residuals(constants, tables, without)[0]
    slower = moved(constants, {"flash2": change})
    changed = residuals(slower, tables, without)[0]
    slopes = (changed - errors) / change
    rest = np.array([entry.model.flop_per_token for entry in made]) - scores
    long = (slopes > 0) & (scores > 0.2 * rest)
    if not long.any():
        return constants
    best = -float(errors[long] @ slopes[long]) / float(slopes[long] @ slopes[long])
    return moved(constants, {"flash2": float(np.clip(best, -0.2, 0.2))})


def loss(constants: Constants, tables: tuple[str, ...] = TABLES) -> float:
    """Weighted mean size of the logarithm of predicted over published."""
    errors, weights = residuals(constants, tables)
    return float(np.abs(errors) @ weights)


def moved(constants: Constants, by: dict[str, float]) -> Constants:
    """Constants multiplied by the exponentials of `by`, within their limits."""
    most = {"async_tensor": 1.0}
    made = {
        k: min(max(getattr(constants, k), 1e-5) * math.exp(v), most.get(k, math.inf))
        for k, v in by.items()
    }
    return dataclasses.replace(constants, **made)


def fit(
    start: Constants = START,
    rounds: int = 20,
    tables: tuple[str, ...] = TABLES,
    change: float = 0.02,
    without: tuple[int, int] | None = None,
) -> Constants:
    """Least sizes of errors by repeatedly weighted least squares over the logarithms of
    the fitted constants, of all models but one `family`.
    """
    now = start
    best = (math.inf, start)
    for turn in range(rounds):
        now = with_flash2(now, tables, change, without)
        errors, weights = residuals(now, tables, without)
        if turn >= min(3, rounds - 1):  # flash2 has settled
            best = min(
                best, (float(np.abs(errors) @ weights), now), key=lambda pair: pair[0]
            )
        slopes = [
            (residuals(moved(now, {name: change}), tables, without)[0] - errors)
            / change
            for name in FITTED
        ]
        root = np.sqrt(weights / np.maximum(np.abs(errors), 0.02))
        # what no table says stays as it is
        ridge = 0.02 * math.sqrt(float(root @ root)) * np.eye(len(FITTED))
        left = np.vstack([root[:, None] * np.stack(slopes, axis=1), ridge])
        right = np.concatenate([-root * errors, np.zeros(len(FITTED))])
        changes = np.linalg.lstsq(left, right, rcond=None)[0]
        now = moved(now, dict(zip(FITTED, np.clip(changes, -0.2, 0.2), strict=True)))
    return best[1]


class LeftOut(NamedTuple):
    """A step with constants fitted to other sources: published seconds over predicted,
    and what is nearest.
    """

    source: str
    ratio: float
    nearest: Nearest
    by: Step


def left_out(start: Constants, rounds: int = 8) -> list[LeftOut]:
    """Every step, with constants fitted to the tables of all other sources."""
    steps = []
    for source in dict.fromkeys(SOURCES.values()):
        names = [name for name, by in SOURCES.items() if by == source]
        constants = fit(
            start, rounds, tuple(name for name in TABLES if name not in names)
        )
        for row in (row for name in names for row in compare(name, constants).rows):
            made = row.by
            near = nearest(made.model, made.cluster, made.layout, made.batch, source)
            steps.append(LeftOut(source, 1 + row.error, near, made))
    return steps


def left_out_by_model(
    start: Constants = CONSTANTS, rounds: int = 4
) -> list[tuple[str, Compared[Step]]]:
    """Every step of BY_MODEL with its table, with constants fitted to all other
    models.
    """
    families = {
        family(row.by.model): None for name in BY_MODEL for row in compare(name).rows
    }
    steps = []
    for without in families:
        constants = fit(start, rounds, without=without)
        steps += [
            (name, row)
            for name in BY_MODEL
            for row in compare(name, constants).rows
            if family(row.by.model) == without
        ]
    return steps


def spreads(
    constants: Constants, left: Sequence[tuple[str, Compared[Step]]]
) -> dict[str, float]:
    """Of each class the size of the logarithm of published over predicted that holds
    four of five further steps; of the tables of BY_MODEL as they are when `left` out.

    It is the conformal quantile: of n steps the one of rank 0.8 (n + 1), rounded up, n
    at most; in thousandths, rounded up.
    """
    fitted = [
        (name, row)
        for name in SOURCES
        if name not in BY_MODEL
        for row in compare(name, constants).rows
    ]
    sizes: dict[str, list[float]] = {}
    for name, row in [*fitted, *left]:
        of_class = kind(name, row.by.model, row.by.layout)
        sizes.setdefault(of_class, []).append(abs(math.log1p(row.error)))
    spread = {}
    for of_class, values in sizes.items():
        rank = min(math.ceil(0.8 * (len(values) + 1)), len(values))
        spread[of_class] = math.ceil(1000 * sorted(values)[rank - 1]) / 1000
    return spread


def widening(steps: Sequence[LeftOut], spread: Mapping[str, float]) -> float:
    """What must be added to a class's spread for each unit of distance, so that of each
    source 80 % are inside.

    Experts have one source, so none that they could be left out of.
    """
    needed: dict[str, list[float]] = {}
    for entry in steps:
        if not entry.by.model.experts:
            more = abs(math.log(entry.ratio)) - spread[entry.nearest.kind]
            needed.setdefault(entry.source, []).append(more / entry.nearest.distance)
    return max(float(np.quantile(of, 0.8, method="higher")) for of in needed.values())


def memory_errors(name: str, share: float | None = None) -> list[float]:
    """Logarithms of predicted over published memory of a table, with a library's
    `fragments`, or those in use.
    """
    errors = []
    for row, (shape, cluster, layout, batch) in zip(
        rows(name), inputs(name), strict=True
    ):
        used = layout.software.fragments if share is None else share
        made = dataclasses.replace(
            layout, software=dataclasses.replace(layout.software, fragments=used)
        )
        mine = rank_share(shape, cluster, made, batch)
        held = (
            stage_memory(mine, 0)
            if row["unit"].endswith("first stage")
            else memory(mine)
        )
        errors.append(math.log(sum(held.values()) / GIGA / float(row["published"])))
    return errors


def fragments(*names: str) -> float:
    """The `fragments` with which the largest error of the tables' memory is least, in
    steps of 0.01.
    """
    shares = [percent / 100 for percent in range(61)]
    return min(
        shares,
        key=lambda share: max(
            abs(error) for name in names for error in memory_errors(name, share)
        ),
    )


def memory_left_out() -> dict[str, list[float]]:
    """Logarithms of predicted over published memory, by who measured it, with the
    `fragments` of the tables that others measured.

    Those of Megatron-LM and of memory.csv were fitted to nothing.
    """
    torchtitan, nanotron = "torchtitan memory", "nanotron memory"
    errors = {
        "zero bubble": memory_errors("zero bubble memory"),
        "torchtitan": memory_errors(torchtitan, fragments(nanotron)),
        "nanotron": memory_errors(nanotron, fragments(torchtitan)),
    }
    measured = [row for row in table("memory") if row["published_gb"]]
    unseen = memory_errors("memory of others")
    for row, error in zip(measured, unseen, strict=True):
        errors.setdefault(row["measured_by"], []).append(error)
    return errors


def memory_spread() -> float:
    """The size of the logarithm of published over predicted memory that holds four of
    five further steps of each source, where it has at least four; as in `spreads`.
    """
    spread = 0.0
    for errors in memory_left_out().values():
        rank = math.ceil(0.8 * (len(errors) + 1))
        if rank <= len(errors):
            spread = max(spread, sorted(map(abs, errors))[rank - 1])
    return math.ceil(1000 * spread) / 1000


def _say_memory(say: Callable[[str], object]) -> None:
    """Print the fragments of each library, and the errors of its memory with those
    fitted to the others.
    """
    for name in MEMORY:
        in_use = inputs(name)[0][2].software.fragments
        own = [abs(math.expm1(error)) for error in memory_errors(name)]
        say(
            f"{name}: fragments {fragments(name):.2f} alone, in use {in_use:.2f},"
            f" median error {statistics.median(own):.1%}\n"
        )
    sizes = []
    for source, errors in memory_left_out().items():
        left = [abs(math.expm1(error)) for error in errors]
        sizes += left
        say(f"memory left out, {source}: median {statistics.median(left):.1%}\n")
    say(
        f"memory left out: median {statistics.median(sizes):.1%}, 90 % within"
        f" {np.quantile(sizes, 0.9):.1%}; spread {memory_spread()}\n"
    )


def main(say: Callable[[str], object] = sys.stdout.write) -> None:
    """Print what is fitted beside what is in use."""
    for (name, fitted), used in zip(links().items(), (NVLINK3, NVLINK4), strict=True):
        for part, ours, theirs in (
            ("bulk", fitted, used),
            ("low latency", fitted.low_latency, used.low_latency),
            ("switch", fitted.switch, used.switch),
            (
                "switch, low latency",
                fitted.switch and fitted.switch.low_latency,
                used.switch and used.switch.low_latency,
            ),
        ):
            if ours is not None and theirs is not None:
                say(f"{name} {part}: fitted {ours}; in use {theirs}\n")
    start, share = sends()
    say(
        f"sends: fitted {start:.3g} s and {share:.3g}, in use {SEND_START_S:.3g} and"
        f" {SEND_SHARE:.3g}\n"
    )
    _say_memory(say)
    fitted_constants = fit()
    for field in FITTED:
        say(
            f"{field}: fitted {getattr(fitted_constants, field):.4g}, in use"
            f" {getattr(CONSTANTS, field):.4g}\n"
        )
    for name in TABLES:
        say(f"{compare(name, fitted_constants)}\n")
    by_model = left_out_by_model(fitted_constants)
    spread = spreads(fitted_constants, by_model)
    everything = left_out(fitted_constants)
    say(f"spread: {spread}\n")
    say(f"widened by {widening(everything, spread):.3f} a unit of distance\n")
    for source in dict.fromkeys(entry.source for entry in everything):
        of_source = [entry for entry in everything if entry.source == source]
        say(f"left out, {source}: {_errors(of_source)}\n")
    say(f"left out, all: {_errors(everything)}\n")
    others = [entry for entry in everything if entry.source != "llm-foundry"]
    say(f"left out, all but llm-foundry: {_errors(others)}\n")
    for name in BY_MODEL:
        sizes = [abs(row.error) for table_name, row in by_model if table_name == name]
        say(
            f"left out by model, {name}: median error {statistics.median(sizes):.1%},"
            f" 90 % within {np.quantile(sizes, 0.9):.1%}\n"
        )


def _errors(steps: Sequence[LeftOut]) -> str:
    sizes = [abs(1 / entry.ratio - 1) for entry in steps]
    unsaid = sum(not 0.5 < entry.ratio < 2 and not entry.by.outside for entry in steps)
    return (
        f"{len(steps)} steps, median error {statistics.median(sizes):.1%}, 90 % within"
        f" {np.quantile(sizes, 0.9):.1%}; a factor of two off without a word: {unsaid}"
    )


if __name__ == "__main__":
    main()
