"""`proof_of_run`: the proof for a traced kernel in Python for numba."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import types
from collections.abc import Sequence
from typing import Any

from kerneltrace.machine.execution import Execution
from kerneltrace.proof.threads import AXES, ThreadWalker
from kerneltrace.proof.verdict import Proof, arguments, only_this_run
from kerneltrace.proof.walker import NoArgument, parsed


def proof_of_run(run: Execution, races: Sequence[str]) -> Proof:
    """The proof for the kernel of a run, in which these races were found."""
    if races:
        return Proof(False, f"This run has a race. {races[0]}")
    functions = iter(run.program.functions)
    function, kinds = next(functions, (run.settings.fn, None))
    if kinds is None:
        return only_this_run(NoArgument("The kernel has no Python with numba's types"))
    arrays = [region for region in run.memory.regions if region.array.size]
    overlapping = [
        (one.name, other.name)
        for one, other in itertools.combinations(arrays, 2)
        if one.span[0] < other.span[1] and other.span[0] < one.span[1]
    ]
    return thread_proof(
        function, kinds, run.settings.grid, run.settings.block, overlapping
    )


def thread_proof(
    function: types.FunctionType,
    kinds: Sequence[Any],
    grid: Sequence[int],
    block: Sequence[int],
    overlapping: Sequence[tuple[str, str]] = (),
) -> Proof:
    """The proof for a kernel whose parameters have numba's types `kinds`: for any
    number of threads in a block, or else for `block`.

    An axis counts where the launch or the kernel uses it. `overlapping` names pairs of
    parameters whose arrays share memory.
    """
    launch = (function, kinds, grid, block, overlapping)
    proof = _thread_proof(*launch, is_any_block=True)
    if proof.proven:
        return proof
    return _thread_proof(*launch, is_any_block=False)


def _thread_proof(
    function: types.FunctionType,
    kinds: Sequence[Any],
    grid: Sequence[int],
    block: Sequence[int],
    overlapping: Sequence[tuple[str, str]],
    is_any_block: bool,
) -> Proof:
    try:
        axes = _axes(function, grid, block)
        walker = ThreadWalker((0, 0, 0) if is_any_block else block, axes)
        parameters = zip(inspect.signature(function).parameters, kinds, strict=False)
        names = {name: walker.argument(name, kind) for name, kind in parameters}
        walker.walk(function, names)
        reasons = arguments(walker, overlapping)
    except NoArgument as error:
        return only_this_run(error)
    of_blocks = "and any block"
    if not is_any_block:
        of_blocks = f"of blocks of {tuple(block)[: len(axes)]} threads"
    dimensions = "1 dimension" if len(axes) == 1 else f"{len(axes)} dimensions"
    reason = f"No race for any data, any grid {of_blocks}, in {dimensions}."
    return Proof(True, reason, reasons, None if is_any_block else tuple(block))


def _axes(
    function: types.FunctionType, grid: Sequence[int], block: Sequence[int]
) -> str:
    text = ast.unparse(parsed(function)[0])
    axes = "x"
    for number, axis in enumerate(AXES[1:], start=1):
        places = rf"(Idx|Dim)\.{axis}|grid(size)?\([{number + 1}-3]\)"
        if grid[number] > 1 or block[number] > 1 or re.search(places, text):
            axes += axis
    return axes
