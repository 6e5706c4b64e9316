"""Two pages of the same work compared: before and after a change, on two machines."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from steptime._page import html_page, markdown
from steptime._tables import Shown, Table
from steptime._units import format_seconds, format_si, significant
from steptime.arguments import choice, expected, instance
from steptime.limits import FORMAT, LIMITS, Gain, Limit

_SAME_FLOP = 0.02  # by which two steps of the same work may differ in their FLOP
_MOVED = 0.02  # of the time before, from which on a limit has a row


@dataclass(frozen=True, repr=False)
class LoopComparison(Shown):
    """The page of a loop `before` a change and the page `after` it.

    `times` is how many times as fast a step has become, `low` and `high` the ends of
    its interval, from those of both pages; they are 0 where a page has none.
    """

    before: Limit
    after: Limit

    @property
    def times(self) -> float:
        """Seconds a step before, over those after."""
        return self.before.loop_s / self.after.loop_s

    @property
    def low(self) -> float:
        """The least that `times` may be."""
        fast_before, _ = self.before.interval_s
        _, slow_after = self.after.interval_s
        return fast_before / slow_after if slow_after else 0.0

    @property
    def high(self) -> float:
        """The most that `times` may be."""
        _, slow_before = self.before.interval_s
        fast_after, _ = self.after.interval_s
        return slow_before / fast_after if fast_after else 0.0

    def table(self) -> Table:
        """A row for each limit: its seconds a step before and after, and what they
        changed by; the largest change first.
        """
        rows = []
        for name, before_s, after_s in self._moved():
            changed = after_s - before_s
            sign = "+" if changed > 0 else "-"
            rows.append(
                (
                    name,
                    format_seconds(before_s),
                    format_seconds(after_s),
                    sign + format_seconds(abs(changed)),
                )
            )
        headings = ("limit", "before, a step", "after", "change")
        return Table(tuple(rows), headings, self._title(), self._notes())

    def _moved(self) -> list[tuple[str, float, float]]:
        seconds = []
        for name in LIMITS:
            before_s = self.before.shares.get(name, 0.0) * self.before.loop_s
            after_s = self.after.shares.get(name, 0.0) * self.after.loop_s
            if max(before_s, after_s) >= _MOVED * self.before.loop_s:
                seconds.append((name, before_s, after_s))
        return sorted(seconds, key=lambda row: -abs(row[2] - row[1]))

    def _title(self) -> str:
        before = format_seconds(self.before.loop_s)
        after = format_seconds(self.after.loop_s)
        title = f"{self._verdict()}: a step took {before}, and takes {after}."
        was = self.before.largest
        now = self.after.largest
        if was == now:
            return f"{title} The largest limit is {now}, as before."
        return f"{title} The largest limit was {was}, and is {now} now."

    def _verdict(self) -> str:
        times = f"{significant(self.times)}x as fast"
        if not self.low or not self.high:
            return f"{times}, from too few steps for an interval"
        span = f"{significant(self.low)} to {significant(self.high)}"
        if self.low <= 1 <= self.high:
            return f"No sure difference ({span}x as fast)"
        return f"{times} ({span})"

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self.before.machine != self.after.machine:
            notes.append(
                f"Two machines: {self.before.machine} before, {self.after.machine}"
                " after."
            )
        if not self.before.flop:
            notes.append(
                "The steps have no products of matrices, so nothing tells whether they"
                " are the same work."
            )
        for when, page in (("before", self.before), ("after", self.after)):
            if page.doubt:
                notes.append(f"The page {when} is in doubt: {page.doubt}.")
        return tuple(notes)

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends in .html, self-contained, or in .md, Markdown.
        Raises ValueError for another ending.
        """
        path = Path(path)
        choice("the ending of the file's name", path.suffix, (".html", ".md"))
        table = self.table()
        text = markdown(table)
        if path.suffix == ".html":
            text = html_page("Two training loops compared", table, self.after.shares)
        path.write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def compare(before: Limit | str | Path, after: Limit | str | Path) -> LoopComparison:
    """What a change has moved: two pages of the same work, or the files .json that
    their `save` wrote, on one machine or on two.

    Raises ValueError where the steps are not the same work: their products have other
    FLOP.
    """
    before = _page("before", before)
    after = _page("after", after)
    if not math.isclose(before.flop, after.flop, rel_tol=_SAME_FLOP):
        raise ValueError(
            "Expected two pages of the same work, got"
            f" {format_si(before.flop, 'FLOP')} a step before and"
            f" {format_si(after.flop, 'FLOP')} after. Compare loops with the same model"
            " and the same batch."
        )
    return LoopComparison(before, after)


def _page(name: str, page: Limit | str | Path) -> Limit:
    if isinstance(page, str | Path):
        return load(page)
    instance(name, page, Limit)
    return page


def load(path: str | Path) -> Limit:
    """The page that `save` wrote to a file that ends in .json.

    Raises ValueError where the file holds something else.
    """
    advice = "It is a file that steptime's save wrote, such as before.json."
    words = f"a page of steptime, format {FORMAT}"
    try:
        tree = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # neither text nor JSON
        raise ValueError(expected(str(path), words, str(error), advice)) from None
    if not isinstance(tree, dict) or tree.pop("steptime", None) != FORMAT:
        raise ValueError(expected(str(path), words, tree, advice))
    try:
        return _limit(tree)
    except (KeyError, TypeError, ValueError) as error:
        message = f"{type(error).__name__}: {error}"
        raise ValueError(expected(str(path), words, message, advice)) from None


def _limit(tree: dict[str, Any]) -> Limit:
    """The Limit of a tree of JSON; KeyError, TypeError or ValueError where it has other
    names or values.
    """
    unknown = tree.keys() - {field.name for field in fields(Limit)}
    if unknown:
        raise KeyError(*unknown)
    shares = {name: _number(share) for name, share in tree.pop("shares").items()}
    for name in shares:
        choice("a limit", name, LIMITS)
    low, high = map(_number, tree.pop("interval_s"))
    return Limit(
        shares=shares,
        evidence=tuple(map(str, tree.pop("evidence"))),
        remarks=tuple(map(str, tree.pop("remarks"))),
        loop_s=_number(tree.pop("loop_s"), above=0.0),
        gains=tuple(Gain(**gain) for gain in tree.pop("gains")),
        interval_s=(low, high),
        **tree,
    )


def _number(value: Any, above: float = -1e-9) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    if not above < value < math.inf:
        raise ValueError(f"{value!r} is out of bounds")
    return float(value)
