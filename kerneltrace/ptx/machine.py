"""Run a kernel's PTX for all threads of some blocks at once, and log what they do."""

from __future__ import annotations

import math
import re

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.log.program import Operations
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.arithmetic import operations_of
from kerneltrace.ptx.copies import Copies
from kerneltrace.ptx.decode import Decoder, Step
from kerneltrace.ptx.flow import Block, blocks_of
from kerneltrace.ptx.matrices import Matrices
from kerneltrace.ptx.printing import printed
from kerneltrace.ptx.running import PATIENCE, Code, Ended, Running
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Order, Threads
from kerneltrace.ptx.values import TYPES
from kerneltrace.ptx.warps import Warps

LANES = 4096
"""Threads that run together, in whole blocks."""
_NOTHING = (
    "prefetch",
    "prefetchu",
    "nanosleep",
    "griddepcontrol",
    "discard",
    "applypriority",
    "setmaxnreg",
    "pmevent",
)
_WAITS = ("atom", "nanosleep", "mbarrier")
_LEAVE_OUT = "Leave it out to trace the rest."
_ADVICE = {
    **dict.fromkeys(("vprintf", "__assertfail"), ""),
    **dict.fromkeys(("malloc", "free"), "Pass an array for it, or use a local array."),
    **dict.fromkeys(
        ("wgmma", "tcgen05"),
        "Compile for 8.0, or write that part with mma.sync or nvcuda::wmma.",
    ),
    **dict.fromkeys(
        ("cp.async.bulk", "mbarrier"),
        "Copy the tile with cp.async or cuda::memcpy_async, for 8.0.",
    ),
    **dict.fromkeys(
        ("call", "prototype"), "Call the function by its name, in a switch."
    ),
    **dict.fromkeys(
        ("tex", "tld4", "suld", "sust"),
        "Read an array instead of a texture or a surface.",
    ),
    **dict.fromkeys(
        ("barrier.cluster", "mapa", "getctarank"),
        "Trace it without clusters: a block alone.",
    ),
}
"""What to do instead of what is not run, by how it begins."""


