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
        entry for path in sorted(folder.glob("*.jsonl")) for entry in read(path)[0]
    )
    matching = [
        m
        for m in entries
        if isinstance(m, Measurement) and (m.section, m.what) == (section, what)
    ]
    # A simulated or calculated number stays one on whatever machine it was recorded.
    return [
        dataclasses.replace(m, origin="recorded") if m.origin == "measured" else m
        for m in matching
    ]


_WORDS = {
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
    if there.busy or not there.size:  # a number of unknown size may have done any work
        return "its machine was busy" if there.busy else "its size was not recorded"
    both = {name: (getattr(there, name), getattr(here, name)) for name in _WORDS}
    apart = {
        name: pair
        for name, pair in both.items()
        if pair[0] != pair[1] and None not in pair
    }
    if "size" in apart:
        apart.pop("items", None)  # the same difference in other words
    words = [
        [_WORDS[name].format("unknown" if one == "" else one) for one in pair]
        for name, pair in apart.items()
    ]
    return "; ".join(f"{theirs}, here {own}" for theirs, own in words)


def beside(
    key: str, here: Work, published: Sequence[Measurement] = ()
) -> tuple[list[Measurement], list[str]]:
    """The recorded and `published` numbers under a key that did this work; a sentence
    for each other machine's.
    """
    shown = []
    apart = {}
    both = [*recorded(key), *published]
    # another unit is the last to name
    for number in sorted(both, key=lambda number: number.unit == here.unit):
        if why := difference(number, here):
            apart[number.machine] = (
                f"{number.came_from[0].upper()}{number.came_from[1:]}, not shown:"
                f" {why}."
            )
        else:
            shown.append(number)
    fitting = {number.machine for number in shown}
    return shown, [
        sentence for machine, sentence in apart.items() if machine not in fitting
    ]
