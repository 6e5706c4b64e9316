"""Polynomials with whole coefficients: a kernel's indices and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

Monomial = tuple[str, ...]
"""The names of its factors, sorted, each as often as it occurs; () is the number 1."""


class Polynomial:
    """A sum of monomials, each with its coefficient; immutable."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {factors: n for factors, n in terms.items() if n}

    def __add__(self, other: Polynomial | int) -> Polynomial:
        terms = dict(self.terms)
        for factors, n in polynomial(other).terms.items():
            terms[factors] = terms.get(factors, 0) + n
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial({factors: -n for factors, n in self.terms.items()})

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -polynomial(other)

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        if isinstance(other, int):
            return Polynomial({factors: n * other for factors, n in self.terms.items()})
        terms: dict[Monomial, int] = {}
        for left, m in self.terms.items():
            for right, n in other.terms.items():
                factors = tuple(sorted(left + right))
                terms[factors] = terms.get(factors, 0) + m * n
        return Polynomial(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def number(self) -> int | None:
        """Its value where it has no factors; None where it has some."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def names(self) -> set[str]:
        """The names of all factors."""
        return {name for factors in self.terms for name in factors}

    def replaced(self, values: Mapping[str, Polynomial]) -> Polynomial:
        """The same with values for some names."""
        if not any(name in values for name in self.names):
            return self
        total = Polynomial({})
        for factors, n in self.terms.items():
            product = polynomial(n)
            for name in factors:
                product = product * values.get(name, Polynomial({(name,): 1}))
            total = total + product
        return total

    def renamed(self, rename: Callable[[str], str]) -> Polynomial:
        """The same with other names."""
        return Polynomial(
            {
                tuple(sorted(map(rename, factors))): n
                for factors, n in self.terms.items()
            }
        )

    def divided(self, divisor: Monomial, by: int) -> tuple[Polynomial, Polynomial]:
        """`high` and `low` of which the polynomial is high * by * divisor + low, each
        coefficient divided toward 0.
        """
        high: dict[Monomial, int] = {}
        low: dict[Monomial, int] = {}
        for factors, n in self.terms.items():
            rest = quotient(factors, divisor)
            if rest is None:
                low[factors] = n
                continue
            whole = abs(n) // by
            whole = whole if n > 0 else -whole
            high[rest] = whole
            low[factors] = n - whole * by
        return Polynomial(high), Polynomial(low)

    @property
    def content(self) -> int:
        """The greatest common divisor of its coefficients."""
        return math.gcd(*self.terms.values())


def polynomial(value: Polynomial | int) -> Polynomial:
    """A number as a polynomial."""
    return value if isinstance(value, Polynomial) else Polynomial({(): value})


def quotient(dividend: Monomial, divisor: Monomial) -> Monomial | None:
    """The factors of `dividend` without those of `divisor`; None where some lack."""
    rest = list(dividend)
    for name in divisor:
        if name not in rest:
            return None
        rest.remove(name)
    return tuple(rest)
