"""torchrun's own agent, made to watch its ranks from a notebook: it starts them, and ends them whatever happens."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util
from multiprocessing.synchronize import SemLock
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler

from labkit.dist import failures, worker
from labkit.dist.coordinator import Coordinator, RankState
from labkit.dist.nodes import Nodes

METHOD = "forkserver" if sys.platform == "linux" else "spawn"
# After a failure, how long to wait for others: for their own words where one is to blame already; else until a rank
# turns out to be that broke the connections, whose end the system may report late.
_LISTEN_S, _SEARCH_S = 0.05, 1.5
_ANSWER_S = 2.0  # at most, for a rank to say where it is; a busy machine lets it wait for a core


class _NoLogs(LogsSpecs):
    """No files: what ranks say comes over their lines."""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        for environment in envs.values():
            environment["TORCHELASTIC_ERROR_FILE"] = ""
        nowhere = dict.fromkeys(envs, "")
        return LogsDest(nowhere, nowhere, {}, {}, dict.fromkeys(envs, os.devnull), "", "")

    @property
    def root_log_dir(self) -> str:
        return os.devnull


class Agent(LocalElasticAgent):
    """Starts the ranks, attends to the coordinator until all have returned, one has failed, or the time is over."""

    def __init__(self, task: worker.Task, nproc: int, handler: RendezvousHandler, coordinator: Coordinator, timeout_s: float) -> None:
        spec = WorkerSpec(
            role="rank",
            local_world_size=nproc,
            entrypoint=worker.main,
            args=(task,),
            rdzv_handler=handler,
            max_restarts=0,
            monitor_interval=0.001,
        )
        super().__init__(spec, _NoLogs(), start_method=METHOD, exit_barrier_timeout=timeout_s)
        self.coordinator = coordinator
        self.timeout_s = timeout_s
        self.timed_out = False
        self.nodes = Nodes(None, 0, 1)
        self.elsewhere: list[str] = []  # why ranks of other machines failed
        self._semaphores: list[Any] = []
        self._over = False

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self.nodes = Nodes(worker_group.store, worker_group.group_rank or 0, worker_group.group_world_size or 1)
        self.nodes.set_clock()
        before = set(util._finalizer_registry)  # type: ignore[attr-defined]
        with _same_signal_handlers(), _no_main_module():
            pids: dict[int, Any] = super()._start_workers(worker_group)
        registered = util._finalizer_registry.items()  # type: ignore[attr-defined]
        self._semaphores = [f for key, f in registered if key not in before and f._callback is SemLock._cleanup]  # type: ignore[attr-defined]
        processes = self._pcontext._pc.processes  # type: ignore[union-attr]
        self.coordinator.states = [RankState(w.global_rank, processes[w.local_rank]) for w in worker_group.workers]
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        coordinator = self.coordinator
        end_s = coordinator.now_s() + self.timeout_s
        while any(state.at_work for state in coordinator.states):
            self.timed_out = coordinator.now_s() >= end_s
            if self.timed_out or any(state.failure for state in coordinator.states):
                return self._give_up()
            coordinator.attend(end_s - coordinator.now_s())
            if self._semaphores and all(state.line for state in coordinator.states):
                self._unlink_semaphores()
        if any(state.failure for state in coordinator.states):
            return self._give_up()
        coordinator.dismiss()
        result: RunResult = super()._monitor_workers(worker_group)
        while result.state == WorkerState.HEALTHY:
            time.sleep(0.002)
            result = super()._monitor_workers(worker_group)
        return result

    def _give_up(self) -> RunResult:
        """Hear what there is to hear about a failure, or about where everybody is; then end all ranks."""
        coordinator = self.coordinator
        began_s = coordinator.now_s()
        while not self.timed_out and any(state.at_work for state in coordinator.states):
            first = failures.first_failed(coordinator.states)
            known = first is not None and first.failure is not None and failures.is_own(first.failure)
            if coordinator.now_s() - began_s > (_LISTEN_S if known else _SEARCH_S):
                break
            coordinator.attend(_LISTEN_S)
        coordinator.ask_places(_ANSWER_S)
        self.kill()
        self.elsewhere = self.nodes.tell_failure(failures.headline(coordinator.states, self.timeout_s), _SEARCH_S)
        return RunResult(state=WorkerState.FAILED)

    def _exit_barrier(self) -> None:
        """Do without: nodes wait for each other when they exchange what their ranks did."""

    def _get_fq_hostname(self) -> str:
        return ""  # for torch's event log, which goes nowhere; without a name server the question takes seconds

    def _unlink_semaphores(self) -> None:
        """Take the names of multiprocessing's semaphores away, once all ranks have them open.

        So no file stays of them, not even of a kernel that is killed together with its process group.
        """
        while self._semaphores:
            self._semaphores.pop()()

    def kill(self) -> None:
        """End all ranks and what they started, now."""
        for state in self.coordinator.states:
            if state.process.exitcode is None:
                try:
                    os.killpg(state.process.pid, signal.SIGKILL)
                except (OSError, AttributeError):  # it has no group of its own yet, or the system has no groups
                    state.process.kill()
        for state in self.coordinator.states:
            state.process.join(2.0)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        if self._over:
            return
        self._over = True
        self.kill()
        super()._shutdown(death_sig, timeout)
        self._unlink_semaphores()
        for state in self.coordinator.states:  # its files go now, and not when the last traceback that leads here is forgotten
            if state.process.exitcode is not None:
                state.process.close()
        if self._pcontext is not None:
            self._pcontext.__dict__.update(_ret_vals={}, _worker_finished_event=None, _pc=None)
            self._pcontext = None


@contextmanager
def _same_signal_handlers() -> Iterator[None]:
    """Put the kernel's handlers back: torch's agent puts its own in their place for good."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    before = {s: signal.getsignal(s) for name in names if (s := getattr(signal, name, None)) is not None}
    try:
        yield
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _no_main_module() -> Iterator[None]:
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


def warm_up() -> None:
    """Start the server that ranks are forked from, unless it runs: it has imported torch and nothing of the kernel.

    It and Python's resource tracker stay for the next launch, and end with the kernel.
    """
    if METHOD != "forkserver":
        return
    from multiprocessing import forkserver

    multiprocessing.set_forkserver_preload(["labkit.dist.preload"])
    alone = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    before = {name: os.environ.get(name) for name in alone}
    os.environ.update(alone)
    try:
        with _no_main_module():
            forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's agent: `lab.launch` says what happens itself."""
    logger = logging.getLogger("torch.distributed.elastic")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
