"""What the lanes of a warp do together: shuffles, votes and sums.

Source: NVIDIA, Parallel Thread Execution ISA, "shfl.sync", "vote.sync", "match.sync",
"redux.sync".
"""

from __future__ import annotations

import numpy as np

from kerneltrace.log.diagnostics import ABSENT_LANE, NOT_MET, OUTSIDER
from kerneltrace.log.grid import WARP
from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.accesses import UFUNCS
from kerneltrace.ptx.decode import Decoder, Source, Step
from kerneltrace.ptx.running import Ended
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES

_ALL = (1 << WARP) - 1


class Warps:
    """Makes the steps of instructions that warps do."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._awaited: dict[tuple[int, int], tuple[int, Instruction, int, int]] = {}

    def finish(self, t: Threads) -> None:
        """Report masks with lanes that came to the kernel's end, by no `return`,
        without the others' operation.
        """
        for (warp, mask), (absent, one, present, thread) in self._awaited.items():
            here = np.flatnonzero((t.warp == warp) & t.passed_by)
            gone = [lane for lane in t.lane[here].tolist() if absent >> lane & 1]
            if gone:
                words = NOT_MET.format(mask, len(gone), gone[0], present)
                t.report("lane", one.line, words, thread)
        self._awaited.clear()

    def _meet(self, t: Threads, one: Instruction, mask: Source | None) -> Array:
        """A number for each thread that those lanes of its warp share which come
        together and name the same mask.
        """
        warp = t.those(t.warp)
        lane = t.those(t.lane)
        named = np.broadcast_to(mask(t) if mask else _ALL, t.n)
        if mask is None or (t.all and t.alive.all() and (named == _ALL).all()):
            return warp
        outside = ~(named >> lane.astype("u4") & 1).astype(bool)
        if outside.any():
            first = int(np.argmax(outside))
            words = OUTSIDER.format("{}", int(lane[first]))
            t.report(
                "lane", one.line, words, t.numbers[first], times=int(outside.sum())
            )
        keys, at, group = np.unique(
            warp.astype("i8") << 32 | named, return_index=True, return_inverse=True
        )
        present = np.bincount(group, 2.0**lane).astype("i8")
        living = np.bincount(
            t.warp[t.alive | t.passed_by],
            2.0 ** t.lane[t.alive | t.passed_by],
            len(t.epoch),
        )
        absent = keys & _ALL & ~present & living.astype("i8")[keys >> 32]
        for number in np.flatnonzero(
            absent
            | [tuple(divmod(key, 1 << 32)) in self._awaited for key in keys.tolist()]
        ):
            key = divmod(int(keys[number]), 1 << 32)
            here = int(present[number])
            thread = int(t.numbers[at[number]])
            before = self._awaited.pop(key, (0, one, 0, 0))
            left = before[0] & ~here if here & ~before[0] == 0 else int(absent[number])
            if left:
                self._awaited[key] = left, one, here, thread
        return group

    def step(self, one: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        known = {
            "shfl": self._shuffle,
            "vote": self._vote,
            "activemask": self._vote,
            "match": self._match,
            "redux": self._sum,
            "bar": self._sync,
        }
        return known[one.name](one) if one.name in known else None

    def _shuffle(self, one: Instruction) -> Step:
        mode = one.parts[1]
        decoder = self._decoder
        write, *met = (decoder.result(word) for word in one.operands[0].split("|"))
        value, by, clamp, mask = (
            decoder.source(word, TYPES["u32"]) for word in one.operands[1:5]
        )

        def step(t: Threads) -> None:
            mine = np.broadcast_to(value(t), t.n)
            b = by(t).astype(int) & 31
            lane = t.those(t.lane)
            group = self._meet(t, one, mask)
            c = clamp(t).astype(int)
            last = c & 31
            segment = c >> 8 & 31
            end = (lane & segment) | (last & ~segment)
            wanted = {
                "up": lane - b,
                "down": lane + b,
                "bfly": lane ^ b,
                "idx": (lane & segment) | (b & ~segment),
            }[mode]
            inside = wanted >= end if mode == "up" else wanted <= end
            wanted = np.where(inside, wanted, lane)
            table, present = _by_lane(t, group, mine)
            values = table[group, wanted]
            absent = ~present[group, wanted]
            if absent.any():
                values[absent] = np.array(t.execution.settings.undefined).astype(
                    values.dtype
                )
                first = int(np.argmax(absent))
                words = ABSENT_LANE.format("{}", int(wanted[first]))
                t.report(
                    "undefined",
                    one.line,
                    words,
                    t.numbers[first],
                    times=int(absent.sum()),
                )
            write(t, values)
            for result in met:
                result(t, inside)
            t.log.shuffles += len(np.unique(t.those(t.warp)))

        return step

    def _vote(self, one: Instruction) -> Step:
        write = self._decoder.result(one.operands[0])
        mode = one.parts[1] if one.name == "vote" else ""
        test = self._decoder.source(one.operands[1], TYPES["pred"]) if mode else None
        mask = self._decoder.source(one.operands[2], TYPES["u32"]) if mode else None

        def step(t: Threads) -> None:
            # sums of 32 bits are exact in float64
            group = self._meet(t, one, mask)
            bit = 2.0 ** t.those(t.lane)
            active = np.bincount(group, bit)
            if test is None:
                write(t, active.astype("u4")[group])
                return
            yes = np.bincount(group, bit * np.broadcast_to(test(t), t.n), len(active))
            if mode == "ballot":
                write(t, yes.astype("u4")[group])
                return
            votes = {
                "all": yes == active,
                "any": yes > 0,
                "uni": (yes == active) | (yes == 0),
            }[mode]
            write(t, votes[group])

        return step

    def _match(self, one: Instruction) -> Step:
        write, *met = (
            self._decoder.result(word) for word in one.operands[0].split("|")
        )
        value = self._decoder.source(one.operands[1], TYPES[one.parts[-1]])
        mask = self._decoder.source(one.operands[2], TYPES["u32"])

        def step(t: Threads) -> None:
            mine = np.broadcast_to(value(t), t.n)
            group = self._meet(t, one, mask)
            table, present = _by_lane(t, group, mine)
            same = (table[group] == mine[:, None]) & present[group]
            if one.parts[0] == "all":
                every = (same == present[group]).all(axis=1)
                same &= every[:, None]
                for result in met:
                    result(t, every)
            write(t, (same * 2.0 ** np.arange(WARP)).sum(axis=1).astype("u4"))

        return step

    def _sum(self, one: Instruction) -> Step:
        write = self._decoder.result(one.operands[0])
        function = UFUNCS[one.parts[1]]
        value = self._decoder.source(one.operands[1], TYPES[one.parts[-1]])
        mask = self._decoder.source(one.operands[2], TYPES["u32"])

        def step(t: Threads) -> None:
            mine = np.broadcast_to(value(t), t.n)
            group = self._meet(t, one, mask)
            order = np.argsort(group, kind="stable")
            first = np.flatnonzero(np.diff(group[order], prepend=-1))
            write(
                t,
                function.reduceat(mine[order], first)[
                    np.unique(group, return_inverse=True)[1]
                ],
            )

        return step

    def _sync(self, one: Instruction) -> Step | None:
        """bar.warp.sync: one of a whole warp starts an epoch, which the search for
        races sorts by.
        """
        if one.parts != ("warp", "sync"):
            return None
        mask = self._decoder.source(one.operands[0], TYPES["u32"])
        site = self._decoder.site("warp", one, "syncwarp")

        def step(t: Threads) -> None:
            t.write_log()
            self._meet(t, one, mask)
            warp = t.those(t.warp)
            named = np.broadcast_to(mask(t), t.n)
            count = len(t.epoch)
            living = np.bincount(t.warp[t.alive], minlength=count)
            whole = (np.bincount(warp, minlength=count) == living)[warp]
            everyone = np.bincount(t.warp, 2.0**t.lane)[warp].astype("u4")
            whole &= named & everyone == everyone
            t.epoch[np.unique(warp[whole])] += 1
            if not whole.all():
                _, number = np.unique(
                    warp[~whole].astype("i8") << 32 | named[~whole], return_inverse=True
                )
                with t.only(~whole):
                    t.add(site + t.log.fresh, 8 * (number + 1 + t.log.partial_syncs))
                t.log.partial_syncs += int(number.max()) + 1

        return step


def _by_lane(t: Threads, group: Array, values: Array) -> tuple[Array, Array]:
    """A value for each group and lane, and whether that lane takes part."""
    many = int(group.max()) + 1
    lane = t.those(t.lane)
    table = np.zeros((many, WARP), values.dtype)
    present = np.zeros((many, WARP), bool)
    table[group, lane] = values
    present[group, lane] = True
    return table, present


def whole_warps(t: Threads, one: Instruction) -> Array:
    """The lanes of the threads that take part, which have to be all of each warp."""
    lane = t.those(t.lane)
    if t.n % WARP or not np.array_equal(lane, np.arange(t.n) % WARP):
        words = (
            f"{{}} comes to {one.opcode} without all 32 lanes of its warp, which it"
            " needs. The trace ends here."
        )
        t.report("raised", one.line, words, t.numbers[0])
        raise Ended
    return lane
