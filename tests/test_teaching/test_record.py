"""A recorded run: what it keeps, what it replaces, and what it refuses to keep."""

import json

import nbformat
import pytest

from labkit.core import results
from labkit.core.errors import LabError
from labkit.core.paths import RECORDED
from labkit.lesson import exercise_files, notebook_files
from teaching import record

pytestmark = pytest.mark.slow  # starts kernels
several_kernels = pytest.mark.complete


def notebook(*sources):
    return dict(
        nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in sources]
        )
    )


def test_a_blank_is_replaced_by_its_solution_and_nothing_else_is():
    before = notebook("x = 1", "# 99.1 about 1 line\nanswer = ...", "# 99 is a number")
    filled = notebook_files.solved(before, {"99.1": "answer = 42"})
    assert [c["source"] for c in filled["cells"]] == [
        "x = 1",
        "# 99.1 about 1 line\nanswer = 42",
        "# 99 is a number",
    ]
    assert before["cells"][1]["source"].endswith("...")


@pytest.fixture
def workbook(tmp_path, monkeypatch, home):
    """A workbook of one notebook; returns a function that puts cells into it and
    records it.
    """
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(notebook_files, "NOTEBOOKS", folder)
    monkeypatch.setattr(exercise_files, "solutions", lambda nn: {"99.1": "answer = 42"})

    told = []

    def recorded(*sources):
        told.clear()
        (folder / "99_test.ipynb").write_text(json.dumps(notebook(*sources)))
        return record.record(told.append, folder=tmp_path / "recorded"), told

    recorded.told = told

    return recorded


MEASURE = 'import labkit as lab\nm = lab.record("99.1 answer", answer, "s")'


def test_recording_keeps_what_was_measured_with_the_solutions_filled_in(workbook):
    path, told = workbook(
        "# 99.1 about 1 line\nanswer = ...",
        MEASURE,
        'p = lab.predict("99.1 other", 3, "s")',
    )
    (entry,), damaged = results.read(path)
    assert damaged == []
    assert (entry.value, entry.origin, entry.profile) == (42.0, "measured", "full")
    assert path.stem == record.machine().slug
    assert "[1/1] 99_test.ipynb" in told[0]


@several_kernels
def test_recording_again_replaces_the_notebooks_that_ran_and_keeps_the_others(workbook):
    path, _ = workbook("answer = 1", MEASURE)
    other = results.Measurement("98.1", "kept", 5.0, "s", "measured", "m", "2026")
    path.write_text(path.read_text() + results.to_line(other) + "\n")
    workbook("answer = 2", MEASURE)
    assert [(e.what, e.value) for e in results.read(path)[0]] == [
        ("kept", 5.0),
        ("answer", 2.0),
    ]


@several_kernels
def test_a_cell_that_hangs_and_a_kernel_that_dies_are_told_in_a_sentence(
    workbook, monkeypatch
):
    with pytest.raises(LabError, match=r"99_test.ipynb failed.*Kernel died"):
        workbook("import os; os._exit(1)")
    monkeypatch.setattr(record, "_CELL_S", 2)
    with pytest.raises(LabError, match=r"99_test.ipynb failed.*timed out"):
        workbook("import time; time.sleep(60)")


@several_kernels
def test_the_notebooks_beside_one_that_fails_are_recorded(workbook, tmp_path):
    (tmp_path / "notebooks" / "98_other.ipynb").write_text(
        json.dumps(notebook("1 / 0"))
    )
    with pytest.raises(
        LabError, match=r"98_other\.ipynb failed, so nothing of it was kept"
    ):
        workbook("answer = 1", MEASURE)
    (path,) = (tmp_path / "recorded").glob("*.jsonl")
    assert [e.value for e in results.read(path)[0]] == [1.0]


@several_kernels
def test_a_traceback_is_told_once_without_colors(workbook):
    with pytest.raises(LabError) as raised:
        workbook("1 / 0")
    told = "".join(workbook.told)
    assert "ZeroDivisionError" in told
    assert "\x1b" not in told
    assert "ZeroDivisionError" not in str(raised.value)


@pytest.mark.complete
def test_solutions_that_do_not_pass_are_not_recorded(workbook):
    with pytest.raises(LabError, match=r"00\.1 not yet"):
        workbook('import labkit as lab; lab.check("00.1", "nonsense")')


BUSY = "this machine was busy: 38 % of the time waiting for a core"
DISTURBED = f"""
from pathlib import Path
from labkit.measure.contention import Contention
from labkit.measure.bench import Timing
tries = Path.home() / "tries"
tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
busy = len(tries.read_text()) < {{calm_from}}
timing = Timing("x", 1.0, (float(len(tries.read_text())),) * 5, 1, Contention(0.38, {BUSY!r}) if busy else None)
lab.record("99.1 time", timing, "s")
"""


@several_kernels
def test_a_disturbed_notebook_is_recorded_again_and_only_the_calm_run_is_kept(
    workbook, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    path, told = workbook("answer = 1", MEASURE, DISTURBED.format(calm_from=3))
    assert [(e.what, e.value) for e in results.read(path)[0]] == [
        ("answer", 1.0),
        ("time", 3.0),
    ]
    assert sum(f"99.1 time: {BUSY}" in line for line in told) == 2
    (tmp_path / "tries").unlink()
    with pytest.raises(
        LabError, match=r"on a busy machine for 99\.1 time, so nothing of it"
    ):
        workbook("answer = 2", MEASURE, DISTURBED.format(calm_from=99))
    assert [e.value for e in results.read(path)[0]] == [1.0, 3.0]


def test_no_recorded_run_was_measured_on_a_busy_machine():
    entries = [
        entry for path in RECORDED.glob("*.jsonl") for entry in results.read(path)[0]
    ]
    assert entries
    assert [
        entry.key
        for entry in entries
        if isinstance(entry, results.Measurement) and entry.busy
    ] == []
