"""Predictions, measurements, verdicts, attempts at exercises and bests at puzzles, kept
one JSON object a line.

A reader's lines go to `results.jsonl` in the state folder; a recorded run in
data/recorded/ is the same format, so a recorded run *is* somebody's results file with a
name. A damaged line is reported and skipped, never lost or fatal. So is a line of an
unknown kind. Unknown fields are passed over, so a change of what one means needs a new
kind of line.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import math
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from labkit.core.display import Shown, brief_repr
from labkit.core.errors import BadMeasurement
from labkit.core.locked_file import Lines, append_line
from labkit.core.own_folder import of_this_user
from labkit.core.parameters import Kind, NonNegative, checked
from labkit.core.units import format_quantity, significant

Origin = Literal["measured", "simulated", "calculated", "recorded", "published"]
Profile = Literal["smoke", "ci", "full"]
VerdictWord = Literal[
    "holds", "holds when", "partly", "not shown", "does not hold", "not measured"
]

_SECTION = r"\d\d\.\d\d?"  # notebook and section
_KEY = re.compile(rf"({_SECTION}) (\S.*)")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_section(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(_SECTION, value))


def _is_unit(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


Section = Annotated[
    str, Kind("text such as '00.3'", _is_section, "It is notebook.section.")
]
Key = Annotated[str, Kind("text such as '00.3 all threads'", _is_text)]
NotebookName = Annotated[str, Kind("text such as '00'", _is_text)]
Unit = Annotated[str, Kind("text such as 'images/s'", _is_unit)]


@checked(error=BadMeasurement)
@dataclass(frozen=True, repr=False)
class Measurement(Shown):
    """A value (the median where there are samples) in `unit`, and everything needed to
    know what it means.

    `section` is notebook and section, "00.3"; `what` names the quantity within it.
    `predicted` is the reader's guess in the same unit, if one was made before. `claims`
    are the ids of the claims it bears on. `size` says what one call handled, "batch
    64", and is empty where that isn't known; `dtype` is the number format; `items` is
    what one call handled as a number, where a rate is counted in it (see
    `core.comparable`). Other programs took the share `waited` of its time (0 to 1, None
    if unknown); `busy` says so if no verdict may rest on the number. A published number
    has a `link` to its source, and for a machine who measured it, and on which device.
    A ratio has the ends of its 95 % interval, `low` and `high`, where they are known.
    """

    section: Section
    what: str
    value: float
    unit: Unit
    origin: Origin
    machine: str
    when: str
    samples: tuple[float, ...] = ()
    predicted: float | None = None
    profile: str = "full"
    claims: tuple[str, ...] = ()
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    size: str = ""
    dtype: str = ""
    items: float | None = None
    waited: float | None = None
    busy: str = ""
    link: str = ""
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        # lines of JSON have lists
        object.__setattr__(self, "samples", tuple(map(float, self.samples)))
        object.__setattr__(self, "claims", tuple(self.claims))

    @property
    def shows_no_difference(self) -> bool:
        """Whether the interval of a ratio holds 1, so that nothing is known to be
        faster.
        """
        if self.unit != "x" or not self._has_interval:
            return False
        low = 0.0 if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return low <= 1 <= high

    @property
    def _has_interval(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def amount(self) -> str:
        """The value in its unit, with its interval; "no difference seen" of a ratio
        whose interval holds 1.
        """
        value = format_quantity(self.value, self.unit)
        if not self._has_interval:
            return value
        low = significant(self.low or 0.0)
        top = "or more" if self.high is None else f"to {significant(self.high)}"
        interval = f"95 % interval {low} {top}"
        if self.shows_no_difference:
            return f"no difference seen ({value}, {interval})"
        return f"{value} ({interval})"

    @property
    def came_from(self) -> str:
        """Origin and machine, "recorded on M" or "published: who, device": what a board
        writes beside the number.
        """
        if self.origin == "published":
            return f"published: {self.machine}"
        return f"{self.origin} on {self.machine}"

    @property
    def key(self) -> str:
        """Section and name, "00.3 all threads": what a prediction, a measurement and a
        recorded value share.
        """
        return f"{self.section} {self.what}"

    def __str__(self) -> str:
        is_own = self.origin not in ("recorded", "published")
        source = self.origin if is_own else self.came_from
        conditions = filter(None, (source, self.size, self.dtype, self.busy))
        return f"{self.what}: {self.amount} ({'; '.join(conditions)})"


@checked(error=BadMeasurement)
@dataclass(frozen=True)
class Prediction:
    """A number the reader wrote down; `blind` is False when the same thing had been
    measured here before.
    """

    section: Section
    what: str
    value: NonNegative
    unit: Unit
    when: str
    blind: bool = True


@checked(error=BadMeasurement)
@dataclass(frozen=True)
class Verdict:
    """What this machine's measurements say of a claim, and why.

    `intervals` are the 95 % intervals (low, high) of the speed-ups that it was judged
    by, by name, and `least` is what the claim asks of them: the verdict can be judged
    anew. Those of before these were kept have no `least`.
    """

    claim: str
    verdict: VerdictWord
    because: str
    section: Section
    machine: str
    when: str
    least: float | None = None
    intervals: dict[str, Sequence[float | None]] = dataclasses.field(
        default_factory=dict
    )


@checked(error=BadMeasurement)
@dataclass(frozen=True)
class Attempt:
    """A step at an exercise: an answer that was checked, or help that was asked for.

    `what` is the exercise's number, "10.6b"; `section` is notebook and section.
    `answer` is the same for the same answer, `step` says which hint was shown, and
    `message` what the check replied.
    """

    section: Section
    what: str
    state: Literal["passed", "not yet", "hint", "solution"]
    when: str
    answer: str = ""
    step: int = 0
    message: str = ""


@checked(error=BadMeasurement)
@dataclass(frozen=True)
class Best:
    """What a right answer to a puzzle costs, where no answer before it cost less.

    `what` names the puzzle, "23.10" or "four stages"; `counts` are what the answer
    costs by name, of which less is better and the first decides; `par` is what the
    course's own answer costs. Bests are comparable that have the same names of counts
    and the same `size`, which says what was counted: "1,000 numbers".
    """

    section: Section
    what: str
    counts: dict[str, NonNegative]
    par: dict[str, NonNegative]
    when: str
    size: str = ""

    @property
    def key(self) -> str:
        """The puzzle's name with its section: "23.10", "14.3 four stages"."""
        if section_of(self.what) == self.section:
            return self.what
        return f"{self.section} {self.what}"


