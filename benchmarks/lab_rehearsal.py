"""A lab of 90 minutes rehearsed with 30 learners on two cores: what waits, what is
marked, and what is lost.

usage: lab_rehearsal.py [NN] [LEARNERS] [--write]    notebook 00 and 30 by default, with
ci's sizes; --write keeps the figures for docs/teaching, where `python -m teaching docs`
puts them into the text

The notebook runs once, in a kernel of its own, to see how long each cell computes, on
how many cores, which turns it takes and what it keeps. Then learners do the same on a
virtual clock (`virtual_lab`), each at a pace of its own, with guesses, wrong answers
and kernels that are restarted. So times are simulated, from what one kernel took here;
files, locks, lines and the class's page are real. `held_against` compares the
simulation with kernels that really run at once.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import csv
import functools
import itertools
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import classroom, user_memory, virtual_lab
from benchmarks.virtual_lab import Room
from benchmarks.virtual_learner import at
from labkit.core import results
from labkit.core.paths import NOTEBOOKS, ROOT
from labkit.core.results import Measurement, from_line
from labkit.lesson import notebook_files
from labkit.measure import contention
from labkit.measure.machine import machine
from scripts.notebooks import reading_minutes
from teaching import class_files, class_page, pool

LAB_S = 90 * 60.0
STAGGER_S = 10 * 60.0
CORES = 2
LEARNERS = 30
FIGURES = ROOT / "docs" / "teaching" / "rehearsal.csv"
# How fast learners are, of the pace that a notebook's minutes are counted with; how far
# off guesses are (the standard deviation of their logarithm); how many answers are
# wrong. Nobody has counted them: they are assumed.
PACES = (0.75, 1.25)
GUESS_SPREAD = 0.7
WRONG_ANSWERS = (0, 0, 1, 2, 3)
PASSED = 0.85
# minutes after which the first kernel that measures is restarted
RESTARTS_MIN = (10, 15, 20)
_LOG = "LABKIT_BENCHLOG"
_SHORT_S = 1e-3  # what a cell computes for less isn't worth an event
ARRANGEMENTS = {
    "together": "all open the notebook in the same ten seconds",
    "staggered": "they open it over ten minutes",
    "on command": "over ten minutes, and all run each measuring cell when the teacher"
    " says so",
}

_FIRST_CELL = f"""
import json, os
from contextlib import contextmanager
from labkit.core import results
from labkit.measure import contention, turns

_events = open(os.environ["{_LOG}"], "a", buffering=1, encoding="utf-8")
_last = contention.read()

def _note(kind, **more):
    global _last
    now = contention.read()
    took_s = now.at_s - _last.at_s
    used_s = now.own_s - _last.own_s
    lost = contention.between(_last, now).lost or 0.0
    event = dict(kind=kind, took_s=took_s * (1 - lost), used_s=used_s, **more)
    _events.write(json.dumps(event) + "\\n")
    _last = contention.read()

_depth = 0

@contextmanager
def _turn(*given, turn=turns.turn, **more):
    global _depth
    _depth += 1
    try:
        if _depth == 1:
            _note("asked")
        with turn(*given, **more):
            if _depth == 1:
                _note("came")
            yield
            if _depth == 1:
                _note("over")
    finally:
        _depth -= 1

turns.turn = _turn

def _append(log, entry, append=results.Results.append):
    append(log, entry)
    _note("line", line=results.to_line(entry))

