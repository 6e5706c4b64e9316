"""Place notebook 22's arrays on an ECP5-85 and write data/fpga_reports.csv: an hour on
one core.

usage: fpga_reports.py [KIND ...]

The designs are the notebook's own: its cells tagged `design`, the solution of its
exercise on pipelining, and what its scheduler makes of a loop. Each row has the median
clock of three placements from different seeds; a large array, or one between memories,
has one. With kinds, such as `pipelined`, only these are placed, and the other rows stay
as they are.
"""

from __future__ import annotations

import csv
import functools
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from exercises.nb22 import fpga
from exercises.nb22.scheduled import Scheduled
from labkit.core.paths import EXERCISES
from labkit.lesson.notebook_files import tagged_cells

# a placement of a large array takes several minutes: one has to do
SEEDS = (1, 2, 3)
LARGE = 10
ALL = (2, 4, 8, 10)
SIZES = {
    "plain": ALL,
    "pipelined": ALL,
    "from LUTs": (4,),
    "4-bit, from LUTs": (4,),
    "sums stay, block RAM": (4,),
    "weights stay, block RAM": (4, 10),
    "scheduled, n reads a clock": (4,),
    "scheduled, 1 read a clock": (4,),
}
COLUMNS = (
    "kind",
    "n",
    "luts",
    "flip_flops",
    "multipliers",
    "block_rams",
    "fmax_mhz",
    "lowest_mhz",
    "highest_mhz",
    "tools",
)


def designs() -> dict[str, Callable[[int], Any]]:
    """Kind -> the n x n design of that kind."""
    names = tagged_cells("22", "design")
    solution = (EXERCISES / "nb22" / "solution.py").read_text(encoding="utf-8")
    exec(solution.partition("# %% 22.4\n")[2].partition("# %%")[0], names)
    array = names["SystolicArray"]
    element = names["Pipelined"]
    return {
        "plain": array,
        "pipelined": lambda n: array(n, element),
        "from LUTs": lambda n: array(n, element),
        "4-bit, from LUTs": lambda n: array(n, lambda: element(4)),
        "sums stay, block RAM": lambda n: names["Fed"](array(n, element)),
        "weights stay, block RAM": lambda n: names["FedWithSums"](
            names["StationaryArray"](n)
        ),
    } | {kind: functools.partial(_scheduled, kind) for kind in fpga.schedules(1)}


def _scheduled(kind: str, n: int) -> Scheduled:
    return Scheduled(fpga.schedules(n)[kind])


def row(kind: str, n: int) -> tuple[object, ...]:
    """A row of the table: the design placed from each seed."""
    seeds = SEEDS if n < LARGE and "RAM" not in kind else SEEDS[:1]
    design = designs()[kind]
    placed = [
        fpga.place(design(n), seed=seed, hard_multipliers="LUTs" not in kind)
        for seed in seeds
    ]
    clocks = sorted(round(placement.fmax_mhz, 1) for placement in placed)
    first = placed[0]
    print(kind, n, first, clocks, file=sys.stderr)
    counts = first.luts, first.flip_flops, first.multipliers, first.block_rams
    return (
        kind,
        n,
        *counts,
        statistics.median(clocks),
        clocks[0],
        clocks[-1],
        fpga.versions(),
    )


def main(wanted: Sequence[str]) -> None:
    """Write a row for each kind and size as soon as it is placed; keep the rows of
    kinds that aren't wanted.
    """
    with fpga.REPORTS.open(encoding="utf-8") as file:
        kept = {
            (line["kind"], int(line["n"])): tuple(line[name] for name in COLUMNS)
            for line in csv.DictReader(file)
        }
    todo = [(kind, n) for kind, sizes in SIZES.items() for n in sizes]
    for at in todo:
        if not wanted or at[0] in wanted:
            kept[at] = row(*at)
            with fpga.REPORTS.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(
                    [COLUMNS, *(kept[key] for key in todo if key in kept)]
                )


if __name__ == "__main__":
    main(sys.argv[1:])
