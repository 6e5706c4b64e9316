"""Where the time of a training step went, from torch's profiler."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import record_function

from steptime._tables import Shown, Table
from steptime._units import format_seconds, significant
from steptime.arguments import choice, count, function, instance
from steptime.errors import TooLittleSeen
from steptime.measure.batches import Supply
from steptime.measure.machine import device_named, name_of, no_sync, sync_of
from steptime.profile import part_spans
from steptime.profile.chrome_trace import TraceEvent, profiled
from steptime.profile.part_spans import END, STEP, PartSpan
from steptime.profile.parts import part

_LOST_KERNELS = 200
_BLIND = (
    "torch's profiler saw no kernel of the GPU, so these are the host's times: what"
    " waits for the GPU holds its time. Either the step runs on the CPU, or this torch"
    " has no CUPTI (WSL2, conda-forge, some containers), or another profiler (nsys,"
    " ncu) reads the GPU's events, or you may not: run as root, or ask for"
    " NVreg_RestrictProfilingToAdminUsers=0."
)
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
# what .item(), float() and printing a tensor call
_WOULD_WAIT = "aten::_local_scalar_dense"
_SHOWN_OPERATORS = 6


@dataclass(frozen=True)
class OperatorTime:
    """One of torch's operators on the "host", or a kernel on the "device": its calls
    and own seconds per step.
    """

    name: str
    calls: float
    self_s: float
    lane: str


@dataclass(frozen=True, repr=False)
class StepProfile(Shown):
    """Where the time of a step went: seconds per step for each of PARTS, which sum to
    the mean step.

    On a GPU the parts are the GPU's: "gaps" is its idle time while the CPU worked, and
    copies and communication count only while no other kernel ran. On a CPU they are
    those of the training thread, and "other" is time in which no operator ran: Python.
    `step_s` are the seconds of each profiled step, `spans` the parts of one step in
    order. `waits` counts, per step, the calls that make the CPU wait for a GPU, such as
    .item(), or without a GPU those that would. `trace_path` is the Chrome trace.
    """

    device: str
    steps: int
    step_s: tuple[float, ...]
    parts: dict[str, float]
    spans: tuple[PartSpan, ...]
    operators: tuple[OperatorTime, ...]
    waits: dict[str, float]
    trace_path: Path
    notes: tuple[str, ...] = ()

    @property
    def mean_s(self) -> float:
        """Mean seconds of a profiled step."""
        return sum(self.step_s) / len(self.step_s)

    def share(self, part: str) -> float:
        """A part's share of the mean step, 0 to 1."""
        choice("part", part, self.parts)
        return self.parts[part] / self.mean_s

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._tables()))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self._tables())

    def _tables(self) -> list[Table]:
        return [self._parts_table(), self._operators_table()]

    def _parts_table(self) -> Table:
        parts = sorted(
            ((s, name) for name, s in self.parts.items() if s > 0), reverse=True
        )
        rows = tuple(
            (name, format_seconds(s), f"{s / self.mean_s:.0%}") for s, name in parts
        )
        step = f"A step of {format_seconds(self.mean_s)} on {self.device}"
        title = f"{step}, mean of {self.steps}"
        return Table(rows, ("part", "per step", "share"), title)

    def _operators_table(self) -> Table:
        rows = tuple(
            (o.name, o.lane, f"{o.calls:g}", format_seconds(o.self_s))
            for o in self.operators[:_SHOWN_OPERATORS]
        )
        headings = ("operator or kernel", "on", "calls a step", "own time a step")
        counts = [f"{significant(n)} x {name}" for name, n in self.waits.items()]
        waits = f"Calls that wait for a GPU, per step: {', '.join(counts) or 'none'}."
        notes = (waits, *self.notes, f"Chrome trace: {self.trace_path}")
        return Table(rows, headings, "Longest", notes)


def profile_step(
    step: Callable[..., object],
    batches: object = None,
    *,
    steps: int = 5,
    warmup: int = 2,
    path: Path | None = None,
    device: str | None = None,
) -> StepProfile:
    """Run `step` under torch's profiler, and say where its time went.

    With `batches` (a DataLoader or other iterable, a function that returns the next
    batch, or one batch), `step(batch)` is called, and fetching the batch is the part
    "input"; without, `step()` is. `warmup` calls come first and don't count. On a GPU,
    the device is waited for before the first and after the last step, not between them.
    The Chrome trace goes to `path`, by default in a new temporary folder;
    ui.perfetto.dev opens it. `device` is "cpu" or "cuda", by default "cuda" where torch
    has a GPU. Raises TooLittleSeen if the profiler saw nothing, OSError where `path`
    can't be written.
    """
    count("steps", steps, 1, 10_000)
    count("warmup", warmup, 0, 10_000)
    device = device_named(device)
    once = _whole_step(step, batches)
    sync = sync_of(device)
    gpu = device != "cpu"
    for _ in range(warmup - 1):
        once()
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="steptime-"), "step.json")
    instance("path", path, Path)
    events = profiled(lambda: _run(once, min(warmup, 1), steps, sync), path, cuda=gpu)
    return read_profile(events, device=name_of(device), path=path, gpu=gpu)


def _whole_step(step: Callable[..., object], batches: object) -> Callable[[], object]:
    """A function without arguments that runs a whole step, and fetches its batch as the
    part "input".
    """
    function("step", step, int(batches is not None))
    if batches is None:
        return step
    next_batch = Supply(batches)

    def once() -> None:
        with part("input"):
            batch = next_batch()
        step(batch)

    return once