Entry = Measurement | Prediction | Verdict | Attempt | Best
_KINDS: dict[str, type[Entry]] = {
    cls.__name__.lower(): cls
    for cls in (Measurement, Prediction, Verdict, Attempt, Best)
}
# What may differ between two entries on the same thing, of which the later one counts:
# in a measurement, a prediction and a verdict.
_OUTCOME = {
    *("value", "when", "samples", "predicted", "claims", "versions"),
    *("waited", "busy", "low", "high"),
    *("blind", "verdict", "because", "least", "intervals"),
}
# fields that a line leaves out where they are empty or 0
_OPTIONAL = ("size", "dtype", "busy", "link", "answer", "step", "message")
_FIELDS = {
    cls: [field.name for field in dataclasses.fields(cls)] for cls in _KINDS.values()
}
_SAME = {
    cls: [name for name in names if name not in _OUTCOME]
    for cls, names in _FIELDS.items()
}
_SAME[Attempt] = _FIELDS[Attempt]  # each counts
_SAME[Best] = []  # each counts, by its line


def section_of(number: str) -> str:
    """Notebook and section of an exercise's number: "10.6" of "10.6b"."""
    return number.rstrip("abcdefghijklmnopqrstuvwxyz")


def split_key(key: str) -> tuple[str, str]:
    """("00.3", "all threads") of "00.3 all threads", spare spaces aside; BadMeasurement
    for anything else.
    """
    if isinstance(key, str) and (match := _KEY.fullmatch(" ".join(key.split()))):
        return match[1], match[2]
    raise BadMeasurement(
        "Expected a key like '00.3 all threads' (notebook.section and a name), got"
        f" {brief_repr(key)}."
    )


