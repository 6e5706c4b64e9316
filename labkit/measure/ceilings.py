"""Measured ceilings of this machine: what no program here should beat. Measured once and kept with their conditions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.core import results
from labkit.core.arguments import wrong_field
from labkit.core.display import Shown, Table
from labkit.core.errors import BadMeasurement, UnknownDevice, nearest
from labkit.core.units import format_si
from labkit.measure import catalog, probe
from labkit.measure.bench import Clock, sync_of
from labkit.measure.machine import check_threads, machine
from labkit.measure.machine import threads as using_threads
from labkit.measure.probe import Ceiling, SelfCheck, Sizes

_NO_FLOAT16 = "never timed on a CPU: where the hardware lacks it, a matmul takes hundreds of times float32's time."
_HEADER = ("", "Ceiling", "Quartiles", "At", "Readings", "Data sheet")


@dataclass(frozen=True, repr=False)
class Ceilings(Shown):
    """Highest rates measured on `device`: a copy in B/s, and a matmul per dtype in FLOP/s.

    A ceiling is the best median over a few shapes. `peaks` are the data sheet's, in the same units and under the same
    names ('copy', 'float32'), None where unknown. `remarks` say why something is missing or in doubt, `conditions`
    under what it was measured, `note` where it could not be kept. `threads` is None on a GPU.
    """

    device: str
    threads: int | None
    copy: Ceiling
    matmul: dict[str, Ceiling]
    checks: tuple[SelfCheck, ...]
    peaks: dict[str, float | None]
    remarks: dict[str, str]
    conditions: dict[str, str]
    when: str
    note: str = field(default="", compare=False)

    @property
    def copy_bytes_per_s(self) -> float:
        """Bytes read plus bytes written a second when a large tensor is copied."""
        return self.copy.value

    @property
    def matmul_flop_per_s(self) -> dict[str, float]:
        """FLOP/s of a matmul by dtype name; dtypes that weren't measured are absent."""
        return {dtype: ceiling.value for dtype, ceiling in self.matmul.items()}

    def limit(self, dtype: object) -> float | None:
        """FLOP/s that a matmul in `dtype` ('float32' or torch.float32) reached; None if it wasn't measured here."""
        ceiling = self.matmul.get(_dtype_name(dtype))
        return None if ceiling is None else ceiling.value

    def peak(self, what: object) -> float | None:
        """The data sheet's figure for a dtype, in FLOP/s, or for 'copy', in B/s; None where unknown."""
        return self.peaks.get("copy" if what == "copy" else _dtype_name(what))

    def __str__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def _table(self) -> Table:
        return Table(tuple(self._rows()), _HEADER, self._title(), tuple(self._below()))

    def _title(self) -> str:
        with_threads = "" if self.threads is None else f", {self.threads} thread{'s' * (self.threads != 1)}"
        return f"Measured ceilings of {self.device}{with_threads}"

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [("copy (read + write)", self.copy, self.peak("copy"))]
        rows += [(f"matmul {dtype}", ceiling, self.peak(dtype)) for dtype, ceiling in self.matmul.items()]
        return [(label, *_cells(ceiling), _peak_cell(ceiling, peak)) for label, ceiling, peak in rows]

    def _below(self) -> Iterator[str]:
        yield from map(str, self.checks)
        yield from (f"{what}: {why}" for what, why in self.remarks.items())
        if self.note:
            yield self.note


