"""Run compiled kernels on the CPU, thread after thread: what exercises 05.4 and 05.5 are judged by.

The part of PTX that a compiler makes of arithmetic, branches, loops and calls. What threads do together is not here:
each has shared memory of its own.
Source: NVIDIA, Parallel Thread Execution ISA, chapters 9 and 10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_MOST_STEPS = 20_000  # of one thread
_APART = 1 << 32  # bytes between two arrays' addresses: no thread's index reaches the next one
_FUNCTION = re.compile(r"\.(?:entry|func)\s*(?:\(([^()]*)\))?\s*([\w$]+)\s*\(([^()]*)\)[^{};]*\{")
_VARIABLE = re.compile(
    r"\.(const|global|shared|local)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*([^;]*))?;"
)
_NAMES = re.compile(r"([\w$%-]+)(?:\[\d+\])?\s*(?:,|$)")
_INSTRUCTION = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z]\w*)((?:\.\w+)*)\s*(.*)", re.DOTALL)
_CALL = re.compile(r"(?:\(\s*([\w$]+)\s*\)\s*,\s*)?([\w$]+)\s*(?:,\s*\(([^()]*)\))?\s*")
_OPERAND = re.compile(r"<[^>]*>|\[[^\]]*\]|[^,<\[\s]+")
_TYPES: Mapping[str, Any] = {
    "f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype("?"),
    **{f"{letter}{bits}": np.dtype(f"u{bits // 8}") for letter in "ub" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
}  # fmt: skip


class OutsideError(Exception):
    """A thread reads or writes outside of the arrays: at `index` of the array that is the launch's `argument`."""

    def __init__(self, argument: int, index: int) -> None:
        super().__init__(f"element {index} of argument {argument}")
        self.argument, self.index = argument, index


class EndlessError(Exception):
    """A loop that does not end."""


class _Instruction(NamedTuple):
    unless: bool  # what its predicate must not be
    predicate: str
    kind: str
    parts: list[str]
    operands: list[str]


class _Function(NamedTuple):
    code: list[_Instruction]
    labels: dict[str, int]
    returned: list[str]
    parameters: list[str]


def _variables(text: str) -> Iterator[tuple[str, Any]]:
    """Each variable's name and an array of what it begins with."""
    for _, kind, name, size, value in _VARIABLE.findall(text):
        array = np.zeros(int(size or 1), _TYPES[kind])
        for i, one in enumerate(_NAMES.findall(value.strip("<> "))):
            array[i] = _read(one, array.dtype, {})
        yield name, array


def _functions(text: str) -> Iterator[tuple[str, _Function]]:
    for head in _FUNCTION.finditer(text):
        end, depth = head.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        made = _Function([], {}, _NAMES.findall(head[1] or ""), _NAMES.findall(head[3]))
        for statement in map(str.strip, re.split(r"[;{}]", text[head.end() : end])):
            *labels, rest = re.split(r"(?<=[\w$]):\s*", statement)
            made.labels.update(dict.fromkeys(labels, len(made.code)))
            if match := _INSTRUCTION.fullmatch(rest):
                negated, predicate, kind, parts, operands = match.groups("")
                listed = [operands] if kind == "call" else _OPERAND.findall(operands)
                made.code.append(_Instruction(bool(negated), predicate, kind, parts.split(".")[1:], listed))
        yield head[2], made


