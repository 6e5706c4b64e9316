"""The tables of data: each folder's README counts their rows."""

import csv

import pytest

from labkit.core.paths import ROOT

READMES = [ROOT / "data" / "README.md", *ROOT.glob("packages/*/*/data/README.md")]


def counted(readme):
    """By name of a table, how many rows the README says that it has."""
    lines = readme.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip(" `") for cell in line.split("|")] for line in lines]
    return {
        row[1]: int(row[3].replace(",", ""))
        for row in cells
        if len(row) > 3 and row[1].endswith(".csv") and row[3]
    }


def rows(path):
    """How many rows a table has below its head."""
    with path.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.DictReader(file))


@pytest.mark.parametrize(
    "readme", READMES, ids=lambda readme: readme.parent.parent.name
)
def test_a_readme_counts_the_rows_of_each_table(readme):
    said = counted(readme)
    assert said
    found = {path.name: path for path in readme.parent.rglob("*.csv")}
    there = {name: rows(found[name.rpartition("/")[2]]) for name in said}
    assert said == there
