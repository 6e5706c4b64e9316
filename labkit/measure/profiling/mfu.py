"""How much of the machine a step uses: FLOP a second against the measured ceiling and the data sheet's peak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from labkit.core.arguments import check_function, check_number
from labkit.core.display import Shown
from labkit.core.errors import BadMeasurement
from labkit.core.units import format_seconds, format_si
from labkit.measure.bench import Timing
from labkit.measure.ceilings import Ceilings, measure_ceilings


@dataclass(frozen=True, repr=False)
class Utilization(Shown):
    """FLOP a second of a step, and their shares of what this machine reached and of what its data sheet prints.

    `ceiling` and `peak` are in FLOP/s, None where unknown; shares are fractions, above 1 where something is wrong.
    `suspects` say what to look at then, the likeliest first; empty when nothing is above its limit.
    """

    flop: float
    seconds: float
    dtype: str
    device: str
    threads: int | None
    ceiling: float | None
    peak: float | None
    why_unknown: str = ""
    suspects: tuple[str, ...] = ()

    @property
    def flop_per_s(self) -> float:
        """FLOP a second."""
        return self.flop / self.seconds

    @property
    def of_ceiling(self) -> float | None:
        """Share of the measured ceiling; None where this dtype was not measured."""
        return None if self.ceiling is None else self.flop_per_s / self.ceiling

    @property
    def of_peak(self) -> float | None:
        """Share of the data sheet's peak, what the literature calls MFU; None where the peak is unknown."""
        return None if self.peak is None else self.flop_per_s / self.peak

    def __str__(self) -> str:
        work = f"{format_si(self.flop, 'FLOP')} in {format_seconds(self.seconds)}"
        lines = [f"{work}: {format_si(self.flop_per_s, 'FLOP/s')} in {self.dtype} on {self._where}"]
        if self.ceiling is None:
            lines.append(f"share of the measured ceiling: unknown, {self.why_unknown}")
        else:
            ceiling = f"{format_si(self.ceiling, 'FLOP/s')}, a matmul on this machine"
            lines.append(f"share of the measured ceiling: {_percent(self.of_ceiling)} of {ceiling}")
        if self.peak is None:
            lines.append("share of the data sheet's peak: unknown, since the catalogue has no peak for it")
        else:
            peak = format_si(self.peak, "FLOP/s")
            above = (self.of_peak or 0) > 1 and not self.suspects
            faster = ", as the ceiling can be: a board may run above the clock that its sheet computes with"
            lines.append(f"share of the data sheet's peak: {_percent(self.of_peak)} of {peak}{faster * above}")
        if self.suspects:
            lines.append("Over 100 % is a mistake to find. Look at, in this order:")
            lines += [f"{i}. {suspect}" for i, suspect in enumerate(self.suspects, start=1)]
        return "\n".join(lines)

    @property
    def _where(self) -> str:
        if self.threads is None:
            return self.device
        return f"{self.device}, {self.threads} thread{'s' * (self.threads != 1)}"


def utilization(
    flop: float,
    seconds: float | Timing,
    *,
    dtype: object = "float32",
    threads: int | None = None,
    ceilings: Ceilings | None = None,
) -> Utilization:
    """How much of the machine a step of `flop` FLOP uses that takes `seconds`, a number or a Timing (its median).

    `flop` is what the model needs, costs.training_step(...).flop say: work that is done twice, as with activation
    checkpointing, isn't counted, and so this is model FLOP utilisation, MFU (Chowdhery et al. 2022, PaLM, appendix B,
    arXiv:2204.02311). It is compared with the measured ceiling too, since no program here should beat that one.
    `ceilings` are measured where None: those of the CPU with `threads` torch threads, or of this machine's device.
    Raises BadMeasurement for numbers not above 0 and for a dtype that ceilings don't know.
    """
    median_s = seconds.median_s if isinstance(seconds, Timing) else seconds
    check_number("flop", flop, above=0, advice="It counts multiplications and additions of a step.")
    check_number("seconds", median_s, above=0, advice="Pass the seconds of one step, or a Timing.")
    if ceilings is None:
        ceilings = measure_ceilings(threads=threads)
    elif threads is not None and threads != ceilings.threads:
        raise BadMeasurement(
            f"Expected ceilings of {threads} threads, got those of {ceilings.threads}. Leave one of the two out."
        )
    name = str(dtype).removeprefix("torch.")
    ceiling, peak = ceilings.limit(name), ceilings.peak(name)
    rate = float(flop) / float(median_s)
    # what was measured judges where it can: boards run above the clock that the data sheet computes its peak with
    limit = peak if ceiling is None else ceiling
    suspects = tuple(_suspects(rate, name, ceilings)) if limit is not None and rate > limit else ()
    why = "" if ceiling is not None else ceilings.remarks.get(name, f"since no {name} matmul was measured here")
    return Utilization(
        float(flop), float(median_s), name, ceilings.device, ceilings.threads, ceiling, peak, why.rstrip("."), suspects
    )


def _suspects(rate: float, dtype: str, ceilings: Ceilings) -> Iterator[str]:
    """What may be wrong with a rate above its limit; what can be seen from here comes first."""
    import torch

    now = torch.get_num_threads()
    if ceilings.threads is not None and ceilings.threads != now:
        yield (
            f"the number of threads: the ceiling is that of {ceilings.threads}, torch uses {now} now. "
            "Time the step within lab.threads(n), and pass threads=n."
        )
    if ceilings.threads is not None and torch.cuda.is_available():
        yield "the device: these ceilings are the CPU's, and the step may have run on the GPU."
    faster = {name: limit for name, limit in ceilings.matmul_flop_per_s.items() if name != dtype and limit >= rate}
    if faster:
        name = min(faster, key=lambda other: faster[other])
        yield f"the dtype: in {name} it would be {rate / faster[name]:.0%} of the ceiling. Was {dtype} what ran?"
    yield (
        "the FLOP: a multiply-add counts 2, backward twice forward, and `flop` and `seconds` are of the same step "
        "(counted_flop(step) counts what torch did)."
    )
    if ceilings.threads is None:
        yield "the clock: without a wait for the GPU (sync=machine.sync) it stops when the work is queued, not done."
    measured = ceilings.matmul.get(dtype)
    if measured is not None and rate <= measured.high:
        high = format_si(measured.high, measured.unit)
        yield f"the ceiling: its own readings reach {high} (third quartile), so this may be its noise."
    if "busy" in ceilings.remarks:
        yield "the ceiling: the machine was busy when it was measured. lab.measure_ceilings(remeasure=True) repeats it."


def counted_flop(work: Callable[[], object]) -> int:
    """FLOP of one call of `work` as torch's FlopCounterMode counts them, forward and backward: a second source.

    It sees matrix products, convolutions and attention as they are called, 2 FLOP a multiply-add. Unlike
    lab.costs it leaves out all else (activations, pooling, norms, softmax, the update), so costs' training FLOP
    exceed it by 3 x the forward pass's `vector_flop`. It counts what ran: recomputed layers twice. Kernels of one's
    own and compiled code are not seen. Raises BadMeasurement where it saw nothing.
    """
    from torch.utils.flop_counter import FlopCounterMode

    check_function("work", work)
    counter = FlopCounterMode(display=False)
    with counter:
        work()
    flop = int(counter.get_total_flops())
    if flop <= 0:
        raise BadMeasurement(
            "Expected torch to run a matrix product, a convolution or attention, saw none. "
            "Compiled code and kernels of your own are not counted: pass the step as it is before compiling."
        )
    return flop


def _percent(share: float | None) -> str:
    assert share is not None  # asked for where the limit is known
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"
