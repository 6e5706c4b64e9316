"""Calculate data/published/kernel_times.csv anew, from traces of tests/test_kerneltrace/published_kernels.py."""

from __future__ import annotations

import csv
import importlib
import sys

from labkit.core.paths import DATA, ROOT

TABLE = DATA / "published" / "kernel_times.csv"


def main() -> int:
    """Write the table's calculated column; the exit status."""
    sys.path.insert(0, str(ROOT))
    launches = importlib.import_module("tests.test_kerneltrace.published_kernels").LAUNCHES

    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["calculated_ms"] = f"{1e3 * launches[row['kernel']].estimate(row['device']).seconds:.4g}"
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
