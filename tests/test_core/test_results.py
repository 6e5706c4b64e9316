import dataclasses
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from labkit.core import comparable, results
from labkit.core.comparable import Work, difference
from labkit.core.errors import BadMeasurement
from labkit.core.paths import RECORDED
from labkit.core.results import Attempt, Measurement, Prediction, Results, Verdict
from labkit.train.data.build_cache import cache_folder


def measurement(what="all threads", value=1.5, **other):
    fields = {"section": "00.3", "unit": "s", "origin": "measured", "machine": "m", "when": results.now(), **other}
    return Measurement(what=what, value=value, **fields)


GUESS = Prediction("00.3", "all threads", 2.0, "s", "2026-01-01")
VERDICT = Verdict("C02", "does not hold", "because", "00.4", "m", "2026-01-01")


def changed(entry=GUESS, **fields):
    """The line of an entry with some fields replaced."""
    return json.dumps(json.loads(results.to_line(entry)) | fields).encode()


@pytest.mark.parametrize(
    "entry",
    [
        measurement(samples=(1.0, 2.0), predicted=3.0, claims=("C02",), versions={"torch": "2.13"}),
        measurement(size="batch 64", dtype="bfloat16", items=64.0),
        measurement(),
        Prediction("00.3", "all threads", 2.0, "s", "2026-01-01", blind=False),
        VERDICT,
        Attempt("10.6", "10.6b", "hint", "2026-01-01", step=2),
        Attempt("03.2", "03.2", "not yet", "2026-01-01", "1f2e3d4c", message="3 is not 4."),
    ],
)
def test_an_entry_survives_its_line(entry):
    line = results.to_line(entry)
    assert "\n" not in line
    assert results.from_line(line) == entry


def test_results_come_back_in_order(tmp_path):
    results = Results(tmp_path / "deep" / "results.jsonl")
    for what, value in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("a", 4.0)):
        results.append(measurement(what, value=value))
    assert [(e.what, e.value) for e in results.entries()] == [("b", 2.0), ("c", 3.0), ("a", 4.0)]
    assert results.note == ""


def test_a_missing_file_is_empty(tmp_path):
    assert Results(tmp_path / "none.jsonl").entries() == []


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b'{"kind": "measurement", "value": 1', "Expected a line of JSON, got"),
        (b'{"kind": "guess"}', "Written by a newer labkit (kind 'guess'), and kept in the file."),
        (b'{"kind": 5}', "Expected a JSON object with a kind out of measurement, prediction, verdict, attempt, got"),
        (b'{"kind": "measurement", "wat": 1}', "Expected the fields of a measurement ("),
        (b"[1, 2]", "verdict, attempt, got [1, 2]"),
        (b"null", "Expected a JSON object with a kind out of measurement, prediction, verdict, attempt, got null"),
        (b'{"kind": ["verdict"]}', "Expected a JSON object with a kind"),
        (b"[" * 100_000, "Expected a line of JSON"),
        (changed(section=5), "Expected section to be text such as '00.3', got 5"),
        (changed(section=None), "Expected section to be text such as '00.3', got None"),
        (changed(section=[]), "Expected section to be text such as '00.3', got []"),
        (changed(section="first"), "text such as '00.3', got 'first'. It is notebook.section."),
        (changed(unit=5), "Expected unit to be text such as 'images/s', got 5"),
        (changed(unit=""), "Expected unit to be text such as 'images/s', got ''"),
        (changed(value=-1), "Expected value to be a finite number of at least 0, got -1"),
        (changed(value=float("nan")), "Expected value to be a finite number of at least 0, got nan"),
        (changed(value="3"), "Expected value to be a finite number of at least 0, got '3'"),
        (changed(measurement(), size=64), "Expected size to be text, got 64"),
        (changed(measurement(), items="64"), "Expected items to be a finite number or None, got '64'"),
        (changed(blind="no"), "Expected blind to be True or False, got 'no'"),
        (changed(VERDICT, because=5), "Expected because to be text, got 5"),
        (changed(VERDICT, verdict="maybe"), "Expected verdict to be one of 'holds', 'holds when'"),
        (b"\xff\xfe", "invalid start byte"),
        (
            b'{"kind": "prediction", "section": "00.3", "what": "x", "value": "many", "unit": "s", "when": ""}',
            "Expected value to be a finite number of at least 0, got 'many'",
        ),
    ],
)
def test_a_damaged_line_is_reported_with_its_number_skipped_and_kept(tmp_path, damaged, why):
    path = tmp_path / "results.jsonl"
    results = Results(path)
    results.append(measurement("a", value=1.0))
    with open(path, "ab") as file:
        file.write(damaged + b"\n")
    results.append(measurement("b", value=2.0))
    assert [e.value for e in results.entries()] == [1.0, 2.0]
    (sentence,) = results.damaged()
    assert "line 2 is skipped" in sentence
    assert why in sentence
    assert damaged in path.read_bytes()


