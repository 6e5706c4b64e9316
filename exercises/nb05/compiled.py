"""Checks of notebook 05 that read what the compiler made of a kernel: its doubles, registers and spills."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from exercises.nb05.cupy_stand_in import cupy_here
from exercises.nb05.ptx import GeluLaunch, WrongArrayError
from labkit.core.display import brief_repr
from labkit.core.errors import CompileError, MissingExtra
from labkit.gpu.compiler import Compiled, KernelResources, compile_cuda
from labkit.gpu.occupancy import occupancy
from labkit.lesson.checks import NotYet, close, over_cases

CAPABILITY = (8, 0)

_HALF, _SLOPE, _CUBIC = "0f3F000000", "0f3F4C422A", "0f3D372713"  # 0.5, 0.7978845608 and 0.044715 in float32
_N = 37  # not a multiple of the block's 16 threads


def single_precision(answer: object) -> str:
    """The kernel's PTX: no double, no half, and still the same formula; on a GPU its results too."""
    built = _built(answer)
    if set(built.kernels) != {"gelu"}:
        raise NotYet(f"Expected one kernel called gelu, got {', '.join(built.kernels) or 'none'}.")
    if doubles := _total(built, "*.f64*"):
        names = ", ".join(itertools.islice(built.instructions("*.f64*"), 3))
        raise NotYet(
            f"{doubles} instructions still work in double precision ({names}, ...). A number such as 0.5 is a double, "
            "and so is everything that is computed with it; 0.5f is a float."
        )
    if _total(built, "*.f16*") + _total(built, "*.bf16*"):
        raise NotYet("No doubles, but now some of it has 16 bits: gelu is to be computed in float, 32 bits.")
    if ".entry gelu(" not in built.ptx:
        raise NotYet('gelu\'s name was mangled: keep extern "C" before __global__.')
    _judge_gelu(built)
    _run_gelu(answer)
    return f"No double left: {sum(built.instructions().values())} instructions, {built.registers} registers a thread."


def _built(answer: object) -> Compiled:
    if not isinstance(answer, str) or "__global__" not in answer:
        raise NotYet(f"Expected the CUDA C++ source as text, got {brief_repr(answer)}.")
    try:
        return compile_cuda(answer, compute_capability=CAPABILITY)
    except (CompileError, MissingExtra) as error:
        raise NotYet(str(error)) from error


def _total(built: Compiled, pattern: str) -> int:
    return sum(built.instructions(pattern).values())


def _judge_gelu(built: Compiled) -> None:
    """Its PTX run by 48 threads on 37 numbers; with unknown instructions, only whether the formula is still there."""
    x = (3 * np.random.default_rng(5).standard_normal(_N)).astype(np.float32)
    try:
        done = GeluLaunch(built.ptx, x, _N, blocks=3, threads=16)
    except NotImplementedError:
        if lost := _lost(built):
            raise NotYet(f"No doubles, but it computes something else. {lost}") from None
        return
    except WrongArrayError:
        raise NotYet("No doubles, but it writes to x: keep the parameters in the order x, y, n.") from None
    given = f"No doubles, but with n = {_N} and three blocks of 16 threads"
    for name, indices in (("y", done.written), ("x", done.read)):
        if outside := [i for i in indices if not 0 <= i < _N]:
            raise NotYet(f"{given} a thread goes to {name}[{outside[0]}], which is not there: keep `if (i < n)`.")
    expected = _gelu(x)
    for i in range(_N):
        if i not in done.written:
            raise NotYet(f"{given} nothing is written to y[{i}]: keep i as it was, of blockIdx, blockDim, threadIdx.")
        if not np.isclose(done.written[i], expected[i], rtol=1e-4, atol=1e-5):
            values = f"for x[{i}] = {x[i]:.4g} y[{i}] is {done.written[i]:.4g}, and gelu is {expected[i]:.4g}"
            raise NotYet(f"{given}: {values}. {_lost(built) or 'Compare your formula with the one above.'}")


def _lost(built: Compiled) -> str:
    """What of the formula is missing in the compiled code, in words; empty if nothing is."""
    for constant, words in ((_HALF, "0.5"), (_SLOPE, "0.7978845608"), (_CUBIC, "0.044715")):
        if constant.lower() not in built.ptx.lower():
            hint = " In C++ 1 / 2 is 0; write 0.5f." if constant == _HALF else ""
            return f"The number {words} is no longer in the compiled code.{hint}"
    if not (_total(built, "ex2.*") + _total(built, "tanh.*")) or _total(built, "ld.global*") != 1:
        return "The compiled code no longer reads one number and takes its tanh."
    return ""


