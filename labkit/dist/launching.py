"""One function on N processes: results and metrics back, failures explained."""

from __future__ import annotations

import gc
import linecache
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from labkit.measure import host
from labkit.core.arguments import check_function, check_number
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument, LabError, RankFailed
from labkit.dist.rank_context import Report, RankTrace, me
from labkit.dist.rank_timeline import spans_of
from labkit.core.spans import Span
from labkit.core.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from labkit.dist.agent import Agent
    from labkit.dist.coordinator import Coordinator
    from labkit.dist.rendezvous import OneNode, SeveralNodes

# What a rank takes for itself with a small model: measured 18 MB forked, 160 MB started anew (torch 2.13, Linux).
_FORKED_BYTES, _FRESH_BYTES = 32 << 20, 200 << 20
_MOST = 120  # a process can hand on 253 files at once, and each rank takes two: multiprocessing.forkserver
_had: set[str] = set()  # environment variables of earlier launches: the server, which lives on, may have them


@dataclass(frozen=True, repr=False, eq=False)
class Launched(Sequence[Any]):
    """What each rank of this machine returned, in order; what ranks reported; who did what when, on one clock."""

    values: tuple[Any, ...]
    seconds: float
    reports: tuple[Report, ...] = ()
    spans: tuple[Span, ...] = ()
    origin: Literal["measured", "simulated"] = "measured"

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | tuple | Launched) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        ranks = "1 rank" if len(self) == 1 else f"{len(self)} ranks"
        with_cards = " (simulated devices)" if self.origin == "simulated" else ""
        return f"{ranks} returned after {format_seconds(self.seconds)}{with_cards}"


def launch(
    fn: Callable[..., Any],
    nproc: int,
    *args: Any,
    timeout_s: float = 60.0,
    on_report: Callable[[Report], object] | None = None,
    threads: int = 1,
    nnodes: int = 1,
    rendezvous: str | None = None,
) -> Launched:
    """Run `fn(*args)` on `nproc` processes at once and return what each returned, rank by rank.

    Each process has torchrun's environment, `threads` threads, a GPU where each can have one, and `fn` calls
    `dist.init_process_group(lab.dist.backend())` itself. Meanwhile `on_report` is called here with what ranks
    `lab.report`. With `nnodes` the same call on several machines, each with `rendezvous="host:port"` of one of
    them, makes one launch; each gets its own ranks' results. Ranks that don't end in `timeout_s` seconds are ended.
    RankFailed says which rank failed first and why, or where each stands; BadArgument what can't be launched.
    """
    _check(fn, nproc, timeout_s, threads, nnodes, rendezvous)
    from labkit.dist import agent as agents
    from labkit.dist.coordinator import Coordinator
    from labkit.dist.rendezvous import OneNode, SeveralNodes
    from labkit.dist.worker import Task

    call, method = _pickled(fn, args), multiprocessing.get_start_method(allow_none=True)
    start_s = time.monotonic()
    agents.warm_up()
    coordinator = Coordinator(start_s, on_report)
    handler = OneNode() if rendezvous is None else SeveralNodes(rendezvous, int(nnodes), timeout_s)
    task = Task(coordinator.port, coordinator.token, call, _environment(rendezvous), _cells(), start_s, int(threads), method)
    agent = agents.Agent(task, int(nproc), handler, coordinator, timeout_s)
    try:
        return _run(agent, coordinator, handler)
    except (KeyboardInterrupt, LabError) as error:
        error.__context__ = None  # torch's agent is nothing that the reader asked for; and it is gone with its frames
        raise error.with_traceback(None) from None
    finally:
        del agent, task


def _run(agent: Agent, coordinator: Coordinator, handler: OneNode | SeveralNodes) -> Launched:
    """Run the agent until all ranks are gone, and turn what came into results or RankFailed."""
    from labkit.dist import agent as agents
    from labkit.dist import failures
    from labkit.dist.packing import unpack
    from labkit.dist.rendezvous import SeveralNodes

    try:
        with agents.quiet():
            agent.run()
            states = coordinator.states
            if agent.timed_out or any(state.failure for state in states):
                raise RankFailed(failures.explain(states, agent.timeout_s, agent.elsewhere))
            trails = _all_trails(agent)
    finally:
        coordinator.close()
        with agents.quiet():
            handler.shutdown()
        if isinstance(handler, SeveralNodes):
            gc.collect()  # torch's rendezvous refers to itself, and would keep its port
    values = tuple(unpack(state.result) for state in states)
    return Launched(
        values,
        coordinator.now_s(),
        tuple(coordinator.reports),
        spans_of(trails),
        "simulated" if any(trail.simulated for trail in trails.values()) else "measured",
    )