results.Results.append = _append
_note("started", started_s=_last.own_s)
get_ipython().events.register("pre_run_cell", lambda info: _note("cell"))
get_ipython().events.register("post_run_cell", lambda result: _note("done"))
"""


class Pieces(NamedTuple):
    """What a cell does, in order: `["compute", seconds, cores]`, `["turn", [[seconds,
    cores], ...]]` and `["line", text]`.
    """

    pieces: list[list[Any]]

    @property
    def measures(self) -> bool:
        """Whether the cell takes a turn."""
        return any(piece[0] == "turn" for piece in self.pieces)


@dataclass(frozen=True)
class Run:
    """How one kernel alone ran a notebook: the seconds that a kernel and a user's
    server compute until they have started, and what each code cell does.
    """

    kernel_s: float
    server_s: float
    cells: tuple[Pieces, ...]

    def values(self) -> dict[str, float]:
        """The last value of each measurement, by its key."""
        lines = [p[1] for cell in self.cells for p in cell.pieces if p[0] == "line"]
        entries = [from_line(line) for line in lines]
        return {e.key: e.value for e in entries if isinstance(e, Measurement)}


def run_once(path: Path, *, server_s: float = 0.0) -> Run:
    """Run a notebook in a kernel of its own with ci's sizes, and note what it does."""
    with tempfile.TemporaryDirectory(prefix="labkit-rehearsal-") as folder:
        log = Path(folder, "events.jsonl")
        environment = {"LABKIT_HOME": folder, "LABKIT_PROFILE": "ci", _LOG: str(log)}
        running = classroom.execute(path, environment, _FIRST_CELL, "print(0)")
        if asyncio.run(running) is None:
            raise RuntimeError(f"{path.name} did not run to its end: mend that first.")
        events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return Run(events[0]["started_s"], server_s, tuple(_cells(events)))


def _cells(events: Sequence[Mapping[str, Any]]) -> Iterator[Pieces]:
    """The cells of a notebook, from what its kernel noted."""
    begins = [i for i, event in enumerate(events) if event["kind"] == "cell"]
    # the last cell is the one that was added to the notebook
    for begin, end in itertools.pairwise(begins):
        yield Pieces(list(_pieces(events[begin + 1 : end])))


def _pieces(events: Sequence[Mapping[str, Any]]) -> Iterator[list[Any]]:
    in_turn: list[list[float]] | None = None
    lines: list[str] = []
    for event in events:
        took_s = event["took_s"]
        cores = min(event["used_s"] / took_s, CORES) if took_s else 0.0
        if event["kind"] == "came":  # what passed until now was waited for
            in_turn = []
        elif took_s > _SHORT_S and in_turn is not None:
            in_turn.append([took_s, cores])
        elif took_s > _SHORT_S:
            yield ["compute", took_s, cores]
        if event["kind"] == "line":
            lines.append(event["line"])
        if event["kind"] == "over":
            yield ["turn", in_turn]
            in_turn = None
        if in_turn is None:
            yield from (["line", line] for line in lines)
            lines = []


