"""`trace`: run a CUDA kernel on the CPU, from Python or compiled, and count and check
what a GPU would do.
"""

from __future__ import annotations

import functools
import importlib
import math
import random
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from kerneltrace._arguments import text, whole
from kerneltrace._text import brief_repr
from kerneltrace.compiler.compiled import Compiled
from kerneltrace.compiler.cplusplus import compile_cuda
from kerneltrace.errors import KernelError, TraceTooLarge
from kerneltrace.judge.findings import (
    Finding,
    find_differences,
    find_mistakes,
    order_matters,
)
from kerneltrace.judge.kernel_trace import Trace
from kerneltrace.machine.chosen_blocks import ChosenBlocks, chosen_blocks, few_blocks
from kerneltrace.machine.diagnostics import COUNTS_FROM_END
from kerneltrace.machine.event_log import BYTES_PER_EVENT, too_large
from kerneltrace.machine.execution import Execution, LaunchSettings, prepared
from kerneltrace.machine.grid import MAX_BLOCK, MAX_GRID, as_dim3
from kerneltrace.ptx.launch import Kernel
from kerneltrace.ptx.triton import compile_triton, is_triton
from kerneltrace.run.launch import execute
from kerneltrace.run.launch_arguments import LaunchArguments, launch_arguments
from kerneltrace.run.lockstep import FEW, Lanes, run_in_lockstep
from kerneltrace.source.instrument import instrumented
from kerneltrace.source.kernel_scope import python_function

LOCKSTEP_EVENTS = 5_000_000
SINGLE_EVENTS = 1_000_000
"""Events up to which all blocks run if nobody says which: of threads in lockstep or as
PTX, and of single threads, a few seconds each.
"""
MAX_NUMBER = 2**31 - 1
"""Of the threads of a launch, which the log keeps in 32 bits."""


def trace(
    kernel: Any,
    grid: Any,
    block: Any,
    *args: Any,
    shared_bytes: int = 0,
    blocks: Any = None,
    schedules: int = 2,
    memory_bytes: int = 1 << 30,
    max_steps: int = 100_000,
    name: str = "",
    options: Sequence[str] = (),
    constants: Mapping[str, Any] | None = None,
    **unknown: Any,
) -> Trace:
    """Run `kernel[grid, block](*args)` on the CPU, thread by thread, and return what a
    GPU would be asked to do.

    `kernel` is a function written against numba's `cuda`, with or without @cuda.jit; or
    the text of a CUDA C++ file or the path of one, of which `name` is the kernel to
    run, if there are several, and `options` are NVRTC's; or CuPy's RawKernel; or what
    `compile_cuda` or `compile_numba` returned; or a function under @triton.jit, whose
    tl.constexpr are `constants`; of CUDA C++ these are what the host copies to
    __constant__ and __device__ variables. All but the first run as PTX. `grid` and
    `block` are integers or tuples of up to three. Results land in the arrays that are
    passed. `shared_bytes` is the dynamic shared memory of a block.

    Of a large grid a sample of blocks runs: as many as a few seconds allow, by the
    events of the first one. Counts are then scaled to the grid, findings and results
    are those of the blocks that ran, and elements that nobody wrote are not judged.
    `blocks` says which run instead: "all", how many, or a list of their places, such as
    [(0, 0), (3, 1)].

    A kernel in which the order
    of the threads can matter (one without races that uses what atomics return) runs in
    as many orders as `schedules` says: first in order, then in reverse, then shuffled.
    A loop of more than `max_steps` iterations counts as endless, and the log may take
    `memory_bytes`.

    A block that waits for a later one is a mistake: CUDA promises neither that both run
    at once nor in which order they start. Waiting for an earlier block is not reported,
    though nothing is promised there either.

    The trace holds counts, not times, and models no caches. Each operation computes in
    the type that numba.cuda gives it, and counts as FLOP or as an integer operation by
    that type; numba's simulator has no types, and there nothing is counted. Mistakes in
    the kernel are its `findings`, and what may be meant is in its `notes`. Raises
    KernelError for a kernel that can't be traced, that doesn't take `args`, or that
    numba can't compile, in numba's words, CompileError for C++ that NVRTC rejects,
    MissingCompiler without NVRTC, TraceTooLarge when the log outgrows its budget, and
    TypeError or ValueError for any other argument.
    """
    if unknown:
        raise TypeError(
            f"trace takes no argument {next(iter(unknown))!r}. Pass the kernel's"
            " arguments by place, and what is tl.constexpr in constants={'BLOCK': 64}."
        )
    compiled = _compiled(
        kernel, args, block, text("name", name), options, constants or {}
    )
    fn = compiled.signature() if compiled else python_function(kernel)
    settings = _settings(fn, grid, block, blocks, shared_bytes, memory_bytes, max_steps)
    if compiled:
        settings = replace(
            settings, shared_bytes=max(settings.shared_bytes, compiled.shared_bytes)
        )
        args = tuple(map(_bits, args))
    schedules = whole("schedules", schedules, least=1, most=10_000)
    return _traced(settings, launch_arguments(fn, args), compiled, schedules)


