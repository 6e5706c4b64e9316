"""Arrays of a simulated GPU: NumPy's memory behind what numba's device arrays offer.

As on a GPU they have no arithmetic, and a host array that isn't contiguous is refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerneltrace.machine.traced_memory import Array

UNSET_BYTE = 0xA5
"""What fills memory that nobody has written: a GPU promises nothing, so zeros would
hide a mistake.
"""
NOT_CONTIGUOUS = (
    "Array contains non-contiguous buffer and cannot be transferred as a single memory"
    " region. Please ensure contiguous buffer with numpy.ascontiguousarray()"
)
"""Numba's own words, which test suites compare."""


class SimulatedPointer:
    """Where an array's memory begins, as numba's `MemoryPointer`."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.size: int = array.nbytes
        self.device_pointer_value: int = array.ctypes.data
        self.device_ctypes_pointer = ctypes.c_void_p(array.ctypes.data)

    def __int__(self) -> int:
        return self.device_pointer_value


class SimulatedArray:
    """A device array, as numba's `DeviceNDArray` (numba-cuda, "CUDA Array")."""

    __cuda_memory__ = True
    __cuda_ndarray__ = True

    def __init__(
        self,
        shape: Any,
        strides: Any,
        dtype: Any,
        stream: Any = 0,
        gpu_data: SimulatedPointer | None = None,
    ) -> None:
        """An array over `gpu_data`, or over memory that nobody has written."""
        array = np.ndarray(shape, dtype, strides=strides)
        if gpu_data is not None:
            memory = gpu_data.array.view(dtype)
            array = np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)
        self._take(array, stream)

    @classmethod
    def over(cls, array: Array, stream: Any = 0, owner: Any = None) -> SimulatedArray:
        """A device array whose memory is that of `array`, which `owner` keeps."""
        made = cls.__new__(cls)
        made._take(array, stream, owner)
        return made

    def _take(self, array: Array, stream: Any, owner: Any = None) -> None:
        self.array = array
        """The memory, which kernels read and write."""
        self.stream = stream
        self.owner = owner
        """What keeps that memory, where it is another object's."""
        self.gpu_data = SimulatedPointer(array)
        self.shape: tuple[int, ...] = array.shape
        self.strides: tuple[int, ...] = array.strides
        self.dtype = array.dtype
        self.ndim: int = array.ndim
        self.size: int = array.size
        self.nbytes: int = array.nbytes
        self.alloc_size: int = array.nbytes

    # -- copies

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        """The contents, in `ary` or in a new array; TypeError or ValueError where `ary`
        has another type or shape.
        """
        if ary is None:
            return self.array.copy(order="K")
        _check_alike(ary, self.array)
        np.copyto(ary, self.array.reshape(ary.shape))
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Take over the contents of a host or device array of the same shape."""
        source = memory_of(ary)
        _check_alike(self.array, source)
        np.copyto(self.array, source.reshape(self.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array, dtype=dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = self.array.__array_interface__
        return {
            "shape": self.shape,
            "strides": None if self.is_c_contiguous() else self.strides,
            "data": interface["data"],
            "typestr": interface["typestr"],
            "descr": interface["descr"],
            "version": 3,
        }

    # -- views

    def _view(self, array: Array) -> SimulatedArray:
        return SimulatedArray.over(array, self.stream)

    def bind(self, stream: Any = 0) -> SimulatedArray:
        """The same memory, with another default stream."""
        return SimulatedArray.over(self.array, stream)

    def __getitem__(self, index: Any) -> Any:
        part = self.array[index]
        if isinstance(part, np.void):
            part = self.array[index, ...]
        return self._view(part) if isinstance(part, np.ndarray) else part

    def getitem(self, index: Any, stream: Any = 0) -> Any:
        """The element or the view at an index."""
        return self[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = memory_of(value)

    def setitem(self, index: Any, value: Any, stream: Any = 0) -> None:
        """Write the elements at an index."""
        self[index] = value

    def reshape(self, *shape: Any, order: Any = "C") -> SimulatedArray:
        """The same memory in another shape; NotImplementedError where that needs a
        copy.
        """
        reshaped = self.array.reshape(*shape, order=order)
        if not np.shares_memory(reshaped, self.array) and self.size:
            raise NotImplementedError("reshape would require copy")
        return self._view(reshaped)

    def ravel(self, order: Any = "C", stream: Any = 0) -> SimulatedArray:
        """The same memory as one row."""
        return self.reshape(self.size, order=order)

    def transpose(self, axes: Any = None) -> SimulatedArray:
        """A transposed copy, as numba makes one."""
        if axes and tuple(axes) == tuple(range(self.ndim)):
            return self
        if self.ndim != 2:
            raise NotImplementedError(
                "transposing a non-2D DeviceNDArray isn't supported"
            )
        if axes is not None and set(axes) != {0, 1}:
            raise ValueError(f"invalid axes list {axes!r}")
        return self._view(self.array.T.copy())

    @property
    def T(self) -> SimulatedArray:  # noqa: N802  # NumPy's name
        """A transposed copy."""
        return self.transpose()

    def squeeze(self, axis: Any = None, stream: Any = 0) -> SimulatedArray:
        """A view without the dimensions of length one."""
        return self._view(self.array.squeeze(axis))

    def view(self, dtype: Any) -> SimulatedArray:
        """The same bytes as another type."""
        return self._view(self.array.view(dtype))

    def split(self, section: int, stream: Any = 0) -> Iterator[SimulatedArray]:
        """Views of `section` elements each."""
        for first in range(0, self.size, section):
            yield self._view(self.array[first : first + section])

    # -- properties

    @property
    def flags(self) -> dict[str, bool]:
        """Contiguity, by NumPy's names."""
        flags = self.array.flags
        return {
            name: flags[name] for name in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE")
        }

    def is_c_contiguous(self) -> bool:
        """Whether the elements follow each other row by row."""
        return bool(self.array.flags.c_contiguous)

    def is_f_contiguous(self) -> bool:
        """Whether the elements follow each other column by column."""
        return bool(self.array.flags.f_contiguous)

    @property
    def device_ctypes_pointer(self) -> ctypes.c_void_p:
        """The address of the memory."""
        return self.gpu_data.device_ctypes_pointer

    @property
    def _numba_type_(self) -> Any:
        from numba import typeof

        return typeof(self.array)

    def __len__(self) -> int:
        return len(self.array)