class Plan:
    """What one learner does in the lab, cell by cell.

    `pace` is the learner's share of the notebook's own minutes, `nominal_s` has when a
    teacher lets all run a measuring cell (None: each runs it on reaching it).
    """

    def __init__(
        self, path: Path, run: Run, learner: int, *, on_command_s: float | None = None
    ) -> None:
        self._number = path.name[:2]
        self._draw = random.Random(f"{self._number} {learner}")
        self._run = run
        self._pace = self._draw.uniform(*PACES)
        self._values = run.values()
        self._teacher_s = on_command_s
        self._cells = list(self._made(notebook_files.read(path)["cells"]))

    def steps(self) -> list[list[Any]]:
        """All steps, from the start of the server on."""
        start_s = self._run.server_s + self._run.kernel_s
        steps = [step for cell in self._cells for step in cell]
        return [_computing(start_s), ["ready"], *steps]

    def steps_again(self, index: int) -> list[list[Any]]:
        """The steps of a kernel that is restarted at a cell: the cells above it run
        again, without reading them.
        """
        above = [step for cell in self._cells[:index] for step in cell]
        again = [step for step in above if step[0] == "run"]
        own = [step for step in self._cells[index] if step[0] != "read"]
        rest = [step for cell in self._cells[index + 1 :] for step in cell]
        return [_computing(self._run.kernel_s), *again, *own, *rest]

    def _made(self, cells: Sequence[Mapping[str, Any]]) -> Iterator[list[list[Any]]]:
        """The steps of each cell of the 90-minute path."""
        runs = iter(self._run.cells)
        for index, cell in enumerate(cells):
            code = "".join(cell["source"])
            is_code = cell["cell_type"] == "code" and bool(code.strip())
            pieces = next(runs) if is_code else Pieces([])
            if "more" in cell["metadata"].get("tags", []):
                yield []
                continue
            steps = [["cell", index], *self._reading(dict(cell))]
            if is_code:
                steps += self._guesses(code)
                if self._teacher_s is not None and pieces.measures:
                    steps.append(["wait_until", self._teacher_s])
                steps.append(["run", pieces.pieces])
            yield steps

    def _reading(self, cell: dict[str, Any]) -> list[list[Any]]:
        """The time that a cell takes, and in an exercise's the answers that are tried
        in it.
        """
        nominal_s = 60 * reading_minutes([cell], self._number)
        seconds = nominal_s * self._pace
        if self._teacher_s is not None:
            self._teacher_s += nominal_s
        exercise = notebook_files.stub_of(cell)
        if exercise is None:
            return [["read", seconds]]
        attempts = self._attempts(exercise)
        read = ["read", seconds / len(attempts)]
        return [step for attempt in attempts for step in (read, attempt)]

    def _attempts(self, exercise: str) -> list[list[Any]]:
        """Wrong answers with what the check replies to them, and mostly the right
        one.
        """
        replies = class_page.replies(exercise)
        count = min(self._draw.choice(WRONG_ANSWERS), len(replies))
        wrong = self._draw.sample(replies, count)
        attempts: list[list[Any]] = [
            ["attempt", exercise, "not yet", str(i), message]
            for i, (_, message) in enumerate(wrong)
        ]
        if not wrong or self._draw.random() < PASSED:
            attempts.append(["attempt", exercise, "passed", "right", ""])
        return attempts

    def _guesses(self, code: str) -> list[list[Any]]:
        """A guess for each quantity that a cell asks for."""
        guesses = []
        for key, unit in _asked(code):
            spread = math.exp(self._draw.gauss(0.0, GUESS_SPREAD))
            guess = self._values.get(key, 10.0) * spread
            most = 100.0 if unit == "%" else math.inf
            guesses.append(["guess", key, unit, min(guess, most)])
        return guesses


def _computing(seconds: float) -> list[Any]:
    """A step in which one core computes for so long."""
    return ["run", [["compute", seconds, 1.0]]]


def _asked(code: str) -> list[tuple[str, str]]:
    """(key, unit) of each guess that a cell asks for."""
    calls = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.predict"
    ]
    return [
        (ast.literal_eval(call.args[0]), ast.literal_eval(call.args[2]))
        for call in calls
    ]


@dataclass(frozen=True)
class Page:
    """The class's page at the lab's end: the processor's seconds that it took, and its
    size.
    """

    took_s: float
    characters: int


@dataclass(frozen=True)
class Lab:
    """How a lab went, in simulated seconds; lines and the page are real.

    `ready_s` is each learner's time from the login until server and kernel have
    started, `numbers` how many measurements were kept, `marked` how many of them as
    disturbed. `unread` are entries that the class's page lacks.
    """

    ready_s: tuple[float, ...]
    waited_s: tuple[float, ...]
    without_turn: int
    numbers: int
    marked: int
    written: int
    lost: int
    unread: int
    finished: int
    restarts: int
    page: Page


