"""Turn each instruction of a kernel into a step, a function that does it for the
threads that take part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.log.event_log import SITES
from kerneltrace.log.execution import Execution
from kerneltrace.log.program import Operations, Site
from kerneltrace.ptx.arithmetic import FUNCTIONS, function_of
from kerneltrace.ptx.flow import waits_of_loads
from kerneltrace.ptx.memory import Memory
from kerneltrace.ptx.text import Function, Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import (
    REGISTERS,
    TYPES,
    as_type,
    closed,
    compared,
    constant,
    converted,
    narrowed,
    opened,
    to_tf32,
)

Step = Callable[[Threads], None]
Source = Callable[[Threads], Any]
Result = Callable[[Threads, Any], None]
_PLACE = re.compile(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_CARRIES_ADDRESS = (
    "mov",
    "add",
    "sub",
    "cvta",
    "cvt",
    "selp",
    "mad",
    "ld",
    "or",
    "and",
)


class Decoder:
    """What instructions refer to: registers, parameters, variables, lines of the
    source.
    """

    def __init__(
        self,
        execution: Execution,
        memory: Memory,
        function: Function,
        parameters: Mapping[str, bytes],
        pointers: Mapping[str, str],
        source: Mapping[int, str],
    ) -> None:
        """`pointers` names the array that each parameter at an offset (`name+8`) points
        to, `source` has lines.
        """
        self.execution = execution
        self.memory = memory
        self.function = function
        self._parameters = parameters
        self._pointers = pointers
        self.lines = source
        self.kernel = execution.settings.fn.__name__
        self.uses = Counter(function.words)
        tests = [
            one
            for one in function.code
            if isinstance(one, Instruction) and one.name == "setp"
        ]
        self.compared = {word for one in tests for word in one.operands}
        """Registers that are compared with something."""
        # for each register the arrays whose addresses it is worked out from
        self._origins: dict[str, set[str]] = {}
        self._find_origins()
        self._waits = waits_of_loads(function)

    # -- operands

    def source(self, word: str, dtype: np.dtype[Any]) -> Source:
        """A function that gives an operand's value in a type."""
        if word[0] == "!":
            inner = self.source(word[1:], dtype)
            return lambda t: ~inner(t)
        if word[0] == "%" or "+" in word or word == "WARP_SZ" or self._register(word):
            return lambda t: as_type(t.get(word), dtype)
        if word[0].isdigit() or word[0] == "-":
            return self.fixed(np.asarray(constant(word, dtype)))
        if word in self.memory.spans:
            return self.fixed(
                as_type(np.array(self.memory.spans[word].low, "u8"), dtype)
            )
        raise KeyError(word)

    def gathered(self, words: Sequence[str], dtype: np.dtype[Any]) -> Source:
        """A function that gives several operands as an array (threads, operands)."""
        sources = [self.source(word, dtype) for word in words]
        return lambda t: np.stack(
            [np.broadcast_to(source(t), t.n) for source in sources], axis=-1
        )

    def fixed(self, value: Any) -> Source:
        """A function that gives one value for all threads."""
        return lambda t: value

    def result(self, word: str) -> Result:
        """A function that writes a register, or a parameter of a call."""
        kind = self._register(word)
        if word == "_":
            return lambda t, value: None
        if not kind:
            return lambda t, value: t.put(word, value)
        dtype = REGISTERS[kind]
        return lambda t, value: t.put(word, as_type(np.asarray(value), dtype))

    def results(self, word: str) -> list[Result]:
        """Those of a vector `<%r1, %r2>`, or of one register."""
        return [self.result(one) for one in words_of(word)]

    def _register(self, word: str) -> str:
        registers = self.function.registers
        return registers.get(word) or registers.get(word.rstrip("0123456789"), "")

    def address(self, word: str) -> tuple[Source, tuple[str, ...]]:
        """A function that gives the addresses that an operand `[%rd1+8]` names, and the
        arrays that it is meant for.
        """
        match = _PLACE.fullmatch(word)
        if match is None:
            raise KeyError(word)
        base = match[1]
        offset = int(match[2] or "0", 0)
        wide = self._register(base)[1:] == "32"
        value = self.source(base, np.dtype("i4" if wide else "i8"))

        def at(t: Threads) -> Any:
            address = value(t).astype(np.int64) + offset
            return address if address.ndim else np.full(t.n, address)

        return at, tuple(sorted(self._origin(base)))

    def site(
        self, kind: str, one: Instruction, call: str = "", *, used: bool = True
    ) -> int:
        """The number of a new place that logs events."""
        sites = self.execution.sites
        if len(sites) == SITES:
            raise KernelError(
                f"The kernel has over {SITES} accesses and branches in its PTX. Trace a"
                " part of it."
            )
        text = self.lines.get(one.line, one.opcode)
        waits = self._waits.get(id(one), (0, False))
        sites.append(
            Site(kind, one.line, self.kernel, text, Operations(), call, used, waits)
        )
        return len(sites) - 1

    # -- which array an address is meant for

    def _origin(self, word: str) -> set[str]:
        return self._origins.get(word) or ({word} & self.memory.spans.keys())

    def _find_origins(self) -> None:
        code = [
            one
            for one in self.function.code
            if isinstance(one, Instruction) and one.name in _CARRIES_ADDRESS
        ]
        grown = True
        while grown:
            grown = False
            for one in code:
                if len(one.operands) < 2 or (
                    one.name in ("ld", "st") and "param" not in one.parts
                ):
                    continue
                target, *sources = one.operands
                new = set()
                for source in sources[2:] if one.name == "mad" else sources:
                    name = parameter_place(source) if one.name == "ld" else source
                    new |= (
                        {self._pointers[name]}
                        if name in self._pointers
                        else self._origin(name)
                    )
                if not new <= self._origins.get(target, set()):
                    self._origins[target] = self._origins.get(target, set()) | new
                    grown = True

    # -- instructions

    def arithmetic(self, one: Instruction) -> Step | None:
        """A step for an instruction that computes one number from others; None where it
        is none of these.
        """
        make = getattr(self, f"_{one.name}", None)
        if make is not None:
            return make(one)  # type: ignore[no-any-return]
        known = function_of(one)
        if known is None:
            return None
        function, kinds = known
        write = self.result(one.operands[0])
        sources = [*map(self.source, one.operands[1:], kinds)]
        return lambda t: write(t, function(*[source(t) for source in sources]))

    def _mov(self, one: Instruction) -> Step:
        target, source = map(words_of, one.operands)
        dtype = TYPES[one.parts[-1]]
        part, whole = (
            np.dtype(f"u{dtype.itemsize // n}")
            for n in (max(len(target), len(source)), 1)
        )
        if len(target) > 1:
            bits = self.source(source[0], whole)
            return self._columns(target, lambda t: bits(t)[..., None].view(part))
        if len(source) > 1:
            parts = self.gathered(source, part)
            return self._columns(target, lambda t: parts(t).view(whole))
        write = self.result(target[0])
        plain = self.source(source[0], dtype)
        return lambda t: write(t, plain(t))

    def _columns(self, words: list[str], values: Source) -> Step:
        """A step that writes the columns of an array to registers."""
        writes = [*map(self.result, words)]

        def step(t: Threads) -> None:
            found = values(t)
            for i, write in enumerate(writes):
                write(t, found[..., i])

        return step

    _cvta = _mov

    def _ld(self, one: Instruction) -> Step | None:
        """The load of a parameter; None for other loads."""
        if "param" not in one.parts:
            return None
        names = words_of(one.operands[0])
        dtype = TYPES[one.parts[-1]]
        places = self._places(one.operands[1], dtype, len(names))
        name, at = places[0].rsplit("+", 1)
        if name in self._parameters:
            return self._columns(
                names,
                self.fixed(
                    np.frombuffer(self._parameters[name], dtype, len(names), int(at))
                ),
            )
        return self._columns(names, self.gathered(places, dtype))

    def _st(self, one: Instruction) -> Step | None:
        if "param" not in one.parts:
            return None
        names = words_of(one.operands[1])
        dtype = TYPES[one.parts[-1]]
        return self._columns(
            self._places(one.operands[0], dtype, len(names)),
            self.gathered(names, dtype),
        )

    def _places(self, operand: str, dtype: np.dtype[Any], many: int) -> list[str]:
        name, at = parameter_place(operand).rsplit("+", 1)
        return [f"{name}+{int(at) + i * dtype.itemsize}" for i in range(many)]

    def _setp(self, one: Instruction) -> Step:
        """Compare two numbers, and combine that with a third operand where there is
        one.
        """
        writes = [self.result(name) for name in one.operands[0].split("|")]
        compare = self._comparison(one)
        other = (
            self.source(one.operands[3], TYPES["pred"])
            if len(one.operands) > 3
            else None
        )
        combine = FUNCTIONS.get(one.parts[1], np.bitwise_and)

        def step(t: Threads) -> None:
            truths = compare(t)
            for i, write in enumerate(writes):  # of a pair both, of one its opposite
                value = truths[..., i] if i < truths.shape[-1] else ~truths[..., 0]
                write(t, value if other is None else combine(value, other(t)))

        return step

    def _comparison(self, one: Instruction) -> Source:
        """A function that compares two operands: a truth value for each number, two for
        a pair of 16 bits.
        """
        kind = one.parts[-1]
        a, b = (self.source(word, TYPES[kind]) for word in one.operands[1:3])
        return lambda t: compared(one.parts[0], opened(a(t), kind), opened(b(t), kind))

    def _set(self, one: Instruction) -> Step:
        """Compare, and give 1.0 or all bits where it is true."""
        into = one.parts[-2]
        compare = self._comparison(one)
        write = self.result(one.operands[0])
        dtype = TYPES[into]

        def step(t: Threads) -> None:
            truths = compare(t)
            if "f16" in into:
                write(t, closed(truths.astype("f4"), into))
            elif dtype.kind == "f":
                write(t, truths[..., 0].astype(dtype))
            else:
                write(
                    t,
                    (-truths.astype(f"i{dtype.itemsize // truths.shape[-1]}")).view(
                        dtype
                    )[..., 0],
                )

        return step

    def _selp(self, one: Instruction) -> Step:
        dtype = TYPES[one.parts[-1]]
        write = self.result(one.operands[0])
        test = self.source(one.operands[3], TYPES["pred"])
        yes, no = (self.source(word, dtype) for word in one.operands[1:3])
        return lambda t: write(t, np.where(test(t), yes(t), no(t)))

    def _cvt(self, one: Instruction) -> Step:
        into, out_of = (part for part in one.parts if part in TYPES)
        write = self.result(one.operands[0])
        read_as = TYPES[out_of]
        if into in ("bf16x2", "f16x2"):
            least = np.float32(0 if "relu" in one.parts else -np.inf)
            pair = self.gathered(one.operands[:0:-1], read_as)
            return lambda t: write(t, closed(np.maximum(pair(t), least), into))
        dtype = TYPES[into]
        value = self.source(one.operands[1], read_as)
        if into in ("tf32", "bf16"):
            shorten = to_tf32 if into == "tf32" else narrowed
            return lambda t: write(t, shorten(np.asarray(value(t), np.float32)))
        return lambda t: write(
            t, converted(opened(value(t), out_of)[..., 0], dtype, one.parts)
        )


def words_of(operand: str) -> list[str]:
    """The parts of a vector `<%r1, %r2>`, or the operand itself."""
    return [word.strip() for word in operand.strip("<>").split(",")]


def parameter_place(operand: str) -> str:
    """`name+8` for `[name+8]`, `name+0` for `[name]`."""
    match = _PLACE.fullmatch(operand)
    return f"{match[1]}+{int(match[2] or '0', 0)}" if match else operand