class SharedWithHost(np.ndarray[Any, Any]):
    """An array of memory that host and device share: numba's managed and mapped
    arrays.
    """

    __cuda_memory__ = True
    __cuda_ndarray__ = True

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        """As of a device array."""
        return SimulatedArray.over(np.asarray(self)).copy_to_host(ary)

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """As of a device array."""
        SimulatedArray.over(np.asarray(self)).copy_to_device(ary)


def memory_of(value: Any) -> Any:
    """The NumPy array behind a device array; NumPy's of all else."""
    return value.array if isinstance(value, SimulatedArray) else np.asarray(value)


def _check_alike(target: Any, source: Any) -> None:
    if target.dtype != source.dtype:
        raise TypeError(f"incompatible dtype: {target.dtype} vs. {source.dtype}")
    shapes = [tuple(n for n in each.shape if n != 1) for each in (target, source)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"incompatible shape: {target.shape} vs. {source.shape}")


def check_contiguous(array: Array) -> None:
    """ValueError for memory with gaps, as numba raises it; a dimension along which one
    element repeats has none.
    """
    if not array.size:
        return
    core = array[tuple(0 if n == 0 else slice(None) for n in array.strides)]
    if not (core.flags.c_contiguous or core.flags.f_contiguous):
        raise ValueError(NOT_CONTIGUOUS)


def unset(array: Array) -> Array:
    """The same array, filled with what no program expects."""
    if array.dtype == bool:
        array.fill(True)
    elif array.size:
        whole = np.ndarray(array.nbytes, np.uint8, array.data)
        whole.fill(UNSET_BYTE)
    return array


# -- functions of numba.cuda


def to_device(
    obj: Any, stream: Any = 0, copy: bool = True, to: Any = None
) -> SimulatedArray:
    """A device array with the contents of `obj`."""
    if to is not None:
        to.copy_to_device(obj)
        return to  # type: ignore[no-any-return]  # a device array
    if isinstance(obj, SimulatedArray):
        return obj
    host = np.asarray(obj)
    check_contiguous(host)
    return SimulatedArray.over(host.copy(order="K") if copy else host.copy(), stream)