def measure_ceilings(*, threads: int | None = None, remeasure: bool = False) -> Ceilings:
    """The ceilings of this machine's device, measured in a few seconds the first time and then kept.

    With `threads` it is the CPU with so many torch threads, on a machine with a GPU too; without, the GPU, or the
    CPU with torch's threads but no more than usable_cores(). They are measured again when torch, the driver, the
    device, the threads, the sizes or the data sheet's figures change, or on `remeasure`; else a kernel is always given
    the same ones. A failed self-check is shown, not raised. Raises BadMeasurement for fewer than 1 thread.
    """
    import torch

    if threads is not None:
        check_threads(threads)
    here = machine()
    device = "cpu" if threads is not None else here.device
    if device == "cpu":
        threads = min(torch.get_num_threads(), here.cores) if threads is None else threads
        name, memory = here.cpu_name, here.memory_bytes
    else:
        name, memory = here.gpus[0].name, here.gpus[0].memory_bytes
    sizes = probe.sizes_for(device, memory_bytes=memory, profile=results.profile())
    peaks, remark = _peaks(device, name)
    conditions = {
        "device": name,
        "threads": str(threads),
        "sizes": str(dataclasses.astuple(sizes)),
        "data sheet": json.dumps(peaks),
        **{k: v for k, v in here.versions.items() if k in ("torch", "cuda", "driver")},
    }
    store = _store_at(results.state_folder() / "ceilings.json")
    kept = None if remeasure else store.find(conditions)
    if kept is not None:
        return kept
    with using_threads(threads) if threads is not None else contextlib.nullcontext():
        copy, matmul, checks, remarks = measure(device, here.flags, sizes)
    checks = (*checks, probe.peak_check({"copy": copy, **matmul}, peaks, remark))
    return store.keep(Ceilings(name, threads, copy, matmul, checks, peaks, remarks, conditions, results.now()))


def measure(
    device: str, flags: tuple[str, ...], sizes: Sizes, *, clock: Clock = time.perf_counter
) -> tuple[Ceiling, dict[str, Ceiling], tuple[SelfCheck, ...], dict[str, str]]:
    """Measure 'cpu' or 'cuda': the copy, each dtype's matmul, the doubling checks, and why something is missing."""
    sync = sync_of(device)
    copy, copy_check = probe.copy_ceiling(device, sizes, sync=sync, clock=clock)
    remarks = probe.copy_remarks(device, sizes)
    if remarks:  # with a cache that large, twice the bytes need not take twice the time
        copy_check = dataclasses.replace(copy_check, passed=None)
    checks = [copy_check]
    matmul: dict[str, Ceiling] = {}
    crowds = [probe.crowd()]
    for dtype in probe.DTYPES[device]:
        crowds.append(probe.crowd())
        if reason := probe.unsuited(device, dtype, flags, clock):
            remarks[dtype] = reason
        elif (found := probe.matmul_ceiling(device, dtype, sizes, sync=sync, clock=clock)) is not None:
            matmul[dtype] = found
        else:
            remarks[dtype] = "the device has too little free memory for the smallest shape."
    if device == "cpu":
        remarks["float16"] = _NO_FLOAT16
    if "float32" in matmul:
        n = matmul["float32"].size
        checks.append(probe.matmul_doubling(device, n, sync=sync, budget_s=sizes.budget_s, clock=clock))
    if device == "cpu" and (crowd := statistics.median_low(crowds)) > (os.cpu_count() or 1):
        remarks["busy"] = f"{crowd} threads wanted {os.cpu_count()} cores meanwhile, so these ceilings may be too low."
    return copy, matmul, tuple(checks), remarks


def doubt(found: Ceilings) -> str:
    """Why these ceilings shouldn't outlive this kernel; empty when they may."""
    if "busy" in found.remarks:
        return "the machine was busy"
    return "a self-check failed" if any(check.passed is False for check in found.checks) else ""


