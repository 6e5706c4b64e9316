"""A run that somebody sends names no person, and is taken only if its form, its physics
and its sizes hold.
"""

import dataclasses
import json
import re

import pytest

from gpufacts import find
from labkit.core import results
from labkit.core.comparable import recorded
from labkit.core.paths import RECORDED, ROOT
from labkit.core.results import Attempt, Measurement, Prediction, Verdict
from labkit.lesson import notebook_files
from labkit.measure.machine import Gpu, Machine
from scripts import run_faults, sent_run

pytestmark = pytest.mark.slow  # every notebook is read
T4 = find("T4")
WHEN = "2026-11-20T13:14:15+00:00"
VERSIONS = {
    "python": "3.12.3",
    "torch": "2.11.0+cu128",
    "cuda": "12.8",
    "driver": "570.86.15",
}
GIB = 2**30


def number(section, what, value, unit, **fields):
    """A made-up number of a made-up T4."""
    usual = {"samples": (value,), "dtype": "float32", "versions": VERSIONS}
    return Measurement(
        section, what, value, unit, "measured", "Tesla T4", WHEN, **usual | fields
    )


# Each at half of what a T4's data sheet allows.
COPY = number(
    "01.2",
    "copy",
    T4.bandwidth_bytes_per_s / 2,
    "B/s",
    size="536,870,912 numbers",
    items=4.0 * GIB,
)
SHARE = number("00.6", "share of the limit", 40.0, "%", samples=())
SQUARE = number(
    "01.3",
    "matmul, n = 8192",
    T4.peaks["float32"] / 2,
    "FLOP/s",
    size="n FLOP",
    items=2.0 * 8192**3,
)
MATMUL = number(
    "04.6", "blocked", 4 * 4096**3 / T4.peaks["float32"], "s", size="4,096 x 4,096"
)
TURNED = number(
    "04.3", "tiled", 16 * 8192**2 / T4.bandwidth_bytes_per_s, "s", size="8,192 x 8,192"
)
RATIO = number(
    "09.6", "float16 against float32", 2.0, "x", samples=(), low=1.8, high=2.2
)
VERDICT = Verdict("C05", "holds", "2.0x in mixed float16", "09.6", "Tesla T4", WHEN)
WHOLE = (COPY, SHARE, SQUARE, TURNED, MATMUL, RATIO, VERDICT)


@pytest.fixture
def sent(tmp_path):
    """Write entries, or text, into a file; its path."""

    def write(*entries, name="run.jsonl"):
        path = tmp_path / name
        texts = [
            entry if isinstance(entry, str) else results.to_line(entry)
            for entry in entries
        ]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return path

    return write


def test_a_run_is_packed_checked_and_taken_and_boards_find_it(sent, tmp_path, capsys):
    assert (
        sent_run.main(
            ["pack", str(sent(*WHOLE)), "-o", str(tmp_path / "out" / "t4.jsonl")]
        )
        == 0
    )
    assert sent_run.main(["check", str(tmp_path / "out" / "t4.jsonl")]) == 0
    folder = tmp_path / "recorded"
    folder.mkdir()
    assert sent_run.take(tmp_path / "out" / "t4.jsonl", folder=folder) == 0
    assert (
        "Tesla T4: 7 lines, all plausible.\n4 numbers can stand on a board"
        in capsys.readouterr().out
    )
    (found,) = recorded("04.6 blocked", folder)
    assert (found.origin, found.machine, found.value) == (
        "recorded",
        "Tesla T4",
        MATMUL.value,
    )
    assert [path.name for path in folder.iterdir()] == ["tesla-t4.jsonl"]

    assert sent_run.take(tmp_path / "out" / "t4.jsonl", folder=folder) == 0
    assert "there is nothing to do" in capsys.readouterr().out


def test_another_run_of_the_same_gpu_takes_its_place_only_when_asked(
    sent, tmp_path, capsys
):
    folder = tmp_path / "recorded"
    folder.mkdir()
    assert sent_run.take(sent(*WHOLE), folder=folder) == 0
    (target,) = folder.iterdir()
    before = target.read_text(encoding="utf-8")
    other = sent(COPY, name="other.jsonl")
    assert sent_run.take(other, folder=folder) == 1
    assert "already, with 7 lines" in capsys.readouterr().out
    assert target.read_text(encoding="utf-8") == before
    assert sent_run.take(other, folder=folder, replace=True) == 0
    assert len(target.read_text(encoding="utf-8").splitlines()) == 1


