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
from kerneltrace.machine.needs import Needs, needed_by
from kerneltrace.machine.program import Operations, Site
from kerneltrace.ptx.arithmetic import FUNCTIONS, function_of
from kerneltrace.ptx.flow import waits_of_loads
from kerneltrace.ptx.memory import LOCAL, Memory
from kerneltrace.ptx.text import Function, Instruction, words_of
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import (
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
        # what the addresses in each register are worked out from
        self._sources_of_addresses = Needs(set)
        for item in function.code:
            if isinstance(item, Instruction) and _may_carry_address(item):
                needed = _address_operands(item)
                self._sources_of_addresses[item.operands[0]].update(needed)
        self._waits = waits_of_loads(function)
        self._makers: dict[str, Callable[[Instruction], Step | None]] = {
            "mov": self._mov,
            "cvta": self._mov,
            "ld": self._parameter,
            "st": self._parameter,
            "setp": self._setp,
            "set": self._set,
            "selp": self._selp,
            "cvt": self._cvt,
        }

    # -- operands

    def source(self, word: str, kind: str) -> Source:
        """A function that gives an operand's value in a type: a register, a number, an
        array's address, or a parameter as `name+8`.
        """
        dtype = TYPES[kind]
        if word[0] == "!":
            inner = self.source(word[1:], kind)
            return lambda t: ~inner(t)
        name, _, offset = word.rpartition("+")
        if name in self._parameters:
            contents = self._parameters[name]
            return self.fixed(np.frombuffer(contents, dtype, 1, int(offset))[0])
        if word[0] == "%" or name or word == "WARP_SZ" or self._register(word):
            return lambda t: as_type(t.get(word), dtype)
        if word[0].isdigit() or word[0] == "-":
            return self.fixed(np.asarray(constant(word, dtype)))
        if word in self.memory.regions:
            address = np.array(self.memory.regions[word].span[0], "u8")
            return self.fixed(as_type(address, dtype))
        raise KeyError(word)

    def sources(self, instruction: Instruction, *kinds: str) -> list[Source]:
        """Functions that give what follows an instruction's result, in these types."""
        words = instruction.operands[1:]
        return [
            self.source(word, kind) for word, kind in zip(words, kinds, strict=False)
        ]

    def gathered(self, words: Sequence[str], kind: str) -> Source:
        """A function that gives several operands as an array (threads, operands)."""
        sources = [self.source(word, kind) for word in words]
        return lambda t: np.stack([t.each(source) for source in sources], axis=-1)

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
        # other registers hold bits
        bits = "" if kind in ("f32", "f64") else f"b{kind[1:]}"
        dtype = TYPES.get(bits, TYPES[kind])
        return lambda t, value: t.put(word, as_type(np.asarray(value), dtype))

    def results(self, word: str) -> tuple[Result, int]:
        """A function that writes the columns of an array to the registers of a vector
        `<%r1, %r2>`, or to one register; and how many these are.
        """
        writes = [*map(self.result, words_of(word))]

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
        value = self.source(base, "s32" if is_short else "s64")

        def at(t: Threads) -> Any:
            address = value(t).astype(np.int64) + offset
            return address if address.ndim else np.full(t.n, address)

        return at, self._origins(base)

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

    def _origins(self, word: str) -> tuple[str, ...]:
        """The arrays from whose addresses a register's is worked out."""
        words = {word} | needed_by(word, self._sources_of_addresses)
        pointers = {self._pointers[each] for each in words & self._pointers.keys()}
        return tuple(sorted(pointers | (words & self.memory.regions.keys())))

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
        target, source = instruction.operands
        write, targets = self.results(target)
        sources = words_of(source)
        kind = f"b{8 * instruction.dtype.itemsize}"
        bits = TYPES[kind]
        part = f"b{8 * bits.itemsize // max(targets, len(sources))}"
        if targets > 1:
            whole = self.source(source, kind)
            return lambda t: write(t, whole(t)[..., None].view(TYPES[part]))
        write_one = self.result(target)
        if len(sources) > 1:
            parts = self.gathered(sources, part)
            return lambda t: write_one(t, parts(t).view(bits)[..., 0])
        plain = self.source(source, instruction.kind)
        if instruction.name == "cvta" and instruction.parts[0] == "local":
            # where the address is the lower 32 bits of one
            return lambda t: write_one(t, plain(t) | LOCAL)
        return lambda t: write_one(t, plain(t))

    def _parameter(self, instruction: Instruction) -> Step | None:
        """The load or store of a parameter, of the kernel or of a call; None for other
        loads and stores.
        """
        if "param" not in instruction.parts:
            return None
        operands = instruction.operands
        size = instruction.dtype.itemsize
        count = max(len(words_of(operand)) for operand in operands)
        targets, sources = (_slots(operand, size, count) for operand in operands)
        moves = [
            (self.result(target), self.source(source, instruction.kind))
            for target, source in zip(targets, sources, strict=True)
        ]

        def step(t: Threads) -> None:
            for write, value in moves:
                write(t, value(t))

        return step

    def _setp(self, instruction: Instruction) -> Step:
        """Compare two numbers, and combine that with a third operand where there is
        one.
        """
        writes = [self.result(name) for name in instruction.operands[0].split("|")]
        compare = self._comparison(instruction)
        third = self.source([*instruction.operands, "1"][3], "pred")
        combine = FUNCTIONS.get(instruction.parts[1], np.bitwise_and)

        def step(t: Threads) -> None:
            truths = compare(t)  # (threads, numbers)
            if len(writes) > truths.shape[-1]:
                # of one number the second predicate gets the opposite
                truths = np.concatenate([truths, ~truths], axis=-1)
            for i, write in enumerate(writes):
                write(t, combine(truths[..., i], third(t)))

        return step

    def _comparison(self, instruction: Instruction) -> Source:
        """A function that compares two operands: a truth value for each number, two for
        a pair of 16 bits.
        """
        name = instruction.parts[0]
        kind = instruction.kind
        left, right = self.sources(instruction, kind, kind)
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
        kind = instruction.kind
        write = self.result(instruction.operands[0])
        yes, no, test = self.sources(instruction, kind, kind, "pred")
        return lambda t: write(t, np.where(test(t), yes(t), no(t)))

    def _cvt(self, instruction: Instruction) -> Step:
        parts = instruction.parts
        into, out_of = (part for part in parts if part in TYPES)
        write = self.result(instruction.operands[0])
        if into in ("bf16x2", "f16x2"):
            least = np.float32(0 if "relu" in parts else -np.inf)
            # the first operand becomes the upper half
            words = instruction.operands[:0:-1]
            pair = self.gathered(words, out_of)
            return lambda t: write(t, closed(np.maximum(pair(t), least), into))
        (value,) = self.sources(instruction, out_of)
        if into in ("tf32", "bf16"):
            shorten = to_tf32 if into == "tf32" else narrowed
            return lambda t: write(t, shorten(np.asarray(value(t), np.float32)))
        dtype = TYPES[into]

        def step(t: Threads) -> None:
            numbers = opened(value(t), out_of)[..., 0]
            write(t, converted(numbers, dtype, parts))

        return step


def parameter_place(operand: str) -> str:
    """`name+8` for `[name+8]`, `name+0` for `[name]`."""
    match = _PLACE.fullmatch(operand)
    return f"{match[1]}+{int(match[2] or '0', 0)}" if match else operand


def _address_operands(instruction: Instruction) -> list[str]:
    """The operands from which an address may come: of a product comes none."""
    operands = instruction.operands[1:]
    if instruction.name == "mad":
        operands = operands[2:]
    return [*map(parameter_place, operands)]


def _slots(operand: str, size: int, count: int) -> list[str]:
    """The parts of a vector, or as many parameters of some bytes, from `[name+8]`
    on.
    """
    if operand[0] != "[":
        return words_of(operand)
    name, _, offset = parameter_place(operand).rpartition("+")
    return [f"{name}+{int(offset) + i * size}" for i in range(count)]


def _may_carry_address(instruction: Instruction) -> bool:
    """Whether an instruction may work out an address from its operands."""
    if instruction.name not in _CARRIES_ADDRESS or len(instruction.operands) < 2:
        return False
    return instruction.name != "ld" or "param" in instruction.parts
