"""Which recorded numbers may stand beside one that is measured here, and what keeps the
others away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.core.errors import BadMeasurement
from labkit.core.parameters import checked
from labkit.core.paths import RECORDED
from labkit.core.results import Measurement, read, split_key


@checked(error=BadMeasurement)
@dataclass(frozen=True)
class Work:
    """What a number depends on besides its machine; two numbers are comparable when
    both did the same work.

    `size` says what one call handles, "batch 64", and "" that it is unknown; `dtype` is
    the number format; `items` is what one call handles in the unit of a rate, None
    where nobody said. BadMeasurement for a field of another type.
    """

    unit: str
    size: str = ""
    dtype: str = ""
    items: float | None = None
    profile: str = "full"


@checked(error=BadMeasurement)
def recorded(key: str, folder: Path = RECORDED) -> list[Measurement]:
    """What the recorded runs hold under a key, marked as recorded: the last of each
    machine, unit, size and format.

    Set one beside a number of your own only where unit, size, format, `items` and
    `profile` are the same.
    """
    section, what = split_key(key)
    entries = (
        entry
        for path in sorted(Path(folder).glob("*.jsonl"))
        for entry in read(path)[0]
    )
    numbers = []
    for entry in entries:
        if not isinstance(entry, Measurement):
            continue
        if (entry.section, entry.what) != (section, what):
            continue
        # a simulated or calculated number stays one, wherever it was recorded
        if entry.origin == "measured":
            entry = dataclasses.replace(entry, origin="recorded")
        numbers.append(entry)
    return numbers


# field of Work -> how its value is said
_WORDING = {
    "unit": "in {}",
    "size": "{}",
    "dtype": "{}",
    "items": "{:,.6g} items a call",
    "profile": "profile {}",
}


def difference(there: Measurement, here: Work) -> str:
    """What keeps a recorded number from standing beside one of the work here, in words;
    empty where nothing does.
    """
    if there.busy:
        return "its machine was busy"
    if not there.size:  # a number of unknown size may have done any work
        return "its size was not recorded"
    sentences = {}
    for name, wording in _WORDING.items():
        value_there = getattr(there, name)
        value_here = getattr(here, name)
        if None in (value_there, value_here) or value_there == value_here:
            continue
        there_said, here_said = (
            wording.format("unknown" if value == "" else value)
            for value in (value_there, value_here)
        )
        sentences[name] = f"{there_said}, here {here_said}"
    if "size" in sentences:
        sentences.pop("items", None)  # the same difference in other words
    return "; ".join(sentences.values())


def beside(
    key: str, here: Work, published: Sequence[Measurement] = ()
) -> tuple[list[Measurement], list[str]]:
    """The recorded and `published` numbers under a key that did this work; a sentence
    for each other machine's.
    """
    shown = []
    sentences = {}  # of each machine the last
    numbers = [*recorded(key), *published]
    # another unit is the last to name
    for number in sorted(numbers, key=lambda number: number.unit == here.unit):
        if why := difference(number, here):
            source = number.came_from[0].upper() + number.came_from[1:]
            sentences[number.machine] = f"{source}, not shown: {why}."
        else:
            shown.append(number)
    for number in shown:
        sentences.pop(number.machine, None)
    return shown, list(sentences.values())
