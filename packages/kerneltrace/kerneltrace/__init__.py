"""Run a CUDA kernel's Python source on the CPU and count what a GPU would do."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerneltrace.compiler import (
        compile_cuda as compile_cuda,
        compile_numba as compile_numba,
    )
    from kerneltrace.judge.estimate import Estimate as Estimate
    from kerneltrace.judge.findings import Finding as Finding
    from kerneltrace.judge.kernel_trace import Request as Request, Trace as Trace
    from kerneltrace.judge.occupancy import occupancy as occupancy
    from kerneltrace.source.kernel_scope import python_function as python_function
    from kerneltrace.stepper import Stepper as Stepper
    from kerneltrace.tracing import trace as trace

_HOME_OF = {
    "Estimate": "judge.estimate",
    "Finding": "judge.findings",
    "Request": "judge.kernel_trace",
    "Stepper": "stepper",
    "Trace": "judge.kernel_trace",
    "compile_cuda": "compiler",
    "compile_numba": "compiler",
    "occupancy": "judge.occupancy",
    "python_function": "source.kernel_scope",
    "trace": "tracing",
}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kerneltrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"kerneltrace.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
