"""`Proof`: whether no two threads reach one element at once, and by which argument."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kerneltrace._tables import ShownAsTable, Table
from kerneltrace.proof.polynomial import Polynomial
from kerneltrace.proof.symbols import Result, Sharing
from kerneltrace.proof.system import System
from kerneltrace.proof.walker import PossibleAccess, Walker, conflict

ONLY_THIS_RUN = "Only this run was looked at."
ASSUMED = (
    "Taken for granted: different parameters are different arrays, whose elements lie"
    " apart, and indices lie inside of them and don't overflow."
)


@dataclass(frozen=True)
class Argument:
    """Why two accesses, which may be the same one, can't conflict."""

    array: str
    lines: tuple[int, int]
    words: str


@dataclass(frozen=True, repr=False)
class Proof(ShownAsTable):
    """Whether a kernel has no race for any data and any grid.

    An access conflicts with one of another thread to the same element, if one of the
    two is a store, or one an atomic and the other not, unless a barrier of their block
    is in between (CUDA C++ Programming Guide, "Memory Consistency Model").
    """

    proven: bool
    reason: str
    """For which launches; or why only this run was looked at."""
    arguments: tuple[Argument, ...] = ()
    """One for each pair of accesses."""
    block: tuple[int, ...] | None = None
    """The threads of a block, where the proof is for these only."""

    def table(self) -> Table:
        """What a cell shows."""
        if not self.proven:
            return Table((("not proven",),), (), "", (self.reason,))
        rows: tuple[tuple[str, ...], ...] = tuple(
            (argument.array, " and ".join(map(str, argument.lines)), argument.words)
            for argument in self.arguments
        )
        notes = self.reason, ASSUMED
        if not rows:
            return Table((("no two threads share an element",),), (), "", notes)
        return Table(rows, ("array", "lines", "why they can't conflict"), "", notes)


class Unproven(Exception):
    """Two accesses of which it isn't proven that they can't conflict."""


def arguments(
    walker: Walker, places: Iterable[str], blocks: Iterable[str]
) -> list[Argument]:
    """An argument for each pair of accesses that could conflict; Unproven for the first
    pair without one.

    `places` are the names that tell a thread within its block, `blocks` those that tell
    a block.
    """
    judge = _Judge(walker, tuple(places), tuple(blocks))
    words: dict[tuple[str, tuple[int, int]], set[str]] = {}
    for left, right, is_one_block in _pairs(walker):
        low, high = sorted((left.line, right.line))
        key = left.memory.name, (low, high)
        words.setdefault(key, set()).add(judge.argument(left, right, is_one_block))
    return [
        Argument(array, lines, "; ".join(sorted(each)))
        for (array, lines), each in words.items()
    ]


def _pairs(walker: Walker) -> Iterator[tuple[PossibleAccess, PossibleAccess, bool]]:
    """Two accesses, and whether only threads of one block may do them at once."""
    for left, right in walker.together:
        yield left, right, True
    of_grid = [access for access in walker.accesses if not access.memory.is_shared]
    by_array = itertools.groupby(
        sorted(of_grid, key=lambda access: access.memory.name),
        key=lambda access: access.memory.name,
    )
    for _, group in by_array:
        for left, right in itertools.combinations_with_replacement(group, 2):
            if conflict(left.kind, right.kind):
                yield left, right, False


