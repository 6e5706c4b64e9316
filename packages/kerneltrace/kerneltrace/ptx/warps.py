"""What the lanes of a warp do together: shuffles, votes and sums.

Source: NVIDIA, Parallel Thread Execution ISA, "shfl.sync", "vote.sync", "match.sync",
"redux.sync".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kerneltrace.machine.diagnostics import ABSENT_LANE, NOT_MET, OUTSIDER
from kerneltrace.machine.grid import WARP
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.accesses import UFUNCS
from kerneltrace.ptx.decode import Decoder, Result, Source, Step
from kerneltrace.ptx.running import Ended
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads

_ALL = (1 << WARP) - 1


class Meeting(NamedTuple):
    """Lanes that a mask names, and that have yet to come to a warp operation."""

    absent: int
    """Their bits."""
    present: int
    """The bits of those that came last."""
    instruction: Instruction
    thread: int
    """The first of those."""


class Warps:
    """Makes the steps of instructions that warps do."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        # by warp and mask
        self._awaited: dict[tuple[int, int], Meeting] = {}

    def finish(self, t: Threads) -> None:
        """Report masks with lanes that came to the kernel's end, by no `return`,
        without the others' operation.
        """
        for (warp, mask), meeting in self._awaited.items():
            here = np.flatnonzero((t.warp == warp) & t.passed_by)
            missing = [
                lane for lane in t.lane[here].tolist() if meeting.absent >> lane & 1
            ]
            if missing:
                words = NOT_MET.format(mask, len(missing), missing[0], meeting.present)
                t.report("lane", meeting.instruction.line, words, meeting.thread)
        self._awaited.clear()

    def _meet(self, t: Threads, instruction: Instruction, mask: Source) -> Array:
        """A number for each thread that those lanes of its warp share which come
        together and name the same mask.
        """
        warp = t.those(t.warp)
        lane = t.those(t.lane)
        named = t.each(mask)
        if t.all and t.alive.all() and (named == _ALL).all():
            return warp
        outside = ~(named >> lane.astype("u4") & 1).astype(bool)
        if outside.any():
            first = int(np.argmax(outside))
            words = OUTSIDER.format("{}", int(lane[first]))
            t.report_those(outside, "lane", instruction.line, words)
        keys, at, group = np.unique(
            warp.astype("i8") << 32 | named, return_index=True, return_inverse=True
        )
        present = np.bincount(group, 2.0**lane).astype("i8")
        not_returned = t.alive | t.passed_by
        living = np.bincount(
            t.warp[not_returned], 2.0 ** t.lane[not_returned], len(t.epoch)
        ).astype("i8")
        absent = keys & _ALL & ~present & living[keys >> 32]
        for i, key in enumerate(keys.tolist()):
            warp_and_mask = divmod(key, 1 << 32)
            before = self._awaited.pop(warp_and_mask, None)
            here = int(present[i])
            left = int(absent[i])
            if before and here & ~before.absent == 0:
                left = before.absent & ~here
            if left:
                thread = int(t.numbers[at[i]])
                self._awaited[warp_and_mask] = Meeting(left, here, instruction, thread)
        return np.asarray(group)

    def step(self, instruction: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        makers = {
            "shfl": self._shuffle,
            "vote": self._vote,
            "activemask": self._vote,
            "match": self._match,
            "redux": self._sum,
            "bar": self._sync,
        }
        make = makers.get(instruction.name)
        return make and make(instruction)

    def _shuffle(self, instruction: Instruction) -> Step:
        mode = instruction.parts[1]
        write, *predicates = self._results(instruction)
        value, by, clamp, mask = self._decoder.sources(instruction, *["u32"] * 4)

        def step(t: Threads) -> None:
            own_values = t.each(value)
            b = by(t).astype(int) & 31
            lane = t.those(t.lane)
            group = self._meet(t, instruction, mask)
            c = clamp(t).astype(int)
            last = c & 31
            segment = c >> 8 & 31
            end = (lane & segment) | (last & ~segment)
            targets = {
                "up": lane - b,
                "down": lane + b,
                "bfly": lane ^ b,
                "idx": (lane & segment) | (b & ~segment),
            }
            target = targets[mode]
            inside = target >= end if mode == "up" else target <= end
            target = np.where(inside, target, lane)
            table, present = _by_lane(t, group, own_values)
            values = table[group, target]
            absent = ~present[group, target]
            if absent.any():
                undefined = np.array(t.execution.settings.undefined)
                values[absent] = undefined.astype(values.dtype)
                first = int(np.argmax(absent))
                words = ABSENT_LANE.format("{}", int(target[first]))
                t.report_those(absent, "undefined", instruction.line, words)
            write(t, values)
            for write_predicate in predicates:
                write_predicate(t, inside)
            t.log.shuffles += len(np.unique(t.those(t.warp)))

        return step

    def _results(self, instruction: Instruction) -> list[Result]:
        """Of a register, and of the predicate beside it if there is one."""
        words = instruction.operands[0].split("|")
        return [self._decoder.result(word) for word in words]

    def _vote(self, instruction: Instruction) -> Step:
        write = self._decoder.result(instruction.operands[0])
        if instruction.name == "activemask":
            return lambda t: write(t, self._lanes_of_groups(t, t.those(t.warp)))
        mode = instruction.parts[1]
        test, mask = self._decoder.sources(instruction, "pred", "u32")

        def step(t: Threads) -> None:
            group = self._meet(t, instruction, mask)
            active = self._lanes_of_groups(t, group)
            yes = self._lanes_of_groups(t, group, t.each(test))
            results = {
                "ballot": yes,
                "any": yes > 0,
                "all": yes == active,
                "uni": (yes == active) | (yes == 0),
            }
            write(t, results[mode])

        return step

    def _lanes_of_groups(self, t: Threads, group: Array, mask: Any = True) -> Array:
        """For each thread the lanes of its group for which the mask is true, as bits,
        whose sums of 32 are exact in float64.
        """
        bits = np.bincount(group, 2.0 ** t.those(t.lane) * mask)
        return np.asarray(bits.astype("u4")[group])

    def _match(self, instruction: Instruction) -> Step:
        write, *predicates = self._results(instruction)
        value, mask = self._decoder.sources(instruction, instruction.kind, "u32")

        def step(t: Threads) -> None:
            values = t.each(value)
            group = self._meet(t, instruction, mask)
            table, present = _by_lane(t, group, values)
            same = (table[group] == values[:, None]) & present[
                group
            ]  # (threads, lanes)
            if instruction.parts[0] == "all":
                agree = (same == present[group]).all(axis=1)
                same &= agree[:, None]
                for write_predicate in predicates:
                    write_predicate(t, agree)
            write(t, (same * 2.0 ** np.arange(WARP)).sum(axis=1).astype("u4"))

        return step

    def _sum(self, instruction: Instruction) -> Step:
        write = self._decoder.result(instruction.operands[0])
        function = UFUNCS[instruction.parts[1]]
        value, mask = self._decoder.sources(instruction, instruction.kind, "u32")

        def step(t: Threads) -> None:
            values = t.each(value)
            group = self._meet(t, instruction, mask)
            order = np.argsort(group, kind="stable")
            first = np.flatnonzero(np.diff(group[order], prepend=-1))
            sums = function.reduceat(values[order], first)  # (groups,)
            number = np.unique(group, return_inverse=True)[1]
            write(t, sums[number])

        return step

    def _sync(self, instruction: Instruction) -> Step | None:
        """bar.warp.sync: one of a whole warp starts an epoch, which the search for
        races sorts by.
        """
        if instruction.parts != ("warp", "sync"):
            return None
        mask = self._decoder.source(instruction.operands[0], "u32")
        site = self._decoder.site("warp", instruction, "syncwarp")

        def step(t: Threads) -> None:
            t.write_log()
            self._meet(t, instruction, mask)
            warp = t.those(t.warp)
            named = t.each(mask)
            count = len(t.epoch)
            living = np.bincount(t.warp[t.alive], minlength=count)
            all_here = (np.bincount(warp, minlength=count) == living)[warp]
            everyone = np.bincount(t.warp, 2.0**t.lane)[warp].astype("u4")
            whole = all_here & (named & everyone == everyone)
            t.epoch[np.unique(warp[whole])] += 1
            if whole.all():
                return
            groups = warp[~whole].astype("i8") << 32 | named[~whole]
            number = np.unique(groups, return_inverse=True)[1]
            with t.only(~whole):
                t.add(site, 8 * (number + 1 + t.log.partial_syncs))
            t.log.partial_syncs += int(number.max()) + 1

        return step


def _by_lane(t: Threads, group: Array, values: Array) -> tuple[Array, Array]:
    """A value for each group and lane, and whether that lane takes part."""
    count = int(group.max()) + 1
    lane = t.those(t.lane)
    table = np.zeros((count, WARP), values.dtype)
    present = np.zeros((count, WARP), bool)
    table[group, lane] = values
    present[group, lane] = True
    return table, present


def whole_warps(t: Threads, instruction: Instruction) -> Array:
    """The lanes of the threads that take part, which have to be all of each warp."""
    lane = t.those(t.lane)
    if t.n % WARP or not np.array_equal(lane, np.arange(t.n) % WARP):
        words = (
            f"{{}} comes to {instruction.opcode} without all 32 lanes of its warp,"
            " which it needs. The trace ends here."
        )
        t.report("raised", instruction.line, words, t.numbers[0])
        raise Ended
    return lane
