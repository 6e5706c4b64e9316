"""The cases of notebook 17: what is broken in each, drawn from a seed; the causes and
mends to choose from.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from exercises.nb17 import health
from exercises.nb17.settings import (
    COMM_S,
    LAYERS,
    RANKS,
    SIDE_WORK,
    STEP_S,
    Fault,
    Job,
    rows_of,
)
from labkit.core.arguments import as_float, nearest
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet

_RESTART_MINUTES = 10
_CAUSE_MINUTES = 10  # to look again for a cause, while the run is healthy
_REPEATED = "The run was repeated with your mend, and is"
# what a name in variants.csv is drawn from
_COUNTS = {"rank": RANKS, "layer": LAYERS, "step": 24}
# changes beside those that causes of the same alarm make
_OTHER_DECOYS = 2

# cause -> where it shows
CAUSES = {row["cause"]: row["shows"] for row in rows_of("causes")}
SETTINGS = {row["setting"]: row for row in rows_of("settings")}
ALARM_OF = {
    number: row["alarm"] for row in rows_of("alarms") for number in row["cases"].split()
}
_SAYS = {row["alarm"]: row["says"] for row in rows_of("alarms")}
# (cause, alarm) -> its rows of variants.csv
VARIANTS: dict[tuple[str, str], list[dict[str, str]]] = {}
for _row in rows_of("variants"):
    VARIANTS.setdefault((_row["cause"], _row["alarm"]), []).append(_row)
# changes that break nothing in runs of the alarms that a row names
_DECOYS = rows_of("decoys")
# setting -> the variants of causes that change it
_CHANGED_BY: dict[str, list[dict[str, str]]] = {}
for _row in rows_of("variants"):
    for _name in json.loads(_row["job"]):
        _CHANGED_BY.setdefault(_name, []).append(_row)
# setting -> what about a run keeps its change from breaking anything
_MAKES_HARMLESS = {row["setting"]: json.loads(row["fault"]) for row in _DECOYS}


@dataclass(frozen=True)
class BrokenRun:
    """One broken training: the job's settings, what is broken, what that is called, and
    the alarm that each cause would raise alone; the first is the run's.
    """

    causes: tuple[str, ...]
    job: Job
    fault: Fault
    kinds: tuple[str, ...] = ("worse",)

    @property
    def launched(self) -> Any:
        """The broken run, which is run once."""
        return health.run(self.job, self.fault)

    def alarm(self) -> str:
        """The sentence that the reader starts from: several causes share it."""
        return self._alarm_of(self.kinds[0])

    def _alarm_of(self, kind: str) -> str:
        times = (STEP_S * self.fault.times + COMM_S) / (STEP_S + COMM_S)
        return _SAYS[kind].format(times=times, minutes=self.job.time_limit_minutes)

    def judge(self, cause: object, mend: object) -> tuple[str, int]:
        """The sentence of a right answer and its minutes; NotYet, with the minutes it
        costs, says what is wrong. Where the run is healthy, and a cause is missing or
        wrong, the exception's `mend_minutes` are those of the mend, which stays.
        """
        listed = cause if isinstance(cause, list | tuple | set) else [cause]
        named = {name if isinstance(name, str) else brief_repr(name) for name in listed}
        if unknown := [name for name in named if name not in CAUSES]:
            raise NotYet(
                f"There is no cause {brief_repr(unknown[0])}; did you mean"
                f" {_nearest(unknown[0], CAUSES)}?"
            )
        job = mended(self.job, mend, len(self.causes))
        replay = health.run(job, self.fault)
        wrong = health.complaints(replay, job, self.job, self.fault)
        minutes = _RESTART_MINUTES
        for name in mend:  # type: ignore[attr-defined]
            minutes += int(SETTINGS[name]["minutes"])
        if wrong:
            minutes += health.steps(replay)
            outcome = f"{_REPEATED}n't healthy. {' '.join(wrong)}"
            outcome = f"{self._of_causes(named)} {outcome}".lstrip()
            raise NotYet(
                f"{outcome} This answer costs {minutes} minutes.", minutes=minutes
            )
        if named == {*self.causes}:
            return f"The cause is right. {_REPEATED} healthy.", minutes
        missing = {*self.causes} - named
        looks_again = _CAUSE_MINUTES * max(len(missing), len(named - {*self.causes}))
        raise NotYet(
            f"{self._of_causes(named)} {_REPEATED} healthy: the mend stays, for"
            f" {minutes} minutes. To look for the cause again costs {looks_again}.",
            minutes=minutes + looks_again,
            mend_minutes=minutes,
        )

    def _of_causes(self, named: set[str]) -> str:
        """What is wrong with the causes that were named; empty where they are right."""
        # a list of all would be told all
        wrongly = sorted(named - {*self.causes})[: len(self.causes)]
        sentences = [
            f"The cause isn't {name!r}: that would show in {CAUSES[name]}."
            for name in wrongly
        ]
        alarms = [
            f"{self._alarm_of(kind)!r}"
            for cause, kind in zip(self.causes, self.kinds, strict=True)
            if cause not in named
        ]
        if alarms and (named & {*self.causes} or not wrongly):
            sentences.append(
                f"That isn't all of the cause: {len(self.causes)} things are broken,"
                " and one that isn't named would alone raise the alarm"
                f" {' and '.join(alarms)}"
            )
        return " ".join(sentences)


def _nearest(name: object, names: Iterable[str]) -> str:
    return " or ".join(nearest(str(name), list(names)))


def choices(setting: str) -> str:
    """The values that a setting may have, in words."""
    values = json.loads(SETTINGS[setting]["values"])
    if isinstance(values, dict):
        return f"{values['from']:g} to {values['to']:g}"
    return (
        f"{values[0]} to {values[-1]}"
        if len(values) > 3
        else " or ".join(map(repr, values))
    )


def _allows(setting: str, value: object) -> bool:
    values = json.loads(SETTINGS[setting]["values"])
    if isinstance(values, dict):
        number = as_float(value)
        whole = setting != "rows" or type(value) is int
        return number is not None and whole and values["from"] <= number <= values["to"]
    return any(value == choice and type(value) is type(choice) for choice in values)


def mended(job: Job, mend: object, most: int = 1) -> Job:
    """The job with at most so many settings changed; NotYet for what isn't a mend."""
    if not isinstance(mend, dict) or not 1 <= len(mend) <= most:
        number = "one setting" if most == 1 else f"at most {most} settings"
        raise NotYet(
            f"Expected a mend that changes {number}, such as {{'rows': 16}}, got"
            f" {brief_repr(mend)}."
        )
    for name, value in mend.items():
        if name not in SETTINGS:
            raise NotYet(
                f"There is no setting {brief_repr(name)}; did you mean"
                f" {_nearest(name, SETTINGS)}?"
            )
        if not _allows(name, value):
            raise NotYet(
                f"Expected {name} to be {choices(name)}, got {brief_repr(value)}."
            )
        if name == "on_all_ranks":
            value = tuple(
                work for work in SIDE_WORK if work in (*job.on_all_ranks, value)
            )
        job = replace(job, **{name: value})
    return job


