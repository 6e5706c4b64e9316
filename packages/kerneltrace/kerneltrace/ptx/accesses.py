"""Loads, stores, atomics and asynchronous copies: bounds-checked, performed, and
logged.

Source: NVIDIA, Parallel Thread Execution ISA, "Data Movement and Conversion
Instructions", "Parallel Synchronization and Communication Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from kerneltrace.machine.address_space import View
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.arithmetic import FUNCTIONS, function_of
from kerneltrace.ptx.decode import Decoder, Source, Step, words_of
from kerneltrace.ptx.kinds import Kinds
from kerneltrace.ptx.text import Instruction
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

    def address(
        self, word: str, size: int, *, is_local: bool = False
    ) -> tuple[Source, tuple[str, ...]]:
        """As the decoder's, for an access to elements of `size` bytes."""
        at, names = self._decoder.address(word, is_local=is_local)
        for name in names:
            self.items[name] = min(size, self.items.get(name, size))
        return at, names

    def step(self, instruction: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        name = instruction.name
        parts = set(instruction.parts)
        if name in ("membar", "fence"):
            return self._fence(instruction)
        if name in ("ld", "ldu"):
            return self._load(instruction)
        if name == "st":
            step: Step | None = self._store(instruction)
        elif name in ("atom", "red") and not {"vec", "async", "v2", "v4", "v8"} & parts:
            step = self._atomic(instruction)
        else:
            return None
        if step is None or not {"release", "acq_rel"} & parts:
            return step
        access = step
        fence = self._fence(instruction)

        def released(t: Threads) -> None:
            fence(t)
            access(t)

        return released

    def _fence(self, instruction: Instruction) -> Step:
        is_of_block = "cta" in instruction.parts
        call = "threadfence_block" if is_of_block else "threadfence"
        site = self._decoder.site("fence", instruction, call)
        return lambda t: t.add(site + t.log.fresh, 0)

    def _site(self, kind: str, instruction: Instruction) -> int:
        """The place of a load or a store, of which some are as good as atomics."""
        parts = set(instruction.parts)
        call = ""
        if "volatile" in parts:
            is_compared = not self._decoder.compared.isdisjoint(instruction.operands)
            call = "polled" if kind == "load" and is_compared else "volatile"
        elif {"relaxed", "acquire", "release"} & parts:
            call = "relaxed"
        return self._typed(self._decoder.site(kind, instruction, call), instruction)

    def _typed(self, site: int, instruction: Instruction) -> int:
        """The same site, after taking down for what it takes shared memory."""
        view = View(0, self._kinds.of(instruction))
        self._decoder.execution.layout.note(site, view)
        return site

    def _kind_of_array(self, word: str) -> str:
        _, names = self._decoder.address(word)
        kinds = {self.memory.spans[name].region.array.dtype.kind for name in names}
        kind = kinds.pop() if len(kinds) == 1 else ""
        return kind if kind in "fi" else ""

    @contextmanager
    def inside(
        self,
        t: Threads,
        instruction: Instruction,
        site: int,
        address: Array,
        names: tuple[str, ...],
        size: int,
        verb: str,
    ) -> Iterator[Any]:
        """Let only those go on whose access of `size` bytes is in bounds, and log it
        for a site; an index of them.
        """
        fits = self.memory.inside(address, size, names)
        is_even: Any = True
        if int(np.bitwise_or.reduce(address)) & (size - 1):
            is_even = address % size == 0
            place = int(address[int(np.argmin(is_even))])
            words = f"{{}} accesses {size} bytes at {place:#x}, which is no multiple of"
            t.report_those(~is_even, "misaligned", instruction.line, f"{words} {size}.")
        if fits is not None:
            outside = ~fits & is_even
            if outside.any():
                first = int(np.argmax(outside))
                words, name = self.memory.outside_words(int(address[first]), names)
                words = f"{{}} {verb} {words}"
                t.report_those(outside, "outside", instruction.line, words, name)
        if is_even is not True:
            fits = is_even if fits is None else fits & is_even
        with nullcontext(True) if fits is None else t.only(fits) as any_left:
            valid = slice(None) if fits is None else fits
            if any_left and self.memory.is_logged(address):
                t.add(site + t.log.fresh, 8 * address[valid] + size.bit_length() - 1)
            yield valid

    def load(
        self,
        t: Threads,
        instruction: Instruction,
        site: int,
        address: Array,
        names: tuple[str, ...],
        dtype: Any,
        n: int,
    ) -> Array:
        """What lies at the addresses, as (threads, n), and NaN or 0 where that is out
        of bounds.
        """
        missing = np.nan if np.dtype(dtype).kind == "f" else 0
        data = np.full((t.n, n), missing, dtype)
        size = data.itemsize * n
        memory = self.memory
        with self.inside(t, instruction, site, address, names, size, "reads") as valid:
            address = address[valid]
            buffer, place = memory.bytes_at(t, address)
            if memory.any_arriving and memory.is_shared(address):
                self._check_arrived(t, instruction, place, address, size)
            if buffer is memory.local:
                self._check_written(t, instruction, place, size)
            data.view(f"V{size}")[valid, 0] = buffer.view(f"V{size}")[place // size]
        return data

    def store(
        self,
        t: Threads,
        instruction: Instruction,
        site: int,
        address: Array,
        names: tuple[str, ...],
        values: Array,
    ) -> None:
        """Store values (threads, many) at the addresses that are in bounds."""
        size = values.itemsize * values.shape[1]
        memory = self.memory
        with self.inside(
            t, instruction, site, address, names, size, "writes to"
        ) as valid:
            t.stores(site + t.log.fresh, values[valid])
            buffer, place = memory.bytes_at(t, address[valid])
            if buffer is memory.local:
                memory.written[place[:, None] + np.arange(size)] = True
            buffer.view(f"V{size}")[place // size] = np.ascontiguousarray(
                values[valid]
            ).view(f"V{size}")[:, 0]

    def _load(self, instruction: Instruction) -> Step:
        dtype = TYPES[instruction.parts[-1]]
        write, count = self._decoder.results(instruction.operands[0])
        is_local = "local" in instruction.parts
        at, names = self.address(
            instruction.operands[1], dtype.itemsize, is_local=is_local
        )
        site = self._site("load", instruction)

        def step(t: Threads) -> None:
            write(t, self.load(t, instruction, site, at(t), names, dtype, count))

        return step

    def _check_written(
        self, t: Threads, instruction: Instruction, place: Array, size: int
    ) -> None:
        """Report reads of local memory that the thread has not written."""
        written = self.memory.written[place[:, None] + np.arange(size)]
        unset: Array = np.asarray(~written.any(axis=1))
        if unset.any():
            words = "{} reads an element of a local array that it has not written."
            t.report_those(unset, "unset", instruction.line, words)

    def _check_arrived(
        self,
        t: Threads,
        instruction: Instruction,
        place: Array,
        address: Array,
        size: int,
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
            t.report_those(early, "unset", instruction.line, words, name)

    def _store(self, instruction: Instruction) -> Step:
        dtype = TYPES[instruction.parts[-1]]
        values = self._decoder.gathered(words_of(instruction.operands[1]), dtype)
        is_local = "local" in instruction.parts
        at, names = self.address(
            instruction.operands[0], dtype.itemsize, is_local=is_local
        )
        site = self._site("store", instruction)

        def step(t: Threads) -> None:
            self.store(t, instruction, site, at(t), names, values(t))

        if not self._stores_once:
            return step
        equal_site = self._decoder.site("store", instruction, "equal")
        self._typed(equal_site, instruction)

        def once(t: Threads) -> None:
            """Store only for the first of the lanes of a warp that bring the same to
            one address.
            """
            bits = values(t).view(f"u{dtype.itemsize}").astype("i8")
            # of each thread: its block, address, values, warp
            stores = np.column_stack([t.those(t.block), at(t), bits, t.those(t.warp)])
            firsts = np.unique(stores, axis=0, return_index=True)[1]
            is_first = np.zeros(t.n, bool)
            is_first[firsts] = True
            distinct = np.unique(stores[firsts, :-1], axis=0)
            starts_address = np.any(np.diff(distinct[:, :2], axis=0), axis=1)
            store_site = equal_site if starts_address.all() else site
            with t.only(is_first):
                self.store(t, instruction, store_site, at(t), names, values(t))

        return once

    # -- atomics

    def _atomic(self, instruction: Instruction) -> Step | None:
        kind = instruction.parts[-1]
        ops = set(instruction.parts) & _CHANGES.keys()
        returns = instruction.name == "atom"
        where, *words = instruction.operands[1 if returns else 0 :]
        if len(ops) != 1 or kind not in TYPES or words[0].startswith("<"):
            return None
        (op,) = ops
        dtype = TYPES[kind]
        used = returns and self._decoder.uses[instruction.operands[0]] > 1
        write = self._decoder.result(instruction.operands[0]) if used else None
        count = 2 if op == "cas" else 1
        values = [self._decoder.source(word, dtype) for word in words[:count]]
        at, names = self.address(where, dtype.itemsize)
        memory = self.memory
        change = _CHANGES[op]
        if kind in ("bf16", "f16x2", "bf16x2") and op in UFUNCS:
            rounds = Instruction(op, ("rn", kind), ("", "", ""), 0)
            computed = function_of(rounds)
            change = computed[0] if computed else FUNCTIONS[op]
        vectorized = change in UFUNCS.values() and not used
        call = f"atomic.{_NAMES.get(op, op)}"
        if "f" in kind:
            call += ".float"  # shared memory has no type of its own in PTX
        site = self._decoder.site("atomic", instruction, call, used=used)
        self._typed(site, instruction)
        verb = "reads" if used else "writes to"

        def step(t: Threads) -> None:
            address = at(t)
            size = dtype.itemsize
            old = np.zeros(t.n, dtype)
            with self.inside(t, instruction, site, address, names, size, verb) as valid:
                buffer, place = memory.bytes_at(t, address[valid])
                items = buffer.view(dtype)
                place = place // size
                order = t.drawn()
                operands = [np.broadcast_to(value(t), t.n) for value in values]
                if vectorized:
                    UFUNCS[op].at(items, place[order], operands[0][order])
                else:
                    old[valid] = one_by_one(items, place, operands, change, order)
            if write:
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
