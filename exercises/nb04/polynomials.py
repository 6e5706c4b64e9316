"""One polynomial as a kernel or a loop, for notebook 04: what it asks for, and calls
that can be timed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kerneltrace import trace
from labkit.core.display import Table
from labkit.measure.machine import machine

HALF = np.float32(0.5)  # the polynomial's coefficient
_TRACED = 128  # numbers
_THREADS = 256  # of a block that is timed


def kernel_of(function: Callable[..., Any]) -> Any:
    """A kernel (x, a, out) with a thread for each number: out[i] = function(x[i],
    a).
    """
    cuda: Any = importlib.import_module("numba.cuda")
    on_device = cuda.jit(device=True)(function)  # a function that kernels call

    @cuda.jit  # type: ignore[untyped-decorator]
    def kernel(x: Any, a: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            out[i] = on_device(x[i], a)

    return kernel


def asks_for(*functions: Callable[..., Any]) -> Table:
    """FLOP and bytes for each number, counted in a trace."""
    rows = []
    for function in functions:
        x = np.ones(_TRACED, np.float32)
        traced = trace(kernel_of(function), 1, _TRACED, x, HALF, np.zeros_like(x))
        flop = traced.flop / _TRACED
        moved = traced.count().bytes_moved / _TRACED
        rows.append((function.__name__, f"{flop:g}", f"{moved:g}"))
    return Table(tuple(rows), ("", "FLOP a number", "bytes a number"))


def arrays(n: int) -> tuple[Any, Any, Any]:
    """`n` random numbers, as many to write to, and the library that has both: torch on
    a GPU, else NumPy.
    """
    here = machine()
    x = torch.rand(n, device=here.device)
    if here.gpus:
        return x, torch.empty_like(x), torch
    return x.numpy(), np.empty(n, np.float32), np


def one_pass(function: Callable[..., Any], x: Any, out: Any) -> Callable[[], object]:
    """A call that writes function(x, 0.5) into `out` in one pass over memory: a kernel
    on a GPU, else a loop that numba compiles.
    """
    if machine().gpus:
        cuda: Any = importlib.import_module("numba.cuda")
        launched = kernel_of(function)[len(x) // _THREADS, _THREADS]
        x_there = cuda.as_cuda_array(x)
        out_there = cuda.as_cuda_array(out)
        return lambda: launched(x_there, HALF, out_there)
    numba: Any = importlib.import_module("numba")
    compiled = numba.njit(function)

    @numba.njit  # type: ignore[untyped-decorator]
    def loop(x: Any, a: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = compiled(x[i], a)

    return lambda: loop(x, HALF, out)
