"""Find the mistakes of a run and describe them: those met while it ran, and those that
its log shows.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltrace._tables import Shown
from kerneltrace.judge.equal_stores import stored_values
from kerneltrace.judge.ordering import Ordering
from kerneltrace.judge.overlaps import overlaps
from kerneltrace.judge.races import Race, races, unset_reads
from kerneltrace.judge.unwritten import unwritten
from kerneltrace.machine.diagnostics import FROM_END, NOTED
from kerneltrace.machine.events import Access, Events
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.grid import WARP
from kerneltrace.machine.program import Site
from kerneltrace.machine.traced_memory import Array

TOLERANCES = {2: 1e-2, 4: 1e-4, 8: 1e-9}
"""Relative differences that a changed order may make in sums of thousands of floats, by
a float's size in bytes.
"""


SAME_VALUE = (
    " All of them write the same value, which compute-sanitizer's racecheck reports as"
    " information."
)
CHANGE_AT_ONCE = " An atomic would read and write it in one step."


@dataclass(frozen=True, repr=False)
class Finding(Shown):
    """One mistake at one place of a kernel."""

    kind: str
    """outside, race, barrier, unset, undefined, deadlock, endless, raised, untouched,
    unwritten, lane, order, overlap, argument, layout, printed or left out.
    """
    line: int
    """Of the source file or cell; 0 where the finding has no line."""
    words: str
    count: int = 1
    """How often it happened; for a race, at how many addresses."""
    thread: int | None = None
    """The first thread it happened to, counted over the whole grid."""
    array: str = ""
    mistake: bool = True
    """False where the kernel may mean it."""
    blocks: tuple[int, ...] = ()
    """The numbers of the blocks of a race."""

    def __str__(self) -> str:
        what = "addresses" if self.kind == "race" else "times"
        more = f" ({self.count:,} {what}.)" if self.count > 1 else ""
        kind = self.kind if self.mistake else f"note: {self.kind}"
        place = f"line {self.line}: " if self.line else ""
        return f"[{kind}] {place}{self.words}{more}"


def find_mistakes(
    run: Execution, again: Callable[[Any], object], numbers: Collection[int] = ()
) -> tuple[Finding, ...]:
    """The findings of `run`; `again(watch)` repeats it from the same inputs, to look up
    the values of a race. `numbers` are the launch's integer arguments.
    """
    conflicts = races(run.pieces, lambda: run.events, run.sites)
    events = {int(at) for race in conflicts for at in race.accesses.at}
    stored = stored_values(events, again)
    mistakes = conflicts
    kinds = run.pieces.log.kinds
    if any((kinds[race.accesses.site] == Access.STORE).all() for race in conflicts):
        # examples show values that differ
        mistakes = races(run.pieces, lambda: run.events, run.sites, stored.of)
    lines = {race.lines for race in mistakes}
    harmless = [race for race in conflicts if race.lines not in lines]
    values = stored.values
    findings = [
        *_met(run),
        *(_race_finding(run, race, values, mistake=True) for race in mistakes),
        *(_race_finding(run, race, values, mistake=False) for race in harmless),
        *_unset_findings(run),
        *_overlap_findings(run),
    ]
    if not run.diagnostics.ended:
        findings += _untouched_findings(run)
        findings += _unwritten_findings(run, numbers)
    return tuple(findings)


def _met(run: Execution) -> Iterator[Finding]:
    """The mistakes met while the kernel ran, in that order."""
    for (kind, line, array), (count, words, thread) in run.diagnostics.mistakes.items():
        named = "outside" if kind == FROM_END else kind
        yield Finding(named, line, words, count, thread, array, kind not in NOTED)


def order_matters(run: Execution, findings: tuple[Finding, ...]) -> bool:
    """Whether a run with these findings could leave something else behind in another
    order of its threads.

    Without races only atomics can bring that about, and among them not those that do
    one thing, like adding, and give the old value to nobody. A run that ended early, or
    has a race, has to be mended first.
    """
    has_race = any(finding.kind == "race" and finding.mistake for finding in findings)
    if run.diagnostics.ended or has_race:
        return False
    atomics = {
        (_SAME.get(site.call, site.call), site.used)
        for site in run.sites
        if site.kind == "atomic"
    }
    return len(atomics) > 1 or any(
        used or call in _LAST_ONE_COUNTS for call, used in atomics
    )


_SAME = {"atomic.sub": "atomic.add"}
_LAST_ONE_COUNTS = ("atomic.exch", "atomic.cas", "atomic.inc", "atomic.dec")


def _race_finding(
    run: Execution, race: Race, values: dict[int, Any], *, mistake: bool
) -> Finding:
    """A race; no mistake where all stores of its lines bring the same value."""
    both = race.accesses
    sites = [run.sites[site] for site in both.site]
    region, element = run.region_of(int(both.address[0]))
    parts = []
    for site, at, thread, what in zip(
        sites, both.at.tolist(), both.thread.tolist(), (element, "it"), strict=True
    ):
        value = _value_text(values[at]) if at in values else ""
        act = _act(site.kind, value, what)
        if value and site.kind == "load" and _is_unwritten(run, both, at):
            act = f"reads the unwritten {what}"
        parts.append(f"{run.settings.where(thread)} {act} (line {site.line})")
    why = _why_unordered(run, both)
    more = "" if mistake else SAME_VALUE
    if mistake and _is_one_change(run, both, sites):
        more = CHANGE_AT_ONCE
    return Finding(
        "race",
        sites[1].line,
        f"{parts[0]}, {parts[1]}; {why}, so either can come first.{more}",
        race.addresses,
        int(both.thread[1]),
        region.name if region else "",
        mistake,
        blocks=tuple(both.block.tolist()),
    )


def _is_unwritten(run: Execution, both: Events, at: int) -> bool:
    """Whether an access of a race reads shared memory that its block has not written
    before.
    """
    if not both.shared.any():
        return False
    there = run.pieces.only(run.pieces.address == both.address[0])
    block = both.block[both.at == at][0]
    before = there.only((there.block == block) & (there.at < at))
    return not before.write.any()


def _why_unordered(run: Execution, both: Events) -> str:
    why = _what_is_missing(run, both)
    order = Ordering(lambda: run.events, run.sites, fenced=True)
    one, other = (both.only(np.array([number])) for number in range(2))
    if order.after(one, other).all():
        why += ", and the atomic or flag between them orders nothing without a"
        why += " threadfence before it"
    return why


def _what_is_missing(run: Execution, both: Events) -> str:
    if both.block[0] != both.block[1]:
        return "blocks run in any order"
    warps = both.thread % math.prod(run.settings.block) // WARP
    if warps[0] == warps[1]:
        return "both are in one warp, and no barrier or syncwarp lies between"
    return "no barrier lies between"


def _is_one_change(run: Execution, both: Events, sites: list[Site]) -> bool:
    """Whether each of the threads reads and writes the element in one statement, as
    `x[0] += 1` does.
    """
    kinds = {site.kind for site in sites}
    places = {(site.line, site.text) for site in sites}
    if kinds != {"load", "store"} or len(places) != 1:
        return False
    there = run.pieces.only(run.pieces.address == both.address[0])
    return all(
        len(np.unique(there.write[there.thread == thread])) == 2
        for thread in both.thread
    )


def _act(kind: str, value: str, element: str) -> str:
    """What an access does; without a value where that isn't known."""
    if kind == "load":
        return f"reads {value} from {element}" if value else f"reads {element}"
    if kind == "store":
        return f"writes {value} to {element}" if value else f"writes {element}"
    changes = f"changes {value}" if value else "changes"
    return f"{changes} {element} atomically"


