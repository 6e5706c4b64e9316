"""The unknown whole numbers of a kernel: which threads share them, and what holds for
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from kerneltrace.proof.polynomial import Polynomial
from kerneltrace.proof.system import is_nonnegative


class Sharing(IntEnum):
    """Who has the same value of a number."""

    GRID = 0
    BLOCK = 1
    """The threads of a block, between two barriers."""
    THREAD = 2


class Result(NamedTuple):
    """Numbers that an operation makes of others: a quotient and a remainder of a
    numerator and a divisor, or the least or greatest of some.
    """

    kind: str
    of: tuple[Polynomial, ...]
    values: tuple[Polynomial, ...]

    @property
    def exact(self) -> Polynomial:
        """Of a division what is 0: numerator - divisor * quotient - remainder."""
        numerator, divisor = self.of
        whole, rest = self.values
        return numerator - divisor * whole - rest


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
        self.results: dict[str, Result] = {}
        """By the names of what is made."""
        self._made: dict[tuple[str, tuple[Polynomial, ...]], Result] = {}

    def add(self, name: str, sharing: Sharing, *, least: int | None = 0) -> Polynomial:
        """A number of that name; `least` is its least value, None for any."""
        self.sharing[name] = sharing
        symbol = Polynomial({(name,): 1})
        if least is None:
            self.signed.add(name)
        elif least:
            self.facts[name] = (symbol - least,)
        return symbol

    def fresh(
        self, name: str, sharing: Sharing, *, least: int | None = 0
    ) -> Polynomial:
        """A number that no other name stands for."""
        return self.add(f"{name}#{len(self.sharing)}", sharing, least=least)

    def hold(self, symbol: Polynomial, *facts: Polynomial) -> None:
        """Add facts that hold wherever `symbol` occurs."""
        (name,) = symbol.names
        self.facts[name] = (*self.facts.get(name, ()), *facts)

    def shared_by(self, *values: Polynomial) -> Sharing:
        """Who has the same values of all these."""
        names = (self.sharing[name] for value in values for name in value.names)
        return max(names, default=Sharing.GRID)

    def reached(self, values: Iterable[Polynomial]) -> set[str]:
        """The names in values, and those in the facts about them."""
        names: set[str] = set()
        waiting = {name for value in values for name in value.names}
        while waiting:
            name = waiting.pop()
            names.add(name)
            about = list(self.facts.get(name, ()))
            if name in self.results:
                about += self.results[name].of + self.results[name].values
            waiting |= {other for fact in about for other in fact.names} - names
        return names

    def is_nonnegative(self, value: Polynomial, path: Sequence[Polynomial]) -> bool:
        """Whether a value is at least 0 where the facts of a path hold."""
        names = self.reached([value, *path])
        facts = [fact for name in sorted(names) for fact in self.facts.get(name, ())]
        return is_nonnegative(value, [*path, *facts], self.signed)

    def divided(
        self, numerator: Polynomial, divisor: Polynomial, path: Sequence[Polynomial]
    ) -> tuple[Polynomial, Polynomial]:
        """The quotient, rounded down, and the remainder of a division by a number above
        0.
        """
        if len(divisor.terms) == 1:
            ((factors, n),) = divisor.terms.items()
            high, low = numerator.divided(factors, n)
            fits = self.is_nonnegative(low, path) and self.is_nonnegative(
                divisor - 1 - low, path
            )
            if fits:
                return high, low
        of = numerator, divisor
        if ("division", of) not in self._made:
            sharing = self.shared_by(*of)
            # the path doesn't count: the names may be met elsewhere
            least = 0 if self.is_nonnegative(numerator, ()) else None
            whole = self.fresh("quotient", sharing, least=least)
            rest = self.fresh("remainder", sharing)
            result = self._keep(Result("division", of, (whole, rest)))
            self.hold(rest, divisor - 1 - rest)
            self.hold(whole, result.exact, -result.exact, divisor - 1)
            for name in numerator.names:
                self._bound(result, self.facts.get(name, ()))
        whole, rest = self._made["division", of].values
        return whole, rest

    def _bound(self, division: Result, facts: Iterable[Polynomial]) -> None:
        """Bound a quotient where its numerator has a number as its bound."""
        numerator, divisor = division.of
        whole, _ = division.values
        for fact in facts:
            most = (fact + numerator).number
            if most is not None and divisor.number:
                self.hold(whole, -whole + most // divisor.number)

    def _keep(self, result: Result) -> Result:
        self._made[result.kind, result.of] = result
        for symbol in result.values:
            (name,) = symbol.names
            self.results[name] = result
        return result

    def extreme(self, kind: str, values: Sequence[Polynomial]) -> Polynomial:
        """The `least` or the `greatest` of some values."""
        of = tuple(values)
        if (kind, of) not in self._made:
            negative = [not self.is_nonnegative(value, ()) for value in of]
            is_signed = any(negative) if kind == "least" else all(negative)
            symbol = self.fresh(
                kind, self.shared_by(*of), least=None if is_signed else 0
            )
            sign = 1 if kind == "least" else -1
            self.hold(symbol, *((value - symbol) * sign for value in of))
            self._keep(Result(kind, of, (symbol,)))
        return self._made[kind, of].values[0]
