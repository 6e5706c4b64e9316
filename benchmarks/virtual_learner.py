"""One learner of a rehearsed lab: a process whose clock and cores are `virtual_lab`'s,
while labkit's turns, its lock files and its results files are the real ones.

It reads its steps from standard input, and asks there for each second that passes:
`{"sleep": 3.0}` and `{"compute": [alone_s, cores]}` are answered with the time, and
`{"runnable": 1}` with the number of learners who compute. What it has written, and how
long it waited, it says without an answer.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.core import results
from labkit.core.results import Entry, Measurement, Prediction
from labkit.core.units import is_count
from labkit.lesson import outcomes
from labkit.measure import contention, turns

# the lab begins at ten
START = datetime.datetime(2026, 1, 12, 10, tzinfo=datetime.UTC)


def at(now_s: float) -> str:
    """The time in UTC, so many seconds after the lab began, as in results files."""
    moment = START + datetime.timedelta(seconds=now_s)
    return moment.isoformat(timespec="seconds")


class Clock:
    """The lab's time, in place of the module `time` in labkit's turns."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Seconds since the lab began."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let the others go on for so long."""
        self.now_s = ask(sleep=seconds)["now"]

    def compute(self, alone_s: float, cores: float) -> float:
        """Compute what takes `alone_s` seconds on so many cores of a calm machine; the
        share of the time, 0 to 1, that others took.
        """
        begin_s = self.now_s
        self.now_s = ask(compute=[alone_s, cores])["now"]
        took_s = self.now_s - begin_s
        return 1 - alone_s / took_s if took_s > alone_s else 0.0

    def is_quiet(self) -> bool:
        """Whether for 50 ms nobody else computes: what labkit's `turns.quiet` asks of
        the system.
        """
        for _ in range(5):
            if ask(runnable=1)["count"]:
                return False
            self.sleep(0.01)
        return True


def tell(**message: Any) -> None:
    """Say something that needs no answer."""
    print(json.dumps(message), flush=True)


def ask(**message: Any) -> dict[str, Any]:
    """Ask for time, and wait for the answer."""
    tell(**message)
    return dict(json.loads(sys.stdin.readline()))


class Learner:
    """Runs steps through labkit's own functions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost = 0.0  # of the running cell's time, by others
        self._lost_in_turns: list[float] = []

    def do(self, step: Sequence[Any]) -> None:
        """Do one step (`lab_rehearsal.Plan` makes them)."""
        match step:
            case ["cell", index]:
                tell(cell=index)
            case ["read", seconds]:
                self._clock.sleep(seconds)
            case ["wait_until", now_s]:
                self._clock.sleep(max(now_s - self._clock.now_s, 0.0))
            case ["ready"]:
                tell(ready=self._clock.now_s)
            case ["guess", key, unit, value]:
                results.results().append(_prediction(key, unit, value))
            case ["attempt", number, state, answer, message]:
                outcomes.note(number, state, answer=answer, message=message)
            case ["run", pieces]:
                self._run(pieces)
            case _:
                raise ValueError(f"Expected a step of a lab, got {step!r}.")

    def _run(self, pieces: Sequence[Sequence[Any]]) -> None:
        """Run a cell: what it computes, its turns, and the lines that it keeps."""
        self._lost = 0.0
        self._lost_in_turns = []
        for piece in pieces:
            match piece:
                case ["compute", alone_s, cores]:
                    lost = self._clock.compute(alone_s, cores)
                    self._lost = max(self._lost, lost)
                case ["turn", timed]:
                    self._turn(timed)
                case ["line", line]:
                    entry = results.from_line(line)
                    results.results().append(self._of_here(entry))

    def _turn(self, pieces: Sequence[Sequence[float]]) -> None:
        """Take a turn as a measurement does, and say how long that took to come."""
        begin_s = self._clock.now_s
        with turns.turn(lambda _: None):
            tell(waited=self._clock.now_s - begin_s)
            for alone_s, cores in pieces:
                self._lost_in_turns.append(self._clock.compute(alone_s, cores))
        tell(over=1)

    def _of_here(self, entry: Entry) -> Entry:
        """What a measurement on a calm machine kept, as it is on this one."""
        now = results.now()
        if not isinstance(entry, Measurement):
            return dataclasses.replace(entry, when=now)
        # a timing counts what was lost in its turn, other numbers the whole cell
        lost = max(self._lost_in_turns, default=self._lost)
        is_busy = entry.origin == "measured" and lost >= contention.BUSY
        words = f"this machine was busy: {100 * lost:.0f} % of the time waiting"
        guesses = [
            e.value for e in _kept(Prediction, entry.key) if e.unit == entry.unit
        ]
        guess = guesses[-1] if guesses else None
        return dataclasses.replace(
            entry, when=now, predicted=guess, busy=words if is_busy else "", waited=lost
        )


def _prediction(key: str, unit: str, value: float) -> Prediction:
    """A guess as people write one down, and as `lab.predict` keeps it.

    Without that function, which loads what draws its field: thirty learners start at
    once.
    """
    section, what = results.split_key(key)
    written = float(round(value)) if is_count(unit) else float(f"{value:.2g}")
    blind = not _kept(Measurement, key)
    return Prediction(section, what, written, unit, results.now(), blind)


def _kept(kind: type[Any], key: str) -> list[Any]:
    """The guesses or the measurements that this learner has kept under a key."""
    entries = [e for e in results.results().entries() if isinstance(e, kind)]
    return [e for e in entries if f"{e.section} {e.what}" == key]


def told_append(log: results.Results, entry: Entry) -> None:
    """Append an entry as labkit does, and say so once it has returned."""
    _append(log, entry)
    tell(wrote=results.to_line(entry))


_append = results.Results.append


def enter(clock: Clock, home: Path, locks: Path) -> None:
    """Give labkit the lab's clock, a learner's folder, and the class's turns."""
    os.environ |= {"LABKIT_HOME": str(home), "LABKIT_TURNS": str(locks)}
    os.environ["LABKIT_PROFILE"] = "ci"
    importlib.reload(turns)  # as patient as in a new kernel
    vars(turns)["time"] = clock
    vars(turns)["quiet"] = clock.is_quiet
    vars(results)["now"] = lambda: at(clock.now_s)


def main() -> None:
    """Do what the lab sends, one list of steps after another, until it says no more."""
    results.Results.append = told_append  # type: ignore[assignment,method-assign]
    for line in sys.stdin:
        order = json.loads(line)
        clock = Clock()
        clock.now_s = order["now"]
        enter(clock, Path(order["home"]), Path(order["locks"]))
        learner = Learner(clock)
        for step in order["steps"]:
            learner.do(step)
        tell(end=clock.now_s)


if __name__ == "__main__":
    main()
