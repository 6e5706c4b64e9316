"""What the reader passes to a launch: its shape and its arguments, checked, and device arrays brought to the host."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.arguments import is_whole, shown
from labkit.errors import KernelError
from labkit.simt.memory import Array, TracedTuple
from labkit.simt.thread import Dim3

MOST_THREADS = 1024
MOST_BLOCK = Dim3(1024, 1024, 64)
MOST_GRID = Dim3(2**31 - 1, 65535, 65535)
"""CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


def shape_of(name: str, given: Any, most: Dim3) -> Dim3:
    """A grid or block given as a whole number or a tuple of up to three, as a Dim3; KernelError for all else."""
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= 3 or not all(is_whole(part) for part in parts):
        raise KernelError(f"Expected {name} to be a whole number or a tuple of up to three, got {shown(given)}.")
    full = Dim3(*(int(part) for part in (*parts, 1, 1)[:3]))
    for part, limit, axis in zip(full, most, "xyz", strict=True):
        if not 1 <= part <= limit:
            hint = " Nothing would run; is the number of blocks rounded down? Use -(-n // block)." if part == 0 else ""
            raise KernelError(f"Expected {name}.{axis} to be 1 to {limit:,}, got {part:,}.{hint}")
    if name == "block" and math.prod(full) > MOST_THREADS:
        sizes = " x ".join(str(part) for part in full if part > 1)
        raise KernelError(
            f"A block has at most {MOST_THREADS:,} threads; {sizes} are {math.prod(full):,}."
            " Use a smaller block and more blocks."
        )
    return full


@dataclass(frozen=True)
class Arguments:
    """The arguments of a launch as the traced kernel takes them: host arrays and numbers, by parameter name."""

    values: dict[str, Any]
    back: tuple[Callable[[], None], ...]
    """Bring results to where the arguments live."""

    def having(self, arrays: dict[str, Array]) -> Arguments:
        """The same with copies of `arrays` in place of these, for another run."""
        return Arguments({**self.values, **{name: array.copy() for name, array in arrays.items()}}, ())

    @property
    def arrays(self) -> dict[str, Array]:
        """Those that are arrays."""
        return {name: value for name, value in self.values.items() if isinstance(value, np.ndarray)}

    @property
    def whole(self) -> set[str]:
        """Names of those that are whole numbers."""
        return {name for name, value in self.values.items() if isinstance(value, int)}

    @property
    def whole_arrays(self) -> set[str]:
        """Names of arrays of whole numbers."""
        return {name for name, array in self.arrays.items() if array.dtype.kind in "iub"}


def arguments_of(fn: types.FunctionType, args: tuple[Any, ...]) -> Arguments:
    """Match `args` to the parameters of `fn`; KernelError for a wrong number or a kind that no kernel takes."""
    parameters = list(inspect.signature(fn).parameters.values())
    least = sum(p.default is p.empty for p in parameters)
    if not least <= len(args) <= len(parameters):
        wanted = ", ".join(p.name for p in parameters)
        raise KernelError(f"{fn.__name__}({wanted}) takes {len(parameters)} arguments, got {len(args)}.")
    back: list[Callable[[], None]] = []
    names = [p.name for p in parameters]
    values = {name: _value(name, arg, back) for name, arg in zip(names, args, strict=False)}
    return Arguments(values, tuple(back))


def _value(name: str, arg: Any, back: list[Callable[[], None]]) -> Any:
    if isinstance(arg, bool | np.bool_):
        return bool(arg)
    if is_whole(arg):
        return int(arg)
    if isinstance(arg, np.floating | np.complexfloating | complex):
        return arg
    if isinstance(arg, float):
        return np.float64(arg)
    if isinstance(arg, tuple):
        return TracedTuple(_value(f"{name}[{i}]", part, back) for i, part in enumerate(arg))
    array = _host(arg, back)
    if array is None:
        raise KernelError(
            f"A kernel takes arrays and numbers; {name!r} is {shown(arg)}. Make it an array: np.array(...)."
        )
    if array.dtype.hasobject:
        raise KernelError(
            f"{name!r} is an array of Python objects, which no GPU can hold. Give it a type: {name}.astype(np.float32)."
        )
    return array


def _host(arg: Any, back: list[Callable[[], None]]) -> Array | None:
    """The array itself, or a copy of a device array with the way back noted; None where `arg` is no array."""
    if isinstance(arg, np.ndarray):
        return arg
    if hasattr(arg, "copy_to_host"):  # numba, compiled or simulated
        host = arg.copy_to_host()
        back.append(lambda: arg.copy_to_device(host))
        return np.asarray(host)
    if type(arg).__module__.startswith("torch"):
        import torch

        if arg.device.type == "cpu":
            return np.asarray(arg.detach().numpy())
        host = arg.detach().cpu().numpy()
        back.append(lambda: arg.detach().copy_(torch.from_numpy(host)))
        return np.asarray(host)
    if hasattr(arg, "get") and hasattr(arg, "__cuda_array_interface__"):  # CuPy
        host = arg.get()
        back.append(lambda: arg.set(host))
        return np.asarray(host)
    return None
