"""What the exporters for graders share: a notebook's exercises as an assignment, and
its hidden checks.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exercises.open_cells import names_of
from labkit.core.errors import LabError, MissingExtra
from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files
from teaching import handout, path as paths
from teaching.judging import APART

INTRODUCTION = """# {title}

Exercises of notebook {number}: {points}. `lab.check` says at once what is wrong with
an answer, and `lab.hint("{first}")` helps in steps. Your teacher's copy judges each
answer that has points again, on inputs drawn anew."""


@dataclass(frozen=True)
class Question:
    """An exercise, the expression of the notebook's own variables that is its answer,
    and what it is worth: no points where it is practice (`judging.APART`).
    """

    number: str
    answer: str
    points: float

    @property
    def check(self) -> str:
        """The public check, as code: it shows its words."""
        return f'lab.check("{self.number}", {self.answer})'

    @property
    def worth(self) -> str:
        """The number and its points, in words."""
        if not self.points:
            return f"{self.number}, practice"
        return f"{self.number}, {self.points:g} point{'s' * (self.points != 1)}"


@dataclass(frozen=True)
class Assignment:
    """The cells (nbformat 4) that a notebook's exercises need, each with the question
    that it checks, or None.
    """

    name: str
    cells: tuple[tuple[dict[str, Any], Question | None], ...]

    @property
    def questions(self) -> list[Question]:
        """The exercises, in order."""
        return [question for _, question in self.cells if question]

    @property
    def graded(self) -> list[Question]:
        """Those that have points."""
        return [question for question in self.questions if question.points]

    def write(self, folder: Path, cells: list[dict[str, Any]]) -> None:
        """Write the notebook of these cells into a folder."""
        (path,) = paths.chosen([self.name[:2]])
        text = json.dumps(
            notebook_files.read(path) | {"cells": cells}, indent=1, ensure_ascii=False
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.ipynb").write_text(text + "\n", encoding="utf-8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The notebook's number, its exercises with their points, and whether hand-ins are
    graded without a sandbox.
    """
    parser.add_argument(
        "number", metavar="NN", help="the notebook's number, such as 03"
    )
    words = (
        "only these exercises, each with its points, such as 03.1=2 03.5; else all, one"
        " point each"
    )
    parser.add_argument("--points", nargs="+", default=[], metavar="NN.S=P", help=words)
    words = "grade where there is no sandbox: hand-ins then run with your rights"
    parser.add_argument("--unprotected", action="store_true", help=words)


def assignment(number: str, points: Sequence[str] = ()) -> Assignment:
    """The exercises of a notebook ("03"): their cells, the headings and text above
    them, and the code they build on.

    `points` chooses exercises and says what each is worth, "03.1=2", or one point
    without a number.
    """
    handout.check_open()
    (path,) = paths.chosen([number])
    cells = notebook_files.read(path)["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    all_stubs = {
        i: n
        for i, cell in enumerate(cells)
        if (n := notebook_files.stub_of(cell)) is not None
    }
    worth = _worth(points, list(all_stubs.values()))
    stubs = {i: n for i, n in all_stubs.items() if n in worth}
    kept = set(_needed(cells, sources, stubs)) | {
        i for stub in stubs for i in _text_above(cells, sources, stub)
    }
    if missing := [all_stubs[i] for i in sorted(kept & set(all_stubs))]:
        raise LabError(
            f"{', '.join(worth)} can't do without {', '.join(missing)}: choose that"
            " too."
        )
    questions = {
        i: Question(n, _answer(n, sources), worth[n]) for i, n in stubs.items()
    }
    worth_text = "; ".join(q.worth for q in questions.values())
    title = paths.headings(number)[""]
    words = INTRODUCTION.format(
        title=title, points=worth_text, number=number, first=min(stubs.values())
    )
    made: list[tuple[dict[str, Any], Question | None]] = [
        (text_or_code("markdown", words, "introduction"), None)
    ]
    for i in sorted(kept | set(stubs)):
        if len(made) == 2:  # after the setup
            made.append(
                (text_or_code("code", _imports(sources[: max(stubs)]), "imports"), None)
            )
        made.append(
            (text_or_code(cells[i]["cell_type"], sources[i], cells[i]["id"]), None)
        )
        if i in stubs:
            made.append(
                (
                    text_or_code(
                        "code",
                        questions[i].check,
                        f"check-{stubs[i].replace('.', '_')}",
                    ),
                    questions[i],
                )
            )
    return Assignment(path.stem, tuple(made))


