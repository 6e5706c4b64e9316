"""Two pages compared, and pages kept in files."""

import dataclasses
import json
import re

import pytest

import steptime
from steptime.limits import LIMITS, Gain, Limit


def page(loop_s, flop=1e9, error=0.05, machine="a CPU", **seconds):
    shares = dict.fromkeys(LIMITS, 0.0)
    for name, value in seconds.items():
        shares[name.replace("_", " ")] = value / loop_s
    return Limit(
        shares,
        ("Watched: 200 steps | `x`.",),
        loop_s,
        lines={"input": "<listcomp> (a.py, line 3)"},
        gains=(Gain("input", "a batch already in memory", 2.0, 1.5, 2.5, 6),),
        interval_s=(loop_s * (1 - error), loop_s * (1 + error)),
        flop=flop,
        machine=machine,
    )


BEFORE = page(0.1, input=0.06, arithmetic=0.04)
AFTER = page(0.05, input=0.005, arithmetic=0.04, launch_overhead=0.005)


def test_a_comparison_says_how_much_faster_what_moved_and_what_limits_now():
    compared = steptime.compare(BEFORE, AFTER)
    assert compared.times == pytest.approx(2)
    assert compared.low == pytest.approx(0.095 / 0.0525)
    assert compared.high == pytest.approx(0.105 / 0.0475)
    text = str(compared)
    assert text.startswith(
        "2.00x as fast (1.81 to 2.21): a step took 100 ms, and takes 50.0 ms. The"
        " largest limit was input, and is arithmetic now."
    )
    assert [row[0] for row in compared.table().rows] == [
        "input",
        "launch overhead",
        "arithmetic",
    ]
    assert compared.table().rows[0][1:] == ("60.0 ms", "5.00 ms", "-55.0 ms")


def test_an_interval_that_contains_1_is_no_difference_and_none_is_said_to_be_missing():
    almost = page(0.098, input=0.058, arithmetic=0.04)
    assert str(steptime.compare(BEFORE, almost)).startswith("No sure difference (0.9")
    short = dataclasses.replace(AFTER, interval_s=(0.0, 0.0))
    assert "too few steps for an interval" in str(steptime.compare(BEFORE, short))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (page(0.05, machine="a GPU"), "Two machines: a CPU before, a GPU after."),
        (dataclasses.replace(AFTER, busy="others ran"), "after is in doubt: others"),
    ],
)
def test_what_a_comparison_has_to_be_read_with_is_said(after, words):
    assert words in str(steptime.compare(BEFORE, after))


def test_other_work_is_refused_and_work_without_products_is_compared_with_a_word():
    with pytest.raises(ValueError, match=r"1.00 GFLOP a step before and 2.00 GFLOP"):
        steptime.compare(BEFORE, page(0.05, flop=2e9))
    without = [dataclasses.replace(p, flop=0.0) for p in (BEFORE, AFTER)]
    assert "no products of matrices" in str(steptime.compare(*without))
    with pytest.raises(TypeError, match="before to be a Limit, got 3"):
        steptime.compare(3, AFTER)


def test_a_page_comes_back_from_its_file_as_it_was(tmp_path):
    path = tmp_path / "before.json"
    BEFORE.save(path)
    assert steptime.load(path) == BEFORE
    assert steptime.compare(path, AFTER) == steptime.compare(BEFORE, AFTER)


def _changed(**changes):
    tree = {"steptime": 1, **dataclasses.asdict(BEFORE), **changes}
    return json.dumps(tree)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "\x00",
        "{}",
        _changed(steptime=2),
        _changed(shares={"inptu": 1.0}),
        _changed(loop_s="fast"),
        _changed(loop_s=0.0),
        _changed(interval_s=[1.0]),
        _changed(gains=[{"limit": "input"}]),
        _changed(more=1),
    ],
)
def test_a_file_with_something_else_is_refused(tmp_path, text):
    path = tmp_path / "page.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"page.json to be a page of steptime"):
        steptime.load(path)


def test_pages_are_one_small_file_without_network_and_markdown_that_shows_all(
    tmp_path,
):
    for shown in (BEFORE, steptime.compare(BEFORE, AFTER)):
        shown.save(tmp_path / "why.html")
        shown.save(tmp_path / "why.md")
        text = (tmp_path / "why.html").read_text(encoding="utf-8")
        assert len(text) < 200_000
        assert not re.search(r"https?:|<script|<img|url\(|@import", text)
        assert "prefers-color-scheme: dark" in text
        assert "<listcomp>" not in text
        lines = (tmp_path / "why.md").read_text(encoding="utf-8").splitlines()
        rows = [line for line in lines if line.startswith("|")]
        assert len(rows) == 2 + len(shown.table().rows)
    with pytest.raises(ValueError, match=r"one of .html, .md"):
        BEFORE.save(tmp_path / "why.pdf")
