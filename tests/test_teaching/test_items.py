"""What classes' answers say of items: tables as spreadsheets save them are read, or
refused with the mend, and each figure has an interval.
"""

import math

import numpy as np
import pytest

from labkit.core.errors import DataError
from teaching import answer_sheets, items as module
from teaching.__main__ import main

ANSWERS = "student,nb00-a,nb00-b,nb00-c\nkey,a,b,c\none,a,b,c\ntwo,A,b,\nthree,d,b,a\nfour,d,a,a\n"


def test_difficulty_and_discrimination_come_from_filled_in_answers(tmp_path, capsys):
    (tmp_path / "answers.csv").write_text(ANSWERS)
    assert main(["items", str(tmp_path / "answers.csv")]) == 0
    told = capsys.readouterr().out
    forms, _ = module.answers([tmp_path / "answers.csv"])
    rows = {row[0]: row for row in module.table(forms).rows}
    assert {name: row[1:3] for name, row in rows.items()} == {
        "nb00-a": ("4", "50%"), "nb00-b": ("4", "75%"), "nb00-c": ("4", "25%")
    }  # fmt: skip
    # right: 1, 1, 0, 0; the share of the two others: 1, 1/2, 1/2, 0. Covariance 1/8,
    # deviations 1/2 and sqrt(1/8)
    assert rows["nb00-a"][3] == f"{(1 / 8) / (1 / 2 * math.sqrt(1 / 8)):.2f}" == "0.71"
    assert rows["nb00-a"][4:] == ("15% to 85%", "fewer than 10")
    assert "nb00-c" in told
    assert "4 students, 3 items; UTF-8, commas, the key on line 2" in told
    (tmp_path / "missed.csv").write_text("student,x,y\nkey,a,b\none,b,b\ntwo,b,a\n")
    forms, _ = module.answers([tmp_path / "missed.csv"])
    missed = module.table(forms).rows[0]
    assert missed[:4] == ("x", "2", "0%", "unknown")


CLASS = """student,nb00-a,nb00-b,nb00-c
key,a,b,d
Ana,a,b,d
Ben,a,c,d
Céline,b,b,
Dai,c,b,a
"""
# what a column before the items has in each of these lines
GROUPS = ("group", "", *["group 1"] * 4)
ITEMS = ("nb00-a", "nb00-b", "nb00-c")
RIGHT = {
    "Ana": (True, True, True),
    "Ben": (True, False, True),
    "Céline": (False, True, False),
    "Dai": (False, True, False),
}


def replaced(*pairs):
    text = CLASS
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def wide(text):
    return "".join(chr(ord(c) + 0xFEE0) if c in "abcd" else c for c in text)


def below_names(change):
    """The class with the cells of key and students changed, names and items not."""
    head, *rows = CLASS.splitlines()
    split = [row.split(",") for row in rows]
    return "\n".join([head, *(",".join([n, *map(change, r)]) for n, *r in split)])


