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
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.program import Operations, Site
from kerneltrace.ptx.arithmetic import FUNCTIONS, function_of
from kerneltrace.ptx.flow import waits_of_loads
from kerneltrace.ptx.memory import LOCAL, Memory
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
        self.compared = {
            word
            for item in function.code
            if isinstance(item, Instruction) and item.name == "setp"
            for word in item.operands
        }
        """Registers that are compared with something."""
        # for each register the arrays whose addresses it is worked out from
        self._origins: dict[str, set[str]] = {}
        self._find_origins()
        self._waits = waits_of_loads(function)
        self._makers: dict[str, Callable[[Instruction], Step | None]] = {
            "mov": self._mov,
            "cvta": self._mov,
            "ld": self._ld,
            "st": self._st,
            "setp": self._setp,
            "set": self._set,
            "selp": self._selp,
            "cvt": self._cvt,
        }

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
            address = np.array(self.memory.spans[word].low, "u8")
            return self.fixed(as_type(address, dtype))
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

    def results(self, word: str) -> tuple[Result, int]:
        """A function that writes the columns of an array to the registers of a vector
        `<%r1, %r2>`, or to one register; and how many these are.
        """
        return self._columns(words_of(word))

    def _columns(self, words: list[str]) -> tuple[Result, int]:
        writes = [*map(self.result, words)]

        def write_all(t: Threads, values: Any) -> None:
            for i, write in enumerate(writes):
                write(t, values[..., i])

        return write_all, len(writes)

    def _register(self, word: str) -> str:
        registers = self.function.registers
        return registers.get(word) or registers.get(word.rstrip("0123456789"), "")

    def address(
        self, word: str, *, is_local: bool = False
    ) -> tuple[Source, tuple[str, ...]]:
        """A function that gives the addresses that an operand `[%rd1+8]` names, and the
        arrays that it is meant for; of local memory a register may have the lower 32
        bits alone.
        """
        match = _PLACE.fullmatch(word)
        if match is None:
            raise KeyError(word)
        base = match[1]
        offset = int(match[2] or "0", 0)
        is_short = self._register(base)[1:] == "32"
        if is_short and is_local:
            offset += LOCAL
        value = self.source(base, np.dtype("i4" if is_short else "i8"))

        def at(t: Threads) -> Any:
            address = value(t).astype(np.int64) + offset
            return address if address.ndim else np.full(t.n, address)

        return at, tuple(sorted(self._origin(base)))

    def site(
        self, kind: str, instruction: Instruction, call: str = "", *, used: bool = True
    ) -> int:
        """The number of a new place that logs events."""
        sites = self.execution.sites
        if len(sites) == SITES:
            raise KernelError(
                f"The kernel has over {SITES} accesses and branches in its PTX. Trace a"
                " part of it."
            )
        line = instruction.line
        text = self.lines.get(line, instruction.opcode)
        waits = self._waits.get(id(instruction), (0, False))
        site = Site(kind, line, self.kernel, text, Operations(), call, used, waits)
        sites.append(site)
        return len(sites) - 1

    # -- which array an address is meant for

    def _origin(self, word: str) -> set[str]:
        return self._origins.get(word) or ({word} & self.memory.spans.keys())

    def _find_origins(self) -> None:
        code = [
            item
            for item in self.function.code
            if isinstance(item, Instruction) and _may_carry_address(item)
        ]
        grown = True
        while grown:
            grown = False
            for instruction in code:
                target = instruction.operands[0]
                origins = self._origins.setdefault(target, set())
                sources = self._origins_of_operands(instruction)
                if not sources <= origins:
                    origins |= sources
                    grown = True

    def _origins_of_operands(self, instruction: Instruction) -> set[str]:
        """The arrays from whose addresses an instruction computes its result."""
        operands = instruction.operands[1:]
        if instruction.name == "mad":
            operands = operands[2:]  # of a product comes no address
        elif instruction.name == "ld":
            operands = tuple(map(parameter_place, operands))
        origins: set[str] = set()
        for name in operands:
            if name in self._pointers:
                origins.add(self._pointers[name])
            else:
                origins |= self._origin(name)
        return origins

    # -- instructions

    def arithmetic(self, instruction: Instruction) -> Step | None:
        """A step for an instruction that computes one number from others; None where it
        is none of these.
        """
        make = self._makers.get(instruction.name)
        if make is not None:
            return make(instruction)
        computed = function_of(instruction)
        if computed is None:
            return None
        function, kinds = computed
        write = self.result(instruction.operands[0])
        sources = [*map(self.source, instruction.operands[1:], kinds)]
        return lambda t: write(t, function(*[source(t) for source in sources]))

    def _mov(self, instruction: Instruction) -> Step:
        """Copy a register, take a vector's parts out of one, or put them into one."""
        targets, sources = map(words_of, instruction.operands)
        dtype = TYPES[instruction.parts[-1]]
        bits = np.dtype(f"u{dtype.itemsize}")
        count = max(len(targets), len(sources))
        part_bits = np.dtype(f"u{dtype.itemsize // count}")
        write = self.result(targets[0])
        if len(targets) > 1:
            whole = self.source(sources[0], bits)
            write, _ = self._columns(targets)
            return lambda t: write(t, whole(t)[..., None].view(part_bits))
        if len(sources) > 1:
            parts = self.gathered(sources, part_bits)
            return lambda t: write(t, parts(t).view(bits)[..., 0])
        plain = self.source(sources[0], dtype)
        return lambda t: write(t, plain(t))

    def _ld(self, instruction: Instruction) -> Step | None:
        """The load of a parameter; None for other loads."""
        if "param" not in instruction.parts:
            return None
        names = words_of(instruction.operands[0])
        dtype = TYPES[instruction.parts[-1]]
        places = self._places(instruction.operands[1], dtype, len(names))
        name, offset = places[0].rsplit("+", 1)
        contents = self._parameters.get(name)
        write, count = self._columns(names)
        if contents is None:
            parts = self.gathered(places, dtype)
            return lambda t: write(t, parts(t))
        values = np.frombuffer(contents, dtype, count, int(offset))
        return lambda t: write(t, values)

    def _st(self, instruction: Instruction) -> Step | None:
        """The store of a call's parameter; None for other stores."""
        if "param" not in instruction.parts:
            return None
        names = words_of(instruction.operands[1])
        dtype = TYPES[instruction.parts[-1]]
        places = self._places(instruction.operands[0], dtype, len(names))
        write, _ = self._columns(places)
        values = self.gathered(names, dtype)
        return lambda t: write(t, values(t))

    def _places(self, operand: str, dtype: np.dtype[Any], count: int) -> list[str]:
        name, offset = parameter_place(operand).rsplit("+", 1)
        return [f"{name}+{int(offset) + i * dtype.itemsize}" for i in range(count)]

    def _setp(self, instruction: Instruction) -> Step:
        """Compare two numbers, and combine that with a third operand where there is
        one.
        """
        operands = instruction.operands
        writes = [self.result(name) for name in operands[0].split("|")]
        compare = self._comparison(instruction)
        third = None
        if len(operands) > 3:
            third = self.source(operands[3], TYPES["pred"])
        combine = FUNCTIONS.get(instruction.parts[1], np.bitwise_and)

        def step(t: Threads) -> None:
            truths = compare(t)  # (threads, numbers)
            is_pair = truths.shape[-1] > 1
            for i, write in enumerate(writes):
                # of one number the second predicate gets the opposite
                value = truths[..., i] if i == 0 or is_pair else ~truths[..., 0]
                write(t, value if third is None else combine(value, third(t)))

        return step

    def _comparison(self, instruction: Instruction) -> Source:
        """A function that compares two operands: a truth value for each number, two for
        a pair of 16 bits.
        """
        name = instruction.parts[0]
        kind = instruction.parts[-1]
        left = self.source(instruction.operands[1], TYPES[kind])
        right = self.source(instruction.operands[2], TYPES[kind])
        return lambda t: compared(name, opened(left(t), kind), opened(right(t), kind))

    def _set(self, instruction: Instruction) -> Step:
        """Compare, and give 1.0 or all bits where it is true."""
        into = instruction.parts[-2]
        compare = self._comparison(instruction)
        write = self.result(instruction.operands[0])
        dtype = TYPES[into]

        def step(t: Threads) -> None:
            truths = compare(t)  # (threads, numbers)
            if "f16" in into:
                write(t, closed(truths.astype("f4"), into))
            elif dtype.kind == "f":
                write(t, truths[..., 0].astype(dtype))
            else:
                bytes_each = dtype.itemsize // truths.shape[-1]
                all_ones = -truths.astype(f"i{bytes_each}")
                write(t, all_ones.view(dtype)[..., 0])

        return step

    def _selp(self, instruction: Instruction) -> Step:
        dtype = TYPES[instruction.parts[-1]]
        target, yes_word, no_word, predicate = instruction.operands
        write = self.result(target)
        yes = self.source(yes_word, dtype)
        no = self.source(no_word, dtype)
        test = self.source(predicate, TYPES["pred"])
        return lambda t: write(t, np.where(test(t), yes(t), no(t)))

    def _cvt(self, instruction: Instruction) -> Step:
        parts = instruction.parts
        into, out_of = (part for part in parts if part in TYPES)
        write = self.result(instruction.operands[0])
        if into in ("bf16x2", "f16x2"):
            least = np.float32(0 if "relu" in parts else -np.inf)
            # the first operand becomes the upper half
            words = instruction.operands[:0:-1]
            pair = self.gathered(words, TYPES[out_of])
            return lambda t: write(t, closed(np.maximum(pair(t), least), into))
        value = self.source(instruction.operands[1], TYPES[out_of])
        if into in ("tf32", "bf16"):
            shorten = to_tf32 if into == "tf32" else narrowed
            return lambda t: write(t, shorten(np.asarray(value(t), np.float32)))
        dtype = TYPES[into]

        def step(t: Threads) -> None:
            numbers = opened(value(t), out_of)[..., 0]
            write(t, converted(numbers, dtype, parts))

        return step


def words_of(operand: str) -> list[str]:
    """The parts of a vector `<%r1, %r2>`, or the operand itself."""
    return [word.strip() for word in operand.strip("<>").split(",")]


def parameter_place(operand: str) -> str:
    """`name+8` for `[name+8]`, `name+0` for `[name]`."""
    match = _PLACE.fullmatch(operand)
    return f"{match[1]}+{int(match[2] or '0', 0)}" if match else operand


def _may_carry_address(instruction: Instruction) -> bool:
    """Whether an instruction may work out an address from its operands."""
    if instruction.name not in _CARRIES_ADDRESS or len(instruction.operands) < 2:
        return False
    return instruction.name != "ld" or "param" in instruction.parts
