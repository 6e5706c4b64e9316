"""Place notebook 22's arrays on an ECP5-85 and write data/fpga_reports.csv: half an hour on one core.

usage: fpga_reports.py

The designs are the notebook's own: its cells tagged `design`, and the solution of its exercise on pipelining. Each row
has the median clock of three placements from different seeds; that of a large array has one placement.
"""

from __future__ import annotations

import csv
import statistics
import sys

from exercises.nb22 import fpga
from labkit.core.paths import DATA, EXERCISES
from labkit.lesson.notebook_files import tagged_cells

SEEDS, LARGE = (1, 2, 3), 10  # a placement of a large array takes several minutes: one has to do
ALL = (2, 4, 8, 10)
SIZES = {"plain": ALL, "pipelined": ALL, "from LUTs": (4,), "4-bit, from LUTs": (4,)}
COLUMNS = ("kind", "n", "luts", "flip_flops", "multipliers", "fmax_mhz", "lowest_mhz", "highest_mhz", "tools")


def main() -> None:
    """Write a row for each kind and size as soon as it is placed."""
    names = tagged_cells("22", "design")
    solution = (EXERCISES / "nb22" / "solution.py").read_text(encoding="utf-8")
    exec(solution.partition("# %% 22.4\n")[2].partition("# %%")[0], names)
    kinds = {
        "plain": names["ProcessingElement"],
        "pipelined": names["Pipelined"],
        "from LUTs": names["Pipelined"],
        "4-bit, from LUTs": lambda: names["Pipelined"](4),
    }
    with (DATA / "fpga_reports.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for kind, n in ((kind, n) for kind, sizes in SIZES.items() for n in sizes):
            array = names["SystolicArray"]
            hard = "LUTs" not in kind
            seeds = SEEDS if n < LARGE else SEEDS[:1]
            placed = [fpga.place(array(n, kinds[kind]), seed=seed, hard_multipliers=hard) for seed in seeds]
            clocks = sorted(round(one.fmax_mhz, 1) for one in placed)
            one = placed[0]
            counts = one.luts, one.flip_flops, one.multipliers
            writer.writerow((kind, n, *counts, statistics.median(clocks), clocks[0], clocks[-1], fpga.versions()))
            file.flush()
            print(kind, n, one, clocks, file=sys.stderr)


if __name__ == "__main__":
    main()
