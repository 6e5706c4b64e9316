"""The benchmark of a class: which of the lines that kernels append count as lost."""

import errno
import os

import pytest

from benchmarks import classroom
from labkit.core import results
from labkit.core.results import Attempt, Prediction
from labkit.lesson import outcomes


@pytest.fixture
def attended(home, tmp_path_factory, monkeypatch):
    """What the class did, after a cell as the benchmark puts before each kernel's own."""
    log = tmp_path_factory.mktemp("logs") / "0.jsonl"
    monkeypatch.setenv(classroom.LOG, str(log))
    monkeypatch.setattr(results.Results, "append", results.Results.append)
    exec(classroom.FIRST_CELL, {})

    def attended():
        return classroom.Class(
            classroom.lines_of([log]), classroom.lines_of([home / "results.jsonl"]), waited_s=(), took_s=1, peak_bytes=1
        )

    return attended


def guess(value):
    results.results().append(Prediction("00.2", "one thread", value, "images/s", "2026-01-01"))


def test_nothing_is_lost_of_what_the_file_holds(attended):
    guess(1.0)
    guess(2.0)
    assert (len(attended().appended), attended().lost) == (2, 0)


@pytest.mark.parametrize("values", [(1.0, 2.0), (1.0, 1.0)], ids=["different lines", "twice the same line"])
def test_one_line_that_is_gone_from_the_file_is_found(attended, home, values):
    for value in values:
        guess(value)
    file = home / "results.jsonl"
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    assert attended().lost == 1


def test_a_line_of_which_half_was_written_is_lost_and_has_no_rate(attended, home):
    guess(1.0)
    file = home / "results.jsonl"
    file.write_text(file.read_text()[:-20])
    assert attended().lost == 1
    assert attended().rates() == []


def test_an_entry_that_could_only_be_kept_in_memory_is_lost(attended, monkeypatch):
    def full(path, line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(results, "append_line", full)
        guess(1.0)
    assert attended().lost == 1


def test_a_hint_that_a_shared_folder_keeps_once_is_not_lost(attended):
    for _ in range(2):  # kernels of one reader
        outcomes.note("00.1", "hint", step=1)
    assert [type(results.from_line(line)) for line in attended().lines] == [Attempt]
    assert attended().lost == 0
