"""Loads, stores, atomics and asynchronous copies: bounds-checked, performed, and
logged.

Source: NVIDIA, Parallel Thread Execution ISA, "Data Movement and Conversion
Instructions", "Parallel Synchronization and Communication Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.machine.address_space import SHARED_END, View
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.arithmetic import float_function
from kerneltrace.ptx.decode import Decoder, Source, Step
from kerneltrace.ptx.kinds import Kinds
from kerneltrace.ptx.memory import LOCAL
from kerneltrace.ptx.text import Instruction, words_of
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES

UFUNCS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _decremented(old: Any, last: Any) -> Any:
    return np.where((old == 0) | (old > last), last, old - 1).astype(old.dtype)


_CHANGES: dict[str, Callable[..., Any]] = UFUNCS | {
    "exch": lambda old, new: new,
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
    "inc": lambda old, last: np.where(old >= last, 0, old + 1).astype(old.dtype),
    "dec": _decremented,
}
"""What an atomic makes of the old value and what it is given."""
_NAMES = {"and": "and_", "or": "or_"}


class Target(NamedTuple):
    """What an instruction accesses."""

    line: int
    site: int
    at: Source
    """The addresses."""
    names: tuple[str, ...]
    """The arrays that they are meant for."""
    verb: str
    """What the instruction does there, in words."""


class Accesses:
    """Makes the steps of instructions on memory."""

    def __init__(self, decoder: Decoder, *, stores_once: bool) -> None:
        """`stores_once`: lanes of a warp that store the same number at one address
        count as one, and warps of a block that do so don't race, as Triton means it.
        """
        self._decoder = decoder
        self.memory = decoder.memory
        self._stores_once = stores_once
        self._kinds = Kinds(decoder.function, self._kind_of_array)
        self.items: dict[str, int] = {}
        """The least size in bytes of what is loaded from or stored to each array."""

    def target(
        self,
        kind: str,
        instruction: Instruction,
        word: str,
        size: int,
        call: str = "",
        *,
        used: bool = True,
    ) -> Target:
        """What an operand `[%rd1+8]` refers to, in elements of `size` bytes, and a new
        place in the log for it.
        """
        is_local = "local" in instruction.parts
        at, names = self._decoder.address(word, is_local=is_local)
        for name in names:
            self.items[name] = min(size, self.items.get(name, size))
        site = self._decoder.site(kind, instruction, call, used=used)
        verb = "reads" if used and kind != "store" else "writes to"
        return Target(instruction.line, site, at, names, verb)

    def step(self, instruction: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        name = instruction.name
        if name in ("membar", "fence"):
            return self._fence(instruction)
        makers = {
            "ld": self._load,
            "ldu": self._load,
            "st": self._store,
            "atom": self._atomic,
            "red": self._atomic,
        }
        make = makers.get(name)
        access = make and make(instruction)
        if access is None or {"release", "acq_rel"}.isdisjoint(instruction.parts):
            return access
        fence = self._fence(instruction)

        def released(t: Threads) -> None:
            fence(t)
            access(t)

        return released

    def _fence(self, instruction: Instruction) -> Step:
        is_of_block = "cta" in instruction.parts
        call = "threadfence_block" if is_of_block else "threadfence"
        site = self._decoder.site("fence", instruction, call)
        return lambda t: t.add(site, 0)

    def _call(self, kind: str, instruction: Instruction) -> str:
        """What makes a load or a store as good as an atomic, if anything does."""
        parts = set(instruction.parts)
        if "volatile" in parts:
            is_compared = not self._decoder.compared.isdisjoint(instruction.operands)
            return "polled" if kind == "load" and is_compared else "volatile"
        return "relaxed" if {"relaxed", "acquire", "release"} & parts else ""

    def _note(self, target: Target, instruction: Instruction) -> None:
        """Take down for what it takes shared memory."""
        view = View(0, self._kinds.of(instruction))
        self._decoder.execution.layout.note(target.site, view)

    def _kind_of_array(self, word: str) -> str:
        _, names = self._decoder.address(word)
        kinds = {self.memory.regions[name].array.dtype.kind for name in names}
        kind = kinds.pop() if len(kinds) == 1 else ""
        return kind if kind in "fi" else ""

    @contextmanager
    def inside(
        self, t: Threads, target: Target, address: Array, size: int
    ) -> Iterator[Any]:
        """Let only those go on whose access of `size` bytes is in bounds, and log it;
        an index of them.
        """
        fits = self.memory.inside(address, size, target.names)
        is_even: Any = True
        if int(np.bitwise_or.reduce(address)) & (size - 1):
            is_even = address % size == 0
            place = int(address[int(np.argmin(is_even))])
            words = f"{{}} accesses {size} bytes at {place:#x}, which is no multiple of"
            t.report_those(~is_even, "misaligned", target.line, f"{words} {size}.")
        if fits is not None:
            outside = ~fits & is_even
            if outside.any():
                first = int(address[int(np.argmax(outside))])
                words, name = self.memory.outside_words(first, target.names)
                words = f"{{}} {target.verb} {words}"
                t.report_those(outside, "outside", target.line, words, name)
        if is_even is not True:
            fits = is_even if fits is None else fits & is_even
        with nullcontext(True) if fits is None else t.only(fits) as any_left:
            valid = slice(None) if fits is None else fits
            if any_left and address.max() < LOCAL:  # in memory that threads share
                exponent = size.bit_length() - 1
                t.add(target.site, 8 * address[valid] + exponent)
            yield valid

    def load(
        self, t: Threads, target: Target, address: Array, dtype: Any, n: int
    ) -> Array:
        """What lies at the addresses, as (threads, n), and NaN or 0 where that is out
        of bounds.
        """
        missing = np.nan if np.dtype(dtype).kind == "f" else 0
        data = np.full((t.n, n), missing, dtype)
        size = data.itemsize * n
        memory = self.memory
        with self.inside(t, target, address, size) as valid:
            address = address[valid]
            buffer, place = memory.bytes_at(t, address)
            if memory.any_arriving and address.min(initial=LOCAL) < SHARED_END:
                self._check_arrived(t, target, place, address, size)
            if buffer is memory.local:
                written = memory.written[place[:, None] + np.arange(size)]
                unset = np.asarray(~written.any(axis=1))
                if unset.any():
                    words = (
                        "{} reads an element of a local array that it has not written."
                    )
                    t.report_those(unset, "unset", target.line, words)
            data.view(f"V{size}")[valid, 0] = buffer.view(f"V{size}")[place // size]
        return data

    def store(self, t: Threads, target: Target, address: Array, values: Array) -> None:
        """Store values (threads, many) at the addresses that are in bounds."""
        size = values.itemsize * values.shape[1]
        memory = self.memory
        with self.inside(t, target, address, size) as valid:
            values = np.ascontiguousarray(values[valid])
            t.stores(target.site, values)
            buffer, place = memory.bytes_at(t, address[valid])
            if buffer is memory.local:
                memory.written[place[:, None] + np.arange(size)] = True
            buffer.view(f"V{size}")[place // size] = values.view(f"V{size}")[:, 0]

    def _load(self, instruction: Instruction) -> Step:
        dtype = instruction.dtype
        write, count = self._decoder.results(instruction.operands[0])
        call = self._call("load", instruction)
        where = instruction.operands[1]
        target = self.target("load", instruction, where, dtype.itemsize, call)
        self._note(target, instruction)
        return lambda t: write(t, self.load(t, target, target.at(t), dtype, count))

    def _check_arrived(
        self, t: Threads, target: Target, place: Array, address: Array, size: int
    ) -> None:
        """Report reads of shared memory to which an asynchronous copy is on its way."""
        arriving = self.memory.arriving[place[:, None] + np.arange(size)]
        early = np.asarray(arriving.any(axis=1))
        if early.any():
            first = int(np.argmax(early))
            outside, name = self.memory.outside_words(int(address[first]), ())
            element = outside.split(",")[0]
            words = (
                f"{{}} reads {element}, which an asynchronous copy has yet to write:"
                " cp.async.wait_group."
            )
            t.report_those(early, "unset", target.line, words, name)

    def _store(self, instruction: Instruction) -> Step:
        dtype = instruction.dtype
        where, value = instruction.operands
        values = self._decoder.gathered(words_of(value), instruction.kind)
        call = self._call("store", instruction)
        target = self.target("store", instruction, where, dtype.itemsize, call)
        self._note(target, instruction)
        if not self._stores_once:
            return lambda t: self.store(t, target, target.at(t), values(t))
        equal = self.target("store", instruction, where, dtype.itemsize, "equal")
        self._note(equal, instruction)

        def once(t: Threads) -> None:
            """Store only for the first of the lanes of a warp that bring the same to
            one address.
            """
            bits = values(t).view(f"u{dtype.itemsize}").astype("i8")
            # of each thread: its block, address, values, warp
            stores = np.column_stack(
                [t.those(t.block), target.at(t), bits, t.those(t.warp)]
            )
            firsts = np.unique(stores, axis=0, return_index=True)[1]
            is_first = np.zeros(t.n, bool)
            is_first[firsts] = True
            distinct = np.unique(stores[firsts, :-1], axis=0)
            starts_address = np.any(np.diff(distinct[:, :2], axis=0), axis=1)
            to = equal if starts_address.all() else target
            with t.only(is_first):
                self.store(t, to, to.at(t), values(t))

        return once

    # -- atomics

    def _atomic(self, instruction: Instruction) -> Step | None:
        kind = instruction.kind
        ops = set(instruction.parts) & _CHANGES.keys()
        returns = instruction.name == "atom"
        where, *words = instruction.operands[int(returns) :]
        is_asynchronous = "async" in instruction.parts
        if len(ops) != 1 or kind not in TYPES or words[0][0] == "<" or is_asynchronous:
            return None
        (op,) = ops
        dtype = TYPES[kind]
        used = returns and self._decoder.uses[instruction.operands[0]] > 1
        write = self._decoder.result(instruction.operands[0] if used else "_")
        count = 2 if op == "cas" else 1
        values = [self._decoder.source(word, kind) for word in words[:count]]
        change = _CHANGES[op]
        if kind in ("bf16", "f16x2", "bf16x2") and op in UFUNCS:
            rounds = Instruction(op, ("rn", kind), ("", "", ""), 0)
            change = float_function(rounds, kind)
        vectorized = change in UFUNCS.values() and not used
        call = f"atomic.{_NAMES.get(op, op)}"
        if "f" in kind:
            call += ".float"  # shared memory has no type of its own in PTX
        size = dtype.itemsize
        target = self.target("atomic", instruction, where, size, call, used=used)
        self._note(target, instruction)

        def step(t: Threads) -> None:
            address = target.at(t)
            old = np.zeros(t.n, dtype)
            with self.inside(t, target, address, size) as valid:
                buffer, place = self.memory.bytes_at(t, address[valid])
                items = buffer.view(dtype)
                place = place // size
                order = t.drawn()
                operands = [t.each(value) for value in values]
                if vectorized:
                    UFUNCS[op].at(items, place[order], operands[0][order])
                else:
                    old[valid] = one_by_one(items, place, operands, change, order)
            write(t, old)

        return step


def one_by_one(
    items: Array,
    place: Array,
    values: list[Array],
    change: Callable[..., Any],
    order: Array,
) -> Array:
    """Change items one thread after another, and give what each thread met: those at
    different places go together.
    """
    by_place = order[np.argsort(place[order], kind="stable")]
    is_first = np.diff(place[by_place], prepend=-1) != 0
    number = np.arange(len(order))
    first = np.maximum.accumulate(np.where(is_first, number, 0))
    turns = number - first  # of each thread at its place
    olds = np.empty(len(order), items.dtype)
    for turn in range(int(turns.max(initial=-1)) + 1):
        threads = by_place[turns == turn]
        old = items[place[threads]]
        olds[threads] = old
        items[place[threads]] = change(old, *(value[threads] for value in values))
    return olds
