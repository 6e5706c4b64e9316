"""The ceilings of this machine, rates that no program here should beat: measured once,
kept with their conditions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufacts import UnknownDevice
from labkit.core import results
from labkit.core.arguments import dtype_name, lookup
from labkit.core.display import ShownAsTable, Table
from labkit.core.locked_file import Lines, append_line
from labkit.core.parameters import Dtype, checked
from labkit.core.units import format_si
from labkit.measure import catalog, host
from labkit.measure.contention import CELLS, Contention, Watch
from labkit.measure.machine import Threads, machine, threads as using_threads
from labkit.measure.probe import (
    DTYPES,
    Ceiling,
    Probe,
    SelfCheck,
    peak_check,
    sizes_for,
)
from labkit.measure.readings import Clock
from labkit.measure.turns import turn

_NO_FLOAT16 = (
    "never timed on a CPU: where the hardware lacks it, a matmul takes hundreds of"
    " times float32's time."
)


@checked
@dataclass(frozen=True, repr=False)
class MachineCeilings(ShownAsTable):
    """The highest rates measured on `device`: of a copy in B/s, and of a matmul in
    FLOP/s by dtype.

    `peaks` are the data sheet's, in the same units, by 'copy' and dtype; None if
    unknown. `remarks` say why a rate is missing or in doubt, `conditions` what it was
    measured under, `note` why it could not be kept. `threads` is None on a GPU.
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
        """Bytes read plus bytes written per second when a large tensor is copied."""
        self._note_use()
        return self.copy.value

    @property
    def matmul_flop_per_s(self) -> dict[str, float]:
        """FLOP/s of a matmul by dtype; dtypes that weren't measured are absent."""
        self._note_use()
        return {dtype: ceiling.value for dtype, ceiling in self.matmul.items()}

    def _note_use(self) -> None:
        """Mark numbers that the running cell derives from ceilings that were measured
        on a busy machine.
        """
        CELLS.note(Contention(None, self.remarks.get("busy", "")))

    @checked
    def limit(self, dtype: Dtype) -> float | None:
        """FLOP/s that a matmul reached in `dtype` ('float32' or torch.float32); None if
        it wasn't measured.
        """
        return self.matmul_flop_per_s.get(_known_dtype(dtype))

    @checked
    def peak(self, what: Dtype) -> float | None:
        """The data sheet's peak for a dtype, in FLOP/s, or for 'copy', in B/s; None if
        unknown.
        """
        return self.peaks.get("copy" if what == "copy" else _known_dtype(what))

    def table(self) -> Table:
        """A row for each ceiling, with quartiles and its share of the data sheet's
        peak; below, what is in doubt.
        """
        title = f"Measured ceilings of {self.device}"
        if self.threads is not None:
            title += ", 1 thread" if self.threads == 1 else f", {self.threads} threads"
        rows = [("copy (read + write)", *_cells(self.copy, self.peak("copy")))]
        rows += [
            (f"matmul {dtype}", *_cells(ceiling, self.peak(dtype)))
            for dtype, ceiling in self.matmul.items()
        ]
        # a CPU has no data sheet to check against
        doubtful = (False, None) if self.threads is None else (False,)
        notes = [str(check) for check in self.checks if check.passed in doubtful]
        notes += [
            f"{what}: {why}"
            for what, why in self.remarks.items()
            if what not in DTYPES["cuda"]
        ]
        if self.note:
            notes.append(self.note)
        head = ("", "Ceiling", "Quartiles", "At", "Readings", "Data sheet")
        return Table(tuple(rows), head, title, tuple(notes))


