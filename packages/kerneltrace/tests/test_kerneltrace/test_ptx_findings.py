"""Mistakes planted in CUDA C++ are found in its own lines, and correct kernels have
none.
"""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from kerneltrace import compile_cuda, trace
from kerneltrace.__main__ import main
from kerneltrace.errors import KernelError
from test_kerneltrace.tracing import not_on_macos

pytestmark = [pytest.mark.slow, not_on_macos]  # compiles kernels

HEAD = (
    'extern "C" __global__ void k(const float* x, float* y, int n)\n{\n    int t ='
    " threadIdx.x;\n"
)


def traced(body, n=64, threads=64, **options):
    """The trace of a kernel on n numbers, whose body begins at line 4."""
    return trace(
        HEAD + body + "\n}\n",
        1,
        threads,
        np.ones(n, np.float32),
        np.zeros(n, np.float32),
        n,
        **options,
    )


PLANTED = {
    "no barrier between a store and another thread's load": (
        "race",
        6,
        "__shared__ float s[64];\ns[t] = x[t];\ny[t] = s[63 - t];",
    ),
    "a barrier too few in a loop": (
        "race",
        7,
        (
            "__shared__ float s[64]; float sum = 0;\n#pragma unroll 1\nfor (int i = 0;"
            " i < n / 16; ++i) {\ns[t] = x[t] + i;\n__syncthreads();\nsum += s[63 -"
            " t];\n}\ny[t] = sum;"
        ),
    ),
    "no guard": ("outside", 4, "y[t + 1] = x[t];"),
    "a read of the array before": ("outside", 4, "y[t] = x[t - 1];"),
    "past the end of shared memory": (
        "outside",
        5,
        "__shared__ float s[63];\ns[t] = x[t];\n__syncthreads();\ny[t] = s[t / 2];",
    ),
    "shared memory that nobody wrote": (
        "unset",
        7,
        (
            "__shared__ float s[64];\nif (t < 63) s[t] = x[t];\n__syncthreads();\ny[t]"
            " = s[t];"
        ),
    ),
    "a barrier in one branch": (
        "barrier",
        5,
        "if (t < 32) {\n__syncthreads();\n}\ny[t] = x[t];",
    ),
    "a barrier in each branch": (
        "barrier",
        7,
        (
            "if (t % 2) {\n__syncthreads(); y[t] = x[t];\n} else {\n__syncthreads();"
            " y[t] = -x[t];\n}"
        ),
    ),
    "a shuffle of an absent lane": (
        "undefined",
        6,
        "float v = x[t];\nif (t % 32 < 16)\nv = __shfl_sync(0xffff, v, 20);\ny[t] = v;",
    ),
    "a misaligned vector": (
        "misaligned",
        4,
        "float4 v = ((float4*)(x + 1))[t % 15]; y[t] = v.x + v.y + v.z + v.w;",
    ),
    "a failed assertion": ("raised", 4, "if (x[t] > 0) __trap();"),
    "an endless loop": ("endless", 4, "while (((volatile float*)y)[0] == 0) {}"),
    "integers over floats in dynamic shared memory": (
        "overlap",
        6,
        (
            "extern __shared__ char s[]; float* a = (float*)s; int* b = (int*)s;\na[t] ="
            " x[t]; __syncthreads(); b[t] = t; __syncthreads();\ny[t] = 2 * a[63 - t];"
        ),
    ),
    "a counter over floats": (
        "overlap",
        5,
        (
            "extern __shared__ char s[]; float* a = (float*)s; a[t] = x[t];"
            " __syncthreads();\natomicAdd((int*)s, 1); __syncthreads();\ny[t] = a[63 -"
            " t];"
        ),
    ),
}
CORRECT = {
    "integers behind floats": (
        "extern __shared__ char s[]; float* a = (float*)s; int* b = (int*)(s + 256);"
        " a[t] = x[t]; b[t] = t; __syncthreads(); y[t] = a[63 - t] + b[t] * 2;"
    ),
    "integers after floats, which were read": (
        "extern __shared__ char s[]; float* a = (float*)s; int* b = (int*)s; a[t] ="
        " x[t]; __syncthreads(); float v = a[63 - t]; __syncthreads(); b[t] = t;"
        " __syncthreads(); y[t] = v + b[63 - t] * 2;"
    ),
    "bits of floats": (
        "extern __shared__ int s[]; s[t] = 0; __syncthreads(); atomicMax(s + t / 32,"
        " __float_as_int(x[t])); __syncthreads(); y[t] = __int_as_float(s[t / 32]) +"
        " (s[t / 32] >> 23 & 255);"
    ),
    "floats copied as integers": (
        "extern __shared__ int4 s[]; if (t < 16) s[t] = ((const int4*)x)[t];"
        " __syncthreads(); y[t] = 2 * ((float*)s)[t];"
    ),
    "floats made of bits": (
        "extern __shared__ int s[]; s[t] = (t + 64) << 23; __syncthreads(); y[t] = x[t] *"
        " ((float*)s)[63 - t];"
    ),
    "an early return": (
        "y[t] = 0; if (t >= 40) return;\n__shared__ float s[64]; s[t] = x[t];"
        " __syncthreads(); y[t] = s[39 - t];"
    ),
    "a warp's own barrier": (
        "__shared__ float s[64]; s[t] = x[t]; __syncwarp(); y[t] = s[t ^ 1];"
    ),
    "a sum of eight lanes, whose upper ones get values that nobody uses": (
        "float v = x[t]; y[t] = 0;\nif (t < 8) { for (int d = 4; d; d /= 2) v +="
        " __shfl_down_sync(0xff, v, d); if (t == 0) y[t] = v; }"
    ),
    "vectors read as numbers": (
        "__shared__ float4 s[16]; if (t < 16) s[t] = ((const float4*)x)[t];"
        " __syncthreads(); y[t] = ((float*)s)[t];"
    ),
    "votes": (
        "if (__any_sync(-1, x[t] > 3)) y[t] = __popc(__ballot_sync(-1, t % 2)); else"
        " y[t] = 1;"
    ),
    "a sum of a block": (
        "int many = __syncthreads_count(t % 2); y[t] = x[t] + many + __syncthreads_or(t"
        " == 3);"
    ),
    "a lock": (
        "if (t % 32 == 0) { while (atomicCAS((int*)y + 1, 0, 1)) {} __threadfence();"
        " *(volatile float*)y += 1; __threadfence(); atomicExch((int*)y + 1, 0); } else"
        " if (t > 1) y[t] = x[t];"
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_in_its_line(name):
    kind, line, body = PLANTED[name]
    findings = [
        (finding.kind, finding.line)
        for finding in traced(body, max_steps=500, shared_bytes=512).findings
    ]
    assert (kind, line) in findings, findings


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_kernel_has_no_mistake(name):
    outcome = traced(CORRECT[name], shared_bytes=512)
    assert [str(finding) for finding in outcome.findings] == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y[t] = *(float*)malloc(4);", "Line 4: malloc can't be run without a GPU. Pass an array for it"),
        ("y[t] = tex1Dfetch<float>(*(cudaTextureObject_t*)x, t);",
         r"Line 4: tex\S* can't be run without a GPU. Read an array"),
        ("extern __shared__ float s[]; s[t] = 1; y[t] = s[t];", "s is dynamic shared memory"),
    ],
)  # fmt: skip
def test_what_is_not_run_is_named(body, words):
    with pytest.raises(KernelError, match=words):
        traced(body)