def test_what_cannot_be_written_stays_in_memory_says_so_and_is_written_when_it_can_be(tmp_path):
    file_in_the_way = tmp_path / "state"
    file_in_the_way.write_text("not a folder")
    results = Results(file_in_the_way / "results.jsonl")
    for what in "abc":
        results.append(measurement(what))
    assert [e.what for e in results.entries()] == ["a", "b", "c"]
    assert "stay in memory" in results.note
    assert "LABKIT_HOME" in results.note
    file_in_the_way.unlink()
    results.append(measurement("d"))
    assert results.note == ""
    assert [json.loads(line)["what"] for line in results.path.read_text().splitlines()] == ["a", "b", "c", "d"]
    assert [e.what for e in results.entries()] == ["a", "b", "c", "d"]


def test_a_full_disk_costs_nothing_that_was_written_before_or_comes_after(tmp_path):
    path = tmp_path / "results.jsonl"
    code = (
        "import resource, sys; from pathlib import Path; from labkit.core.results import *\n"
        "log, most = Results(Path(sys.argv[1])), resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "def guess(n): log.append(Prediction('00.1', str(n), n, 's', ''))\n"
        "guess(1)\n"
        "before = log.path.read_bytes()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 30, most[1]))\n"
        "guess(2); guess(3)\n"
        "assert log.path.read_bytes() == before, 'half a line is left'\n"
        "assert 'stay in memory' in log.note and [e.value for e in log.entries()] == [1, 2, 3]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, most)\n"
        "guess(4)\n"
        "assert not log.note and [e.value for e in log.entries()] == [1, 2, 3, 4]\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    entries, damaged = results.read(path)
    assert ([e.value for e in entries], damaged) == ([1, 2, 3, 4], [])


def test_lines_of_a_newer_labkit_are_one_sentence_and_its_new_fields_are_passed_over(tmp_path):
    path = tmp_path / "results.jsonl"
    newer = b'{"kind": "exercise", "section": "00.3"}\n' * 3000
    path.write_bytes(newer + changed(color="blue") + b"\n")
    entries, sentences = results.read(path)
    assert entries == [GUESS]
    assert sentences == [
        "results.jsonl, 3,000 lines are skipped, the first is line 1: "
        "Written by a newer labkit (kind 'exercise'), and kept in the file."
    ]


@pytest.mark.slow
def test_memory_follows_what_was_measured_and_not_how_often(tmp_path):
    path = tmp_path / "results.jsonl"
    line = results.to_line(measurement(samples=tuple(float(n) for n in range(20)))) + "\n"
    path.write_text(line)
    Results(path).entries()  # what is read once for all files is no file's memory
    path.write_text(line * 10_000)
    tracemalloc.start()
    entries = Results(path).entries()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(entries) == 1
    assert peak < path.stat().st_size / 2


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may give files to another user")
def test_users_who_share_a_folder_do_not_share_results(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "class"))
    results.results().append(measurement(value=1.0))
    mine = results.results().path
    assert mine.stat().st_mode & 0o777 == 0o600
    assert mine.parent.stat().st_mode & 0o777 == 0o700
    os.chown(mine.parent, 12345, 12345)  # now it is as another user would find it
    other = results.results()
    assert other.path == tmp_path / "class" / "user-0" / "results.jsonl"
    assert other.entries() == []
    other.append(measurement(value=2.0))
    assert len(mine.read_text().splitlines()) == 1
    os.chown(other.path, 12345, 12345)  # left by sudo, or put there by another
    assert Results(other.path).entries() == []
    other.append(measurement(value=3.0))
    assert "another user owns it" in other.note
    assert [e.value for e in other.entries()] == [3.0]


