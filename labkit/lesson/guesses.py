"""The reader's guess: asked for, judged and kept by `predict`, and set beside the
number when that is measured.

Boards and `record` call `check_lock` before they show a number, and `answer` after; the
cell then ends with the guess and the number in one sentence.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from labkit import plot
from labkit.core import results
from labkit.core.arguments import as_float
from labkit.core.display import Note, Shown, brief_repr, cut
from labkit.core.errors import BadMeasurement, LabError
from labkit.core.parameters import Positive, checked
from labkit.core.results import Entry, Key, Measurement, Prediction, Unit
from labkit.core.units import format_quantity, is_count, significant
from labkit.lesson.live import publish, publish_question, spoken_html
from labkit.lesson.notebook import attended, shell
from labkit.measure.machine import machine
from labkit.plot.picture import Picture

# guesses, of which the sentence below a measurement says how many were close
_LAST = 10
# the most that a guess may be, by unit
_MOST = {"%": 100.0, "x": 1e6, "times": 1e6, "images/s": 1e9}
_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_THOUSANDS = re.compile(r"[1-9]\d{0,2}([, ]\d{3})+(\.\d+)?")
# keys of predictions that this kernel has asked for in vain, in their order
_open: dict[str, None] = {}
# what the running cell has measured that the reader had guessed
_answered: dict[str, Measurement] = {}


class GuessFirst(LabError):
    """A cell would measure what the reader hasn't guessed yet, and LABKIT_LOCK=1 asks
    for the guess first.
    """

    # of IPython: what a cell shows in place of a traceback
    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@checked(error=BadMeasurement)
def predict(
    key: Key,
    guess: object,
    unit: Unit,
    *,
    most: Positive | None = None,
    order: tuple[Positive, Positive] | None = None,
) -> Note | Question:
    """Write down a guess before measuring, under a key such as "00.3 all threads";
    `...` asks for it.

    In a notebook that somebody reads, `...` shows a field for the number, or with
    `order`, the lowest and the highest that make sense, a logarithmic slider. The guess
    is kept in the results file; boards and the closing table show it beside the
    measurement. A guess that was made before measuring stays: a later one is not kept.
    Nor is a guess that can't be, and the note says why: what is below 0, 0 for a time,
    a rate or a ratio, more than `most` (or than the unit allows: 100 %), part of a
    thing that is counted. Raises BadMeasurement for a malformed key or unit.
    """
    key = " ".join(results.split_key(key))
    if guess is not ...:
        return Note(_keep(key, guess, unit, most).message)
    former = predicted(key, unit)
    if former is None:
        _open[key] = None
        text = (
            f"todo: put a number in place of the dots ({unit}). A wrong guess teaches"
            " more than none."
        )
    elif _is_measured(key):
        return Note(_unchanged(key, former, unit))
    else:
        text = f"{_yours(key, former, unit)} It can be changed until it is measured."
    return Question(key, unit, text, most, order) if attended() else Note(text)


def predicted(key: str, unit: str | None = None) -> float | None:
    """The reader's last guess under a key, or None; with `unit`, None too where it was
    made in another one.
    """
    prediction = latest(results.results().entries(), key, Prediction)
    if isinstance(prediction, Prediction) and unit in (None, prediction.unit):
        return prediction.value
    return None


def _yours(key: str, guess: float, unit: str) -> str:
    _, what = results.split_key(key)
    return f"Your guess: {format_quantity(guess, unit)} for {what}."


def _unchanged(key: str, guess: float, unit: str) -> str:
    return (
        f"{_yours(key, guess, unit)} It has been measured since, so it can't be"
        " changed."
    )


def _is_measured(key: str) -> bool:
    return latest(results.results().entries(), key) is not None


class Question(Shown):
    """A field for a guess, or with `order` a logarithmic slider between these two; once
    it is kept, a sentence.

    In the cell's output there are two parts, as in `lesson.live`: the text that the
    notebook keeps, and below it the widget, which hides the text while it lives and
    gives way to it once there is a guess.
    """

    def __init__(
        self,
        key: str,
        unit: str,
        text: str,
        most: float | None,
        order: Sequence[float] | None,
    ) -> None:
        import ipywidgets as widgets

        self._key = key
        self._unit = unit
        self._most = most
        self._text = text
        self._id = ""
        self.button = widgets.Button(description="Keep this guess")
        self.button.on_click(self._enter)
        self.told = widgets.HTML("" if text.startswith("todo") else spoken_html(text))
        controls = self._number_field() if order is None else self._slider(order)
        row = widgets.HBox(
            [*controls, self.button], layout=widgets.Layout(flex_flow="row wrap")
        )
        self.box = widgets.VBox([row, self.told])

    def _look(self) -> dict[str, Any]:
        import ipywidgets as widgets

        _, what = results.split_key(self._key)
        label = f"Your guess for {what}, in {self._unit}"
        return {
            "description": label,
            "style": {"description_width": "initial"},
            "layout": widgets.Layout(width=f"{len(label) // 2 + 16}em"),
        }

    def _number_field(self) -> list[Any]:
        import ipywidgets as widgets

        self.field = widgets.Text(
            continuous_update=False, placeholder="a number", **self._look()
        )
        # it changes with Enter, or when it is left
        self.field.observe(self._enter, names="value")
        return [self.field]

    def _slider(self, order: Sequence[float]) -> list[Any]:
        import ipywidgets as widgets

        low, high = (math.log10(end) for end in sorted(order))
        self.field = widgets.FloatLogSlider(
            10 ** ((low + high) / 2),
            min=low,
            max=high,
            step=0.05,
            readout=False,
            **self._look(),
        )
        readout = widgets.Label()

        def show_value(_: object = None) -> None:
            readout.value = format_quantity(self._guess(), self._unit)

        show_value()
        self.field.observe(show_value, names="value")
        return [self.field, readout]

    def __str__(self) -> str:
        return self._text

    def _guess(self) -> Any:
        """The field's text, or the slider's value to two digits, more
        than a guess has.
        """
        value = self.field.value
        return value if isinstance(value, str) else float(f"{value:.2g}")

    def _enter(self, _event: object) -> None:
        """Judge the guess; where it is kept, the sentence takes the widget's place."""
        # a click on the button leaves the field, which kept the guess already
        if self.told in self.box.children[:1]:
            return
        former = predicted(self._key, self._unit)
        if former is not None and _is_measured(self._key):  # since the field was shown
            kept = True
            sentence = (
                f"{_yours(self._key, former, self._unit)} It was measured before you"
                " changed it."
            )
        else:
            kept, sentence = _keep(self._key, self._guess(), self._unit, self._most)
        html = spoken_html(sentence)
        self.told.value = html
        if kept:
            self._text = sentence
            # for a page that doesn't take the updates below
            self.box.children = [self.told]
            publish(f"{self._id}-live", {"text/html": "", "text/plain": ""})
            publish(f"{self._id}-kept", {"text/html": html, "text/plain": sentence})

    def _ipython_display_(self) -> None:
        self._id = publish_question(self.box, spoken_html(self._text), self._text)