def test_a_function_that_calls_itself_is_refused_with_the_line():
    calls = (
        "__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n -"
        " 2); }\n"
    )
    with pytest.raises(KernelError, match=r"Line 2: \S+ calls itself"):
        trace(
            calls + "__global__ void k(int* y) { *y = f(*y); }",
            1,
            1,
            np.zeros(1, np.int32),
        )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            (np.ones(64), np.zeros(64, np.float32), 64),
            r"k takes const float\* for 'x', got an array of float64",
        ),
        ((np.ones(64, np.float32), 5, 64), r"k takes float\* for 'y', got a number"),
        (
            (np.ones(64, np.float32), np.zeros(64, np.float32), np.zeros(4)),
            "k takes int for 'n', got an array",
        ),
        (
            (np.ones(64, np.float32), np.zeros(64, np.float32)),
            "takes 3 arguments, got 2",
        ),
    ],
)
def test_arguments_of_other_types_are_refused(args, words):
    with pytest.raises(KernelError, match=words):
        trace(HEAD + "y[t] = x[t];\n}\n", 1, 64, *args)


class RawKernel:
    """As CuPy's."""

    name = "k"
    options = ("-DTWICE=2",)

    def __init__(self, code):
        self.code = code


def test_a_raw_kernel_of_cupy_is_traced():
    kernel = RawKernel(HEAD + "y[t] = TWICE * x[t];\n}\n")
    trace(kernel, 1, 64, np.ones(64, np.float32), y := np.zeros(64, np.float32), 64)
    assert y.tolist() == [2] * 64


