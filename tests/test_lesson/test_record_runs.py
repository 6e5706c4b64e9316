import json

import nbformat
import pytest

from labkit.core import results
from labkit.core.errors import LabError
from labkit.lesson import exercise_files, record_runs

pytestmark = pytest.mark.slow  # starts kernels


def notebook(*sources):
    return dict(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources]))


def test_a_blank_is_replaced_by_its_solution_and_nothing_else_is():
    before = notebook("x = 1", "# 99.1 about 1 line\nanswer = ...", "# 99 is a number")
    filled = record_runs.solved(before, {"99.1": "answer = 42"})
    assert [c["source"] for c in filled["cells"]] == ["x = 1", "# 99.1 about 1 line\nanswer = 42", "# 99 is a number"]
    assert before["cells"][1]["source"].endswith("...")


@pytest.fixture
def workbook(tmp_path, monkeypatch, home):
    """A workbook of one notebook; returns a function that puts cells into it and records it."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(record_runs, "NOTEBOOKS", folder)
    monkeypatch.setattr(exercise_files, "solutions", lambda nn: {"99.1": "answer = 42"})

    def record(*sources):
        (folder / "99_test.ipynb").write_text(json.dumps(notebook(*sources)))
        told = []
        return record_runs.record(told.append, folder=tmp_path / "recorded"), told

    return record


MEASURE = 'import labkit as lab\nm = lab.record("99.1 answer", answer, "s")'


def test_recording_keeps_what_was_measured_with_the_solutions_filled_in(workbook):
    path, told = workbook("# 99.1 about 1 line\nanswer = ...", MEASURE, 'p = lab.predict("99.1 other", 3, "s")')
    (entry,), damaged = results.read(path)
    assert damaged == []
    assert (entry.value, entry.origin, entry.profile) == (42.0, "measured", "full")
    assert path.stem == record_runs.machine().slug
    assert "[1/1] 99_test.ipynb" in told[0]


def test_recording_again_replaces_the_notebooks_that_ran_and_keeps_the_others(workbook):
    path, _ = workbook("answer = 1", MEASURE)
    other = results.Measurement("98.1", "kept", 5.0, "s", "measured", "m", "2026")
    path.write_text(path.read_text() + results.to_line(other) + "\n")
    workbook("answer = 2", MEASURE)
    assert [(e.what, e.value) for e in results.read(path)[0]] == [("kept", 5.0), ("answer", 2.0)]


def test_a_notebook_that_fails_records_nothing_and_is_named(workbook):
    path, _ = workbook("answer = 1", MEASURE)
    with pytest.raises(LabError, match=r"99_test\.ipynb failed, so nothing was recorded"):
        workbook("answer = 3", MEASURE, "1 / 0")
    assert [e.value for e in results.read(path)[0]] == [1.0]


def test_solutions_that_do_not_pass_are_not_recorded(workbook):
    with pytest.raises(LabError, match=r"00\.1 not yet"):
        workbook('import labkit as lab; lab.check("00.1", "nonsense")')
