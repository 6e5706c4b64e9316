"""Boards that fill while a cell runs: bars of what is measured, and curves that grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from matplotlib.axes import Axes

from labkit import plot
from labkit.core import results
from labkit.core.arguments import check_function, check_number
from labkit.core.display import brief_repr
from labkit.core.errors import BadMeasurement
from labkit.core.units import format_quantity
from labkit.lesson import journal
from labkit.lesson.live import Live
from labkit.measure import bench
from labkit.measure.bench import Comparison, Timing

T = TypeVar("T", Timing, Comparison)


class SpeedBoard(Live):
    """Bars of what is measured in one section: prediction, limit, measured with spread, recorded elsewhere.

    `section` is notebook and section, "00.3". A row's prediction is what `lab.predict("00.3 row", ...)`
    noted, and its recorded values are those under the same key. With `items` a row shows items per second
    in `unit`; without, seconds. What can't be shown or recorded raises BadMeasurement before it is measured.
    """

    def __init__(self, section: str, title: str, *, unit: str = "s", log: bool = False) -> None:
        results.check_section(section)
        results.check_unit(unit)
        self.section, self.title, self.unit, self.log = section, title, unit, log
        self._bars: dict[str, plot.Bar] = {}
        self._newest: dict[str, tuple[Timing, float | None]] = {}  # timings and their items since the last frame
        self._stopped: dict[str, int] = {}  # readings of rows that an error or Ctrl-C ended
        super().__init__()

    def draw(self, axes: Axes) -> str:
        """Draw every row there is."""
        while self._newest:
            timing, items = self._newest.popitem()[1]
            self._fill(timing, items)
        words = plot.speed_bars.on(axes, list(self._bars.values()), unit=self.unit, title=self.title, log=self.log)
        cut = (f"{row}: stopped after {n} reading{'s' * (n != 1)}." for row, n in self._stopped.items())
        return " ".join([words, *cut])

    def limit(self, row: str, value: float) -> None:
        """Draw the limit of a row, in the board's unit."""
        check_number("the limit", value, above=0, advice=f"It is a number in {self.unit}.")
        self._row(row).limit = float(value)
        self.show()
        self.finish()

    def absent(self, row: str, needs: str) -> None:
        """Show a row that can't be measured here: recorded values where there are any, else what it needs."""
        bar = self._row(row)
        elsewhere = "recorded runs are shown" if bar.others else "no recorded run has it yet"
        guess = "" if bar.predicted is None else f"; your prediction: {format_quantity(bar.predicted, self.unit)}"
        bar.note = f"not measured here: needs {needs}; {elsewhere}{guess}"
        self.show()
        self.finish()

    def time(
        self,
        row: str,
        fn: Callable[[], object],
        *,
        items: float | None = None,
        claims: Sequence[str] = (),
        **timing: Any,
    ) -> Timing:
        """`lab.time_call` whose row fills as it runs; the result is recorded. Ctrl-C keeps the row."""
        check_function(row, fn)
        return self._measure([row], items, claims, lambda on: bench.time_call(fn, label=row, on_sample=on, **timing))

    def compare(
        self,
        rows: Mapping[str, Callable[[], object]],
        *,
        items: float | None = None,
        claims: Sequence[str] = (),
        **timing: Any,
    ) -> Comparison:
        """`lab.compare` whose rows fill as they run, taken in turn; each is recorded under this section."""
        bench.check_alternatives(rows)
        return self._measure(list(rows), items, claims, lambda on: bench.compare(rows, on_sample=on, **timing))

    def add(self, row: str, timing: Timing, *, items: float | None = None, simulated: bool = False) -> None:
        """Show a timing that was taken elsewhere; nothing is recorded."""
        journal.check_items("The board", self.unit, items)
        self._fill(timing, items, row=row)
        self._row(row).simulated = simulated
        self.show()
        self.finish()

    def _measure(
        self,
        rows: Sequence[str],
        items: float | None,
        claims: Sequence[str],
        run: Callable[[Callable[[Timing], None]], T],
    ) -> T:
        journal.check_items("The board", self.unit, items)
        journal.check_claims(claims)
        for row in rows:
            self._begin(row)
        self.show()
        taken: dict[str, int] = {}

        def on_sample(timing: Timing) -> None:
            taken[timing.label] = len(timing.samples_s)
            self._newest[timing.label] = timing, items
            self.tick()

        try:
            result = run(on_sample)
            for timing in [result] if isinstance(result, Timing) else result.timings:
                journal.record(f"{self.section} {timing.label}", timing, self.unit, items=items, claims=claims)
        except BaseException:
            self._stopped.update(taken)
            raise
        finally:  # also after Ctrl-C: what was measured stays on the board
            self.finish()
        return result

    def _begin(self, row: str) -> None:
        bar = self._row(row)
        bar.note, bar.simulated = "stopped before it was measured", False
        bar.measured = bar.low = bar.high = None
        self._stopped.pop(row, None)

    def _fill(self, timing: Timing, items: float | None, row: str = "") -> None:
        bar = self._row(row or timing.label)
        low_s, high_s = timing.quartiles_s
        ends = (low_s, high_s) if items is None else (items / high_s, items / low_s)
        bar.measured = timing.median_s if items is None else timing.rate(items)
        bar.low, bar.high = ends

    def _row(self, name: str) -> plot.Bar:
        if not isinstance(name, str) or not name.strip():
            raise BadMeasurement(f"Expected a name for the row, got {brief_repr(name)}.")
        if name not in self._bars:
            key = f"{self.section} {name}"
            guess = journal.predicted(key, self.unit)
            others = [(f"{m.origin} on {m.machine}", m.value) for m in results.recorded(key) if m.unit == self.unit]
            self._bars[name] = plot.Bar(name, predicted=guess, others=others)
        return self._bars[name]


class Curves(Live):
    """Lines that grow while a cell runs: `curves.add(loss=0.7)`; one colour and marker a name."""

    def __init__(self, title: str, *, x: str = "step", y: str = "loss") -> None:
        self.title, self.x, self.y = title, x, y
        self.series: dict[str, list[float]] = {}
        super().__init__()

    def draw(self, axes: Axes) -> str:
        """Draw every line there is."""
        return plot.curves.on(axes, self.series, x=self.x, y=self.y, title=self.title)

    def add(self, **values: float) -> None:
        """Append a value to each named line, and redraw if the last frame is old enough."""
        self.show()
        for name, value in values.items():
            self.series.setdefault(name.replace("_", " "), []).append(float(value))
        self.tick()
