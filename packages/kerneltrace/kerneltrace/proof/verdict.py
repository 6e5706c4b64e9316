"""`Proof`: whether no two threads reach one element at once, and by which argument."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kerneltrace._tables import ShownAsTable, Table
from kerneltrace.proof.polynomial import symbol
from kerneltrace.proof.symbols import Sharing
from kerneltrace.proof.system import System
from kerneltrace.proof.walker import NoArgument, PossibleAccess, Walker

ONLY_THIS_RUN = "Only this run was looked at."
ASSUMED = (
    "Taken for granted: different parameters are different arrays, whose elements lie"
    " apart, and indices lie inside of them and don't overflow."
)
NO_STORES = "reads don't conflict with each other, nor do atomics"


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
            return Table(((NO_STORES,),), (), "", notes)
        return Table(rows, ("array", "lines", "why they can't conflict"), "", notes)


def only_this_run(error: NoArgument) -> Proof:
    """No proof, and why."""
    return Proof(False, f"{ONLY_THIS_RUN} {error}".rstrip(".") + ".")


def arguments(
    walker: Walker, overlapping: Sequence[tuple[str, str]]
) -> tuple[Argument, ...]:
    """An argument for each pair of accesses that could conflict; NoArgument for the
    first pair without one.

    `overlapping` names pairs of arrays that share memory: neither may be written.
    """
    written = {each.memory.name for each in walker.accesses if each.kind != "load"}
    for one, other in overlapping:
        if one in written or other in written:
            raise NoArgument(f"{one} and {other} overlap")
    words: dict[tuple[str, tuple[int, int]], set[str]] = {}
    for left, right, is_one_block in _pairs(walker):
        low, high = sorted((left.line, right.line))
        argument = _argument(walker, left, right, is_one_block)
        words.setdefault((left.memory.name, (low, high)), set()).add(argument)
    return tuple(
        Argument(array, lines, "; ".join(sorted(each)))
        for (array, lines), each in words.items()
    )


def _pairs(walker: Walker) -> Iterator[tuple[PossibleAccess, PossibleAccess, bool]]:
    """Two accesses, and whether only threads of one block may do them at once."""
    if walker.thread_names:
        for left, right in walker.together:
            yield left, right, True
    for left, right in itertools.combinations_with_replacement(walker.accesses, 2):
        if left.conflicts(right) and not left.memory.is_shared:
            yield left, right, False


def _require_unwrapped(walker: Walker, access: PossibleAccess) -> None:
    """NoArgument for an index that may be negative, which counts from the end."""
    for index in access.memory.index:
        if not walker.symbols.is_nonnegative(index, access.path):
            raise NoArgument(_index_words(access))


def _argument(
    walker: Walker, left: PossibleAccess, right: PossibleAccess, is_one_block: bool
) -> str:
    """Why two accesses, each by a thread of its own, can't conflict: within a block, or
    from block to block. Names that the second thread has for itself get a prime.
    """
    if walker.counts_from_end:
        _require_unwrapped(walker, left)
        _require_unwrapped(walker, right)
    symbols = walker.symbols
    shared = Sharing.BLOCK if is_one_block else Sharing.GRID
    primed = {
        name: symbol(f"{name}'")
        for name, sharing in symbols.sharing.items()
        if sharing > shared
    }
    equations = [
        mine - other.replaced(primed)
        for mine, other in zip(left.memory.index, right.memory.index, strict=True)
    ]
    facts = [*left.path, *symbols.facts_about([*left.memory.index, *left.path])]
    of_right = [*right.path, *symbols.facts_about([*right.memory.index, *right.path])]
    facts += [fact.replaced(primed) for fact in of_right]
    places = walker.thread_names if is_one_block else walker.block_names
    system = System(
        equations,
        list(dict.fromkeys(facts)),
        [symbol(name) - primed[name] for name in places],
        {*symbols.signed, *(f"{name}'" for name in symbols.signed)},
        {*primed, *(f"{name}'" for name in primed)},
    )
    if system.contradicts():
        return "their elements never meet"
    if not any(goal.terms for goal in system.goals):
        what = "thread" if is_one_block else places[0].split("_")[0]
        return f"each {what.removesuffix('Idx.x')} has elements of its own"
    raise NoArgument(_unproven(left, right, is_one_block))


def _unproven(left: PossibleAccess, right: PossibleAccess, is_one_block: bool) -> str:
    """Why two accesses are not known to be apart, in words."""
    for access in filter(_has_data, (right, left)):
        return _index_words(access)
    who = "threads of a block" if is_one_block else "different blocks"
    lines = f"line {left.line}"
    if left.line != right.line:
        lines = f"lines {min(left.line, right.line)} and {max(left.line, right.line)}"
    return f"{lines}: two {who} may reach the same element of {left.memory.name}"


def _index_words(access: PossibleAccess) -> str:
    """What is wrong with an index of an access."""
    words = "may be below 0, which counts from the end"
    if _has_data(access):
        words = "depends on data, or isn't followed"
    return f"line {access.line}: an index of {access.memory.name} {words}"


def _has_data(access: PossibleAccess) -> bool:
    names = {name for index in access.memory.index for name in index.names}
    return any(name.startswith("data#") for name in names)