def device_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: Any = "C",
    stream: Any = 0,
) -> SimulatedArray:
    """A device array that nobody has written."""
    if strides is None:
        return SimulatedArray.over(unset(np.empty(shape, dtype, order)), stream)
    return SimulatedArray(shape, strides, dtype, stream)


def device_array_like(ary: Any, stream: Any = 0) -> SimulatedArray:
    """A device array of the shape, the type and the order of another array."""
    return SimulatedArray.over(unset(empty_like(ary)), stream)


def auto_device(
    obj: Any, stream: Any = 0, copy: bool = True
) -> tuple[SimulatedArray, bool]:
    """A device array, and whether it was made for this."""
    return to_device(obj, stream, copy), not isinstance(obj, SimulatedArray)


def empty_like(ary: Any) -> Array:
    """Memory without gaps whose dimensions follow each other as another array's."""
    like = memory_of(ary)
    if like.flags.c_contiguous or like.flags.f_contiguous or like.ndim < 2:
        order: Any = "F" if like.flags.fnc else "C"
        return np.empty(like.shape, like.dtype, order)
    by_stride = sorted(range(like.ndim), key=lambda axis: like.strides[axis])
    strides = [0] * like.ndim
    step = like.itemsize
    for axis in by_stride:  # the fastest first
        strides[axis] = step
        step *= like.shape[axis]
    whole = np.empty(like.size, like.dtype)
    return np.ndarray(like.shape, like.dtype, whole, strides=tuple(strides))


def pinned_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: Any = "C"
) -> Array:
    """A host array."""
    return np.empty(shape, dtype, order)


def mapped_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: Any = "C",
    stream: Any = 0,
    **options: Any,
) -> SharedWithHost:
    """An array that host and device share."""
    return np.zeros(shape, dtype, order).view(SharedWithHost)


def mapped_array_like(ary: Any, stream: Any = 0, **options: Any) -> SharedWithHost:
    """An array that host and device share, like another one."""
    return empty_like(ary).view(SharedWithHost)


def from_cuda_array_interface(
    desc: dict[str, Any], owner: Any = None, sync: bool = True
) -> SimulatedArray:
    """A device array over the memory that a `__cuda_array_interface__` describes."""
    holder: Any = type("Interface", (), {"__array_interface__": desc})
    return SimulatedArray.over(np.asarray(holder()), desc.get("stream") or 0, owner)


def as_cuda_array(obj: Any, sync: bool = True) -> SimulatedArray:
    """A device array over another object's memory; TypeError where it has none."""
    if isinstance(obj, SimulatedArray):
        return obj
    if not is_cuda_array(obj):
        raise TypeError("*obj* doesn't implement the cuda array interface.")
    if type(obj).__module__.partition(".")[0] in ("cupy", "torch"):
        raise TypeError(
            "The array is in a GPU's memory, which a simulated kernel can't read. Make"
            " it a host array."
        )
    return from_cuda_array_interface(obj.__cuda_array_interface__, obj)


def is_cuda_array(obj: Any) -> bool:
    """Whether an object says that its memory is a device's."""
    return hasattr(obj, "__cuda_array_interface__")


@contextlib.contextmanager
def pinned(*arrays: Any) -> Iterator[None]:
    """Nothing to pin."""
    yield


@contextlib.contextmanager
def mapped(*arrays: Any, **options: Any) -> Iterator[Any]:
    """The arrays as ones that host and device share."""
    views = [array.view(SharedWithHost) for array in arrays]
    yield views[0] if len(views) == 1 else views


class SimulatedReduction:
    """`cuda.reduce`: combine the elements of an array by a function of two, on the
    host.
    """

    def __init__(self, functor: Callable[[Any, Any], Any]) -> None:
        self._functor = functor

    def __call__(
        self,
        arr: Any,
        size: Any = None,
        res: Any = None,
        init: Any = 0,
        stream: Any = 0,
    ) -> Any:
        """The result, or None with it in `res[0]`."""
        elements = memory_of(arr)[:size]
        result = functools.reduce(self._functor, elements, elements.dtype.type(init))
        if res is None:
            return result
        res[0] = result
        return None
