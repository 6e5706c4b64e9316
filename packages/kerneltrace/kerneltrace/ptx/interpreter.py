"""Run a kernel's PTX for all threads of some blocks at once, and log what they do."""

from __future__ import annotations

import math
import re
from collections import defaultdict

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.diagnostics import NOT_ALL_RUN
from kerneltrace.machine.program import NOTED, Operations
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.arithmetic import operations_of
from kerneltrace.ptx.copies import Copies
from kerneltrace.ptx.decode import Decoder, Step
from kerneltrace.ptx.flow import Block, blocks_of
from kerneltrace.ptx.matrices import Matrices
from kerneltrace.ptx.memory import GRID_BARRIER
from kerneltrace.ptx.printing import printed
from kerneltrace.ptx.running import PATIENCE, Code, Ended, Running
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Order, Threads
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
_ADVICE = (
    (("malloc", "free"), "Pass an array for it, or use a local array."),
    (
        ("wgmma", "tcgen05"),
        "Compile for 8.0, or write that part with mma.sync or nvcuda::wmma.",
    ),
    (
        ("cp.async.bulk", "mbarrier"),
        "Copy the tile with cp.async or cuda::memcpy_async, for 8.0.",
    ),
    (("call", "prototype"), "Call the function by its name, in a switch."),
    (
        ("tex", "tld4", "suld", "sust"),
        "Read an array instead of a texture or a surface.",
    ),
    (
        ("barrier.cluster", "mapa", "getctarank"),
        "Trace it without clusters: a block alone.",
    ),
    ("", "Leave it out to trace the rest."),
)
"""What to do instead of what is not run, by how it begins."""


