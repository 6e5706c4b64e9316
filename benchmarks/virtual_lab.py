"""A lab on a virtual clock: learners' processes, one clock and so many cores.

Which of them runs, and how long what they compute takes, is simulated: all who compute
share the cores evenly, as programs that the system takes in turn do. What they write,
lock and read are real files. Only one process runs at any moment, the others wait for
the clock, so a rehearsal gives the same times on every machine.
"""

from __future__ import annotations

import heapq
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.core.paths import ROOT

Steps = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Wait:
    """How long a learner waited for a turn, in simulated seconds, and whether it came
    before somebody else's had ended.
    """

    learner: int
    seconds: float
    came: bool


@dataclass
class Told:
    """What learners said of themselves while they worked.

    Each by learner: `wrote` has the lines that labkit's append had returned from,
    `ready_s` when the kernel had started, `cell` the one at which a learner is.
    """

    waits: list[Wait] = field(default_factory=list)
    wrote: dict[int, list[str]] = field(default_factory=dict)
    ready_s: dict[int, float] = field(default_factory=dict)
    cell: dict[int, int] = field(default_factory=dict)
    finished_s: dict[int, float] = field(default_factory=dict)


@dataclass
class Job:
    """What a learner computes: seconds that are left on a calm machine, on so many
    cores.
    """

    left_s: float
    cores: float


class Room:
    """Learners' processes, each with a folder of its own below `folder`, that share
    `cores` cores.
    """

    def __init__(self, folder: Path, learners: int, *, cores: int) -> None:
        self.folder = folder
        self.now_s = 0.0
        self.told = Told()
        self._cores = cores
        self._processes = {i: _process() for i in range(learners)}
        self._jobs: dict[int, Job] = {}
        self._in_turns: set[int] = set()
        self._order = itertools.count()  # of those who wake at the same moment
        self._sleepers: list[tuple[float, int, int]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def home(self, learner: int) -> Path:
        """The folder of a learner's results."""
        return self.folder / "class" / f"learner-{learner:02}"

    def send(self, learner: int, steps: Steps) -> None:
        """Give a learner steps to do from now on."""
        order = {
            "now": self.now_s,
            "home": str(self.home(learner)),
            "locks": str(self.folder / "locks"),
            "steps": steps,
        }
        self._say(learner, order)
        self._listen(learner)

    def restart(self, learner: int, steps: Steps) -> None:
        """Kill a learner's process wherever it is, as *Restart kernel* does, and give
        steps to a new one.
        """
        self._processes[learner].kill()
        _end(self._processes[learner])
        self._jobs.pop(learner, None)
        self._in_turns.discard(learner)
        self._sleepers = [each for each in self._sleepers if each[2] != learner]
        heapq.heapify(self._sleepers)
        self._processes[learner] = _process()
        self.send(learner, steps)

    def later(self, at_s: float, event: Callable[[], None]) -> None:
        """Call `event` at that time."""
        heapq.heappush(self._events, (at_s, next(self._order), event))

    def holder(self) -> int | None:
        """A learner whose turn it is, or None."""
        return next(iter(self._in_turns), None)

    def run(self, until_s: float) -> None:
        """Let time pass until then, or until nobody has anything to do."""
        while (moment_s := self._next()) is not None and moment_s <= until_s:
            self._pass(moment_s)
            finished = [who for who, job in self._jobs.items() if job.left_s <= 1e-9]
            for who in finished:
                del self._jobs[who]
            while self._sleepers and self._sleepers[0][0] <= self.now_s:
                finished.append(heapq.heappop(self._sleepers)[2])
            for who in finished:
                self._say(who, {"now": self.now_s})
                self._listen(who)
            while self._events and self._events[0][0] <= self.now_s:
                heapq.heappop(self._events)[2]()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            _end(process)

    def _speed(self) -> float:
        """How fast each job goes, 1 on a calm machine: all get the same share of the
        cores that they ask for.
        """
        wanted = sum(job.cores for job in self._jobs.values())
        return min(1.0, self._cores / wanted) if wanted else 1.0

    def _next(self) -> float | None:
        """When the next thing happens."""
        moments = [queue[0][0] for queue in (self._sleepers, self._events) if queue]
        if self._jobs:
            least_s = min(job.left_s for job in self._jobs.values())
            moments.append(self.now_s + least_s / self._speed())
        return min(moments, default=None)

    def _pass(self, moment_s: float) -> None:
        worked_s = (moment_s - self.now_s) * self._speed()
        for job in self._jobs.values():
            job.left_s -= worked_s
        self.now_s = max(moment_s, self.now_s)

    def _say(self, learner: int, message: Mapping[str, Any]) -> None:
        pipe = self._processes[learner].stdin
        assert pipe is not None
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    def _listen(self, learner: int) -> None:
        """Note what a learner says, until it asks for time or has done all its
        steps.
        """
        pipe = self._processes[learner].stdout
        assert pipe is not None
        for line in pipe:
            if not self._note(learner, json.loads(line)):
                return
        raise RuntimeError(
            f"Learner {learner} ended before its steps did: its traceback stands above."
        )

    def _note(self, learner: int, message: dict[str, Any]) -> bool:
        """Whether the learner goes on at once."""
        match message:
            case {"sleep": seconds}:
                wakes = self.now_s + seconds, next(self._order), learner
                heapq.heappush(self._sleepers, wakes)
                return False
            case {"compute": [alone_s, cores]}:
                self._jobs[learner] = Job(alone_s, cores)
                return False
            case {"runnable": _}:
                count = sum(job.cores > 0 for job in self._jobs.values())
                self._say(learner, {"count": count})
            case {"waited": seconds}:
                self.told.waits.append(Wait(learner, seconds, not self._in_turns))
                self._in_turns.add(learner)
            case {"over": _}:
                self._in_turns.discard(learner)
            case {"wrote": line}:
                self.told.wrote.setdefault(learner, []).append(line)
            case {"ready": moment_s}:
                self.told.ready_s.setdefault(learner, moment_s)
            case {"cell": index}:
                self.told.cell[learner] = index
            case {"end": moment_s}:
                self.told.finished_s[learner] = moment_s
                return False
        return True


def _process() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.virtual_learner"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()


@contextmanager
def opened(folder: Path, learners: int, *, cores: int) -> Iterator[Room]:
    """A room whose processes end with the block."""
    (folder / "locks").mkdir(parents=True)
    room = Room(folder, learners, cores=cores)
    try:
        yield room
    finally:
        room.close()
