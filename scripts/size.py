"""Print how many lines labkit's rooms and the exercises have, against what they may have; exit 1 over a limit."""

from __future__ import annotations

import sys
from pathlib import Path

from labkit.core.paths import EXERCISES, ROOT

LABKIT = ROOT / "labkit"
LIMITS = {"labkit": 29_500, "core and lesson": 5_400, "exercises": 9_250}


def lines(*folders: Path, without: str = "") -> int:
    """Lines of the Python files below folders, of all but those whose name begins with `without`."""
    files = (path for folder in folders for path in folder.rglob("*.py"))
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in files
        if not (without and path.name.startswith(without))
    )


def sizes() -> dict[str, int]:
    """Lines of what has a limit, then of each room. Wrong answers are test data and don't count as exercises."""
    limited = {
        "labkit": lines(LABKIT),
        "core and lesson": lines(LABKIT / "core", LABKIT / "lesson"),
        "exercises": lines(EXERCISES, without="wrong_"),
    }
    return limited | {path.parent.name: lines(path.parent) for path in sorted(LABKIT.glob("*/__init__.py"))}


def main() -> int:
    """Print the table; the exit status."""
    found = sizes()
    for name, count in found.items():
        limit = f" of at most {LIMITS[name]:,}" if name in LIMITS else ""
        print(f"{name:16} {count:6,} lines{limit}")
    return int(any(found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
