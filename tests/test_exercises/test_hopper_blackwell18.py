"""Notebook 18's section 6: what an SM does in a clock, 2 ** x by multiply-adds, and
seven languages whose compilers make what was recorded.
"""

# ruff: noqa: N803 - kernels write constants in capitals

import importlib.util
import re
import sys

import numpy as np
import pytest
from torch.nn import attention

import gpufacts
from data.make import language_code
from exercises.nb18 import implementations, languages, sm_rates
from exercises.nb18.matmuls import compiling
from exercises.nb18.matmuls.compiling import LANGUAGES
from kerneltrace import tiles
from kerneltrace.tiles import tl, triton
from labkit.measure import published
from tests.helpers import check


def test_an_h100_multiplies_as_much_in_a_clock_as_its_data_sheet_says():
    h100 = gpufacts.find("H100")
    clock_hz = 1830e6  # of tensor cores, as the table of devices says
    rate = sm_rates.per_clock()["H100"]["tensor cores"]
    assert rate * h100.sms * clock_hz == pytest.approx(h100.peaks["float16"], rel=1e-3)


def test_exp_units_take_as_long_as_tensor_cores_on_a_b200():
    assert sm_rates.clocks("B200", 128, 128, 128) == {
        "tensor cores": 1024,
        "exp units": 1024,
    }
    assert sm_rates.clocks("H100", 128, 128, 128)["tensor cores"] == 2048
    rows = sm_rates.clocks_table(128, 128, (64, 256)).rows
    assert [row[-1] for row in rows] == ["1.00 x", "0.250 x", "2.00 x", "0.500 x"]


@triton.jit
def nearest(x):
    """Rounds to the nearest whole number by an addition: f is from -0.5 to 0.5."""
    x = tl.maximum(x, -127.0)
    shifted = x + 12582912.0  # 1.5 * 2 ** 23: the whole number is in its last bits
    f = x - (shifted - 12582912.0)
    value = 0.00961813 * f + 0.05550411
    value = ((value * f + 0.2402265) * f + 0.6931472) * f + 1.0
    bits = value.to(tl.int32, bitcast=True)
    bits += shifted.to(tl.int32, bitcast=True) << 23
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def masked(x):
    """Fused, with 0 for what is too small."""
    small = x < -126.0
    x = tl.where(small, 0.0, x)
    whole = tl.floor(x)
    f = x - whole
    value = tl.fma(0.077119089663, f, 0.227564394474)
    value = tl.fma(tl.fma(value, f, 0.695146143436), f, 1.0)
    bits = value.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)
    return tl.where(small, 0.0, bits.to(tl.float32, bitcast=True))


@triton.jit
def multiplied_by_the_power(x):
    """The power of the whole number as bits of its own."""
    x = tl.maximum(x, -126.0)
    whole = tl.floor(x)
    f = x - whole
    value = ((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0
    return value * ((whole.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)


@pytest.mark.parametrize(
    "answer", [nearest, masked, multiplied_by_the_power], ids=lambda a: a.fn.__name__
)
def test_other_powers_that_are_right_pass(answer):
    outcome = check("18.6", answer)
    assert outcome.state == "passed", outcome.message


def test_a_trace_tells_special_operations():
    @triton.jit
    def twice(x, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x + at, tl.exp2(tl.exp(tl.floor(tl.load(x + at)))) + 1.0)

    trace = tiles.trace(twice, 1, np.zeros(64, np.float32), BLOCK=64)
    assert trace.special == 128


def test_a_flash_attention_that_is_absent_is_named_and_another_is_restored():
    said = implementations.activated("FA4")
    if "flash_attn" in sys.modules:
        pytest.skip("flash-attn-4 is installed here")
    assert "flash-attn-4" in said
    removed = []

    class Handle:
        def remove(self):
            removed.append(True)

    attention.register_flash_attention_impl("mine", register_fn=Handle)
    assert "mine was taken" in implementations.activated("mine")
    assert removed == [True]
    assert attention.current_flash_attention_impl() is None
    assert "Unknown" in implementations.activated("none of them")


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_a_language_has_its_three_lines_and_what_became_of_them(language):
    marks = re.findall(r"  # (load|multiply|store)\n", language.text)
    assert marks == ["load", "multiply", "store"]
    for capability in language.capabilities:
        row = _recorded(language.name, capability)
        assert row["output"] == language.output
        for package in language.packages:
            name, version = re.split(r"(?:\[.*\])?==", package)
            assert f"{name} {version}" in row["compiler"]


def test_what_a_language_says_is_one_of_the_topics_and_has_a_source():
    for row in published.table("kernel_languages"):
        assert row["language"] in LANGUAGES
        assert row["topic"] in languages.TOPICS
        assert row["who"] in ("you", "option")
        assert re.search(r"\d+\.\d+", row["source"])
    assert len(languages.says().rows) == len(LANGUAGES)
    gluon = languages.names("Gluon").rows
    assert ("Gluon", "shared memory", "gl.allocate_shared_memory") in {
        row[:3] for row in gluon
    }


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "wgmma.mma_async.sync\ncp.async.bulk.tensor\nsetmaxnreg",
            "wgmma, TMA, setmaxnreg",
        ),
        ("mma.sync.aligned\ncp.async.cg.shared", "mma.sync, cp.async"),
        ("tcgen05.mma.cta_group::1\ncp.async.bulk", "tcgen05, TMA"),
        ("tl::mma_sync<\ntl::cp_async_gs<16>", "mma.sync, cp.async"),
        ("ld.global.b32\nfma.rn.f32", "plain loads"),
        (b"0" * 70_480, "a program of 70 kB"),
    ],
)
def test_instructions_are_told_by_their_families(code, expected):
    assert compiling.instructions(code) == expected


@pytest.mark.slow
@pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="Triton is not installed here"
)
@pytest.mark.parametrize("name", ["Triton", "Gluon"])
def test_this_triton_makes_the_recorded_instructions(name):
    for capability in LANGUAGES[name].capabilities:
        made = compiling.instructions(compiling.compiled(name, capability))
        assert made == _recorded(name, capability)["instructions"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", LANGUAGES)
def test_each_compiler_makes_the_recorded_instructions(name):
    python = language_code.python_of(LANGUAGES[name])
    if not python.exists():
        pytest.skip(
            f"needs {name}'s compiler: `python -m data.make.language_code {name!r}`"
            " adds it, below build/languages"
        )
    rows = language_code.rows(LANGUAGES[name], python)
    assert [int(row[1]) for row in rows] == list(LANGUAGES[name].capabilities)
    for _, capability, made, output, _ in rows:
        assert output == LANGUAGES[name].output
        if output != "cubin":  # whose size differs from version to version
            assert made == _recorded(name, int(capability))["instructions"]


def _recorded(name, capability):
    (row,) = (
        row
        for row in languages.recorded()
        if (row["language"], row["capability"]) == (name, str(capability))
    )
    return row
