"""Run a compiled kernel on the CPU: an interpreter of the few PTX instructions that gelu is made of.

PTX's instructions and special registers: NVIDIA, Parallel Thread Execution ISA, chapters 9 and 10.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_STEPS = 20_000  # of one thread; gelu takes some forty
_LINE = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.]*)\s*(.*)")
_ARRAY_BYTES = 1 << 30  # what lies between two arrays' addresses: no index of a thread reaches the next one
_ITEM_BYTES = 4
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mad": lambda a, b, c: a * b + c,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "min": min,
    "max": max,
    "neg": lambda a: -a,
    "abs": abs,
    "mov": lambda a: a,
    "cvta": lambda a: a,
}
_FLOATS: Mapping[str, Callable[..., Any]] = {
    **{name: _FUNCTIONS[name] for name in ("add", "sub", "mul", "neg", "abs", "mov")},
    "min": np.fmin,
    "max": np.fmax,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: float(a) * float(b) + float(c),  # rounded once, when the register takes it
    "copysign": lambda sign, size: np.copysign(size, sign),
    "rcp": lambda a: np.float32(1) / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: np.float32(1) / np.sqrt(a),
    "ex2": np.exp2,
    "lg2": np.log2,
    "tanh": np.tanh,
}
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_ROUNDINGS: Mapping[str, Callable[[Any], Any]] = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


class EndlessError(Exception):
    """A thread that is still running after more steps than gelu could need."""


class AstrayError(Exception):
    """A thread that writes to another array than y, or reads what is neither x nor written."""


@dataclass(frozen=True)
class Left:
    """What the threads did: the indices of x they read, and index -> value of what they wrote to y."""

    read: set[int] = field(default_factory=set)
    written: dict[int, Any] = field(default_factory=dict)


def launch(ptx: str, x: Any, n: int, *, blocks: int, threads: int) -> Left:
    """What `blocks` x `threads` threads of the kernel gelu(x, y, n) do; x is float32 and lies before y.

    Raises NotImplementedError for an instruction that is not known here, EndlessError and AstrayError.
    """
    body = ptx[ptx.index("{", ptx.index(".entry gelu(")) :]
    lines = [line.split("//")[0].strip().rstrip(";") for line in body.splitlines()]
    left = Left()
    with np.errstate(all="ignore"):
        for block in range(blocks):
            for thread in range(threads):
                special = {"%ctaid.x": block, "%tid.x": thread, "%ntid.x": threads, "%nctaid.x": blocks}
                _Thread(lines, x, n, special, left).run()
    return left


class _Thread:
    """One thread: its registers hold Python's whole numbers, truth values and NumPy's float32."""

    def __init__(self, lines: list[str], x: Any, n: int, special: Mapping[str, int], left: Left) -> None:
        self._lines, self._x, self._left = lines, x, left
        self._labels = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
        self._values: dict[str, Any] = dict(special)
        self._parameters = {"0": _ARRAY_BYTES, "1": 2 * _ARRAY_BYTES, "2": n}
        self._at = 0

    def run(self) -> None:
        """Take the thread to its end."""
        for _ in range(_STEPS):
            line = self._lines[self._at]
            self._at += 1
            match = _LINE.fullmatch(line)
            if match is None or line.endswith(":"):
                continue
            negated, predicate, name, rest = match.groups()
            try:
                if predicate and bool(self._values[predicate]) == bool(negated):
                    continue
                if name in ("ret", "exit"):
                    return
                self._step(name, [part.strip() for part in rest.split(",")])
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise NotImplementedError(line) from error
        raise EndlessError

    def _step(self, name: str, operands: list[str]) -> None:
        kind, last = name.split(".")[0], name.split(".")[-1]
        target, sources = operands[0], operands[1:]
        if ".sat" in name or ".hi" in name or re.search(r"\.v\d", name):
            raise NotImplementedError(name)
        if kind == "bra":
            self._at = self._labels[target]
        elif name.startswith("ld.param."):
            self._values[target] = self._parameters[sources[0].strip("[]")[-1]]
        elif name.startswith("ld.global."):
            self._values[target] = self._load(sources[0])
        elif name.startswith("st.global."):
            self._store(target, self._value(sources[0]))
        elif kind == "setp":
            self._values[target] = self._compared(name.split(".")[1], sources, last)
        elif kind == "selp":
            self._values[target] = self._value(sources[0] if self._values[sources[2]] else sources[1])
        elif kind == "cvt":
            self._values[target] = self._converted(name, sources[0])
        elif last == "f32":
            self._values[target] = np.float32(_FLOATS[kind](*(_as_float(self._value(one)) for one in sources)))
        elif last == "pred":
            known = [bool(self._value(one)) for one in sources]
            self._values[target] = not known[0] if kind == "not" else _FUNCTIONS[kind](*known)
        else:
            self._values[target] = _FUNCTIONS[kind](*(_as_whole(self._value(one)) for one in sources))

    def _value(self, operand: str) -> Any:
        if operand.startswith("0f"):
            return np.float32(struct.unpack(">f", bytes.fromhex(operand[2:]))[0])
        return self._values[operand] if operand.startswith("%") else int(operand)

    def _place(self, operand: str) -> tuple[int, int]:
        """The array and the index in it of an address such as [%rd1+4]; array 0 is x, 1 is y."""
        parts = operand.strip("[]").split("+")
        address = self._value(parts[0]) + sum(int(part) for part in parts[1:])
        array = round(address / _ARRAY_BYTES) - 1
        offset = address - (array + 1) * _ARRAY_BYTES
        if offset % _ITEM_BYTES:
            raise NotImplementedError(operand)
        return array, offset // _ITEM_BYTES

    def _load(self, operand: str) -> Any:
        array, index = self._place(operand)
        if array == 1 and index in self._left.written:
            return np.float32(self._left.written[index])
        if array != 0:
            raise AstrayError
        self._left.read.add(index)
        return self._x[index] if 0 <= index < len(self._x) else np.float32(np.nan)

    def _store(self, operand: str, value: Any) -> None:
        array, index = self._place(operand)
        if array != 1:
            raise AstrayError
        self._left.written[index] = float(_as_float(value))

    def _compared(self, comparison: str, sources: list[str], last: str) -> bool:
        if len(sources) != 2:
            raise NotImplementedError(comparison)
        as_number = _as_float if last == "f32" else _as_whole
        first, second = (as_number(self._value(one)) for one in sources)
        if comparison.endswith("u") and comparison[:-1] in _OPPOSITE:  # true for what can't be ordered, such as NaN
            return not _COMPARISONS[_OPPOSITE[comparison[:-1]]](first, second)
        return bool(_COMPARISONS[comparison](first, second))

    def _converted(self, name: str, source: str) -> Any:
        *roundings, to, before = name.split(".")[1:]
        value = _as_float(self._value(source)) if before == "f32" else _as_whole(self._value(source))
        for rounding in roundings:
            value = _ROUNDINGS[rounding](value) if before == "f32" and rounding in _ROUNDINGS else value
        return np.float32(value) if to == "f32" else int(value)


def _as_float(value: Any) -> Any:
    """A register's 32 bits as a float."""
    if isinstance(value, np.float32):
        return value
    return np.float32(struct.unpack("<f", struct.pack("<I", int(value) & 0xFFFFFFFF))[0])


def _as_whole(value: Any) -> int:
    """A register's bits as a whole number with a sign."""
    if isinstance(value, np.float32):
        return int(struct.unpack("<i", struct.pack("<f", value))[0])
    return int(value)
