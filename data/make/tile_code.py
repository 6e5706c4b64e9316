"""Compile notebook 18's kernels with Triton, and write what they became into
data/tile_code.csv.

usage: python -m data.make.tile_code

It runs the notebook's cells that define or compile kernels. Needs Linux and triton; no
GPU.
"""

from __future__ import annotations

import csv
import json
import linecache
import re
from typing import Any
from unittest import mock

from exercises.nb18 import compiled
from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files

NOTEBOOK = ROOT / "notebooks" / "18_can_a_kernel_think_in_tiles.ipynb"
_COMPILES = re.compile(r"@triton\.jit|import tiles|compiled\.(code|dots|generations)\(")


def codes() -> list[compiled.Code]:
    """What the notebook compiles, in its order."""
    made: list[compiled.Code] = []
    compile_one = compiled.code

    def noted(*args: Any, **named: Any) -> compiled.Code:
        made.append(compile_one(*args, **named))
        return made[-1]

    with mock.patch.object(compiled, "code", noted):
        kernels()
    return made


def kernels() -> dict[str, Any]:
    """The names that the solved notebook's cells give to kernels and to what they
    compile.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell in notebook_files.solved(notebook, exercise_files.solutions("18"))[
        "cells"
    ]:
        source = "".join(cell["source"]).split("\nprint(")[0]
        if cell["cell_type"] == "code" and _COMPILES.search(source):
            file = f"<{cell['id']}>"  # Triton reads a kernel's source by its file
            linecache.cache[file] = len(source), None, source.splitlines(True), file
            exec(compile(source, file, "exec"), names)
    return names


def main() -> None:
    """Write the table."""
    rows = [
        (code.name, code.capability, what, n, f"Triton {code.origin.split()[-1]}")
        for code in codes()
        for what, n in code.counts.items()
    ]
    with compiled.RECORDED.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("name", "capability", "what", "value", "compiler"))
        table.writerows(rows)


if __name__ == "__main__":
    main()