class _Judge:
    """Compares accesses, each by a thread of its own: names that the second has for
    itself get a prime.
    """

    def __init__(
        self, walker: Walker, places: tuple[str, ...], blocks: tuple[str, ...]
    ) -> None:
        self._walker = walker
        self._symbols = walker.symbols
        self._places = places
        self._blocks = blocks
        self._known: dict[object, str] = {}

    def argument(
        self, left: PossibleAccess, right: PossibleAccess, is_one_block: bool
    ) -> str:
        """Why the two can't conflict: within a block, or from block to block."""
        key = id(left), id(right), is_one_block
        if key not in self._known:
            self._known[key] = self._argument(left, right, is_one_block)
        return self._known[key]

    def _argument(
        self, left: PossibleAccess, right: PossibleAccess, is_one_block: bool
    ) -> str:
        if self._walker.counts_from_end:
            self._require_unwrapped(left)
            self._require_unwrapped(right)
        shared = Sharing.BLOCK if is_one_block else Sharing.GRID
        same = self._places if is_one_block else self._blocks
        system, primed, again = self._system(left, right, shared)
        if system.contradicts(again):
            return "their elements never meet"
        differences = (
            Polynomial({(name,): 1}) - Polynomial({(primed(name),): 1}) for name in same
        )
        if not any(system.reduced(difference).terms for difference in differences):
            what = "thread" if is_one_block else self._blocks[0].split("_")[0]
            what = what.removesuffix("Idx.x")
            return f"each {what} has elements of its own"
        raise Unproven(_unproven(left, right, is_one_block))

    def _require_unwrapped(self, access: PossibleAccess) -> None:
        """Unproven for an index that may be negative, which counts from the end."""
        path = [*access.path, *access.zero, *(-value for value in access.zero)]
        for index in access.memory.index:
            if not self._symbols.is_nonnegative(index, path):
                raise Unproven(
                    f"line {access.line}: an index of {access.memory.name}"
                    f" {_depends(access)}."
                )

    def _system(
        self, left: PossibleAccess, right: PossibleAccess, shared: Sharing
    ) -> tuple[System, Callable[[str], str], Callable[[], Iterator[Polynomial]]]:
        """What holds where both reach the same element."""
        symbols = self._symbols

        def varies(name: str) -> bool:
            return symbols.sharing[name.removesuffix("'")] > shared

        def primed(name: str) -> str:
            return f"{name}'" if varies(name) else name

        def prime(value: Polynomial) -> Polynomial:
            return value.renamed(primed)

        left_facts, left_results = self._about(left)
        right_facts, right_results = self._about(right)
        equations = [
            mine - prime(other)
            for mine, other in zip(left.memory.index, right.memory.index, strict=True)
        ]
        equations += [*left.zero, *map(prime, right.zero)]
        results = [*left_results]
        results += [
            Result(
                result.kind,
                tuple(map(prime, result.of)),
                tuple(map(prime, result.values)),
            )
            for result in right_results
        ]
        for mine in left_results:
            if mine in right_results and mine.kind == "division":
                equations.append(mine.exact - prime(mine.exact))
        facts = dict.fromkeys([*left_facts, *map(prime, right_facts)])
        signed = {*symbols.signed, *(f"{name}'" for name in symbols.signed)}
        system = System(equations, list(facts), signed, varies)
        return system, primed, lambda: _equal_results(system, results)

    def _about(self, access: PossibleAccess) -> tuple[list[Polynomial], list[Result]]:
        """The facts about an access, and the numbers in it that others determine."""
        symbols = self._symbols
        values = [*access.memory.index, *access.path, *access.zero]
        names = sorted(symbols.reached(values))
        facts = [fact for name in names for fact in symbols.facts.get(name, ())]
        results = [symbols.results[name] for name in names if name in symbols.results]
        return [*access.path, *facts], list(dict.fromkeys(results))


def _equal_results(system: System, results: list[Result]) -> Iterator[Polynomial]:
    """Equations: the same operation gives equal results for equal operands, and a
    division's operands follow from its results.
    """

    def are_equal(left: Iterable[Polynomial], right: Iterable[Polynomial]) -> bool:
        pairs = zip(left, right, strict=True)
        return not any(system.reduced(mine - other).terms for mine, other in pairs)

    for left, right in itertools.combinations(results, 2):
        if left.kind != right.kind or len(left.of) != len(right.of):
            continue
        if are_equal(left.of, right.of):
            for mine, other in zip(left.values, right.values, strict=True):
                yield mine - other
        elif (
            left.kind == "division"
            and are_equal(left.of[1:], right.of[1:])
            and are_equal(left.values, right.values)
        ):
            yield left.of[0] - right.of[0]


def _unproven(left: PossibleAccess, right: PossibleAccess, is_one_block: bool) -> str:
    """Why two accesses are not known to be apart, in words."""
    who = "threads of a block" if is_one_block else "different blocks"
    for access in filter(_has_data, (right, left)):
        what = f"an index of {access.memory.name}"
        return f"line {access.line}: {what} {_depends(access)}."
    lines = f"line {left.line}"
    if left.line != right.line:
        lines = f"lines {min(left.line, right.line)} and {max(left.line, right.line)}"
    return f"{lines}: two {who} may reach the same element of {left.memory.name}."


def _has_data(access: PossibleAccess) -> bool:
    return any(
        name.startswith("data#")
        for index in access.memory.index
        for name in index.names
    )


def _depends(access: PossibleAccess) -> str:
    if _has_data(access):
        return "depends on data"
    return "may be below 0, which counts from the end"
