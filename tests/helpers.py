"""What several tests need of the notebooks."""

import json
from types import SimpleNamespace

from exercises.nb00.wrong_answers import (
    COPY as COPY_BYTES_PER_S,
    MATMUL as MATMUL_FLOP_PER_S,
)
from labkit.lesson import checks, notebook_files, process_state


def fake_ceilings(**kwargs):
    """Ceilings that are the same in every run."""
    return SimpleNamespace(
        copy_bytes_per_s=COPY_BYTES_PER_S,
        matmul_flop_per_s={"float32": MATMUL_FLOP_PER_S},
    )


def check(number, answer):
    """`lab.check`, which has to leave the process as it was, random
    numbers included.
    """
    before = [(state, state.get()) for state in process_state.rows()]
    outcome = checks.check(number, answer)
    assert [state.name for state, value in before if state.get() != value] == []
    return outcome


def notebook_paths():
    return notebook_files.paths()


def cells(path):
    """[(cell type, source, tags, cell)]"""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [
        (c["cell_type"], "".join(c["source"]), c["metadata"].get("tags", []), c)
        for c in notebook["cells"]
    ]


def code_cells(path):
    return [source for kind, source, _, _ in cells(path) if kind == "code"]


def stub_cells(path):
    return [source for source in code_cells(path) if notebook_files.stub_number(source)]
