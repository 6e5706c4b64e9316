"""What is wrong with a recorded run that somebody sends: its form, what may name a
person, physics, missing sizes.

`scripts.sent_run` is the command. A run with a fault is not taken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import getpass
import json
import math
import re
import socket
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from gpufacts import Device, UnknownDevice, find
from labkit.core import results
from labkit.core.errors import LabError
from labkit.core.results import Measurement, Verdict
from labkit.core.units import format_quantity
from labkit.lesson import notebook_files
from labkit.measure import probe

Entry = Measurement | Verdict

MOST_BYTES = 2**23
IN_CACHE = 4  # times the L2 cache: smaller work may not reach the memory
RATES = {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "B/s": 1.0, "GB/s": 1e9}
TIMES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
PERSONAL = {
    "a path": re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?[/\\]+(?:[\w.-]+[/\\]+)+[\w.-]+"),
    "an e-mail address": re.compile(r"[\w.+-]+@[\w-]+\.\w+"),
    "an IP address": re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"),
    "the number of a process": re.compile(r"\bPID \d+"),
    "an identifier": re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-"),
}
# By section: FLOP and bytes that a call has to do at least, from the numbers in its
# size. The kernels of 04.3, 04.5 and 05.5 read and write each number once; the matmuls
# of the others multiply n x n matrices.
LEAST: dict[str, Callable[..., tuple[float, float]]] = {
    "04.3": lambda n, *_: (0, 8 * n * n),
    "04.5": lambda n, *_: (0, 4 * n),
    "04.6": lambda n, *_: (2 * n**3, 0),
    "05.5": lambda n, *_: (0, 8 * n),
    "05.6": lambda n, *_: (2 * n**3, 0),
    "18.3": lambda n, *_: (2 * n**3, 0),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """The entries of a file, and a sentence for each fault in it."""

    entries: tuple[Entry, ...]
    faults: tuple[str, ...] = ()

    @property
    def machine(self) -> str:
        """The name of its machine, "2x Tesla T4"."""
        return self.entries[0].machine if self.entries else ""

    @property
    def slug(self) -> str:
        """The name of its file in data/recorded, "tesla-t4-x2", as
        `labkit.measure.machine` makes it.
        """
        cores = re.fullmatch(r"(\d+)-core (.*?)(?: \([^()]*\))?", self.machine)
        several = re.fullmatch(r"(\d+)x (.*)", self.machine)
        words = f"{several[2]} x{several[1]}" if several else self.machine
        if cores:
            words = f"{cores[2]} {cores[1]} core{'s' * (cores[1] != '1')}"
        return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def read(path: Path, device: str = "") -> Run:
    """The run in a file, with its faults. `device` names a row of gpufacts' table,
    by default the machine's name does.
    """
    if not path.is_file():
        return Run((), (f"There is no file {path}.",))
    if path.stat().st_size > MOST_BYTES:
        return Run(
            (), (f"Expected a file of at most {MOST_BYTES:,} bytes, got {path}.",)
        )
    entries = list[Entry]()
    faults = list[str]()
    line_of = dict[tuple[object, ...], int]()
    # some editors write a byte order mark, which is no part of the first line
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            entry = _entry(line)
        except (LabError, ValueError) as error:
            faults.append(f"Line {number}: {error}")
            continue
        entries.append(entry)
        first = line_of.setdefault(results.same(entry), number)
        if first != number:
            faults.append(f"Line {number}: it is about the same as line {first}.")
    run = Run(tuple(entries))
    return Run(run.entries, (*faults, *_of_the_whole(run), *_of_each(run, device)))


def personal(line: str, *, own: bool = False) -> Iterator[str]:
    """What in a line may name a person or a place; `own` looks for this computer's and
    this user's names, too.
    """
    yield from (what for what, pattern in PERSONAL.items() if pattern.search(line))
    if own:
        names = {"the name of this computer": socket.gethostname()}
        with contextlib.suppress(OSError, KeyError):  # a container's user may have none
            names["the name of its user"] = getpass.getuser()
        for what, name in names.items():
            # Shorter ones, and a container's "root", are words that a sentence may
            # hold.
            if (
                len(name) > 3
                and name not in ("root", "user")
                and re.search(rf"\b{re.escape(name)}\b", line)
            ):
                yield what


def _entry(line: str) -> Entry:
    """The entry of a line that has nothing else in it; a ValueError for
    any other line.
    """
    entry = results.from_line(line)
    if not isinstance(entry, Measurement | Verdict):
        raise ValueError(
            "a guess or an answer. Make the file by python -m scripts.sent_run pack."
        )
    fields = {"kind", *(field.name for field in dataclasses.fields(entry))}
    if unknown := sorted(set(json.loads(line)) - fields):
        raise ValueError(
            f"fields that a recorded run does not have: {', '.join(unknown)}."
        )
    if personal_data := ", ".join(personal(line)):
        raise ValueError(
            f"it holds {personal_data}. Make the file by python -m scripts.sent_run"
            " pack, which leaves it out."
        )
    return entry


def _of_the_whole(run: Run) -> Iterator[str]:
    numbers = [entry for entry in run.entries if isinstance(entry, Measurement)]
    if not any(m.origin == "measured" for m in numbers):
        yield "No number in it was measured."
    if len(names := sorted({entry.machine for entry in run.entries})) > 1:
        yield f"Expected one machine, got {', '.join(names)}."
    if any("rehearsal" in name for name in names):
        yield "Its machine is a rehearsal's, which computes on a CPU what a GPU would."
    if any(m.profile != "full" for m in numbers):
        yield (
            "Some sizes are those of LABKIT_PROFILE=ci. Record without LABKIT_PROFILE."
        )


def _of_each(run: Run, device: str) -> Iterator[str]:
    """Faults of single numbers, with the number's key first."""
    card = None
    # a machine without a GPU has no data sheet here
    if device or not re.match(r"\d+-core ", run.machine):
        try:
            card = find(device or run.machine)
        except UnknownDevice as error:
            yield (
                "What this GPU can do at most is unknown, so no number can be checked."
                f" {error}"
            )
    if card is not None and card.assumed:
        yield f"{card.assumed} Say by --device which it is, so that it is checked."
    sections = _sections()
    for entry in run.entries:
        if not isinstance(entry, Measurement):
            continue
        if entry.section not in sections:
            yield f"{entry.key}: the notebooks have no section {entry.section}."
        elif fault := next(_faults(entry, card), ""):
            yield f"{entry.key}: {fault}"


