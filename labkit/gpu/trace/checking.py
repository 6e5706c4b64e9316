"""The mistakes of a run in words: those met while it ran, and those that its log shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.gpu.trace.diagnostics import Finding
from labkit.gpu.trace.given import Arguments
from labkit.gpu.trace.log import Log
from labkit.gpu.trace.races import Race, races, unset_reads, unwritten
from labkit.gpu.trace.running import Run

CLOSE = {2: 1e-2, 4: 1e-4, 8: 1e-9}
"""Relative differences that another order makes in sums of thousands of floating-point numbers, by bytes a number."""


def check(run: Run, again: Callable[[Any], object]) -> tuple[Finding, ...]:
    """Findings of `run`. `again(watch)` repeats it from the same inputs, to look up the values of a race."""
    found = races(run.accesses, lambda: run.events, run.sites)
    values = _watched({int(at) for race in found for at in race.accesses.at}, again)
    ended = any(kind in ("raised", "deadlock", "endless") for kind, *_ in run.diagnostics.found)
    return (
        *run.diagnostics.findings(),
        *(_race(run, race, values) for race in found),
        *_unset(run),
        *(() if ended else _unwritten(run)),
    )


def _watched(events: set[int], again: Callable[[Any], object]) -> dict[int, Any]:
    """The values read or written at some places of the log, from a second run. Atomics have none."""
    values: dict[int, Any] = {}

    def watch(log: Log) -> Any:
        def wrap(_: Any, ld: Any, st: Any) -> Any:
            def loaded(index: Any, key: int) -> Any:
                at = len(log.words)
                value = ld(index, key)
                if at in events and len(log.words) == at + 2:  # a view logs nothing
                    values[at] = value
                return value

            def stored(index: Any, value: Any, key: int) -> None:
                at = len(log.words)
                st(index, value, key)
                if at in events and len(log.words) == at + 2:
                    values[at] = value

            return loaded, stored

        return wrap

    if events:
        again(watch)
    return values


def _race(run: Run, race: Race, values: dict[int, Any]) -> Finding:
    both = race.accesses
    sites = [run.sites[site] for site in both.site]
    region, element = run.region_of(int(both.address[0]))
    acts = {"load": "reads{}{}", "store": "writes{}{}", "atomic": "changes{}{} atomically"}
    parts = []
    for site, at, thread, what in zip(sites, both.at.tolist(), both.thread.tolist(), (element, "it"), strict=True):
        link = {"load": " from ", "store": " to "}.get(site.kind, " ") if at in values else " "
        value = f" {_plain(values[at])}" if at in values else ""
        parts.append(f"{run.setting.where(thread)} {acts[site.kind].format(value, link + what)} (line {site.line})")
    why = "no barrier lies between" if both.block[0] == both.block[1] else "blocks run in any order"
    brought = [values[at] for at in both.at.tolist() if at in values]
    same = len(brought) == 2 and bool(both.write.all()) and bool(brought[0] == brought[1])
    benign = " Both write the same value this time." if same else ""
    words = f"{parts[0]}, {parts[1]}; {why}, so either can come first.{benign}"
    name = region.name if region else ""
    return Finding("race", sites[1].line, words, race.places, int(both.thread[1]), name)


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def _unset(run: Run) -> list[Finding]:
    reads = unset_reads(run.accesses)
    found = []
    for site in np.unique(reads.site):
        mine = reads.only(reads.site == site)
        thread = int(mine.thread[0])
        region, element = run.region_of(int(mine.address[0]))
        words = f"{run.setting.where(thread)} reads {element} before any thread of its block wrote it."
        line, name = run.sites[site].line, region.name if region else ""
        found.append(Finding("unset", line, words, len(mine), thread, name))
    return found


def _unwritten(run: Run) -> list[Finding]:
    found = []
    for region in run.regions:
        left = unwritten(run.accesses, region)
        if len(left):
            size, name = region.array.size, region.name
            first = region.element(int(left[0]))
            words = f"{len(left):,} of the {size:,} elements of {name} are never written, the first is {first}."
            found.append(Finding("unwritten", 0, words, array=region.name))
    return found


def differences(first: Arguments, other: Arguments) -> list[Finding]:
    """Arrays in which two runs of different schedules left different results."""
    found = []
    for name, array in first.arrays.items():
        if array.dtype.names or array.dtype.kind not in "fiubc":
            continue
        close = CLOSE.get(array.dtype.itemsize, 1e-9) if array.dtype.kind in "fc" else 0.0
        scale = float(np.abs(array).max(initial=0.0, where=np.isfinite(array)))
        differ = ~np.isclose(array, other.arrays[name], rtol=close, atol=close * scale, equal_nan=True)
        if differ.any():
            at = tuple(int(i) for i in np.argwhere(differ)[0])
            place = f"{name}[{', '.join(map(str, at))}]"
            words = (
                f"{place} is {_plain(array[at])} with the threads in order and {_plain(other.arrays[name][at])} in"
                f" another order: the result depends on which thread comes first, in {int(differ.sum()):,} elements."
            )
            found.append(Finding("order", 0, words, array=name))
    return found
