"""How much of a measurement's time other programs took: a busy machine is told from a
slow one.

Linux counts, for each thread, the nanoseconds on a core and those in which it could
have run and had none. What a process takes from itself, with more threads than cores,
makes no busy machine: only what others used counts. Source: Linux,
Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from labkit.measure import host

# From this share of lost time on, a measurement gives no verdict. On a calm machine of
# two cores all shares were below 0.01; one busy loop beside a comparison on both cores
# made it 0.5, and that 5 to 60 times slower.
BUSY = 0.05
_TICK_S = 0.01  # the steps in which CPU times are counted
# (process, thread) -> seconds (on a core, waiting for one)
Spent = dict[tuple[int, int], tuple[float, float]]
# of all cores' time in use: where the system doesn't say who waited, somebody will have
_FULL = 0.9


@dataclass(frozen=True)
class Contention:
    """The share of its time, 0 to 1, that a measurement lost to others; None where the
    system doesn't say.

    `reason` says what was busy, and how much, if no verdict may rest on the
    measurement; else it is empty.
    """

    lost: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Reading:
    """Counters at one moment, in seconds.

    `threads` has (on a core, waiting for one) for each thread of this process and of
    those that it started, None if the system doesn't say; `own_s` is their CPU time,
    `all_s` that of all programs. `stolen_s` is what a virtual machine's host took. A
    container's CPU limit stopped it for `stopped_s`, in which its programs used
    `group_s`.
    """

    at_s: float
    cores: int
    threads: Spent | None
    own_s: float
    all_s: float
    stolen_s: float = 0.0
    stopped_s: float = 0.0
    group_s: float = 0.0


class Watch:
    """What others take from now on. With `gpu` it looks for their processes on the GPU
    too, and at its clock.
    """

    def __init__(self, *, gpu: bool = False) -> None:
        self.gpu = gpu
        self._first = read()

    def so_far(self) -> Contention:
        """What they took until now."""
        contention = between(self._first, read())
        if contention.reason or not self.gpu:
            return contention
        reason = (
            "this GPU was slowed down by its hardware, for heat or its supply"
            if host.gpu_slowed()
            else ""
        )
        if strangers := others_on_gpu():
            reason = (
                "this GPU was shared: others use it (PID"
                f" {', '.join(map(str, strangers))})"
            )
        return Contention(contention.lost, reason)


def read() -> Reading:
    """The counters now. It takes milliseconds: read outside what is timed."""
    family = _family()
    times = psutil.cpu_times()
    # Linux counts a guest's time as its host's user time as well, and charges
    # interrupts, such as those in which the ranks' own messages arrive, to no process.
    beside = ("idle", "iowait", "steal", "guest", "guest_nice", "irq", "softirq")
    all_s = sum(
        seconds for name, seconds in times._asdict().items() if name not in beside
    )
    own_s = 0.0
    for process in family:
        with contextlib.suppress(psutil.Error):
            # user and system, its own and those of its children that have ended
            own_s += sum(process.cpu_times()[:4])
    stopped_s, group_s = host.throttled(host.CGROUPS, host.own_cgroup())
    return Reading(
        time.perf_counter(),
        host.usable_cores(),
        _threads(family),
        own_s,
        all_s,
        getattr(times, "steal", 0.0),
        stopped_s,
        group_s,
    )


def between(first: Reading, last: Reading) -> Contention:
    """What was lost to others between two readings, and the sentence about it if that
    is 5 % or more.
    """
    wall_s = last.at_s - first.at_s
    own_s = last.own_s - first.own_s
    all_s = last.all_s - first.all_s
    others_s = max(all_s - own_s, 0.0)
    stolen_s = max(last.stolen_s - first.stolen_s - _TICK_S, 0.0)
    shares = {
        "this virtual machine was busy: its host gave {} of the time to others": _share(
            stolen_s, all_s
        )
    }
    ran_s, waited_s = _spent(first.threads or {}, last.threads or {})
    # Threads that have ended took their counters with them: what is left must be most
    # of the time.
    known = (
        first.threads is not None
        and last.threads is not None
        and own_s <= 2 * (ran_s + _TICK_S)
    )
    if known:
        # More threads than cores wait for each other; and nobody waits for others
        # longer than they run.
        own_crowd_s = max(ran_s + waited_s - last.cores * wall_s, 0.0)
        lost_s = min(max(waited_s - own_crowd_s, 0.0), others_s + _TICK_S)
        # CPU times are off by a tick at either end, and each short cell waits a moment
        if lost_s < 2.5 * _TICK_S:
            lost_s = 0.0
        shares["this machine was busy: {} of the time waiting for a core"] = _share(
            lost_s, max(ran_s, wall_s - lost_s)
        )
        neighbours_s = max(last.group_s - first.group_s - own_s, 0.0)
        halted_s = min(last.stopped_s - first.stopped_s, neighbours_s)
        shares["this container was busy: its CPU limit stopped it {} of the time"] = (
            _share(halted_s, ran_s)
        )
    words, lost = max(shares.items(), key=lambda item: item[1])
    if lost >= BUSY:
        return Contention(lost, words.format(f"{100 * lost:.0f} %"))
    if known:
        return Contention(lost)
    if (
        all_s > _FULL * last.cores * wall_s > 0
        and _share(others_s - _TICK_S, own_s) >= BUSY
    ):
        return Contention(
            None,
            f"this machine was busy: other programs used {others_s / wall_s:.1f} of its"
            " cores",
        )
    return Contention()


def _share(lost_s: float, used_s: float) -> float:
    return lost_s / (lost_s + used_s) if lost_s > 0 else 0.0


def _spent(first: Spent, last: Spent) -> tuple[float, float]:
    """Seconds on a core and waiting for one, of all threads that are
    there at the end.
    """
    ran_s = waited_s = 0.0
    for thread, (ran, waited) in last.items():
        before = first.get(thread, (0.0, 0.0))
        ran_s = ran_s + ran - before[0]
        waited_s = waited_s + waited - before[1]
    return ran_s, waited_s


def _family() -> list[psutil.Process]:
    """The process and all that it started; in a rank or a data worker, those of the
    notebook that started it.
    """
    parent = multiprocessing.parent_process()
    try:
        root = psutil.Process(None if parent is None else parent.pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return [psutil.Process()]


_ended = (0.0, 0.0)  # of ranks that are gone, and their counters with them


def add_ended(spent: Sequence[tuple[float, float]]) -> None:
    """Add seconds on a core and waiting of processes of this one that have ended."""
    global _ended
    _ended = (
        _ended[0] + sum(ran for ran, _ in spent),
        _ended[1] + sum(waited for _, waited in spent),
    )


def _threads(
    family: Sequence[psutil.Process], proc: Path = Path("/proc")
) -> Spent | None:
    seconds_of = {(0, 0): _ended}
    for process in family:
        for path in proc.glob(f"{process.pid}/task/*/schedstat"):
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                ran, waited = path.read_text().split()[:2]
                seconds_of[process.pid, int(path.parent.name)] = (
                    int(ran) * 1e-9,
                    int(waited) * 1e-9,
                )
    # Linux without scheduler statistics writes zeros.
    return (
        seconds_of
        if any(ran for thread, (ran, _) in seconds_of.items() if thread != (0, 0))
        else None
    )


def others_on_gpu() -> list[int]:
    """PIDs of processes that aren't this one's at work on the GPUs that it uses; empty
    where nvidia-smi can't say.
    """
    listed = host.printed(
        "nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader"
    )
    processes = [
        (int(pid), gpu) for pid, gpu in re.findall(r"(?m)^(\d+), *(\S+)", listed)
    ]
    own = {process.pid for process in _family()}
    # empty in a container that numbers its processes by itself
    used = {gpu for pid, gpu in processes if pid in own}
    others = {pid for pid, gpu in processes if gpu in used and pid not in own}
    # gpu, pid, type, and the share of the multiprocessors: "-" for a process that is
    # there and does nothing
    shown = host.printed("nvidia-smi", "pmon", "-c", "1", "-s", "u") if others else ""
    at_work = [line.split() for line in shown.splitlines()]
    idle = {row[1] for row in at_work if row[3:4] in (["-"], ["0"])} - {
        row[1] for row in at_work if row[3:4] > ["0"]
    }
    return sorted(pid for pid in others if str(pid) not in idle)


class CellMeter:
    """What others took from the cells of this kernel, for numbers that arrive without a
    timing.

    A number may have been measured in an earlier cell than the one that records it, so
    what counts is the worst of the cells since the last one that recorded something.
    """

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._found: list[Contention] = []
        self._recorded = False

    def begin(self, _: object = None) -> None:
        """A cell begins."""
        if self._recorded:
            self._found = []
            self._recorded = False
        self._watch = Watch()

    def end(self, _: object = None) -> None:
        """The cell has ended."""
        if self._watch is not None:
            self._found.append(self._watch.so_far())
        self._watch = None

    def note(self, contention: Contention | None) -> None:
        """A timing with this contention was used in the running cell."""
        if self._watch is not None and contention is not None and contention.reason:
            self._found.append(contention)

    def worst(self, *, recording: bool = False) -> Contention:
        """The worst so far; with `recording`, the next cell begins anew."""
        now = []
        if self._watch is not None:
            torch = sys.modules.get("torch")
            self._watch.gpu = torch is not None and bool(torch.cuda.is_initialized())
            now = [self._watch.so_far()]
        self._recorded = self._recorded or recording
        return max(
            [*self._found, *now],
            key=lambda one: (bool(one.reason), one.lost or 0.0),
            default=Contention(),
        )


CELLS = CellMeter()
