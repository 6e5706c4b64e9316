"""What the lanes of a warp do together: shuffles, votes, sums, matrices.

Source: NVIDIA, Parallel Thread Execution ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "ldmatrix",
"Matrix multiply-accumulate operation using mma instruction".
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.log.diagnostics import ABSENT_LANE
from kerneltrace.log.grid import WARP
from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.decode import Decoder, Step, words_of
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES, to_tf32, widened

_SUMS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
         "xor": np.bitwise_xor}  # fmt: skip
_ELEMENTS: dict[str, np.dtype[Any]] = {
    kind: np.dtype(code)
    for kind, code in (("f16", "f2"), ("bf16", "u2"), ("tf32", "f4"), ("f64", "f8"), ("s8", "i1"), ("u8", "u1"))
}


class Warps:
    """Makes the steps of instructions that warps do."""

    def __init__(self, decoder: Decoder, accesses: Accesses) -> None:
        self._decoder, self._accesses = decoder, accesses

    def step(self, one: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        known = {
            "shfl": self._shuffle, "vote": self._vote, "activemask": self._vote, "match": self._match,
            "redux": self._sum, "ldmatrix": self._load_matrices, "mma": self._multiply, "bar": self._sync,
        }  # fmt: skip
        return known[one.name](one) if one.name in known else None

    def _shuffle(self, one: Instruction) -> Step:
        mode, decoder = one.parts[1], self._decoder
        write, *met = (decoder.result(word) for word in one.operands[0].split("|"))
        value, by, clamp = (decoder.source(word, TYPES["u32"]) for word in one.operands[1:4])

        def step(t: Threads) -> None:
            mine, b = np.broadcast_to(value(t), t.n), by(t).astype(int) & 31
            lane, warp, c = t.those(t.lane), t.those(t.warp), clamp(t).astype(int)
            last, segment = c & 31, c >> 8 & 31
            end = (lane & segment) | (last & ~segment)
            wanted = {
                "up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": (lane & segment) | (b & ~segment),
            }[mode]  # fmt: skip
            inside = wanted >= end if mode == "up" else wanted <= end
            wanted = np.where(inside, wanted, lane)
            table, present = _by_lane(t, mine)
            values, absent = table[warp, wanted], ~present[warp, wanted]
            if absent.any():
                values[absent] = np.array(t.execution.settings.undefined).astype(values.dtype)
                first = int(np.argmax(absent))
                words = ABSENT_LANE.format("{}", int(wanted[first]))
                t.report("undefined", one.line, words, t.numbers[first], times=int(absent.sum()))
            write(t, values)
            for result in met:
                result(t, inside)
            t.log.shuffles += len(np.unique(warp))

        return step

    def _vote(self, one: Instruction) -> Step:
        write = self._decoder.result(one.operands[0])
        mode = one.parts[1] if one.name == "vote" else ""
        test = self._decoder.source(one.operands[1], TYPES["pred"]) if mode else None

        def step(t: Threads) -> None:
            warp, bit = t.those(t.warp), 2.0 ** t.those(t.lane)  # sums of 32 bits are exact in float64
            active = np.bincount(warp, bit)
            if test is None:
                write(t, active.astype("u4")[warp])
                return
            yes = np.bincount(warp, bit * np.broadcast_to(test(t), t.n), len(active))
            if mode == "ballot":
                write(t, yes.astype("u4")[warp])
                return
            votes = {"all": yes == active, "any": yes > 0, "uni": (yes == active) | (yes == 0)}[mode]
            write(t, votes[warp])

        return step

    def _match(self, one: Instruction) -> Step:
        write, *met = (self._decoder.result(word) for word in one.operands[0].split("|"))
        value = self._decoder.source(one.operands[1], TYPES[one.parts[-1]])

        def step(t: Threads) -> None:
            mine, warp = np.broadcast_to(value(t), t.n), t.those(t.warp)
            table, present = _by_lane(t, mine)
            same = (table[warp] == mine[:, None]) & present[warp]
            if one.parts[0] == "all":
                every = (same == present[warp]).all(axis=1)
                same &= every[:, None]
                for result in met:
                    result(t, every)
            write(t, (same * 2.0 ** np.arange(WARP)).sum(axis=1).astype("u4"))

        return step

    def _sum(self, one: Instruction) -> Step:
        write, function = self._decoder.result(one.operands[0]), _SUMS[one.parts[1]]
        value = self._decoder.source(one.operands[1], TYPES[one.parts[-1]])

        def step(t: Threads) -> None:
            mine, warp = np.broadcast_to(value(t), t.n), t.those(t.warp)
            first = np.flatnonzero(np.diff(warp, prepend=-1))
            write(t, function.reduceat(mine, first).repeat(np.diff(np.append(first, t.n))))

        return step

    def _sync(self, one: Instruction) -> Step | None:
        """bar.warp.sync: one of a whole warp starts an epoch, which the search for races sorts by."""
        if one.parts != ("warp", "sync"):
            return None
        mask, site = self._decoder.source(one.operands[0], TYPES["u32"]), self._decoder.site("warp", one, "syncwarp")

        def step(t: Threads) -> None:
            t.write_log()
            warp, named = t.those(t.warp), np.broadcast_to(mask(t), t.n)
            count = len(t.epoch)
            living = np.bincount(t.warp[t.alive], minlength=count)
            whole = (np.bincount(warp, minlength=count) == living)[warp]
            everyone = np.bincount(t.warp, 2.0**t.lane)[warp].astype("u4")
            whole &= named & everyone == everyone
            t.epoch[np.unique(warp[whole])] += 1
            if not whole.all():
                _, number = np.unique(warp[~whole].astype("i8") << 32 | named[~whole], return_inverse=True)
                with t.only(~whole):
                    t.add(site + t.log.fresh, number + 1 + t.log.partial_syncs)
                t.log.partial_syncs += int(number.max()) + 1

        return step

    # -- matrices

    def _load_matrices(self, one: Instruction) -> Step | None:
        """8 x 8 matrices of 16 bits: each lane gives the address of a row, and gets two neighbours of each matrix."""
        if "m8n8" not in one.parts or one.parts[-1] != "b16":
            return None
        writes, memory = self._decoder.results(one.operands[0]), self._accesses.memory
        at, names = self._accesses.address(one.operands[1], 2)
        many, site = len(writes), self._decoder.site("load", one)

        def step(t: Threads) -> None:
            lane, address = _whole_warps(t, one), at(t)
            rows = np.zeros((t.n // WARP, 4, 8, 16), "u1")

            def fetch(u: Threads, address: Array) -> None:
                buffer, place = memory.bytes_at(u, address)
                if memory.any_arriving:
                    self._accesses.check_arrived(u, one, place, address, 16)
                its = np.searchsorted(numbers, u.numbers)
                rows[its // WARP, its % WARP // 8, its % 8] = buffer[place[:, None] + np.arange(16)]

            numbers = t.numbers
            giving = lane < 8 * many
            with t.only(giving):
                self._accesses.checked(one, site, lambda _: address[giving], names, 16, fetch, lambda _: None)(t)
            matrices = rows.view("u2")
            if "trans" in one.parts:
                matrices = matrices.swapaxes(2, 3)
            pairs = np.ascontiguousarray(matrices).view("u4")  # (warps, matrices, rows, 4)
            for i, write in enumerate(writes):
                write(t, pairs[:, i].reshape(-1))

        return step

    def _multiply(self, one: Instruction) -> Step | None:
        """D = a b + c of matrices whose parts lie in the registers of a warp's lanes."""
        shape = re.fullmatch(r"m(\d+)n8k(\d+)", one.parts[2]) if len(one.parts) > 2 else None
        kinds = [part for part in one.parts if part in TYPES]
        if shape is None or len(kinds) != 4 or kinds[1] not in _ELEMENTS or kinds[2] not in _ELEMENTS:
            return None
        if shape[1] not in ("8", "16") or (shape[1] == "8") != (kinds[1] == "f64"):
            return None
        m, k = int(shape[1]), int(shape[2])
        writes, plain = self._decoder.results(one.operands[0]), ("f32", "f64", "s32")
        a, b, c = (
            [self._decoder.source(word, TYPES[kind if kind in plain else "u32"]) for word in words_of(operand)]
            for operand, kind in zip(one.operands[1:], kinds[1:], strict=True)
        )
        exact = np.dtype({"s32": "i8", "f64": "f8"}.get(kinds[0], "f4"))

        def step(t: Threads) -> None:
            _whole_warps(t, one)
            left, right, sums = (
                np.stack([np.broadcast_to(source(t), t.n) for source in sources], axis=-1) for sources in (a, b, c)
            )
            left = _matrix(left, kinds[1], m, k, exact)
            right = _matrix(right, kinds[2], 8, k, exact)
            whole = left @ right.swapaxes(1, 2)
            rows, columns = _sum_places(m)
            mine = whole[:, rows, columns].reshape(t.n, -1)
            added = sums.view("f2") if kinds[3] == "f16" else sums
            totals = (mine + added).astype(_ELEMENTS.get(kinds[0], TYPES[kinds[0]]))
            totals = np.ascontiguousarray(totals).view("u4") if kinds[0] == "f16" else totals
            for i, write in enumerate(writes):
                write(t, totals[:, i].copy())

        return step


