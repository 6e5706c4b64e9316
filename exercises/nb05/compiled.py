"""Checks of notebook 05 that read what the compiler made of a kernel: its doubles,
registers and spills.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import numpy as np

from exercises.nb05.cupy_stand_in import cupy_here
from kerneltrace import Compiled, KernelResources, compile_cuda, occupancy, trace
from kerneltrace.errors import CompileError, KernelError, MissingCompiler
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo, close, over_cases

CAPABILITY = (8, 0)

# what the notebook begins with
_GIVEN = "0.5 * v * (1.0 + tanh(0.7978845608 * (v + 0.044715 * v * v * v)))"
# what float32 leaves of these few steps; tanh.approx, of three digits, is off by more
_RTOL = 2e-5
_ATOL = 1e-6
_DRAWN = 40  # sets of builds
_N = 37  # not a multiple of the block's 16 threads
_UNWRITTEN = 0x7F80BEEF  # a signaling NaN, which no computation gives


def single_precision(answer: object) -> str:
    """The kernel's PTX: no double, no half, and still the same formula; on a GPU its
    results too.
    """
    built = _built(answer)
    if set(built.kernels) != {"gelu"}:
        raise NotYet(
            "Expected one kernel called gelu, got"
            f" {', '.join(built.kernels) or 'none'}."
        )
    if doubles := _total(built, "*.f64*"):
        names = ", ".join(itertools.islice(built.instructions("*.f64*"), 3))
        raise (Todo if _GIVEN in str(answer) else NotYet)(
            f"{doubles} instructions still work in double precision ({names}, ...). A"
            " number such as 0.5 is a double, and so is everything that is computed"
            " with it; 0.5f is a float."
        )
    if _total(built, "*.f16*") + _total(built, "*.bf16*"):
        raise NotYet(
            "No doubles, but now some of it has 16 bits: gelu is to be computed in"
            " float, 32 bits."
        )
    if ".entry gelu(" not in built.ptx:
        raise NotYet('gelu\'s name was mangled: keep extern "C" before __global__.')
    _judge_gelu(str(answer), built)
    _run_gelu(answer)
    return (
        f"No double left: {sum(built.instructions().values())} instructions,"
        f" {built.registers} registers a thread."
    )


def _built(answer: object) -> Compiled:
    if not isinstance(answer, str) or "__global__" not in answer:
        raise NotYet(f"Expected the CUDA C++ source as text, got {brief_repr(answer)}.")
    try:
        return compile_cuda(answer, compute_capability=CAPABILITY)
    except (CompileError, MissingCompiler) as error:
        raise NotYet(str(error)) from error


def _total(built: Compiled, pattern: str) -> int:
    return sum(built.instructions(pattern).values())


def _advice(source: str) -> str:
    """What is known to go wrong in such a source; "" for all else."""
    code = re.sub(r"//.*", "", source)
    if re.search(r"(?<![\w.])\d+\s*/\s*\d+(?![\w.])", code):
        return " In C++ 1 / 2 is 0; write 0.5f."
    return (
        " With erf it is another gelu: this one is the formula with tanh."
        if "erf" in code
        else ""
    )


def _judge_gelu(answer: str, built: Compiled) -> None:
    """What 48 threads make of 37 numbers."""
    x = (3 * np.random.default_rng(5).standard_normal(_N)).astype(np.float32)
    x[:3] = 0, 12, -12  # where tanh is 0, 1 and -1
    y = np.full(_N, _UNWRITTEN, np.uint32).view(np.float32)
    expected = _gelu(x)
    before = x.copy()
    preface = f"No doubles, but with n = {_N} and three blocks of 16 threads"
    try:
        launch_trace = trace(built, 3, 16, x, y, _N, name="gelu", max_steps=1000)
    except KernelError as wrong:
        raise NotYet(f"{wrong} Arithmetic and tanhf are enough.") from wrong
    for finding in launch_trace.findings:
        if finding.kind == "outside" and (
            place := re.search(r"(\S+\[\S+\]), but", finding.words)
        ):
            raise NotYet(
                f"{preface} a thread goes to {place[1]}, which is not there: keep"
                " `if (i < n)`."
            )
        if finding.kind == "endless":
            raise NotYet(f"{preface} a loop does not end.")
    if not np.array_equal(x, before):
        raise NotYet(
            "No doubles, but it writes to x: keep the parameters in the order x, y, n."
        )
    for i in range(_N):
        if y.view(np.uint32)[i] == _UNWRITTEN:
            raise NotYet(
                f"{preface} nothing is written to y[{i}]: keep i as it was, of"
                " blockIdx, blockDim, threadIdx."
            )
        if not np.isclose(y[i], expected[i], rtol=_RTOL, atol=_ATOL):
            values = (
                f"for x[{i}] = {x[i]:.8g} y[{i}] is {y[i]:.8g}, and gelu is"
                f" {expected[i]:.8g}"
            )
            raise NotYet(
                f"{preface}: {values}. Compare with the formula above.{_advice(answer)}"
            )


def _gelu(x: Any) -> Any:
    wide = x.astype(np.float64)
    return 0.5 * wide * (1 + np.tanh(0.7978845608 * (wide + 0.044715 * wide**3)))


def _run_gelu(source: Any) -> None:
    if (cupy := cupy_here()) is None:
        return
    x = np.random.default_rng(505).standard_normal(1023).astype(np.float32)
    inputs = cupy.asarray(x)
    outputs = cupy.full(1024, np.nan, dtype=np.float32)
    cupy.RawKernel(source, "gelu")((4,), (256,), (inputs, outputs, np.int32(1023)))
    if not np.allclose(
        outputs.get()[:1023], _gelu(x), rtol=_RTOL, atol=_ATOL
    ) or not np.isnan(float(outputs[1023])):
        raise NotYet("No doubles, but on the GPU its results are not those of gelu.")


def best_cap(answer: object) -> str:
    """The choice out of builds with known registers and spills."""
    over_cases(
        answer, _sets_of_builds(), _best, close("registers", rel=0.0, hint=_cap_hint)
    )
    return (
        "Right for spills, for shared memory, for several block sizes and where two"
        " caps are equally good."
    )


def _resources(
    registers: int, shared: int = 0, *, stored: int = 0, loaded: int = 0, stack: int = 0
) -> KernelResources:
    return KernelResources(registers, stored, loaded, stack, shared, 0, 1024)


def _sets_of_builds() -> dict[str, tuple[dict[int, KernelResources], int]]:
    """What is special -> builds by cap, and threads a block."""
    spilt = {
        64: _resources(64, stored=284, loaded=284, stack=568),
        32: _resources(32, stored=700, loaded=700),
    }
    sets = {
        "the kernel above, 256 threads": (
            {128: _resources(96), 96: _resources(96), 80: _resources(80)} | spilt,
            256,
        ),
        "caps above what was needed": (
            {cap: _resources(n) for cap, n in ((128, 40), (96, 44), (64, 64))},
            256,
        ),
        # a warp gets registers in units of 256, 8 a thread: 51 take the room of 56
        "48 and 51 registers, 256 threads": (
            {48: _resources(48), 56: _resources(51)},
            256,
        ),
        # 0.6 both, if rounded
        "36 and 40 of 64 warps": ({cap: _resources(cap) for cap in (48, 56)}, 64),
        # 0.3 both, if cut off
        "20 and 24 of 64 warps": ({cap: _resources(cap) for cap in (80, 96)}, 64),
        "blocks of 32 threads, 32 of which fit": (
            {cap: _resources(cap) for cap in (32, 40, 64)},
            32,
        ),
    }
    draw = random.Random(506)
    for _ in range(_DRAWN):
        block = draw.choice([64, 96, 128, 200, 256, 384, 512])
        shared = draw.choice([0, 0, 1000, 9000, 20000, 33000])
        used = {
            cap: cap - draw.randint(0, 9) for cap in draw.sample(range(24, 128, 4), 6)
        }
        builds = {
            cap: _resources(n, shared, stack=draw.choice([0, 16]))
            for cap, n in used.items()
        }
        for cap in sorted(used)[:3]:  # spills in one direction; a stack alone is none
            builds[cap] = _resources(
                used[cap], shared, **{draw.choice(["stored", "loaded", "stack"]): 16}
            )
        sets[
            f"{block} threads, {shared:,} B of shared memory, registers by cap {used}"
        ] = (builds, block)
    return sets


def _fraction(resources: KernelResources, block: int) -> float:
    return occupancy(
        block,
        registers=resources.registers,
        shared_bytes=resources.shared_bytes,
        compute_capability=CAPABILITY,
    ).fraction


def _best(builds: dict[int, KernelResources], block: int) -> int:
    whole = {
        cap: resources
        for cap, resources in builds.items()
        if resources.spill_store_bytes + resources.spill_load_bytes == 0
    }
    return max(whole, key=lambda cap: (_fraction(whole[cap], block), cap))


def _cap_hint(cap: float, builds: dict[int, KernelResources], block: int) -> str:
    if cap not in builds:
        return f"It is none of the caps {sorted(builds)}."
    expected = _best(builds, block)
    mine = builds[int(cap)]
    best = builds[expected]
    if spills := mine.spill_store_bytes + mine.spill_load_bytes:
        return (
            f"With {cap:g} a thread stores and loads {spills} B of registers' values:"
            " it spills."
        )
    filled = _fraction(mine, block)
    possible = _fraction(best, block)
    return (
        f"With {cap:g} an SM is filled to {filled:.0%}, with {expected} to"
        f" {possible:.0%}, by registers and shared memory. Of equally good caps take"
        " the largest, which leaves the compiler the most room."
    )
