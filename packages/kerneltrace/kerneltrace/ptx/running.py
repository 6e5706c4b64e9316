"""Lead the threads of some blocks through a kernel's code: branches, loops and
barriers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerneltrace.machine.execution import Execution
from kerneltrace.machine.program import issues
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.decode import Result, Source, Step
from kerneltrace.ptx.flow import EXIT, Block
from kerneltrace.ptx.threads import Threads

PATIENCE = 64
"""Turns of a loop that waits for other threads, after which these go on; fewer where
they have to.
"""


class Ended(Exception):
    """The launch can't go on; its findings say why."""


@dataclass
class Code(Block):
    """A block of code as steps."""

    counter: int = 0
    steps: list[Step] = field(default_factory=list)
    test: Source | None = None
    """Of a conditional branch, the predicate; of an indexed one, the index."""
    vote: Any = None
    """Of a barrier to which threads bring a predicate, how these are combined."""
    result: Result | None = None
    """Where that goes."""
    site: int = 0
    """Of the branch, the barrier or the loop."""
    returns: bool = False
    """Whether there is a `return` in the branch's line of the source,
    or in the next.
    """
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    """As in Program. They count once they are executed: few ways through sinf compute
    in float64.
    """
    patience: int = 0
    """Of the latch of a loop that may wait for other threads, the turns after which
    these go on.
    """