class Interpreter:
    """A kernel, ready to run on the memory of a launch."""

    def __init__(self, decoder: Decoder, *, stores_once: bool) -> None:
        self._decoder = decoder
        self._run = decoder.execution
        self._memory = decoder.memory
        self._source = decoder.lines
        self._run.program.names_float64 = any(
            re.search(r"\b(double|float64)\b", line) for line in self._source.values()
        )
        self._accesses = Accesses(decoder, stores_once=stores_once)
        self._copies = Copies(decoder, self._accesses)
        self._warps = Warps(decoder)
        self._matrices = Matrices(decoder, self._accesses)
        self._code = [self._decoded(block) for block in blocks_of(decoder.function)]
        self._memory.know_items(self._accesses.items)
        for code in self._code:
            if code.latch_of is not None:
                code.patience = _patience(self._loop_body(code.latch_of))

    def _loop_body(self, head: int) -> list[Instruction]:
        """The instructions of the loop that begins at a place."""
        return [
            instruction
            for code in self._code
            if head in code.loops
            for instruction in code.code
        ]

    # -- decoding

    def _decoded(self, block: Block) -> Code:
        operations = Operations()
        lines = defaultdict[str, dict[int, str]](dict)
        for instruction in block.code:
            own_operations = operations_of(instruction)
            operations = operations.plus(own_operations)
            line = instruction.line
            text = self._source.get(line, instruction.opcode).strip()
            for kind in NOTED:
                if getattr(own_operations, kind):
                    lines[kind][line] = text
        first_line = block.code[0].line if block.code else 0
        counter = self._run.program.counter(
            operations, self._decoder.kernel, first_line
        )
        code = Code(**vars(block), counter=counter, lines=lines)
        for instruction in block.code:
            step = self._step(instruction)
            if step is not None:
                code.steps.append(step)
        self._decode_end(code)
        return code

    def _decode_end(self, code: Code) -> None:
        end = code.end
        if end is not None and end.name in ("bar", "barrier"):
            self._decode_barrier(code, end)
            call = "" if code.test else "syncthreads"
            code.site = self._decoder.site("barrier", end, call)
        elif end is not None and end.name == "brx":
            code.test = self._decoder.source(end.operands[0], "u32")
        elif end is not None and end.guard:
            code.test = self._decoder.source(end.guard, "pred")
            code.site = self._decoder.site("branch", end)
            code.returns = any(
                "return" in self._source.get(line, "")
                for line in (end.line, end.line + 1)
            )
        if code.latch_of is not None:
            latch = Instruction("", (), (), code.last_line)
            code.site = self._decoder.site("while", latch)

    def _decode_barrier(self, code: Code, end: Instruction) -> None:
        """A barrier may carry predicates, and give the number of those that are true,
        or whether any or all are.
        """
        ops = {"popc": np.add, "and": np.logical_and, "or": np.logical_or}
        parts = [part for part in end.parts if part not in ("cta", "aligned")]
        if parts[:1] == ["red"] and parts[1] in ops and len(end.operands) == 3:
            code.test = self._decoder.source(end.operands[2], "pred")
            code.vote = ops[parts[1]]
            code.result = self._decoder.result(end.operands[0])
        elif parts != ["sync"] or len(end.operands) != 1 or end.guard:
            code.steps.append(self._stops(end))

    def _step(self, instruction: Instruction) -> Step | None:
        if instruction.name in _NOTHING:
            return None
        try:
            step = self._known_step(instruction)
        except (KeyError, ValueError, IndexError):
            step = None
        unguarded = step or self._stops(instruction)
        if not instruction.guard:
            return unguarded
        test = self._decoder.source(instruction.guard, "pred")

        def guarded(t: Threads) -> None:
            mask = t.each(test)
            if mask.any():
                with t.only(mask):
                    unguarded(t)

        return guarded

    def _known_step(self, instruction: Instruction) -> Step | None:
        step = self._decoder.arithmetic(instruction)
        for makers in (self._accesses, self._copies, self._warps, self._matrices):
            step = step or makers.step(instruction)
        return step

    def _stops(self, instruction: Instruction) -> Step:
        """The step of an instruction with which a run ends: a trap, a failed assertion,
        or one that is not run here.
        """
        called = {"vprintf", "__assertfail", "malloc", "free"} & {*instruction.operands}
        name = called.pop() if called else instruction.opcode
        if name == "vprintf":
            return self._prints(instruction)
        text = self._decoder.source("param0+0", "u64")
        line = instruction.line

        def step(t: Threads) -> None:
            if name == "__assertfail":
                place = int(t.each(text)[0])
                words = f"fails the assertion: {self._memory.text_at(t, place)}."
            elif name in ("trap", "brkpt"):
                words = f"stops the kernel ({name})."
            else:
                advice = next(each for begin, each in _ADVICE if name.startswith(begin))
                raise KernelError(
                    f"Line {line}: {name} can't be run without a GPU. {advice}"
                )
            t.report("raised", line, f"{{}} {words}", t.numbers[0], times=t.n)
            raise Ended

        return step

    def _prints(self, instruction: Instruction) -> Step:
        text = self._decoder.source("param0+0", "u64")
        arguments = self._decoder.source("param1+0", "u64")

        def step(t: Threads) -> None:
            first = t.numbers[0]
            with t.only(t.numbers == first):
                places = int(t.each(text)[0]), int(t.each(arguments)[0])
                line = printed(self._memory, t, *places).strip()
            words = f"{{}} prints: {line}"
            t.report("printed", instruction.line, words, first, times=t.n)

        return step

    # -- running

    def run(self, order: Order | None) -> None:
        """Run the blocks of the launch, as many at once as LANES hold."""
        settings = self._run.settings
        at_once = max(1, LANES // settings.block_size)
        barrier = self._memory.regions.get(GRID_BARRIER)
        if barrier:
            at_once = math.prod(settings.grid)
            if settings.blocks.is_decided and not settings.blocks.all_run:
                raise KernelError(NOT_ALL_RUN)
        counters = self._run.program.counters
        batches = settings.blocks.batches(self._run.log, counters, at_once, order)
        with np.errstate(all="ignore"):
            for numbers in batches:
                threads = Threads(self._run, numbers, order)
                if barrier:
                    threads.registers["%envreg1"] = np.array(barrier.base >> 32, "u4")
                    threads.registers["%envreg2"] = np.array(barrier.base, "u4")
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
    names = {instruction.name for instruction in code}
    waits_at_barrier = any(
        instruction.name == "mbarrier" and instruction.parts[0].endswith("wait")
        for instruction in code
    )
    if waits_at_barrier and names.isdisjoint(("atom", "ld")):
        return 4
    reads_anew = any(
        instruction.name == "ld"
        and {"volatile", "relaxed", "acquire"} & set(instruction.parts)
        for instruction in code
    )
    return PATIENCE if reads_anew or not names.isdisjoint(_WAITS) else 0
