"""Loads, stores, atomics and descriptors of `tl`, with what Triton asks of pointers, masks and values.

Source: triton/language/semantic.py of Triton 3.9, "Memory Operators" and "atomic".
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kerneltrace.log.traced_memory import Array
from kerneltrace.tiles.language import FUNCTIONS, Language, as_function, broadcast, extents, kind_of, plain
from kerneltrace.tiles.tensors import INT1, INT64, Refused, Tile, constant, undefined_of


def _masked(tl: Language, pointer: Any, mask: Any, what: str) -> tuple[Tile, Array, Array | None]:
    """Pointers and which of them take part, in one shape, and where the mask is undefined."""
    if not isinstance(pointer, Tile) or not pointer.dtype.pointee:
        raise Refused(f"tl.{what} takes pointers, such as x + offsets, got {kind_of(pointer)}.")
    if mask is None:
        return pointer, np.ones(pointer.shape, bool), pointer.undefined
    mask = constant(tl, mask)
    if mask.dtype != INT1:
        raise Refused(f"A mask is made by comparisons such as offsets < n, got {mask.dtype}.")
    if mask.shape and not pointer.shape:
        raise Refused(f"One pointer takes one mask, got a mask of shape {mask.shape}: add tl.arange to the pointer.")
    try:
        shape = np.broadcast_shapes(pointer.shape, mask.shape)
    except ValueError:
        raise Refused(f"Pointers of shape {pointer.shape} and a mask of {mask.shape} don't fit.") from None
    return broadcast(tl, pointer, shape), np.broadcast_to(mask.data, shape), undefined_of(pointer, mask)


@as_function
def _load(
    tl: Language, pointer: Any, mask: Any = None, other: Any = None, *, cache_modifier: str = "",
    eviction_policy: str = "", volatile: bool = False,
) -> Tile:  # fmt: skip
    if mask is None and other is not None:
        raise Refused("`other` is for lanes that a mask leaves out: pass mask too, or leave `other` out.")
    pointer, active, undefined = _masked(tl, pointer, mask, "load")
    dtype = pointer.dtype.element_ty
    data = np.zeros(pointer.shape, dtype.numpy)
    data[active] = tl.run.load(pointer, active)
    if other is not None:
        data = np.where(active, data, constant(tl, other).to(dtype).data)
    elif not active.all():
        undefined = ~active if undefined is None else undefined | ~active
    return Tile(tl, data, dtype, undefined)


def _stored(tl: Language, pointer: Any, value: Any, mask: Any, what: str) -> tuple[Tile, Tile, Array]:
    """Pointers, the values for them, and which of them take part."""
    shape = getattr(pointer, "shape", ())
    pointer, active, undefined = _masked(tl, pointer, mask, what)
    value = constant(tl, value).to(pointer.dtype.element_ty)
    if shape != pointer.shape or (value.shape and np.broadcast_shapes(shape, value.shape) != shape):
        raise Refused(
            f"tl.{what} has pointers of shape {shape} and values of {value.shape}: the pointers' shape counts."
        )
    value = broadcast(tl, value, shape)
    if undefined is not None:  # so is where it lands
        value = Tile(tl, value.data, value.dtype, undefined if value.undefined is None else undefined | value.undefined)
    return pointer, value, active


@as_function
def _store(
    tl: Language, pointer: Any, value: Any, mask: Any = None, *, cache_modifier: str = "", eviction_policy: str = ""
) -> None:  # fmt: skip
    tl.run.store(*_stored(tl, pointer, value, mask, "store"))


_CHANGES = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "xchg": lambda old, new: new,
}  # fmt: skip


def _atomic(
    name: str, tl: Language, pointer: Any, value: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tile:  # fmt: skip
    pointer, value, active = _stored(tl, pointer, value, mask, f"atomic_{name}")
    data = np.zeros(pointer.shape, value.dtype.numpy)
    data[active] = tl.run.atomic(pointer, value, active, _CHANGES[name], sem)
    return Tile(tl, data, value.dtype, None if active.all() else ~active)


FUNCTIONS |= {f"atomic_{name}": functools.partial(_atomic, name) for name in _CHANGES}


@as_function
def _atomic_cas(tl: Language, pointer: Any, expected: Any, value: Any, sem: Any = None, scope: Any = None) -> Tile:
    pointer, value, active = _stored(tl, pointer, value, None, "atomic_cas")
    wanted = iter(broadcast(tl, constant(tl, expected).to(value.dtype), pointer.shape).data.ravel())
    old = tl.run.atomic(pointer, value, active, lambda old, new: new if old == next(wanted) else old, sem)
    return Tile(tl, old.reshape(pointer.shape), value.dtype)


class Descriptor:
    """A tensor descriptor: a box of an array, of which loads fill with 0 what lies outside, and stores leave it out."""

    def __init__(self, tl: Language, base: Tile, shape: Any, strides: Any, block_shape: Any, **_: Any) -> None:
        self.tl, self.base, self.shape, self.strides = tl, base, shape, strides
        self.block_shape, self.dtype = extents(block_shape), base.dtype.element_ty
        size = self.dtype.primitive_bitwidth // 8
        if int(plain(strides[-1])) != 1 or any(int(plain(stride)) * size % 16 for stride in strides[:-1]):
            raise Refused("A descriptor's last stride is 1, and the others are multiples of 16 bytes.")
        if self.block_shape[-1] * size < 16:
            raise Refused(f"A descriptor's rows have at least 16 bytes, got {self.block_shape[-1] * size}.")

    def _box(self, offsets: Any) -> tuple[Any, Any]:
        pointer, mask, rank = self.base, True, len(self.block_shape)
        for axis, (offset, extent) in enumerate(zip(offsets, self.block_shape, strict=True)):
            shape = [extent if i == axis else 1 for i in range(rank)]
            at = FUNCTIONS["reshape"](self.tl, offset + self.tl.arange(0, extent), shape).to(INT64)
            pointer = pointer + at * self.strides[axis]
            mask = (at >= 0) & (at < self.shape[axis]) & mask
        return pointer, mask

    def load(self, offsets: Any) -> Tile:
        """The box at these offsets."""
        return _load(self.tl, *self._box(offsets), 0)

    def store(self, offsets: Any, value: Any) -> None:
        """Store a tile at these offsets."""
        pointer, mask = self._box(offsets)
        _store(self.tl, pointer, value, mask)


@as_function
def _make_block_ptr(tl: Language, *_: Any, **__: Any) -> None:
    raise Refused("Triton has no block pointers any more: use tl.make_tensor_descriptor.")


FUNCTIONS["make_tensor_descriptor"] = Descriptor
