"""Loads, stores, atomics and asynchronous copies: bounds-checked, performed, and logged.

Source: NVIDIA, Parallel Thread Execution ISA, "Data Movement and Conversion Instructions", "Parallel Synchronization
and Communication Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.arithmetic import FUNCTIONS, function_of
from kerneltrace.ptx.decode import Decoder, Source, Step, words_of
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES

Perform = Callable[[Threads, Array], None]
_UFUNCS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
           "xor": np.bitwise_xor}  # fmt: skip
_NAMES = {"and": "and_", "or": "or_"}


class Accesses:
    """Makes the steps of instructions on memory."""

    def __init__(self, decoder: Decoder, *, stores_once: bool) -> None:
        """`stores_once`: lanes of a warp that store the same number at one address count as one, as Triton means it."""
        self._decoder, self.memory, self._stores_once = decoder, decoder.memory, stores_once
        self.items: dict[str, int] = {}
        """The least size in bytes of what is loaded from or stored to each array."""

    def address(self, word: str, size: int) -> tuple[Source, tuple[str, ...]]:
        """As the decoder's, for an access to elements of `size` bytes."""
        at, names = self._decoder.address(word)
        for name in names:
            self.items[name] = min(size, self.items.get(name, size))
        return at, names

    def step(self, one: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        parts = set(one.parts)
        if one.name in ("membar", "fence"):
            return self._fence(one)
        if one.name in ("ld", "ldu"):
            return self._load(one)
        is_plain = one.name == "st" or (one.name in ("atom", "red") and not {"vec", "async", "v2", "v4", "v8"} & parts)
        step = (self._store(one) if one.name == "st" else self._atomic(one)) if is_plain else None
        if step is None or not {"release", "acq_rel"} & parts:
            return step
        fence, access = self._fence(one), step
        return lambda t: (fence(t), access(t))[1]

    def _fence(self, one: Instruction) -> Step:
        site = self._decoder.site("fence", one, "threadfence_block" if "cta" in one.parts else "threadfence")
        return lambda t: t.add(site + t.log.fresh, 0)

    def _site(self, kind: str, one: Instruction) -> int:
        """The place of a load or a store, of which some are as good as atomics."""
        call = "relaxed" if {"relaxed", "acquire", "release"} & set(one.parts) else ""
        if "volatile" in one.parts:
            is_polled = kind == "load" and not self._decoder.compared.isdisjoint(one.operands)
            call = "polled" if is_polled else "volatile"
        return self._decoder.site(kind, one, call)

    def checked(
        self, one: Instruction, site: int, at: Source, names: tuple[str, ...], size: int, perform: Perform,
        instead: Callable[[Threads], None] | None = None,
    ) -> Step:  # fmt: skip
        """A step that performs an access of `size` bytes where it is in bounds, and does `instead` where it is not.

        It is logged for its site, if that is not 0.
        """
        memory, exponent, kind = self.memory, size.bit_length() - 1, "reads" if instead else "writes to"

        def within(t: Threads, address: Array) -> None:
            if site and memory.is_logged(address):
                t.add(site + t.log.fresh, 8 * address + exponent)
            perform(t, address)

        def step(t: Threads) -> None:
            address = at(t)
            fits = memory.inside(address, size, names)
            if int(np.bitwise_or.reduce(address)) & (size - 1):
                even = address % size == 0
                first = int(np.argmin(even))
                words = f"{{}} accesses {size} bytes at {int(address[first]):#x}, which is no multiple of {size}."
                t.report("misaligned", one.line, words, t.numbers[first], times=int((~even).sum()))
                fits = even if fits is None else fits & even
            if fits is None:
                within(t, address)
                return
            bad = ~fits & (address % size == 0)
            if bad.any():
                first = int(np.argmax(bad))
                words, name = memory.outside_words(int(address[first]), names)
                t.report("outside", one.line, f"{{}} {kind} {words}", t.numbers[first], name, int(bad.sum()))
            if instead:
                with t.only(~fits):
                    instead(t)
            with t.only(fits) as some:
                if some:
                    within(t, address[fits])

        return step

    def _load(self, one: Instruction) -> Step:
        dtype, writes = TYPES[one.parts[-1]], self._decoder.results(one.operands[0])
        at, names = self.address(one.operands[1], dtype.itemsize)
        shift, memory = dtype.itemsize.bit_length() - 1, self.memory
        nothing = np.array("nan" if dtype.kind == "f" else 0).astype(dtype)
        size = dtype.itemsize * len(writes)

        def perform(t: Threads, address: Array) -> None:
            buffer, place = memory.bytes_at(t, address)
            if memory.any_arriving and memory.is_shared(address):
                self.check_arrived(t, one, place, address, size)
            if buffer is memory.local:
                unset: Array = ~np.any(memory.written[place[:, None] + np.arange(size)], axis=1)
                if unset.any():
                    words = "{} reads an element of a local array that it has not written."
                    t.report("unset", one.line, words, t.numbers[unset][0], times=int(unset.sum()))
            items, first = buffer.view(dtype), place >> shift
            for i, write in enumerate(writes):
                write(t, items[first + i if i else first])

        def instead(t: Threads) -> None:
            for write in writes:
                write(t, nothing)

        return self.checked(one, self._site("load", one), at, names, size, perform, instead)

    def check_arrived(self, t: Threads, one: Instruction, place: Array, address: Array, size: int) -> None:
        """Report reads of shared memory to which an asynchronous copy is on its way."""
        early = self.memory.arriving[place[:, None] + np.arange(size)].any(axis=1)
        if early.any():
            first = int(np.argmax(early))
            words, name = self.memory.outside_words(int(address[first]), ())
            words = (
                f"{{}} reads {words.split(',')[0]}, which an asynchronous copy has yet to write: cp.async.wait_group."
            )
            t.report("unset", one.line, words, t.numbers[first], name, int(early.sum()))

    def _store(self, one: Instruction) -> Step:
        dtype = TYPES[one.parts[-1]]
        sources = [self._decoder.source(word, dtype) for word in words_of(one.operands[1])]
        at, names = self.address(one.operands[0], dtype.itemsize)
        shift, memory = dtype.itemsize.bit_length() - 1, self.memory

        def perform(t: Threads, address: Array) -> None:
            buffer, place = memory.bytes_at(t, address)
            if buffer is memory.local:
                memory.written[place[:, None] + np.arange(dtype.itemsize * len(sources))] = True
            items, first = buffer.view(dtype), place >> shift
            for i, source in enumerate(sources):
                items[first + i] = source(t)

        step = self.checked(one, self._site("store", one), at, names, dtype.itemsize * len(sources), perform)
        return self._once(step, at, sources) if self._stores_once else step

    def _once(self, step: Step, at: Source, sources: list[Source]) -> Step:
        """A store in which of the lanes of a warp that bring the same to one address only the first takes part."""

        def once(t: Threads) -> None:
            brought = [np.broadcast_to(source(t), t.n).view(f"u{source(t).itemsize}") for source in sources]
            rows = np.stack([t.those(t.warp), at(t), *(one.astype("i8") for one in brought)])
            first = np.zeros(t.n, bool)
            first[np.unique(rows, axis=1, return_index=True)[1]] = True
            with t.only(first):
                step(t)

        return once

    # -- atomics

    def _atomic(self, one: Instruction) -> Step | None:
        kind, ops = one.parts[-1], set(one.parts) & {*_UFUNCS, "exch", "cas", "inc", "dec"}
        given = one.operands if one.name == "red" else one.operands[1:]
        if len(ops) != 1 or kind not in TYPES or given[1][0] == "<":
            return None
        (op,), dtype = ops, TYPES[kind]
        used = one.name == "atom" and self._decoder.uses[one.operands[0]] > 1
        write = self._decoder.result(one.operands[0]) if used else None
        values = [self._decoder.source(word, dtype) for word in given[1 : 3 if op == "cas" else 2]]
        at, names = self.address(given[0], dtype.itemsize)
        shift, memory, change = dtype.itemsize.bit_length() - 1, self.memory, _change(op, one)
        vectorised = op in _UFUNCS and kind not in ("bf16", "f16x2", "bf16x2")

        def perform(t: Threads, address: Array) -> None:
            buffer, place = memory.bytes_at(t, address)
            items, place = buffer.view(dtype), place >> shift
            brought = [np.broadcast_to(value(t), t.n) for value in values]
            if vectorised and write is None:
                order = t.drawn()
                _UFUNCS[op].at(items, place[order], brought[0][order])
                return
            old = one_by_one(items, place, brought, change, t.drawn())
            if write:
                write(t, old)

        of_floats = ".float" * ("f" in one.parts[-1])  # shared memory has no type of its own in PTX
        site = self._decoder.site("atomic", one, f"atomic.{_NAMES.get(op, op)}{of_floats}", used=used)
        nothing = np.array(0).astype(dtype)
        instead = (lambda t: write(t, nothing)) if write else None
        return self.checked(one, site, at, names, dtype.itemsize, perform, instead)


def _change(op: str, one: Instruction) -> Callable[..., Any]:
    """What an atomic makes of the old value and what it is given."""
    if op in _UFUNCS:
        kind = one.parts[-1]
        if kind in ("bf16", "f16x2", "bf16x2"):
            known = function_of(Instruction(op, ("rn", kind), ("", "", ""), 0))
            return known[0] if known else FUNCTIONS[op]
        return _UFUNCS[op]
    others: dict[str, Callable[..., Any]] = {
        "exch": lambda old, new: new,
        "cas": lambda old, expected, new: np.where(old == expected, new, old),
        "inc": lambda old, last: np.where(old >= last, 0, old + 1).astype(old.dtype),
        "dec": lambda old, last: np.where((old == 0) | (old > last), last, old - 1).astype(old.dtype),
    }
    return others[op]


def one_by_one(items: Array, place: Array, values: list[Array], change: Callable[..., Any], order: Array) -> Array:
    """Change items one thread after another, and give what each thread met: those at different places go together."""
    by_place = order[np.argsort(place[order], kind="stable")]
    new = np.diff(place[by_place], prepend=-1) != 0
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    olds = np.empty(len(order), items.dtype)
    for turn in range(int(rank.max(initial=-1)) + 1):
        mine = by_place[rank == turn]
        old = items[place[mine]]
        olds[mine] = old
        items[place[mine]] = change(old, *(value[mine] for value in values))
    return olds
