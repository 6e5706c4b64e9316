"""Write the tables of docs/teaching: courses, paths, and where learners get stuck.

The tables stand between two marks, such as <!-- path 04 --> and <!-- /path 04 -->. They
are made from the notebooks' cells, from courses.csv and semester.csv, from the bank of
misconceptions, and from memory.csv and rehearsal.csv, which benchmarks write.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

from exercises.misconceptions import misconceptions
from labkit.core.data_table import read_table
from labkit.core.errors import LabError
from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files
from teaching import path as paths

FOLDER = ROOT / "docs" / "teaching"
COUNTED = "Counted in wrong answers that we made up: no class has sent its results yet."
_CLASS = 30  # learners, for whom memory is calculated
# minutes after midnight; a workshop counts from 0:00
STARTS = {"workshop": 0, "one day": 9 * 60, "two days": 9 * 60}

_MARK = re.compile(r"(<!-- (\w+) (.+?) -->\n).*?(<!-- /\2 \3 -->)", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit status 1 if a table is old",
    )


def run(arguments: argparse.Namespace) -> int:
    """Bring the files up to date, or only look."""
    old = 0
    for file in sorted(FOLDER.glob("*.md")):
        text = file.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            old += 1
            if arguments.check:
                print(f"{file.name}: python -m teaching docs brings it up to date")
            else:
                print(f"{file.name}: written")
                file.write_text(new, encoding="utf-8")
    return int(arguments.check and old > 0)


def filled(text: str) -> str:
    """A text with what belongs between its marks."""
    makers = {
        "path": path_line,
        "stuck": stuck_list,
        "course": course_table,
        "semester": semester_table,
        "memory": memory_table,
        "rehearsal": rehearsal_table,
    }

    def made(match: re.Match[str]) -> str:
        if match[2] not in makers:
            raise LabError(
                f"Expected one of the marks {', '.join(makers)}, got {match[2]!r}."
            )
        return f"{match[1]}{makers[match[2]](match[3])}\n{match[4]}"

    return _MARK.sub(made, text)


def path_line(number: str) -> str:
    """How long both paths of a notebook take, and what the shorter one leaves for
    homework.
    """
    (path,) = paths.chosen([number])
    short = paths.minutes(number, 50)
    long = paths.minutes(number, 90)
    whole = "the 90-minute path takes"
    if number in notebook_files.PUZZLES:
        whole = "a first go through all puzzles takes about"
    return (
        f"[Notebook](../../notebooks/{path.name}). The 50-minute path takes {short}"
        f" minutes and leaves {paths.rest(notebook_files.read(path), 50)} for homework;"
        f" {whole} {long}."
    )


def stuck_list(number: str) -> str:
    """The misconceptions behind most of a notebook's wrong answers, and what to say to
    each; else the first hints.
    """
    bank = {
        name: misconception
        for name, misconception in misconceptions().items()
        if misconception.kind == "misconception"
    }
    source = (ROOT / "exercises" / f"nb{number}" / "wrong_answers.py").read_text(
        encoding="utf-8"
    )
    behind = Counter(
        name for name in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source) if name in bank
    )
    rows = [
        f"- *{bank[name].title}.* {bank[name].true}"
        for name, _ in behind.most_common(5)
    ]
    if not rows:
        exercises = [n for n in exercise_files.numbers() if n.startswith(number)]
        rows = [f"- *{n}:* {exercise_files.exercise(n).hints[0]}" for n in exercises]
    return "\n".join([f"**Where learners get stuck.** {COUNTED}", "", *rows])


@cache
def afterwards() -> dict[str, str]:
    """Notebook -> what labs.md says to discuss afterwards."""
    text = (FOLDER / "labs.md").read_text(encoding="utf-8")
    sections = re.findall(r"(?ms)^## (\d\d) .*?^\*\*Afterwards\.\*\* (.+?)\n\n", text)
    return {number: " ".join(words.split()) for number, words in sections}


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of one of the CSV files."""
    return read_table(FOLDER / name, dict)


def course_table(name: str) -> str:
    """A course's timetable, "workshop", "one day" or "two days": times of the clock,
    minutes, what happens.
    """
    lines = []
    rows = [row for row in rows_of("courses.csv") if row["course"] == name]
    for day, parts in itertools.groupby(rows, key=lambda row: row["day"]):
        clock = STARTS[name]
        spent = 0
        lines += [f"*Day {day}*", ""] if rows[-1]["day"] != "1" else []
        lines += ["| Time | Minutes | What | Learners need |", "|---|---|---|---|"]
        for row in parts:
            length = int(row["minutes"])
            lab = row["notebook"]
            what = f"Lab {_linked(lab)}, {length}-minute path" if lab else row["what"]
            minutes = f"{paths.minutes(lab, length)} minutes" if lab else ""
            lines.append(
                f"| {clock // 60}:{clock % 60:02} | {length} | {what} | {minutes} |"
            )
            clock = clock + length
            spent = spent + length
        lines += [
            f"| {clock // 60}:{clock % 60:02} | | End, after {spent} minutes | |",
            "",
        ]
    return "\n".join(lines[:-1])


