"""Compiling without a GPU. The compilers come with the extras cpu, cuda12 and cuda13:
only macOS has none.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda, float32, int32

from kerneltrace import compile_cuda, compile_numba, trace
from kerneltrace.compiler import compiled, toolchain
from kerneltrace.errors import CompileError, MissingCompiler
from test_kerneltrace.places import ROOT
from test_kerneltrace.textbook import ENTRIES
from test_kerneltrace.tracing import not_on_macos

CAPABILITIES = ((7, 5), (10, 0))  # the oldest and the newest generation
PTXAS = shutil.which("ptxas") or next(
    map(str, Path("/usr/local").glob("cuda*/bin/ptxas")), None
)

pytestmark = [pytest.mark.slow, not_on_macos]  # compiles kernels

SOURCE = """
__constant__ float table[8];
extern "C" __global__ void __launch_bounds__(256) smooth(float* a, int n) {
    __shared__ float tile[64];
    float kept[400];
    for (int i = 0; i < 400; i++) kept[i] = a[(i * 7) % n] * table[i % 8];
    tile[threadIdx.x % 64] = a[threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < n; i++) sum += kept[(int)a[i] % 400] / tile[(i * 3) % 64];
    a[threadIdx.x] = sum;
}
template <class T> __global__ void add_one(T* a) { a[threadIdx.x] += 1; }
template __global__ void add_one<double>(double*);
"""
# Each thread holds 64 values at the barrier, so a cap of 32 registers makes it spill.
HUNGRY = """
extern "C" __global__ void hungry(float* a) {
    float x[64];
    #pragma unroll
    for (int i = 0; i < 64; i++) x[i] = a[i * 64 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 64; i++) a[i * 64 + threadIdx.x] = x[i] * x[63 - i];
}
"""


@cuda.jit(device=True)
def twice(x):
    return float32(2) * x


def scaled(factor):
    """A kernel that closes over a constant, calls a device function and uses shared
    memory.
    """

    @cuda.jit
    def scale(a, n):
        tile = cuda.shared.array(64, float32)
        i = cuda.grid(1)
        if i < n:
            tile[i % 64] = a[i]
            a[i] = float32(factor) * twice(tile[(i + 1) % 64]) / a[i]

    return scale


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_cuda_compiles_for_each_generation(capability):
    made = compile_cuda(SOURCE, compute_capability=capability)
    assert made.compute_capability == capability
    assert f".target sm_{capability[0]}{capability[1]}" in made.ptx
    assert set(made.kernels) == {"smooth", "add_one"}
    smooth = made.kernels["smooth"]
    assert (smooth.shared_bytes, smooth.constant_bytes, smooth.max_threads) == (
        256,
        32,
        256,
    )
    assert smooth.stack_bytes == 1600  # its 400 floats
    assert 16 <= smooth.registers <= 255
    assert made.kernels["add_one"].max_threads == 1024


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_numba_compiles_for_each_generation(capability):
    made = compile_numba(
        scaled(3.0), (float32[::1], int32), compute_capability=capability
    )
    assert made.compute_capability == capability
    assert made.kernels["scale"].shared_bytes == 256
    assert 8 <= made.registers <= 255
    assert compile_numba(
        scaled(3.0),
        (np.zeros(4, np.float32), np.int32(4)),
        compute_capability=capability,
    ).registers


# numba links the operators of float16 only when it launches a kernel, from CUDA's
# headers
LINKED = [entry for entry in ENTRIES if entry.name != "a sum of float16"]


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
@pytest.mark.parametrize("entry", LINKED[::6], ids=lambda entry: entry.name)
def test_the_textbook_compiles_for_each_generation(entry, capability):
    args = entry.args(lambda array: array)
    assert compile_numba(entry.kernel, args, compute_capability=capability).registers


def test_a_register_cap_spills_and_fast_maths_changes_the_instructions():
    free = compile_cuda(HUNGRY, compute_capability=(8, 0)).only
    capped = compile_cuda(
        HUNGRY, compute_capability=(8, 0), options=["--maxrregcount=32"]
    ).only
    assert free.spill_store_bytes == free.spill_load_bytes == 0
    assert capped.registers <= 32 < free.registers
    assert capped.spill_store_bytes > 0
    assert capped.spill_load_bytes > 0
    exact = compile_cuda(SOURCE).instructions("div.*")
    assert exact == {"div.rn.f32": sum(exact.values())}
    assert set(
        compile_cuda(SOURCE, options=["--use_fast_math"]).instructions("div.*")
    ) == {"div.approx.ftz.f32"}


def test_instructions_are_counted_by_opcode():
    ptx = """.visible .entry k(.param .u64 k_param_0)
    {   .reg .pred %p<2>; // add.f32 in a comment
        .loc 1 5 3
        ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
    $L__BB0_1:
        fma.rn.f32 %f5, %f1, %f2, %f3; /* mul.f32 */ fma.rn.f32 %f6, %f1, %f2, %f5;
        @%p1 bra $L__BB0_1;
        ret;
    }"""
    made = compiled.Compiled(ptx, (8, 0), {})
    assert made.instructions() == {
        "fma.rn.f32": 2,
        "bra": 1,
        "ld.global.v4.f32": 1,
        "ret": 1,
    }
    assert made.instructions("ld.*") == {"ld.global.v4.f32": 1}


@pytest.mark.skipif(PTXAS is None, reason="needs ptxas of a CUDA toolkit")
@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
@pytest.mark.parametrize("language", ["CUDA C++", "numba"])
def test_the_resources_are_those_that_ptxas_reports(language, capability, tmp_path):
    if language == "numba":
        made = compile_numba(
            scaled(3.0), (float32[::1], int32), compute_capability=capability
        )
    else:
        made = compile_cuda(SOURCE, compute_capability=capability)
    said = subprocess.run(
        [PTXAS, "--version"], capture_output=True, text=True, check=True
    ).stdout
    release = re.search(r"release \d+\.\d+", said)[0]
    if release not in made.ptx:
        pytest.skip(
            f"ptxas is of {release}, the compiler of another, so registers may differ"
        )
    (tmp_path / "kernel.ptx").write_text(made.ptx)
    architecture = "sm_{}{}".format(*capability)
    command = [
        PTXAS,
        "-v",
        f"-arch={architecture}",
        tmp_path / "kernel.ptx",
        "-o",
        tmp_path / "kernel.cubin",
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    each = re.findall(
        r"(\d+) bytes spill stores.*?Used (\d+) registers([^\n]*)",
        completed.stderr,
        re.DOTALL,
    )
    smem = [re.search(r"(\d+) bytes smem", rest) for _, _, rest in each]
    theirs = [
        (int(used), int(spilt), int(m[1]) if m else 0)
        for (spilt, used, _), m in zip(each, smem, strict=True)
    ]
    ours = [
        (item.registers, item.spill_store_bytes, item.shared_bytes)
        for item in made.kernels.values()
    ]
    assert sorted(ours) == sorted(theirs)


def test_without_a_gpu_the_default_says_so(monkeypatch):
    monkeypatch.setattr(toolchain, "gpu_capability", lambda: None)
    made = compile_cuda(SOURCE)
    assert made.compute_capability == (8, 0)
    assert "no GPU here" in str(made)
    monkeypatch.setattr(toolchain, "gpu_capability", lambda: (9, 0))
    assert "this machine's GPU" in str(compile_cuda(SOURCE))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"source": "__global__ void k(float* a) {\n  a[0] = nothing;\n}"},
            r"line 2, `a\[0\] = nothing;`: identifier",
        ),
        (
            {"compute_capability": (6, 9)},
            r"doesn't compile for sm_69. It knows .*sm_80",
        ),
        ({"source": '#include "missing.h"\n'}, "missing.h"),
    ],
)
def test_a_rejected_source_is_explained(arguments, words):
    with pytest.raises(CompileError, match=words):
        compile_cuda(**{"source": SOURCE} | arguments)


K = "__global__ void k(float* a) {{ a[threadIdx.x] = {}; }}\n"
WITH_HOST = {
    "macros and types": (
        "constexpr float I = INFINITY;\n"
        "__global__ void k(float* a) { uint8_t b = UINT8_MAX; assert(b); a[0] ="
        ' I == INFINITY && isnan(NAN) && M_PI > 3 ? 7 : 0; printf("%d", INT_MAX); }',
        "",
    ),
    "headers of the host": (
        "#include <cmath>\n#include <vector>\n#include <stdint.h>\n"
        "#include <cuda_runtime.h>\nusing namespace std;\n" + K.format("max(7, 3)"),
        "",
    ),
    "functions, before and after": (
        "void run(float*);\nstatic int count = 0;\n"
        + K.format("7")
        + "void run(float* a) { k<<<1, 32>>>(a); }\n"
        'extern "C" {\nint g() { return count; }\n}\n'
        "namespace n { template <class T> T f(T x) { return x; } }\n"
        "int main() { float* d; cudaMalloc(&d, 4); run(d); return n::f(0); }",
        "run (line 1), count (line 2), run (line 4), g (line 6), f (line 8), main",
    ),
    "a missing library": (
        "#include <cusparse.h>\n" + K.format("7") + "cusparseHandle_t handle;",
        "#include of cusparse.h, handle (line 3)",
    ),
    "classes": (
        "#include <string>\nstruct Log { std::string text; void add(); };\n"
        "void Log::add() {}\n"
        "struct P { int x; P() : x(1) {} __device__ P(int y) : x(y) {}\n"
        "  static constexpr int size() { return 7; } std::string name() const; };\n"
        + K.format("P(P::size()).x"),
        "Log (line 2), add (line 3), P (line 4), name (line 5)",
    ),
    "a specialization stays": (
        "#include <string>\ntemplate <class T> struct N { enum { n = 1 }; };\n"
        "template <> struct N<float> { enum { n = 7 }; std::string s(); };\n"
        + K.format("N<float>::n"),
        "s (line 3)",
    ),
    "braces in texts, comments and branches": (
        "const char* t = R\"(})\"; /* { */ const char c = '{'; // }\n"
        "int big = 1'000;\n#ifdef OLD\nint f(int x) {\n#else\nint f(long x) {\n"
        "#endif\n  return x; }\n" + K.format("7") + "int main() { return f(1); }",
        "main (line 10)",
    ),
    "a macro for both sides": (
        "#define BOTH __host__ __device__\nBOTH int f() { return 7; }\n"
        + K.format("f()")
        + "int main() { return f(); }",
        "main (line 4)",
    ),
    "a launched template": (
        "template <int N> __global__ void k(float* a) { a[threadIdx.x] = N; }\n"
        "int main() { k<7><<<1, 32>>>(nullptr); }",
        "main (line 2)",
    ),
}


@pytest.mark.parametrize("name", WITH_HOST)
def test_what_nvcc_takes_is_taken_and_what_was_left_out_is_said(name):
    source, left_out = WITH_HOST[name]
    made = compile_cuda(source)
    assert left_out in "".join(made.left_out)
    assert bool(left_out) == bool(made.left_out)
    a = np.zeros(32, np.float32)
    traced = trace(made, 1, 32, a)
    assert a[0] == 7
    assert [note.words for note in traced.notes if note.kind == "left out"] == list(
        made.left_out
    )


@pytest.mark.complete
def test_namespace_std_is_that_of_a_gpu():
    made = compile_cuda(
        "#include <limits>\n#include <type_traits>\n#include <iostream>\n"
        "template <class T> struct Most { static constexpr T value ="
        " std::numeric_limits<T>::max(); };\n"
        + K.format("std::is_same<int, int>::value + (Most<int>::value > 0) * 6")
        + "int main() { std::cout << 1; }"
    )
    a = np.zeros(32, np.float32)
    trace(made, 1, 32, a)
    assert a[0] == 7
    assert made.left_out == ("Host code was not compiled: main (line 6).",)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("int f(int x) { return x; }\n" + K.format("f(1)"), "line 2.*deleted function"),
        (
            "int f(int x) { return x; }\n__device__ float f(float x) { return 2; }\n"
            + K.format("f(1)"),
            "line 3.*deleted function",
        ),
        ("struct S { int x; S() : x(1) {} };\n" + K.format("S().x"), "line 2.*deleted"),
        (
            "struct S { std::string s; float x; };\n"
            "__global__ void k(S* a) { a[0].x = 1; }",
            r"line 2.*Host code was not compiled: S \(line 1\)",
        ),
        (K.format("lost") + "int main() {}", r"line 1.*lost.*main \(line 2\)"),
        ('#include "lost.h"\n' + K.format("1"), "lost.h.*looked for beside the file"),
    ],
)
def test_no_kernel_uses_what_is_left_out(source, words):
    with pytest.raises(CompileError, match=words):
        compile_cuda(source)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"options": "--use_fast_math"}, "options to be a list"),
        ({"compute_capability": 8.0}, r"compute_capability to be"),
    ],
)
def test_a_clumsy_call_is_explained(arguments, words):
    with pytest.raises(TypeError, match=words):
        compile_cuda(**{"source": SOURCE} | arguments)


@cuda.jit
def broken(a):
    a[0] = undefined_name  # noqa: F821


@pytest.mark.parametrize(
    ("kernel", "signature", "words"),
    [
        (
            broken,
            (float32[::1],),
            (
                r"numba rejected broken \(line \d+ of"
                r" test_compiler.py\).*\n.*'undefined_name'"
            ),
        ),
        (twice, (float32,), "the device function twice"),
        (broken, "float32", "as a tuple of numba types"),
        (broken, (object(),), "numba has no type for it"),
        (7, (), "a @cuda.jit kernel or a Python function, got 7"),
    ],
)
def test_a_numba_kernel_that_cannot_be_compiled_is_explained(kernel, signature, words):
    with pytest.raises((CompileError, TypeError, ValueError), match=words):
        compile_numba(kernel, signature)


def test_two_kernels_have_no_single_register_count():
    with pytest.raises(
        ValueError, match=r"Expected one kernel, got 2: .*result.kernels"
    ):
        _ = compile_cuda(SOURCE).registers


def test_a_missing_compiler_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(
        MissingCompiler,
        match=r"NVRTC.* is missing.*pip install 'numba-cuda\[cu1[23]\]'",
    ):
        compile_cuda(SOURCE)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", None)
    with pytest.raises(MissingCompiler, match=r"nvJitLink.*pip install"):
        compile_numba(scaled(3.0), (float32[::1], int32))
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(MissingCompiler, match="none for macOS"):
        compile_cuda(SOURCE)


class OldLinker:
    """What is used of cuda.bindings.nvjitlink 13.0, given code of NVVM 13.5."""

    nvJitLinkError = ValueError  # noqa: N815 - as there
    InputType = SimpleNamespace(LTOIR=1)
    log = b"ERROR 4 in nvvmAddNVVMContainerToProgram, may need newer version of nvJitLink library\0"

    def create(self, number, options):
        return 1

    def add_data(self, *args):
        raise ValueError("ERROR_OUTDATED_LIBRARY (14)")

    def get_error_log_size(self, handle):
        return len(self.log)

    def get_error_log(self, handle, text):
        text[:] = self.log

    def destroy(self, handle):
        pass


def test_a_linker_older_than_the_compiler_is_told(monkeypatch):
    monkeypatch.setattr(toolchain, "bindings", lambda *names: OldLinker())
    with pytest.raises(CompileError, match=r"install an nvidia-nvvm of the same CUDA"):
        toolchain.link(b"", "sm_86", None)


SIMULATED = """
from test_kerneltrace.test_compiler import scaled, float32, int32
from kerneltrace import compile_numba
from kerneltrace.errors import CompileError
try:
    compile_numba(scaled(3.0), (float32[::1], int32))
except CompileError as error:
    print(error)
"""


def test_the_simulator_has_no_compiler_and_says_how_to_get_one():
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-c", SIMULATED]
    completed = subprocess.run(
        command, cwd=ROOT / "tests", env=environment, capture_output=True, text=True
    )
    assert "Restart with NUMBA_ENABLE_CUDASIM=0" in completed.stdout, completed.stderr
