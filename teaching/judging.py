"""Judge notebooks that were handed in, for nbgrader and otter, out of the process that
runs what learners wrote.

The cells run in a sandbox (`teaching.sandbox`), in a copy of the workbook without
checks and solutions. Checks run here: a learner's function is called over there, with
one input at a time, and its result comes back as plain values. A kernel comes back as
its source, and is judged in a second sandbox, where nothing else of a learner's runs.
Exercises whose answers can't be sent so are practice, which no grader counts.
"""

from __future__ import annotations

import atexit
import contextlib
import csv
import dataclasses
import functools
import io
import json
import os
import pickle
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import FunctionType, MethodType
from typing import Any

from labkit.core.errors import LabError
from labkit.core.locked_file import append_line
from labkit.core.paths import EXERCISES, IMPORT_FOLDERS, ROOT
from labkit.core.results import state_folder
from labkit.lesson.checks import Outcome
from labkit.lesson.notebook import start
from labkit.lesson.time_limit import TimeUp
from labkit.measure.ceilings import measure_ceilings
from teaching import hidden_check, learner, sandbox
from teaching.channel import NoMessage

# Exercises that are judged out of the learner's process, and how: by calls, whose
# inputs and results are sent from process to process, or by a kernel's source. All
# others are practice.
APART = {
    row["exercise"]: row["by"]
    for row in csv.DictReader(
        (EXERCISES / "judged_apart.csv").read_text(encoding="utf-8").splitlines()
    )
}
# seconds that a process may take to begin, and all that is asked for an exercise
BEGIN_S = 120.0
EXERCISE_S = 120.0
# seconds that an answer has to leave after it was interrupted
_GRACE_S = 5.0
# A cell that ends the process, or hangs, is left out, and those before it run again: so
# often, and as long as all processes of a notebook took less than these seconds.
_MOST_ENDS = 4
_CELLS_S = 300.0
_CEILINGS = "ceilings.jsonl"
_BATCH_S = 12 * 3600  # for which ceilings that were measured for grading are used
# whose functions a child can't call
_OURS = ("exercises", "labkit", "teaching", "tests")
_FOLDERS = ("labkit", "packages", "data", "exercises")
# what knows right answers, compiled too
_LEFT_OUT = shutil.ignore_patterns(
    *("check.*", "solution.*", "wrong_*", "misconceptions.csv", "cards.csv"),
    *("messages.csv", "tests", "build", "docs", "*.lock"),
)
# of a graded cell: the exercise, and its answer
_ASKED = re.compile(r'lab\.check\("(.+?)", (.+)\)\.state ')
_SAFE = re.compile(
    r"builtins\.(complex|dict|Ellipsis|float|frozenset|int|list|set|str|tuple)"
)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A learner's kernel as `kernel_source.described` describes it."""

    description: dict[str, Any]


