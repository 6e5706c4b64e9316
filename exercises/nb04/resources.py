"""What a block of a kernel takes of an SM, as numba's compiler reports it."""

from __future__ import annotations

import importlib
from typing import Any

from kerneltrace import compile_numba
from kerneltrace.errors import MissingCompiler


def takes(kernel: Any, *, arrays: int, assumed: dict[str, int]) -> dict[str, int]:
    """Registers a thread and shared bytes a block of a kernel of so many float32
    matrices, compiled for compute capability 8.6.

    Without the compiler, `assumed`, and a sentence says so.
    """
    numba: Any = importlib.import_module("numba")
    try:
        types = (numba.float32[:, ::1],) * arrays
        only = compile_numba(kernel, types, compute_capability=(8, 6)).only
    except MissingCompiler as missing:
        print(missing, f"Until then {assumed} is assumed.")
        return assumed
    return {"registers": only.registers, "shared_bytes": only.shared_bytes}