def test_notebooks_that_could_not_be_recorded_are_named(sent, capsys):
    assert sent_run.main(["check", str(sent(*WHOLE))]) == 0
    (said,) = re.findall("nothing of the notebooks (.*)\\.", capsys.readouterr().out)
    numbers = {path.name[:2] for path in notebook_files.paths()}
    # the puzzles of 23 measure nothing
    assert set(said.split(", ")) == numbers - {"00", "01", "04", "09", "23"}
    whole = [dataclasses.replace(COPY, section=f"{number}.1") for number in numbers]
    assert sent_run.missing(run_faults.Run(tuple(whole))) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\x89PNG\r\n\x1a\n" * 90, b'[\n {\n  "kind": "measurement"\n }\n]'],
)
def test_a_file_that_is_no_run_is_refused_in_two_lines(tmp_path, capsys, content):
    path = tmp_path / "wrong"
    path.write_bytes(content)
    assert sent_run.main(["check", str(path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert "no line of this file is one of a recorded run" in said[1]


def test_a_byte_order_mark_is_no_fault(sent):
    path = sent(*WHOLE)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert run_faults.read(path).faults == ()


def test_a_number_that_is_there_twice_is_refused(sent):
    later = dataclasses.replace(MATMUL, value=2 * MATMUL.value, samples=())
    for entry in (MATMUL, later, VERDICT):
        (fault,) = run_faults.read(sent(*WHOLE, entry)).faults
        assert re.fullmatch(r"Line 8: it is about the same as line \d\.", fault)


def test_half_a_file_is_refused_by_the_line_in_which_it_ends(sent, tmp_path, capsys):
    path = sent(*WHOLE)
    path.write_bytes(path.read_bytes()[:-40])
    assert sent_run.take(path, folder=tmp_path) == 1
    assert "Line 7: Expected a line of JSON" in capsys.readouterr().out


def test_who_packs_a_run_that_is_refused_learns_where_the_file_is(
    sent, tmp_path, capsys
):
    unknown = dataclasses.replace(COPY, machine="NVIDIA GeForce GTX 9999")
    assert sent_run.pack(sent(unknown), tmp_path / "out.jsonl", "") == 1
    said = capsys.readouterr().out
    assert f"The file is {tmp_path / 'out.jsonl'}." in said
    assert "add a GPU that is unknown" in said


def test_what_is_packed_holds_no_guess_no_hour_and_no_name(sent, monkeypatch):
    monkeypatch.setattr(run_faults.socket, "gethostname", lambda: "workhorse")
    monkeypatch.setattr(run_faults.getpass, "getuser", lambda: "marlene")
    guessed = dataclasses.replace(
        COPY, predicted=1e9, versions=VERSIONS | {"kernel": "6.1-marlene"}
    )
    text, left_out = sent_run.packed(
        sent(
            guessed,
            dataclasses.replace(
                SHARE, busy="this GPU was shared: others use it (PID 77)"
            ),
            dataclasses.replace(VERDICT, because="read /home/marlene/data/a.bin"),
            dataclasses.replace(VERDICT, because="as workhorse said"),
            dataclasses.replace(VERDICT, because="asked marlene"),
            Prediction("01.2", "copy", 1e9, "B/s", WHEN),
            Attempt("01.2", "01.2", "passed", WHEN, answer="x"),
            "{",
        )
    )
    (line,) = text.splitlines()
    assert json.loads(line)["when"] == "2026-11-20T00:00:00+00:00"
    assert "predicted" not in line
    assert "marlene" not in text
    reasons = (
        "busy machine: 1",
        "a path: 1",
        "this computer: 1",
        "its user: 1",
        "guesses or answers: 2",
        "damaged: 1",
    )
    assert all(
        any(f"{reason}." in sentence for sentence in left_out) for reason in reasons
    )


def test_what_was_measured_again_is_packed_as_it_was_the_last_time(sent):
    later = dataclasses.replace(SHARE, value=50.0, when="2026-11-21T13:14:15+00:00")
    text, left_out = sent_run.packed(sent(SHARE, COPY, later))
    assert [json.loads(line)["value"] for line in text.splitlines()] == [
        COPY.value,
        50.0,
    ]
    assert left_out == ["Left out: lines that were replaced by later ones: 1."]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            dataclasses.replace(COPY, value=1.3 * 320e9, samples=()),
            "beyond the peak of T4",
        ),
        (
            dataclasses.replace(MATMUL, value=MATMUL.value / 3, samples=()),
            "less than T4 takes at its peak",
        ),
        (
            dataclasses.replace(TURNED, value=TURNED.value / 3, samples=()),
            "less than T4 takes at its peak",
        ),
        (dataclasses.replace(MATMUL, value=MATMUL.value * 2), "its samples' median is"),
        (
            dataclasses.replace(RATIO, value=3.0),
            "outside of its own interval, 1.8 to 2.2",
        ),
        (dataclasses.replace(MATMUL, size=""), "its size is missing"),
        (
            dataclasses.replace(MATMUL, section="77.1"),
            "the notebooks have no section 77.1",
        ),
        (dataclasses.replace(COPY, busy="this machine was busy"), "Record again"),
        (
            dataclasses.replace(COPY, machine="Tesla P4"),
            "Expected one machine, got Tesla P4, Tesla T4",
        ),
        (dataclasses.replace(COPY, profile="ci"), "those of LABKIT_PROFILE=ci"),
        (
            dataclasses.replace(VERDICT, because=r"from C:\Users\me\x"),
            "it holds a path",
        ),
        (Prediction("01.2", "copy", 1e9, "B/s", WHEN), "a guess or an answer"),
        ("{", "Expected a line of JSON"),
        (
            results.to_line(COPY)[:-1] + ', "host": "a"}',
            "fields that a recorded run does not have: host",
        ),
    ],
)
def test_a_fault_is_named_and_the_run_is_not_taken(
    sent, tmp_path, capsys, changed, words
):
    path = sent(*WHOLE, changed)
    assert sent_run.take(path, folder=tmp_path) == 1
    said = capsys.readouterr().out
    assert words in said
    assert "It can't be taken." in said
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_machine_that_nothing_is_known_of_is_refused(sent):
    for name, words in {
        "rehearsal of Tesla T4": "Its machine is a rehearsal's",
        "NVIDIA GeForce RTX 3070 Laptop GPU": "What this GPU can do at most is unknown",
    }.items():
        faults = run_faults.read(sent(dataclasses.replace(COPY, machine=name))).faults
        assert any(words in fault for fault in faults)


