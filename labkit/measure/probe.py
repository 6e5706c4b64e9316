"""Measure how fast a device copies memory and multiplies matrices; check that twice the
work takes twice as long.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from labkit.core.errors import BadMeasurement
from labkit.core.parameters import checked
from labkit.core.units import GIB, MIB, format_bytes, format_si, significant
from labkit.measure import host
from labkit.measure.bench import Timing, compare, sync_of, time_call
from labkit.measure.machine import threads
from labkit.measure.readings import Clock

DTYPES = {
    "cpu": ("float32", "bfloat16", "float64"),
    "cuda": ("float32", "tf32", "bfloat16", "float16", "float64"),
}

# Two measurements of the same thing differ by a few per cent: clock rates drift,
# neighbors come and go.
TOLERANCE = 0.05
# Boards run above the boost clock that the data sheet's peak is computed with: up to
# this much is plausible.
ABOVE_PEAK = 0.25
# Plausible growth when the work doubles: fixed costs make it less than 2, a half that
# fits a cache makes it more.
DOUBLING = (1.6, 2.5)
_CALLS_AT_LEAST = 9  # that time_call makes: one cold, up to three warm, five readings
_SHAPE_LIMIT_S = 1.0
_SETTLING_TURNS = 30  # at most, of 2 s each at full size


@dataclass(frozen=True)
class ProbeSizes:
    """Sizes to measure: bytes of each of the copy's two tensors, rising n of n x n
    matmuls, seconds for each timing.
    """

    copy_bytes: int
    matmul_n: tuple[int, ...]
    budget_s: float


def sizes_for(device: str, *, memory_bytes: int, profile: str = "full") -> ProbeSizes:
    """Sizes for 'cpu' or 'cuda'; a tensor takes at most an eighth of the memory, since
    Binder has only 2 GB.
    """
    matmul_n: tuple[int, ...] = (512, 1024, 2048)
    if device == "cuda":  # smaller sizes would take only tens of microseconds
        matmul_n = (1024, 4096, 8192)
    if profile == "smoke":
        copy_bytes = 16 * MIB
        budget_s = 0.0
    elif profile == "ci":
        copy_bytes = 128 * MIB
        budget_s = 0.04
    else:
        copy_bytes = 2 * GIB if device == "cuda" else 256 * MIB
        budget_s = 0.2
    if profile != "full":
        matmul_n = matmul_n[:2]
    return ProbeSizes(min(copy_bytes, memory_bytes // 8), matmul_n, budget_s)


@checked(error=BadMeasurement)
@dataclass(frozen=True)
class Ceiling:
    """The highest measured rate, in `unit` ('B/s' or 'FLOP/s'): the best shape's
    median, with its quartiles.

    `at` names that shape; `n` is the n of its n x n matrices, or the bytes of the
    copied tensor. `runs` counts its readings.
    """

    value: float
    low: float
    high: float
    unit: str
    at: str
    n: int
    runs: int

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high < float("inf"):
            raise BadMeasurement(
                f"Expected 0 < low <= value <= high, got {self.low}, {self.value},"
                f" {self.high}."
            )

    @classmethod
    def of(cls, timing: Timing, work: float, unit: str, *, at: str, n: int) -> Ceiling:
        """The rate at which `timing` does `work`, in bytes or FLOP a call."""
        fast_s, slow_s = timing.quartiles_s
        return cls(
            timing.rate(work),
            work / slow_s,
            work / fast_s,
            unit,
            at,
            n,
            len(timing.samples_s),
        )


@checked
@dataclass(frozen=True)
class SelfCheck:
    """Whether the measurement can be trusted. `passed` is None if that could not be
    checked.
    """

    what: str
    passed: bool | None
    detail: str

    def __str__(self) -> str:
        state = {True: "passed", False: "failed", None: "not checked"}[self.passed]
        return f"{self.what}: {state}. {self.detail}"


@dataclass(frozen=True)
class Probe:
    """Measures the rates of `device`, 'cpu' or 'cuda'."""

    device: str
    sizes: ProbeSizes
    clock: Clock = time.perf_counter

    def settle(self) -> None:
        """Keep a GPU busy until temperature and clock stay, a minute at most: heat
        slows the clock it begins with.
        """
        if self.device == "cpu":
            return
        sync = sync_of(self.device)
        states = list[dict[str, str]]()
        with _matmul(self.device, "float32", rows=1024, n=1024) as call:
            for _ in range(_SETTLING_TURNS):
                end_s = self.clock() + 10 * self.sizes.budget_s
                while self.clock() < end_s:
                    for _ in range(10):
                        call()
                    sync()
                states.append(host.gpu_state(("temperature.gpu", "clocks.sm")))
                if not states[-1] or states[-2:-1] == states[-1:]:
                    return

    def copy(self) -> tuple[Ceiling, SelfCheck]:
        """The rate of copying a tensor, bytes read plus bytes written in B/s, and its
        doubling check.

        The better of torch's copy_ (on a GPU, the driver's memcpy) and of a kernel that
        adds 1: either may be faster, and a ceiling has to be above both. Cache lines
        that are fetched before they are overwritten don't count. Source of the
        counting: McCalpin, STREAM (1995), "Copy".
        """
        import torch

        size = self.sizes.copy_bytes
        while True:
            with contextlib.suppress(torch.OutOfMemoryError):
                source, target = (
                    torch.ones(size // 4, device=self.device) for _ in range(2)
                )
                break
            size //= 2  # another program holds the GPU's memory
        half_source = source[: len(source) // 2]
        half_target = target[: len(source) // 2]
        ways = {
            "copy_": lambda: target.copy_(source),
            "add": lambda: torch.add(source, 1, out=target),
        }
        timing = min(
            (self._time(way, call) for way, call in ways.items()),
            key=lambda timing: timing.median_s,
        )
        check = self.doubling(
            "copy, twice the bytes",
            lambda: half_target.copy_(half_source),
            ways["copy_"],
        )
        at = f"{timing.label}, {format_bytes(size)} to {format_bytes(size)}"
        return Ceiling.of(timing, 2 * source.nbytes, "B/s", at=at, n=size), check

    def cache_remark(self) -> str:
        """Say that a cache may have served part of the copy; empty if it was too small
        for that.
        """
        if self.device == "cpu":
            cache = host.last_level_cache_bytes()
        else:
            import torch

            cache = int(torch.cuda.get_device_properties(0).L2_cache_size)
        if cache is None or 2 * self.sizes.copy_bytes >= 4 * cache:
            return ""
        return (
            f"this system reports a cache of {format_bytes(cache)}, which may have"
            " served part of the copy."
        )

    def matmul(self, dtype: str) -> Ceiling | None:
        """The best rate, over the shapes, of multiplying two n x n matrices (2 n^3
        FLOP), in FLOP/s.

        Shapes whose calls would take over ten times the budget (and over 1 s), or that
        don't fit in memory, are left out; None if no shape fits. Source of the count:
        Golub and Van Loan, Matrix Computations (4th edition, 2013), section 1.1.
        """
        import torch

        ceilings: list[Ceiling] = []
        limit_s = max(_SHAPE_LIMIT_S, 10 * self.sizes.budget_s)
        for n in self.sizes.matmul_n:
            if ceilings and _CALLS_AT_LEAST * 2 * n**3 / ceilings[-1].high > limit_s:
                break
            try:
                with _matmul(self.device, dtype, rows=n, n=n) as call:
                    timing = self._time(dtype, call)
            except torch.OutOfMemoryError:
                break
            ceilings.append(
                Ceiling.of(timing, 2 * n**3, "FLOP/s", at=f"{n:,} × {n:,}", n=n)
            )
        return max(ceilings, key=lambda ceiling: ceiling.value, default=None)

    def matmul_doubling(self, n: int) -> SelfCheck:
        """Check that an n x n matmul in float32 takes about twice as long as one with
        half the rows.
        """
        part, all_rows = (
            _matmul(self.device, "float32", rows=rows, n=n) for rows in (n // 2, n)
        )
        with part as half, all_rows as whole:
            return self.doubling("matmul, twice the rows", half, whole)

    def doubling(
        self, what: str, half: Callable[[], object], whole: Callable[[], object]
    ) -> SelfCheck:
        """Time both in turn, and check that `whole`, with twice the work, takes 1.6 to
        2.5 times as long as `half`.
        """
        timed = compare(
            {"half": half, "whole": whole},
            sync=sync_of(self.device),
            budget_s=self.sizes.budget_s,
            clock=self.clock,
        )
        growth = 1 / timed.ratio("whole").value
        low, high = DOUBLING
        detail = f"Twice the work took {significant(growth)} times as long"
        if low <= growth <= high:
            return SelfCheck(what, True, f"{detail}.")
        if growth < low:
            cause = "the clock may not wait for the work, or the work is skipped"
        else:
            cause = "the half may fit a cache"
        detail += f", expected {low} to {high}: {cause}"
        return SelfCheck(what, False, f"{detail}, or something else ran beside it.")

    def unsuited(self, dtype: str, flags: tuple[str, ...]) -> str:
        """Why a dtype isn't timed on this device; empty if it is. `flags` are
        machine().flags.
        """
        if self.device == "cpu":
            native_bfloat16 = "avx512_bf16" in flags or "amx_bf16" in flags
            if dtype != "bfloat16" or native_bfloat16:
                return ""
            return bfloat16_is_slow(clock=self.clock)
        import torch

        major, minor = torch.cuda.get_device_capability()
        if dtype in ("tf32", "bfloat16") and major < 8:
            return f"needs compute capability 8.0, this GPU has {major}.{minor}."
        return ""

    def _time(self, label: str, call: Callable[[], object]) -> Timing:
        sync = sync_of(self.device)
        return time_call(
            call, label=label, sync=sync, budget_s=self.sizes.budget_s, clock=self.clock
        )


def peak_check(
    ceilings: dict[str, Ceiling], peaks: dict[str, float | None], unknown: str
) -> SelfCheck:
    """Check that no ceiling is above the data sheet's peak; `unknown` is the detail if
    no peak is known.

    Up to 5 % above passes, up to 25 % is left undecided (the board may clock above its
    printed boost), more fails.
    """
    compared = []
    sentences = []  # of those that are above their peak
    impossible = False
    for what, ceiling in ceilings.items():
        peak = peaks.get(what)
        if peak is None:
            continue
        compared.append(what)
        if ceiling.value > peak * (1 + TOLERANCE):
            impossible |= ceiling.value > peak * (1 + ABOVE_PEAK)
            measured = format_si(ceiling.value, ceiling.unit)
            printed = format_si(peak, ceiling.unit)
            sentences.append(f"{what} measured {measured}, peak {printed}")
    words = "; ".join(sentences)
    passed: bool | None
    if not compared:
        passed = None
        detail = unknown
    elif not sentences:
        passed = True
        detail = f"No ceiling exceeds the vendor's peak ({', '.join(compared)})."
    elif impossible:
        passed = False
        detail = f"Nothing runs that much faster than its peak, but {words}."
    else:
        passed = None
        detail = (
            "above the printed peak, which a board that clocks above its printed boost"
            f" can reach: {words}."
        )
    return SelfCheck("data sheet", passed, detail)


def bfloat16_is_slow(*, clock: Clock = time.perf_counter, n: int = 128) -> str:
    """Why bfloat16 shouldn't be timed on this CPU: a tiny matmul takes over twice
    float32's time. Empty if it doesn't.

    A CPU without bfloat16 instructions emulates them, and full-size shapes could take
    minutes. Both run on one thread: on a busy machine, threads that wait for each other
    would slow down the faster dtype the most.
    """
    single, brain = (
        _matmul("cpu", dtype, rows=n, n=n) for dtype in ("float32", "bfloat16")
    )
    with threads(1), single as float32, brain as bfloat16:
        timed = compare(
            {"float32": float32, "bfloat16": bfloat16},
            budget_s=0.02,
            min_runs=5,
            clock=clock,
        )
    slower = 1 / timed.ratio("bfloat16").value
    if slower <= 2:
        return ""
    return (
        f"not timed at full size: at {n} × {n} it takes {significant(slower)} times as"
        " long as float32 on this CPU."
    )


@contextlib.contextmanager
def _matmul(
    device: str, dtype: str, *, rows: int, n: int
) -> Iterator[Callable[[], object]]:
    """A call that multiplies rows x n by n x n; "tf32" is float32 that a GPU may
    compute in TF32.
    """
    import torch

    stored = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    # Random, since a GPU draws less power on constant data, clocks higher, and would
    # give a ceiling too high.
    a = torch.randn(rows, n, device=device).to(stored)
    b = torch.randn(n, n, device=device).to(stored)
    out = torch.empty(rows, n, device=device, dtype=stored)
    with float32_precision("tf32" if dtype == "tf32" and device == "cuda" else "ieee"):
        yield lambda: torch.mm(a, b, out=out)


@checked
@contextlib.contextmanager
def float32_precision(precision: Literal["ieee", "tf32"]) -> Iterator[None]:
    """Within the block, compute float32 matmuls and convolutions in "ieee" (full
    float32) or "tf32".

    All of torch's switches are set alike: torch raises when its older, global one is
    read while they differ.
    """
    import torch

    b: Any = torch.backends  # torch declares only some of their switches
    with contextlib.ExitStack() as undo:
        for mode in (b.cuda.matmul, b.cudnn.conv, b.cudnn.rnn, b.mkldnn.matmul):
            undo.callback(setattr, mode, "fp32_precision", mode.fp32_precision)
            mode.fp32_precision = precision
        yield