@pytest.mark.parametrize(
    ("declared", "value", "reads"),
    [
        ("float", 2.5, "0.0"),
        ("float", np.float32(2.5), None),
        ("float", np.float64(0.1), "-1.58"),
        ("float", 2, "2.8"),
        ("double", 2.5, None),
        ("double", np.float32(2.5), "-6.27"),
        ("double", 2, "1e-323"),
        ("int", 2, None),
        ("int", -2, None),
        ("int", 2**32 + 2, "2"),
        ("int", 2.0, "0"),
        ("int", np.int16(2), "-842"),
        ("unsigned", 2**32 - 1, None),
        ("long long", 2, None),
        ("long long", np.int32(2), "-3617"),
        ("bool", True, None),
    ],
)
def test_numbers_are_handed_on_as_cupy_does_it(declared, value, reads):
    code = f'extern "C" __global__ void k(double* y,\n {declared} a) {{ *y = a; }}'
    y = np.zeros(1)
    findings = trace(RawKernel(code), 1, 1, y, value).findings
    assert [finding.kind for finding in findings] == ["argument"] * (reads is not None)
    if reads is None:
        assert y == value
    else:
        assert f"it reads {reads}" in findings[0].words
    trace(code, 1, 1, y, 1)  # C++ converts
    assert y == 1