def rehearse(path: Path, run: Run, learners: int, arrangement: str) -> Lab:
    """A lab with so many learners, as `arrangement` says (see ARRANGEMENTS)."""
    draw = random.Random(arrangement)
    span_s = 10.0 if arrangement == "together" else STAGGER_S
    begins_s = [draw.uniform(0.0, span_s) for _ in range(learners)]
    on_command_s = STAGGER_S if arrangement == "on command" else None
    plans = [Plan(path, run, i, on_command_s=on_command_s) for i in range(learners)]
    with _room(learners) as room, _dated(room):
        for i, (plan, begin_s) in enumerate(zip(plans, begins_s, strict=True)):
            room.later(begin_s, functools.partial(room.send, i, plan.steps()))
        restarted: list[int] = []
        for minute in RESTARTS_MIN:
            _restart_later(room, plans, 60.0 * minute, restarted)
        room.run(LAB_S)
        return _lab(room, begins_s, len(restarted))


@contextmanager
def _room(learners: int) -> Iterator[Room]:
    with (
        tempfile.TemporaryDirectory(prefix="labkit-rehearsal-") as folder,
        virtual_lab.opened(Path(folder), learners, cores=CORES) as room,
    ):
        yield room


@contextmanager
def _dated(room: Room) -> Iterator[None]:
    """The class's page is made on the lab's clock."""
    real_now = results.now
    vars(results)["now"] = lambda: at(room.now_s)
    try:
        yield
    finally:
        vars(results)["now"] = real_now


def _restart_later(
    room: Room, plans: Sequence[Plan], moment_s: float, restarted: list[int]
) -> None:
    """Restart the kernel that measures at that time, or the first one after it."""

    def restart() -> None:
        learner = room.holder()
        if learner is None:
            room.later(room.now_s + 0.2, restart)
            return
        restarted.append(learner)
        index = room.told.cell[learner]
        room.restart(learner, plans[learner].steps_again(index))

    room.later(moment_s, restart)


def _lab(room: Room, begins_s: Sequence[float], restarts: int) -> Lab:
    """What is there at the end of a lab."""
    told = room.told
    written = [line for lines in told.wrote.values() for line in lines]
    numbers = [m for m in map(from_line, written) if isinstance(m, Measurement)]
    measured = [m for m in numbers if m.origin == "measured"]
    lost = 0
    distinct = 0
    for learner, lines in told.wrote.items():
        kept = classroom.lines_of([room.home(learner) / "results.jsonl"])
        lost += (Counter(lines) - Counter(kept)).total()
        distinct += len({results.same(from_line(line)) for line in lines})
    page, shown = _page(room.folder)
    ready_s = [told.ready_s[i] - begins_s[i] for i in told.ready_s]
    return Lab(
        ready_s=tuple(ready_s),
        waited_s=tuple(wait.seconds for wait in told.waits),
        without_turn=sum(not wait.came for wait in told.waits),
        numbers=len(measured),
        marked=sum(bool(m.busy) for m in measured),
        written=len(written),
        lost=lost,
        unread=distinct - shown,
        finished=len(told.finished_s),
        restarts=restarts,
        page=page,
    )


def _page(folder: Path) -> tuple[Page, int]:
    """Make the class's page; how many entries were read for it."""
    target = folder / "pool.html"
    begin_s = time.process_time()
    skipped = pool.write_page([folder / "class"], target, every=20)
    took_s = time.process_time() - begin_s
    if skipped:
        raise RuntimeError(f"The class's page left something out: {skipped[0]}")
    readers, _ = class_files.read_class([folder / "class"])
    shown = sum(len(reader.entries) for reader in readers)
    return Page(took_s, len(target.read_text(encoding="utf-8"))), shown


def p90(values: Sequence[float]) -> float:
    """What nine of ten values don't exceed."""
    return sorted(values)[math.ceil(0.9 * len(values)) - 1] if values else 0.0