def test_a_folder_that_everybody_may_write_to_is_divided(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    tmp_path.chmod(0o1777)
    assert results.state_folder() == tmp_path / f"user-{os.geteuid()}"
    assert cache_folder() == tmp_path / f"user-{os.geteuid()}" / "cache"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_too(tmp_path):
    tmp_path.chmod(0o500)
    results = Results(tmp_path / "results.jsonl")
    results.append(measurement())
    assert results.note


def test_several_processes_append_whole_lines(tmp_path):
    path = tmp_path / "results.jsonl"
    code = (
        "import sys; from pathlib import Path; from labkit.core.results import *\n"
        "for i in range(1, 201):\n"
        "    Results(Path(sys.argv[1])).append(Prediction('00.1', 'x' * 500 + str(i), i, 's' + sys.argv[2], ''))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)]) for n in range(4)]
    assert [w.wait(timeout=60) for w in writers] == [0] * 4
    entries, damaged = results.read(path)
    assert damaged == []
    for n in range(4):
        assert [e.value for e in entries if e.unit == f"s{n}"] == list(range(1, 201))


def test_the_state_folder_follows_labkit_home(home):
    assert results.state_folder() == home
    assert results.results().path == home / "results.jsonl"


def test_the_state_folder_knows_the_home_sign(monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", "~/x")
    assert results.state_folder() == Path.home() / "x"


def test_what_could_not_be_read_again_is_not_appended(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    with pytest.raises(BadMeasurement, match="Expected origin to be one of 'measured'"):
        results.append(measurement(origin=None))
    assert not results.path.exists()


def test_keys():
    assert results.split_key("00.3 all threads") == ("00.3", "all threads")
    assert results.split_key(" 00.3  all threads ") == ("00.3", "all threads")
    for bad in ("all threads", "0.3 x", "00.3", "", None, 5):
        with pytest.raises(BadMeasurement, match=r"00\.3 all threads"):
            results.split_key(bad)


def test_recorded_runs_are_marked_as_recorded_and_simulated_stays_simulated(tmp_path):
    runs = [
        measurement(value=1.0, machine="big"),
        measurement(value=2.0, machine="big"),
        measurement("fake", origin="simulated"),
    ]
    (tmp_path / "big.jsonl").write_text("".join(results.to_line(e) + "\n" for e in runs))
    (last,) = comparable.recorded("00.3 all threads", tmp_path)
    assert (last.value, last.origin, last.machine) == (2.0, "recorded", "big")
    assert comparable.recorded("00.3 fake", tmp_path)[0].origin == "simulated"
    assert comparable.recorded("00.3 nothing", tmp_path) == []
    assert "recorded on big" in str(last)


def test_a_machine_has_a_recorded_number_for_each_kind_of_work(tmp_path):
    small, large = {"size": "batch 64", "dtype": "float32"}, {"size": "batch 256", "dtype": "float32"}
    runs = [measurement(value=1.0, **small), measurement(value=2.0, **large), measurement(value=3.0, **small)]
    runs += [measurement(value=4.0, **small | {"dtype": "bfloat16"}), measurement(value=5.0, unit="x")]
    (tmp_path / "big.jsonl").write_text("".join(results.to_line(e) + "\n" for e in runs))
    assert sorted(m.value for m in comparable.recorded("00.3 all threads", tmp_path)) == [2.0, 3.0, 4.0, 5.0]


def test_a_line_from_before_sizes_were_kept_is_of_unknown_size():
    line = '{"kind": "measurement", "section": "00.2", "what": "one thread", "value": 1.0, "unit": "s", '
    old = results.from_line(line + '"origin": "measured", "machine": "m", "when": "2026-01-01"}')
    assert (old.size, old.dtype, old.items) == ("", "", None)
    assert set(json.loads(results.to_line(old))) == set(json.loads(results.to_line(measurement())))


def test_a_number_says_what_it_measured():
    assert str(measurement()) == "all threads: 1.50 s (measured)"
    assert str(measurement(size="batch 64", dtype="float32")) == "all threads: 1.50 s (measured; batch 64; float32)"


def test_the_runs_that_ship_are_readable_and_measured_at_full_size():
    for path in RECORDED.glob("*.jsonl"):
        entries, damaged = results.read(path)
        assert damaged == []
        assert entries
        for entry in entries:
            assert not isinstance(entry, Prediction)
            assert entry.machine
            if isinstance(entry, Measurement):
                assert entry.profile == "full"
                assert entry.versions["torch"]


def test_lines_are_plain_json_without_empty_fields():
    fields = json.loads(results.to_line(measurement()))
    assert "predicted" not in fields
    assert fields["kind"] == "measurement"
    assert set(fields) <= {"kind", *(f.name for f in dataclasses.fields(Measurement))}


def test_a_recorded_number_of_no_items_is_told_apart_from_one_of_some():
    there = Measurement("00.1", "x", 5.0, "s", "measured", "m", "2026", size="n", items=0.0)
    assert "0 items a call" in difference(there, Work("s", "n", items=5.0, profile=there.profile))