def _by_lane(t: Threads, values: Array) -> tuple[Array, Array]:
    """A value for each warp and lane, and whether that lane takes part."""
    table, present = np.zeros((len(t.epoch), WARP), values.dtype), np.zeros((len(t.epoch), WARP), bool)
    warp, lane = t.those(t.warp), t.those(t.lane)
    table[warp, lane], present[warp, lane] = values, True
    return table, present


def _whole_warps(t: Threads, one: Instruction) -> Array:
    """The lanes of the threads that take part, which have to be all of each warp."""
    lane = t.those(t.lane)
    if t.n % WARP or not np.array_equal(lane, np.arange(t.n) % WARP):
        raise KernelError(f"Line {one.line}: all 32 lanes of a warp have to come to {one.opcode} together.")
    return lane


def _matrix(parts: Array, kind: str, m: int, k: int, exact: np.dtype[Any]) -> Array:
    """The matrices (warps, m, k) whose elements lie in the lanes' registers (threads, registers); of b, its columns."""
    dtype: np.dtype[Any] = _ELEMENTS[kind]
    elements = np.ascontiguousarray(parts).view(dtype).reshape(len(parts) // WARP, WARP, -1)
    value = widened(elements) if kind == "bf16" else to_tf32(elements) if kind == "tf32" else elements
    rows, columns = _places(m, k, max(4 // dtype.itemsize, 1))
    matrices = np.zeros((len(value), m, k), exact)
    matrices[:, rows, columns] = value
    return matrices


@functools.cache
def _places(m: int, k: int, per_register: int) -> tuple[Array, Array]:
    """Row and column (lanes, elements) of each element of a in a lane's registers, or column and row of b."""
    lane = np.arange(WARP)[:, None]
    element = np.arange(m * k // WARP)[None]
    register, half = element // per_register, element % per_register
    down = register % 2 if m == 16 else np.zeros_like(register)
    along = register // 2 if m == 16 else register
    return lane // 4 + 8 * down, lane % 4 * per_register + half + 4 * per_register * along


@functools.cache
def _sum_places(m: int) -> tuple[Array, Array]:
    """Row and column (lanes, elements) of each element of c and d."""
    lane, element = np.arange(WARP)[:, None], np.arange(m // 4)[None]
    return lane // 4 + 8 * (element // 2), lane % 4 * 2 + element % 2
