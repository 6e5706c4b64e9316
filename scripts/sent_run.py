"""A recorded run that somebody sends: make the file to send, check one that came, take
it into data/recorded.

    python -m scripts.sent_run pack [RUN] [-o FILE]
        this machine's run, or RUN, without what names a person
    python -m scripts.sent_run check FILE
        print what is wrong with a file; exit 1 if anything is
    python -m scripts.sent_run take FILE [--replace]
        check it, and put it into data/recorded

A file has the lines of a recorded run (labkit/core/results.py), all of one machine.
`--device NAME` names its row of gpufacts where the name that its driver reports
fits several: a GeForce RTX 3060 has 8 or 12 GB.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.core import results
from labkit.core.comparable import Work, beside
from labkit.core.errors import LabError
from labkit.core.paths import RECORDED, ROOT
from labkit.core.results import Measurement, Verdict
from labkit.lesson import notebook_files
from labkit.measure.machine import machine
from scripts.run_faults import Entry, Run, personal, read

VERSIONS = {"python", "torch", "numpy", "numba", "cuda", "driver"}
SHOWN = 20  # faults


def packed(path: Path) -> tuple[str, list[str]]:
    """The text to send of a recorded run, and a sentence for each reason to leave lines
    out.

    Guesses, the time of day, numbers that a busy machine gave and fields that a
    recorded run doesn't have are left out, and so is a line with anything that may name
    a person or a place. Of lines on the same thing the last one is kept.
    """
    kept = dict[tuple[object, ...], str]()
    out = Counter[str]()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = results.from_line(line)
        except LabError:
            out["are damaged"] += 1
            continue
        if not isinstance(entry, Measurement | Verdict):
            out["are guesses or answers"] += 1
        elif isinstance(entry, Measurement) and entry.busy:
            out["were measured on a busy machine"] += 1
        else:
            to_send = results.to_line(_anonymous(entry))
            personal_data = next(personal(to_send, own=True), "")
            if personal_data:
                out[f"hold {personal_data}"] += 1
            else:
                if kept.pop(results.same(entry), ""):
                    out["were replaced by later ones"] += 1
                kept[results.same(entry)] = to_send
    return "".join(f"{line}\n" for line in kept.values()), [
        f"Left out: lines that {why}: {n}." for why, n in out.items()
    ]


def _anonymous(entry: Entry) -> Entry:
    """The entry with its day in place of its time, without a guess, and with the
    versions that numbers depend on.
    """
    day = f"{entry.when[:10]}T00:00:00+00:00"
    if isinstance(entry, Verdict):
        return dataclasses.replace(entry, when=day)
    versions = {
        name: version for name, version in entry.versions.items() if name in VERSIONS
    }
    return dataclasses.replace(entry, when=day, predicted=None, versions=versions)


def compared(run: Run) -> tuple[int, int]:
    """How many numbers have a size, which boards need, and how many of them stand
    beside one of another machine.
    """
    sized = [m for m in run.entries if isinstance(m, Measurement) and m.size]
    groups = [
        beside(m.key, Work(m.unit, m.size, m.dtype, m.items, m.profile))[0]
        for m in sized
    ]
    return len(sized), sum(
        any(other.machine != run.machine for other in others) for others in groups
    )


def missing(run: Run) -> list[str]:
    """The numbers of the notebooks of which a run has nothing. The pages of puzzles
    measure nothing.
    """
    recorded = {entry.section[:2] for entry in run.entries}
    numbers = {path.name[:2] for path in notebook_files.paths()}
    return sorted(numbers - recorded - notebook_files.PUZZLES)


def tell(run: Run) -> int:
    """Print what is in a run and what is wrong with it; the exit status."""
    if not run.entries:
        print(run.faults[0])
        print(
            "It can't be taken: no line of this file is one of a recorded run of this"
            " version."
        )
        return 1
    for fault in run.faults[:SHOWN]:
        print(fault)
    if (more := len(run.faults) - SHOWN) > 0:
        print(f"... and {more} more.")
    if run.faults:
        print("It can't be taken.")
        return 1
    sized, others = compared(run)
    print(f"{run.machine}: {len(run.entries)} lines, all plausible.")
    print(
        f"{sized} numbers can stand on a board, {others} of them beside another"
        " machine's."
    )
    if numbers := missing(run):
        print(f"It has nothing of the notebooks {', '.join(numbers)}.")
    return 0


def pack(path: Path | None, to: Path | None, device: str) -> int:
    """Write the file to send, check it as the one who gets it will, and say what was
    left out; the exit status.
    """
    path = path or RECORDED / f"{machine().slug}.jsonl"
    if not path.is_file():
        print(
            f"There is no run at {path}. `python -m teaching record` makes one. If it"
            " has run, it says above why it kept nothing."
        )
        return 1
    to = to or ROOT / "build" / "to_send" / path.name
    text, left_out = packed(path)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, encoding="utf-8")
    for sentence in left_out:
        print(sentence)
    if status := tell(read(to, device)):
        print(
            f"The file is {to}. If the mistake isn't yours, send it with these lines: a"
            " maintainer can mend a notebook, or add a GPU that is unknown."
        )
        return status
    print(
        f"The file to send is {to}. It names no person and no computer. docs/numbers.md"
        " says where it goes."
    )
    return 0


def take(
    path: Path, device: str = "", folder: Path = RECORDED, *, replace: bool = False
) -> int:
    """Put a file that somebody sent into data/recorded if nothing is wrong with it; the
    exit status.
    """
    run = read(path, device)
    if status := tell(run):
        return status
    target = folder / f"{run.slug}.jsonl"
    entries = sorted(run.entries, key=lambda entry: entry.section)
    text = "".join(f"{results.to_line(_anonymous(entry))}\n" for entry in entries)
    if target.exists():
        before = target.read_text(encoding="utf-8")
        if before == text:
            print(f"It is in {target} already: there is nothing to do.")
            return 0
        if not replace:
            lines = len(before.splitlines())
            print(
                f"There is a run of {run.machine} already, with {lines} lines:"
                f" {target}. With --replace this one takes its place."
            )
            return 1
    target.write_text(text, encoding="utf-8")
    print(f"It is in {target} now.")
    return 0


def main(words: Sequence[str]) -> int:
    """What the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = {name: commands.add_parser(name) for name in ("pack", "check", "take")}
    for name, each in made.items():
        each.add_argument("file", type=Path, nargs="?" if name == "pack" else None)
        each.add_argument(
            "--device",
            default="",
            help="its row of gpufacts, where its name fits several",
        )
    made["pack"].add_argument(
        "-o", dest="to", type=Path, help="by default build/to_send/<machine>.jsonl"
    )
    made["take"].add_argument(
        "--replace",
        action="store_true",
        help="replace the run of this machine that is there",
    )
    options: Any = parser.parse_args(words)
    if options.command == "pack":
        return pack(options.file, options.to, options.device)
    if options.command == "check":
        return tell(read(options.file, options.device))
    return take(options.file, options.device, replace=options.replace)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
