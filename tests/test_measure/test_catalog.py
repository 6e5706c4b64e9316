"""The table of devices, as notebooks show it, and what stands in data/."""

import csv

import pytest

from labkit.core.errors import LabError
from labkit.core.paths import DATA, PUBLISHED
from labkit.measure import catalog


def test_tables_mark_what_was_not_read():
    shown = catalog.table(
        [catalog.find("T4")], columns=("name", "float16", "float32", "bfloat16")
    )
    assert shown.rows == (("T4", "65.0 TFLOP/s*", "8.14 TFLOP/s", "unknown"),)
    assert "* recalled or derived" in str(shown)
    assert ">65.0 TFLOP/s*</td>" in shown._repr_html_()
    assert len(catalog.table().rows) == len(catalog.devices())
    with pytest.raises(LabError, match="got 'price'"):
        catalog.table(columns=("price",))


def rows_of(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


# as long as their sources have them
SHORT = {"nanochat_records.csv": 6, "sm_rates.csv": 6, "rl_generation.csv": 2}


def test_published_measurements_name_their_source():
    for path in (path for folder in PUBLISHED for path in folder.glob("*.csv")):
        rows = rows_of(path)
        assert len(rows) >= SHORT.get(path.name, 7), path.name
        folders = (path.parent, path.parent.parent)
        readme = next(f / "README.md" for f in folders if (f / "README.md").exists())
        assert path.name in readme.read_text(encoding="utf-8")
        assert all(row.get("source") or row["link"] for row in rows), path.name


def test_the_claims_are_complete():
    rows = rows_of(DATA / "claims.csv")
    assert [row["id"] for row in rows] == [f"C{number:02d}" for number in range(1, 36)]
    assert all(
        row["claim"]
        and all(len(n) == 2 and n.isdigit() for n in row["notebooks"].split())
        for row in rows
    )
