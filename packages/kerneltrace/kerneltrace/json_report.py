"""Put a trace, an estimate and a review into the objects of JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kerneltrace.judge.findings import Finding
from kerneltrace.judge.kernel_trace import Trace
from kerneltrace.tiles.tile_trace import TileTrace


def trace_fields(
    traced: Trace | TileTrace, more_notes: Sequence[Finding]
) -> dict[str, Any]:
    """The fields of a trace."""
    table = traced.by_array() if isinstance(traced, Trace) else traced.table()
    own = ("kernel", "grid", "block", "ok", "findings")
    fields = {name: getattr(traced, name, None) for name in own}
    fields["notes"] = (*traced.notes, *more_notes)
    fields["counts"] = {array: traced.count(array) for array, *_ in table.rows}
    return {name: plain(value) for name, value in fields.items()}


def plain(value: Any) -> Any:
    """A value as JSON has it: objects of a dataclass's fields and properties, null for
    NaN and infinity.
    """
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        for name, member in vars(type(value)).items():
            if isinstance(member, property):
                names.append(name)
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