class Running:
    """Where the threads of some blocks are: places in the code, or barriers."""

    def __init__(self, run: Execution, threads: Threads, code: list[Code]) -> None:
        self._run = run
        self._t = threads
        self._code = code
        self._ready: dict[int, list[Any]] = {0: [np.arange(threads.size)]}
        # the place of the barrier where a thread waits
        self._held = np.full(threads.size, -1)
        self._keys = np.zeros(threads.size, "i8")  # in the log, of that barrier
        # the predicate that each brings there
        self._brought = np.zeros(threads.size, bool)
        # whether its latest branch stands in a line with a `return`
        self._returning = np.zeros(threads.size, bool)
        self._turns: dict[int, int] = {}  # of loops, by the place of their latch
        self._latches = {
            block.latch_of: i
            for i, block in enumerate(code)
            if block.latch_of is not None
        }
        self._turning = -1  # the place of the loop whose turn begins

    def to_the_end(self) -> None:
        """Run until all threads have left the kernel."""
        while True:
            if not self._ready:
                if not self._release():
                    return
                continue
            place = min(self._ready)
            if self._is_out_of_patience(place):
                place = self._place_of_others(place)
            parts = self._ready.pop(place)
            numbers = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            is_all = len(numbers) == self._t.size
            self._t.take(slice(None) if is_all else numbers, len(numbers))
            self._execute(place, self._code[place], numbers)

    def _is_out_of_patience(self, place: int) -> bool:
        patience = self._code[place].patience
        turns = self._turns.get(place, 0)
        return patience > 0 and turns % patience == patience - 1

    def _place_of_others(self, latch: int) -> int:
        """The place where other threads than those at a latch go on, another at each
        call; the latch itself where there are none.
        """
        is_released = self._release()
        self._turns[latch] += 1
        turns = self._turns[latch]
        patience = self._code[latch].patience
        others = sorted(self._ready.keys() - {latch})
        if others:
            return others[turns // patience % len(others)]
        if not is_released and patience < PATIENCE < turns:
            self._report_alone(self._code[latch])
        return latch

    def _execute(self, place: int, code: Code, numbers: Array) -> None:
        t = self._t
        if code.latch_of is not None:
            self._turn(place, code, numbers)
            return
        if place in self._latches and place != self._turning:
            self._turns[self._latches[place]] = 0
        self._turning = -1
        t.loop = self._loop_contexts(code)
        t.begin()
        self._run.program.note(code.lines)
        self._run.program.counters[code.counter] += issues(
            t.those(t.block), t.those(t.warp)
        )
        for step in code.steps:
            step(t)
        test = None if code.test is None else t.each(code.test)
        if code.end is not None and code.end.name in ("bar", "barrier"):
            self._held[numbers] = place
            self._keys[numbers] = code.site + self._run.log.fresh
            if test is not None:
                self._brought[numbers] = test
        elif test is None:
            self._leave(code.targets[0], numbers)
        elif test.dtype != bool:  # an indexed branch
            for i, target in enumerate(code.targets):
                self._leave(target, numbers[test == i])
        else:
            t.add_branch(code.site, test)
            self._returning[numbers] = code.returns
            for target, goes_there in zip(code.targets, (test, ~test), strict=True):
                self._leave(target, numbers[goes_there])
        t.write_log()

    def _leave(self, place: int, numbers: Array) -> None:
        """Go on at a place, or leave the kernel."""
        if not len(numbers):
            return
        if place != EXIT:
            self._ready.setdefault(place, []).append(numbers)
            return
        self._t.alive[numbers] = False
        self._t.passed_by[numbers] = ~self._returning[numbers]

    # -- loops

    def _turn(self, place: int, code: Code, numbers: Array) -> None:
        """Begin a loop's next turn."""
        self._turns[place] = turns = self._turns.get(place, 0) + 1
        head = code.targets[0]
        if turns > self._run.log.max_steps:
            line = code.last_line or self._code[head].last_line
            words = (
                f"{{}} is still in this loop after {turns - 1:,} turns, and the trace"
                " ends here."
            )
            if code.patience:
                words += (
                    " Does it wait for a thread that can't go on, or for a later block?"
                )
            self._t.report("endless", line, words, numbers[0])
            raise Ended
        self._turning = head
        self._leave(head, numbers)

    def _report_alone(self, code: Code) -> None:
        thread = self._ready[min(self._ready)][0][0]
        words = (
            "{} waits in this loop at an mbarrier, and no thread is left that could"
            " arrive there."
        )
        line = self._code[code.targets[0]].last_line
        self._t.report("deadlock", line, words, thread)
        raise Ended

    def _loop_contexts(self, block: Block) -> list[int] | None:
        """The list of the contexts of the outermost loop around a block."""
        if not block.loops:
            return None
        latch = self._code[self._latches[block.loops[0]]]
        return self._run.log.contexts_by_key.setdefault(latch.site, [])

    # -- barriers

    def _release(self) -> bool:
        """Let those blocks go on of which all threads that are left wait at a barrier;
        whether there are any.
        """
        t = self._t
        held = self._held
        held_by_block = held.reshape(t.blocks, -1)  # (blocks, threads)
        waiting = held_by_block >= 0
        all_wait = (waiting == t.alive.reshape(t.blocks, -1)).all(axis=1)
        opened = waiting.any(axis=1) & all_wait
        if not opened.any():
            return False
        going = np.flatnonzero(opened[t.block] & (held >= 0))
        last = held_by_block.max(axis=1)
        first = np.where(waiting, held_by_block, len(self._code)).min(axis=1)
        passed_by = t.passed_by.reshape(t.blocks, -1)
        log = self._run.log
        for number in np.flatnonzero(opened).tolist():
            if first[number] != last[number] or passed_by[number].any():
                self._report_partial(number)
            key = int(self._keys[going[t.block[going] == number][0]])
            before = int(t.phase[number])
            t.phase[number] = phase = log.new_phase()
            log.opened_by[phase] = before, key
        log.barriers += int(opened.sum())
        for place in np.unique(held[going]).tolist():
            code = self._code[place]
            numbers = going[held[going] == place]
            if code.result:
                self._vote(code, code.result, numbers)
            self._leave(code.targets[0], numbers)
        held[going] = -1
        return True

    def _vote(self, code: Code, write: Result, numbers: Array) -> None:
        """Give the threads what they brought to the barrier together."""
        t = self._t
        t.take(numbers, len(numbers))
        first = np.flatnonzero(np.diff(t.block[numbers], prepend=-1))
        predicates = self._brought[numbers]
        if code.vote is np.add:
            predicates = predicates.astype("u4")
        votes = code.vote.reduceat(predicates, first)  # (blocks,)
        threads_per_block = np.diff(np.append(first, len(numbers)))
        write(t, votes.repeat(threads_per_block))

    def _report_partial(self, number: int) -> None:
        """Report a barrier that some threads of a block pass by: a GPU may hang, or go
        on with wrong data.
        """
        t = self._t
        of_block = np.flatnonzero(t.block == number)
        threads_by_place: dict[tuple[int, int], list[int]] = {}
        for thread in of_block[self._held[of_block] >= 0].tolist():
            place = int(self._held[thread])
            end = self._code[place].end
            line = end.line if end else 0
            threads_by_place.setdefault((line, place), []).append(thread)
        ((line, _), here), *elsewhere = threads_by_place.items()
        if len(here) > 1:
            words = f"{{}} and {len(here) - 1:,} others wait here"
        else:
            words = "{} waits here"
        for (other_line, _), threads in elsewhere:
            where = f"at line {other_line}"
            if other_line == line:
                where = "in another call of it, or copy that the compiler made,"
            words += f", {len(threads):,} threads wait {where} instead"
        passed = of_block[t.passed_by[of_block]]
        if len(passed):
            have = "has" if len(passed) == 1 else "have"
            where = self._run.settings.where(int(t.in_grid[passed[0]]))
            words += (
                f", but {len(passed):,} of the block's {len(of_block):,} threads {have}"
                f" come to the kernel's end without it (the first: {where})"
            )
        words += (
            ". All threads of a block that have not returned have to reach the same"
            " __syncthreads()."
        )
        t.report("barrier", line, words, here[0])