def trace_launch(
    fn: types.FunctionType,
    grid: Any,
    block: Any,
    arguments: LaunchArguments,
    shared_bytes: int,
    memory_bytes: int,
    max_steps: int,
    divide: Literal["ignore", "raise"],
) -> Trace:
    """Trace a kernel in Python whose arguments are converted already, in one order;
    `divide` says what a division of floats by zero does.
    """
    settings = _settings(fn, grid, block, "all", shared_bytes, memory_bytes, max_steps)
    return _traced(replace(settings, divide=divide), arguments, None, 1)


def _traced(
    settings: LaunchSettings,
    arguments: LaunchArguments,
    compiled: Kernel | None,
    schedules: int,
) -> Trace:
    run_blocks = compiled.run if compiled else execute
    execution = None
    findings: tuple[Finding, ...] = ()
    threads = math.prod(settings.grid) * settings.block_size
    if threads >= 2 * FEW and not compiled:
        execution, findings = _in_lockstep(settings, arguments)
        if execution is None:
            settings = _of_single_threads(settings)
    if execution is not None:
        run = functools.partial(run_blocks, execution.settings)
        schedules = schedules if order_matters(execution, findings) else 1
        before = arguments
        if schedules > 1:
            before = _before(execution.program.lanes, arguments)
    else:
        before = arguments.copy()  # this run overwrites what the others start from
        execution = _first_run(run_blocks, settings, arguments, before)
        settings = execution.settings
        run = functools.partial(run_blocks, settings)
        findings = find_mistakes(
            execution,
            lambda watch: run(before.copy(), watch=watch),
            arguments.numbers,
        )
        schedules = schedules if order_matters(execution, findings) else 1
    has_undefined = any(finding.kind == "undefined" for finding in findings)
    if has_undefined and not _undefined_values_count(
        run_blocks, settings, arguments, before
    ):
        findings = tuple(
            replace(finding, mistake=finding.mistake and finding.kind != "undefined")
            for finding in findings
        )
    for number in range(1, schedules):
        findings += _found_in_another_order(run, arguments, before, number)
    for copy_back in arguments.copies_back:
        copy_back()
    for words in compiled.left_out if compiled else ():
        findings += (Finding("left out", 0, words, mistake=False),)
    return Trace(execution, _once_a_place(findings), schedules)


