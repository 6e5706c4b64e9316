"""Run a compiled kernel on the CPU: all threads in step, for the few PTX instructions that gelu is made of.

PTX's instructions and special registers: NVIDIA, Parallel Thread Execution ISA, chapters 9 and 10.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LINE = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.]*)\s*(.*)")
_ARRAY_BYTES = 1 << 30  # between the addresses of two arrays: no thread's index reaches the next one
_ITEM_BYTES = 4
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mad": lambda a, b, c: a * b + c,
    "fma": lambda a, b, c: a.astype(float) * b + c,  # rounded once, when the register takes it
    "neg": np.negative,
    "abs": np.abs,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
    "shl": np.left_shift,
    "mov": np.copy,
    "cvta": np.copy,
    "copysign": lambda sign, size: np.copysign(size, sign),
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "ex2": np.exp2,
    "tanh": np.tanh,
}
_COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


class WrongArrayError(Exception):
    """A thread writes to another array than y."""


class GeluLaunch:
    """What `blocks` x `threads` threads of the kernel gelu(x, y, n) do; x is float32.

    `read` has the indices of x that they read, `written` the numbers in y by index. Raises WrongArrayError, and
    NotImplementedError for an instruction that is not known here, loops included.
    """

    def __init__(self, ptx: str, x: Array, n: int, *, blocks: int, threads: int) -> None:
        self._x = x
        self.read: set[int] = set()
        self.written: dict[int, float] = {}
        thread = np.arange(blocks * threads)
        self._active = np.full(len(thread), True)
        # label -> threads that have branched to it
        self._waiting: defaultdict[str, Array] = defaultdict(lambda: np.full(len(thread), False))
        self._passed: set[str] = set()
        self._parameters = {"0": _ARRAY_BYTES, "1": 2 * _ARRAY_BYTES, "2": n}
        special = {"%ctaid.x": thread // threads, "%tid.x": thread % threads}
        self._values = special | {"%ntid.x": 0 * thread + threads, "%nctaid.x": 0 * thread + blocks}
        body = ptx[ptx.index("{", ptx.index(".entry gelu(")) :]
        with np.errstate(all="ignore"):
            for line in (line.split("//")[0].strip().rstrip(";") for line in body.splitlines()):
                self._run(line)

    def _run(self, line: str) -> None:
        if line.endswith(":"):
            self._passed.add(line[:-1])
            self._active |= self._waiting[line[:-1]]
        elif match := _LINE.fullmatch(line):
            negated, predicate, name, rest = match.groups()
            target, *sources = (part.strip() for part in rest.split(","))
            try:
                if name.split(".")[0] == "bra":
                    self._branch(target, self._values[predicate] ^ bool(negated) if predicate else self._active)
                elif predicate:
                    raise NotImplementedError(line)
                elif name == "ret":
                    self._active &= False
                elif name.startswith("st.global."):
                    self._store(target, self._values[sources[0]])
                else:
                    value = self._result(name, sources)
                    self._values[target] = np.where(self._active, value, self._values.get(target, value))
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise NotImplementedError(line) from error

    def _branch(self, label: str, taken: Array) -> None:
        if label in self._passed:
            raise NotImplementedError(f"a loop to {label}")
        self._waiting[label] |= self._active & taken
        self._active &= ~taken

    def _result(self, name: str, sources: list[str]) -> Array:
        kind, *parts = name.split(".")
        if {"sat", "hi"} & set(parts) or (kind == "cvt" and parts not in (["s64", "s32"], ["u64", "u32"])):
            raise NotImplementedError(name)
        if name.startswith("ld.param."):
            return np.full(len(self._active), self._parameters[sources[0].strip("[]")[-1]])
        if name.startswith("ld.global."):
            return self._load(sources[0])
        values = [self._value(one) for one in sources]
        if kind == "selp":
            return np.where(values[2], values[0], values[1])
        # Bits of a float as a whole number, or the other way round: not known here.
        if any((value.dtype == np.float32) != (parts[-1] == "f32") for value in values):
            raise NotImplementedError(name)
        if kind == "setp":
            unordered = parts[0].endswith("u") and (np.isnan(values[0]) | np.isnan(values[1]))
            return np.asarray(_COMPARISONS[parts[0].removesuffix("u")](*values) | unordered)
        found = values[0] if kind == "cvt" else _OPERATIONS[kind](*values)
        return np.asarray(found, values[0].dtype)

    def _value(self, operand: str) -> Array:
        if operand.startswith("%"):
            return self._values[operand]
        if operand.startswith("0f"):
            return np.full(len(self._active), struct.unpack(">f", bytes.fromhex(operand[2:]))[0], np.float32)
        return np.full(len(self._active), int(operand))

    def _place(self, operand: str) -> tuple[bool, Array]:
        """Whether an address such as [%rd1+4] lies in y, not x, and each thread's index there."""
        base, *offsets = operand.strip("[]").split("+")
        address = self._values[base] + sum(map(int, offsets))
        array = round(float(address[self._active].mean()) / _ARRAY_BYTES)
        return array == 2, (address - array * _ARRAY_BYTES) // _ITEM_BYTES

    def _load(self, operand: str) -> Array:
        in_y, index = self._place(operand)
        if in_y:
            return np.array([self.written.get(int(i), np.nan) for i in index], np.float32)
        self.read.update(index[self._active].tolist())
        return self._x.take(index, mode="clip")  # whoever reads outside of x is judged by `read`

    def _store(self, operand: str, value: Array) -> None:
        in_y, index = self._place(operand)
        if not in_y:
            raise WrongArrayError
        self.written.update(zip(index[self._active].tolist(), value[self._active].tolist(), strict=True))
