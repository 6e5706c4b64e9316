"""The child process that runs a notebook which was handed in, and then its functions.
It imports none of the graders.

`teaching.judging` starts it and asks. Requests are pickles; a reply holds plain values
only, since whatever a learner wrote may forge it.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import itertools
import numbers
import os
import pickle
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from types import FunctionType, ModuleType
from typing import Any

_LONGEST = 100_000  # items that are taken of an iterator
_OURS = (
    "labkit",
    "exercises",
    "kerneltrace",
    "ranks",
    "steptime",
    "trainplan",
    "teaching",
)


class Packer(pickle.Pickler):
    """Writes plain values: a tensor as an array, a function as its place in
    `functions`, an iterator as a list.
    """

    def __init__(self, file: io.BytesIO, functions: list[Callable[..., Any]]) -> None:
        super().__init__(file, protocol=4)
        self._functions = functions

    def persistent_id(self, value: Any) -> Any:
        """What stands for a tensor or a function; None for other values."""
        import torch

        from labkit.lesson.checks import is_open

        if isinstance(value, torch.Tensor):
            return "tensor", value.detach().cpu().numpy()
        if isinstance(value, FunctionType):
            self._functions.append(value)
            return "function", len(self._functions) - 1, value.__name__, is_open(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        """How to make one of Python's own values that is like this one."""
        import numpy as np

        if isinstance(value, np.generic | np.ndarray | type):
            return NotImplemented
        if isinstance(value, numbers.Real):
            return float, (float(value),)
        kind = next((kind for kind in (dict, tuple) if isinstance(value, kind)), list)
        return (
            (kind, (kind(itertools.islice(value, _LONGEST)),))
            if isinstance(value, Iterable)
            else NotImplemented
        )


@contextlib.contextmanager
def restored(exercises: Iterable[str]) -> Iterator[None]:
    """Put back afterwards the checks of these exercises, what can be called in modules,
    our classes and their code.
    """
    from labkit.lesson import checks, exercise_files, process_state

    own = [
        obj
        for obj in gc.get_objects()
        if isinstance(obj, FunctionType | type) and _is_ours(obj)
    ]
    code = [
        (function, function.__code__, function.__defaults__)
        for function in own
        if isinstance(function, FunctionType)
    ]
    by_number = {number: exercise_files.exercise(number) for number in exercises}
    modules = dict(sys.modules)
    owners = [builtins, *modules.values(), *own]
    # a second one, which no cell's import reaches
    kept = runpy.run_path(process_state.__file__)["KeptFunctions"]
    with kept([owner for owner in owners if isinstance(owner, ModuleType | type)]):
        yield
    sys.modules.update(modules)
    for function, body, defaults in code:
        function.__code__ = body
        function.__defaults__ = defaults
    vars(checks)["exercise"] = by_number.__getitem__


def _is_ours(obj: Any) -> bool:
    return str(obj.__module__).split(".")[0] in _OURS


def answers(
    cells: Sequence[str], expressions: Mapping[str, str]
) -> Callable[[str], Any]:
    """Run a notebook's cells; what returns an exercise's answer: what it last gave
    `lab.check`, else the expression.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    import labkit as lab

    def check(number: str, answer: object) -> lab.Outcome:
        answer_of[number] = answer
        return lab.Outcome(number, "todo", "It is judged when the notebook has run.")

    answer_of: dict[str, Any] = {}
    lab.check = check
    shell = InteractiveShell.instance(
        config=Config({"HistoryManager": {"hist_file": ":memory:"}})
    )
    for cell in cells:
        shell.run_cell(cell)

    def answer(number: str) -> Any:
        if number in answer_of:
            return answer_of[number]
        return eval(expressions[number], shell.user_ns)

    return answer


def serve(channel: Connection) -> None:
    """Run the cells of the first request; then answer each that follows, until the
    grader has gone.

    Checks that are to judge in here are loaded before, and restored after the cells
    ran.
    """
    cells, expressions, together = channel.recv()
    functions: list[Callable[..., Any]] = []
    if together:
        from teaching import hidden_check
    with restored(expressions) if together else contextlib.nullcontext():
        answer = answers(cells, expressions)

    def judge(number: str, salt: str) -> tuple[str, str]:
        outcome = hidden_check.judge(number, answer(number), salt)
        return outcome.state, outcome.message

    asked: dict[str, Callable[..., Any]] = {"answer": answer, "judge": judge}
    asked["call"] = lambda place, arguments: functions[place](*arguments)
    while True:
        try:
            kind, *arguments = pickle.loads(channel.recv_bytes())
        except EOFError:
            return
        try:
            reply = io.BytesIO()
            Packer(reply, functions).dump(("returned", asked[kind](*arguments)))
        except BaseException as error:
            reply = io.BytesIO(
                pickle.dumps(("raised", type(error).__name__, str(error)[:300]))
            )
        channel.send_bytes(reply.getvalue())


if __name__ == "__main__":
    serve(Connection(os.dup(int(sys.argv[1]))))
