"""What a trace of tiles counts and calculates, derived by hand, and what it refuses."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import kerneltrace
from gpufacts import Device, find
from kerneltrace import tiles
from kerneltrace.errors import KernelError, MissingCompiler, UnknownDevice
from kerneltrace.judge.estimate import LAUNCH_S, MEMORY_SHARE, SCALAR_DOTS
from kerneltrace.tiles import tl, triton
from kerneltrace.tiles.traffic import dot_times
from test_kerneltrace import tile_kernels
from test_kerneltrace.tile_kernels import (
    add,
    launches,
    matmul,
    random,
    softmax,
    transpose,
)

pytestmark = pytest.mark.slow  # runs kernels, and starts Python
TRITON = importlib.util.find_spec("triton") is not None


def product(n, tile, group, programs=None, k=None, **options):
    """A trace of a matmul of n x n x k by tiles of tile x tile x 32."""
    k = k or n
    a = np.ones((n, k), np.float16)
    b = np.ones((k, n), np.float16)
    c = np.zeros((n, n), np.float32)
    sizes = n, n, k, k, 1, n, 1, n, 1
    constants = {"BM": tile, "BN": tile, "BK": 32, "GROUP": group}
    return tiles.trace(
        matmul,
        (n // tile) ** 2,
        a,
        b,
        c,
        *sizes,
        **constants,
        programs=programs,
        **options,
    )


def test_each_operand_of_a_product_is_loaded_once_for_each_tile_of_the_other():
    trace = product(128, 32, 2)
    for name in "ab":
        counts = trace.count(name)
        assert counts.bytes == 4 * 128 * 128 * 2
        assert counts.distinct_bytes == 128 * 128 * 2
        assert counts.reuse == 4
        assert counts.sectors == counts.bytes / 32
    assert trace.count("c", kind="store").elements == 128 * 128
    assert trace.count("c", kind="load").elements == 0
    assert trace.dot_flop == {"float16": 2 * 128**3}
    assert trace.programs == 16
    assert trace.flop_per_byte == (2 * 128**3 + trace.flop) / trace.count().bytes


def test_what_a_program_touches():
    trace = product(64, 32, 1)
    expected = np.zeros((64, 64))
    expected[:32] = 1
    np.testing.assert_array_equal(trace.touched("a", program=(0,)), expected)
    np.testing.assert_array_equal(trace.touched("a", program=(0, 0)), expected)
    np.testing.assert_array_equal(trace.touched("a"), np.full((64, 64), 2))
    np.testing.assert_array_equal(trace.touched("c", kind="store"), np.ones((64, 64)))


def test_a_tile_of_columns_moves_whole_sectors_for_single_elements():
    x = random(64, 64)
    out = np.zeros((64, 64), np.float32)
    trace = tiles.trace(transpose, (16, 16), x, out, 64, 64, TILE=4)
    # 4 floats of a sector's 8
    assert trace.count("x").sectors == trace.count("x").bytes / 16
    assert trace.ok


def test_flop_are_those_of_elements_and_of_reductions():
    x = random(4, 32)
    out = np.zeros((4, 32), np.float32)
    trace = tiles.trace(softmax, 4, x, out, 4, 32, BLOCK=32)
    # max, difference, exp, sum, quotient
    assert trace.flop == 4 * (31 + 32 + 32 + 31 + 32)


def test_grouped_programs_share_more_of_what_l2_holds():
    """A grid of 16 x 16 programs, 64 at a time: 4 rows of 16 or 8 rows of 8, which need
    4 + 16 or 8 + 8 tiles.
    """
    small = Device(
        name="small",
        source="made up",
        compute_capability="8.0",
        sms=2,
        boost_hz=1e9,
        bandwidth_bytes_per_s=1e11,
        l2_bytes=56 * 1024,
        tensor_flop_per_s={"float16": 1e13},
    )
    traffic = {
        group: product(256, 16, group, k=64, num_warps=1, num_stages=2).traffic(small)
        for group in (1, 8)
    }
    assert traffic[1].at_a_time == 64
    once = 256 * 64 * 2
    assert traffic[1].dram_read_bytes == {"a": once, "b": 4 * once, "c": 0}
    assert traffic[8].dram_read_bytes == {"a": 2 * once, "b": 2 * once, "c": 0}


def test_an_l2_cache_that_holds_all_reads_each_byte_once():
    traffic = product(128, 32, 4).traffic("A100 SXM4 80GB")
    assert traffic.dram_read_bytes == {"a": 128 * 128 * 2, "b": 128 * 128 * 2, "c": 0}
    assert traffic.dram_write_bytes == {"a": 0, "b": 0, "c": 128 * 128 * 4}
    assert traffic.l2_bytes["a"] == 4 * 128 * 128 * 2
    assert "16 programs at a time" in str(traffic)


def test_the_time_of_a_sum_is_that_of_its_bytes():
    x, y, out = (np.zeros(64 * 1024, np.float32) for _ in range(3))
    estimate = tiles.trace(add, 64, x, y, out, x.size, BLOCK=1024).estimate(
        "A100 SXM4 80GB", grid=2**17
    )
    bandwidth = find("A100 SXM4 80GB").bandwidth_bytes_per_s
    assert estimate.limit == "memory"
    assert estimate.seconds == pytest.approx(
        12 * 2**27 / (MEMORY_SHARE * bandwidth) + LAUNCH_S, rel=1e-6
    )
    assert estimate.untested == ()
    low, high = estimate.interval_s
    assert low < estimate.seconds < high


def test_longer_loops_scale_what_is_in_them():
    short = product(128, 32, 2, k=64)
    long = product(128, 32, 2, k=256)
    assert short.estimate("A100 SXM4 80GB", longer=4).parts == pytest.approx(
        long.estimate("A100 SXM4 80GB").parts
    )


def test_a_gpu_without_published_times_says_so():
    estimate = product(64, 32, 1).estimate("T4")
    assert estimate.untested == (
        "Untested: no published time of compute capability 7.5 was compared.",
    )
    with pytest.raises(UnknownDevice):
        product(64, 32, 1).estimate("MI300X")


@pytest.mark.parametrize("name", ["T4", "V100", "GeForce RTX 2080 Ti (FE)"])
def test_dots_are_scalar_arithmetic_below_compute_capability_8(name):
    chip = find(name)
    blocks = 128**2
    estimate = product(64, 32, 2, k=64).estimate(name, grid=blocks, longer=64)
    flop = 2 * (32 * 128) ** 3
    # an SM has 64 lanes for float32, each of which adds a product a clock
    least_s = flop / 2 / (64 * chip.sms * chip.boost_hz)
    assert estimate.limit == "arithmetic"
    assert least_s <= estimate.seconds <= 1.2 * least_s
    assert "tensor cores" not in estimate.parts
    assert SCALAR_DOTS in estimate.assumed
    on_ampere = product(64, 32, 2, k=64).estimate("A100 SXM4 80GB", grid=blocks)
    assert "tensor cores" in on_ampere.parts
    assert SCALAR_DOTS not in on_ampere.assumed


def test_dots_of_float64_take_its_units_and_those_of_integers_are_refused():
    t4 = find("T4")
    share = sum(dot_times(t4, {"float64": 2 * 10**9}))
    assert share == pytest.approx(10**9 / 2)  # an SM has 2 lanes for float64
    with pytest.raises(UnknownDevice, match=r"compiles no tl\.dot on int8 for T4"):
        dot_times(t4, {"int8": 1})


def test_a_short_name_of_a_gpu_says_what_it_is_taken_for():
    traced = product(64, 32, 1)
    words = "'H100' is taken as H100 SXM5 80GB; there are also"
    assert words in str(traced.estimate("H100"))
    assert words in str(traced.traffic("H100"))
    assert "is taken as" not in str(traced.traffic("H100 SXM5 80GB"))


def test_a_few_programs_of_a_grid():
    trace = product(128, 32, 2, programs=3)
    assert (trace.traced, trace.programs) == (3, 16)
    assert trace.count("c").elements == 128 * 128  # of the whole grid
    assert trace.notes == ()
    assert "16 programs of which 3 ran" in str(trace)


def test_elements_that_nobody_stores_are_a_note():
    x = random(100)
    trace = tiles.trace(add, 1, x, x, np.zeros(100, np.float32), 60, BLOCK=64)
    assert trace.ok
    assert [str(note) for note in trace.notes] == [
        "[note: unwritten] 40 of the 100 elements of out are never stored, the first is"
        " out[60]."
    ]


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64]
)
def test_torch_s_tensors_are_computed_in_their_type(dtype):
    x = torch.randn(100).to(dtype)
    y = torch.randn(100).to(dtype)
    out = torch.zeros(100, dtype=dtype)
    assert tiles.trace(add, 2, x, y, out, 100, BLOCK=64).ok
    assert torch.equal(out, x + y)


@triton.jit
def turns_of_its_own(x, out, turns, TILE: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for _ in range(tl.load(turns + program)):
        tile = tl.load(x + at)
        total = tl.dot(tile, tile, total)
    tl.store(out + program * TILE * TILE + at, total)


@pytest.mark.parametrize(
    ("turns", "longest"), [([4] * 8, 4), ([1] * 7 + [25], 25), ([0] * 7 + [32], 32)]
)
def test_a_launch_takes_as_long_as_its_longest_program(turns, longest):
    """Eight programs have an SM each, of 132."""
    x = np.ones((64, 64), np.float16)
    args = x, np.zeros((8, 64, 64), np.float32), np.array(turns, np.int32)
    estimate = tiles.trace(turns_of_its_own, 8, *args, TILE=64).estimate(
        "H100 SXM5 80GB"
    )
    of_one, _ = dot_times(find("H100 SXM5 80GB"), {"float16": 2 * 64**3 * longest})
    assert estimate.parts["tensor cores"] == pytest.approx(132 * of_one)
    assert (longest > 4) == ("longest program" in str(estimate))


@triton.jit
def unknown_function(x, out):
    tl.store(out, tl.something_else(x))


@triton.jit
def function_of_numpy(x, out):
    tl.store(out, np.exp(tl.load(x)))


@triton.jit
def described(x, out):
    box = tl.make_tensor_descriptor(x, [4], [1], [4])
    tl.store(out, box.load([0]))


def test_descriptors_are_refused_in_words():
    findings = tiles.trace(described, 1, random(4), random(4)).findings
    assert [(each.kind, each.line) for each in findings] == [
        ("refused", described.fn.__code__.co_firstlineno + 2)
    ]
    assert (
        "Block pointers and tensor descriptors aren't traced: use pointers and masks."
        in str(findings[0])
    )


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (unknown_function, "tl.something_else is not known here"),
        (function_of_numpy, "operand 'Tile' does not support ufuncs"),
    ],
)
def test_what_is_not_known_is_refused_with_its_line(kernel, words):
    line = kernel.fn.__code__.co_firstlineno + 2
    with pytest.raises(
        KernelError,
        match=f"line {line} of {kernel.fn.__name__} can't be traced: .*{words}",
    ):
        tiles.trace(kernel, 1, random(4), random(4))


def test_arguments_that_no_kernel_takes_are_refused():
    x = random(4)
    with pytest.raises(KernelError, match="x has elements of type complex64"):
        tiles.trace(unknown_function, 1, x.astype(np.complex64), x)
    with pytest.raises(KernelError, match="out is 'text'"):
        tiles.trace(unknown_function, 1, x, "text")
    with pytest.raises(
        TypeError, match=r"Expected a function under @triton\.jit, got 5"
    ):
        tiles.trace(5, 1, x)
    with pytest.raises(ValueError, match="There is no array 'z'; known are"):
        product(64, 32, 1).count("z")


def test_importing_it_loads_neither_triton_nor_torch():
    asked = (
        "import sys; from kerneltrace import tiles; print({'triton', 'torch', 'numba'}"
        " & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"


@pytest.mark.skipif(TRITON, reason="Triton is installed")
def test_without_triton_compiling_says_how_to_get_it():
    with pytest.raises(MissingCompiler, match="pip install triton"):
        tiles.compile(add, *(np.zeros(4, np.float32),) * 3, 4, BLOCK=4)


@pytest.mark.skipif(not TRITON, reason="Triton is not installed")
class TestCompiled:
    def code(self, capability):
        a = np.ones((256, 256), np.float16)
        c = np.zeros((256, 256), np.float32)
        strides = 256, 1, 256, 1, 256, 1
        sizes = {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}
        return tiles.compile(
            matmul,
            a,
            a,
            c,
            256,
            256,
            256,
            *strides,
            **sizes,
            num_warps=8,
            num_stages=3,
            capability=capability,
        )

    @pytest.mark.parametrize(
        ("capability", "family"), [(80, "mma.sync"), (90, "wgmma"), (100, "tcgen05")]
    )
    def test_tensor_cores_have_the_instructions_of_their_capability(
        self, capability, family
    ):
        code = self.code(capability)
        assert code.instructions[family] > 0
        source = Path(tile_kernels.__file__).read_text(encoding="utf-8").splitlines()
        assert all("tl.dot" in source[line - 1] for line in code.lines[family])
        assert 0 < code.registers <= 255
        assert code.shared_bytes > 0
        assert f"for compute capability {capability / 10:.1f}, 8 warps" in str(code)

    def test_below_8_0_a_dot_is_scalar_multiply_adds(self):
        a = np.ones((64, 64), np.float16)
        c = np.zeros((64, 64), np.float32)
        strides = 64, 1, 64, 1, 64, 1
        sizes = {"BM": 32, "BN": 32, "BK": 32, "GROUP": 1}
        code = tiles.compile(
            matmul, a, a, c, *[64] * 3, *strides, **sizes, capability=75
        )
        assert code.instructions["fma"] == 32**3 // 128  # a thread's, of 128
        assert not {"mma.sync", "cp.async"} & set(code.instructions)
        assert tiles.occupancy(code, "T4").blocks_per_sm >= 1

    def test_loads_of_a_loop_are_copied_ahead_and_fill_shared_memory(self):
        code = self.code(80)
        assert code.instructions["cp.async"] > 0
        room = tiles.occupancy(code, "A100 SXM4 80GB")
        assert 1 <= room.blocks_per_sm <= 163 * 1024 // code.shared_bytes
        trace = product(256, 32, 2)
        assert trace.estimate("A100 SXM4 80GB", code=code).seconds > 0
        with pytest.raises(
            ValueError, match=r"has compute capability 9\.0: compile for it"
        ):
            tiles.occupancy(code, "H100 SXM5 80GB")

    @pytest.mark.parametrize("name", ["add", "softmax", "transpose", "scan", "bins"])
    def test_results_are_those_of_the_ptx(self, name):
        mine = launches()[name]()
        other = launches()[name]()
        assert tiles.trace(mine.kernel, mine.grid, *mine.args, **mine.constants).ok
        kerneltrace.trace(
            other.kernel, other.grid, 128, *other.args, constants=other.constants
        )
        for position in mine.expected:
            np.testing.assert_allclose(
                mine.args[position], other.args[position], rtol=1e-5, atol=1e-5
            )


@triton.autotune(
    configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"]
)
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)


def test_the_constants_of_autotune_are_those_of_its_first_configuration():
    x = random(100)
    out = np.zeros(100, np.float32)
    assert (
        tiles.trace(
            tuned, lambda meta: triton.cdiv(100, meta["BLOCK"]), x, out, 100
        ).programs
        == 4
    )
    assert tiles.trace(tuned, 2, x, out, 100, BLOCK=64).ok
    np.testing.assert_array_equal(out, 2 * x)


@triton.jit
def column(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at * n))


def test_a_column_of_a_matrix_is_a_note_in_its_line():
    trace = tiles.trace(
        column, 1, random(64, 64), np.zeros(64, np.float32), 64, TILE=64
    )
    line = column.fn.__code__.co_firstlineno + 3
    assert [(note.kind, note.line, note.array) for note in trace.notes] == [
        ("spread", line, "x")
    ]
    assert "each load of x moves 8 times the bytes it asks for" in trace.notes[0].words


@pytest.mark.skipif(TRITON, reason="Triton is installed")
def test_a_launch_without_triton_says_how_to_trace():
    with pytest.raises(KernelError, match=r"tiles\.trace\(add, \(4,\), \.\.\.\)"):
        add[(4,)](1, 2)


@triton.jit
def overlapping(x, out, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * step + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(out))


@pytest.mark.parametrize(("step", "addresses"), [(64, 1), (48, 1 + 3 * 16), (0, 64)])
def test_a_race_counts_each_address_once(step, addresses):
    x = random(256)
    trace = tiles.trace(overlapping, 4, x, np.zeros(256, np.float32), step, BLOCK=64)
    (race,) = (each for each in trace.findings if each.kind == "race")
    assert race.count == addresses


@triton.jit
def converting(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (np.int8, [0, -1, 0, -1]),
        (np.uint8, [0, 255, 0, 0]),
        (np.int32, [0, 2**31 - 1, -(2**31), -1]),
        (np.uint32, [0, 2**32 - 1, 0, 0]),
        (np.int64, [-(2**63), 2**63 - 1, -(2**63), -1]),
    ],
)
def test_a_float_beyond_the_range_of_integers_is_cut_as_by_ptx(kind, wanted):
    x = np.array([np.nan, np.inf, -np.inf, -1.5], np.float32)
    out = np.zeros(4, kind)
    assert tiles.trace(converting, 1, x, out, BLOCK=4).ok
    assert out.tolist() == wanted
