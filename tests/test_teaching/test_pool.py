"""The page about a class: what is in it, what is left out of it, and that it names
nobody unless asked.
"""

import dataclasses
import datetime
import random
import re

import pytest

from exercises.misconceptions import misconceptions
from labkit.core.data_table import read_table
from labkit.core.paths import EXERCISES
from labkit.core.results import (
    Attempt,
    Best,
    Measurement,
    Prediction,
    Verdict,
    now,
    to_line,
)
from labkit.lesson import exercise_files, outline
from scripts import messages
from teaching import __main__ as commands, class_page, pool

NAMES = ("Ada Adams", "Bob Brown", "Cyd Clark")


def measured(value, machine="a laptop", **more):
    fields = {
        "samples": (value,) * 8,
        "size": "batch 64",
        "dtype": "float32",
        "items": 64.0,
        **more,
    }
    return Measurement(
        "00.3", "all threads", value, "images/s", "measured", machine, now(), **fields
    )


def guess(value, **more):
    return Prediction("00.3", "all threads", value, "images/s", now(), **more)


def step(state, section="00.1", what="00.1", **more):
    return Attempt(section, what, state, now(), **more)


def best(sectors, name="23.10", par=64, size="64 x 64 numbers"):
    return Best(
        "23.10",
        name,
        {"sectors": sectors, "steps": 9},
        {"sectors": par, "steps": 9},
        now(),
        size,
    )


def write(path, *entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(to_line(entry) + "\n" for entry in entries), encoding="utf-8"
    )


@pytest.fixture
def folder(tmp_path):
    """Three readers on two machines."""
    verdict = Verdict(
        "C05", "holds", "because of Ada", "00.3", "a laptop", now(), least=1.02
    )
    other = dataclasses.replace(verdict, verdict="does not hold", machine="a server")
    tried = [step("not yet", answer="1"), step("not yet", answer="2")]
    write(
        tmp_path / "class" / "Ada Adams.jsonl",
        guess(1000.0),
        measured(3000.0),
        verdict,
        *tried,
    )
    write(
        tmp_path / "class" / "Bob Brown.jsonl",
        guess(5000.0),
        measured(4000.0),
        verdict,
        *tried,
        step("passed"),
    )
    write(
        tmp_path / "class" / "Cyd Clark.jsonl",
        guess(9000.0),
        measured(9000.0, "a server"),
        other,
        step("hint", step=1),
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
    assert "a laptop, full: 2 guesses, guess / measured 0.79 (0.33 to 1.2)" in told
    assert "a server, full: 1 guess, guess / measured 1 " in told
    assert "a laptop 2 3,500 images/s 3,000 images/s to 4,000 images/s" in told
    assert "a server 1 9,000 images/s 9,000 images/s to 9,000 images/s" in told
    assert re.search(
        r"claim a laptop a server C05 [^<]*? holds \(2\) does not hold", told
    )
    assert (
        "00.1 What is this machine? 1 of 3 passed , 1 not yet, 1 only read help" in told
    )
    assert (
        "1 unaided; 0 read the solution. Middle: 2 (0 to 3) answers, 0 (0 to 1) hints."
        in told
    )
    assert (
        "Most are at 00 How fast is this machine at training? To discuss: How far apart"
        in told
    )


def test_those_who_fail_are_counted_by_what_they_believe_and_their_words_are_not_shown(
    tmp_path,
):
    replies = dict(class_page.replies("00.3"))
    messages = [
        replies["wrong-unit"],
        replies["wrong-unit"],
        replies["upside-down"],
        "<b>rude words</b>",
    ]
    for i, message in enumerate(messages):
        write(
            tmp_path / f"{i}.jsonl",
            step(
                "not yet", what="00.3", section="00.3", answer=str(i), message=message
            ),
        )
    page = page_of([tmp_path], tmp_path / "pool.html")[0]
    told = words_of(page)
    assert "0 of 4 passed , 4 not yet" in told
    assert (
        "2: The number is in another unit, or counts other things than asked for. Say:"
        " A factor of 1,000" in told
    )
    assert (
        "1: A ratio is turned round, or its complement is given. Say: They answer"
        " opposite questions" in told
    )
    assert "1: no misconception that we know." in told
    assert "rude" not in page
    assert "To those at 00.3: A factor of 1,000" in told


def minutes_ago(minutes, entry):
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=minutes)
    return dataclasses.replace(entry, when=moment.isoformat(timespec="seconds"))


