"""One function on N processes: results and metrics back, failures explained."""

from __future__ import annotations

import linecache
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ranks import system
from ranks._text import format_seconds, shown
from ranks.arguments import check_count, check_function, check_seconds
from ranks.errors import RankFailed
from ranks.inside import rank_context
from ranks.inside.rank_context import Report
from ranks.inside.worker import Task
from ranks.launcher import agent, rank_failures
from ranks.launcher.agent import Agent, private_folder
from ranks.launcher.coordinator import Coordinator
from ranks.spans import Span, spans_of

# What a rank takes for itself with a small model: measured 18 MB forked, 160 MB started
# anew (torch 2.13, Linux).
_FORKED_BYTES = 32 << 20
_FRESH_BYTES = 200 << 20
# a rank takes five of the 1,024 files that Linux lets a process open, and the notebook
# needs its own
MOST_RANKS = 120
# environment variables of earlier launches: the fork server, which lives on, may have
# them
_earlier_names: set[str] = set()


@dataclass(frozen=True, repr=False, eq=False)
class Launched(Sequence[Any]):
    """What each rank returned, in order; what ranks reported; and spans of what each
    did when, on one clock.

    `spent` has, for each rank, the seconds that its threads were on a core, and that
    they waited for one: zeros where the system doesn't say. `origin` is "simulated"
    where a rank made a simulated span.
    """

    values: tuple[Any, ...]
    seconds: float
    reports: tuple[Report, ...] = ()
    spans: tuple[Span, ...] = ()
    origin: Literal["measured", "simulated"] = "measured"
    spent: tuple[tuple[float, float], ...] = ()

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | tuple | Launched):
            return NotImplemented
        return list(self) == list(other)

    def __repr__(self) -> str:
        ranks = "1 rank" if len(self) == 1 else f"{len(self)} ranks"
        devices = " (simulated devices)" if self.origin == "simulated" else ""
        return f"{ranks} returned after {format_seconds(self.seconds)}{devices}"


def launch(
    fn: Callable[..., Any],
    nproc: int,
    *args: Any,
    timeout_s: float = 60.0,
    on_report: Callable[[Report], object] | None = None,
    threads: int = 1,
) -> Launched:
    """Run `fn(*args)` on `nproc` processes at once and return what each returned, rank
    by rank.

    Each process has torchrun's environment, `threads` threads, a GPU where each can
    have one, and `fn` calls `torch.distributed.init_process_group` itself. Meanwhile
    `on_report` is called here with what ranks `report`. Ranks that aren't done after
    `timeout_s` seconds are ended. When it returns or raises, nothing runs any more that
    ranks have started, daemons on Linux included.

    RankFailed says which rank failed first and why, what each was doing, or which
    tensors differ. TypeError and ValueError say what can't be launched, RuntimeError
    that a rank can't launch ranks.

    Other users of this machine can't join, read or write (`ranks.inside.rank_groups`);
    root, and whatever runs as you, can. MASTER_ADDR and MASTER_PORT name a free port,
    for a store that `fn` makes itself. gloo and NCCL stay on the loopback interface,
    whatever GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME say.
    """
    check_count(
        "nproc", nproc, MOST_RANKS, "It is the number of ranks on this machine."
    )
    check_seconds("timeout_s", timeout_s)
    check_count("threads", threads)
    check_function("fn", fn)
    if on_report is not None:
        check_function("on_report", on_report)
    _check_place_and_memory(nproc)
    call = _pickled(fn, args)
    method = multiprocessing.get_start_method(allow_none=True)
    start_s = time.monotonic()
    with agent.alone:
        agent.start_fork_server()
    with private_folder() as folder:
        task = Task(
            nproc=int(nproc),
            folder=folder,
            free_port=_free_port(),
            call=call,
            environment=_environment(),
            sources=_cells(),
            start_s=start_s,
            threads=int(threads),
            start_method=method,
        )
        with (
            closing(Coordinator(start_s, on_report)) as coordinator,
            closing(Agent(coordinator, timeout_s)) as processes,
        ):
            processes.run(task)
        differ = rank_failures.sizes_differ(folder)
    states = coordinator.states
    if processes.timed_out or any(state.failure for state in states):
        raise RankFailed(rank_failures.explain(states, timeout_s, differ))
    if differ:
        raise RankFailed(f"All ranks returned, with wrong results. {differ}")
    from ranks.packing import unpack  # imports torch

    values = tuple(unpack(state.result) for state in states)
    traces = [state.trace for state in states]
    simulated = any(trace.simulated for trace in traces)
    return Launched(
        values,
        coordinator.now_s(),
        tuple(coordinator.reports),
        spans_of(traces),
        origin="simulated" if simulated else "measured",
        spent=tuple(trace.spent for trace in traces),
    )


def _check_place_and_memory(nproc: int) -> None:
    """Raise RuntimeError inside a rank, and ValueError for more ranks than fit, before
    anything is started.
    """
    if rank_context.current() is not None:
        raise RuntimeError(
            "launch was called inside a rank of another launch. Start all ranks from"
            " the process that launched this one."
        )
    rank_bytes = _FORKED_BYTES if sys.platform == "linux" else _FRESH_BYTES
    memory = system.memory_bytes()
    if nproc * rank_bytes > memory:
        needed = f"{nproc * rank_bytes / 2**30:.1f} GiB, {rank_bytes >> 20} MiB"
        raise ValueError(
            f"{nproc} ranks need about {needed} each before any tensor, and this"
            f" machine has {memory / 2**30:.1f} GiB. Pass a smaller nproc."
        )


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps((fn, args)))
    except Exception as error:
        raise TypeError(
            "Expected a function and arguments that can be sent to another process,"
            f" but {shown(fn)} or an argument can't ({error}). Make such objects,"
            " like open files or locks, inside the function."
        ) from None


def _environment() -> dict[str, str | None]:
    """The notebook's environment, None for what it no longer has; with what keeps ranks
    on this machine's loopback.
    """
    environment = dict.fromkeys(_earlier_names) | dict(os.environ)
    _earlier_names.update(os.environ)
    loopback = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
    # whatever the notebook says, for a cluster perhaps: here no rank is elsewhere
    if loopback is not None:
        environment["GLOO_SOCKET_IFNAME"] = loopback
        environment["NCCL_SOCKET_IFNAME"] = loopback
        environment["TP_SOCKET_IFNAME"] = loopback
    # gloo connects when a group is made, and not at the first message: then
    # rank_groups.py looks at who has connected.
    environment["TORCH_GLOO_LAZY_INIT"] = "0"
    return environment


def _free_port() -> int:
    """A port for a store that the function may open itself: it finds MASTER_PORT as
    under torchrun.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _cells() -> dict[str, str]:
    """The text of the notebook's cells by the file name in tracebacks, since ranks
    can't read them from a disk.
    """
    cells = {}
    for name, entry in list(linecache.cache.items()):
        if len(entry) != 4:  # not read yet
            continue
        _, _, lines, _ = entry
        if lines and not name.startswith("<frozen") and not Path(name).exists():
            cells[name] = "".join(lines)
    return cells