def semester_table(_: str) -> str:
    """The weeks of the semester: lecture, lab or exam, homework with its minutes,
    reading, and what counts.
    """
    head = [
        "Week",
        "Slides",
        "Lab, 50-minute path",
        "Homework",
        "Minutes",
        "Reading",
        "Assessed",
    ]
    lines = [_row(head), _row(["---"] * len(head))]
    for row in (rows := rows_of("semester.csv")):
        number = row["notebook"]
        more = row["homework"]
        homework = ", and ".join(
            filter(None, (number and f"the rest of {number}", more and _linked(more)))
        )
        cells = [
            row["week"],
            row["lecture"],
            _linked(number) if number else row["class"],
            homework,
        ]
        lines.append(
            _row(
                [*cells, str(homework_minutes(row)), row["reading"], row["assessment"]]
            )
        )
    hours = sum(map(homework_minutes, rows)) / 60
    return "\n".join(
        [
            *lines,
            "",
            f"Homework takes {hours:.0f} hours in all, {hours / len(rows):.1f} a week.",
        ]
    )


def memory_table(_: str) -> str:
    """What a user and a class of 30 take of a server's memory, from what
    `benchmarks.user_memory` measured.
    """
    rows = rows_of("memory.csv")
    lines = [_row(["Memory", "GiB", ""]), _row(["---"] * 3)]
    lines += [_row([row["what"], row["gib"], "measured"]) for row in rows]
    gib = {row["part"]: float(row["gib"]) for row in rows}
    class_gib = _CLASS * (gib["server"] + gib["own"]) + gib["shared"]
    what = f"{_CLASS} learners with a server and such a kernel each"
    lines.append(_row([what, f"{class_gib:.2g}", "calculated from these"]))
    where = f"Measured on {rows[0]['machine']}, {rows[0]['date']}."
    return "\n".join([*lines, "", where])


def rehearsal_table(_: str) -> str:
    """How labs went that `benchmarks.lab_rehearsal` rehearsed: what waited, what was
    marked and what was lost.
    """
    rows = rows_of("rehearsal.csv")
    head = [
        "",
        "Kernel started after",
        "Wait for a turn",
        "Measured without one",
        "Marked as busy",
        "Lines written",
        "Lost",
        "Reached the end",
    ]
    lines = [_row(head), _row(["---"] * len(head))]
    for row in rows:
        cells = [
            row["arrangement"],
            f"{_rounded(row['ready_median_s'])} s, {_rounded(row['ready_p90_s'])} s",
            f"{_rounded(row['wait_median_s'])} s, {_rounded(row['wait_p90_s'])} s",
            f"{_rounded(row['without_turn_percent'])} %",
            f"{_rounded(row['marked_percent'])} %",
            row["lines"],
            row["lost"],
            f"{row['finished']} of {row['learners']}",
        ]
        lines.append(_row(cells))
    return "\n".join([*lines, "", _rehearsed_how(rows)])


def _rounded(text: str) -> str:
    """A simulated number, of which two digits are enough."""
    return f"{float(text):.2g}"


def _rehearsed_how(rows: Sequence[dict[str, str]]) -> str:
    """What the figures of a rehearsal rest on, and what the class's page took."""
    row = rows[0]
    page_s = max(float(row["page_s"]) for row in rows)
    page_kb = max(float(row["page_kb"]) for row in rows)
    held_against = (
        " Four kernels that really ran at once were simulated in"
        f" {row['simulated_over_measured']} of the time that they took."
    )
    return (
        f"Notebook {row['notebook']}, {row['learners']} learners on {row['cores']}"
        f" cores, {row['restarts']} kernels restarted while they measured. Each pair of"
        " times is the median and what nine of ten don't exceed. Times, waits and marks"
        f" are simulated, from one kernel's run on {row['machine']}, {row['date']}; the"
        " pace of learners is assumed."
        + (held_against if row["simulated_over_measured"] else "")
        + " Files, locks and lines are real, and so is the class's page, made in"
        f" {page_s:.2g} s, {page_kb:.0f} kB."
    )


def homework_minutes(row: dict[str, str]) -> int:
    """Minutes of a week's homework: what the lab left out, if there is one, and another
    notebook where one is given.
    """
    whole, lab = (
        (row["notebook"] and paths.minutes(row["notebook"], length)) or 0
        for length in (90, 50)
    )
    return whole - lab + (paths.minutes(row["homework"], 90) if row["homework"] else 0)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _linked(number: str) -> str:
    (path,) = paths.chosen([number])
    return f"[{paths.headings(number)['']}](../../notebooks/{path.name})"