def test_who_is_stuck_stands_with_the_minutes_and_what_they_believe(tmp_path):
    message = dict(class_page.replies("00.3"))["wrong-unit"]
    wrong = step("not yet", "00.3", "00.3", message=message)
    strange = step("not yet", "01.3", "01.3", message="like no other")
    right = step("passed", "00.3", "00.3")
    # yesterday's try doesn't count
    write(tmp_path / "a.jsonl", minutes_ago(900, wrong), minutes_ago(21, wrong))
    write(tmp_path / "b.jsonl", minutes_ago(9, wrong), minutes_ago(1, wrong))
    write(tmp_path / "c.jsonl", minutes_ago(4, strange))
    write(tmp_path / "solved.jsonl", minutes_ago(30, wrong), minutes_ago(1, right))
    write(
        tmp_path / "went on.jsonl", minutes_ago(30, wrong), minutes_ago(1, step("hint"))
    )
    write(tmp_path / "gone.jsonl", minutes_ago(80, wrong))
    told = words_of(page_of([tmp_path], tmp_path / "pool.html")[0])
    stuck = told.partition("no right one yet")[2].partition("What to say next")[0]
    assert (
        "00.3 Do more threads help? 2 of 6 , for 14 min (the middle), 20 at most."
        in (stuck)
    )
    assert "2 of them: The number is in another unit" in stuck
    assert "1 of 6 , for 3 min. No misconception that we know. The first hint:" in stuck
    assert stuck.count(" of 6 ,") == 2


def test_puzzles_say_how_many_solved_them_and_the_best_beside_par_without_names(
    tmp_path,
):
    own = [[best(96), best(64)], [best(128)], [best(70, size="of another size")]]
    own.append([dataclasses.replace(best(1), counts={"bytes": 1})])
    own.append([best(20, "four stages", par=16)])
    for name, bests in zip(("Ada", "Bob", "Cyd", "Dan", "Eve"), own, strict=True):
        write(tmp_path / f"{name}.jsonl", *bests)
    page = page_of([tmp_path], tmp_path / "pool.html")[0]
    told = words_of(page)
    assert "puzzle solved by at par best par" in told
    assert "23.10 2 of 5 1 64 sectors, 9 steps 64 sectors, 9 steps" in told
    assert "23.10 four stages 1 of 5 0 20 sectors, 9 steps 16 sectors, 9 steps" in told
    assert not {"Ada", "Bob", "Cyd", "Dan", "Eve"} & set(told.split())


def test_a_reply_is_that_of_a_wrong_answer_whose_words_and_factor_it_has():
    replies = class_page.replies("00.3")
    message = dict(replies)["wrong-unit"]
    assert class_page.behind(message, replies) == "wrong-unit"
    assert class_page.behind(message.replace("0.01x", "0.03x"), replies) == ""
    assert class_page.behind("", replies) == ""
    kept = [
        ("that", "rank 1 failed, 1.33 s after the start: nothing"),
        ("other", "rank 0 failed"),
    ]
    assert (
        class_page.behind("rank 1 failed, 850 ms after the start: nothing", kept)
        == "that"
    )
    kept = [("that", "got <function f at 0x7f2e9edfc0e0>."), ("other", "rank 0 failed")]
    assert class_page.behind("got <function f at 0x55d0>.", kept) == "that"


@pytest.mark.slow
def test_the_kept_replies_are_those_of_today_s_checks(monkeypatch):
    from exercises.nb00 import check

    # which the script replaces
    monkeypatch.setattr(check, "measure_ceilings", check.measure_ceilings)
    kept = [
        (number, *row)
        for number in ("00.1", "00.3", "00.5", "00.6")
        for row in class_page.replies(number)
    ]
    assert sorted(kept) == sorted(messages.replies("00"))
    rows = read_table(EXERCISES / "messages.csv", dict)
    assert {row["exercise"] for row in rows} <= set(exercise_files.numbers())
    assert {row["misconception"] for row in rows} <= set(misconceptions())
    assert {row["exercise"][:2] for row in rows} == set(outline.outlines())


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 9, 200])
def test_the_interval_of_a_median_covers_it_in_95_of_100_draws(size):
    draw = random.Random(size)
    times = 1000
    hits = 0
    for _ in range(times):
        low, high = class_page.interval(
            [draw.lognormvariate(0, 1) for _ in range(size)]
        )
        hits += low <= 1 <= high
    assert hits / times > (0.94 if size > 5 else 1 - 2 ** (1 - size) - 0.03)


def test_minutes_are_the_class_s_own_where_somebody_worked(tmp_path):
    def at(minute, entry):
        return dataclasses.replace(
            entry, when=f"2026-11-20T{10 + minute // 60}:{minute % 60:02}:00+00:00"
        )

    for i, taken in enumerate((5, 7, 9)):
        work = [
            at(0, guess(1.0)),
            at(taken, measured(2.0)),
            at(taken + 20, step("passed")),
            at(taken + 22, step("hint")),
        ]
        write(tmp_path / f"{i}.jsonl", *work)
    told = {
        section[:4]: words
        for section, words in class_page.minutes(pool.read_class([tmp_path])[0])
    }
    three = told["00.3"]
    one = told["00.1"]
    two = told["00.2"]
    assert three == "7 (5 to 9), 3 readers"
    assert one == "2 (2 to 2), 3 readers", "the pause of 20 minutes doesn't count"
    assert re.fullmatch(r"\d+ by the formula", two)