def _value_text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def _unset_findings(run: Execution) -> list[Finding]:
    if not run.layout.regions or run.program.lanes:  # in lockstep there are none
        return []
    findings: dict[tuple[int, str], Finding] = {}
    unset = unset_reads(run.pieces)
    for site in np.unique(unset.site):
        reads = unset.only(unset.site == site)
        thread = int(reads.thread[0])
        region, element = run.region_of(int(reads.address[0]))
        words = (
            f"{run.settings.where(thread)} reads {element} before any thread of its"
            " block wrote it."
        )
        line = run.sites[site].line
        name = region.name if region else ""
        one = Finding("unset", line, words, len(reads), thread, name)
        first = findings.setdefault((line, name), one)
        if first is not one:
            findings[line, name] = replace(first, count=first.count + one.count)
    return list(findings.values())


def _overlap_findings(run: Execution) -> Iterator[Finding]:
    for line, words, access, count in overlaps(run):
        region, _ = run.region_of(int(access.address[0]))
        name = region.name if region else ""
        yield Finding("overlap", line, words, count, int(access.thread[0]), name)


def _untouched_findings(run: Execution) -> Iterator[Finding]:
    """Arrays of which no element is accessed, though the kernel has a line that writes
    them, or none that uses them.

    The former may be meant, unless no thread does anything: there may have been no
    occasion to write.
    """
    address = run.pieces.address
    for region in run.memory.regions:
        if region.space != "global" or not region.array.size:
            continue
        name = re.compile(rf"\b{re.escape(region.name.partition('[')[0])}\b")
        kinds = {site.kind for site in run.sites if name.search(site.text)}
        uses = kinds & {"load", "store", "atomic", "call"}
        if uses and not run.settings.blocks.all_run:
            continue
        low, high = region.span
        near = address[(address >= low) & (address < high)]
        if uses == {"load"} or (region.elements(near) >= 0).any():
            continue
        words = f"no thread reads or writes an element of {region.name}"
        words += "." if uses else ", and no line does."
        mistake = not uses or not len(run.pieces)
        yield Finding("untouched", 0, words, array=region.name, mistake=mistake)