def test_a_card_of_two_builds_is_named_by_its_row(sent):
    path = sent(dataclasses.replace(COPY, machine="NVIDIA GeForce RTX 3060"))
    assert run_faults.read(path).faults
    assert run_faults.read(path, "GeForce RTX 3060 12GB").faults == ()


def test_a_run_in_which_nothing_was_measured_is_refused(sent):
    assert run_faults.read(sent(VERDICT)).faults == ("No number in it was measured.",)
    assert (
        "There is no file" in run_faults.read(sent(VERDICT).parent / "none").faults[0]
    )


def test_work_that_stays_in_the_cache_is_not_judged_by_the_memory(sent):
    small = dataclasses.replace(
        COPY,
        value=2 * COPY.value * 3,
        samples=(),
        items=1.0 * T4.l2_bytes,
        size="small",
    )
    assert run_faults.read(sent(small)).faults == ()


def test_the_recorded_run_that_has_sizes_is_one_that_could_be_sent(tmp_path, capsys):
    for path in RECORDED.glob("intel*.jsonl"):
        assert sent_run.pack(path, tmp_path / "run.jsonl", "") == 0
    assert "The file to send is" in capsys.readouterr().out


def test_a_run_is_filed_under_the_name_that_recording_gives_it():
    card = Gpu("Tesla T4", (7, 5), 15 * GIB)
    for gpus in ((), (card,), (card, card)):
        here = Machine("AMD EPYC", 2, 2, GIB, gpus=gpus)
        assert (
            run_faults.Run((dataclasses.replace(COPY, machine=here.name),)).slug
            == here.slug
        )


@pytest.mark.parametrize(
    "name", ["docs/numbers.md", "docs/teaching/setting-up.md", "Makefile"]
)
def test_commands_that_are_named_are_understood(name, monkeypatch):
    asked = []
    for command in ("pack", "take"):
        monkeypatch.setattr(
            sent_run, command, lambda *given, **_: asked.append(given) or 0
        )
    monkeypatch.setattr(sent_run, "tell", lambda run: 0)
    found = re.findall(
        r"-m scripts\.sent_run((?: [\w./-]+)+)",
        (ROOT / name).read_text(encoding="utf-8"),
    )
    assert found
    assert all(sent_run.main(words.split()) == 0 for words in found)


def test_without_a_run_there_is_nothing_to_send(tmp_path, capsys):
    assert sent_run.main(["pack", str(tmp_path / "none.jsonl")]) == 1
    assert "python -m teaching record" in capsys.readouterr().out
