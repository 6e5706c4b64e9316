"""Start a process for each rank, as torchrun's agent does; watch them, and end them whatever happens."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch has it and does not declare it

from labkit.dist import rank_failures, worker
from labkit.dist.coordinator import Coordinator, RankState

METHOD = "forkserver" if sys.platform == "linux" else "spawn"
# After a failure, how long to wait for other ranks' messages. Where a rank has failed for its own reason, only for what
# the others have sent already. Else for the rank that broke the connections: the system may report its end late.
_LISTEN_S, _SEARCH_S = 0.05, 1.5
_ANSWER_S = 2.0  # at most, for ranks to say what they are doing: on a busy machine they wait for a core


class Agent:
    """The processes of one launch, and the store in which they find each other."""

    def __init__(self, coordinator: Coordinator, timeout_s: float) -> None:
        self.coordinator = coordinator
        self.timeout_s = timeout_s
        self.timed_out = False
        # The store is this process's, as under torchrun, so that its port is never free for others between two owners.
        # It is handed a socket: one that it opens itself listens on every network interface, without a password.
        listener = socket.create_server(("127.0.0.1", 0))
        self.store_port = int(listener.getsockname()[1])
        self._store: TCPStore | None = TCPStore(
            "127.0.0.1", self.store_port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )

    def run(self, task: worker.Task) -> None:
        """Start the ranks and attend to them until all have returned, one has failed, or the time is over."""
        self._start(task)
        end_s = self.coordinator.now_s() + self.timeout_s
        states = self.coordinator.states
        while any(state.at_work for state in states) and not any(state.failure for state in states):
            if self.coordinator.now_s() >= end_s:
                self.timed_out = True
                break
            self.coordinator.attend(end_s - self.coordinator.now_s())
        if self.timed_out or any(state.failure for state in states):
            self._investigate()
            return
        self.coordinator.dismiss()
        for state in states:
            state.process.join(2 * worker.LEAVE_S)

    def _start(self, task: worker.Task) -> None:
        context = multiprocessing.get_context(METHOD)
        with _without_main_module():
            for rank in range(task.nproc):
                # Every context has it.
                process = context.Process(target=worker.main, args=(rank, task))  # type: ignore[attr-defined]
                # Known before it starts, so that a Stop in between ends it too.
                self.coordinator.states.append(RankState(rank, process))
                process.start()

    def _investigate(self) -> None:
        """After a failure or a timeout, collect what ranks still say: their own errors, or what they are doing."""
        coordinator = self.coordinator
        began_s = coordinator.now_s()
        while not self.timed_out and any(state.at_work for state in coordinator.states):
            first = rank_failures.first_failed(coordinator.states)
            known = first is not None and first.failure is not None and rank_failures.is_own(first.failure)
            if coordinator.now_s() - began_s > (_LISTEN_S if known else _SEARCH_S):
                break
            coordinator.attend(_LISTEN_S)
        coordinator.ask_activities(_ANSWER_S)

    def close(self) -> None:
        """End all ranks and what they started, now, and close the store."""
        processes = [state.process for state in self.coordinator.states if state.process.pid is not None]
        for process in processes:
            if process.exitcode is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except (OSError, AttributeError):  # it has no group of its own yet, or the system has no groups
                    process.kill()
        for process in processes:
            process.join(2.0)
            if process.exitcode is not None:  # its files go now, and not when the last traceback that leads here does
                process.close()
        self._store = None


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep ranks from running the script that launches them once more: the function comes with all that it needs."""
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None:  # a notebook
        yield
        return
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def start_fork_server() -> None:
    """Start the server that ranks are forked from, unless it runs: it has imported torch and nothing of the kernel.

    It and Python's resource tracker stay for the next launch, and end with the kernel.
    """
    if METHOD != "forkserver":
        return
    from multiprocessing import forkserver

    multiprocessing.set_forkserver_preload(["labkit.dist.preload"])
    # One thread, since a fork copies the calling thread alone and would leave the others' locks taken for ever.
    alone = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    before = {name: os.environ.get(name) for name in alone}
    os.environ.update(alone)
    try:
        with _without_main_module():
            forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
