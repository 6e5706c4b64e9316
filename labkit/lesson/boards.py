"""Boards that fill while a cell runs: bars of what is measured, and
curves that grow.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from matplotlib.axes import Axes

from labkit import plot
from labkit.core import results
from labkit.core.arguments import as_float
from labkit.core.comparable import Work, beside
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument, BadMeasurement
from labkit.core.parameters import Items, Positive, checked
from labkit.core.results import Section, Unit
from labkit.core.units import format_quantity
from labkit.lesson import guesses, journal
from labkit.lesson.claims import check_claims
from labkit.lesson.live import Live
from labkit.measure import bench, published
from labkit.measure.bench import Comparison, Timing
from labkit.measure.contention import Contention
from labkit.measure.machine import give_back_gpu_memory

T = TypeVar("T", Timing, Comparison)
OnSample = Callable[[Timing], None]


class SpeedBoard(Live):
    """Bars of what is measured in one section: prediction, limit, measured with spread,
    values from elsewhere.

    `section` is notebook and section, "00.3". A row's prediction is what
    `lab.predict("00.3 row", ...)` noted. With `items` a row shows items per second in
    `unit`; without, seconds. What can't be shown or recorded raises BadMeasurement
    before it is measured.

    `size` says what one call handles, such as f"batch {batch}", `dtype` in which number
    format; they end the title. A row's recorded values are those under the same key
    that did the same work: unit, size, format, items and profile; its published ones,
    those of the same unit, size and format. For others the text below the figure says
    what differs.
    """

    @checked(error=BadMeasurement)
    def __init__(
        self,
        section: Section,
        title: str,
        *,
        unit: Unit = "s",
        size: str = "",
        dtype: str = "",
        log: bool = False,
    ) -> None:
        self.section = section
        self.unit = unit
        self.log = log
        self._work = Work(unit, size, dtype, None, results.profile())
        self.title = ", ".join(part for part in (title, size, dtype) if part)
        self._bars: dict[str, plot.Bar] = {}
        # a row's recorded values that did other work, in sentences
        self._apart: dict[str, list[str]] = {}
        self._calculated: dict[str, list[tuple[str, float]]] = {}
        # what others published that belongs to a row
        self._cited: dict[str, list[published.Cited]] = {}
        # timings and their items since the last frame
        self._newest: dict[str, tuple[Timing, float | None]] = {}
        self._busy: dict[str, Contention] = {}  # rows that give no verdict
        # readings of rows that an error or Ctrl-C ended
        self._stopped: dict[str, int] = {}
        super().__init__()

    def draw(self, axes: Axes) -> str:
        """Draw every row there is."""
        while self._newest:
            self._fill(*self._newest.popitem()[1])
        sentence = plot.speed_bars.on(
            axes,
            list(self._bars.values()),
            unit=self.unit,
            title=self.title,
            log=self.log,
        )
        stopped = (
            f"{row}: stopped after {'1 reading' if n == 1 else f'{n} readings'}."
            for row, n in self._stopped.items()
        )
        cited = itertools.chain.from_iterable(self._cited.values())
        sentences = [
            sentence,
            *stopped,
            *self._in_words_busy(),
            *self._by_reason(self._apart),
            *published.citations(cited),
        ]
        return " ".join(sentences)

    @checked(error=BadMeasurement)
    def limit(self, row: str, value: Positive) -> None:
        """Draw the limit of a row, in the board's unit."""
        self._row(row).limit = value
        self.show()
        self.finish()

    @checked(error=BadMeasurement)
    def expect(self, row: str, calculated: Mapping[str, Positive]) -> None:
        """Show beside a row what was calculated for it, by what for: "H200, at most",
        in the board's unit.
        """
        self._calculated[row] = [
            (f"calculated: {what}", value) for what, value in calculated.items()
        ]
        self._look_up([row], self._work)

    @checked(error=BadMeasurement)
    def absent(
        self, row: str, needs: str, *, calculated: Mapping[str, Positive] | None = None
    ) -> None:
        """Show a row that can't be measured here: what it needs, and what was recorded,
        published or calculated.

        `calculated` maps what a value was calculated for, such as "H200, at most", to
        the value in the board's unit.
        """
        self.expect(row, calculated or {})
        bar = self._row(row)
        bar.note = f"not measured here: needs {needs}"
        if bar.predicted is not None:
            guess = format_quantity(bar.predicted, self.unit)
            bar.note += f"; your prediction: {guess}"
        self.show()
        self.finish()

    @checked(error=BadMeasurement)
    def time(
        self,
        row: str,
        fn: Callable[[], object],
        *,
        items: Positive | None = None,
        claims: Sequence[str] = (),
        **timing: Any,
    ) -> Timing:
        """`lab.time_call` whose row fills as it runs; the result is recorded. Ctrl-C
        keeps the row.
        """
        options = {**timing, "label": row, "on_wait": self.say}

        def run(on_sample: OnSample) -> Timing:
            return bench.time_call(fn, on_sample=on_sample, **options)

        return self._measure([row], items, claims, run)

    @checked(error=BadMeasurement)
    def compare(
        self,
        rows: Annotated[Mapping[str, Callable[[], object]], Items(2)],
        *,
        items: Positive | None = None,
        claims: Sequence[str] = (),
        **timing: Any,
    ) -> Comparison:
        """`lab.compare` whose rows fill as they run, taken in turn; each is recorded
        under this section.
        """
        options = {**timing, "on_wait": self.say}

        def run(on_sample: OnSample) -> Comparison:
            return bench.compare(rows, on_sample=on_sample, **options)

        return self._measure(list(rows), items, claims, run)

    @checked(error=BadMeasurement)
    def add(
        self,
        row: str,
        timing: Timing,
        *,
        items: Positive | None = None,
        simulated: bool = False,
    ) -> None:
        """Show a timing that was taken elsewhere; nothing is recorded."""
        self._look_up([row], self._with(items))
        self._fill(timing, items, row=row)
        self._note_busy(row, timing)
        self._row(row).simulated = simulated
        self.show()
        self.finish()

    def _measure(
        self,
        rows: Sequence[str],
        items: float | None,
        claims: Sequence[str],
        run: Callable[[OnSample], T],
    ) -> T:
        work = self._with(items)
        check_claims(claims)
        self._look_up(rows, work)
        for row in rows:
            self._begin(row)
        self.show()
        readings: dict[str, int] = {}

        def on_sample(timing: Timing) -> None:
            readings[timing.label] = len(timing.samples_s)
            self._newest[timing.label] = timing, items
            self.tick()

        try:
            result = run(on_sample)
            for timing in [result] if isinstance(result, Timing) else result.timings:
                self._note_busy(timing.label, timing)
                journal.record(
                    f"{self.section} {timing.label}",
                    timing,
                    self.unit,
                    items=items,
                    size=work.size,
                    dtype=work.dtype,
                    claims=claims,
                )
        except BaseException:
            self._stopped.update(readings)
            for row in set(rows) - set(readings):
                self._row(row).note = "stopped before it was measured"
            raise
        finally:  # also after Ctrl-C: what was measured stays on the board
            self.finish()
            give_back_gpu_memory()
        return result

    def _begin(self, row: str) -> None:
        bar = self._row(row)
        bar.note = plot.PENDING
        bar.simulated = False
        bar.measured = bar.low = bar.high = None
        self._stopped.pop(row, None)
        self._busy.pop(row, None)

    def _note_busy(self, row: str, timing: Timing) -> None:
        self._busy.pop(row, None)
        if timing.contention is not None and timing.busy:
            self._busy[row] = timing.contention

    def _in_words_busy(self) -> list[str]:
        """One sentence for all rows that were measured on a busy machine, with what was
        lost by the worst.
        """
        if not self._busy:
            return []
        worst = max(self._busy.values(), key=lambda contention: contention.lost or 0.0)
        reason = worst.reason[0].upper() + worst.reason[1:]
        if len(self._busy) < len(self._bars):
            reason += f" while it measured {', '.join(map(repr, self._busy))}"
        return [f"{reason}. When it is calm, rerun the cell that measured."]

    def _fill(self, timing: Timing, items: float | None, row: str = "") -> None:
        bar = self._row(row or timing.label)
        low_s, high_s = timing.quartiles_s
        if items is None:
            bar.low = low_s
            bar.high = high_s
            bar.measured = timing.median_s
        else:
            bar.low = items / high_s
            bar.high = items / low_s
            bar.measured = timing.rate(items)

    def _row(self, name: str) -> plot.Bar:
        if not isinstance(name, str) or not name.strip():
            raise BadMeasurement(
                f"Expected a name for the row, got {brief_repr(name)}."
            )
        if name not in self._bars:
            self._bars[name] = plot.Bar(
                name, predicted=guesses.predicted(f"{self.section} {name}", self.unit)
            )
        return self._bars[name]

    def _with(self, items: float | None) -> Work:
        """What one call does that handles `items`, which are checked against the
        board's unit.
        """
        journal.check_items("The board", self.unit, items)
        return dataclasses.replace(self._work, items=as_float(items))

    def _look_up(self, rows: Sequence[str], work: Work) -> None:
        """Put what others had of the same work beside the rows, and what differs in the
        rest below the figure.
        """
        guesses.check_lock(self.section)
        all_cited = published.cited(self.section)
        for row in rows:
            key = f"{self.section} {row}"
            bar = self._row(row)
            # it may be newer than the row
            bar.predicted = guesses.predicted(key, self.unit)
            cited = [citation for citation in all_cited if citation.number.what == row]
            same = [
                citation.number for citation in cited if citation.relation == "same"
            ]
            numbers, self._apart[row] = beside(key, work, same)
            self._cited[row] = [
                citation
                for citation in cited
                if citation.relation == "related" or citation.number in numbers
            ]
            bar.others = [
                *((number.came_from, number.value) for number in numbers),
                *self._calculated.get(row, []),
            ]

    def _by_reason(self, sentences: Mapping[str, Sequence[str]]) -> list[str]:
        """Each of the rows' sentences once, after the names of its rows where those
        aren't all.
        """
        rows_of: dict[str, list[str]] = {}
        for row, sentences_of_row in sentences.items():
            for sentence in sentences_of_row:
                rows_of.setdefault(sentence, []).append(row)
        named = []
        for sentence, rows in rows_of.items():
            if len(rows) < len(self._bars):
                sentence = f"{', '.join(map(repr, rows))}: {sentence}"
            named.append(sentence)
        return named


class Curves(Live):
    """Lines that grow while a cell runs: `curves.add(loss=0.7)`; one color and marker
    a name.
    """

    @checked
    def __init__(self, title: str, *, x: str = "step", y: str = "loss") -> None:
        self.title = title
        self.x = x
        self.y = y
        self.series: dict[str, list[float]] = {}
        super().__init__()

    def draw(self, axes: Axes) -> str:
        """Draw every line there is."""
        return plot.curves.on(axes, self.series, x=self.x, y=self.y, title=self.title)

    def add(self, **values: Any) -> None:
        """Append a number, or a tensor of one, to each named line, and redraw if the
        last frame is old enough.
        """
        self.show()
        for name, value in values.items():
            number = as_float(value)
            if number is None:
                raise BadArgument(
                    f"Expected {name} to be a number, got {brief_repr(value)}."
                )
            self.series.setdefault(name.replace("_", " "), []).append(number)
        self.tick()
