"""Loads, stores and atomics of `tl`, with what Triton asks of pointers, masks and
values.

Source: triton/language/semantic.py of Triton 3.9, "Memory Operators" and "atomic".
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kerneltrace.machine.traced_memory import Array
from kerneltrace.tiles.language import (
    AS_PTX,
    FUNCTIONS,
    as_function,
    broadcast,
)
from kerneltrace.tiles.tensors import (
    INT1,
    RUN,
    Refused,
    Tile,
    constant,
    fitted,
    kind_of,
)


def _masked(pointer: Any, mask: Any, operation: str) -> tuple[Tile, Array]:
    """Pointers, undefined where their mask is, and which of them take part, in one
    shape.
    """
    if not isinstance(pointer, Tile) or not pointer.dtype.pointee:
        raise Refused(
            f"tl.{operation} takes pointers, such as x + offsets, got"
            f" {kind_of(pointer)}."
        )
    mask = constant(True if mask is None else mask)
    if mask.dtype != INT1:
        raise Refused(
            f"A mask is made by comparisons such as offsets < n, got {mask.dtype}."
        )
    if mask.shape and not pointer.shape:
        raise Refused(
            f"One pointer takes one mask, got a mask of shape {mask.shape}: add"
            " tl.arange to the pointer."
        )
    fitted(pointer.shape, mask.shape)
    data, active = np.broadcast_arrays(pointer.data, mask.data)
    out = Tile(data, pointer.dtype, pointer, mask)
    out.wrapped = pointer.wrapped
    return out, active


@as_function
def _load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> Tile:
    if mask is None and other is not None:
        raise Refused(
            "`other` is for lanes that a mask leaves out: pass mask too, or leave"
            " `other` out."
        )
    pointer, active = _masked(pointer, mask, "load")
    dtype = pointer.dtype.element_ty
    values = RUN.get().access("load", pointer, active)
    if active.all():
        data = values.reshape(pointer.shape)
    else:
        data = np.zeros(pointer.shape, dtype.numpy)
        if other is not None:
            data[...] = constant(other).to(dtype).data
        data[active] = values
    out = Tile(data, dtype)
    out.undefined = pointer.undefined
    if other is None and not active.all():
        out.undefined = pointer.undefined | ~active
    return out


def _stored(
    pointer: Any, value: Any, mask: Any, operation: str
) -> tuple[Tile, Tile, Array]:
    """Pointers, the values for them, undefined where the pointers are, and which of
    them take part.
    """
    shape = getattr(pointer, "shape", ())
    pointer, active = _masked(pointer, mask, operation)
    value = constant(value).to(pointer.dtype.element_ty)
    if shape != pointer.shape or fitted(shape, value.shape) != shape:
        raise Refused(
            f"tl.{operation} has pointers of shape {shape} and values of"
            f" {value.shape}: the pointers' shape counts."
        )
    data = broadcast(value, shape).data
    return pointer, Tile(data, value.dtype, value, pointer), active


@as_function
def _store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    pointer, value, active = _stored(pointer, value, mask, "store")
    RUN.get().access("store", pointer, active, value)


def _atomic(
    name: str,
    pointer: Any,
    val: Any,
    mask: Any = None,
    sem: Any = None,
    scope: Any = None,
) -> Tile:
    pointer, value, active = _stored(pointer, val, mask, f"atomic_{name}")
    data = np.zeros(pointer.shape, value.dtype.numpy)
    data[active] = RUN.get().access(
        "atomic", pointer, active, value, _CHANGES[name], sem
    )
    out = Tile(data, value.dtype)
    out.undefined = ~active
    return out


@as_function
def _atomic_cas(
    pointer: Any,
    cmp: Any,
    val: Any,
    sem: Any = None,
    scope: Any = None,
) -> Tile:
    pointer, value, active = _stored(pointer, val, None, "atomic_cas")
    expected = constant(cmp).to(value.dtype)
    expected_values = iter(broadcast(expected, pointer.shape).data.ravel())

    def changed(old: Any, new: Any) -> Any:
        return new if old == next(expected_values) else old

    old = RUN.get().access("atomic", pointer, active, value, changed, sem)
    return Tile(old.reshape(pointer.shape), value.dtype)


def _no_box(*_: Any, **__: Any) -> None:
    raise Refused(
        "Block pointers and tensor descriptors aren't traced: use pointers and masks."
        f" {AS_PTX}."
    )


_CHANGES = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, new: new,
}
FUNCTIONS |= {f"atomic_{name}": functools.partial(_atomic, name) for name in _CHANGES}
FUNCTIONS["make_block_ptr"] = FUNCTIONS["make_tensor_descriptor"] = _no_box
