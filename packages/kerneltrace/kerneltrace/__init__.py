"""Run a CUDA kernel's Python source on the CPU and count what a GPU would do."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerneltrace import errors as errors, tiles as tiles
    from kerneltrace.compiler.compiled import (
        Compiled as Compiled,
        KernelResources as KernelResources,
    )
    from kerneltrace.compiler.cplusplus import compile_cuda as compile_cuda
    from kerneltrace.compiler.from_numba import compile_numba as compile_numba
    from kerneltrace.judge.counts import Branches as Branches, Counts as Counts
    from kerneltrace.judge.estimate import Estimate as Estimate
    from kerneltrace.judge.findings import Finding as Finding
    from kerneltrace.judge.kernel_trace import (
        Request as Request,
        Trace as Trace,
        WarpStep as WarpStep,
    )
    from kerneltrace.judge.occupancy import (
        Occupancy as Occupancy,
        occupancy as occupancy,
    )
    from kerneltrace.judge.review import Remark as Remark, Review as Review
    from kerneltrace.machine.events import (
        BANK_BYTES as BANK_BYTES,
        BANKS as BANKS,
        LINE_BYTES as LINE_BYTES,
        SECTOR_BYTES as SECTOR_BYTES,
    )
    from kerneltrace.machine.grid import WARP as WARP
    from kerneltrace.proof.verdict import Proof as Proof
    from kerneltrace.simulator.simulation import simulate as simulate
    from kerneltrace.source.kernel_scope import python_function as python_function
    from kerneltrace.source.numba_versions import check_numba as check_numba
    from kerneltrace.stepper import ThreadStepper as ThreadStepper
    from kerneltrace.tracing import trace as trace

_HOME_OF = {
    "BANKS": "machine.events",
    "BANK_BYTES": "machine.events",
    "Branches": "judge.counts",
    "Compiled": "compiler.compiled",
    "Counts": "judge.counts",
    "Estimate": "judge.estimate",
    "Finding": "judge.findings",
    "KernelResources": "compiler.compiled",
    "LINE_BYTES": "machine.events",
    "Occupancy": "judge.occupancy",
    "Proof": "proof.verdict",
    "Remark": "judge.review",
    "Request": "judge.kernel_trace",
    "Review": "judge.review",
    "SECTOR_BYTES": "machine.events",
    "ThreadStepper": "stepper",
    "Trace": "judge.kernel_trace",
    "WARP": "machine.grid",
    "WarpStep": "judge.kernel_trace",
    "check_numba": "source.numba_versions",
    "compile_cuda": "compiler.cplusplus",
    "compile_numba": "compiler.from_numba",
    "occupancy": "judge.occupancy",
    "python_function": "source.kernel_scope",
    "simulate": "simulator.simulation",
    "trace": "tracing",
}
_MODULES = ("errors", "tiles")
__all__ = sorted([*_HOME_OF, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"kerneltrace.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kerneltrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"kerneltrace.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
