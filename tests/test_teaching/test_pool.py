"""The page about a class: what is in it, what is left out of it, and that it names nobody unless asked."""

import dataclasses
import re

import pytest

from labkit.core.errors import DataError
from labkit.core.paths import RECORDED
from labkit.core.results import Attempt, Measurement, Prediction, Verdict, now, to_line
from teaching import __main__ as commands, class_files, pool

NAMES = ("Ada Adams", "Bob Brown", "Cyd Clark")


def measured(value, machine="a laptop", **more):
    fields = {"samples": (value,) * 8, "size": "batch 64", "dtype": "float32", "items": 64.0, **more}
    return Measurement("00.3", "all threads", value, "images/s", "measured", machine, now(), **fields)


def guess(value, **more):
    return Prediction("00.3", "all threads", value, "images/s", now(), **more)


def step(state, **more):
    return Attempt("00.1", "00.1", state, now(), **more)


def write(path, *entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(to_line(entry) + "\n" for entry in entries), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """Three readers on two machines."""
    verdict = Verdict("C05", "holds", "because of Ada", "00.3", "a laptop", now())
    other = dataclasses.replace(verdict, verdict="does not hold", machine="a server")
    tried = [step("not yet", answer="1"), step("not yet", answer="2")]
    write(tmp_path / "class" / "Ada Adams.jsonl", guess(1000.0), measured(3000.0), verdict, *tried)
    write(tmp_path / "class" / "Bob Brown.jsonl", guess(5000.0), measured(4000.0), verdict, *tried, step("passed"))
    write(
        tmp_path / "class" / "Cyd Clark.jsonl", guess(9000.0), measured(9000.0, "a server"), other, step("hint", step=1)
    )
    return tmp_path / "class"


def page_of(paths, target, **options):
    skipped = pool.write_page(paths, target, **options)
    return target.read_text(encoding="utf-8"), skipped


def words_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_a_page_has_guesses_results_claims_and_exercises(folder, tmp_path):
    page, skipped = page_of([folder], tmp_path / "pool.html")
    assert skipped == []
    told = words_of(page)
    assert "3 guesses, 1,000 images/s to 9,000 images/s, middle 5,000 images/s; 3 measured, 3,000 images/s" in told
    assert "rates 3 2 (67%) 1.0x too few to tell" in told
    assert "a laptop 2 3,500 images/s 3,000 images/s to 4,000 images/s" in told
    assert "a server 1 9,000 images/s 9,000 images/s to 9,000 images/s" in told
    assert re.search(r"claim a laptop a server C05 [^<]*? holds \(2\) does not hold", told)
    assert "00.1 1 2 1 2 0 0 The class is stuck at those at the top." in told
    assert page.count("<img ") == page.count('alt="3 guesses') == 1
    assert "://" not in page


@pytest.mark.parametrize(
    "change", [{"size": "batch 32"}, {"dtype": "float16"}, {"profile": "ci"}, {"busy": "busy"}, {"size": ""}]
)
def test_what_is_not_comparable_stands_in_no_table_with_another(change, tmp_path):
    write(tmp_path / "a.jsonl", measured(3000.0))
    write(tmp_path / "b.jsonl", measured(9000.0, "a server", **change))
    told = words_of(page_of([tmp_path], tmp_path / "pool.html")[0])
    assert "a server" not in told
    assert "a laptop" not in told


def test_a_ratio_is_shown_with_its_interval_and_without_a_difference_where_that_holds_one(tmp_path):
    ratio = {"unit": "x", "samples": (), "items": None}
    for number, (machine, low, high) in enumerate([("a laptop", 1.6, 2.5), ("a server", 0.9, 1.2)]):
        number_of = dataclasses.replace(measured(2.0 - number, machine), **ratio, low=low, high=high)
        write(tmp_path / f"{number}.jsonl", number_of)
    told = words_of(page_of([tmp_path], tmp_path / "pool.html")[0])
    assert "a laptop 1 2.00 x 2.00 x (95 % interval 1.60 to 2.50)" in told
    assert "a server 1 1.00 x no difference seen (1.00 x, 95 % interval 0.900 to 1.20)" in told


def test_nobody_is_named_unless_names_are_asked_for(folder, tmp_path):
    with open(folder / "Ada Adams.jsonl", "a") as file:
        file.write("Ada Adams wrote this\n")
    page, skipped = page_of([folder, tmp_path / "gone"], tmp_path / "pool.html")
    assert [name for name in (*NAMES, "Adams", "because", str(tmp_path), "gone") if name in page] == []
    assert "p1, p2, p3" in page
    assert "2 files or groups of lines are left out" in page
    assert any("Ada Adams.jsonl, line 6 is skipped" in sentence for sentence in skipped)
    assert "Ada Adams" in page_of([folder], tmp_path / "pool.html", names=True)[0]


def test_the_order_does_not_follow_the_names(tmp_path):
    for i in range(20):
        write(tmp_path / f"{i:02}.jsonl", guess(1.0 + i))
    readers, _ = pool.read_class([tmp_path])
    assert [reader.name for reader in readers] == [f"p{i}" for i in range(1, 21)]
    assert [reader.path.stem for reader in readers] != sorted(reader.path.stem for reader in readers)
    named, _ = pool.read_class([tmp_path], names=True)
    assert {reader.name for reader in named} == {f"{i:02}" for i in range(20)}


def test_an_older_copy_of_a_file_counts_once(tmp_path):
    write(tmp_path / "monday" / "results.jsonl", guess(1.0))
    write(tmp_path / "friday" / "results.jsonl", guess(1.0), measured(2.0))
    write(tmp_path / "twin" / "results.jsonl", measured(2.0), guess(1.0))
    readers, skipped = pool.read_class([tmp_path], names=True)
    assert [reader.name for reader in readers] == ["friday/results"]
    assert len(skipped) == 2
    assert all("all of it is in" in sentence for sentence in skipped)


def test_whatever_is_no_results_file_is_skipped_and_named(folder, tmp_path, monkeypatch):
    (folder / "empty.jsonl").write_text("")
    (folder / "foreign.jsonl").write_text('{"a": 1}\n[]\nnull\n')
    (folder / "binary.jsonl").write_bytes(bytes(range(256)) * 100)
    (folder / "large.jsonl").write_bytes(b"x" * 50_000)
    (folder / "folder.jsonl").mkdir()
    monkeypatch.setattr(class_files, "_MOST_BYTES", 40_000)
    readers, skipped = pool.read_class([folder])
    assert len(readers) == 3
    for name in ("empty", "foreign", "binary", "large", "folder"):
        assert any(f"{name}.jsonl is skipped" in sentence for sentence in skipped), name


def test_extreme_numbers_do_not_break_a_figure(tmp_path):
    for i, value in enumerate((1e-300, 1e-9, 1e29, 1e300)):
        path = tmp_path / f"{i}.jsonl"
        write(path, guess(9.0), measured(-9.0), dataclasses.replace(measured(0.0), what="none"))
        path.write_text(path.read_text().replace("9.0", repr(value)))  # no entry can be made of some of these
    assert "2 guesses" in words_of(page_of([tmp_path], tmp_path / "pool.html")[0])


def test_without_results_there_is_no_page(tmp_path, capsys):
    with pytest.raises(DataError, match=r"found none\. .*nowhere is skipped"):
        pool.write_page([tmp_path / "nowhere"], tmp_path / "pool.html")
    assert commands.main(["pool", str(tmp_path / "nowhere"), "-o", str(tmp_path / "pool.html")]) == 1
    assert not (tmp_path / "pool.html").exists()


def test_recorded_runs_of_the_world_make_a_page(tmp_path, capsys):
    target = tmp_path / "world.html"
    assert commands.main(["pool", *map(str, sorted(RECORDED.glob("*.jsonl"))), "-o", str(target), "--names"]) == 0
    told = words_of(target.read_text(encoding="utf-8"))
    assert "intel-xeon-2-cores" in told
    assert "C01" in told
    assert "Nobody has guessed and measured a number yet." in told
    assert "needs no network" in capsys.readouterr().out
