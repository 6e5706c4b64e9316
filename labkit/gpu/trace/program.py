"""A kernel made ready to be traced: its rewritten functions, and the places in its source that report."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.core.errors import KernelError
from labkit.gpu.trace.arithmetic import Work
from labkit.gpu.trace.log import SITES, Log


@dataclass(frozen=True)
class Site:
    """A place in a kernel's source that logs events."""

    kind: str
    """load, store, atomic, branch, for, while, call, barrier, warp or array."""
    line: int
    function: str
    """The kernel's name; of a device function its name with brackets behind."""
    text: str
    """The source of the expression."""
    work: Work
    """Operations done each time the site logs: those of a branch's condition."""


class Program:
    """A kernel and the device functions it calls, rewritten for one launch. Site 0 stands for no place."""

    def __init__(self, log: Log, constant: Callable[[Any, str], Any]) -> None:
        """`constant(array, name)` makes our array of one that the kernel takes from its surroundings."""
        self.log, self.constant = log, constant
        self.sites: list[Site] = [Site("none", 0, "", "", Work())]
        self.runs: list[int] = []
        self.run_work: list[Work] = []
        self.files: set[str] = set()
        self.votes = False
        """Whether a barrier of the kernel carries a predicate."""
        self._functions: dict[Any, Any] = {}

    def site(self, kind: str, node: ast.AST, function: str, work: Work | None = None, text: str = "") -> int:
        """The number of a new site at `node` of a function; `text` says what it is where the source does not."""
        if len(self.sites) == SITES:
            raise KernelError(f"The kernel has over {SITES} accesses and branches in its source. Trace a part of it.")
        line = getattr(node, "lineno", 0)
        self.sites.append(Site(kind, line, function, text or ast.unparse(node), work or Work()))
        return len(self.sites) - 1

    def segment(self, work: Work) -> int:
        """The number of a new counter, for a run of statements that are executed together."""
        self.runs.append(0)
        self.run_work.append(work)
        return len(self.runs) - 1

    def function(self, fn: Any, whole: set[str], whole_arrays: set[str]) -> Callable[..., Any]:
        """`fn` rewritten, with the thread and the context before its own arguments.

        `whole` are its parameters that hold whole numbers, `whole_arrays` those that hold arrays of them.
        """
        from labkit.gpu.trace.rewrite import rewritten

        fn = python_function(fn)
        if fn not in self._functions:
            label = f"{fn.__name__}()" if self._functions else fn.__name__  # a device function in brackets
            self._functions[fn] = None
            self._functions[fn] = rewritten(self, fn, label, whole, whole_arrays)
        if self._functions[fn] is None:
            raise KernelError(f"{fn.__name__} calls itself, which lab.trace can't follow. Write it as a loop.")
        made: Callable[..., Any] = self._functions[fn]
        return made

    def helpers(self) -> dict[str, Any]:
        """What the rewritten source calls, by the names in which it does."""
        add = self.log.add

        def branch(value: Any, key: int) -> Any:
            add(-2 * key - 1 if value else -2 * key)
            return value

        return {
            "_lab_br": branch,
            "_lab_loop": self.log.loop,
            "_lab_steps": self.log.steps,
            "_lab_inside": self.log.inside,
            "_lab_next": next,
            "_lab_n": self.runs,
        }


def python_function(kernel: Any) -> types.FunctionType:
    """The Python function behind a kernel: compiled, simulated, or plain. KernelError where there is none."""
    for inner in (getattr(kernel, "py_func", None), getattr(kernel, "fn", None), kernel):
        if isinstance(inner, types.FunctionType):
            return inner
    raise KernelError(
        f"Expected a kernel, a function written against numba's `cuda`, with or without @cuda.jit; got {kernel!r}."
        " CUDA C++ can't be traced; lab.compile_cuda shows what its compiler makes of it."
    )