class _Plain(pickle.Unpickler):
    """Reads what a child may have forged: Python's own plain values, arrays and
    tensors, and nothing that runs code.

    A function is one that calls the child's own by `ask`, or dots where it has no body
    yet.
    """

    def __init__(self, reply: bytes, ask: Callable[..., Any]) -> None:
        super().__init__(io.BytesIO(reply))
        self._ask = ask

    def find_class(self, module: str, name: str) -> Any:
        if _SAFE.fullmatch(f"{module}.{name}"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")

    def persistent_load(self, named: Any) -> Any:
        match named:
            case ("tensor", dtype, shape, content):
                return learner.tensor_of(dtype, shape, content)
            case ("array" | "scalar" as kind, dtype, shape, content):
                array = _array(dtype, shape, content)
                return array if kind == "array" else array[()]
            case ("iterator", list() as yielded):
                return iter(yielded)
            case ("kernel", description):
                return Kernel(description)
            case ("function", place, name, is_open):
                return ... if is_open else self._function(place, str(name))
        raise pickle.UnpicklingError("an unknown kind of value")

    def _function(self, place: Any, name: str) -> Callable[..., Any]:
        def answer(*arguments: object, **named: object) -> Any:
            returned, changed = self._ask("call", place, arguments, named)
            _put_back(arguments, changed)
            return returned

        answer.__name__ = name
        return answer


def _array(dtype: str, shape: tuple[int, ...], content: bytes) -> Any:
    import numpy as np

    if np.dtype(dtype).kind not in learner.ARRAY_KINDS:
        raise pickle.UnpicklingError(f"{dtype} is no kind of number or text")
    return np.frombuffer(bytearray(content), dtype).reshape(shape)


def _put_back(arguments: Sequence[Any], changed: Sequence[Any]) -> None:
    """Let the arguments of a call be what the answer made of them over there."""
    import numpy as np
    import torch

    for argument, value in zip(arguments, changed, strict=True):
        if value is None:
            continue
        with contextlib.suppress(ValueError, RuntimeError):  # such as another shape
            if isinstance(argument, np.ndarray) and argument.flags.writeable:
                argument[...] = value
            elif isinstance(argument, torch.Tensor):
                argument.detach().copy_(value)
            elif isinstance(argument, list):
                argument[:] = value
            elif isinstance(argument, dict):
                argument.clear()
                argument.update(value)


class _Requests(pickle.Pickler):
    """Writes what a child is asked: tensors as bytes, and a function of a check's as
    its place in `functions`, since it is called here.
    """

    def __init__(self, file: io.BytesIO, functions: list[Callable[..., Any]]) -> None:
        super().__init__(file, protocol=4)
        self._functions = functions

    def persistent_id(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return "tensor", *learner.bytes_of(value), value.requires_grad
        is_function = isinstance(value, FunctionType | MethodType)
        if is_function and str(value.__module__).startswith(_OURS):
            self._functions.append(value)
            return "function", len(self._functions) - 1
        return None


class _Handin:
    """A notebook's cells in a process of their own, which is begun when it is needed
    and, where an answer ended it, again.
    """

    def __init__(self, cells: Sequence[str], *, unprotected: bool) -> None:
        self._cells = dict(enumerate(cells))
        self.unprotected = unprotected
        self._program: sandbox.Program | None = None
        self._functions: list[Callable[..., Any]] = []
        self._end_s = 0.0
        self._ends = 0
        self._spent_s = 0.0

    def answer(self, number: str, expression: str) -> Any:
        """An exercise's answer; its functions call those over there. Raises what the
        answer raised, by name, and NoMessage where its process ended or hangs.
        """
        if self._program is None:
            self._begin()
        self._end_s = monotonic() + EXERCISE_S
        kind = "source" if APART.get(number) == "source" else "answer"
        return self._ask(kind, number, expression)

    def close(self) -> None:
        """End the process."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    def _begin(self) -> None:
        """Start a process and run the cells, without one that ends it, if need be."""
        while self._program is None:
            if self._ends > _MOST_ENDS or self._spent_s > _CELLS_S:
                raise NoMessage("too many of its cells end the process, or hang")
            self._program = _learner(unprotected=self.unprotected)
            self._functions.clear()
            ceilings = (state_folder() / _CEILINGS).read_bytes()
            self._ask_within(BEGIN_S, "begin", {_CEILINGS: ceilings})
            self._run_cells()

    def _run_cells(self) -> None:
        """Run the cells up to one that ends the process, which is left out from now
        on.
        """
        began_s = monotonic()
        for place, cell in list(self._cells.items()):
            try:
                self._ask_within(learner.CELL_S + _GRACE_S, "cell", cell)
            except NoMessage:
                del self._cells[place]
                self._ends += 1
                self._spent_s += monotonic() - began_s
                return

    def _ask(self, *request: object) -> Any:
        seconds = min(self._end_s - monotonic(), learner.CALL_S + _GRACE_S)
        return self._ask_within(max(seconds, 0.0), *request)

    def _ask_within(self, seconds: float, *request: object) -> Any:
        try:
            if self._program is None:
                raise NoMessage("its process has ended")
            return self._exchange(self._program, seconds, request)
        except _Raised as raised:
            if raised.name == learner.Interrupted.__name__:
                raise TimeUp(raised.words) from None
            raise type(raised.name, (Exception,), {})(raised.words) from None
        except BaseException:
            # nobody knows what it sends next
            self.close()
            raise

    def _exchange(
        self, program: sandbox.Program, seconds: float, request: tuple[object, ...]
    ) -> Any:
        """What the process returns; meanwhile it may call functions of the check's."""
        end_s = monotonic() + seconds
        program.send(self._packed(*request), seconds)
        while True:
            try:
                message = program.receive(end_s - monotonic())
                state, first, *others = _Plain(message, self._ask).load()
            except NoMessage:
                raise
            except Exception as error:
                raise NoMessage("it sent what is no plain value") from error
            if state == "returned":
                return first
            if state == "raised":
                raise _Raised(str(first), str(others[0]))
            program.send(self._call(first, others[0]), max(end_s - monotonic(), 0.1))

    def _call(self, place: int, arguments: Sequence[Any]) -> bytes:
        """What a function of the check's returns or raises, packed."""
        try:
            return self._packed("returned", self._functions[place](*arguments))
        except Exception as error:
            return self._packed("raised", type(error).__name__, str(error))

    def _packed(self, *message: object) -> bytes:
        packed = io.BytesIO()
        _Requests(packed, self._functions).dump(message)
        return packed.getvalue()


class _Raised(Exception):
    """What the learner's code raised, by name and in words."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(name, words)
        self.name = name
        self.words = words


@functools.cache
def _batch_folder() -> Path:
    """A folder of this process, with a copy of the workbook that knows no answers."""
    folder = Path(tempfile.mkdtemp(prefix="labkit-grading-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, folder / "workbook" / name, ignore=_LEFT_OUT)
    (folder / "workbook" / "teaching").mkdir()
    for name in ("__init__", "channel", "kernel_source", "learner"):
        shutil.copy(ROOT / "teaching" / f"{name}.py", folder / "workbook" / "teaching")
    return folder


def _inside(folder: Path) -> Path:
    """Where a folder of the workbook stands in a sandbox."""
    return sandbox.WORKBOOK / folder.relative_to(ROOT)


def _learner(*, unprotected: bool) -> sandbox.Program:
    return sandbox.Program(
        "teaching.learner",
        {_batch_folder() / "workbook": sandbox.WORKBOOK},
        [_inside(folder) for folder in IMPORT_FOLDERS],
        unprotected=unprotected,
    )


class _KernelJudge:
    """The process that judges kernels: one for all hand-ins, begun anew where a kernel
    hangs.
    """

    def __init__(self, *, unprotected: bool) -> None:
        self._unprotected = unprotected
        self._program: sandbox.Program | None = None

    def judge(self, number: str, kernel: Kernel, salt: str) -> Outcome:
        """What the check says of a kernel; NoMessage where it takes too long."""
        if self._program is None:
            folders = [ROOT / name for name in (*_FOLDERS, "teaching")]
            self._program = sandbox.Program(
                "teaching.kernel_judge",
                {folder: _inside(folder) for folder in folders},
                [_inside(folder) for folder in IMPORT_FOLDERS],
                unprotected=self._unprotected,
            )
        try:
            request = pickle.dumps((number, kernel.description, salt))
            self._program.send(request, BEGIN_S)
            answer = self._program.receive(EXERCISE_S)
        except BaseException:
            self._program.stop()
            self._program = None
            raise
        state, words = _Plain(answer, _nothing).load()
        return Outcome(number, state, str(words))


def _nothing(*_: object) -> None:
    """What a verdict asks for."""


@functools.cache
def _kernel_judge(*, unprotected: bool) -> _KernelJudge:
    return _KernelJudge(unprotected=unprotected)


@functools.cache
def _begin_grading(*, unprotected: bool) -> None:
    """Say once how hand-ins are kept apart, and measure the ceilings of this machine,
    which answers and checks calculate with. LabError where they can't be kept apart.

    Whoever grades with the same folder of results within half a day takes the same
    ceilings.
    """
    try:
        words = sandbox.protection(unprotected=unprotected)
    except LabError as error:
        # graders print a traceback first: what is wrong is to stand above it
        print(error, file=sys.stderr, flush=True)
        raise
    print(words, file=sys.stderr, flush=True)
    os.environ["LABKIT_HOME"] = str(state_folder() / "grading")
    start()  # as a notebook's first cell: it may choose the number of threads
    kept = state_folder() / _CEILINGS
    if kept.exists() and time.time() - kept.stat().st_mtime > _BATCH_S:
        kept.unlink()
    for threads in (None, 1):
        line = json.dumps(dataclasses.asdict(measure_ceilings(threads=threads)))
        # also where the machine is too busy for others to take them
        if not kept.exists() or line not in kept.read_text(encoding="utf-8"):
            append_line(kept, line)


def verdicts(
    cells: Sequence[str], expressions: Mapping[str, str], *, unprotected: bool = False
) -> dict[str, Outcome]:
    """Number -> outcome of each exercise of `expressions` (number -> the notebook's
    expression of its answer).

    All inputs are drawn anew, from secret text that is made here and kept nowhere.
    LabError where there is no sandbox, unless `unprotected`.
    """
    _begin_grading(unprotected=unprotected)
    salt = secrets.token_hex(8)
    handin = _Handin(cells, unprotected=unprotected)
    with contextlib.closing(handin):
        return {
            number: _verdict(handin, number, expression, salt)
            for number, expression in expressions.items()
        }


def _verdict(handin: _Handin, number: str, expression: str, salt: str) -> Outcome:
    try:
        answer = handin.answer(number, expression)
        if isinstance(answer, Kernel):
            judge = _kernel_judge(unprotected=handin.unprotected)
            return judge.judge(number, answer, salt)
        return hidden_check.judge(number, answer, salt)
    except (Exception, TimeUp) as error:
        kind = "" if isinstance(error, NoMessage | TimeUp) else type(error).__name__
        where = f" ({kind})" if kind else ""
        words = f"Your answer could not be judged{where}: {error}"
        return Outcome(number, "not yet", words)


def graded(notebook: Any, resources: Any, *, unprotected: bool = False) -> Any:
    """A step of nbgrader's: the verdict takes the place of what a graded cell put out
    in the learner's kernel. Returns the notebook and the resources.
    """
    from nbformat.v4 import new_output

    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    own = [cell for cell in cells if cell.metadata.get("nbgrader", {}).get("grade")]
    asked = [_ASKED.findall(cell.source)[0] for cell in own]
    outcomes = verdicts(
        [cell.source for cell in cells if cell not in own],
        dict(asked),
        unprotected=unprotected,
    )
    for cell, (number, _) in zip(own, asked, strict=True):
        words = str(outcomes[number])
        failed = new_output("error", ename="NotYet", evalue=words, traceback=[words])
        cell.outputs = [
            new_output("stream", text=f"{words}\n") if outcomes[number] else failed
        ]
    return notebook, resources


def graded_unprotected(notebook: Any, resources: Any) -> Any:
    """The same step where there is no sandbox."""
    return graded(notebook, resources, unprotected=True)


class OtterPlugin:
    """otter's plugin: no cell runs in otter's kernel, and each test of an exercise gets
    the verdict.
    """

    def __init__(self, path: str, metadata: object, config: Mapping[str, Any]) -> None:
        self._expressions = dict(config["answers"])
        self._unprotected = bool(config["unprotected"])
        self._cells = list[str]()

    def before_execution(self, notebook: Any) -> Any:
        """Keep the cells, and run none."""
        self._cells = [
            cell.source for cell in notebook.cells if cell.cell_type == "code"
        ]
        notebook.cells = []
        return notebook

    def after_grading(self, graded: Any) -> None:
        """Judge, and let otter's results say so."""
        outcomes = verdicts(
            self._cells, self._expressions, unprotected=self._unprotected
        )
        for number, outcome in outcomes.items():
            for case in graded.results[number].test_case_results:
                case.passed = bool(outcome)
                case.message = str(outcome)