@checked
def measure_ceilings(
    *, threads: Threads | None = None, remeasure: bool = False
) -> MachineCeilings:
    """The ceilings of this machine's device: measured in a few seconds the first time,
    then kept on disk.

    `threads` selects the CPU with that many torch threads, even if there is a GPU. None
    selects the GPU, or the CPU with torch's threads, but no more than usable_cores(). A
    change of torch, driver, device, threads, sizes, power (its limit, mains or battery)
    or the data sheet's peaks, or `remeasure`, makes them be measured again; otherwise a
    kernel always gets the same ones. A failed self-check is shown, not raised. Raises
    BadArgument for fewer than 1 thread.
    """
    import torch

    here = machine()
    device = "cpu" if threads is not None else here.device
    if device == "cpu":
        if threads is None:
            threads = min(torch.get_num_threads(), here.cores)
        name = here.cpu_name
        memory = here.memory_bytes
    else:
        name = here.gpus[0].name
        memory = here.gpus[0].memory_bytes
    sizes = sizes_for(device, memory_bytes=memory, profile=results.profile())
    peaks, remark = _peaks(device, name, memory)
    conditions = {
        "device": name,
        "threads": str(threads),
        "sizes": str(dataclasses.astuple(sizes)),
        "data sheet": json.dumps(peaks),
        **{
            name: version
            for name, version in here.versions.items()
            if name in ("torch", "cuda", "driver")
        },
        **host.power(gpu=device != "cpu"),
    }
    store = _store_at(results.state_folder() / "ceilings.jsonl")
    if not remeasure and (kept := store.find(conditions)):
        return kept
    with (
        turn(),
        using_threads(threads) if threads is not None else contextlib.nullcontext(),
    ):
        # another notebook measured while this one waited
        if not remeasure and (kept := store.find(conditions)):
            return kept
        probe = Probe(device, sizes, _clock(device))
        copy, matmul, checks, remarks = measure(probe, here.flags)
    checks = (*checks, peak_check({"copy": copy, **matmul}, peaks, remark))
    ceilings = MachineCeilings(
        device=name,
        threads=threads,
        copy=copy,
        matmul=matmul,
        checks=checks,
        peaks=peaks,
        remarks=remarks,
        conditions=conditions,
        when=results.now(),
    )
    return store.keep(ceilings)


def _clock(device: str) -> Clock:
    """That by which steptime times operators: on a CPU, what other programs take of
    this thread's core doesn't count. A rate by another clock is no ceiling of theirs.
    """
    if device != "cpu":
        return time.perf_counter
    from steptime import Clock

    return Clock()


def measure(
    probe: Probe, flags: tuple[str, ...]
) -> tuple[Ceiling, dict[str, Ceiling], tuple[SelfCheck, ...], dict[str, str]]:
    """Measure copy, matmul by dtype and doubling checks; the last dict says why one is
    missing or in doubt.
    """
    watch = Watch(gpu=probe.device != "cpu")
    probe.settle()
    copy, copy_check = probe.copy()
    remarks = {}
    if remark := probe.cache_remark():
        remarks["copy"] = remark
        why = "From a cache, twice the bytes need not take twice the time."
        copy_check = dataclasses.replace(copy_check, passed=None, detail=why)
    checks = [copy_check]
    matmul: dict[str, Ceiling] = {}
    for dtype in DTYPES[probe.device]:
        if reason := probe.unsuited(dtype, flags):
            remarks[dtype] = reason
        elif (ceiling := probe.matmul(dtype)) is not None:
            matmul[dtype] = ceiling
        else:
            remarks[dtype] = (
                "the device has too little free memory for the smallest shape."
            )
    if probe.device == "cpu":
        remarks["float16"] = _NO_FLOAT16
    if "float32" in matmul:
        checks.append(probe.matmul_doubling(matmul["float32"].n))
    if probe.device != "cpu" and (state := host.gpu_state()):
        clock, most, power, limit, heat = (state[name] for name in host.GPU_STATE)
        again = (
            "Another clock has other ceilings: lab.measure_ceilings(remeasure=True)."
        )
        remarks["clock"] = (
            f"{clock} of {most}, {power} of {limit}, {heat} °C at the end. {again}"
        )
    if reason := watch.so_far().reason:
        remarks["busy"] = f"{reason}, so these ceilings may be too low."
    return copy, matmul, tuple(checks), remarks