def _worth(points: Sequence[str], numbers: Sequence[str]) -> dict[str, float]:
    """Number -> points, of words such as "03.1=2"; of all exercises, one each, without
    any. Practice has none.
    """
    points_by_number: dict[str, float] = {}
    for number, mark, worth in (point.partition("=") for point in points or numbers):
        if (
            number not in numbers
            or re.fullmatch(r"=\d+(\.\d+)?|", mark + worth) is None
        ):
            raise LabError(
                f"Expected exercises out of {', '.join(numbers)}, each alone or as"
                f" NN.S=1, got {points}."
            )
        is_practice = number not in APART
        if is_practice and points:
            raise LabError(
                f"{number} is practice, which no grader counts: what it hands over"
                " can't be judged out of the learner's process."
            )
        points_by_number[number] = 0.0 if is_practice else float(worth or 1)
    return points_by_number


def _imports(sources: list[str]) -> str:
    """Each import of a notebook once."""
    nodes = [node for source in sources for node in ast.parse(_python(source)).body]
    return "\n".join(
        dict.fromkeys(
            ast.unparse(n) for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)
        )
    )


def text_or_code(kind: str, source: str, name: str) -> dict[str, Any]:
    """A notebook's cell (nbformat 4) of the kind "markdown" or "code", with a name as
    its id.
    """
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": name,
        "metadata": {},
        "source": source,
    }
    return cell | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def _answer(number: str, sources: list[str]) -> str:
    """The second argument of the notebook's first lab.check of an exercise, as code."""
    for source in sources:
        for node in ast.walk(ast.parse(_python(source))) if number in source else ():
            if isinstance(node, ast.Call) and ast.unparse(node).startswith(
                f"lab.check('{number}', "
            ):
                return ast.unparse(node.args[1])
    raise LabError(f"The notebook has no cell with lab.check({number!r}, ...).")


def _text_above(
    cells: list[dict[str, Any]], sources: list[str], stub: int
) -> Iterator[int]:
    """The text right above an exercise's cell, and the heading of its section."""
    at = stub - 1
    while cells[at]["cell_type"] == "markdown" and at:
        yield at
        at -= 1
    yield from [i for i in range(stub) if sources[i].startswith("## ")][-1:]


def _needed(
    cells: list[dict[str, Any]], sources: list[str], stubs: dict[int, str]
) -> Iterator[int]:
    """The setup, the imports, and every cell that sets a name which the exercises, or
    their answers, build on.
    """
    solutions = exercise_files.solutions(stubs[min(stubs)][:2])
    code = {
        i: _python(source)
        for i, source in enumerate(sources)
        if cells[i]["cell_type"] == "code"
    }
    yield from [i for i in code if "setup" in cells[i]["metadata"].get("tags", [])]
    defined = {
        name
        for text in code.values()
        for name in re.findall(r"(?m)^(?:def|class) (\w+)", text)
    }
    # a cell that registers something with a function of another cell belongs to it:
    # @cnn_block.register_fake
    added = {
        i: defined & set(re.findall(r"(?m)^@(\w+)\.", text)) for i, text in code.items()
    }
    set_by = {i: _names(text)[1] | added[i] for i, text in code.items()}
    todo: list[tuple[str, int]] = []
    for i, number in stubs.items():
        answer = f"{sources[i]}\n{solutions[number]}\n{_answer(number, sources)}"
        task = "".join(sources[above] for above in (*_text_above(cells, sources, i), i))
        todo += [
            (name, i)
            for name in _names(answer)[0]
            | (defined & set(re.findall(r"`(\w+)`", task)))
        ]
    seen = set(stubs)
    while todo:
        name, before = todo.pop()
        setter = next(
            (i for i in reversed(set_by) if i < before and name in set_by[i]), None
        )
        if setter is not None and setter not in seen:
            seen.add(setter)
            yield setter
            todo += [(inner, setter) for inner in _names(code[setter])[0]]


def _python(source: str) -> str:
    """The code of a cell; nothing where it isn't Python, as text and the cell for
    Colab.
    """
    try:
        ast.parse(source)
    except SyntaxError:
        return ""
    return source


def _names(code: str) -> tuple[set[str], set[str]]:
    """The names that a cell takes from cells above, and those that it sets."""
    read, own = names_of(code)
    return read - own, own


def require(package: str) -> None:
    """MissingExtra where a grader isn't installed."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise MissingExtra(
            f"This needs {package}: run `make extras`, or pip install -e '.[teaching]'"
            f" in {ROOT}."
        )
