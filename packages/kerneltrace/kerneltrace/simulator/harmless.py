"""Which races leave no trace: whatever thread comes first, the same values are read and
are left behind.

NVIDIA's racecheck, too, calls two writes of one value no error ("Compute Sanitizer",
"Racecheck Tool").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.judge.equal_stores import stored_values
from kerneltrace.machine.events import Events
from kerneltrace.machine.execution import Execution


class _Access(NamedTuple):
    thread: int
    is_write: bool
    value: Any


def without_effect(
    run: Execution, again: Callable[[Any], object], arrays: set[str]
) -> set[str]:
    """Those of the `arrays` in which no race of `run` can change a value.

    `again(watch)` repeats the run from the same inputs. Every element that several
    threads access, one of them to write, has to pass, also where barriers order them.
    """
    shared = {
        region.name: _shared_elements(run.pieces.reaching(region)[0])
        for region in run.regions
        if region.name in arrays
    }
    moments = {int(at) for accesses in shared.values() for at in accesses.at}
    values = stored_values(moments, again).values
    return {
        name
        for name, accesses in shared.items()
        if len(accesses) and _has_no_effect(accesses, values)
    }


def _shared_elements(accesses: Events) -> Events:
    """The accesses to addresses that one thread writes and another one accesses."""
    address, number = np.unique(accesses.address, return_inverse=True)
    first_thread = np.full(len(address), np.iinfo(np.int64).max)
    last_thread = np.full(len(address), -1)
    np.minimum.at(first_thread, number, accesses.thread)
    np.maximum.at(last_thread, number, accesses.thread)
    is_written = np.zeros(len(address), bool)
    is_written[number[accesses.write]] = True
    is_shared = is_written & (first_thread < last_thread)
    shared: Events = accesses.only(is_shared[number])
    return shared


def _has_no_effect(accesses: Events, values: dict[int, Any]) -> bool:
    by_address: dict[int, list[_Access]] = {}
    order = np.argsort(accesses.at, kind="stable")
    for i in order.tolist():
        at = int(accesses.at[i])
        if at not in values:  # an atomic, or an array's view
            return False
        access = _Access(int(accesses.thread[i]), bool(accesses.write[i]), values[at])
        by_address.setdefault(int(accesses.address[i]), []).append(access)
    return all(map(_is_settled, by_address.values()))


def _is_settled(accesses: list[_Access]) -> bool:
    """Whether all threads write one value last to an element, and whoever reads it has
    written that value before, while others write nothing else.

    `accesses` are in the order of the run, in which those of a thread are in theirs.
    """
    last: dict[int, Any] = {}
    for access in accesses:
        if access.is_write:
            last[access.thread] = access.value
    settled, *others = last.values()
    if not all(_is_same(settled, other) for other in others):
        return False
    unsettled = {
        access.thread
        for access in accesses
        if access.is_write and not _is_same(access.value, settled)
    }
    own: dict[int, Any] = {}
    for access in accesses:
        if access.is_write:
            own[access.thread] = access.value
            continue
        thread = access.thread
        has_written = thread in own and _is_same(own[thread], settled)
        if last.keys() - {thread} and not has_written:
            return False
        if unsettled - {thread}:
            return False
    return True


def _is_same(a: Any, b: Any) -> bool:
    """Whether two values are equal; NaN equals itself here."""
    return bool(a == b) or bool(a != a and b != b)