SQUARE = np.arange(64, dtype=np.float32).reshape(8, 8)
LONG = np.arange(128, dtype=np.float32)
COPY = "if (t < n) y[t] = x[t];"
VIEWS = {
    "as it lies in memory": (COPY, SQUARE, zeros := np.zeros_like(SQUARE), []),
    "rows": (COPY, LONG[32:96], zeros, []),
    "transposed": (COPY, SQUARE.T, zeros, ["argument"]),
    "transposed, into a line": (COPY, SQUARE.T, np.zeros(64, "f4"), ["argument"]),
    "both transposed": (COPY, SQUARE.T, zeros.T, []),
    "in Fortran's order": (COPY, np.asfortranarray(SQUARE), zeros, []),
    "every second": (COPY, LONG[::2], zeros, ["argument"]),
    "into every second": (COPY, SQUARE, np.zeros(128, "f4")[::2], ["argument"]),
    "backwards": (COPY, LONG[::-1], zeros, ["argument", "outside"]),
    "a column": (COPY, LONG.reshape(64, 2)[:, 0], zeros, ["argument"]),
    "repeated": (
        COPY,
        np.broadcast_to(LONG[:8], (8, 8)),
        zeros,
        ["argument", "outside"],
    ),
    "with its stride": ("y[t] = x[2 * t];", LONG[::2], zeros, []),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_the_kernel_takes_for_an_array_is_found(name):
    body, x, y, kinds = VIEWS[name]
    outcome = trace(RawKernel(HEAD + body + "\n}\n"), 1, 64, x, y, 64)
    assert sorted({finding.kind for finding in outcome.findings}) == kinds, outcome
    in_fortran = name.startswith("in Fortran")
    assert ("layout" in {note.kind for note in outcome.notes}) == in_fortran


class CuPyArray:
    """As CuPy's, but in the memory of the CPU."""

    def __init__(self, host, base=None):
        self.host = host
        self.base = base
        self.shape = host.shape
        self.dtype = host.dtype
        self.strides = host.strides
        self.data = SimpleNamespace(ptr=host.__array_interface__["data"][0])

    def get(self, order="C"):
        """A copy on the host."""
        return self.host.copy(order)

    def set(self, host):
        """Take over what is on the host."""
        self.host[...] = host


def test_views_of_cupy_keep_their_strides():
    x = CuPyArray(SQUARE.copy())
    y = CuPyArray(np.zeros(128, np.float32))
    kernel = RawKernel(HEAD + "y[2 * t] = x[t];\n}\n")
    second = CuPyArray(y.host[1::2], y)
    outcome = trace(kernel, 1, 64, CuPyArray(x.host.T, x), second, 64)
    assert [finding.array for finding in outcome.findings] == ["x"]
    np.testing.assert_array_equal(y.host[1::2], SQUARE.ravel())
    assert not y.host[::2].any()


CONSTANT = "__constant__ float w[2][2];\n__device__ int count;\n" + HEAD


def test_memory_that_the_host_has_to_set():
    x = np.ones(64, np.float32)
    y = np.zeros(64, np.float32)
    code = CONSTANT + "y[t] = x[t] * w[t % 2][1];\n}\n"
    (finding,) = trace(code, 1, 64, x, y, 64).findings
    assert (finding.kind, finding.line, finding.array) == ("unset", 6, "w")
    assert trace(code, 1, 64, x, y, 64, constants={"w": [[1, 2], [3, 4]]}).ok
    assert y.tolist() == [2, 4] * 32
    for body, counts, mistakes in (
        ("y[t] = count;", {}, ["unset"]),
        ("y[t] = count;", {"count": 3}, []),
        ("y[t] = atomicAdd(&count, 1);", {}, []),
    ):
        outcome = trace(CONSTANT + body + "\n}\n", 1, 64, x, y, 64, constants=counts)
        kinds = [finding.kind for finding in outcome.findings]
        assert [kind for kind in kinds if kind != "untouched"] == mistakes
    given = code.replace("w[2][2]", "w[2][2] = {0}")
    assert trace(given, 1, 64, x, y, 64).ok


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        ({"v": np.ones(4, np.float32)}, "no __constant__ or .* The nearest: "),
        ({"w": np.ones(3, np.float32)}, "w has 16 bytes of float, got .* 12 bytes"),
        ({"w": np.ones(2)}, "w has 16 bytes of float, got .* 16 bytes of float64"),
    ],
)
def test_constants_of_other_names_and_types_are_refused(constants, words):
    with pytest.raises(KernelError, match=words):
        trace(
            CONSTANT + "y[t] = w[0][0];\n}\n",
            1,
            64,
            LONG,
            LONG,
            64,
            constants=constants,
        )


SYNC = "cooperative_groups::this_grid().sync();"
OF_GRIDS = {
    "needless": (f"{SYNC} y[t] = x[t];", []),
    "right": (f"y[t] = x[t]; {SYNC} float v = y[n - 1 - t]; {SYNC} y[t] = v;", []),
    "one": (f"y[t] = x[t]; {SYNC} y[t] = y[n - 1 - t];", ["race"]),
    "of_blocks": ("y[t] = x[t]; __syncthreads(); y[t] = y[n - 1 - t];", ["race"]),
    "left": (f"if (blockIdx.x) {{ {SYNC} }} y[t] = x[t];", ["endless"]),
}


@functools.cache
def compiled_grids():
    """The kernels of OF_GRIDS, for whose header NVRTC takes a while."""
    kernels = [
        HEAD.replace("void k(", f"void {name}(").replace(
            "threadIdx.x", "blockIdx.x * blockDim.x + threadIdx.x"
        )
        + f"{body}\n}}\n"
        for name, (body, _) in OF_GRIDS.items()
    ]
    return compile_cuda("#include <cooperative_groups.h>\n" + "".join(kernels))


