"""Judge whether a device fits a job, in, out or undecided, and why; and tables of what
was judged.

An asterisk marks a number that was not read from a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufacts import Device, devices, peak
from labkit.core.arguments import dtype_name
from labkit.core.display import Table
from labkit.core.parameters import Dtype, NonNegative, checked
from labkit.core.units import format_seconds, format_si, significant


@checked
@dataclass(frozen=True, kw_only=True)
class Job:
    """One device's work in a training step: bytes held, FLOP, bytes moved, and the
    dtype whose peak applies.
    """

    memory_bytes: NonNegative
    flop: NonNegative
    n_bytes: NonNegative
    dtype: Dtype

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))


@dataclass(frozen=True)
class Candidate:
    """A device judged for a job. `fits` is None if a fact that would decide is unknown;
    `why` says which.

    An asterisk in `why` marks a number that was not read from a source. `step_s` is the
    roofline time of the job's FLOP and bytes, a lower bound if those are minimal;
    `energy_j` is that time at full board power.
    """

    device: Device
    fits: bool | None
    why: tuple[str, ...]
    step_s: float | None
    memory_share: float | None
    energy_j: float | None

    @property
    def verdict(self) -> str:
        """`fits` in a word: in, undecided or out."""
        return {True: "in", None: "undecided", False: "out"}[self.fits]

    @property
    def amounts(self) -> tuple[str, str, str]:
        """Roofline time, share of the memory and energy in words, for a row of a table
        or figure.
        """
        share = self.memory_share
        if share is None:
            share_in_words = "unknown"
        elif share < 0.01:
            share_in_words = "< 1 %"
        else:
            share_in_words = f"{share:.0%}"
        return (
            "unknown" if self.step_s is None else format_seconds(self.step_s),
            share_in_words,
            "unknown" if self.energy_j is None else f"{significant(self.energy_j)} J",
        )

    def __str__(self) -> str:
        return f"{self.device.name}: {self.verdict}; {'; '.join(self.why)}"


Finding = tuple[bool | None, str]  # whether the device passes, None if unknown; and why
_WORST_LAST = {True: 0, None: 1, False: 2}


def _star(device: Device, name: str) -> str:
    return "*" if name in device.unread else ""


def _memory(device: Device, need_bytes: float) -> Finding:
    need = format_si(need_bytes, "B")
    has = device.memory_bytes
    if has is None:
        return None, f"memory unknown, so the {need} needed can't be checked"
    return (
        need_bytes <= has,
        (
            f"needs {need} of {format_si(has, 'B')}{_star(device, 'memory_bytes')}"
            f" memory ({need_bytes / has:.0%})"
        ),
    )


def _step(device: Device, job: Job) -> tuple[float | None, str]:
    """The roofline time of a step in seconds (Williams, Waterman and Patterson 2009),
    and what limits it.
    """
    rate = peak(device, job.dtype)
    bandwidth = device.bandwidth_bytes_per_s
    if rate is None or bandwidth is None:
        unknown = f"{job.dtype} peak" if rate is None else "memory bandwidth"
        return None, f"{unknown} unknown, so no step time"
    compute_s = job.flop / rate
    traffic_s = job.n_bytes / bandwidth
    limit = f"{job.dtype} peak {format_si(rate, 'FLOP/s')}{_star(device, job.dtype)}"
    if traffic_s > compute_s:
        limit = (
            "memory bandwidth"
            f" {format_si(bandwidth, 'B/s')}{_star(device, 'bandwidth_bytes_per_s')}"
        )
    step_s = max(compute_s, traffic_s)
    return (
        step_s,
        f"roofline time of a step {format_seconds(step_s)}, limited by {limit}",
    )


@checked
def judge(device: Device, job: Job) -> Candidate:
    """Judge one device for a job: in, out, or undecided if its memory, peak or
    bandwidth is unknown.
    """
    step_s, about_step = _step(device, job)
    findings = [
        _memory(device, job.memory_bytes),
        (None if step_s is None else True, about_step),
    ]
    findings.sort(key=lambda finding: _WORST_LAST[finding[0]], reverse=True)
    return Candidate(
        device=device,
        fits=findings[0][0],
        why=tuple(why for _, why in findings),
        step_s=step_s,
        memory_share=(
            job.memory_bytes / device.memory_bytes if device.memory_bytes else None
        ),
        energy_j=(
            device.tdp_w * step_s
            if device.tdp_w is not None and step_s is not None
            else None
        ),
    )


@checked
def shortlist(job: Job, among: Iterable[Device] | None = None) -> list[Candidate]:
    """Judge the devices `among`, or all, for a job: those that fit first, then the
    undecided, then those that don't.

    Each group is sorted by roofline time, unknown last; it comes from the vendor's
    peaks, which a real step rarely reaches. Each device is judged alone: a job that is
    too large for one may fit on several.
    """
    judged = [judge(device, job) for device in (devices() if among is None else among)]
    return sorted(
        judged,
        key=lambda candidate: (
            _WORST_LAST[candidate.fits],
            candidate.step_s if candidate.step_s is not None else float("inf"),
        ),
    )


@checked
def shortlist_table(candidates: Iterable[Candidate]) -> Table:
    """Table of judged devices in the given order: verdict, roofline time, memory,
    energy and reasons.
    """
    rows = [
        (
            candidate.device.name,
            candidate.verdict,
            *candidate.amounts,
            "; ".join(candidate.why),
        )
        for candidate in candidates
    ]
    headings = (
        "device",
        "fits",
        "roofline time",
        "memory",
        "energy a step at full power",
        "why",
    )
    note = (
        "Times from the vendors' dense peaks. * recalled or derived, not read from a"
        " source."
    )
    return Table(tuple(rows), headings, notes=(note,))


def beside_the_sheet(
    fp32_peak: Callable[[int, float], float], among: Iterable[Device]
) -> Table:
    """Table of the reader's float32 peak over the printed one, for each device whose
    sheet has cores and a clock rate.
    """
    rows = []
    for device in among:
        printed = device.vector_flop_per_s.get("float32")
        if printed and device.fp32_cores and device.boost_hz:
            share = fp32_peak(device.fp32_cores, device.boost_hz) / printed
            rows.append((device.name, f"{share:.2f}x"))
    return Table(tuple(rows), ("device", "your peak over the printed one"))


def shares_of_limits(
    judged: Mapping[str, Sequence[Candidate]],
    choice: Mapping[str, object],
    limits_s: Mapping[str, float],
) -> Table:
    """Table of each job's chosen device and the share of the job's limit, in seconds,
    that its roofline time is.
    """
    rows = []
    for job, candidates in judged.items():
        chosen = [c for c in candidates if c.device.name == choice[job]]
        share = "no single one of them"
        if chosen and chosen[0].step_s is not None:
            share = f"{chosen[0].step_s / limits_s[job]:.0%}"
        rows.append((job, str(choice[job]), share))
    return Table(tuple(rows), ("job", "your choice", "of its time limit"))


def least_power(
    judged: Mapping[str, Sequence[Candidate]], limits_s: Mapping[str, float]
) -> dict[str, str]:
    """Job -> the device of least board power that holds it and is within its limit, in
    seconds; "none" where no device with a known power is.
    """
    names = {}
    for job, candidates in judged.items():
        power_w = {
            candidate.device.name: candidate.device.tdp_w
            for candidate in candidates
            if candidate.fits
            and candidate.device.tdp_w is not None
            and candidate.step_s is not None
            and candidate.step_s <= limits_s[job]
        }
        names[job] = min(power_w, key=power_w.__getitem__, default="none")
    return names


def in_words(least: Mapping[str, str], device: Device, other: Device) -> str:
    """What `least_power` found, and the float32 peak of one device over another's."""
    listed = ", ".join(f"{name} for {job}" for job, name in least.items())
    ratio = device.vector_flop_per_s["float32"] / other.vector_flop_per_s["float32"]
    return (
        f"calculated from data sheets: least power that will do: {listed};"
        f" {device.name} over {other.name} in float32: {ratio:.1f}x"
    )