def _run(
    once: Callable[[], object], warmup: int, steps: int, sync: Callable[[], None]
) -> None:
    """Run the steps; the last warm-up is profiled too, since the profiler's own first
    events take long.
    """
    # after a pause the profiler loses the first kernels: these (pytorch/pytorch#192021)
    if sync is not no_sync:
        counter = torch.zeros(1, device="cuda")
        for _ in range(_LOST_KERNELS):
            counter += 1
    for _ in range(warmup):
        once()
    sync()
    for i in range(steps):
        with record_function(STEP):
            once()
            if i == steps - 1:
                with record_function(END):
                    sync()


def read_profile(
    events: Sequence[TraceEvent], *, device: str, path: Path, gpu: bool
) -> StepProfile:
    """The profile from a Chrome trace's events: the host's alone, with a note, where
    they have no kernel of the GPU.

    Raises TooLittleSeen if they have no step or operator.
    """
    whole = [e for e in events if e.get("ph") == "X" and "dur" in e and "args" in e]
    steps = sorted(
        (e for e in whole if e["name"] == STEP and e["cat"] == "user_annotation"),
        key=lambda e: e["ts"],
    )
    if not steps or not any(e.get("cat") == "cpu_op" for e in whole):
        if steps:
            why = "The step called none of torch."
        else:
            why = "Does another profiler run here? Restart the kernel."
        raise TooLittleSeen(f"torch's profiler returned no operators. {why}")
    notes: list[str] = []
    if gpu and not any(e.get("cat") == "kernel" for e in whole):
        gpu = False
        notes.append(_BLIND)
    start = steps[0]["ts"]
    end = steps[-1]["ts"] + steps[-1]["dur"]
    if end <= start:
        raise TooLittleSeen("The profiled steps took 0 s. Pass a step that does more.")
    inside = [e for e in whole if e["ts"] < end and e["ts"] + e["dur"] > start]
    thread = steps[0]["tid"]
    main = part_spans.host(inside, thread, start, end)
    lanes = {"host": main}
    if gpu:
        threads = {e["tid"] for e in inside if e.get("cat") == "cpu_op"} - {thread}
        strips = {tid: part_spans.host(inside, tid, start, end) for tid in threads}
        strips[thread] = main
        lanes["device"] = part_spans.device(inside, main, strips, start, end)
    n = len(steps)
    parts_us = lanes["device" if gpu else "host"].microseconds()
    bounds = [*(e["ts"] for e in steps), end]
    median_step = steps[n // 2]
    spans = part_spans.spans(
        lanes, median_step["ts"], median_step["ts"] + median_step["dur"]
    )
    return StepProfile(
        device,
        steps=n,
        step_s=tuple((b - a) * 1e-6 for a, b in itertools.pairwise(bounds)),
        parts={name: us * 1e-6 / n for name, us in parts_us.items()},
        spans=tuple(spans),
        operators=_operators(inside, n),
        waits=_waits(inside, n, gpu=gpu),
        trace_path=path,
        notes=(*notes, *_notes(inside, steps)),
    )


def _operators(events: list[TraceEvent], steps: int) -> tuple[OperatorTime, ...]:
    """Calls and own time per step; an operator's own time is without the operators that
    it calls.

    The profiler's key_averages() would include the profiled warm-up step.
    """
    own_us: dict[tuple[str, str], float] = defaultdict(float)
    calls: Counter[tuple[str, str]] = Counter()
    running: list[TraceEvent] = []
    for e in sorted(events, key=lambda e: (str(e["tid"]), e["ts"], -e["dur"])):
        lane = "device" if e.get("cat") in part_spans.DEVICE else "host"
        if lane == "host" and e.get("cat") != "cpu_op":
            continue
        own_us[e["name"], lane] += e["dur"]
        calls[e["name"], lane] += 1
        if lane == "host":
            while running and not _runs_within(e, running[-1]):
                running.pop()
            if running:
                own_us[running[-1]["name"], lane] -= e["dur"]
            running.append(e)
    times = [
        OperatorTime(name, calls[name, lane] / steps, us * 1e-6 / steps, lane)
        for (name, lane), us in own_us.items()
    ]
    return tuple(sorted(times, key=lambda o: -o.self_s))


def _runs_within(e: TraceEvent, outer: TraceEvent) -> bool:
    """Whether an event that begins after another one begins before it ends."""
    return bool(outer["tid"] == e["tid"] and e["ts"] < outer["ts"] + outer["dur"])


def _waits(events: list[TraceEvent], steps: int, *, gpu: bool) -> dict[str, float]:
    """Calls that wait for a GPU, or without one those that would, except on an
    optimizer's counters on the CPU.
    """
    names = _WAITS if gpu else (_WOULD_WAIT,)
    waits = [e for e in events if e["name"] in names]
    # what waits within these isn't the step's
    excepted = [e for e in events if e["name"] == END]
    if not gpu:
        excepted += [e for e in events if e["name"].startswith("Optimizer.")]
    calls = Counter(
        e["name"]
        for e in waits
        if not any(o["ts"] <= e["ts"] < o["ts"] + o["dur"] for o in excepted)
    )
    return {name: calls[name] / steps for name in names if calls[name]}


def _notes(events: list[TraceEvent], steps: list[TraceEvent]) -> Iterator[str]:
    counts = [
        sum(
            e.get("cat") == "cpu_op" and s["ts"] <= e["ts"] < s["ts"] + s["dur"]
            for e in events
        )
        for s in steps
    ]
    if max(counts) - min(counts) > max(2, 0.05 * max(counts)):
        yield (
            f"The steps did not do the same work: {', '.join(map(str, counts))}"
            " operators, so the means may mislead."
        )
    longest = max(s["dur"] for s in steps)
    shortest = min(s["dur"] for s in steps)
    if longest > 3 * shortest:
        yield (
            f"The steps took {format_seconds(shortest * 1e-6)} to"
            f" {format_seconds(longest * 1e-6)}."
        )
