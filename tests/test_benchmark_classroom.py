"""The benchmark of a class: which lines that kernels append count as lost, and which readings as right."""

import errno
import os

import pytest

from benchmarks import classroom
from labkit.core import results
from labkit.core.results import Attempt, Measurement, Prediction
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
    assert attended().readings() == []


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


def run(*readings, failed=0):
    """A class whose kernels read (name, value, mark) in section 00.2, or (key, value, mark)."""
    lines = []
    for name, value, mark in readings:
        section, what = name.split(" ", 1) if name[0].isdigit() else ("00.2", name)
        unit, when = "images/s", "2026-01-01T00:00:00+00:00"
        lines.append(results.to_line(Measurement(section, what, value, unit, "measured", "M", when, busy=mark)))
    return classroom.Class(tuple(lines), tuple(lines), (1.0,) * (3 - failed) + (None,) * failed, 1.0, 2**30)


def test_calm_is_the_median_of_runs_alone_and_a_marked_one_counts_only_where_all_are():
    runs = [
        run(("a", 100.0, ""), ("b", 8.0, "busy")),
        run(("a", 40.0, "busy"), ("b", 6.0, "busy")),
        run(("a", 104.0, "")),
    ]
    assert classroom.calm(runs) == {"00.2 a": 102.0, "00.2 b": 7.0}


def test_a_reading_is_close_or_marked_or_wrong():
    alone = {"00.2 a": 100.0, "00.2 b": 10.0}
    one = run(("a", 80.0, ""), ("a", 120.0, "busy"), ("a", 50.0, "busy"), ("b", 7.9, ""), ("b", 12.1, ""))
    judged = classroom.judge(one.readings(), alone)
    assert (judged.close, judged.marked, judged.wrong) == (2 / 5, 2 / 5, 2)
    assert str(judged).splitlines() == [
        "5 readings: 40% within 20 % of a calm run's, 40% marked",
        "  00.2 a: 0.50 to 1.20 of a calm run's, median 0.80; 2 of 3 marked",
        "  00.2 b: 0.79 to 1.21 of a calm run's, median 1.00; 0 of 2 marked",
    ]


def test_an_accuracy_is_no_reading_of_a_clock():
    assert [m.value for m in run((classroom.COUNTED, 90.0, ""), ("a", 1.0, "")).readings()] == [1.0]


def attending(monkeypatch, alone, together):
    """The benchmark's figures of such runs, by the end of their names."""
    monkeypatch.setattr(classroom, "attend", lambda kernels, **_: alone if kernels == 1 else together)
    return {name.split(": ")[1]: (value, value <= target) for name, target, value, _ in classroom.rows([3], ["ci"])}


def test_the_figures_of_a_class(monkeypatch, capsys):
    together = run(("a", 100.0, ""), ("a", 60.0, "busy"), ("a", 70.0, ""), failed=1)
    found = attending(monkeypatch, run(("a", 100.0, "")), together)
    assert found == {
        "readings marked": (1 / 3, True),
        "readings over 20 % off and not marked": (1, False),
        "dead or with an error": (1, False),
        "results lost": (0, True),
        "memory": (1, True),
    }
    said = capsys.readouterr().err
    assert "ci, 3 kernels, shared folders: 2 of 3 kernels finished" in said
    assert "3 readings: 33% within 20 % of a calm run's, 33% marked" in said


@pytest.mark.parametrize("mark", ["", "this machine was busy"])
def test_a_machine_that_is_busy_with_one_kernel_is_named(monkeypatch, capsys, mark):
    attending(monkeypatch, run(("a", 100.0, mark)), run(("a", 100.0, "")))
    assert ("Other programs run on this machine" in capsys.readouterr().err) == bool(mark)


def test_a_kernel_that_fails_alone_ends_the_benchmark(monkeypatch):
    with pytest.raises(RuntimeError, match="One kernel alone did not run notebook 00 to its end"):
        attending(monkeypatch, run(("a", 1.0, ""), failed=1), run())


def test_kernels_of_a_small_class_share_folders_of_results_and_turns(monkeypatch):
    given = []

    async def execute(path, environment, first, last):
        given.append(environment)
        return "0.5"

    monkeypatch.setattr(classroom, "execute", execute)
    assert classroom.attend(2, shared=True).waited_s == (0.5, 0.5)
    assert classroom.attend(2, shared=False, profile="full").failed == 0
    small, large = given[:2], given[2:]
    assert [len({one["LABKIT_HOME"] for one in kernels}) for kernels in (small, large)] == [1, 2]
    assert [len({one.get("LABKIT_TURNS") for one in small}), "LABKIT_TURNS" in large[0]] == [1, False]
    assert [one["LABKIT_PROFILE"] for one in given] == ["ci", "ci", "full", "full"]
    assert len({one[classroom.LOG] for one in small}) == 2
