"""Checks of notebook 23: first an answer is right, then it is counted beside par."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from exercises.nb23.par import Parts, par, par_by_part, parts_of
from exercises.nb23.puzzles import PUZZLES, Puzzle, counted
from exercises.traced_kernels import Case, correct, within
from exercises.traced_tiles import jitted, traced
from kerneltrace import Trace
from kerneltrace.tiles import TileTrace
from labkit.lesson.bests import compared, number_in_words
from labkit.lesson.checks import Passed

_PLURAL = {"load": "reads", "store": "writes", "atomic": "atomics"}


def judge(number: str, answer: object) -> str:
    """Whether an answer is right, and what it costs beside par; the pass carries the
    costs, par and the trace that was counted.
    """
    puzzle = PUZZLES[number]
    cases = puzzle.cases()
    trace = trace_of(puzzle, answer, cases)
    costs = counted(puzzle, trace)
    words = _beside_par(costs, par(number))
    if compared(costs, par(number)) == "above par":
        wasted = _waste(parts_of(puzzle, trace), par_by_part(number))
        words += wasted or _conflicts(trace)
    return Passed(
        f"Right. Yours on {puzzle.size}: {words}.",
        costs=costs,
        trace=trace,
    )


def trace_of(puzzle: Puzzle, answer: object, cases: Sequence[Case]) -> Any:
    """The trace of the launch that is counted, the last one, of an answer that is right
    on all.
    """
    if puzzle.constants:
        return _trace_of_tiles(puzzle, answer, cases)
    traces = correct(
        answer,
        puzzle.parameters,
        cases,
        atomics=puzzle.atomics,
        tolerance=puzzle.within,
    )
    if puzzle.share:
        for trace, case in zip(traces, cases, strict=True):
            _judge_share(puzzle, trace, case)
    return traces[-1]


def _judge_share(puzzle: Puzzle, trace: Trace, case: Case) -> None:
    """NotYet where a thread has more than its share of an array's elements."""
    assert puzzle.share
    array, kind = puzzle.share
    elements = case.args[puzzle.parameters.split(", ").index(array)].size
    within(
        trace,
        f"elements of {array} in one thread",
        trace.busiest(array, kind),
        -(-elements // trace.threads),
        "Few threads do the work of many: let all threads have their share.",
    )


def _trace_of_tiles(puzzle: Puzzle, answer: object, cases: Sequence[Case]) -> Any:
    program = jitted(answer, puzzle.parameters)
    assert puzzle.constants
    trace = None
    for case in cases:
        constants: Any = puzzle.constants(case)
        advice = puzzle.advice.get(case.given, "")
        trace = traced(program, case, advice, within=puzzle.within, **constants)
        _judge_tile(trace, next(iter(case.expected)), puzzle.stored(constants))
    return trace


def _judge_tile(trace: TileTrace, out: str, most: int) -> None:
    """NotYet where a program stores more than its tile of the output."""
    stored = (
        int(trace.touched(out, program, "store").sum())
        for program in range(trace.programs)
    )
    within(
        trace,
        f"elements of {out} stored by one program",
        max(stored),
        most,
        "Each program has a tile of its own: let it leave the others' alone.",
    )


def _beside_par(costs: Mapping[str, float], of_par: Mapping[str, float]) -> str:
    """Costs beside par in words: "96 sectors, par 64; 12 steps, par 12"."""
    return "; ".join(
        f"{number_in_words(cost)} {name}, par {number_in_words(of_par[name])}"
        for name, cost in costs.items()
    )


def _waste(own: Parts, of_par: Parts) -> str:
    """What costs more than at par, the costliest first: ": the writes of out take 32
    more"; nothing where that is unknown.
    """
    more = {
        f"the {_PLURAL[kind]} of {array}": cost - of_par.get((array, kind), 0)
        for (array, kind), cost in own.items()
    }
    wasted = sorted(
        ((cost, where) for where, cost in more.items() if cost > 0), reverse=True
    )
    words = [f"{where} waste {number_in_words(cost)}" for cost, where in wasted]
    return f": {' and '.join(words)}" if words else ""


def _conflicts(trace: Any) -> str:
    """Bank conflicts in words; nothing where there are none."""
    if not isinstance(trace, Trace):
        return ""
    ways = max(
        trace.count(space="shared", kind=kind).ways for kind in ("load", "store")
    )
    if ways < 2:
        return ""
    return f": a bank of shared memory has to give up to {ways} words at once"


CHECKS = {number: functools.partial(judge, number) for number in PUZZLES}