SAME = {
    "as it is": CLASS,
    "semicolons": CLASS.replace(",", ";"),
    "tabs": CLASS.replace(",", "\t"),
    "sep= in the first line": "sep=;\n" + CLASS.replace(",", ";"),
    "quotes": "\n".join(
        ",".join(f'"{cell}"' for cell in line.split(",")) for line in CLASS.splitlines()
    ),
    "Windows line ends": CLASS.replace("\n", "\r\n"),
    "old Mac's line ends": CLASS.replace("\n", "\r"),
    "no last line end": CLASS.rstrip(),
    "UTF-8 with a mark": CLASS.encode("utf-8-sig"),
    "UTF-16": CLASS.encode("utf-16"),
    "UTF-16, big": b"\xfe\xff" + CLASS.encode("utf-16-be"),
    "UTF-16 without a mark": CLASS.encode("utf-16-le"),
    "Windows-1252": CLASS.encode("cp1252"),
    "key in capitals": replaced(("key,a,b,d", "Key,A,B,D")),
    "KEY:": replaced(("key,", "KEY:,")),
    "answers in capitals": below_names(str.upper),
    "spaces in the key": replaced(("key,a,b,d", " key , a,b , d")),
    "spaces in answers": replaced(("Ben,a,c,d", "Ben , a ,c, d ")),
    "spaces that don't break": replaced(("Ben,a,c", "Ben,\u00a0a,c")),
    "a) as Word writes it": below_names(lambda cell: cell and f"{cell})"),
    "(a)": below_names(lambda cell: cell and f"({cell})"),
    "a.": below_names(lambda cell: cell and f"{cell}."),
    "numbers": below_names(lambda cell: cell and str("abcd".index(cell) + 1)),
    "numbers as a program saves them": below_names(
        lambda cell: cell and f"{'abcd'.index(cell) + 1}.0"
    ),
    "key in letters, answers in numbers": replaced(("Dai,c,b,a", "Dai,3,2,1")),
    "full-width letters": below_names(wide),
    "an empty last row": CLASS + ",,,\n",
    "empty rows between": replaced(("Ben", "\n,,,\nBen")),
    "a row of spaces": CLASS + " , , , \n",
    "rows cut short": replaced(("Céline,b,b,", "Céline,b,b")),
    "empty columns at the end": CLASS.replace("\n", ",,\n"),
    "an absent student": CLASS + "Eva,,,\n",
    "a student marked absent": CLASS + "Eva,absent,,\n",
    "a row of totals": CLASS + "Total,2,3,2\n",
    "a row of totals with two words": CLASS + "Number right,2,3,2\n",
    "a row of a class's means": CLASS + "Class average,0.5,0.75,0.5\n",
    "a row of means": CLASS + "mean:,0.5,0.75,0.5\n",
    "a column of notes": replaced(
        ("nb00-c\n", "nb00-c,notes\n"), ("Ben,a,c,d", 'Ben,a,c,d,"late, see mail"')
    ),
    "a column of points": replaced(("nb00-c\n", "nb00-c,points\n"), ("d\n", "d,2\n")),
    "a column before the items": "\n".join(
        line.replace(",", f",{cell},", 1)
        for line, cell in zip(CLASS.splitlines(), GROUPS, strict=True)
    ),
    "the key last": "\n".join(
        [*CLASS.splitlines()[:1], *CLASS.splitlines()[2:], "key,a,b,d"]
    ),
    "- for no answer": replaced(("Céline,b,b,", "Céline,b,b,-")),
    "n/a for no answer": replaced(("Céline,b,b,", "Céline,b,b,N/A")),
}


@pytest.mark.parametrize("variant", SAME)
def test_usual_variants_of_a_table_give_the_same_answers(tmp_path, variant):
    text = SAME[variant]
    path = tmp_path / "answers.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    sheet = answer_sheets.read(path)
    assert (sheet.items, dict(sheet.students)) == (ITEMS, RIGHT)
    assert sheet.notes[0] == "4 students, 3 items"


def test_what_was_understood_is_said(tmp_path):
    text = SAME["numbers"].replace(",", ";").replace("nb00-c", "nb00-c;remarks")
    text += "\nEva;;;\nTotal;2;3;2\nFinn;1;2;4;well done\n"
    path = tmp_path / "answers.csv"
    path.write_bytes(text.encode("utf-16"))
    assert answer_sheets.read(path).notes == (
        "5 students, 3 items",
        "UTF-16, semicolons, the key on line 2",
        "numbers are options, 1 = a",
        "no answer, so absent: Eva",
        "no student: Total",
        "no key, so no item: remarks",
    )


REFUSED = {
    "a blank file": ("", "expected a row of items"),
    "a file of spaces": ("  \n \n", "expected a row of items"),
    "one column": ("student\nkey\nAna\n", "separated by commas, semicolons or tabs"),
    "spaces between cells": (CLASS.replace(",", "  "), "separated by commas"),
    "a spreadsheet's own file": (b"PK\x03\x04rest", r"Save it as CSV"),
    "no key": (replaced(("key,a,b,d\n", "")), "first cell is `key`"),
    "two keys": (replaced(("Ana", "key")), "2, 3.* Copy that row"),
    "only a key": ("student,x,y\nkey,a,b\n", "got 2 rows"),
    "an empty key": (replaced(("key,a,b,d", "key,a,,d")), "cell C2.*the key of 'nb00-b'"),
    "a key that is no letter": (replaced(("key,a,b,d", "key,a,?,d")), "none for nb00-b"),
    "an answer beyond the options": (
        replaced(("Ben,a,c,d", "Ben,a,e,d")),
        "line 4, cell C4, item nb00-b: expected a letter from a to d.*'e'",
    ),
    "a number beyond the options": (replaced(("Ben,a", "Ben,5")), "cell B4.*'5'"),
    "a zero": (replaced(("Ben,a", "Ben,0")), "1 for a"),
    "two marks": (replaced(("Ben,a", "Ben,ab")), "'ab'.*Leave the cell empty"),
    "a word": (replaced(("Ben,a", "Ben,yes")), "'yes'"),
    "a letter of another script": (replaced(("Ben,a", "Ben,\u0430")), "cell B4"),
    "a student twice": (CLASS + "ana,a,b,d\n", "line 7: .*'ana' stands on line 3"),
    "an item twice": (replaced(("nb00-b", "NB00-a")), "stands in two columns"),
    "an item without a name": (replaced(("nb00-b", "")), "cell C1.*name of an item"),
    "answers without a student": (CLASS + ",a,b,d\n", "line 7, cell A7"),
    "answers without a key": (
        replaced(("nb00-c\n", "nb00-c,nb00-d\n"), ("Ana,a,b,d", "Ana,a,b,d,a")),
        "cell E2.*'nb00-d'.* take the column out",
    ),
    "a separator in a name": (replaced(("Ana,", "Ana, B.,")), "line 3: .*'d'"),
    "a row of totals with another name": (CLASS + "Summe,2,3,12\n", "cell D7.*'12'"),
}  # fmt: skip