class _Reply(NamedTuple):
    """Whether a guess is kept, and what the reader is told."""

    kept: bool
    message: str


def _keep(key: str, guess: object, unit: str, most: float | None) -> _Reply:
    """Keep a guess that can be one."""
    value = _number(guess, unit)
    if value is None:
        expected = f"a number in {unit}, such as 20"
    else:
        expected = refusal(value, unit, most)
    if value is None or expected:
        message = f"Expected {expected}, got {brief_repr(guess)}. Nothing was noted."
        return _Reply(False, message)
    log = results.results()
    former = latest(log.entries(), key, Prediction)
    blind = not _is_measured(key)
    if not blind and isinstance(former, Prediction) and former.blind:
        if (former.value, former.unit) != (value, unit):
            return _Reply(False, _unchanged(key, former.value, former.unit))
        blind = True  # the same one again
    section, what = results.split_key(key)
    log.append(Prediction(section, what, value, unit, results.now(), blind))
    _open.pop(key, None)
    message = _yours(key, value, unit)
    if unit == "%" and 0 < value < 1:
        message += " That is less than one percent; for 95 % write 95."
    if not blind:
        message += (
            " It was measured here before this guess, so the closing table marks it."
        )
    return _Reply(True, f"{message} {log.note}".rstrip())


def _number(guess: object, unit: str) -> float | None:
    """A guess as a number; text may have commas or spaces between thousands, k, M or G
    behind the number, and end with the unit.
    """
    if not issubclass(type(guess), str):
        return as_float(guess)
    text = str(guess).strip().removesuffix(unit).strip()
    if _THOUSANDS.fullmatch(text):
        text = re.sub("[, ]", "", text)
    factor = _PREFIXES.get(text[-1:], 1.0)
    if factor != 1.0:
        text = text[:-1]
    try:
        return float(text) * factor
    except ValueError:
        return None


def refusal(value: float, unit: str, most: float | None) -> str:
    """What was expected in place of a number that can't be a guess; empty for one that
    can.
    """
    most = _MOST.get(unit) if most is None else most
    can_be_0 = kind(unit) == "shares and others"
    if not 0 <= value < math.inf or (value == 0 and not can_be_0):
        least = "of at least 0" if can_be_0 else "above 0"
        return f"a number {least} in {unit}"
    if most is not None and value > most:
        return f"at most {format_quantity(most, unit)}"
    if is_count(unit) and not value.is_integer():
        return f"a whole number of {unit}"
    return ""


def kind(unit: str) -> str:
    """What a unit is of: "times", "rates" or "ratios", none of which is ever 0, or
    "shares and others".
    """
    if unit in ("s", "ms", "µs", "ns", "min", "h", "days", "years"):
        return "times"
    if unit.endswith("/s"):
        return "rates"
    if unit in ("x", "times", "FLOP/B"):
        return "ratios"
    return "shares and others"


def check_lock(section: str) -> None:
    """Raise GuessFirst where the reader has to guess first: with LABKIT_LOCK=1, if a
    guess in the section is open.
    """
    waiting = [repr(key[5:]) for key in _open if key.startswith(f"{section} ")]
    if waiting and os.environ.get("LABKIT_LOCK") == "1" and attended():
        raise GuessFirst(
            f"Write your guess for {' and '.join(waiting)} first, then run this cell"
            " again."
        )


