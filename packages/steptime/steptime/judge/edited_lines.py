"""Find the line of the reader's code that makes an object, such as a loader or an
optimizer: the line to edit.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path

from steptime.measure.stack_samples import is_library

_MOST_BYTES = 1_000_000  # of a file that is read


def line_that_makes(value: object) -> str:
    """Where the class of an object is called, "train.py, line 41" or "a cell, line 3".

    "" where no file of the reader's does so, or where several lines do.
    """
    name = type(value).__name__
    lines = [
        f"{file}, line {line}"
        for file, text in _own_files()
        for line in _calls_of(name, text)
    ]
    return lines[0] if len(lines) == 1 else ""


def _own_files() -> Iterator[tuple[str, str]]:
    """The files of the modules that are no library's, and a notebook's cells: names and
    texts.
    """
    for module in [*sys.modules.values()]:
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or is_library(path):
            continue
        file = Path(path)
        if file.is_file() and file.stat().st_size < _MOST_BYTES:
            yield file.name, file.read_text(encoding="utf-8", errors="replace")
    for path in [*linecache.cache]:
        if "ipykernel_" in path or "<ipython-input" in path:
            yield "a cell", "".join(linecache.getlines(path))


def _calls_of(name: str, text: str) -> Iterator[int]:
    """The lines of a file that call a function or a class of this name."""
    if name not in text:
        return
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a cell with a magic command
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = getattr(function, "attr", getattr(function, "id", None))
        if called == name:
            yield node.lineno