class Store:
    """A file of ceilings, one for each device, number of threads and size, that several kernels may share.

    What a kernel was given it is given again, whatever others measure; in memory where the file can't be written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._given = path, list[Ceilings]()

    def find(self, conditions: dict[str, str]) -> Ceilings | None:
        """What was measured under exactly these conditions, or None."""
        entries = [*self._given, *self._read()[0]]
        found = next((entry for entry in entries if entry.conditions == conditions), None)
        return None if found is None else self._give(found)

    def keep(self, new: Ceilings) -> Ceilings:
        """Write it in place of older ones of the same device, threads and sizes; `note` says what went wrong."""
        note = self._read()[1]
        if reason := doubt(new):
            note += f" Not kept on disk, because {reason}: measured again in the next kernel."
        else:
            try:
                self._write(new)
            except OSError as error:
                note += (
                    f" Ceilings can't be written to {self.path} ({type(error).__name__}), so they stay in memory and "
                    "are measured again in the next kernel. Set LABKIT_HOME to a folder you can write to."
                )
        return self._give(dataclasses.replace(new, note=note.strip()))

    def _give(self, entry: Ceilings) -> Ceilings:
        self._given = [entry, *(other for other in self._given if other.conditions != entry.conditions)]
        return entry

    def _write(self, new: Ceilings) -> None:
        import filelock

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{self.path}.lock", timeout=10):
            entries = [*(entry for entry in self._read()[0] if _slot(entry) != _slot(new)), new]
            # Renamed into place, so that a kernel that reads meanwhile never sees half a file.
            scratch = self.path.with_suffix(f".{os.getpid()}.tmp")
            scratch.write_text(json.dumps([dataclasses.asdict(entry) for entry in entries], indent=1))
            scratch.replace(self.path)

    def _read(self) -> tuple[list[Ceilings], str]:
        try:
            text = self.path.read_bytes()
        except OSError:
            return [], ""
        try:
            found = json.loads(text)
            if not isinstance(found, list):
                raise TypeError(f"expected a list, got {type(found).__name__}")
            return [_from_fields(fields) for fields in found], ""
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            return [], f"{self.path} was damaged ({reason}), so everything in it is measured again."


@functools.cache
def _store_at(path: Path) -> Store:
    return Store(path)


def _slot(entry: Ceilings) -> tuple[str, ...]:
    return tuple(entry.conditions[key] for key in ("device", "threads", "sizes"))


def _from_fields(fields: dict[str, Any]) -> Ceilings:
    parts: dict[str, Any] = {
        "copy": _whole(Ceiling(**fields["copy"])),
        "matmul": {dtype: _whole(Ceiling(**ceiling)) for dtype, ceiling in fields["matmul"].items()},
        "checks": tuple(_whole(SelfCheck(**check)) for check in fields["checks"]),
        "note": "",
    }
    found: Ceilings = _whole(Ceilings(**{**fields, **parts}))
    if found.matmul and all(_slot(found)):
        return found
    raise ValueError("a matmul or a condition is missing")


def _whole(found: Any) -> Any:
    """It itself; TypeError where a field is not what its annotation says."""
    if wrong := wrong_field(found):
        raise TypeError(f"expected {wrong}")
    return found


def _peaks(device: str, name: str) -> tuple[dict[str, float | None], str]:
    """The data sheet's figures, and a sentence for when there are none."""
    if device == "cpu":
        return {}, "The catalogue holds no CPUs, so no peak is known to compare with."
    try:
        row = catalog.find(name)
    except UnknownDevice:
        return {}, f"{name} is not in the catalogue, so its data-sheet peaks are unknown (None)."
    return {"copy": row.bandwidth_bytes_per_s, **{d: catalog.peak(row, d) for d in probe.DTYPES["cuda"]}}, (
        f"The catalogue holds {name}, but none of these figures."
    )


def _dtype_name(dtype: object) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in probe.DTYPES["cuda"]:
        close = nearest(name, probe.DTYPES["cuda"])
        raise BadMeasurement(
            f"Expected the name of a dtype that ceilings know, got {name!r}. Nearest: {', '.join(close)}."
        )
    return name


def _cells(ceiling: Ceiling) -> tuple[str, str, str, str]:
    quartiles = f"{format_si(ceiling.low, ceiling.unit)} to {format_si(ceiling.high, ceiling.unit)}"
    return format_si(ceiling.value, ceiling.unit), quartiles, ceiling.at, str(ceiling.runs)


def _peak_cell(ceiling: Ceiling, peak: float | None) -> str:
    return "unknown" if peak is None else f"{ceiling.value / peak:.0%} of {format_si(peak, ceiling.unit)}"
