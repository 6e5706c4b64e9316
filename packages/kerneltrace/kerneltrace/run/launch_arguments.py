"""Check the arguments of a launch, and copy device arrays to the host."""

from __future__ import annotations

import ctypes
import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from kerneltrace._text import brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.machine.address_space import owner_bounds
from kerneltrace.machine.traced_memory import Array, TracedTuple, leaves


@dataclass(frozen=True)
class LaunchArguments:
    """The arguments of a launch as the traced kernel takes them: host arrays and
    numbers, by parameter name.
    """

    values: dict[str, Any]
    types: tuple[Any, ...]
    """Numba's types of the arguments."""
    copies_back: tuple[Callable[[], object], ...]
    """Functions that copy results back to the GPU's arrays."""

    def copy(self) -> LaunchArguments:
        """The same with copied memory; arrays that overlap in memory overlap in the
        copy.
        """
        copies: dict[int, Array] = {}
        values = {name: _copied(value, copies) for name, value in self.values.items()}
        return replace(self, values=values, copies_back=())

    def restore(self, before: LaunchArguments) -> None:
        """Write what was in the arrays before into them."""
        old = leaves(tuple(before.values.values()))
        new = leaves(tuple(self.values.values()))
        for value, original in zip(new, old, strict=True):
            if isinstance(value, np.ndarray) and value.flags.writeable:
                value[...] = original

    @property
    def arrays(self) -> dict[str, Array]:
        """The arguments that are arrays."""
        return {
            name: value
            for name, value in self.values.items()
            if isinstance(value, np.ndarray)
        }

    @property
    def numbers(self) -> set[int]:
        """The arguments that are whole numbers, also those in tuples."""
        values = leaves(tuple(self.values.values()))
        return {value for value in values if type(value) is int}


def _copied(value: Any, copies: dict[int, Array]) -> Any:
    if isinstance(value, TracedTuple):
        return TracedTuple(_copied(part, copies) for part in value)
    if not isinstance(value, np.ndarray) or not value.size:
        return value
    low, high = owner_bounds(value)
    if low not in copies:
        copies[low] = np.ctypeslib.as_array(
            (ctypes.c_ubyte * (high - low)).from_address(low)
        ).copy()
    offset = value.ctypes.data - low
    return np.ndarray(value.shape, value.dtype, copies[low].data, offset, value.strides)


def launch_arguments(fn: types.FunctionType, args: tuple[Any, ...]) -> LaunchArguments:
    """Match `args` to the parameters of `fn`; KernelError for a wrong number of them or
    a type that no kernel takes.
    """
    signature = inspect.signature(fn)
    names = [*signature.parameters]
    try:
        bound = signature.bind(*args)
    except TypeError:
        plural = "" if len(names) == 1 else "s"
        raise KernelError(
            f"{fn.__name__}({', '.join(names)}) takes {len(names)} argument{plural},"
            f" got {len(args)}."
        ) from None
    back: list[Callable[[], object]] = []
    values = {name: _value(name, arg, back) for name, arg in bound.arguments.items()}
    bound.apply_defaults()
    kinds = (
        _type(name, values.get(name, arg), arg) for name, arg in bound.arguments.items()
    )
    return LaunchArguments(values, tuple(kinds), tuple(back))


def _type(name: str, value: Any, arg: Any) -> Any:
    """Numba's type of an argument, given as `arg` and converted to `value`: an integer
    keeps its own number of bits.
    """
    import numba

    if isinstance(value, TracedTuple):
        parts = zip(value, arg, strict=True)
        return numba.types.Tuple(
            [_type(name, part, original) for part, original in parts]
        )
    typed = value if isinstance(value, np.ndarray) else arg
    try:
        # numba takes the first ones below as unsigned
        if type(typed) is int and typed < -(2**63):
            raise ValueError
        return numba.typeof(typed)
    except (ValueError, numba.errors.NumbaError):
        passed = brief_repr(typed)
        if isinstance(typed, np.ndarray):
            passed = f"an array of the type {typed.dtype}"
        raise KernelError(
            f"A kernel takes numbers of at most 64 bits, and arrays of them; {name!r}"
            f" is {passed}. Convert it: np.float64({name})."
        ) from None


def _value(name: str, arg: Any, back: list[Callable[[], object]]) -> Any:
    if isinstance(arg, bool | np.bool_):
        return bool(arg)
    if isinstance(arg, Integral):
        return int(arg)
    if isinstance(arg, np.floating | np.complexfloating | complex | np.void):
        return arg
    if isinstance(arg, float):
        return np.float64(arg)
    if isinstance(arg, tuple):
        return TracedTuple(
            _value(f"{name}[{i}]", part, back) for i, part in enumerate(arg)
        )
    array = _host_array(name, arg, back)
    if array is None:
        raise KernelError(
            f"A kernel takes arrays and numbers; {name!r} is {brief_repr(arg)}. Make it"
            " an array: np.array(...)."
        )
    if array.dtype.kind not in "fiubcV" or array.dtype.hasobject:
        kind = "Python objects" if array.dtype.hasobject else f"the type {array.dtype}"
        raise KernelError(
            f"{name!r} is an array of {kind}, which no GPU computes with. Convert it:"
            f" {name}.astype(np.float32)."
        )
    return array


def _host_array(name: str, arg: Any, back: list[Callable[[], object]]) -> Array | None:
    """The array itself, or a host copy of a device array; None where `arg` is no array.

    Adds a function to `back` that copies the host copy back.
    """
    if isinstance(arg, np.ndarray):
        return arg
    if type(arg).__module__.startswith("torch"):
        return _torch_array(name, arg.detach(), back)
    # numba's arrays, CuPy's
    for download, upload in (("copy_to_host", "copy_to_device"), ("get", "set")):
        if hasattr(arg, download) and hasattr(arg, upload):
            host = np.asarray(getattr(arg, download)())
            if getattr(arg, "strides", host.strides) != host.strides:
                return _cupy_view(arg, back)
            back.append(functools.partial(getattr(arg, upload), host))
            return host
    return None


def _cupy_view(view: Any, back: list[Callable[[], object]]) -> Array:
    """A view with the same strides of a host copy of the CuPy array that `view` is a
    part of; its own copy would have its elements in C order.
    """
    owner = view if view.base is None else view.base
    host = np.asarray(owner.get(order="A"))
    back.append(functools.partial(owner.set, host))
    if owner is view:
        return host
    offset = view.data.ptr - owner.data.ptr
    memory = host.ravel(order="K").data
    return np.ndarray(view.shape, view.dtype, memory, offset, view.strides)


def _torch_array(name: str, tensor: Any, back: list[Callable[[], object]]) -> Array:
    """A view of a tensor's memory whose base is the whole storage, so that its
    alignment shows; a GPU's is copied.
    """
    import torch

    if tensor.dtype == torch.bfloat16:
        raise KernelError(
            f"{name!r} is bfloat16, which NumPy does not have: {name}.float()"
            " converts it."
        )
    if tensor.device.type != "cpu":
        host = tensor.cpu()
        back.append(lambda: tensor.copy_(host))
        tensor = host
    storage = np.asarray(
        torch.tensor([], dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    )
    plain = tensor.numpy()
    offset = tensor.storage_offset() * tensor.element_size()
    return np.ndarray(plain.shape, plain.dtype, storage.data, offset, plain.strides)