def _all_trails(agent: Agent) -> dict[int, RankTrace]:
    """The trails of all ranks, on the clock of node 0 and since the start there."""
    mine = {state.rank: state.trail for state in agent.coordinator.states}
    nodes = agent.nodes.exchange((agent.coordinator.start_s - agent.nodes.ahead_s, mine), agent.timeout_s)
    first_s = nodes[0][0]
    return {rank: _later(trail, zero_s - first_s) for zero_s, trails in nodes for rank, trail in trails.items()}


def _later(trail: RankTrace, by_s: float) -> RankTrace:
    return replace(
        trail,
        spans=[(start + by_s, end + by_s, *rest) for start, end, *rest in trail.spans],
        arrivals=[(key, at + by_s) for key, at in trail.arrivals],
    )


def _check(fn: object, nproc: Any, timeout_s: Any, threads: Any, nnodes: Any, rendezvous: Any) -> None:
    """Raise BadArgument for what can't be launched, before anything is started."""
    check_function("fn", fn)
    check_number("nproc", nproc, least=1, whole=True, advice="It is the number of ranks on this machine.")
    check_number("threads", threads, least=1, whole=True)
    check_number("timeout_s", timeout_s, above=0)
    check_number("nnodes", nnodes, least=1, whole=True)
    if me() is not None:
        raise RankFailed("lab.launch was called inside a rank of another launch. Start all ranks from the notebook.")
    each = _FORKED_BYTES if sys.platform == "linux" else _FRESH_BYTES
    if nproc * each > host.memory_bytes():
        raise BadArgument(
            f"{nproc} ranks need about {format_bytes(nproc * each)}, {format_bytes(each)} each before any tensor, and "
            f"this machine has {format_bytes(host.memory_bytes())}. Pass a smaller nproc."
        )
    if nproc > _MOST:
        raise BadArgument(f"Expected nproc to be at most {_MOST} on one machine, got {nproc}.")
    name, _, port = rendezvous.rpartition(":") if isinstance(rendezvous, str) else ("", "", "")
    good = bool(name) and port.isdecimal() and 0 < int(port) < 65536
    if (nnodes > 1 and not good) or (rendezvous is not None and not good):
        raise BadArgument(
            f'Expected rendezvous to be "host:port" of one of the {nnodes} machines, the same on each, '
            f"got {brief_repr(rendezvous)}."
        )


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps((fn, args)))
    except Exception as error:
        raise BadArgument(
            f"{brief_repr(fn)} or an argument can't be sent to another process ({error}). Make such objects, like open "
            "files or locks, inside the function."
        ) from None


def _environment(rendezvous: str | None) -> dict[str, str | None]:
    """The notebook's environment, None for what it no longer has; with the network interface that gloo shall use."""
    from labkit.dist.rendezvous import address_towards, interface_of

    environment = dict.fromkeys(_had) | dict(os.environ)
    _had.update(os.environ)
    loopback = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
    name: str | None = loopback
    if rendezvous is not None:
        endpoint, _, port = rendezvous.rpartition(":")
        try:
            name = interface_of(address_towards(endpoint, int(port)))
        except OSError:  # no such host, which the rendezvous says better
            name = None
    if name is not None and environment.get("GLOO_SOCKET_IFNAME") is None:
        environment["GLOO_SOCKET_IFNAME"] = name  # without one gloo looks for the right one, and may not find it
    return environment


def _cells() -> dict[str, str]:
    """Text of the notebook's cells by the file name in tracebacks: no rank could read them from a disk."""
    return {
        name: "".join(entry[2])
        for name, entry in list(linecache.cache.items())
        if len(entry) == 4 and entry[2] and not name.startswith("<frozen") and not Path(name).exists()
    }