class Program:
    """The kernels of a PTX text."""

    def __init__(self, ptx: str) -> None:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)
        text = re.sub(r"\{([^{};]*)\}", r"<\1>", text)  # a vector; what stands in a block ends in semicolons
        self._functions, self._variables = dict(_functions(text)), dict(_variables(text))
        self._arrays: list[Any] = []
        self._written: list[set[int]] = []

    def launch(self, name: str, arguments: Sequence[Any], *, blocks: int, threads: int) -> list[set[int]]:
        """Run a kernel on flat arrays, which change in place, and whole numbers; the elements written, by argument.

        Raises OutsideError, EndlessError, and NotImplementedError for an instruction that is not known here.
        """
        self._written = [set() for _ in (*arguments, *self._variables)]
        given = [(i + 1) * _APART if isinstance(one, np.ndarray) else one for i, one in enumerate(arguments)]
        with np.errstate(all="ignore"):
            for thread in range(blocks * threads):
                places = {"%tid.x": thread % threads, "%ctaid.x": thread // threads, "%ntid.x": threads}
                sizes = {"%nctaid.x": blocks, "%ntid.y": 1, "%nctaid.y": 1, "%tid.y": 0, "%ctaid.y": 0}
                own = {one: (len(given) + i + 1) * _APART for i, one in enumerate(self._variables)}
                self._arrays = [*arguments, *(array.copy() for array in self._variables.values())]
                known = {what: np.int64(value) for what, value in (places | sizes | own).items()}
                self._call(name, known, given)
        return self._written[: len(arguments)]

    def _call(self, name: str, known: dict[str, Any], given: Sequence[Any]) -> list[Any]:
        """Run a function in one thread; what it returns."""
        if name not in self._functions:
            raise NotImplementedError(name)
        code, labels, returned, parameters = self._functions[name]
        known = known | {p: np.int64(v) if isinstance(v, int) else v for p, v in zip(parameters, given, strict=True)}
        at = 0
        for _ in range(_MOST_STEPS):
            unless, predicate, kind, parts, operands = code[at]
            at += 1
            if (predicate and known[predicate] == unless) or kind in ("bar", "barrier"):
                continue
            if kind in ("ret", "exit"):
                return [known[one] for one in returned]
            if kind == "bra":
                at = labels[operands[0]]
            elif kind == "call" and (match := _CALL.fullmatch(operands[0])):
                found = self._call(match[2], known, [known[one] for one in _NAMES.findall(match[3] or "")])
                known.update(zip(_NAMES.findall(match[1] or ""), found, strict=True))
            elif not parts or parts[-1] not in _TYPES:
                raise NotImplementedError(".".join((kind, *parts)))
            elif kind in ("ld", "st"):
                self._move(kind, parts, operands, known)
            else:
                known.update(_results(kind, parts, operands, known))
        raise EndlessError

    def _move(self, kind: str, parts: list[str], operands: list[str], known: dict[str, Any]) -> None:
        """Load or store, vectors too; parameters are kept by name."""
        dtype, (place, value) = _TYPES[parts[-1]], operands[:: 1 if kind == "st" else -1]
        base, *offsets = re.split(r"\s*\+\s*", place.strip("[]"))
        if "param" in parts:
            target, source = (base, value) if kind == "st" else (value, base)
            known[target] = _read(source, dtype, known)
            return
        address = int(_read(base, _TYPES["s64"], known)) + sum(map(int, offsets))
        argument = round(address / _APART) - 1
        array, at = self._arrays[argument], address - (argument + 1) * _APART
        for name in _NAMES.findall(value.strip("<>")):
            if not 0 <= at <= array.nbytes - dtype.itemsize:
                raise OutsideError(argument, at // array.itemsize)
            here = array.view(np.uint8)[at : at + dtype.itemsize]
            if kind == "st":
                here[:] = np.frombuffer(_read(name, dtype, known).tobytes(), np.uint8)
                self._written[argument].add(at // array.itemsize)
            else:
                known[name] = here.view(dtype)[0]
            at += dtype.itemsize


def _read(operand: str, dtype: Any, known: Mapping[str, Any]) -> Any:
    """A register or a constant in a type: registers hold bits, and instructions have types."""
    if operand[:2] in ("0f", "0d"):
        bits = bytes.fromhex(operand[2:])[::-1]
        value = np.frombuffer(bits, f"<f{len(bits)}")[0]
    elif operand[0].isdigit() or operand[0] == "-":
        value = np.uint64(int(operand.rstrip("U"), 0) % 2**64).view(np.int64)
    elif operand in known:
        value = known[operand]
    else:
        raise NotImplementedError(operand)
    if "b" in (dtype.kind, value.dtype.kind):
        return value.astype(dtype)
    if value.itemsize != dtype.itemsize:  # the lower bits of a larger one; a smaller one keeps its sign
        value = value.view(f"i{value.itemsize}") if value.dtype.kind == "f" else value
        value = value.astype(f"{value.dtype.kind}{dtype.itemsize}")
    return value.view(dtype)


def _divide(a: Any, b: Any) -> Any:
    """As in C: whole numbers are cut off towards zero."""
    whole = a / b if a.dtype.kind == "f" else a // b
    return whole + 1 if a.dtype.kind == "i" and whole < 0 and whole * b != a else whole


def _tanh_approx(a: Any) -> Any:
    fraction, power = np.frexp(np.tanh(a))
    return np.ldexp(np.rint(fraction * 2**11) / 2**11, power)  # its relative error is up to 2^-11


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "mad": lambda a, b, c: a * b + c,
    "fma": lambda a, b, c: np.longdouble(a) * b + c,  # rounded once, when the register takes it
    "div": _divide, "rem": lambda a, b: a - _divide(a, b) * b, "neg": np.negative, "abs": np.abs,
    "min": np.fmin, "max": np.fmax, "copysign": lambda sign, size: np.copysign(size, sign),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shl": lambda a, by: int(a) << min(int(by), 64), "shr": lambda a, by: int(a) >> min(int(by), 64),
    "mov": np.copy, "cvta": np.copy, "rcp": lambda a: 1 / a, "sqrt": np.sqrt, "rsqrt": lambda a: 1 / np.sqrt(a),
    "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": _tanh_approx,
}  # fmt: skip
_COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_ROUNDING = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _results(kind: str, parts: Sequence[str], operands: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """What an instruction writes: register -> value."""
    dtype, *others = [_TYPES[part] for part in parts if part in _TYPES]
    target, *sources = operands
    if kind == "mov" and "<" in target + sources[0]:
        return _packed(target, sources[0], dtype, known)
    values = [_read(one, others[0] if others else dtype, known) for one in sources[: 2 if kind[-1] == "p" else 3]]
    if kind == "setp":
        return _compared(target, parts, values, sources[2:], known)
    if kind == "selp":
        return {target: values[0 if known[sources[2]] else 1]}
    if kind == "cvt":
        return {target: _converted(values[0], dtype, parts)}
    if kind not in _OPERATIONS or others or "cc" in parts or ("hi" in parts and kind != "mul"):
        raise NotImplementedError(".".join((kind, *parts)))
    if "wide" in parts:  # the product, and a third number that is added, have twice the bits
        dtype = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
        values = [value.astype(dtype) for value in values[:2]] + [_read(one, dtype, known) for one in sources[2:]]
    high = "hi" in parts  # the upper half of the product's bits
    found = int(values[0]) * int(values[1]) >> 8 * dtype.itemsize if high else _OPERATIONS[kind](*values)
    if isinstance(found, int):
        found = np.uint64(found % 2**64)
    return {target: _saturated(np.asarray(found).astype(dtype)[()], parts)}


def _saturated(value: Any, parts: Sequence[str]) -> Any:
    return np.fmin(np.fmax(value, value.dtype.type(0)), value.dtype.type(1)) if "sat" in parts else value


def _converted(value: Any, dtype: Any, parts: Sequence[str]) -> Any:
    if value.dtype.kind == "f":
        for part in _ROUNDING.keys() & set(parts):
            value = _ROUNDING[part](value)
        if dtype.kind != "f":  # to the nearest number that there is; NaN becomes 0
            return dtype.type(min(max(int(np.nan_to_num(value)), np.iinfo(dtype).min), np.iinfo(dtype).max))
    return _saturated(value.astype(dtype), parts)


def _compared(
    target: str, parts: Sequence[str], values: Sequence[Any], other: Sequence[str], known: Mapping[str, Any]
) -> dict[str, Any]:
    name, has_nan = parts[0], any(value != value for value in values)
    if name in ("num", "nan"):
        found = has_nan == (name == "nan")
    else:
        found = name.endswith("u") if has_nan else bool(_COMPARISONS[name.removesuffix("u")](*values))
    both = (np.bool_(found), np.bool_(not found))
    if other:
        with_it = known[other[0].lstrip("!")] ^ other[0].startswith("!")
        both = (_OPERATIONS[parts[1]](both[0], with_it), _OPERATIONS[parts[1]](both[1], with_it))
    return dict(zip(target.split("|"), both, strict=False))


def _packed(target: str, source: str, dtype: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """A move between one register and the two halves of its bits, <low, high>."""
    half = f"<u{dtype.itemsize // 2}"
    if target.startswith("<"):
        return dict(
            zip(
                _NAMES.findall(target.strip("<>")),
                np.frombuffer(_read(source, dtype, known).tobytes(), half),
                strict=True,
            )
        )
    low, high = (_read(name, np.dtype(half), known).tobytes() for name in _NAMES.findall(source.strip("<>")))
    return {target: np.frombuffer(low + high, f"<u{dtype.itemsize}")[0]}