@functools.cache
def _sections() -> set[str]:
    """The sections of all notebooks, "00.1"."""
    sections = set()
    for path in notebook_files.paths():
        cells = notebook_files.read(path)["cells"]
        texts = (
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
        )
        headings = (re.match(r"## (\d+) ", text) for text in texts)
        sections |= {f"{path.name[:2]}.{heading[1]}" for heading in headings if heading}
    return sections


def _faults(m: Measurement, card: Device | None) -> Iterator[str]:
    """What is wrong with a number: its own parts first, then physics."""
    if m.origin not in ("measured", "simulated", "calculated"):
        yield f"a run's own number can't be {m.origin}."
    if m.busy:
        yield f"no verdict may rest on it, since {m.busy}. Record again."
    if m.value < 0 or (m.value == 0 and (m.unit in TIMES or m.unit.endswith("/s"))):
        yield f"nothing takes {format_quantity(m.value, m.unit)}."
    if m.samples and not (
        min(m.samples) > 0
        and math.isclose(statistics.median(m.samples), m.value, rel_tol=1e-3)
    ):
        yield (
            f"its samples' median is {statistics.median(m.samples):.6g}, its value"
            f" {m.value:.6g}."
        )
    if not (m.low or 0.0) <= m.value <= (math.inf if m.high is None else m.high):
        yield (
            f"its value {m.value:.6g} lies outside of its own interval, {m.low} to"
            f" {m.high}."
        )
    is_share = m.unit == "%" and re.search(r"\b(share|accuracy|utilization)\b", m.what)
    if is_share and m.value > 100 * (1 + probe.TOLERANCE):
        yield f"a share can't be {m.value:.4g} %."
    if m.samples and m.origin == "measured" and not m.size:
        yield "its size is missing, so that it can stand beside no other number."
    if card is not None and m.origin == "measured":
        yield from _beyond(m, card)


def _beyond(m: Measurement, card: Device) -> Iterator[str]:
    """Whether a GPU's number is beyond what its data sheet allows; nothing where that
    doesn't say.
    """
    # boards clock above the boost that the printed peak is computed with
    slack = 1 + probe.ABOVE_PEAK
    peak = _peak(m.dtype, card)
    bandwidth = card.bandwidth_bytes_per_s
    if m.unit.endswith("FLOP/s"):
        limit = peak
    elif _reaches_memory(m.items, card):
        limit = bandwidth
    else:
        limit = None
    scale = RATES.get(m.unit, 0.0)
    if limit and m.value * scale > limit * slack:
        most = format_quantity(limit / scale, m.unit)
        yield (
            f"{format_quantity(m.value, m.unit)} is beyond the peak of {card.name},"
            f" {most}."
        )
    numbers = [int(text.replace(",", "")) for text in re.findall(r"\d[\d,]*", m.size)]
    if m.unit in TIMES and m.section in LEAST and numbers:
        flop, moved = LEAST[m.section](*numbers)
        least_s = flop / peak if peak else 0.0
        if bandwidth and _reaches_memory(moved, card):
            least_s = max(least_s, moved / bandwidth)
        if m.value * TIMES[m.unit] * slack < least_s:
            yield (
                f"{format_quantity(m.value, m.unit)} is less than {card.name} takes at"
                f" its peak, {least_s:.3g} s."
            )


def _peak(dtype: str, card: Device) -> float | None:
    """The peak for a format, the highest of all where that is unknown; None where the
    card's row has none.

    A GPU since Ampere may compute in TF32 what is called float32.
    """
    formats = {dtype, "tf32"} if dtype == "float32" else {dtype}
    peaks = [card.peaks[each] for each in formats if each in card.peaks]
    return max(peaks or card.peaks.values(), default=None)


def _reaches_memory(moved: float | None, card: Device) -> bool:
    return moved is not None and (not card.l2_bytes or moved > IN_CACHE * card.l2_bytes)
