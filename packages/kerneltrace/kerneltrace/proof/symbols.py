"""The unknown whole numbers of a kernel: which threads share them, and what holds for
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from kerneltrace.proof.polynomial import Polynomial, symbol
from kerneltrace.proof.system import is_nonnegative


class Sharing(IntEnum):
    """Who has the same value of a number."""

    GRID = 0
    BLOCK = 1
    """The threads of a block, between two barriers."""
    THREAD = 2


class Symbols:
    """The names of unknown numbers, and the facts about them: polynomials that aren't
    negative.
    """

    def __init__(self) -> None:
        self.sharing: dict[str, Sharing] = {}
        self.signed: set[str] = set()
        """Names of numbers that may be negative; no other is."""
        self.facts: dict[str, tuple[Polynomial, ...]] = {}
        """What holds wherever a name occurs."""

    def add(
        self,
        name: str,
        sharing: Sharing,
        below: Polynomial | None = None,
        *,
        least: int | None = 0,
    ) -> Polynomial:
        """A number of that name; `least` is its least value, None for any, and `below`
        is greater.
        """
        self.sharing[name] = sharing
        number = symbol(name)
        self.facts[name] = (below - 1 - number,) if below else ()
        if least is None:
            self.signed.add(name)
        elif least:
            self.facts[name] += (number - least,)
        return number

    def fresh(
        self, name: str, sharing: Sharing, *, least: int | None = 0
    ) -> Polynomial:
        """A number that no other name stands for."""
        return self.add(f"{name}#{len(self.sharing)}", sharing, least=least)

    def shared_by(self, *values: Polynomial) -> Sharing:
        """Who has the same values of all these."""
        names = (self.sharing[name] for value in values for name in value.names)
        return max(names, default=Sharing.GRID)

    def facts_about(self, values: Iterable[Polynomial]) -> list[Polynomial]:
        """The facts about the names in values, and about the names in these facts."""
        facts: dict[str, tuple[Polynomial, ...]] = {}
        waiting = {name for value in values for name in value.names}
        while waiting:
            name = waiting.pop()
            facts[name] = self.facts[name]
            waiting |= {other for fact in facts[name] for other in fact.names}
            waiting -= facts.keys()
        return [fact for name in sorted(facts) for fact in facts[name]]

    def is_nonnegative(self, value: Polynomial, path: Sequence[Polynomial]) -> bool:
        """Whether a value is at least 0 where the facts of a path hold."""
        facts = [*path, *self.facts_about([value, *path])]
        return is_nonnegative(value, facts, self.signed)

    def divided(
        self, numerator: Polynomial, divisor: Polynomial
    ) -> tuple[Polynomial, Polynomial]:
        """The quotient, rounded down, and the remainder of a division by a number above
        0.
        """
        names = f"{numerator} // {divisor}", f"{numerator} % {divisor}"
        if names[0] not in self.sharing:
            sharing = self.shared_by(numerator, divisor)
            # the path doesn't count: the names may be met elsewhere
            least = 0 if self.is_nonnegative(numerator, ()) else None
            whole = self.add(names[0], sharing, least=least)
            rest = self.add(names[1], sharing, divisor)
            exact = numerator - divisor * whole - rest
            for name in names:
                self.facts[name] += (exact, -exact, divisor - 1)
        return symbol(names[0]), symbol(names[1])
