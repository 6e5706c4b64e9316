"""Find the mistakes of a run and describe them: those met while it ran, and those that
its log shows.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltrace.judge.races import Race, elements_read, races, unset_reads, unwritten
from kerneltrace.log.address_space import Region
from kerneltrace.log.event_log import EventLog
from kerneltrace.log.execution import Execution
from kerneltrace.log.traced_memory import Array
from kerneltrace.tables import Shown

TOLERANCES = {2: 1e-2, 4: 1e-4, 8: 1e-9}
"""Relative differences that a changed order may make in sums of thousands of floats, by
a float's size in bytes.
"""


@dataclass(frozen=True, repr=False)
class Finding(Shown):
    """One mistake at one place of a kernel."""

    kind: str
    """outside, race, barrier, unset, undefined, deadlock, endless, raised, untouched,
    unwritten, lane, order or printed.
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

    def __str__(self) -> str:
        what = "addresses" if self.kind == "race" else "times"
        more = f" ({self.count:,} {what}.)" if self.count > 1 else ""
        kind = self.kind if self.mistake else f"note: {self.kind}"
        return (
            f"[{kind}] {f'line {self.line}: ' if self.line else ''}{self.words}{more}"
        )


def find_mistakes(
    run: Execution, again: Callable[[Any], object]
) -> tuple[Finding, ...]:
    """The findings of `run`; `again(watch)` repeats it from the same inputs, to look up
    the values of a race.
    """
    found = races(run.pieces, lambda: run.events, run.sites)
    values = _values_at({int(at) for race in found for at in race.accesses.at}, again)
    return (
        *_met(run),
        *(_race_finding(run, race, values) for race in found),
        *_unset_findings(run),
        *(
            ()
            if run.diagnostics.ended
            else (*_untouched_findings(run), *_unwritten_findings(run))
        ),
    )


def _met(run: Execution) -> Iterator[Finding]:
    """The mistakes met while the kernel ran, in that order."""
    for (kind, line, array), (count, words, thread) in run.diagnostics.found.items():
        yield Finding(kind, line, words, count, thread, array, kind != "printed")


def order_matters(run: Execution, found: tuple[Finding, ...]) -> bool:
    """Whether a run in which `found` was found could leave something else behind in
    another order of its threads.

    Without races only atomics can bring that about, and among them not those that do
    one thing, like adding, and give the old value to nobody. A run that ended early, or
    has a race, has to be mended first.
    """
    if run.diagnostics.ended or any(finding.kind == "race" for finding in found):
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


def _values_at(events: set[int], again: Callable[[Any], object]) -> dict[int, Any]:
    """Values read or written by events, given by their first word in the log, from a
    second run. Atomics have none.
    """
    values: dict[int, Any] = {}

    def watch(log: EventLog) -> Any:
        def noting(access: Any) -> Any:
            # a key, or the value to write and a key
            def noted(index: Any, *rest: Any) -> Any:
                at = len(log.words)
                value = access(index, *rest)
                if at in events and len(log.words) == at + 2:  # a view logs nothing
                    values[at] = rest[0] if len(rest) == 2 else value
                return value

            return noted

        return lambda _, ld, st: (noting(ld), noting(st))

    if events:
        again(watch)
    return values


def _race_finding(run: Execution, race: Race, values: dict[int, Any]) -> Finding:
    both = race.accesses
    sites = [run.sites[site] for site in both.site]
    region, element = run.region_of(int(both.address[0]))
    acts = {
        "load": "reads{}{}",
        "store": "writes{}{}",
        "atomic": "changes{}{} atomically",
    }
    parts = []
    for site, at, thread, what in zip(
        sites, both.at.tolist(), both.thread.tolist(), (element, "it"), strict=True
    ):
        link = (
            {"load": " from ", "store": " to "}.get(site.kind, " ")
            if at in values
            else " "
        )
        value = f" {_value_text(values[at])}" if at in values else ""
        parts.append(
            f"{run.settings.where(thread)} {acts[site.kind].format(value, link + what)}"
            f" (line {site.line})"
        )
    why = (
        "no barrier lies between"
        if both.block[0] == both.block[1]
        else "blocks run in any order"
    )
    seen = [values[at] for at in both.at.tolist() if at in values]
    same = len(seen) == 2 and bool(both.write.all()) and bool(seen[0] == seen[1])
    benign = " Both write the same value this time." if same else ""
    words = f"{parts[0]}, {parts[1]}; {why}, so either can come first.{benign}"
    return Finding(
        "race",
        sites[1].line,
        words,
        race.addresses,
        int(both.thread[1]),
        region.name if region else "",
    )


