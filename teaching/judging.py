"""Judge notebooks that were handed in, for nbgrader and otter, out of the process that
runs what learners wrote.

The cells run in a child (`teaching.learner`), in a copy of the workbook without checks
and solutions. Checks run here: a learner's function is called over there, with one
input at a time, and its result comes back as plain values. Other exercises than those
of `APART` can't be judged so: their checks run in a second child, whose modules are
restored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import os
import pickle
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from labkit.core.paths import EXERCISES, IMPORT_FOLDERS, ROOT
from labkit.lesson.checks import Outcome
from labkit.lesson.notebook import start
from labkit.measure.ceilings import measure_ceilings
from teaching import hidden_check, learner

# Exercises whose inputs and results can be sent from process to process, as their
# solutions show.
APART = frozenset((EXERCISES / "judged_apart.csv").read_text(encoding="utf-8").split())
# seconds that all cells, and a call or a check, may take
CELLS_S = 600
CALL_S = 120
_LARGEST = 2**28  # bytes of a reply
_LEFT_OUT = shutil.ignore_patterns(
    "check.py", "solution.py", "wrong_*.py", "__pycache__"
)
# of a graded cell: the exercise, and its answer
_ASKED = re.compile(r'lab\.check\("(.+?)", (.+)\)\.state ')
_SAFE = re.compile(
    r"numpy[\w.]*\.(_reconstruct|scalar|ndarray|dtype)|_codecs\.encode|"
    r"builtins\.(complex|dict|Ellipsis|float|list|tuple)"
)


class _Plain(pickle.Unpickler):
    """Reads what a child may have forged: NumPy's arrays and Python's own plain values,
    and nothing that runs code.

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
        import torch

        if named[0] == "tensor":
            return torch.as_tensor(named[1])
        _, place, name, is_open = named

        def answer(*arguments: object) -> Any:
            return self._ask("call", place, arguments)

        answer.__name__ = str(name)
        return ... if is_open else answer


@contextlib.contextmanager
def _child(
    cells: Sequence[str], expressions: Mapping[str, str], *, together: bool
) -> Iterator[Callable[..., Any]]:
    """A process in which a notebook's cells have run, with a results file that is
    thrown away; yields what asks it.

    That raises what the answer raised, by name, and RuntimeError where the process has
    ended or hangs.
    """

    def ask(*request: object) -> Any:
        try:
            own.send_bytes(pickle.dumps(request))
            if not own.poll(seconds := next(limits)):
                process.kill()
                raise RuntimeError(f"it took more than {seconds} s")
            state, *value = _Plain(own.recv_bytes(_LARGEST), ask).load()
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise RuntimeError(
                "the process of the answer has ended, or sent what is no plain value"
            ) from error
        if state == "raised":
            raise type(str(value[0]), (Exception,), {})(str(value[1]))
        return value[0]

    limits = itertools.chain([CELLS_S], itertools.repeat(CALL_S))
    with tempfile.TemporaryDirectory(
        prefix="labkit-grading-", ignore_cleanup_errors=True
    ) as folder:
        root = ROOT
        home = Path(folder, "home")
        if not together:
            root = Path(folder, "workbook")
            for name in ("labkit", "packages", "data", "exercises"):
                shutil.copytree(
                    ROOT / name,
                    root / name,
                    ignore=_LEFT_OUT if name == "exercises" else None,
                )
        home.mkdir()
        # for answers those that the checks calculate with
        ceilings = (measure_ceilings(threads=n) for n in (None, 1))
        lines = "".join(
            json.dumps(dataclasses.asdict(ceiling)) + "\n" for ceiling in ceilings
        )
        (home / "ceilings.jsonl").write_text(lines, encoding="utf-8")
        own, theirs = Pipe()
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(
                str(root / folder.relative_to(ROOT)) for folder in IMPORT_FOLDERS
            ),
            "LABKIT_HOME": str(home),
            "MPLBACKEND": "agg",
        }
        process = subprocess.Popen(
            [sys.executable, "-P", learner.__file__, str(theirs.fileno())],
            cwd=folder,
            env=env,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        own.send((list(cells), dict(expressions), together))
        try:
            yield ask
        finally:
            own.close()
            os.killpg(process.pid, signal.SIGKILL)  # with whatever it started
            process.wait()


def verdicts(
    cells: Sequence[str], expressions: Mapping[str, str]
) -> dict[str, Outcome]:
    """Number -> outcome of each exercise of `expressions` (number -> the notebook's
    expression of its answer).

    All inputs are drawn anew, from secret text that is made here and kept nowhere.
    """
    start()  # as a notebook's first cell: it may choose the number of threads
    salt = secrets.token_hex(8)
    outcomes = dict[str, Outcome]()
    for together in (False, True):
        group = {
            number: code
            for number, code in expressions.items()
            if (number not in APART) == together
        }
        if group:
            with _child(cells, group, together=together) as ask:
                outcomes |= {
                    number: _verdict(ask, number, salt, together=together)
                    for number in group
                }
    return {number: outcomes[number] for number in expressions}


def _verdict(
    ask: Callable[..., Any], number: str, salt: str, *, together: bool
) -> Outcome:
    try:
        if together:
            return Outcome(number, *ask("judge", number, salt))
        return hidden_check.judge(number, ask("answer", number), salt)
    except Exception as error:
        return Outcome(
            number,
            "not yet",
            f"Your answer could not be judged ({type(error).__name__}): {error}",
        )


def graded(notebook: Any, resources: Any) -> tuple[Any, Any]:
    """A step of nbgrader's: the verdict takes the place of what a graded cell put out
    in the learner's kernel.
    """
    from nbformat.v4 import new_output

    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    own = [cell for cell in cells if cell.metadata.get("nbgrader", {}).get("grade")]
    asked = [_ASKED.findall(cell.source)[0] for cell in own]
    outcomes = verdicts([cell.source for cell in cells if cell not in own], dict(asked))
    for cell, (number, _) in zip(own, asked, strict=True):
        words = str(outcomes[number])
        failed = new_output("error", ename="NotYet", evalue=words, traceback=[words])
        cell.outputs = [
            new_output("stream", text=f"{words}\n") if outcomes[number] else failed
        ]
    return notebook, resources


class OtterPlugin:
    """otter's plugin: no cell runs in otter's kernel, and each test of an exercise gets
    the verdict.
    """

    def __init__(self, path: str, metadata: object, config: Mapping[str, str]) -> None:
        self._expressions = dict(config)
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
        for number, outcome in verdicts(self._cells, self._expressions).items():
            for case in graded.results[number].test_case_results:
                case.passed = bool(outcome)
                case.message = str(outcome)