class Machine:
    """A kernel, ready to run on the memory of a launch."""

    def __init__(self, decoder: Decoder, *, stores_once: bool) -> None:
        self._decoder = decoder
        self._run = decoder.execution
        self._memory = decoder.memory
        self._source = decoder.lines
        doubles = [
            re.search(r"\b(double|float64)\b", line) for line in self._source.values()
        ]
        self._run.program.names_float64 = any(doubles)
        self._accesses = Accesses(decoder, stores_once=stores_once)
        self._copies = Copies(decoder, self._accesses)
        self._warps = Warps(decoder)
        self._matrices = Matrices(decoder, self._accesses)
        self._code = [self._decoded(block) for block in blocks_of(decoder.function)]
        self._memory.know_items(self._accesses.items)
        for code in self._code:
            if code.block.latch_of is not None:
                inside = [
                    c.block for c in self._code if code.block.latch_of in c.block.loops
                ]
                code.patience = _patience(
                    [one for block in inside for one in block.code]
                )

    # -- decoding

    def _decoded(self, block: Block) -> Code:
        program = self._run.program
        done = Operations()
        for one in block.code:
            done = done.plus(operations_of(one))
        doubles = [one for one in block.code if operations_of(one).double]
        code = Code(
            block,
            program.counter(
                done, self._decoder.kernel, next((one.line for one in block.code), 0)
            ),
        )
        code.doubles = {
            one.line: self._source.get(one.line, one.opcode).strip() for one in doubles
        }
        code.steps = [step for one in block.code if (step := self._step(one))]
        end = block.end
        if end is not None and end.name in ("bar", "barrier"):
            self._decode_barrier(code, end)
            code.site = self._decoder.site(
                "barrier", end, "" if code.test else "syncthreads"
            )
        elif end is not None and end.name == "brx":
            code.test = self._decoder.source(end.operands[0], TYPES["u32"])
        elif end is not None and end.guard:
            code.test = self._decoder.source(
                "!" * end.unless + end.guard, TYPES["pred"]
            )
            code.site = self._decoder.site("branch", end)
            code.returns = any(
                "return" in self._source.get(end.line + more, "") for more in (0, 1)
            )
        if block.latch_of is not None:
            code.site = self._decoder.site(
                "while", Instruction("", (), (), block.last_line)
            )
        return code

    def _decode_barrier(self, code: Code, end: Instruction) -> None:
        """A barrier may carry predicates, and give the number of those that are true,
        or whether any or all are.
        """
        ops = {"popc": np.add, "and": np.logical_and, "or": np.logical_or}
        parts = [part for part in end.parts if part not in ("cta", "aligned")]
        if parts[:1] == ["red"] and parts[1] in ops and len(end.operands) == 3:
            code.test = self._decoder.source(end.operands[2], TYPES["pred"])
            code.vote = ops[parts[1]]
            code.result = self._decoder.result(end.operands[0])
        elif parts != ["sync"] or len(end.operands) != 1 or end.guard:
            code.steps.append(self._stops(end))

    def _step(self, one: Instruction) -> Step | None:
        if one.name in _NOTHING:
            return None
        try:
            makers = self._accesses, self._copies, self._warps, self._matrices
            known = self._decoder.arithmetic(one) or next(
                (step for make in makers if (step := make.step(one))), None
            )
        except (KeyError, ValueError, IndexError):
            known = None
        step = known or self._stops(one)
        if not one.guard:
            return step
        test = self._decoder.source("!" * one.unless + one.guard, TYPES["pred"])

        def guarded(t: Threads) -> None:
            mask = np.broadcast_to(test(t), t.n)
            if mask.any():
                with t.only(mask):
                    step(t)

        return guarded

    def _stops(self, one: Instruction) -> Step:
        """The step of an instruction with which a run ends: a trap, a failed assertion,
        or one that is not run here.
        """
        called = next((word for word in one.operands if word in _ADVICE), one.opcode)
        advice = next(
            (words for name, words in _ADVICE.items() if called.startswith(name)),
            _LEAVE_OUT,
        )
        given = [self._decoder.source(f"param{i}+0", TYPES["u64"]) for i in range(2)]

        def step(t: Threads) -> None:
            first = t.numbers[0]
            if called == "vprintf":
                with t.only(t.numbers == first):
                    text, arguments = (int(np.ravel(one(t))[0]) for one in given)
                    words = (
                        "{} prints:"
                        f" {printed(self._memory, t, text, arguments).strip()}"
                    )
                t.report("printed", one.line, words, first, times=t.n)
                return
            if one.name in ("trap", "brkpt") or called == "__assertfail":
                what = f"stops the kernel ({one.name})."
                if called == "__assertfail":
                    what = (
                        "fails the assertion:"
                        f" {self._memory.text_at(t, int(np.ravel(given[0](t))[0]))}."
                    )
                t.report("raised", one.line, f"{{}} {what}", first, times=t.n)
                raise Ended
            raise KernelError(
                f"Line {one.line}: {called} can't be run without a GPU. {advice}"
            )

        return step

    # -- running

    def run(self, order: Order | None) -> None:
        """Run all blocks of the launch, as many at once as LANES hold."""
        settings = self._run.settings
        blocks = math.prod(settings.grid)
        at_once = max(1, LANES // settings.block_size)
        firsts = np.arange(0, blocks, at_once)
        with np.errstate(all="ignore"):
            for first in (order(firsts) if order else firsts).tolist():
                threads = Threads(self._run, first, min(at_once, blocks - first), order)
                self._memory.begin(threads)
                self._copies.begin(threads)
                try:
                    Running(self._run, threads, self._code).to_the_end()
                    self._warps.finish(threads)
                except Ended:
                    threads.write_log()
                    return


def _patience(code: list[Instruction]) -> int:
    """The turns of a loop after which other threads go on: few if it waits at an
    mbarrier, 0 if it waits for nobody.
    """
    may_wait = any(
        one.name in _WAITS
        or (one.name == "ld" and {"volatile", "relaxed", "acquire"} & set(one.parts))
        for one in code
    )
    at_barrier = any(
        one.name == "mbarrier" and one.parts[0][-4:] == "wait" for one in code
    )
    return (
        4
        if at_barrier and not any(one.name in ("atom", "ld") for one in code)
        else PATIENCE * may_wait
    )