def latest(
    entries: Iterable[Entry], key: str, kind: type[Entry] = Measurement
) -> Entry | None:
    """The last entry of a kind under a key, or None."""
    section, what = results.split_key(key)
    last = None
    for entry in entries:
        if isinstance(entry, results.Verdict) or not isinstance(entry, kind):
            continue
        if (entry.section, entry.what) == (section, what):
            last = entry
    return last


def answer(measured: Measurement) -> None:
    """Let the running cell end with the reader's guess beside this number, if there was
    one.
    """
    running = shell()
    if measured.predicted is not None and running is not None:
        _answered[measured.key] = measured
        # a second time changes nothing
        running.events.register("post_run_cell", _close_cell)


def answered() -> tuple[Measurement, ...]:
    """What the running cell has measured that the reader had guessed; it is for the
    caller to show from then on.
    """
    if _answered and (running := shell()) is not None:
        running.events.unregister("post_run_cell", _close_cell)
    measured = tuple(_answered.values())
    _answered.clear()
    return measured


def _close_cell(*_: object) -> None:
    from IPython.display import display

    measured = answered()
    display(_drawn(measured) or Note(in_words(measured)))


def _drawn(measured: tuple[Measurement, ...]) -> Picture | None:
    """Guesses beside their numbers, where no board draws them: timings have samples,
    and stand on boards.
    """
    bars = [
        plot.Bar(
            cut(m.what, 34),
            m.value,
            m.low,
            m.high,
            predicted=m.predicted,
            simulated=m.origin != "measured",
        )
        for m in measured
    ]
    unit = measured[0].unit
    if any(m.samples or m.unit != unit or m.value < 0 for m in measured):
        return None
    return dataclasses.replace(
        plot.speed_bars(bars, unit=unit, title="Your guess"),
        sentence=in_words(measured),
    )


def in_words(measured: tuple[Measurement, ...]) -> str:
    """Guess and number of each measurement, and how many of the last guesses were
    close; "" for no measurement.
    """
    if len(measured) == 1:
        sentences = [_comparison(measured[0], "You")]
    else:
        sentences = [_comparison(m, f"For {m.what!r} you") for m in measured]
    ratios = [m.value / guess for guess, m in before_measuring()[-_LAST:]]
    if measured and len(ratios) > 1:
        close = sum(0.5 <= ratio <= 2 for ratio in ratios)
        were = "was" if close == 1 else "were"
        sentences.append(
            f"Of your last {len(ratios)} guesses, {close} {were} within 2x."
        )
    return " ".join(sentences)


def _comparison(m: Measurement, you: str) -> str:
    """`You said 2,000 images/s, it was 7,320 images/s: a factor of 3.7 more.` is one
    such sentence.
    """
    assert m.predicted is not None
    guess = format_quantity(m.predicted, m.unit)
    if m.shows_no_difference:
        return f"{you} said {guess}: {m.amount}."
    number = m.amount if m.origin == "measured" else f"{m.amount} ({m.origin})"
    distance = apart(m.value, m.predicted, m.unit)
    comparison = f"{you} said {guess}, it was {number}: {distance}."
    if m.busy:
        comparison += " This guess doesn't count, since the machine was busy."
    return comparison


def apart(value: float, guess: float, unit: str) -> str:
    """How far a number is from its guess, in words: the factor, or the difference where
    one of them isn't above 0.
    """
    more = "more" if value > guess else "less"
    if guess > 0 and value > 0:
        factor = max(value / guess, guess / value)
        if factor <= 1.1:
            return "less than a tenth off"
        return f"a factor of {significant(factor, 2)} {more}"
    if value == guess:
        return "exactly that"
    off_by = format_quantity(abs(value - guess), "points" if unit == "%" else unit)
    return f"{off_by} {more}"


def before_measuring(
    entries: Sequence[Entry] | None = None,
) -> list[tuple[float, Measurement]]:
    """Each guess that was made before measuring, with what was found last, in the order
    of the findings.

    Of somebody's `entries`; without them, of this reader's, and of what this machine
    found. Left out are measurements on a busy machine, and guesses and numbers that
    aren't above 0: they have no ratio.
    """
    here = None
    if entries is None:
        here = machine().name
        entries = results.results().entries()
    guesses: dict[tuple[str, str], Prediction] = {}
    last: dict[tuple[str, str], Measurement] = {}
    for entry in entries:
        if isinstance(entry, Prediction):
            guesses[entry.section, entry.what] = entry
        elif isinstance(entry, Measurement) and here in (None, entry.machine):
            last.pop((entry.section, entry.what), None)  # so that it is the last again
            last[entry.section, entry.what] = entry
    pairs = []
    for key, m in last.items():
        guess = guesses.get(key)
        if guess is None or not guess.blind or guess.unit != m.unit or m.busy:
            continue
        if guess.value > 0 and m.value > 0:
            pairs.append((guess.value, m))
    return pairs
