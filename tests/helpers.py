"""What several tests need of the notebooks."""

import json
from types import SimpleNamespace

from labkit.lesson import record_runs

COPY_BYTES_PER_S, MATMUL_FLOP_PER_S = 20e9, 100e9


def fake_ceilings(**kwargs):
    """Ceilings that are the same in every run."""
    return SimpleNamespace(copy_bytes_per_s=COPY_BYTES_PER_S, matmul_flop_per_s={"float32": MATMUL_FLOP_PER_S})


def notebook_paths():
    return record_runs.paths()


def cells(path):
    """[(cell type, source, tags, cell)]"""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [(c["cell_type"], "".join(c["source"]), c["metadata"].get("tags", []), c) for c in notebook["cells"]]


def code_cells(path):
    return [source for kind, source, _, _ in cells(path) if kind == "code"]


def stub_cells(path):
    return [source for source in code_cells(path) if record_runs.stub_number(source)]