def figures(lab: Lab) -> dict[str, float]:
    """A lab's figures, by their names in docs/teaching/rehearsal.csv."""
    return {
        "ready_median_s": statistics.median(lab.ready_s or [0.0]),
        "ready_p90_s": p90(lab.ready_s),
        "wait_median_s": statistics.median(lab.waited_s or [0.0]),
        "wait_p90_s": p90(lab.waited_s),
        "without_turn_percent": 100 * lab.without_turn / max(len(lab.waited_s), 1),
        "marked_percent": 100 * lab.marked / max(lab.numbers, 1),
        "lines": lab.written,
        "lost": lab.lost + lab.unread,
        "restarts": lab.restarts,
        "finished": lab.finished,
        "page_s": lab.page.took_s,
        "page_kb": lab.page.characters / 1000,
    }


def held_against(path: Path, run: Run, kernels: int = 4) -> float | None:
    """The simulated time until so many kernels that start at once have run the
    notebook, over the measured one; None where other programs disturbed that.
    """
    cells = [["run", cell.pieces] for cell in run.cells]
    steps = [_computing(run.kernel_s), *cells]
    with _room(kernels) as room:
        for i in range(kernels):
            room.send(i, steps)
        room.run(LAB_S)
        simulated_s = max(room.told.finished_s.values())
    watch = contention.Watch()
    took_s = classroom.attend(kernels, shared=False, path=path).took_s
    return None if watch.so_far().reason else simulated_s / took_s


def rows(
    labs: Mapping[str, Mapping[str, float]],
) -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure that has a target."""
    for arrangement, lab in labs.items():
        yield f"{arrangement}: lines lost or unread", 0, lab["lost"], "lines"
        yield f"{arrangement}: numbers marked", 50, lab["marked_percent"], "%"
        yield f"{arrangement}: the class's page", 2, lab["page_s"], "s"
        yield f"{arrangement}: the class's page, size", 1300, lab["page_kb"], "kB"


def write(
    path: Path,
    learners: int,
    labs: Mapping[str, Mapping[str, float]],
    ratio: float | None,
) -> None:
    """Keep the figures where docs/teaching takes them from."""
    same = {
        "notebook": path.name[:2],
        "learners": learners,
        "cores": CORES,
        "machine": machine().name,
        "date": results.now()[:10],
        "simulated_over_measured": "" if ratio is None else f"{ratio:.2g}",
    }
    lines = []
    for name, lab in labs.items():
        values = {key: _shown(value) for key, value in lab.items()}
        lines.append({"arrangement": name} | same | values)
    with FIGURES.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(lines)


def _shown(value: float) -> str:
    """Three digits, and of a count all of them."""
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def main(*words: str) -> None:
    """Run the notebook once, rehearse each arrangement, and print its figures."""
    arguments = _parser().parse_args(words)
    (path,) = NOTEBOOKS.glob(f"{arguments.number}_*.ipynb")
    _, server_s = user_memory.started()
    run = run_once(path, server_s=server_s)
    labs = {}
    for arrangement, meaning in ARRANGEMENTS.items():
        lab = figures(rehearse(path, run, arguments.learners, arrangement))
        labs[arrangement] = lab
        values = ", ".join(f"{key} {_shown(value)}" for key, value in lab.items())
        print(f"{arrangement} ({meaning}): {values}", file=sys.stderr, flush=True)
    for name, target, value, unit in rows(labs):
        verdict = "pass" if value <= target else "SHORT"
        print(f"{verdict}  {name}: {value:.3g} {unit} (<= {target:g})", flush=True)
    ratio = held_against(path, run)
    if ratio is None:
        print("Other programs run here, so 4 kernels at once tell nothing: try later.")
    else:
        print(f"4 kernels at once: simulated in {ratio:.2f} of the time that they took")
    if arguments.write:
        write(path, arguments.learners, labs, ratio)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Rehearse a lab of 90 minutes.")
    parser.add_argument("number", nargs="?", default="00", metavar="NN")
    parser.add_argument("learners", nargs="?", type=int, default=LEARNERS)
    parser.add_argument("--write", action="store_true", help="for docs/teaching")
    return parser


if __name__ == "__main__":
    main(*sys.argv[1:])