@pytest.mark.parametrize("name", OF_GRIDS)
def test_blocks_wait_for_each_other_at_the_barrier_of_the_grid(name):
    kinds = OF_GRIDS[name][1]
    x = np.arange(192, dtype=np.float32)
    y = np.zeros(192, np.float32)
    outcome = trace(compiled_grids(), 3, 64, x, y, 192, max_steps=200, name=name)
    assert [finding.kind for finding in outcome.findings if finding.line] == kinds
    if name == "right":
        assert y.tolist() == list(range(191, -1, -1))


def test_what_a_kernel_prints_is_a_note():
    outcome = traced(
        'if (t < 2) printf("%d of %5.2f|%s|%-4x|%llu%%\\n", t, x[t] / 3, "text", 255,'
        " 1ull << 40);"
    )
    assert [finding.kind for finding in outcome.findings] == ["untouched"]
    assert [note.line for note in outcome.notes if note.kind == "printed"] == [4]
    assert "thread 0 prints: 0 of  0.33|text|ff  |1099511627776%" in str(outcome)


def test_a_kernel_is_chosen_by_its_name():
    two = (
        'extern "C" __global__ void one(int* y) { *y = 1; }\n__global__ void two(int*'
        " y) { *y = 2; }\n"
    )
    with pytest.raises(KernelError, match=r"got ''. There is (one, two|two, one)"):
        trace(two, 1, 1, np.zeros(1, np.int32))
    trace(two, 1, 1, y := np.zeros(1, np.int32), name="two")
    assert y[0] == 2
    with pytest.raises(KernelError, match=r"two\(y\) takes 1 argument, got 2"):
        trace(two, 1, 1, y, y, name="two")


def test_a_file_and_options(tmp_path, capsys):
    (tmp_path / "fill.cu").write_text(
        'extern "C" __global__ void fill(float* y) { y[threadIdx.x] = VALUE; }'
    )
    for kernel in (tmp_path / "fill.cu", str(tmp_path / "fill.cu")):
        trace(kernel, 1, 8, y := np.zeros(8, np.float32), options=["-DVALUE=3"])
        assert y.tolist() == [3] * 8
    launch = ["--grid=1", "--block=8", "--arg=float32:8", "--arg=zeros:float32:8"]
    (tmp_path / "copy.cu").write_text(
        "__global__ void copy(float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }"
    )
    assert main([f"{tmp_path / 'copy.cu'}::copy", *launch]) == 0
    assert "copy: 1 block of 8 threads" in capsys.readouterr().out
    with pytest.raises(ValueError, match="can't be read"):
        trace("none.cu", 1, 8, y)


@pytest.mark.parametrize(
    "body", ["y[t] = 0.5f * x[t];", "double v = x[t]; y[t] = 0.5 * v;"]
)
def test_a_review_is_silent_about_float32_and_about_doubles_that_are_meant(body):
    assert traced(body).review("T4").of("float64") == ()


@pytest.mark.parametrize(
    ("body", "is_one_change"), [("y[0] += x[t];", True), ("y[t] = y[t + 1];", False)]
)
def test_only_a_race_of_changes_names_the_atomic(body, is_one_change):
    findings = traced(body, n=65).findings
    (race,) = (finding for finding in findings if finding.kind == "race")
    assert race.words.endswith("in one step.") == is_one_change


def test_a_barrier_that_the_compiler_copied_says_who_waits_where():
    source = (
        "__device__ void wait(float* y, int t) { y[t] += t; __syncthreads(); }\n"
        "__global__ void k(float* y) {\n"
        "  if (threadIdx.x < 32) wait(y, threadIdx.x); else wait(y, threadIdx.x);\n}\n"
    )
    (finding,) = trace(source, 1, 64, np.zeros(64, np.float32)).findings
    assert finding.kind == "barrier"
    words = "thread 0 and 31 others wait here, 32 threads wait in another call of it"
    assert finding.words.startswith(words)


def test_outside_of_local_arrays_counts_their_bytes():
    body = "float a[4];\nfor (int j = 0; j < 4; ++j) a[j] = x[t];\ny[t] = a[t % 8];"
    (finding,) = traced(body).findings
    assert finding.words == (
        "thread 4 reads byte 16 of its local arrays, which have 16 bytes."
    )
    assert (finding.line, finding.count) == (6, 32)
