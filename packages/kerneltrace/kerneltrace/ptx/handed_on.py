"""What a launch hands on to a compiled kernel, and what the kernel doesn't find as it
is meant: numbers of other types, views, and variables that the host has to set.

Source: CuPy's user guide, "User-Defined Kernels", "Kernel arguments"; CUDA C++
Programming Guide, "__constant__" and "Device Memory" (cudaMemcpyToSymbol).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltrace._text import brief_repr, nearest
from kerneltrace.errors import KernelError
from kerneltrace.machine.address_space import Region
from kerneltrace.machine.events import Events
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.numba_types import as_dtype
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.memory import UNWRITTEN, plain_name
from kerneltrace.ptx.text import Variable

_TYPES = {
    "bool": "b1",
    "char": "i1",
    "short": "i2",
    "int": "i4",
    "long": "i8",
    "long long": "i8",
    "size_t": "i8",
    "float": "f4",
    "double": "f8",
    **{f"int{bits}_t": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
}
_QUALIFIERS = re.compile(
    r"\b(const|volatile|static|extern|unsigned|signed|__\w+)\b|\"C\"|\*"
)


def code_of(type_text: str) -> str:
    """NumPy's code for a type of C++, `f4` for `const float*`, in which unsigned types
    are as signed ones; empty for one not known here.
    """
    plain = " ".join(_QUALIFIERS.sub(" ", type_text).split()).removesuffix(" int")
    if not plain and "signed" in type_text:
        plain = "int"
    return _TYPES.get(re.sub(r"^(?:std::)?uint", "int", plain), "")


def has_code(dtype: np.dtype[Any], code: str) -> bool:
    """Whether numbers of that type are of a code by `code_of`."""
    return code == f"{dtype.kind.replace('u', 'i')}{dtype.itemsize}"


# -- numbers


def as_cupy_hands_on(name: str, value: Any, kind: Any) -> Array:
    """A number in its own type, numba's `kind`, as an array without axes: Python's int,
    float and bool are handed on as int64, float64 and bool.
    """
    if isinstance(value, tuple):
        raise KernelError(
            f"CuPy hands on arrays and numbers; {name!r} is a tuple. A struct is a"
            " scalar of np.dtype([...], align=True)."
        )
    dtype = None if isinstance(value, np.void) else as_dtype(kind)
    return np.array(value, dtype)


def filled(handed_on: Array, size: int) -> bytes:
    """What a parameter of `size` bytes gets of what is handed on."""
    return handed_on.tobytes()[:size].ljust(size, bytes([UNWRITTEN]))


def wrong_number(name: str, handed_on: Array, kind: str, size: int) -> str:
    """What is wrong where a parameter of PTX's type `kind` doesn't get the number that
    is handed on; empty where it does.
    """
    words = (
        f"CuPy hands on {name} = {handed_on} as {handed_on.dtype}, and the kernel takes"
        f" {size} bytes ({kind})"
    )
    if kind[0] == "b":  # a struct, or half
        if handed_on.nbytes == size:
            return ""
        return f"{words}. Pass a NumPy scalar of {size} bytes."
    if kind[0] == "f":
        letters = "f"
        advice = f"np.float{8 * size}({name})"
    else:
        letters = "iu"  # PTX doesn't say which
        advice = f"np.int{8 * size}({name})"
    bits = filled(handed_on, size)
    numbers = [np.frombuffer(bits, f"{letter}{size}")[0] for letter in letters]
    is_right = any(
        np.array_equal(number, handed_on, equal_nan=True) for number in numbers
    )
    if is_right and handed_on.nbytes >= size:
        return ""
    return f"{words}: it reads {numbers[0]}. Pass {advice}."


# -- variables of the module


def with_values(
    variables: Iterable[Variable], values: Mapping[str, Any], source: str
) -> tuple[Variable, ...]:
    """The variables of a module, those named in `values` with these as their contents.

    KernelError for a name that the module lacks, and for another size or type.
    """
    names = {plain_name(variable.name) for variable in variables}
    for name in values:
        if name not in names:
            near = ", ".join(nearest(name, names)) or "none"
            raise KernelError(
                f"constants has {name!r}, which is no __constant__ or __device__"
                f" variable of this source. The nearest: {near}."
            )
    return tuple(
        replace(variable, initial=_contents(variable, name, values[name], source))
        if (name := plain_name(variable.name)) in values
        else variable
        for variable in variables
    )


def _declaration(name: str, source: str) -> re.Match[str] | None:
    """Where the source declares a variable: its type, and what follows the name."""
    return re.search(
        rf"(__(?:constant|device|managed)__[^;{{}}()]*?)\b{re.escape(name)}\b([^;,]*)",
        source,
    )


def _contents(variable: Variable, name: str, value: Any, source: str) -> bytes:
    declared = _declaration(name, source)
    code = code_of(declared[1]) if declared else ""
    array = np.asarray(value)
    if code and isinstance(value, int | float | list | tuple):
        array = array.astype(code)
    has_type = not code or has_code(array.dtype, code) or bool(array.dtype.names)
    if array.nbytes != variable.n_bytes or not has_type:
        size = f"{variable.n_bytes:,} bytes"
        if declared and code:
            size += f" of {' '.join(_QUALIFIERS.sub(' ', declared[1]).split())}"
        raise KernelError(
            f"{name} has {size}, got {brief_repr(value)}: {array.nbytes:,} bytes of"
            f" {array.dtype}."
        )
    return array.tobytes()


def unset_variables(variables: Iterable[Variable], source: str) -> Iterator[Variable]:
    """Those that the source declares without a value, for the host to set."""
    for variable in variables:
        declared = _declaration(plain_name(variable.name), source)
        if variable.initial or variable.space not in ("const", "global"):
            continue
        if declared and not re.search(r"[={]", declared[2]):
            yield variable


def report_unset(run: Execution, region: Region) -> None:
    """Report the reads of a variable that nobody has set, nor the kernel changes."""
    accesses, element = run.pieces.reaching(region)
    if not len(accesses) or accesses.write.any():
        return
    name = region.name
    what = "constant memory" if region.space == "constant" else "a device variable"
    words = (
        f"{{}} reads {region.element(int(element[0]))}, {what} that nobody has set: it"
        f" is 0. Pass what the host copies there: constants={{'{name}': ...}}."
    )
    _report(run, "unset", words, accesses, name)


def _report(run: Execution, kind: str, words: str, accesses: Events, name: str) -> None:
    thread = int(accesses.thread[0])
    line = run.sites[int(accesses.site[0])].line
    words = words.replace("{}", run.settings.where(thread), 1)
    run.diagnostics.mistakes[kind, line, name] = [len(accesses), words, thread]


# -- views


def report_views(run: Execution, line: int) -> None:
    """Report arrays whose elements the kernel, which gets an address alone, doesn't
    find where it looks for them; `line` is that of the kernel.
    """
    regions = [region for region in run.memory.regions if region.space == "global"]
    for region in regions:
        array = region.array
        if array.flags.c_contiguous or array.size < 2:
            continue
        strides = ", ".join(map(str, array.strides))
        words = (
            f"{region.name} is a view whose elements don't follow each other in"
            f" memory: its shape is {array.shape}, its strides {strides} bytes. The"
            " kernel gets its address alone"
        )
        advice = f" Pass ascontiguousarray({region.name})."
        between = _between(run, region, regions)
        if len(between):
            words += f", and {{}} accesses what lies between.{advice}"
            _report(run, "argument", words, between, region.name)
            continue
        is_left = [
            place
            for place in run.diagnostics.mistakes
            if place[0] == "outside" and place[2] == region.name
        ]
        if is_left:
            words += f", and looks for them outside of it.{advice}"
            line_outside = is_left[0][1]
            place = "argument", line_outside, region.name
            run.diagnostics.mistakes[place] = [1, words, None]
        elif _is_dense(array) and _is_elsewhere_otherwise(region, regions):
            # of an array that was made so it may be meant
            kind = "layout" if array.base is None else "argument"
            words += f", and finds them in the order of memory.{advice}"
            run.diagnostics.mistakes[kind, line, region.name] = [1, words, None]


def _between(run: Execution, region: Region, regions: list[Region]) -> Events:
    """The accesses to what lies between the elements of an array, in no other."""
    accesses = run.accesses
    address = accesses.address
    low, high = region.span
    near = accesses.only((address >= low) & (address < high))
    is_between = np.ones(len(near), bool)
    for other in regions:
        is_between &= other.elements(near.address) < 0
    between: Events = near.only(is_between)
    return between


def _is_elsewhere_otherwise(region: Region, regions: list[Region]) -> bool:
    """Whether the kernel has other arrays, and not all of them with several axes have
    these in the same order, as where each element is worked on alone.
    """
    others = [other.array for other in regions if other is not region]
    tables = [array for array in others if array.ndim > 1]
    if not tables:
        return bool(others)
    return any(table.flags.c_contiguous for table in tables)


def _is_dense(array: Array) -> bool:
    """Whether an array has its axes in another order, and no gaps."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(high) - int(low) == array.nbytes and min(array.strides) > 0