def _gelu(x: Any) -> Any:
    wide = x.astype(np.float64)
    return 0.5 * wide * (1 + np.tanh(0.7978845608 * (wide + 0.044715 * wide**3)))


def _run_gelu(source: Any) -> None:
    if (cupy := cupy_here()) is None:
        return
    x = np.random.default_rng(505).standard_normal(1023).astype(np.float32)
    given, found = cupy.asarray(x), cupy.full(1024, np.nan, dtype=np.float32)
    cupy.RawKernel(source, "gelu")((4,), (256,), (given, found, np.int32(1023)))
    if not np.allclose(found.get()[:1023], _gelu(x), rtol=1e-4, atol=1e-5) or not np.isnan(float(found[1023])):
        raise NotYet("No doubles, but on the GPU its results are not those of gelu.")


def best_cap(answer: object) -> str:
    """The choice out of builds with known registers and spills."""
    over_cases(answer, _sets_of_builds(), _best, close("registers", rel=0.0, hint=_cap_hint))
    return "Right for spills, for shared memory, for several block sizes and where two caps are equally good."


def _resources(registers: int, spill: int = 0, shared: int = 0) -> KernelResources:
    return KernelResources(registers, spill, spill, 2 * spill, shared, 0, 1024)


def _sets_of_builds() -> dict[str, tuple[dict[int, KernelResources], int]]:
    """What is special -> builds by cap, and threads a block."""
    kernel = {128: (96, 0), 96: (96, 0), 80: (80, 0), 64: (64, 284), 32: (32, 700)}
    # one build only loads spills, one only stores them, and one has a local array that is no spill
    half_spilt = {
        40: KernelResources(40, 0, 16, 16, 0, 0, 1024),
        48: KernelResources(48, 16, 0, 16, 0, 0, 1024),
        64: KernelResources(64, 0, 0, 64, 0, 0, 1024),
        80: KernelResources(80, 0, 0, 0, 0, 0, 1024),
    }
    return {
        "the kernel above, 256 threads": ({cap: _resources(*one) for cap, one in kernel.items()}, 256),
        "caps in rising order": ({cap: _resources(*one) for cap, one in sorted(kernel.items())}, 256),
        "a kernel that never spills, 128 threads": ({cap: _resources(cap) for cap in (40, 48, 56, 64, 128)}, 128),
        "24 KiB of shared memory a block": ({cap: _resources(cap, shared=24576) for cap in (32, 40, 48, 64, 96)}, 256),
        "caps in falling order, 512 threads": ({cap: _resources(cap) for cap in (100, 64, 56, 48)}, 512),
        "caps above what was needed": ({cap: _resources(n) for cap, n in ((128, 40), (96, 44), (64, 64))}, 256),
        "a kernel of 44 registers under any cap": ({cap: _resources(44) for cap in (64, 96, 128)}, 256),
        "builds that spill in one direction only": (half_spilt, 256),
    }


def _fraction(one: KernelResources, block: int) -> float:
    return occupancy(
        block, registers=one.registers, shared_bytes=one.shared_bytes, compute_capability=CAPABILITY
    ).fraction


def _best(builds: dict[int, KernelResources], block: int) -> int:
    whole = {cap: one for cap, one in builds.items() if one.spill_store_bytes + one.spill_load_bytes == 0}
    return max(whole, key=lambda cap: (_fraction(whole[cap], block), cap))


def _cap_hint(found: float, builds: dict[int, KernelResources], block: int) -> str:
    if found not in builds:
        return f"It is none of the caps {sorted(builds)}."
    expected = _best(builds, block)
    mine, best = builds[int(found)], builds[expected]
    if mine.spill_store_bytes + mine.spill_load_bytes:
        return (
            f"With {found:g} a thread spills: it stores {mine.spill_store_bytes} B of registers' values and loads "
            f"{mine.spill_load_bytes} B. Either of them counts."
        )
    filled, possible = _fraction(mine, block), _fraction(best, block)
    if filled < possible:
        return f"With {found:g} an SM is filled to {filled:.0%}, with {expected} to {possible:.0%}."
    return (
        f"Both fill an SM to {possible:.0%} (registers and shared memory counted): of such caps take the largest, "
        "which leaves the compiler the most room."
    )
