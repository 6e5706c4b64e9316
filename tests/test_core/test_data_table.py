"""The tables that ship: whole they are read, damaged they are one sentence with file
and line.
"""

import shutil

import pytest

from exercises.nb18 import compiled, languages
from exercises.nb22 import fpga
from labkit.core.data_table import read_table
from labkit.core.errors import DataError
from labkit.core.paths import DATA
from labkit.lesson import claims as claim_module, outline
from labkit.measure import published
from labkit.train.data import bundled
from scripts import prerequisites

TABLES = sorted(
    path.relative_to(DATA).as_posix()
    for path in DATA.rglob("*.csv")
    if path.parent.name != "recorded"
)


def swapped(text, line):
    """Another order of the cells than the header's, from a line on."""
    lines = text.splitlines(keepends=True)
    return "".join(
        [
            *lines[:line],
            *(
                ",".join(reversed(row.strip().split(","))) + "\n"
                for row in lines[line:]
            ),
        ]
    )


DAMAGES = {
    "empty": lambda text: "",
    "header only": lambda text: text.splitlines()[0] + "\n",
    "no header": lambda text: text.split("\n", 1)[1],
    "cut in the middle": lambda text: text[: len(text) // 2],
    "last line's end is gone": lambda text: text[:-1],
    "binary": lambda text: b"\x89PNG\r\n\xff\x00" + text.encode(),
    "a byte that is no UTF-8": lambda text: text.encode()[:-1] + b"\xff\n",
    "not a number": lambda text: (
        text + ",".join(["NaN"] * (text.split("\n")[0].count(",") + 1)) + "\n"
    ),
    "infinite": lambda text: (
        text + ",".join(["-inf"] * (text.split("\n")[0].count(",") + 1)) + "\n"
    ),
    "a cell too many": lambda text: text.rstrip("\n") + ",1\n",
    "swapped cells": lambda text: swapped(text, 2),
    "an open quote": lambda text: text + '"',
    "a login page": lambda text: "<html>\n<body>Log in</body>\n</html>\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of data/ that every reader reads anew."""
    copy = tmp_path / "data"
    shutil.copytree(DATA, copy)
    monkeypatch.setattr(fpga, "REPORTS", copy / "fpga_reports.csv")
    monkeypatch.setattr(compiled, "RECORDED", copy / "tile_code.csv")
    monkeypatch.setattr(languages, "RECORDED", copy / "language_code.csv")
    monkeypatch.setattr(published, "FOLDERS", (copy / "published",))
    monkeypatch.setattr(claim_module, "DATA", copy)
    monkeypatch.setattr(outline, "DATA", copy)
    monkeypatch.setattr(prerequisites, "DATA", copy)
    monkeypatch.setenv("LABKIT_DATA", str(copy))
    readers = (
        claim_module.claims,
        fpga.reports,
        outline.outlines,
        outline.milestones,
        published.table,
    )
    for reader in readers:
        _fresh(reader)
    yield copy
    for reader in readers:
        _fresh(reader)


def _fresh(reader):
    """Forget what a cached function has read, also below what wraps it."""
    while reader is not None:
        if hasattr(reader, "cache_clear"):
            reader.cache_clear()
        reader = getattr(reader, "__wrapped__", None)


def read(name):
    stem = name.rpartition("/")[2].removesuffix(".csv")
    reader = {
        "claims": claim_module.claims,
        "fpga_reports": fpga.reports,
        "course": outline.outlines,
        "milestones": outline.milestones,
        "tile_code": compiled.recorded,
        "language_code": languages.recorded,
        "prerequisites": prerequisites._rows,
    }
    return published.table(stem) if name.startswith("published/") else reader[stem]()


def test_whole_tables_are_read(folder):
    # two sources say what share of a step is generation
    short = [name for name in TABLES if len(read(name)) <= 3]
    assert short == ["published/rl_generation.csv"]


# Every damage to one table, and one damage to every table: all have one reader.
CASES = [("course.csv", damage) for damage in DAMAGES]
CASES += [(name, "cut in the middle") for name in TABLES if name != "course.csv"]


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_a_damaged_table_is_one_sentence_with_its_file_and_line(folder, name, damage):
    path = folder / name
    made = DAMAGES[damage](path.read_text(encoding="utf-8"))
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    with pytest.raises(DataError) as caught:
        read(name)
    message = str(caught.value)
    assert message.startswith(f"{path}, line ")
    assert message.endswith(f"Restore it with `git checkout -- {path}`.")
    assert len(message.splitlines()) == 1
    assert len(message) < 500 + 2 * len(str(path))


@pytest.mark.parametrize("name", ["course.csv", "claims.csv"])
def test_a_missing_table_is_one_sentence(folder, name):
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"git checkout -- .*{name}"):
        read(name)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "huge", "missing"])
def test_a_damaged_file_that_ships_is_one_sentence(folder, damage):
    path = folder / "shakespeare.txt.xz"
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(whole[:1000] if damage == "cut" else whole * 300)
    with pytest.raises(
        DataError, match=r"Restore it with `git checkout -- .*shakespeare"
    ):
        bundled.shakespeare()


def test_a_line_is_named(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('n,text\n1,"two\nlines"\n2,\nthree,x\n')
    with pytest.raises(
        DataError, match=r"table\.csv, line 5 is damaged: invalid literal for int"
    ):
        read_table(path, lambda row: int(row["n"]), DataError)
    with pytest.raises(
        DataError, match=r"line 3 is damaged: expected a column 'size', got none"
    ):
        read_table(path, lambda row: row["size"], DataError)
