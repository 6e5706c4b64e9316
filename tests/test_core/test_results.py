import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.core import comparable, results
from labkit.core.errors import BadMeasurement
from labkit.core.paths import RECORDED
from labkit.core.results import Attempt, Measurement, Prediction, Results, Verdict
from labkit.train.data.build_cache import cache_folder


def measurement(what="all threads", value=1.5, **other):
    fields = {
        "section": "00.3",
        "unit": "s",
        "origin": "measured",
        "machine": "m",
        # no clock's: workers that collect at different times must name tests alike
        "when": "2026-01-01",
        **other,
    }
    return Measurement(what=what, value=value, **fields)


GUESS = Prediction("00.3", "all threads", 2.0, "s", "2026-01-01")
VERDICT = Verdict("C02", "does not hold", "because", "00.4", "m", "2026-01-01")


def changed(entry=GUESS, **fields):
    """The line of an entry with some fields replaced."""
    return json.dumps(json.loads(results.to_line(entry)) | fields).encode()


@pytest.mark.parametrize(
    "entry",
    [
        measurement(
            samples=(1.0, 2.0),
            predicted=3.0,
            claims=("C02",),
            versions={"torch": "2.13"},
        ),
        measurement(size="batch 64", dtype="bfloat16", items=64.0),
        Prediction("00.3", "all threads", 2.0, "s", "2026-01-01", blind=False),
        VERDICT,
        Attempt("10.6", "10.6b", "hint", "2026-01-01", step=2),
        Attempt(
            "03.2", "03.2", "not yet", "2026-01-01", "1f2e3d4c", message="3 is not 4."
        ),
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
    assert [(e.what, e.value) for e in results.entries()] == [
        ("b", 2.0),
        ("c", 3.0),
        ("a", 4.0),
    ]
    assert results.note == ""


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b'{"kind": "measurement", "value": 1', "Expected a line of JSON, got"),
        (
            b'{"kind": "guess"}',
            "Written by a newer labkit (kind 'guess'), and kept in the file.",
        ),
        (
            b'{"kind": "measurement", "wat": 1}',
            "Expected the fields of a measurement (",
        ),
        (
            b"null",
            (
                "Expected a JSON object with a kind out of measurement, prediction,"
                " verdict, attempt, best, got null"
            ),
        ),
        (b"[" * 100_000, "Expected a line of JSON"),
        (changed(section=5), "Expected section to be text such as '00.3', got 5"),
        (
            changed(section="first"),
            "text such as '00.3', got 'first'. It is notebook.section.",
        ),
        (changed(unit=""), "Expected unit to be text such as 'images/s', got ''"),
        (
            changed(value=-1),
            "Expected value to be a finite number of at least 0, got -1",
        ),
        (
            changed(value=float("nan")),
            "Expected value to be a finite number of at least 0, got nan",
        ),
        (
            changed(measurement(), items="64"),
            "Expected items to be a finite number or None, got '64'",
        ),
        (changed(blind="no"), "Expected blind to be True or False, got 'no'"),
        (
            changed(VERDICT, verdict="maybe"),
            "Expected verdict to be one of 'holds', 'holds when'",
        ),
        (b"\xff\xfe", "invalid start byte"),
    ],
)
def test_a_damaged_line_is_reported_with_its_number_skipped_and_kept(
    tmp_path, damaged, why
):
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


def test_what_cannot_be_written_stays_in_memory_says_so_and_is_written_when_it_can_be(
    tmp_path,
):
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
    assert [
        json.loads(line)["what"] for line in results.path.read_text().splitlines()
    ] == ["a", "b", "c", "d"]
    assert [e.what for e in results.entries()] == ["a", "b", "c", "d"]


@pytest.mark.slow
def test_a_full_disk_costs_nothing_that_was_written_before_or_comes_after(tmp_path):
    path = tmp_path / "results.jsonl"
    code = (
        "import resource, sys; from pathlib import Path; from labkit.core.results"
        " import *\nlog, most = Results(Path(sys.argv[1])),"
        " resource.getrlimit(resource.RLIMIT_FSIZE)\ndef guess(n):"
        " log.append(Prediction('00.1', str(n), n, 's', ''))\nguess(1)\nbefore ="
        " log.path.read_bytes()\nresource.setrlimit(resource.RLIMIT_FSIZE, (len(before)"
        " + 30, most[1]))\nguess(2); guess(3)\nassert log.path.read_bytes() == before,"
        " 'half a line is left'\nassert 'stay in memory' in log.note and [e.value for e"
        " in log.entries()] == [1, 2, 3]\nresource.setrlimit(resource.RLIMIT_FSIZE,"
        " most)\nguess(4)\nassert not log.note and [e.value for e in log.entries()] =="
        " [1, 2, 3, 4]\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    entries, damaged = results.read(path)
    assert ([e.value for e in entries], damaged) == ([1, 2, 3, 4], [])


def test_lines_of_a_newer_labkit_are_one_sentence_and_its_new_fields_are_passed_over(
    tmp_path,
):
    path = tmp_path / "results.jsonl"
    newer = b'{"kind": "exercise", "section": "00.3"}\n' * 3000
    path.write_bytes(newer + changed(color="blue") + b"\n")
    entries, sentences = results.read(path)
    assert entries == [GUESS]
    assert sentences == [
        "results.jsonl, 3,000 lines are skipped, the first is line 1: "
        "Written by a newer labkit (kind 'exercise'), and kept in the file."
    ]


def test_a_folder_that_everybody_may_write_to_is_divided(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    tmp_path.chmod(0o1777)
    assert results.state_folder() == tmp_path / f"user-{os.geteuid()}"
    assert cache_folder() == tmp_path / f"user-{os.geteuid()}" / "cache"


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
    (tmp_path / "big.jsonl").write_text(
        "".join(results.to_line(e) + "\n" for e in runs)
    )
    (last,) = comparable.recorded("00.3 all threads", tmp_path)
    assert (last.value, last.origin, last.machine) == (2.0, "recorded", "big")
    assert comparable.recorded("00.3 fake", tmp_path)[0].origin == "simulated"
    assert comparable.recorded("00.3 nothing", tmp_path) == []
    assert "recorded on big" in str(last)


def test_a_line_from_before_sizes_were_kept_is_of_unknown_size():
    line = (
        '{"kind": "measurement", "section": "00.2", "what": "one thread", "value": 1.0,'
        ' "unit": "s", '
    )
    old = results.from_line(
        line + '"origin": "measured", "machine": "m", "when": "2026-01-01"}'
    )
    assert (old.size, old.dtype, old.items) == ("", "", None)
    assert set(json.loads(results.to_line(old))) == set(
        json.loads(results.to_line(measurement()))
    )


@pytest.mark.slow
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
