"""Equations and inequalities of whole numbers: what follows from them, found by rules
that are right for all values.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence, Set

from kerneltrace.proof.polynomial import Monomial, Polynomial, quotient, symbol

MAX_STEPS = 12
"""Of a search for a sum of facts; more are needed by no kernel that was tried."""
MAX_ROUNDS = 20


def is_nonnegative(
    value: Polynomial, facts: Sequence[Polynomial], signed: Set[str]
) -> bool:
    """Whether a value is a sum of facts, each times a product of numbers that aren't
    negative, and of such products.

    Facts are polynomials that aren't negative, and `signed` names that may be: the
    search eliminates one monomial after the other, as in Handelman's theorem. False
    says that no such sum was found.
    """
    waiting = [(0, 0, value)]
    seen = {value}
    for _ in range(MAX_STEPS):
        if not waiting:
            return False
        _, _, value = heapq.heappop(waiting)
        bad = _bad(value, signed)
        if not bad:
            return True
        factors = max(bad, key=lambda factors: (len(factors), factors))
        for better in _without(value, factors, facts, signed):
            left = len(_bad(better, signed))
            if better in seen or left > len(bad):
                continue
            seen.add(better)
            heapq.heappush(waiting, (left, len(seen), better))
    return False


def _bad(value: Polynomial, signed: Set[str]) -> list[Monomial]:
    """The terms of a value that may be negative."""
    return [
        factors
        for factors, n in value.terms.items()
        if n < 0 or not signed.isdisjoint(factors)
    ]


def _without(
    value: Polynomial,
    factors: Monomial,
    facts: Sequence[Polynomial],
    signed: Set[str],
) -> Iterator[Polynomial]:
    """Values without a term: where one of them isn't negative, neither is `value`.

    Each is m * value + m - 1, which isn't negative where the whole number `value`
    isn't, less a fact times what isn't negative.
    """
    n = value.terms[factors]
    for fact in facts:
        for part, m in fact.terms.items():
            rest = quotient(factors, part) if (m > 0) == (n > 0) else None
            if rest is not None and signed.isdisjoint(rest):
                scaled = value * abs(m) + (abs(m) - 1)
                yield scaled - fact * Polynomial({rest: abs(n)})


class System:
    """Facts (polynomials that aren't negative) and equations (polynomials that are 0,
    also such whose negative is a fact), and what follows for `goals`.

    `varying` names have values of their own for the two threads that are compared.
    """

    def __init__(
        self,
        equations: Sequence[Polynomial],
        facts: Sequence[Polynomial],
        goals: Sequence[Polynomial],
        signed: Set[str],
        varying: Set[str],
    ) -> None:
        opposite = {-fact for fact in facts}
        self.equations = [*equations, *(fact for fact in facts if fact in opposite)]
        self.facts = [fact for fact in facts if (fact.number or -1) < 0]
        self.goals = list(goals)
        self._signed = signed
        self._varying = varying

    def contradicts(self) -> bool:
        """Draw conclusions until there are no more; whether no numbers solve the
        system.
        """
        for _ in range(MAX_ROUNDS):
            parts = dict.fromkeys(
                part for equation in self.equations for part in self._split(equation)
            )
            is_settled = list(parts) == self.equations
            self.equations = list(parts)
            if is_settled and not self._substitute():
                break
        opposite = [-equation for equation in self.equations]
        values = [*self.facts, *self.equations, *opposite]
        return any(self._is_nonnegative(-value - 1) for value in values)

    def _is_nonnegative(self, value: Polynomial) -> bool:
        return is_nonnegative(value, self.facts, self._signed)

    def _split(self, equation: Polynomial) -> list[Polynomial]:
        """Equations that are equivalent to one.

        M high + low = 0 where -M < low < M says that both are 0: the digits of a number
        are unique.
        """
        for factors, n in self._radices(equation):
            radix = Polynomial({factors: n})
            high, low = equation.divided(factors, n)
            bounds = radix - 1 - low, radix - 1 + low
            if high.terms and all(map(self._is_nonnegative, bounds)):
                return [part for part in (high, low) if part.terms]
        return [equation] if equation.terms else []

    def _radices(self, equation: Polynomial) -> list[tuple[Monomial, int]]:
        """What may be M, the largest first: what terms have in common to both."""
        radices = {
            (tuple(name for name in factors if name not in self._varying), abs(n))
            for factors, n in equation.terms.items()
        }
        return sorted(radices, key=lambda radix: (-len(radix[0]), -radix[1], radix))

    def _substitute(self) -> bool:
        """Take one equation as the value of a name, the shortest one; False where none
        is.
        """
        for equation in sorted(
            self.equations, key=lambda p: (len(p.terms), str(p.terms))
        ):
            for factors, n in sorted(equation.terms.items()):
                if len(factors) != 1 or abs(n) != 1 or factors[0] not in self._varying:
                    continue
                value = Polynomial({factors: 1}) - equation * n
                if factors[0] not in value.names:
                    self._replace(factors[0], value)
                    return True
        return False

    def _replace(self, name: str, value: Polynomial) -> None:
        if name not in self._signed:
            self.facts.append(symbol(name))
        for values in (self.equations, self.facts, self.goals):
            values[:] = [each.replaced({name: value}) for each in values]