def now() -> str:
    """The time in UTC, to the second, as ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def to_line(entry: Entry) -> str:
    """One line of JSON, without the line's end; samples to seven digits, more than any
    clock is good for.
    """
    line: dict[str, Any] = {"kind": type(entry).__name__.lower()}
    for name, value in dataclasses.asdict(entry).items():
        is_empty = value in (None, (), {}) or (name in _OPTIONAL and not value)
        if not is_empty:
            line[name] = value
    if "samples" in line:
        line["samples"] = [float(f"{sample:.7g}") for sample in line["samples"]]
    return json.dumps(line, ensure_ascii=False)


def from_line(line: str) -> Entry:
    """The entry of one line; BadMeasurement says what is wrong with it."""
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadMeasurement(
            f"Expected a line of JSON, got {brief_repr(line)} ({error})."
        ) from error
    kind = fields.get("kind") if isinstance(fields, dict) else None
    if not isinstance(kind, str):
        raise BadMeasurement(
            f"Expected a JSON object with a kind out of {', '.join(_KINDS)}, got"
            f" {line.strip()[:60]}."
        )
    if kind not in _KINDS:
        raise BadMeasurement(
            f"Written by a newer labkit (kind {brief_repr(kind)}), and kept in the"
            " file."
        )
    cls: Any = _KINDS[kind]
    values = {name: fields[name] for name in _FIELDS[cls] if name in fields}
    try:
        entry: Entry = cls(**values)
    except TypeError as error:
        raise BadMeasurement(f"Expected the fields of a {kind} ({error}).") from error
    return entry


class Results:
    """A results file, and what could not be written to it.

    Lines are appended whole and under a lock, so several kernels may share the file.
    Where the folder can't be written, entries stay in memory, `note` says so, and the
    next append or probe tries again, in their order.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""
        self._lines = Lines(path, from_line, same, own=True)
        self._unsaved: list[Entry] = []
        # of this kernel's threads; between processes the file's own lock counts
        self._writing = threading.Lock()

    def append(self, entry: Entry) -> None:
        """Add an entry at the end of the file, or in memory when the file can't be
        written.
        """
        self._unsaved.append(entry)
        self.probe()

    def probe(self) -> None:
        """Write what could not be written before, and let `note` say whether the file
        can be written.
        """
        with self._writing:
            try:
                if not self._unsaved:
                    append_line(self.path, "")
                while self._unsaved:
                    append_line(self.path, to_line(self._unsaved[0]))
                    del self._unsaved[0]  # only now: the write may have raised
            except OSError as error:
                self.note = (
                    f"Results can't be written to {self.path}"
                    f" ({error.strerror or error}), so they stay in memory and are gone"
                    " when this kernel stops. Set LABKIT_HOME to a folder of yours"
                    " with free space."
                )
            else:
                self.note = ""

    def entries(self) -> list[Entry]:
        """Of the readable entries on the same thing the last, in the order of writing;
        then those kept in memory.
        """
        # between two writes, an entry may be in the file and in memory
        saved = self._lines.read()[0]
        return [
            *(entry for entry in saved if entry not in self._unsaved),
            *self._unsaved,
        ]

    def damaged(self) -> list[str]:
        """A sentence for each reason to skip lines: how many, and what is wrong. They
        stay in the file.
        """
        return self._lines.read()[1]


def same(entry: Entry) -> tuple[object, ...]:
    """What two entries have in common where the later one replaces the earlier: all but
    their outcome.
    """
    if isinstance(entry, Best):
        return Best, to_line(entry)
    return (type(entry), *(getattr(entry, name) for name in _SAME[type(entry)]))


def read(path: Path) -> tuple[list[Entry], list[str]]:
    """What `Results` reads of a file, whoever owns it: entries, and a sentence for each
    reason to skip lines.
    """
    return _lines_at(path).read()


_lines_at = functools.cache(lambda path: Lines(path, from_line, same))


def state_folder() -> Path:
    """Where a reader's results and ceilings are kept: LABKIT_HOME, or the user's state
    folder. It may not exist yet.

    Users who share one LABKIT_HOME have a folder each in it (see `of_this_user`).
    """
    import platformdirs

    home = os.environ.get("LABKIT_HOME")
    if home:
        return of_this_user(Path(home).expanduser())
    return of_this_user(platformdirs.user_state_path("labkit", appauthor=False))


def results() -> Results:
    """The results file of this reader."""
    return _results_at(state_folder() / "results.jsonl")


_results_at = functools.cache(Results)


def profile() -> Profile:
    """What LABKIT_PROFILE asks for: 'ci', the smallest sizes; 'smoke', these and the
    fewest readings; else 'full'.
    """
    match os.environ.get("LABKIT_PROFILE"):
        case "smoke":
            return "smoke"
        case "ci":
            return "ci"
        case _:
            return "full"
