"""What the reader passes to a launch: its shape and its arguments, checked, and device arrays brought to the host."""

from __future__ import annotations

import ctypes
import inspect
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr
from labkit.core.errors import KernelError
from labkit.gpu.trace.space import owner_bounds
from labkit.gpu.trace.thread import Dim3
from labkit.gpu.trace.traced_memory import Array, TracedTuple

MOST_THREADS = 1024
MOST_BLOCK = Dim3(1024, 1024, 64)
MOST_GRID = Dim3(2**31 - 1, 65535, 65535)
"""CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


def shape_of(name: str, given: Any, most: Dim3) -> Dim3:
    """A grid or block given as a whole number or a tuple of up to three, as a Dim3; KernelError for all else."""
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= 3 or not all(is_whole(part) for part in parts):
        raise KernelError(f"Expected {name} to be a whole number or a tuple of up to three, got {brief_repr(given)}.")
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
    back: tuple[Callable[[], object], ...]
    """Bring results to where the arguments live."""

    def copy(self) -> Arguments:
        """The same with copies of the memory, of which arrays that shared some share the copy."""
        copies: dict[int, Array] = {}
        return Arguments({name: _copied(value, copies) for name, value in self.values.items()}, ())

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


def _copied(value: Any, copies: dict[int, Array]) -> Any:
    if isinstance(value, TracedTuple):
        return TracedTuple(_copied(part, copies) for part in value)
    if not isinstance(value, np.ndarray) or not value.size:
        return value
    low, high = owner_bounds(value)
    if low not in copies:
        copies[low] = np.ctypeslib.as_array((ctypes.c_ubyte * (high - low)).from_address(low)).copy()
    offset = value.__array_interface__["data"][0] - low
    return np.ndarray(value.shape, value.dtype, copies[low].data, offset, value.strides)


def arguments_of(fn: types.FunctionType, args: tuple[Any, ...]) -> Arguments:
    """Match `args` to the parameters of `fn`; KernelError for a wrong number or a kind that no kernel takes."""
    parameters = list(inspect.signature(fn).parameters.values())
    least = sum(p.default is p.empty for p in parameters)
    if not least <= len(args) <= len(parameters):
        wanted = ", ".join(p.name for p in parameters)
        raise KernelError(
            f"{fn.__name__}({wanted}) takes {len(parameters)} argument{'s' * (len(parameters) != 1)}, got {len(args)}."
        )
    back: list[Callable[[], object]] = []
    names = [p.name for p in parameters]
    values = {name: _value(name, arg, back) for name, arg in zip(names, args, strict=False)}
    return Arguments(values, tuple(back))


def _value(name: str, arg: Any, back: list[Callable[[], object]]) -> Any:
    if isinstance(arg, bool | np.bool_):
        return bool(arg)
    if not getattr(arg, "shape", ()) and not isinstance(arg, np.ndarray) and is_whole(arg):
        return int(arg)
    if isinstance(arg, np.floating | np.complexfloating | complex):
        return arg
    if isinstance(arg, float):
        return np.float64(arg)
    if isinstance(arg, tuple):
        return TracedTuple(_value(f"{name}[{i}]", part, back) for i, part in enumerate(arg))
    array = _host(name, arg, back)
    if array is None:
        raise KernelError(
            f"A kernel takes arrays and numbers; {name!r} is {brief_repr(arg)}. Make it an array: np.array(...)."
        )
    if array.dtype.kind not in "fiubcV" or array.dtype.hasobject:
        kind = "Python objects" if array.dtype.hasobject else f"the type {array.dtype}"
        raise KernelError(f"{name!r} is an array of {kind}, which no GPU computes with: {name}.astype(np.float32)?")
    return array


def _host(name: str, arg: Any, back: list[Callable[[], object]]) -> Array | None:
    """The array itself, or a copy of a device array with the way back noted; None where `arg` is no array."""
    if isinstance(arg, np.ndarray):
        return arg
    if hasattr(arg, "copy_to_host"):  # numba, compiled or simulated
        host = arg.copy_to_host()
        back.append(lambda: arg.copy_to_device(host))
        return np.asarray(host)
    if type(arg).__module__.startswith("torch"):
        return _of_torch(name, arg.detach(), back)
    if hasattr(arg, "get") and hasattr(arg, "__cuda_array_interface__"):  # CuPy
        host = arg.get()
        back.append(lambda: arg.set(host))
        return np.asarray(host)
    return None


def _of_torch(name: str, tensor: Any, back: list[Callable[[], object]]) -> Array:
    """A tensor's own memory, with the whole of its storage behind it so that its alignment shows; or a GPU's copied."""
    import torch

    if tensor.dtype == torch.bfloat16:
        raise KernelError(f"{name!r} is bfloat16, which NumPy does not have: {name}.float() converts it.")
    if tensor.device.type != "cpu":
        host = tensor.cpu()
        back.append(lambda: tensor.copy_(host))
        tensor = host
    storage = np.asarray(torch.tensor([], dtype=torch.uint8).set_(tensor.untyped_storage()).numpy())
    plain = tensor.numpy()
    offset = tensor.storage_offset() * tensor.element_size()
    return np.ndarray(plain.shape, plain.dtype, storage.data, offset, plain.strides)
