"""Mistakes planted in CUDA C++ are found in its own lines, and correct kernels have
none.
"""

import numpy as np
import pytest

from kerneltrace import trace
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
}
CORRECT = {
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
        (finding.kind, finding.line) for finding in traced(body, max_steps=500).findings
    ]
    assert (kind, line) in findings, findings


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_kernel_has_no_mistake(name):
    assert [str(finding) for finding in traced(CORRECT[name]).findings] == []


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


def test_a_raw_kernel_of_cupy_is_traced():
    class RawKernel:
        code = HEAD + "y[t] = TWICE * x[t];\n}\n"
        name = "k"
        options = ("-DTWICE=2",)

    trace(
        RawKernel(), 1, 64, np.ones(64, np.float32), y := np.zeros(64, np.float32), 64
    )
    assert y.tolist() == [2] * 64


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
