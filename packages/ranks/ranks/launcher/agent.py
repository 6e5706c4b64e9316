"""Start a process for each rank, as torchrun's agent does; watch them, and end them
whatever happens.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import util
from pathlib import Path

from ranks.arguments import check_text
from ranks.channel import Channel
from ranks.inside import worker
from ranks.launcher import rank_failures
from ranks.launcher.coordinator import Coordinator, RankState
from ranks.system import end_descendants, use_short_socket_paths

# what the server that ranks are forked from imports
_preloaded = ["ranks.inside.preload"]
_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
# After a failure, how long to wait for other ranks' messages. Where a rank has failed
# for its own reason, only for what the others have sent already. Else for the rank that
# broke the connections: the system may report its end late.
_LISTEN_S = 0.05
_SEARCH_S = 1.5
# at most, for ranks to say what they are doing: on a busy machine they wait for a core
_ANSWER_S = 2.0

# so that a launch that ends in one thread knows the ranks that another has started
_starting = threading.Lock()
# for what launches in several threads change for all: __main__, the environment, the
# server
alone = threading.Lock()
_ranks: set[int] = set()  # of all launches that run


def preload(*modules: str) -> None:
    """Let the server that ranks are forked from import modules, so that no rank has to.

    It starts with the first launch: later calls change nothing.
    """
    for module in modules:
        check_text("modules", module)
    _preloaded.extend(modules)


class Agent:
    """The processes of one launch."""

    def __init__(self, coordinator: Coordinator, timeout_s: float) -> None:
        self.coordinator = coordinator
        self.timeout_s = timeout_s
        self.timed_out = False

    def run(self, task: worker.Task) -> None:
        """Start the ranks and attend to them until all have returned, one has failed,
        or the time is over.
        """
        self._start(task)
        end_s = self.coordinator.now_s() + self.timeout_s
        states = self.coordinator.states
        while any(state.at_work for state in states) and not any(
            state.failure for state in states
        ):
            if self.coordinator.now_s() >= end_s:
                self.timed_out = True
                break
            self.coordinator.attend(end_s - self.coordinator.now_s())
        if self.timed_out or any(state.failure for state in states):
            self._investigate()
            return
        self.coordinator.dismiss()
        end_s = time.monotonic() + 2 * worker.LEAVE_S
        for state in states:
            state.process.join(max(0.0, end_s - time.monotonic()))

    def _start(self, task: worker.Task) -> None:
        context = multiprocessing.get_context(_METHOD)
        with alone, _without_main_module():
            for rank in range(task.nproc):
                messages, for_messages = socket.socketpair()
                output, for_output = socket.socketpair()
                # once it has started, the rank has its own
                with for_messages, for_output:
                    ends = rank, task, for_messages, for_output
                    process = context.Process(target=worker.main, args=ends)  # type: ignore[attr-defined]  # each has it
                    # Known before it starts, so that a Stop in between ends it too.
                    self.coordinator.add(
                        RankState(rank, process, Channel(messages), Channel(output))
                    )
                    with _starting:
                        process.start()
                        _ranks.add(process.pid)

    def _investigate(self) -> None:
        """After a failure or a timeout, collect what ranks still say: their own errors,
        or what they are doing.
        """
        coordinator = self.coordinator
        began_s = coordinator.now_s()
        while not self.timed_out and any(state.at_work for state in coordinator.states):
            first = rank_failures.first_failed(coordinator.states)
            failure = first.failure if first is not None else None
            own_reason = failure is not None and rank_failures.is_own(failure)
            listen_s = _LISTEN_S if own_reason else _SEARCH_S
            if coordinator.now_s() - began_s > listen_s:
                break
            coordinator.attend(_LISTEN_S)
        coordinator.ask_activities(_ANSWER_S)

    def close(self) -> None:
        """End all ranks and whatever they started, now."""
        processes = [
            state.process
            for state in self.coordinator.states
            if state.process.pid is not None
        ]
        with _starting:
            _ranks.difference_update(process.pid for process in processes)
            for process in processes:
                # nobody is left in its group, or the system has no groups
                with suppress(OSError, AttributeError):
                    os.killpg(process.pid, signal.SIGKILL)
                if process.exitcode is None:
                    process.kill()
            server = _server_pid()
            if server is not None:
                end_descendants(server, spare=_ranks)
        for process in processes:
            process.join(2.0)
            # its files go now, and not when the last traceback that leads here does
            if process.exitcode is not None:
                process.close()


def private_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for one launch that no other user can enter, in the fork server's own,
    which ends with it.
    """
    return tempfile.TemporaryDirectory(
        dir=util.get_temp_dir(), prefix="launch-", ignore_cleanup_errors=True
    )


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep ranks from running the script that launches them once more: the function
    comes with all that it needs.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    if file is None and spec is None:  # a notebook
        yield
        return
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Within the block, environment variables have other values."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def start_fork_server() -> None:
    """Start the server that ranks are forked from, unless it runs: it has imported
    torch and nothing of the kernel.

    It and Python's resource tracker stay for the next launch, and end with the kernel.
    """
    if _METHOD != "forkserver":
        return
    from multiprocessing import forkserver

    use_short_socket_paths()
    server = _server_pid()
    address = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    if server is not None and not Path(address).exists():
        # The system removes from /tmp what has not been used for days: without its
        # socket, the server is of no use.
        Path(util.get_temp_dir()).mkdir(mode=0o700, exist_ok=True)
        os.kill(server, signal.SIGKILL)
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
    multiprocessing.set_forkserver_preload(_preloaded)
    # One thread, since a fork copies the calling thread alone and would leave the
    # others' locks taken for ever.
    variables = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    with _environment(variables), _without_main_module():
        forkserver.ensure_running()


def _server_pid() -> int | None:
    """The process that ranks are forked from, and their children fall to, if there is
    one.
    """
    from multiprocessing import forkserver

    pid: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # private: the only way
    return pid
