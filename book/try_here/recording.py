"""Kernels of a few threads, run by kerneltrace step by step, as data for the page."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from exercises.nb23.counting import solved
from exercises.nb23.sketches import SKETCHES
from kerneltrace import ThreadStepper
from labkit.lesson import notebook_files

MOST_MOMENTS = 100  # of a kernel whose threads the reader chooses
Data = dict[str, Any]


@dataclass(frozen=True)
class Launch:
    """One block of `threads` threads: `arguments` by name, in the kernel's order.

    A reader may choose the threads' order where `is_free`; then every order is
    recorded, else the one in which they take turns.
    """

    title: str
    about: str
    kernel: Any
    threads: int
    arguments: dict[str, Any]
    is_free: bool = False
    shows_source: bool = False


def recorded(launch: Launch) -> Data:
    """A launch with its moments: before, between and after the accesses to memory.

    A moment's key has the number of the thread of each access so far: "01" is the
    moment after thread 0 and then thread 1 had their first one. Raises ValueError for
    more than 100 moments.
    """
    stepper = ThreadStepper(launch.kernel, launch.threads, *launch.arguments.values())
    if launch.is_free:
        keys = list(_orders(stepper))
        moments = {key: _moment(_run(stepper, key), key) for key in keys}
    else:
        threads = "".join(str(step.thread) for step in stepper.steps.steps)
        keys = [threads[:count] for count in range(len(threads) + 1)]
        moments = {key: _moment(stepper.steps, key) for key in keys}
    return {
        "title": launch.title,
        "about": launch.about,
        "threads": launch.threads,
        "isFree": launch.is_free,
        "source": list(stepper.steps.source) if launch.shows_source else [],
        "moments": moments,
    }


def _orders(stepper: ThreadStepper) -> Iterator[str]:
    """Every way in which the threads can take turns, shorter beginnings first."""
    waiting = [""]
    for key in waiting:  # which grows meanwhile
        if len(waiting) > MOST_MOMENTS:
            raise ValueError(
                f"Expected a kernel with at most {MOST_MOMENTS} moments in all orders"
                " of its threads, got more. Take fewer threads or accesses."
            )
        yield key
        places = _run(stepper, key).places[len(key)]
        waiting += [f"{key}{n}" for n, (_, waits) in enumerate(places) if not waits]


def _run(stepper: ThreadStepper, key: str) -> Any:
    """The run in which the first turns are those of a key: its threads' buttons are
    pressed one after another.
    """
    stepper.slider.value = 0
    for thread in key:
        stepper.buttons[int(thread)].click()
    return stepper.steps


def _moment(run: Any, key: str) -> Data:
    """What the last thread of a key did, what memory holds then, and who goes on."""
    count = len(key)
    following = [str(step.thread) for step in run.steps[count : count + 1]]
    # a line of 0 is that of a thread which is done
    lines = [line - run.first_line if line else 0 for line, _ in run.places[count]]
    return {
        "said": run.steps[count - 1].words if count else "",
        "memory": {
            name: _rows(array, run.unwritten[count][name])
            for name, array in run.memory[count].items()
            if array.ndim
        },
        "lines": lines,
        "waits": [waits for _, waits in run.places[count]],
        "next": "".join(following),
        "ended": run.ended if count == len(run.steps) else "",
    }


def _rows(array: Any, unwritten: Any) -> list[list[str]]:
    """The numbers of an array of one or two dimensions, row by row; "?" for those that
    nobody has written.
    """
    rows = zip(np.atleast_2d(array), np.atleast_2d(unwritten), strict=True)
    return [
        [
            "?" if is_blank else f"{number:g}"
            for number, is_blank in zip(*row, strict=True)
        ]
        for row in rows
    ]


def visitors() -> list[Launch]:
    """Notebook 00's two visitors: its own kernel, and two in which none is lost."""
    from numba import cuda

    names = {"cuda": cuda}
    first = _kernel(_function_of("00", "count_visitor"), names)
    apart = _kernel(
        "@cuda.jit\ndef count_apart(counters):\n    counters[cuda.threadIdx.x] += 1\n",
        names,
    )
    atomic = _kernel(
        "@cuda.jit\ndef count_whole(counter):\n    cuda.atomic.add(counter, 0, 1)\n",
        names,
    )
    one = {"counter": np.zeros(1, int)}
    two = {"counters": np.zeros(2, int)}
    rows = [
        ("one counter", "Both threads add 1 to the same place.", first, one),
        ("a place for each", "Each thread adds 1 to a place of its own.", apart, two),
        ("in one step", "An atomic addition reads and writes at once.", atomic, one),
    ]
    return [
        Launch(title, about, kernel, 2, arguments, is_free=True, shows_source=True)
        for title, about, kernel, arguments in rows
    ]


def puzzles() -> list[Launch]:
    """Puzzles of notebook 23 that fit into one small block, run by the course's own
    kernels, whose source isn't shown.
    """
    return [_puzzle(number, *row) for number, row in _PUZZLES.items()]


# number: threads, and what is asked
_PUZZLES = {
    "23.1": (8, "Add 10 to each number: 8 threads, 8 numbers."),
    "23.2": (8, "Add two arrays: 8 threads, 8 numbers of each."),
    "23.3": (8, "Double each number: 8 threads, 6 numbers."),
    "23.6": (3, "Take off each number's sign: 3 threads, 8 numbers."),
    "23.13": (8, "Count how often each value occurs: 8 threads, 8 values."),
}


def _puzzle(number: str, threads: int, about: str) -> Launch:
    """A puzzle on the arrays of its sketch, of which the last one is written."""
    *inputs, (written, after) = SKETCHES[number].arrays.items()
    arguments = {name: np.array(array) for name, array in inputs}
    arguments[written] = np.zeros_like(after)
    return Launch(number, about, solved(number), threads, arguments)


def _function_of(notebook: str, name: str) -> str:
    """The source of a function that a cell of a notebook defines. Raises ValueError if
    none does.
    """
    paths = [p for p in notebook_files.paths() if p.name.startswith(notebook)]
    for cell in notebook_files.read(paths[0])["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or f"def {name}(" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                lines = text.splitlines(keepends=True)
                first = node.decorator_list[0].lineno - 1
                return "".join(lines[first : node.end_lineno])
    raise ValueError(
        f"Expected a cell of notebook {notebook} that defines {name}, which the page"
        " “Try it here” shows; there is none. Name another in book/try_here."
    )


def _kernel(source: str, names: dict[str, Any]) -> Any:
    """The kernel that a source defines."""
    file = f"<kernel {len(linecache.cache)}>"
    # a trace reads the kernel's source
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    defined = dict(names)
    exec(compile(source, file, "exec"), defined)
    return next(value for name, value in defined.items() if name.startswith("count"))
