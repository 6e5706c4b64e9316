"""Polynomials with whole coefficients: a kernel's indices and bounds."""

from __future__ import annotations

from collections.abc import Mapping

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
        return self * -1

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + other * -1

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        if isinstance(other, int):
            return Polynomial({factors: n * other for factors, n in self.terms.items()})
        terms: dict[Monomial, int] = {}
        for right, n in other.terms.items():
            for left, m in self.terms.items():
                factors = tuple(sorted(left + right))
                terms[factors] = terms.get(factors, 0) + m * n
        return Polynomial(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __str__(self) -> str:
        return str(sorted(self.terms.items()))

    @property
    def number(self) -> int | None:
        """Its value where it has no factors; None where it has some."""
        return None if self.names else self.terms.get((), 0)

    @property
    def names(self) -> set[str]:
        """The names of all factors."""
        return {name for factors in self.terms for name in factors}

    def replaced(self, values: Mapping[str, Polynomial]) -> Polynomial:
        """The same with values for some names."""
        if values.keys().isdisjoint(self.names):
            return self
        total = polynomial(0)
        for factors, n in self.terms.items():
            product = polynomial(n)
            for name in factors:
                product = product * values.get(name, symbol(name))
            total = total + product
        return total

    def divided(self, divisor: Monomial, by: int) -> tuple[Polynomial, Polynomial]:
        """`high` and `low` of which the polynomial is high * by * divisor + low, each
        coefficient divided toward 0.
        """
        high: dict[Monomial, int] = {}
        for factors, n in self.terms.items():
            rest = quotient(factors, divisor)
            if rest is not None:
                high[rest] = abs(n) // by if n > 0 else -(abs(n) // by)
        return Polynomial(high), self - Polynomial(high) * Polynomial({divisor: by})


def polynomial(value: Polynomial | int) -> Polynomial:
    """A number as a polynomial."""
    return value if isinstance(value, Polynomial) else Polynomial({(): value})


def symbol(name: str) -> Polynomial:
    """An unknown number."""
    return Polynomial({(name,): 1})


def quotient(dividend: Monomial, divisor: Monomial) -> Monomial | None:
    """The factors of `dividend` without those of `divisor`; None where some lack."""
    rest = list(dividend)
    for name in divisor:
        if name not in rest:
            return None
        rest.remove(name)
    return tuple(rest)
