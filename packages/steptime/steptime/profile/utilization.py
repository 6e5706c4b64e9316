"""How much of the machine a step uses: its FLOP/s compared with the measured ceiling
and the data sheet's peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from steptime._tables import Shown
from steptime._units import format_seconds, format_si
from steptime.arguments import choice, instance, number
from steptime.measure.ceilings import DTYPES, Ceilings, measure_ceilings


@dataclass(frozen=True, repr=False)
class Utilization(Shown):
    """A step's FLOP/s, and its shares of the measured ceiling and of the data sheet's
    peak.

    `ceiling` and `peak` are in FLOP/s, None if unknown. Shares are fractions; above 1,
    the ceiling is too low or something is wrong, and `suspects` say what to check, the
    likeliest first.
    """

    flop: float
    seconds: float
    dtype: str
    ceilings: Ceilings
    suspects: tuple[str, ...] = ()

    @property
    def flop_per_s(self) -> float:
        """The step's FLOP per second."""
        return self.flop / self.seconds

    @property
    def ceiling(self) -> float | None:
        """FLOP/s that a matmul reached in this dtype; None if it was not measured."""
        return self.ceilings.matmul_flop_per_s.get(self.dtype)

    @property
    def peak(self) -> float | None:
        """The data sheet's FLOP/s in this dtype; None if unknown."""
        return self.ceilings.peaks.get(self.dtype)

    @property
    def of_ceiling(self) -> float | None:
        """Share of the measured ceiling; None if this dtype was not measured."""
        return None if self.ceiling is None else self.flop_per_s / self.ceiling

    @property
    def of_peak(self) -> float | None:
        """Share of the data sheet's peak, known as MFU; None if the peak is unknown."""
        return None if self.peak is None else self.flop_per_s / self.peak

    def __str__(self) -> str:
        work = f"{format_si(self.flop, 'FLOP')} in {format_seconds(self.seconds)}"
        rate = format_si(self.flop_per_s, "FLOP/s")
        lines = [
            f"{work}: {rate} in {self.dtype} on {self._where()}",
            f"share of the measured ceiling: {self._share_of_ceiling()}",
            f"share of the data sheet's peak: {self._share_of_peak()}",
        ]
        if self.suspects:
            lines.append(
                "A share over 100 %: the ceiling is too low, or something is wrong."
                " Check, in this order:"
            )
            lines += [
                f"{i}. {suspect}" for i, suspect in enumerate(self.suspects, start=1)
            ]
        return "\n".join(lines)

    def _where(self) -> str:
        threads = self.ceilings.threads
        if threads is None:
            return self.ceilings.device
        word = "thread" if threads == 1 else "threads"
        return f"{self.ceilings.device}, {threads} {word}"

    def _share_of_ceiling(self) -> str:
        if self.ceiling is None or self.of_ceiling is None:
            unmeasured = f"since no {self.dtype} matmul was measured here"
            why = self.ceilings.remarks.get(self.dtype, unmeasured)
            return f"unknown, {why.rstrip('.')}"
        rate = format_si(self.ceiling, "FLOP/s")
        return f"{_percent(self.of_ceiling)} of {rate}, a matmul on this machine"

    def _share_of_peak(self) -> str:
        if self.peak is None or self.of_peak is None:
            return "unknown, since these ceilings have no peak for it"
        share = f"{_percent(self.of_peak)} of {format_si(self.peak, 'FLOP/s')}"
        if self.of_peak <= 1 or self.suspects:
            return share
        return (
            f"{share}: possible, since a board may run above the boost clock that its"
            " data sheet assumes"
        )


def utilization(
    flop: float,
    seconds: float,
    *,
    dtype: str | torch.dtype = "float32",
    ceilings: Ceilings | None = None,
) -> Utilization:
    """How much of the machine a step uses that takes `flop` FLOP and `seconds`.

    `flop` is what the model needs; counted_flop counts what a step does. Recomputation,
    as by activation checkpointing, doesn't count, so this is model FLOP utilization,
    MFU (Chowdhery et al. 2022, PaLM, appendix B, arXiv:2204.02311). `dtype` is one of
    torch's, or its name. The step is compared with `ceilings`, by default those that
    measure_ceilings finds.
    """
    number("flop", flop, "FLOP")
    number("seconds", seconds, "seconds")
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    choice("dtype", dtype, DTYPES)
    ceilings = measure_ceilings() if ceilings is None else ceilings
    instance("ceilings", ceilings, Ceilings)
    rate = flop / seconds
    # The measured ceiling decides where there is one: boards may run above the clock
    # that the data sheet assumes.
    limit = ceilings.matmul_flop_per_s.get(dtype) or ceilings.peaks.get(dtype)
    suspects: tuple[str, ...] = ()
    if limit is not None and rate > limit:
        suspects = tuple(_suspects(rate, dtype, ceilings))
    return Utilization(flop, seconds, dtype, ceilings, suspects)


def _suspects(rate: float, dtype: str, ceilings: Ceilings) -> Iterator[str]:
    """What may be wrong if a rate is above its limit; causes that can be detected come
    first.
    """
    # ceilings of a GPU have no threads
    on_gpu = ceilings.threads is None
    now = torch.get_num_threads()
    if not on_gpu and ceilings.threads != now:
        yield (
            f"the number of threads: the ceiling is that of {ceilings.threads}, torch"
            f" uses {now} now. Time the step and measure the ceilings with the same"
            " number."
        )
    if not on_gpu and torch.cuda.is_available():
        yield (
            "the device: these ceilings are the CPU's, and the step may have run on the"
            " GPU."
        )
    faster = {
        name: limit
        for name, limit in ceilings.matmul_flop_per_s.items()
        if name != dtype and limit >= rate
    }
    if faster:
        name = min(faster, key=lambda other: faster[other])
        yield (
            f"the dtype: in {name} it would be {rate / faster[name]:.0%} of the"
            f" ceiling. Was {dtype} what ran?"
        )
    yield (
        "the FLOP: a multiply-add counts 2, backward twice forward, and `flop` and"
        " `seconds` are of the same step (torch.utils.flop_counter.FlopCounterMode"
        " counts what torch did)."
    )
    if on_gpu:
        yield (
            "the clock: without a wait for the GPU (torch.cuda.synchronize), it stops"
            " when work is queued, not done."
        )
    high = ceilings.highest_flop_per_s.get(dtype, 0.0)
    if rate <= high:
        yield (
            f"the ceiling: its own readings reach {format_si(high, 'FLOP/s')}, so this"
            " may be its noise."
        )
    if "clock" in ceilings.remarks:
        yield f"the ceiling: it was measured at a clock of {ceilings.remarks['clock']}"
    if "busy" in ceilings.remarks:
        yield (
            "the ceiling: the machine was busy when it was measured. Measure it again."
        )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"