class Store:
    """A file of ceilings, one a line, that several kernels share; in memory if the file
    can't be written.

    A kernel always gets the same ceilings for the same conditions, whatever other
    kernels measure meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._in_use = list[MachineCeilings]()  # the latest first
        self._lines = Lines(path, _from_line, own=True)

    def find(self, conditions: dict[str, str]) -> MachineCeilings | None:
        """The latest ceilings measured under exactly these conditions, or None."""
        kept, _ = self._lines.read()
        for ceilings in (*self._in_use, *reversed(kept)):
            if ceilings.conditions == conditions:
                self._in_use.insert(0, ceilings)
                return ceilings
        return None

    def keep(self, new: MachineCeilings) -> MachineCeilings:
        """Write new ceilings to the file, and give them from now on; their `note` says
        what went wrong.
        """
        _, notes = self._lines.read()
        reason = ""
        if "busy" in new.remarks:
            reason = "the machine was busy"
        elif any(check.passed is False for check in new.checks):
            reason = "a self-check failed"
        if reason:
            notes.append(
                f"Not kept on disk, because {reason}: measured again in the next"
                " kernel."
            )
        else:
            try:
                append_line(self.path, json.dumps(dataclasses.asdict(new)))
            except OSError as error:
                notes.append(
                    f"Ceilings can't be written to {self.path}"
                    f" ({type(error).__name__}), so they stay in memory and are"
                    " measured again in the next kernel. Set LABKIT_HOME to a folder"
                    " you can write to."
                )
        kept = dataclasses.replace(new, note=" ".join(notes))
        self._in_use.insert(0, kept)
        return kept


# one per file: it remembers what this kernel was given
_store_at = functools.cache(Store)


def _from_line(line: str) -> MachineCeilings:
    """Ceilings from a line of JSON; raises ValueError if a field is missing or of a
    wrong type.
    """
    try:
        fields: dict[str, Any] = json.loads(line)
        fields["copy"] = Ceiling(**fields["copy"])
        fields["matmul"] = {
            dtype: Ceiling(**ceiling) for dtype, ceiling in fields["matmul"].items()
        }
        fields["checks"] = tuple(SelfCheck(**check) for check in fields["checks"])
        ceilings = MachineCeilings(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not ceilings.matmul:
        raise ValueError("no matmul was measured")
    return ceilings


def _peaks(
    device: str, name: str, memory_bytes: int
) -> tuple[dict[str, float | None], str]:
    """The data sheet's peaks, and why there are none."""
    if device == "cpu":
        return {}, "The catalog holds no CPUs, so no peak is known to compare with."
    try:
        row = catalog.find(name, memory_bytes)
    except UnknownDevice:
        remark = (
            f"{name} is not in the catalog, so its data-sheet peaks are unknown (None)."
        )
        return {}, remark
    peaks = {dtype: catalog.peak(row, dtype) for dtype in DTYPES["cuda"]}
    remark = f"The catalog holds {name}, but none of these peaks."
    return {"copy": row.bandwidth_bytes_per_s, **peaks}, remark


def _known_dtype(dtype: Any) -> str:
    return lookup(dtype_name(dtype), {name: name for name in DTYPES["cuda"]}, "dtype")


def _cells(ceiling: Ceiling, peak: float | None) -> tuple[str, ...]:
    value, low, high = (
        format_si(rate, ceiling.unit)
        for rate in (ceiling.value, ceiling.low, ceiling.high)
    )
    share = "unknown"
    if peak is not None:
        share = f"{ceiling.value / peak:.0%} of {format_si(peak, ceiling.unit)}"
    return value, f"{low} to {high}", ceiling.at, str(ceiling.runs), share