@pytest.mark.parametrize("variant", REFUSED)
def test_what_can_be_understood_in_two_ways_is_refused_with_the_mend(tmp_path, variant):
    text, words = REFUSED[variant]
    path = tmp_path / "answers.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=words) as refused:
        module.answers([path])
    assert str(path) in str(refused.value)


def test_a_spreadsheets_file_is_refused_with_how_to_save_it(tmp_path):
    path = tmp_path / "answers.XLSX"
    path.write_bytes(b"PK\x03\x04rest")
    with pytest.raises(DataError, match="Save it as CSV"):
        module.answers([path])


def test_a_student_called_like_a_total_counts(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text(CLASS + "Sum Right,a,b,d\nCount Olaf,1,2,4\n")
    assert len(answer_sheets.read(path).students) == 6


def test_a_file_that_is_named_twice_doesnt_count_twice(tmp_path, monkeypatch):
    (tmp_path / "answers.csv").write_text(CLASS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="named twice"):
        module.answers(
            [tmp_path / "answers.csv", tmp_path / ".." / tmp_path.name / "answers.csv"]
        )
    with pytest.raises(DataError, match="missing"):
        module.answers([tmp_path / "missing.csv"])


def class_of(students, slopes, seed):
    """Right or wrong answers of students whose ability is drawn, on items that separate
    by their slopes.
    """
    generator = np.random.default_rng(seed)
    ability = generator.normal(size=students)
    chance = 1 / (1 + np.exp(-np.outer(ability, slopes)))
    return generator.random(chance.shape) < chance


def test_intervals_hold_what_a_simulated_class_was_made_with():
    # a 95 % interval holds the value of a very large class in 57 of 60 classes
    slopes = [2.0, 2.0, 1.0, 1.0, 0.5, 0.0]
    large = class_of(50_000, slopes, 1).astype(float)
    (reliability,) = module.kr20(large[None])
    held = 0
    for seed in range(60):
        rows = class_of(60, slopes, 100 + seed).astype(float)
        low, high = module.resampled_interval(rows, module.kr20)
        held += low <= reliability <= high
    assert 53 <= held <= 60
    # by hand: z^2 / (n + z^2) for none of 20
    none = 1.959964**2 / (20 + 1.959964**2)
    assert module.share_interval(0, 20) == pytest.approx((0, none), abs=1e-6)
    assert module.share_interval(20, 20) == pytest.approx((1 - none, 1), abs=1e-6)


def test_reliability_is_that_of_the_formula_by_hand(tmp_path):
    # 4 students, 3 items: p = 1/2, 3/4, 1/4; totals 3, 2, 1, 0, of variance 5/4
    path = tmp_path / "answers.csv"
    path.write_text(ANSWERS)
    by_hand = 3 / 2 * (1 - (1 / 4 + 3 / 16 + 3 / 16) / (5 / 4))
    _, (note,) = module.answers([path])
    assert f"Reliability (KR-20): {by_hand:.2f}; 95 % interval: fewer than 10" in note


@pytest.mark.parametrize(
    "text", ["", "student,x\nkey,a\none,a,b\n", "student,x\none,a\ntwo,b\n"]
)
def test_another_table_is_refused_by_name(tmp_path, text):
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(DataError, match=r"other\.csv"):
        module.answers([tmp_path / "other.csv"])
