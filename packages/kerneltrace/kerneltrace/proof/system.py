"""Equations and inequalities of whole numbers: what follows from them, found by rules
that are right for all values.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence, Set

from kerneltrace.proof.polynomial import Monomial, Polynomial, quotient

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
    degree = max([2, *map(len, value.terms)])
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
            if better in seen or max(map(len, better.terms), default=0) > degree:
                continue
            seen.add(better)
            left = len(_bad(better, signed))
            if left <= len(bad):
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
    """Values without a term, each times a number above 0 and less a fact times what
    isn't negative: they are no greater in sign.
    """
    n = value.terms[factors]
    for fact in facts:
        for part, m in fact.terms.items():
            rest = quotient(factors, part) if (m > 0) == (n > 0) else None
            if rest is not None and signed.isdisjoint(rest):
                yield value * abs(m) - fact * Polynomial({rest: abs(n)})


class System:
    """Equations (polynomials that are 0) and facts (polynomials that aren't negative),
    and what follows.

    `varies` says of a name whether the two threads that are compared have values of
    their own.
    """

    def __init__(
        self,
        equations: Sequence[Polynomial],
        facts: Sequence[Polynomial],
        signed: Set[str],
        varies: Callable[[str], bool],
    ) -> None:
        self.equations = list(equations)
        self.facts = [fact for fact in facts if (fact.number or -1) < 0]
        self.signed = signed
        self.values: dict[str, Polynomial] = {}
        self._varies = varies

    def reduced(self, value: Polynomial) -> Polynomial:
        """A value with all that follows put in."""
        return value.replaced(self.values)

    def contradicts(
        self, more: Callable[[], Iterator[Polynomial]] = lambda: iter(())
    ) -> bool:
        """Draw conclusions until there are no more; whether no numbers solve the
        system. `more` gives equations that follow from those so far.
        """
        for _ in range(MAX_ROUNDS):
            parts: dict[Polynomial, None] = {}
            for equation in self.equations:
                split = self._split(equation)
                if split is None:
                    return True
                parts |= dict.fromkeys(split)
            is_settled = list(parts) == self.equations
            self.equations = list(parts)
            if is_settled and not self._substitute():
                new = [self.reduced(equation) for equation in more()]
                new = [equation for equation in new if equation.terms]
                if not new:
                    break
                self.equations += new
        return any(self._is_nonnegative(-fact - 1) for fact in self.facts)

    def _is_nonnegative(self, value: Polynomial) -> bool:
        return is_nonnegative(value, self.facts, self.signed)

    def _split(self, equation: Polynomial) -> list[Polynomial] | None:
        """Equations that are equivalent to one; None where it has no solution.

        M high + low = 0 where -M < low < M says that both are 0: the digits of a number
        are unique.
        """
        if not equation.terms:
            return []
        if self._is_nonnegative(equation - 1) or self._is_nonnegative(-equation - 1):
            return None
        for factors, n in self._radices(equation):
            radix = Polynomial({factors: n})
            high, low = equation.divided(factors, n)
            if not high.terms:
                continue
            if not low.terms:
                if self._is_nonnegative(radix - 1):
                    return [high]
                continue
            if self._is_nonnegative(radix - 1 - low) and self._is_nonnegative(
                radix - 1 + low
            ):
                return [high, low]
        return [equation]

    def _radices(self, equation: Polynomial) -> list[tuple[Monomial, int]]:
        """What may be M, the largest first: what terms have in common to both."""
        radices: set[tuple[Monomial, int]] = {((), equation.content)}
        for factors, n in equation.terms.items():
            shared = tuple(name for name in factors if not self._varies(name))
            if len(shared) < len(factors):
                radices |= {(shared, abs(n)), (shared, 1)}
        radices.discard(((), 1))
        return sorted(radices, key=lambda radix: (-len(radix[0]), -radix[1], radix))

    def _substitute(self) -> bool:
        """Take one equation as the value of a name, the shortest one; False where none
        is.
        """
        for equation in sorted(
            self.equations, key=lambda p: (len(p.terms), str(p.terms))
        ):
            for factors, n in sorted(equation.terms.items(), reverse=True):
                if len(factors) != 1 or abs(n) != 1 or not self._varies(factors[0]):
                    continue
                (name,) = factors
                value = Polynomial({factors: 1}) - equation * n
                if name not in value.names:
                    self._replace(name, value)
                    return True
        return False

    def _replace(self, name: str, value: Polynomial) -> None:
        values = {name: value}
        self.values = {
            other: known.replaced(values) for other, known in self.values.items()
        }
        self.values[name] = value
        self.equations = [equation.replaced(values) for equation in self.equations]
        self.facts = [fact.replaced(values) for fact in self.facts]
        if name not in self.signed:
            self.facts.append(value)