def _once_a_place(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """One finding of each kind, line and array; of indices outside one of those below 0
    and one of the others.

    What is meant in one order of the threads may be a mistake in another.
    """
    by_place: dict[tuple[str, int, str, bool], Finding] = {}
    for finding in sorted(findings, key=lambda finding: not finding.mistake):
        is_below = finding.words.endswith(COUNTS_FROM_END)
        place = finding.kind, finding.line, finding.array, is_below
        by_place.setdefault(place, finding)
    return tuple(by_place.values())


def _of_single_threads(settings: LaunchSettings) -> LaunchSettings:
    """The settings for threads that run one by one, whose sample has the blocks that
    stopped those in lockstep.
    """
    if settings.blocks.asked:
        return settings
    blocks = ChosenBlocks(
        settings.grid,
        budget=min(settings.max_events, SINGLE_EVENTS),
        extra=settings.blocks.extra,
    )
    return replace(settings, blocks=blocks)


def _first_run(
    run: Callable[..., Execution],
    settings: LaunchSettings,
    arguments: LaunchArguments,
    before: LaunchArguments,
) -> Execution:
    """The run of all blocks or of a sample.

    Nobody asked for a sample that turns out to be too large, or whose blocks wait for
    some that are not in it: fewer run then, or all.
    """
    asked = settings.blocks.asked
    try:
        execution = run(settings, arguments)
    except TraceTooLarge:
        few = few_blocks(settings.grid)
        if asked or len(few) == settings.blocks.of_grid:
            raise
        arguments.restore(before)
        blocks = ChosenBlocks(settings.grid, few, at_once=1)
        execution = run(replace(settings, blocks=blocks), arguments)
    blocks = execution.settings.blocks
    kinds = {kind for kind, *_ in execution.diagnostics.mistakes}
    if blocks.all_run or not kinds & {"endless", "deadlock"}:
        return execution
    arguments.restore(before)
    whole = ChosenBlocks(settings.grid, range(blocks.of_grid))
    try:
        return run(replace(settings, blocks=whole), arguments)
    except TraceTooLarge as error:
        raise TraceTooLarge(
            "A block seems to wait for others, so that a sample of blocks can't run"
            f" alone. {error}"
        ) from None


def _compiled(
    kernel: Any,
    args: tuple[Any, ...],
    block: Any,
    name: str,
    options: Sequence[str],
    constants: Mapping[str, Any],
) -> Kernel | None:
    """A kernel that runs as PTX; None for one that runs as Python."""
    if not isinstance(constants, Mapping):
        raise TypeError(
            f"Expected constants to be a dict, got {brief_repr(constants)}. Write"
            " constants={'BLOCK': 64}."
        )
    if type(kernel).__module__.startswith("kerneltrace.tiles"):
        raise KernelError(
            "This kernel's PTX needs Triton, on Linux: pip install triton. Without it"
            f" kerneltrace.tiles.trace runs {kernel.__name__}, tile by tile."
        )
    if is_triton(kernel):
        return compile_triton(
            kernel, args, constants, math.prod(as_dim3("block", block, MAX_BLOCK))
        )
    by_cupy = type(kernel).__name__ == "RawKernel"
    if by_cupy:
        name = kernel.name
        options = kernel.options
        kernel = kernel.code
    is_path = isinstance(kernel, str) and kernel.endswith(".cu") and "\n" not in kernel
    if is_path:
        kernel = Path(kernel)
    module = kernel
    if isinstance(kernel, Path) or (isinstance(kernel, str) and "__global__" in kernel):
        instances = [name] if "<" in name else []
        module = compile_cuda(kernel, options=options, instances=instances)
    if not isinstance(module, Compiled):
        if constants:
            raise KernelError(
                "constants are those of a kernel in Triton or CUDA C++, and this one is"
                " in Python. Leave them out."
            )
        return None
    compiled = Kernel(
        module.ptx,
        module.instances.get(name, name),
        module.source,
        module.parameters,
        values=constants,
        by_cupy=by_cupy,
    )
    if resources := module.kernels.get(compiled.name):
        compiled.registers = resources.registers
        compiled.spill_bytes = resources.spill_store_bytes + resources.spill_load_bytes
    compiled.left_out = module.left_out
    return compiled


def _bits(arg: Any) -> Any:
    """A tensor of bfloat16, which NumPy does not have, as whole numbers of the same
    bits.
    """
    if str(getattr(arg, "dtype", "")) != "torch.bfloat16":
        return arg
    return arg.view(importlib.import_module("torch").int16)


def _settings(
    fn: types.FunctionType,
    grid: Any,
    block: Any,
    blocks: Any,
    shared_bytes: Any,
    memory_bytes: Any,
    max_steps: Any,
) -> LaunchSettings:
    """The settings of a launch, each of them judged; TraceTooLarge where there are more
    threads than a trace can number.
    """
    full_grid = as_dim3("grid", grid, MAX_GRID)
    full_block = as_dim3("block", block, MAX_BLOCK)
    shared_bytes = whole(
        "shared_bytes",
        shared_bytes,
        least=0,
        most=2**30,
        advice="It is in bytes.",
    )
    memory_bytes = whole(
        "memory_bytes", memory_bytes, least=10**5, advice="It is in bytes."
    )
    max_events = memory_bytes // BYTES_PER_EVENT
    max_steps = whole("max_steps", max_steps, least=1)
    threads = math.prod(full_grid) * math.prod(full_block)
    if threads > MAX_NUMBER:
        raise TraceTooLarge(
            f"A trace numbers {MAX_NUMBER:,} threads at most, and these are"
            f" {threads:,}. Trace a smaller grid, and pass the full one to estimate()."
        )
    chosen = chosen_blocks(full_grid, blocks, min(max_events, LOCKSTEP_EVENTS))
    if len(chosen.numbers) * math.prod(full_block) > max_events:
        raise too_large(f"{threads:,} threads need", max_events)
    return LaunchSettings(
        fn, full_grid, full_block, chosen, shared_bytes, max_events, max_steps
    )


def _undefined_values_count(
    run: Callable[..., Execution],
    settings: LaunchSettings,
    arguments: LaunchArguments,
    before: LaunchArguments,
) -> bool:
    """Whether the results differ where shuffles give something else from lanes that
    take no part.
    """
    for undefined in (2**30, -(2**30)):
        rerun = before.copy()
        run(replace(settings, undefined=undefined), rerun)
        if any(
            array.tobytes() != rerun.arrays[name].tobytes()
            for name, array in arguments.arrays.items()
        ):
            return True
    return False


def _in_lockstep(
    settings: LaunchSettings, arguments: LaunchArguments
) -> tuple[Execution | None, tuple[Finding, ...]]:
    """A run of all threads in lockstep and its notes; None where that is not possible,
    or brings a mistake to light.

    Then the arguments are left as they were, and the blocks that stopped it are the
    `extra` ones of those that are chosen.
    """
    if not all(array.flags.writeable for array in arguments.arrays.values()):
        return None, ()
    run = prepared(settings)
    run.program.lanes = lanes = Lanes(run)
    try:
        kernel = instrumented(run.program, settings.fn, arguments.types)
        args = (
            run.memory.argument(value, name) for name, value in arguments.values.items()
        )
        run_in_lockstep(run, kernel, lanes, tuple(args))
        findings = find_mistakes(run, lambda _: None, arguments.numbers)
        if not any(finding.mistake for finding in findings):
            return run, findings
        settings.blocks.extra = [
            block for finding in findings for block in finding.blocks
        ]
    except TraceTooLarge:
        if settings.blocks.asked:
            raise
    except Exception:
        # whatever it is, single threads meet it again, and can say which of them
        settings.blocks.extra = lanes.numbers.tolist()
    lanes.restore()
    return None, ()


def _before(lanes: Lanes, arguments: LaunchArguments) -> LaunchArguments:
    """A copy of the arguments as they were before threads in lockstep wrote to them."""
    results = [array.copy() for array, _ in lanes.originals]
    lanes.restore()
    before = arguments.copy()
    for (array, _), result in zip(lanes.originals, results, strict=True):
        array[...] = result
    return before


def _found_in_another_order(
    run: Callable[..., Execution],
    arguments: LaunchArguments,
    before: LaunchArguments,
    number: int,
) -> tuple[Finding, ...]:
    """What a run in another order finds, and how its results differ from those in
    order, which are in `arguments`.
    """

    def reordered(items: Sequence[Any]) -> list[Any]:
        return list(items)[::-1] if number == 1 else draw.sample(items, len(items))

    def again(watch: Any) -> Execution:
        draw.seed(number)
        return run(before.copy(), reordered, watch)

    draw = random.Random(number)
    rerun = before.copy()
    try:
        execution = run(rerun, reordered)
    except TraceTooLarge:
        # threads that wait in loops may take far more turns in this order
        return ()
    differences = (
        []
        if execution.diagnostics.ended
        else find_differences(arguments.arrays, rerun.arrays)
    )
    return (*find_mistakes(execution, again, rerun.numbers), *differences)