def _value_text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def _unset_findings(run: Execution) -> list[Finding]:
    found: list[Finding] = []
    if not run.layout.regions or run.program.lanes:  # in lockstep there are none
        return found
    reads = unset_reads(run.pieces)
    for site in np.unique(reads.site):
        mine = reads.only(reads.site == site)
        thread = int(mine.thread[0])
        region, element = run.region_of(int(mine.address[0]))
        words = (
            f"{run.settings.where(thread)} reads {element} before any thread of its"
            " block wrote it."
        )
        line = run.sites[site].line
        name = region.name if region else ""
        found.append(Finding("unset", line, words, len(mine), thread, name))
    return found


def _untouched_findings(run: Execution) -> list[Finding]:
    """Arrays of which no element is accessed, though the kernel has a line that writes
    them, or none that uses them.

    The former may be meant, unless no thread does anything: there may have been no
    occasion to write.
    """
    found = []
    for region in (region for region in run.memory.regions if region.space == "global"):
        name = re.compile(rf"\b{re.escape(region.name.partition('[')[0])}\b")
        lines = {site.kind for site in run.sites if name.search(site.text)} & {
            "load",
            "store",
            "atomic",
            "call",
        }
        if (
            region.array.size
            and lines != {"load"}
            and not len(run.pieces.reaching(region)[0])
        ):
            words = (
                "no thread reads or writes an element of"
                f" {region.name}{'.' if lines else ', and no line does.'}"
            )
            mistake = not lines or not len(run.pieces)
            found.append(
                Finding("untouched", 0, words, array=region.name, mistake=mistake)
            )
    return found


def _unwritten_findings(run: Execution) -> list[Finding]:
    """Outputs with elements that nobody writes: a mistake where the inputs at these
    places go unread, too.

    Otherwise the kernel may mean it: a stencil leaves its border, a compaction the end
    of the list.
    """
    found = []
    writes = run.pieces.only(run.pieces.write)
    for region in run.memory.regions:
        left = unwritten(run.pieces, writes, region)
        if len(left):
            size = region.array.size
            name = region.name
            first = region.element(int(left[0]))
            words = (
                f"{len(left):,} of the {size:,} elements of {name} are never written,"
                f" the first is {first}."
            )
            found.append(
                Finding(
                    "unwritten",
                    0,
                    words,
                    array=name,
                    mistake=_uncovered(run, region, left),
                )
            )
    return found


def _uncovered(run: Execution, region: Region, left: Array) -> bool:
    """Whether the threads seem not to cover the data, given the elements of an array
    that nobody writes.
    """
    inputs = [
        (other.array, elements_read(run.pieces, other)) for other in run.memory.regions
    ]
    only_read = [(array, read) for array, read in inputs if read is not None]
    alike = [read for array, read in only_read if array.shape == region.array.shape]
    if alike:
        return not any(np.isin(left, read).any() for read in alike)
    if only_read:
        return any(len(read) < array.size for array, read in only_read)
    # without inputs: the end is missing
    return int(left[0]) == region.array.size - len(left)


def find_differences(
    first: Mapping[str, Array], other: Mapping[str, Array]
) -> list[Finding]:
    """The arrays, by name, in which two runs of different schedules left different
    results.
    """
    found = []
    for name, array in first.items():
        if array.dtype.names or array.dtype.kind not in "fiubc":
            continue
        close = (
            TOLERANCES.get(array.dtype.itemsize, 1e-9)
            if array.dtype.kind in "fc"
            else 0.0
        )
        scale = float(np.abs(array).max(initial=0.0, where=np.isfinite(array)))
        again = other[name]
        same = functools.partial(
            np.isclose, rtol=close, atol=close * scale, equal_nan=True
        )
        differ = ~same(array, again)
        if differ.any():
            ordered = bool(same(np.sort(array, None), np.sort(again, None)).all())
            at = tuple(np.argwhere(differ)[0].tolist())
            place = f"{name}[{', '.join(map(str, at))}]"
            values = _value_text(array[at]), _value_text(again[at])
            words = (
                f"{place} is {values[0]} with the threads in order and {values[1]} in"
                " another order: the result depends on which thread comes first, in"
                f" {int(differ.sum()):,} elements."
            )
            words += " The values are the same in another order." * ordered
            found.append(Finding("order", 0, words, array=name, mistake=not ordered))
    return found
