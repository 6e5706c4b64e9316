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

from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.arithmetic import FUNCTIONS, function_of
from kerneltrace.ptx.decode import Decoder, Source, Step, words_of
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
_CHANGES: dict[str, Callable[..., Any]] = UFUNCS | {
    "exch": lambda old, new: new,
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
    "inc": lambda old, last: np.where(old >= last, 0, old + 1).astype(old.dtype),
    "dec": (
        lambda old, last: np.where((old == 0) | (old > last), last, old - 1).astype(
            old.dtype
        )
    ),
}
"""What an atomic makes of the old value and what it is given."""
_NAMES = {"and": "and_", "or": "or_"}


class Accesses:
    """Makes the steps of instructions on memory."""

    def __init__(self, decoder: Decoder, *, stores_once: bool) -> None:
        """`stores_once`: lanes of a warp that store the same number at one address
        count as one, as Triton means it.
        """
        self._decoder = decoder
        self.memory = decoder.memory
        self._stores_once = stores_once
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
        is_plain = one.name == "st" or (
            one.name in ("atom", "red")
            and not {"vec", "async", "v2", "v4", "v8"} & parts
        )
        step = None
        if is_plain:
            step = self._store(one) if one.name == "st" else self._atomic(one)
        if step is None or not {"release", "acq_rel"} & parts:
            return step
        fence = self._fence(one)
        access = step
        return lambda t: (fence(t), access(t))[1]

    def _fence(self, one: Instruction) -> Step:
        site = self._decoder.site(
            "fence", one, "threadfence_block" if "cta" in one.parts else "threadfence"
        )
        return lambda t: t.add(site + t.log.fresh, 0)

    def _site(self, kind: str, one: Instruction) -> int:
        """The place of a load or a store, of which some are as good as atomics."""
        call = "relaxed" if {"relaxed", "acquire", "release"} & set(one.parts) else ""
        if "volatile" in one.parts:
            is_polled = kind == "load" and not self._decoder.compared.isdisjoint(
                one.operands
            )
            call = "polled" if is_polled else "volatile"
        return self._decoder.site(kind, one, call)

    @contextmanager
    def inside(
        self,
        t: Threads,
        one: Instruction,
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
        if int(np.bitwise_or.reduce(address)) & (size - 1):
            even = address % size == 0
            first = int(np.argmin(even))
            words = (
                f"{{}} accesses {size} bytes at {int(address[first]):#x}, which is no"
                f" multiple of {size}."
            )
            t.report(
                "misaligned",
                one.line,
                words,
                t.numbers[first],
                times=int((~even).sum()),
            )
            fits = even if fits is None else fits & even
        if fits is not None and (bad := ~fits & (address % size == 0)).any():
            first = int(np.argmax(bad))
            words, name = self.memory.outside_words(int(address[first]), names)
            t.report(
                "outside",
                one.line,
                f"{{}} {verb} {words}",
                t.numbers[first],
                name,
                int(bad.sum()),
            )
        with nullcontext(True) if fits is None else t.only(fits) as some:
            mine = slice(None) if fits is None else fits
            if some and self.memory.is_logged(address):
                t.add(site + t.log.fresh, 8 * address[mine] + size.bit_length() - 1)
            yield mine

    def load(
        self,
        t: Threads,
        one: Instruction,
        site: int,
        address: Array,
        names: tuple[str, ...],
        dtype: Any,
        many: int,
    ) -> Array:
        """What lies at the addresses, as (threads, many), and NaN or 0 where that is
        out of bounds.
        """
        data = np.full((t.n, many), np.nan if np.dtype(dtype).kind == "f" else 0, dtype)
        size = data.itemsize * many
        memory = self.memory
        with self.inside(t, one, site, address, names, size, "reads") as mine:
            address = address[mine]
            buffer, place = memory.bytes_at(t, address)
            if memory.any_arriving and memory.is_shared(address):
                self._check_arrived(t, one, place, address, size)
            if buffer is memory.local:
                unset: Array = ~np.any(
                    memory.written[place[:, None] + np.arange(size)], axis=1
                )
                if unset.any():
                    words = (
                        "{} reads an element of a local array that it has not written."
                    )
                    t.report(
                        "unset",
                        one.line,
                        words,
                        t.numbers[unset][0],
                        times=int(unset.sum()),
                    )
            data.view(f"V{size}")[mine, 0] = buffer.view(f"V{size}")[place // size]
        return data

    def store(
        self,
        t: Threads,
        one: Instruction,
        site: int,
        address: Array,
        names: tuple[str, ...],
        values: Array,
    ) -> None:
        """Store values (threads, many) at the addresses that are in bounds."""
        size = values.itemsize * values.shape[1]
        memory = self.memory
        with self.inside(t, one, site, address, names, size, "writes to") as mine:
            buffer, place = memory.bytes_at(t, address[mine])
            if buffer is memory.local:
                memory.written[place[:, None] + np.arange(size)] = True
            buffer.view(f"V{size}")[place // size] = np.ascontiguousarray(
                values[mine]
            ).view(f"V{size}")[:, 0]

    def _load(self, one: Instruction) -> Step:
        dtype = TYPES[one.parts[-1]]
        writes = self._decoder.results(one.operands[0])
        at, names = self.address(one.operands[1], dtype.itemsize)
        site = self._site("load", one)

        def step(t: Threads) -> None:
            data = self.load(t, one, site, at(t), names, dtype, len(writes))
            for i, write in enumerate(writes):
                write(t, data[:, i])

        return step

    def _check_arrived(
        self, t: Threads, one: Instruction, place: Array, address: Array, size: int
    ) -> None:
        """Report reads of shared memory to which an asynchronous copy is on its way."""
        early = self.memory.arriving[place[:, None] + np.arange(size)].any(axis=1)
        if early.any():
            first = int(np.argmax(early))
            words, name = self.memory.outside_words(int(address[first]), ())
            words = (
                f"{{}} reads {words.split(',')[0]}, which an asynchronous copy has yet"
                " to write: cp.async.wait_group."
            )
            t.report("unset", one.line, words, t.numbers[first], name, int(early.sum()))

    def _store(self, one: Instruction) -> Step:
        dtype = TYPES[one.parts[-1]]
        values = self._decoder.gathered(words_of(one.operands[1]), dtype)
        at, names = self.address(one.operands[0], dtype.itemsize)
        site = self._site("store", one)

        def step(t: Threads) -> None:
            self.store(t, one, site, at(t), names, values(t))

        # only the first of the lanes of a warp that bring the same to one address
        def once(t: Threads) -> None:
            brought = values(t).view(f"u{dtype.itemsize}").astype("i8")
            first = np.zeros(t.n, bool)
            first[
                np.unique(
                    np.column_stack([t.those(t.warp), at(t), brought]),
                    axis=0,
                    return_index=True,
                )[1]
            ] = True
            with t.only(first):
                step(t)

        return once if self._stores_once else step

    # -- atomics

    def _atomic(self, one: Instruction) -> Step | None:
        kind = one.parts[-1]
        ops = set(one.parts) & _CHANGES.keys()
        given = one.operands if one.name == "red" else one.operands[1:]
        if len(ops) != 1 or kind not in TYPES or given[1][0] == "<":
            return None
        (op,) = ops
        dtype = TYPES[kind]
        used = one.name == "atom" and self._decoder.uses[one.operands[0]] > 1
        write = self._decoder.result(one.operands[0]) if used else None
        values = [
            self._decoder.source(word, dtype)
            for word in given[1 : 3 if op == "cas" else 2]
        ]
        at, names = self.address(given[0], dtype.itemsize)
        memory = self.memory
        change = _CHANGES[op]
        if kind in ("bf16", "f16x2", "bf16x2") and op in UFUNCS:
            known = function_of(Instruction(op, ("rn", kind), ("", "", ""), 0))
            change = known[0] if known else FUNCTIONS[op]
        vectorised = change in UFUNCS.values() and not used
        # shared memory has no type of its own in PTX
        of_floats = ".float" * ("f" in one.parts[-1])
        site = self._decoder.site(
            "atomic", one, f"atomic.{_NAMES.get(op, op)}{of_floats}", used=used
        )

        def step(t: Threads) -> None:
            address = at(t)
            old = np.zeros(t.n, dtype)
            with self.inside(
                t,
                one,
                site,
                address,
                names,
                dtype.itemsize,
                "reads" if used else "writes to",
            ) as mine:
                buffer, place = memory.bytes_at(t, address[mine])
                items = buffer.view(dtype)
                place = place // dtype.itemsize
                order = t.drawn()
                brought = [np.broadcast_to(value(t), t.n) for value in values]
                if vectorised:
                    UFUNCS[op].at(items, place[order], brought[0][order])
                else:
                    old[mine] = one_by_one(items, place, brought, change, order)
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
    new = np.diff(place[by_place], prepend=-1) != 0
    rank = np.arange(len(order)) - np.maximum.accumulate(
        np.where(new, np.arange(len(order)), 0)
    )
    olds = np.empty(len(order), items.dtype)
    for turn in range(int(rank.max(initial=-1)) + 1):
        mine = by_place[rank == turn]
        old = items[place[mine]]
        olds[mine] = old
        items[place[mine]] = change(old, *(value[mine] for value in values))
    return olds
