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
_ENDED = (0, 0)  # in place of the threads of ranks that are gone
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
        return Contention(contention.lost, _trouble_of_gpu())


def _trouble_of_gpu() -> str:
    if others := others_on_gpu():
        numbers = ", ".join(map(str, others))
        return f"this GPU was shared: others use it (PID {numbers})"
    if host.gpu_slowed():
        return "this GPU was slowed down by its hardware, for heat or its supply"
    return ""


def read() -> Reading:
    """The counters now. It takes milliseconds: read outside what is timed."""
    family = _family()
    times = psutil.cpu_times()
    # Linux counts a guest's time as its host's user time as well, and charges
    # interrupts, such as those in which the ranks' own messages arrive, to no process.
    left_out = ("idle", "iowait", "steal", "guest", "guest_nice", "irq", "softirq")
    all_s = sum(
        seconds for name, seconds in times._asdict().items() if name not in left_out
    )
    own_s = 0.0
    for process in family:
        with contextlib.suppress(psutil.Error):
            # user and system, its own and those of its children that have ended
            own_s += sum(process.cpu_times()[:4])
    stopped_s, group_s = host.throttled(host.CGROUPS, host.own_cgroup())
    return Reading(
        at_s=time.perf_counter(),
        cores=host.usable_cores(),
        threads=_threads(family),
        own_s=own_s,
        all_s=all_s,
        stolen_s=getattr(times, "steal", 0.0),
        stopped_s=stopped_s,
        group_s=group_s,
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
    host_share = _share(stolen_s, all_s)
    waiting_share = limit_share = 0.0
    ran_s, waited_s = _spent(first.threads or {}, last.threads or {})
    # Threads that have ended took their counters with them: what is left must be most
    # of the time.
    waits_known = (
        first.threads is not None
        and last.threads is not None
        and own_s <= 2 * (ran_s + _TICK_S)
    )
    if waits_known:
        # More threads than cores wait for each other; and nobody waits for others
        # longer than they run.
        own_crowd_s = max(ran_s + waited_s - last.cores * wall_s, 0.0)
        lost_s = min(max(waited_s - own_crowd_s, 0.0), others_s + _TICK_S)
        # CPU times are off by a tick at either end, and each short cell waits a moment
        if lost_s < 2.5 * _TICK_S:
            lost_s = 0.0
        waiting_share = _share(lost_s, max(ran_s, wall_s - lost_s))
        neighbors_s = max(last.group_s - first.group_s - own_s, 0.0)
        halted_s = min(last.stopped_s - first.stopped_s, neighbors_s)
        limit_share = _share(halted_s, ran_s)
    lost = max(host_share, waiting_share, limit_share)
    if lost >= BUSY:
        percent = f"{100 * lost:.0f} %"
        if lost == host_share:
            reason = (
                f"this virtual machine was busy: its host gave {percent} of the time to"
                " others"
            )
        elif lost == waiting_share:
            reason = f"this machine was busy: {percent} of the time waiting for a core"
        else:
            reason = (
                f"this container was busy: its CPU limit stopped it {percent} of the"
                " time"
            )
        return Contention(lost, reason)
    if waits_known:
        return Contention(lost)
    cores_s = last.cores * wall_s
    all_in_use = cores_s > 0 and all_s > _FULL * cores_s
    if all_in_use and _share(others_s - _TICK_S, own_s) >= BUSY:
        cores = f"{others_s / wall_s:.1f} of its cores"
        return Contention(None, f"this machine was busy: other programs used {cores}")
    return Contention()


def _share(lost_s: float, used_s: float) -> float:
    return lost_s / (lost_s + used_s) if lost_s > 0 else 0.0


def _spent(first: Spent, last: Spent) -> tuple[float, float]:
    """Seconds on a core and waiting for one, of all threads that are
    there at the end.
    """
    ran_s = waited_s = 0.0
    for thread, (last_ran_s, last_waited_s) in last.items():
        first_ran_s, first_waited_s = first.get(thread, (0.0, 0.0))
        ran_s += last_ran_s - first_ran_s
        waited_s += last_waited_s - first_waited_s
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
    spent: Spent = {}
    for process in family:
        for path in proc.glob(f"{process.pid}/task/*/schedstat"):
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                ran_ns, waited_ns = map(int, path.read_text().split()[:2])
                thread = process.pid, int(path.parent.name)
                spent[thread] = (ran_ns * 1e-9, waited_ns * 1e-9)
    # Linux without scheduler statistics writes zeros.
    if not any(ran_s for ran_s, _ in spent.values()):
        return None
    return {_ENDED: _ended, **spent}


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
    used_gpus = {gpu for pid, gpu in processes if pid in own}
    others = {pid for pid, gpu in processes if gpu in used_gpus and pid not in own}
    return sorted(others - _idle_on_gpu()) if others else []


def _idle_on_gpu() -> set[int]:
    """PIDs of processes that are on GPUs and at work on none."""
    listed = host.printed("nvidia-smi", "pmon", "-c", "1", "-s", "u")
    idle = set[int]()
    at_work = set[int]()
    # gpu, pid, type, and the share of the multiprocessors: "-" for a process that is
    # there and does nothing
    for pid, share in re.findall(r"(?m)^ *\d+ +(\d+) +\S+ +(\S+)", listed):
        (idle if share in ("-", "0") else at_work).add(int(pid))
    return idle - at_work


class CellMeter:
    """What others took from the cells of this kernel, for numbers that arrive without a
    timing.

    A number may have been measured in an earlier cell than the one that records it, so
    what counts is the worst of the cells since the last one that recorded something.
    """

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._contentions: list[Contention] = []
        self._recorded = False

    def begin(self, _: object = None) -> None:
        """A cell begins."""
        if self._recorded:
            self._contentions = []
            self._recorded = False
        self._watch = Watch()

    def end(self, _: object = None) -> None:
        """The cell has ended."""
        if self._watch is not None:
            self._contentions.append(self._watch.so_far())
        self._watch = None

    def note(self, contention: Contention | None) -> None:
        """A timing with this contention was used in the running cell."""
        if self._watch is not None and contention is not None and contention.reason:
            self._contentions.append(contention)

    def worst(self, *, recording: bool = False) -> Contention:
        """The worst so far; with `recording`, the next cell begins anew."""
        contentions = list(self._contentions)
        if self._watch is not None:
            torch = sys.modules.get("torch")
            self._watch.gpu = torch is not None and bool(torch.cuda.is_initialized())
            contentions.append(self._watch.so_far())
        self._recorded = self._recorded or recording

        def badness(contention: Contention) -> tuple[bool, float]:
            return bool(contention.reason), contention.lost or 0.0

        return max(contentions, key=badness, default=Contention())


CELLS = CellMeter()
