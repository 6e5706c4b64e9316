"""Tiles of numbers with Triton's types, promotion and broadcasting, computed by NumPy.

Source: triton/language/semantic.py of Triton 3.9.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.traced_memory import Array, cut_by
from kerneltrace.ptx.values import cut, narrowed, widened

RUN: ContextVar[Any] = ContextVar("RUN")
"""The launch that runs: tiles count themselves there, and functions of tl ask it."""


class Refused(Exception):
    """What Triton would not compile, in a learner's words; the run finds the line where
    none is given.
    """

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(words)
        self.line = line


@dataclass(frozen=True)
class DType:
    """A type of Triton: its name, and NumPy's type that holds it. float32 holds
    bfloat16.
    """

    name: str
    numpy: np.dtype[Any]
    primitive_bitwidth: int
    pointee: DType | None = None

    @functools.cached_property
    def kind(self) -> int:
        """0 for a mask, 1 for whole numbers, 2 for floats, 3 for pointers."""
        if self.pointee:
            return 3
        return {"b": 0, "i": 1, "u": 1, "f": 2}[self.numpy.kind]

    @property
    def element_ty(self) -> DType:
        """What a pointer points to; of a number itself."""
        return self.pointee or self

    @property
    def scalar(self) -> DType:
        """The type of one element."""
        return self

    def __str__(self) -> str:
        return self.name


OVERHEAD = 2_000
"""Elements that take as long as making a tile of none."""
_AS_IN_NUMPY = (
    "float16 float32 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64"
)
DTYPES = {
    name: DType(name, np.dtype(name), 8 * np.dtype(name).itemsize)
    for name in _AS_IN_NUMPY.split()
} | {
    "int1": DType("int1", np.dtype(bool), 1),
    "bfloat16": DType("bfloat16", np.dtype(np.float32), 16),
}
INT1, INT32, INT64, FLOAT32 = (
    DTYPES[name] for name in ("int1", "int32", "int64", "float32")
)


def pointer_to(element: DType) -> DType:
    """The type of a pointer to numbers of a type."""
    return DType(f"pointer<{element}>", INT64.numpy, 64, element)


_WHOLE_NUMBERS = {
    "int32": range(-(2**31), 2**31),
    "uint32": range(2**32),
    "int64": range(-(2**63), 2**63),
}
"""A whole number of Python has the first of these types that holds it."""


def number_type(value: Any) -> DType:
    """The type that Triton gives a Python number."""
    if isinstance(value, bool):
        return INT1
    if isinstance(value, int):
        return next(
            (
                DTYPES[name]
                for name, numbers in _WHOLE_NUMBERS.items()
                if value in numbers
            ),
            DTYPES["uint64"],
        )
    if isinstance(value, float):
        fits = value == 0 or 2**-126 <= abs(value) <= 3.5e38 or not np.isfinite(value)
        return FLOAT32 if fits else DTYPES["float64"]
    raise Refused(
        f"Expected a tile or a number, got {type(value).__name__}: a kernel computes"
        " with tiles and numbers."
    )


def promoted(a: DType, b: DType, division: bool = False) -> DType:
    """The type in which two types meet."""
    names = {a.name, b.name}
    if "float64" in names:
        return DTYPES["float64"]
    if 2 in (a.kind, b.kind):
        if division or "float32" in names or (a != b and "float16" not in names):
            return FLOAT32
        return DTYPES["float16" if "float16" in names else "bfloat16"]
    if (
        division
        and a.numpy.kind != b.numpy.kind
        and "b" not in (a.numpy.kind, b.numpy.kind)
    ):
        raise Refused(
            f"/, // and % don't mix {a} and {b}: cast one of them with .to()."
        )
    # of equal sizes the unsigned type
    return max(a, b, key=lambda t: (t.primitive_bitwidth, t.numpy.kind == "u"))


def rounded(data: Any, dtype: DType) -> Array:
    """Numbers in a type, rounded to nearest; of a float to a whole number cut, as the
    GPU does.
    """
    numbers = np.asarray(data)
    if dtype.numpy.kind in "iu" and numbers.dtype.kind == "f":
        numbers = cut(numbers, cut_by(dtype.numpy))
    out: Array = numbers.astype(dtype.numpy, copy=False)
    return np.asarray(widened(narrowed(out))) if dtype.name == "bfloat16" else out


@functools.cache
def all_defined(shape: tuple[int, ...]) -> Array:
    """What marks no element of tiles of a shape, the same array each time."""
    return np.broadcast_to(np.False_, shape)


class Tile:
    """A tile, or with shape () one number, that a kernel computes with; made of the
    tiles that are its `sources`.

    `undefined` marks the elements that no load gave a value; `wrapped` is the line in
    which whole numbers in it left their type's range, or 0.
    """

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # np.exp and the like are none of Triton's

    def __init__(self, data: Any, dtype: DType, *sources: Tile) -> None:
        self.data = rounded(data, dtype)
        self.dtype = dtype
        self.type = dtype
        self.shape = self.data.shape
        self.numel = self.data.size
        RUN.get().elements += self.numel + OVERHEAD
        self.undefined = all_defined(self.shape)
        undefined = [each.undefined for each in sources if not each.is_defined]
        if undefined:
            anywhere = functools.reduce(operator.or_, undefined)
            self.undefined = np.broadcast_to(anywhere, self.shape)
        self.wrapped: int = max((source.wrapped for source in sources), default=0)

    @property
    def is_defined(self) -> bool:
        """Whether all of its elements have a value, as those of most tiles do."""
        return self.undefined is all_defined(self.shape)

    @property
    def T(self) -> Tile:  # noqa: N802 - Triton's name
        """Transposed."""
        return self.reshaped(np.transpose)

    def reshaped(self, change: Callable[[Array], Array]) -> Tile:
        """With its elements in other places: `change` is done to the numbers, and to
        what says which are undefined.
        """
        out = Tile(change(self.data), self.dtype)
        if not self.is_defined:
            out.undefined = change(self.undefined)
        out.wrapped = self.wrapped
        return out

    def to(
        self, dtype: DType, fp_downcast_rounding: Any = None, bitcast: bool = False
    ) -> Tile:
        """Cast to another type, or the same bits read as another type."""
        if fp_downcast_rounding not in (None, "rtne"):
            raise KernelError(
                f"fp_downcast_rounding={fp_downcast_rounding!r} is not known here."
            )
        if bitcast:
            if (
                "bfloat16" in (dtype.name, self.dtype.name)
                or dtype.primitive_bitwidth != self.dtype.primitive_bitwidth
            ):
                raise Refused(f"The bits of {self.dtype} can't be read as {dtype}.")
            bits = np.ascontiguousarray(self.data).view(dtype.numpy)
            return Tile(bits.reshape(self.shape), dtype, self)
        if self.dtype.pointee and dtype != self.dtype:
            raise Refused(
                f"A {self.dtype} can't become {dtype}: pass the number in an array of"
                " that type."
            )
        data = self.data != 0 if dtype == INT1 else self.data
        return Tile(data, dtype, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        # x.sum(0) is tl.sum(x, 0)
        return functools.partial(getattr(RUN.get().tl, name), self)

    def __getitem__(self, keys: Any) -> Tile:
        keys = keys if isinstance(keys, tuple) else (keys,)
        if self.dtype.pointee and not self.shape:
            raise Refused(
                "A pointer isn't indexed: read with tl.load(pointer + offsets)."
            )
        if not all(
            key is None or (isinstance(key, slice) and key == slice(None))
            for key in keys
        ):
            raise Refused(
                "A tile has no elements to pick, only x[:, None] and x[None, :]: use"
                " tl.where or masks."
            )
        return self.reshaped(lambda data: data[keys])

    def __setitem__(self, keys: Any, value: Any) -> None:
        raise Refused(
            "Nothing is assigned to an element of a tile: make a new one with tl.where."
        )

    def __iter__(self) -> Any:
        raise Refused(
            "A tile isn't looped over: operators work on all of its elements at once."
        )

    def __len__(self) -> int:
        raise Refused(
            "A tile has no len(): its extents are tl.constexpr, such as BLOCK."
        )

    def __bool__(self) -> bool:
        if self.numel > 1:
            raise Refused(
                "Python's if, while, and, or, not decide by one number, and this is a"
                f" tile of shape {self.shape}: use tl.where, and &, | and ~ for masks."
            )
        RUN.get().decided()
        return bool(self.data)

    def __neg__(self) -> Tile:
        return binary("sub", constant(0, self.dtype), self)

    def __invert__(self) -> Tile:
        return binary("xor", self, True if self.dtype == INT1 else -1)

    def __index__(self) -> int:
        if self.shape or self.dtype.kind > 1:
            raise Refused(
                f"Expected one whole number, got a tile of {self.dtype} and shape"
                f" {self.shape}."
            )
        return int(self.data)


def kind_of(value: Any) -> str:
    """Type and shape in words."""
    if isinstance(value, Tile):
        return f"{value.dtype} of shape {value.shape}"
    return f"{number_type(value)} of shape ()"


def paired(a: Any, b: Any, division: bool = False) -> tuple[Tile, Tile]:
    """Two operands in the type in which they meet; of a number of Python beside a tile
    the kind alone counts.
    """
    left, right = (x.dtype if isinstance(x, Tile) else number_type(x) for x in (a, b))
    if 3 in (left.kind, right.kind):
        if left != right:
            raise Refused(f"{left} and {right} don't go together.")
        return a, b
    if not isinstance(a, Tile) and isinstance(b, Tile) and left.kind <= right.kind:
        left = right
    elif not isinstance(b, Tile) and isinstance(a, Tile) and right.kind <= left.kind:
        right = left
    dtype = promoted(left, right, division)
    return constant(a, dtype), constant(b, dtype)


def constant(value: Any, dtype: DType | None = None) -> Tile:
    """A tile in a type, or a Python number as one."""
    if isinstance(value, Tile):
        return value if dtype is None or dtype == value.dtype else value.to(dtype)
    dtype = dtype or number_type(value)
    if dtype.kind != 1:
        return Tile(value, dtype)
    try:
        return Tile(np.array(int(value), dtype.numpy), dtype)
    except OverflowError:
        raise Refused(f"{value} is out of the range of {dtype}.") from None


@functools.cache
def fitted(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which tiles of these meet, or Refused."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise Refused(
            f"Shapes {' and '.join(map(str, shapes))} don't fit: extents must be equal,"
            " or one of them 1."
        ) from None


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "mod": np.fmod,
    "floordiv": lambda a, b: (a - np.fmod(a, b)) // b,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "maximum": np.fmax,
    "minimum": np.fmin,
    "maximum_nan": np.maximum,
    "minimum_nan": np.minimum,
}
"""Operators and functions of two operands, by the names of Python's methods; // cuts,
as C does.
"""
_WHOLE = ("floordiv", "and", "or", "xor", "lshift", "rshift")
_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


def binary(name: str, a: Any, b: Any) -> Tile:
    """The result of an operator; `name` is one of ARITHMETIC."""
    is_moved = any(isinstance(x, Tile) and x.dtype.pointee for x in (a, b))
    if name in ("add", "sub") and is_moved:
        return _moved(name, constant(a), constant(b))
    a, b = paired(a, b, name in ("truediv", "floordiv", "mod"))
    dtype = INT1 if name in _COMPARED else a.dtype
    if name == "truediv" and dtype.kind < 2:
        a = a.to(FLOAT32)
        b = b.to(FLOAT32)
        dtype = FLOAT32
    if (name in _WHOLE and a.dtype.kind > 1) or (a.dtype.pointee and dtype != INT1):
        raise Refused(f"{name} takes whole numbers, got {a.dtype}.")
    fitted(a.shape, b.shape)
    out = Tile(ARITHMETIC[name](a.data, b.data), dtype, a, b)
    if dtype.kind == 2:
        RUN.get().computed(name, out, a, b)
    elif dtype == INT32 and name in ("add", "sub", "mul"):
        exact = ARITHMETIC[name](a.data.astype("i8"), b.data.astype("i8"))
        if (exact != out.data).any():
            out.wrapped = RUN.get().line()
    return out


def _moved(name: str, a: Tile, b: Tile) -> Tile:
    """A pointer moved by a number of elements."""
    pointer, offset = (a, b) if a.dtype.pointee else (b, a)
    if offset.dtype.kind > 1 or (name == "sub" and pointer is b):
        raise Refused(f"A pointer moves by whole numbers, got {offset.dtype}.")
    fitted(a.shape, b.shape)
    size = pointer.dtype.element_ty.primitive_bitwidth + 7 >> 3
    step = offset.data.astype("i8") * size
    return Tile(ARITHMETIC[name](pointer.data, step), pointer.dtype, a, b)


for _name in list(ARITHMETIC)[:-4]:
    setattr(Tile, f"__{_name}__", lambda a, b, name=_name: binary(name, a, b))
    setattr(Tile, f"__r{_name}__", lambda a, b, name=_name: binary(name, b, a))