def _unwritten_findings(run: Execution, numbers: Collection[int]) -> Iterator[Finding]:
    """Outputs with elements that nobody writes."""
    for region, left, mistake in unwritten(run, numbers):
        first = region.element(int(np.argmax(left)))
        words = (
            f"{np.count_nonzero(left):,} of the {left.size:,} elements of"
            f" {region.name} are never written, the first is {first}."
        )
        yield Finding("unwritten", 0, words, array=region.name, mistake=mistake)


def find_differences(
    first: Mapping[str, Array], other: Mapping[str, Array]
) -> list[Finding]:
    """The arrays, by name, in which two runs of different schedules left different
    results.
    """
    findings = []
    for name, array in first.items():
        if array.dtype.names or array.dtype.kind not in "fiubc":
            continue
        tolerance = 0.0
        if array.dtype.kind in "fc":
            tolerance = TOLERANCES.get(array.dtype.itemsize, 1e-9)
        scale = float(np.abs(array).max(initial=0.0, where=np.isfinite(array)))
        again = other[name]
        is_close = functools.partial(
            np.isclose, rtol=tolerance, atol=tolerance * scale, equal_nan=True
        )
        differ = ~is_close(array, again)
        if differ.any():
            at = tuple(np.argwhere(differ)[0].tolist())
            place = f"{name}[{', '.join(map(str, at))}]"
            words = (
                f"{place} is {_value_text(array[at])} with the threads in order and"
                f" {_value_text(again[at])} in another order: the result depends on"
                f" which thread comes first, in {int(differ.sum()):,} elements."
            )
            in_order = np.sort(array, None), np.sort(again, None)
            mistake = not is_close(*in_order).all()
            if not mistake:
                words += " The values are the same in another order."
            findings.append(Finding("order", 0, words, array=name, mistake=mistake))
    return findings