def broken(number: str, seed: int) -> BrokenRun:
    """The case of exercise `number`, as `seed` draws it: one of the causes of its
    alarm, in 17.6 two at once.
    """
    draw = random.Random(f"case {number} {seed}")
    alarms = ("slow", "worse") if number == "17.6" else (ALARM_OF[number],)
    alarm_of_cause = {}
    for alarm in alarms:
        causes = [cause for cause, its_alarm in VARIANTS if its_alarm == alarm]
        alarm_of_cause[draw.choice(causes)] = alarm
    return drawn(alarm_of_cause, draw)


def drawn(picked: dict[str, str], draw: random.Random) -> BrokenRun:
    """A run that breaks for these causes, each with its alarm; the first is reported.

    Every cause of these alarms changes its settings, whether it breaks the run or not,
    and two others change beside them. So the configuration alone tells nothing.
    """
    alarms = set(picked.values())
    job: dict[str, Any] = {}
    fault: dict[str, Any] = {
        "noise": draw.randrange(999),
        "times": draw.randrange(18, 36) / 10,
    }
    for pair, variants in VARIANTS.items():
        cause, alarm = pair
        if alarm not in alarms:
            continue
        variant = draw.choice(variants)
        changes = _changes(variant, draw)
        job |= changes
        if picked.get(cause) == alarm:
            for name, value in json.loads(variant["fault"]).items():
                fault[name] = _filled(value, draw)
        else:
            fault |= _harmless(changes)
    for setting, value in _other_decoys(alarms, draw).items():
        job[setting] = value
        fault |= _harmless({setting: value})
    return BrokenRun(tuple(picked), Job(**job), Fault(**fault), tuple(picked.values()))


def _changes(variant: dict[str, str], draw: random.Random) -> dict[str, Any]:
    """The settings that a variant of a cause changes."""
    changes = json.loads(variant["job"])
    return {name: _filled(value, draw) for name, value in changes.items()}


def _harmless(changes: dict[str, Any]) -> dict[str, Any]:
    """What about a run makes changes of settings harmless, of which another run
    breaks.
    """
    fault: dict[str, Any] = {}
    for name, value in changes.items():
        fault |= _MAKES_HARMLESS[name]
        if name == "learning_rate":
            fault["schedule_factor"] = Job.learning_rate / value
    return fault


def _other_decoys(alarms: set[str], draw: random.Random) -> dict[str, Any]:
    """Changes of settings that no cause of these alarms changes or is mended by."""
    rows = [row for row in _DECOYS if alarms <= {*row["alarms"].split()}]
    decoys: dict[str, Any] = {}
    while len(decoys) < _OTHER_DECOYS:
        row = draw.choice(rows)
        setting = row["setting"]
        if setting in decoys:
            continue
        if row["values"]:
            decoys[setting] = draw.choice(json.loads(row["values"]))
        else:
            variant = draw.choice(_CHANGED_BY[setting])
            decoys[setting] = _changes(variant, draw)[setting]
    return decoys


def _filled(value: Any, draw: random.Random) -> Any:
    """A value of variants.csv, with what it leaves open drawn."""
    if isinstance(value, list):
        return tuple(_filled(part, draw) for part in value)
    if isinstance(value, dict):
        return draw.randrange(value["from"], value["to"])
    return draw.randrange(_COUNTS[value]) if value in _COUNTS else value
