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
from kerneltrace.proof.verdict import ONLY_THIS_RUN, Proof, Unproven, arguments
from kerneltrace.proof.walker import NoArgument, parsed


def proof_of_run(run: Execution, races: Sequence[str]) -> Proof:
    """The proof for the kernel of a run, in which these races were found."""
    for race in races:
        return Proof(False, f"This run has a race. {race}")
    functions = iter(run.program.functions)
    function, kinds = next(functions, (run.settings.fn, None))
    if kinds is None:
        return Proof(
            False, f"{ONLY_THIS_RUN} The kernel has no Python with numba's types."
        )
    arrays = [region for region in run.memory.regions if region.array.size]
    for one, other in itertools.combinations(arrays, 2):
        if one.span[0] < other.span[1] and other.span[0] < one.span[1]:
            words = f"{one.name} and {other.name} overlap."
            return Proof(False, f"{ONLY_THIS_RUN} {words}")
    return thread_proof(function, kinds, run.settings.grid, run.settings.block)


def thread_proof(
    function: types.FunctionType,
    kinds: Sequence[Any],
    grid: Sequence[int],
    block: Sequence[int],
) -> Proof:
    """The proof for a kernel whose parameters have numba's types `kinds`: for any
    number of threads in a block, or else for `block`.

    An axis counts where the launch or the kernel uses it.
    """
    reason = ""
    for sizes in ((0, 0, 0), tuple(block)):
        try:
            axes = _axes(function, grid, block)
            walker = ThreadWalker(sizes, axes)
            names = {
                name: walker.argument(name, kind)
                for name, kind in zip(
                    inspect.signature(function).parameters, kinds, strict=False
                )
            }
            walker.walk(function, names)
            reasons = arguments(walker, walker.thread_names, walker.block_names)
        except (NoArgument, Unproven) as error:
            reason = f"{ONLY_THIS_RUN} {error}"
            continue
        return Proof(
            True, _scope(axes, sizes), tuple(reasons), sizes if any(sizes) else None
        )
    return Proof(False, reason.rstrip(".") + ".")


def _axes(
    function: types.FunctionType, grid: Sequence[int], block: Sequence[int]
) -> str:
    tree, _ = parsed(function)
    text = ast.unparse(tree)
    axes = "x"
    for number, axis in enumerate(AXES[1:], start=1):
        places = rf"(Idx|Dim)\.{axis}|grid(size)?\([{number + 1}-3]\)"
        if grid[number] > 1 or block[number] > 1 or re.search(places, text):
            axes += axis
    return axes


def _scope(axes: str, sizes: Sequence[int]) -> str:
    of_blocks = "and any block"
    if any(sizes):
        of_blocks = f"of blocks of {tuple(sizes)[: len(axes)]} threads"
    dimensions = "1 dimension" if len(axes) == 1 else f"{len(axes)} dimensions"
    return f"No race for any data, any grid {of_blocks}, in {dimensions}."