def test_the_page_is_made_again_while_the_class_works(folder, tmp_path, monkeypatch):
    target = tmp_path / "pool.html"
    pages = []

    def sleep(seconds):
        assert seconds == 20
        pages.append(target.read_text(encoding="utf-8"))
        write(folder / "Dan Dunn.jsonl", guess(7000.0))
        if len(pages) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(pool.time, "sleep", sleep)
    assert commands.main(["pool", str(folder), "-o", str(target), "--every", "20"]) == 0
    assert ["Results of 3 readers" in pages[0], "Results of 4 readers" in pages[1]] == [
        True,
        True,
    ]
    assert '<meta http-equiv="refresh" content="20">' in pages[0]
    assert [path.name for path in tmp_path.iterdir() if "pool" in path.name] == [
        "pool.html"
    ]


@pytest.mark.parametrize(
    "change", [{"size": "batch 32"}, {"profile": "ci"}, {"busy": "busy"}, {"size": ""}]
)
def test_what_is_not_comparable_stands_in_no_table_with_another(change, tmp_path):
    write(tmp_path / "a.jsonl", measured(3000.0))
    write(tmp_path / "b.jsonl", measured(9000.0, "a server", **change))
    told = words_of(page_of([tmp_path], tmp_path / "pool.html")[0])
    assert "a server" not in told
    assert "a laptop" not in told


def test_a_ratio_is_shown_with_its_interval_and_without_a_difference_where_that_holds_one(
    tmp_path,
):
    ratio = {"unit": "x", "samples": (), "items": None}
    for number, (machine, low, high) in enumerate(
        [("a laptop", 1.6, 2.5), ("a server", 0.9, 1.2)]
    ):
        number_of = dataclasses.replace(
            measured(2.0 - number, machine), **ratio, low=low, high=high
        )
        write(tmp_path / f"{number}.jsonl", number_of)
    told = words_of(page_of([tmp_path], tmp_path / "pool.html")[0])
    assert "a laptop 1 2.00 x 2.00 x (95 % interval 1.60 to 2.50)" in told
    assert (
        "a server 1 1.00 x no difference seen (1.00 x, 95 % interval 0.900 to 1.20)"
        in told
    )


def test_nobody_is_named_unless_names_are_asked_for(folder, tmp_path):
    with open(folder / "Ada Adams.jsonl", "a") as file:
        file.write("Ada Adams wrote this\n")
    page, skipped = page_of([folder, tmp_path / "gone"], tmp_path / "pool.html")
    assert [
        name
        for name in (*NAMES, "Adams", "because", str(tmp_path), "gone")
        if name in page
    ] == []
    assert "p1, p2, p3" in page
    assert "2 files or groups of lines are left out" in page
    assert any("Ada Adams.jsonl, line 6 is skipped" in sentence for sentence in skipped)
    assert "Ada Adams" in page_of([folder], tmp_path / "pool.html", names=True)[0]


def test_the_order_does_not_follow_the_names(tmp_path):
    for i in range(20):
        write(tmp_path / f"{i:02}.jsonl", guess(1.0 + i))
    readers, _ = pool.read_class([tmp_path])
    assert [reader.name for reader in readers] == [f"p{i}" for i in range(1, 21)]
    stems = [reader.path.stem for reader in readers]
    assert stems != sorted(stems)


def test_an_older_copy_of_a_file_counts_once(tmp_path):
    """Where names tell readers apart: else it may be somebody else's."""
    write(tmp_path / "monday" / "ada.jsonl", guess(1.0))
    write(tmp_path / "friday" / "ada.jsonl", guess(1.0), measured(2.0))
    write(tmp_path / "twin" / "ada.jsonl", measured(2.0), guess(1.0))
    write(tmp_path / "friday" / "bob.jsonl", guess(3.0))
    readers, skipped = pool.read_class([tmp_path], names=True)
    assert {reader.name for reader in readers} == {"friday/ada", "bob"}
    assert len(skipped) == 2
    assert all("is skipped: all of it is in" in sentence for sentence in skipped)


def test_without_results_there_is_no_page_and_an_empty_class_has_one_that_waits(
    tmp_path, capsys
):
    target = tmp_path / "pool.html"
    assert commands.main(["pool", str(tmp_path / "nowhere"), "-o", str(target)]) == 1
    assert "nowhere is skipped" in capsys.readouterr().err
    assert not target.exists()
    (tmp_path / "class").mkdir()
    assert "No results yet." in page_of([tmp_path / "class"], target, every=20)[0]
