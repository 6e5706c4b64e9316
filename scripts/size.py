"""Print how many lines the packages and the exercises have, against what they may have; exit 1 over a limit."""

from __future__ import annotations

import itertools
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from labkit.core.paths import EXERCISES, PACKAGES, ROOT

LABKIT = ROOT / "labkit"
LIMITS = ROOT / "scripts" / "limits.toml"


def lines(*folders: Path, without: str = "") -> int:
    """Lines of the Python files below folders, of all but those whose name begins with `without`."""
    files = (path for folder in folders for path in folder.rglob("*.py"))
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in files
        if not (without and path.name.startswith(without))
    )


def limits() -> dict[str, int]:
    """Lines that each part may have."""
    return read(LIMITS.read_text(encoding="utf-8"))


def missed() -> dict[str, int]:
    """Lines by which a part is known to be over its limit."""
    return read(LIMITS.read_text(encoding="utf-8"), "over")


def read(text: str, table: str = "limits") -> dict[str, int]:
    """The limits in a version of limits.toml, or what is planned, or by how much limits are missed."""
    return {name: int(limit) for name, limit in tomllib.loads(text).get(table, {}).items()}


def sizes() -> dict[str, int]:
    """Lines of what has a limit, then of each room. Wrong answers are test data and don't count as exercises."""
    limited = {name: lines(ROOT / name) for name in (*PACKAGES, "teaching")}
    limited["exercises"] = lines(EXERCISES, without="wrong_")
    return limited | {path.parent.name: lines(path.parent) for path in sorted(LABKIT.glob("*/__init__.py"))}


def unpaid_rises(versions: Sequence[Mapping[str, int]], plans: Sequence[Mapping[str, int]] = ()) -> list[str]:
    """A sentence for each version, oldest first, whose limits rise in all by more than was planned before.

    A part may grow to what the plan of the version before gives it: that was set before its code was written.
    Everything else has to be paid for by the fall of another limit. `plans` has a plan for each version, or none.
    """
    sentences = []
    for number, (before, after) in enumerate(itertools.pairwise(versions)):
        plan = plans[number] if plans else {}
        planned = sum(max(0, min(after[name], plan.get(name, 0)) - before.get(name, 0)) for name in after)
        if (rise := sum(after.values()) - sum(before.values()) - planned) > 0:
            raised = [name for name in after if after[name] > before.get(name, 0)]
            sentences.append(f"{', '.join(raised)}: {rise:,} lines more in all, and no other limit falls by as much")
    return sentences


def main() -> int:
    """Print the table; the exit status: 1 where a part is over its limit by more than limits.toml says."""
    found, limit_of, over = sizes(), limits(), missed()
    planned = read(LIMITS.read_text(encoding="utf-8"), "plan")
    for name, count in found.items():
        limit = f" of at most {limit_of[name]:,}, planned {planned[name]:,}" if name in limit_of else ""
        too_many = f": {count - limit_of[name]:,} too many" if count > limit_of.get(name, count) else ""
        print(f"{name:12} {count:6,} lines{limit}{too_many}")
    return int(any(found[name] > limit + over.get(name, 0) for name, limit in limit_of.items()))


if __name__ == "__main__":
    sys.exit(main())
