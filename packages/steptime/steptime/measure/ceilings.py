"""Rates that no step should beat, which find_bottleneck and utilization compare with:
given, or measured here.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch

from steptime.arguments import instance, number
from steptime.errors import stood_still
from steptime.measure.clock import above_0, mean_s
from steptime.measure.machine import device_named, name_of, sync_of

DTYPES = ("float32", "tf32", "bfloat16", "float16", "float64")
_READINGS = 7
_COPY_BYTES = {"cpu": 2**27, "cuda": 2**29}  # beyond most caches
_SIDE = {"cpu": 1024, "cuda": 4096}  # of the matrices
_SMALL_COPY_BYTES = 2**24
_SMALL_SIDE = 512
_MEASURED = {"cpu": ("float32",), "cuda": ("float32", "bfloat16", "float16")}


@dataclass(frozen=True)
class Ceilings:
    """The highest rates of `device`: of a matmul in FLOP/s by dtype, float32 at least,
    and of a copy in B/s.

    A copy's bytes are those read and those written. `highest_flop_per_s` are the best
    of the matmul's readings, `peaks` the data sheet's FLOP/s, both by dtype. `remarks`
    say by dtype why a rate is missing, and under "busy" that other programs ran
    meanwhile. `threads` is None on a GPU.
    """

    device: str
    matmul_flop_per_s: Mapping[str, float]
    copy_bytes_per_s: float
    threads: int | None = None
    peaks: Mapping[str, float | None] = field(default_factory=dict)
    highest_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        number("copy_bytes_per_s", self.copy_bytes_per_s, "B/s")
        instance("matmul_flop_per_s", self.matmul_flop_per_s, Mapping)
        for rate in self.matmul_flop_per_s.values():
            number("each of matmul_flop_per_s", rate, "FLOP/s")


def measure_ceilings(device: str | None = None, *, small: bool = False) -> Ceilings:
    """Time a copy of a large tensor and square matmuls on `device` ("cpu" or "cuda"),
    in about a second.

    Each rate is the median of 7 readings. On a CPU only float32 is measured, with as
    many threads as torch uses; time in which other programs had this thread's core is
    left out, as find_bottleneck leaves it out of operators. `small` takes 16 MiB and n
    = 512: to try code out, since a cache may hold them and a GPU isn't busy with them.
    """
    device = device_named(device)
    sync = sync_of(device)
    side = _SMALL_SIDE if small else _SIDE[device]
    n_bytes = _SMALL_COPY_BYTES if small else _COPY_BYTES[device]
    source = torch.ones(n_bytes // 4, device=device)  # 4 bytes each
    target = torch.empty_like(source)
    copy_s = _readings(lambda: target.copy_(source), sync)
    usual = dict[str, float]()
    highest = dict[str, float]()
    for dtype in _MEASURED[device]:
        a = torch.ones(side, side, device=device, dtype=getattr(torch, dtype))
        seconds = _readings(partial(torch.matmul, a, a), sync)
        usual[dtype] = 2 * side**3 / statistics.median(seconds)
        highest[dtype] = 2 * side**3 / seconds[0]
    threads = torch.get_num_threads() if device == "cpu" else None
    both_ways = 2 * source.nbytes
    return Ceilings(
        name_of(device),
        usual,
        both_ways / statistics.median(copy_s),
        threads,
        highest_flop_per_s=highest,
    )


def given_ceilings(
    ceilings: Ceilings | Callable[[], Ceilings] | None, device: str
) -> Ceilings:
    """Ceilings that were passed, those that a function returns, or measured ones."""
    if ceilings is None:
        return measure_ceilings(device)
    if callable(ceilings):
        ceilings = ceilings()
    instance("ceilings", ceilings, Ceilings)
    return ceilings


def _readings(work: Callable[[], object], sync: Callable[[], None]) -> list[float]:
    """Seconds of a call, the shortest reading first, by the clock that times operators.
    Raises TooLittleSeen where that stood still.
    """
    # the first call is cold
    readings = [mean_s(work, sync) for _ in range(_READINGS + 1)][1:]
    shortest, *_ = seconds = sorted(above_0(readings))
    if not shortest:
        raise stood_still("a copy and a product of matrices")
    return seconds
