"""Notebook 17's training on ranks that are threads of one process, run in turn.

One rank runs at a time, until it has to wait for others. Where all that are left wait
for something that can't come, they are told at once what gloo tells them after its
limit. So a run is short, and ends the same whatever else this machine does.
tests/test_exercises/test_clinic17.py compares it with real ranks.
"""

import functools
import threading

import pytest
import torch

from exercises.nb17 import health, settings, training_job
from labkit.measure.machine import threads
from ranks import Launched

LOST = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29500"
ONE_RUN = threading.Lock()  # at a time, whichever thread asks for it
TIMED_OUT = (
    "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting {:.0f}ms for recv"
    " operation to complete"
)


class Rank(threading.Thread):
    """A rank: what it returns or raises, what it has called, and the collective that it
    waits in.
    """

    def __init__(self, rank, fn):
        super().__init__(daemon=True)
        self.rank = rank
        self.fn = fn
        self.value = self.raised = self.waits_in = self.problem = None
        self.recorded = []
        self.gathered = []
        self.may_run = threading.Semaphore(0)
        self.stopped = threading.Semaphore(0)

    def run(self):
        self.may_run.acquire()
        torch.set_num_threads(1)  # as on real ranks; several would wait for a busy core
        try:
            self.value = self.fn()
        except BaseException as error:
            self.raised = error
        self.waits_in = None
        self.stopped.release()

    def step(self):
        """Let it run until it waits or has ended."""
        self.may_run.release()
        self.stopped.acquire()

    def wait_in(self, collective):
        self.waits_in = collective
        self.stopped.release()
        self.may_run.acquire()
        if self.problem:
            raise RuntimeError(self.problem)


class Group:
    """A group of all ranks: its collectives by number, each with the tensors that ranks
    have brought to it.
    """

    def __init__(self, timeout, number):
        self.timeout = timeout
        self.calls = {}
        self.brought = []
        self.number = number


class Ranks:
    """`fn` on each of n ranks; as `dist`, what the training calls of
    torch.distributed.
    """

    distributed_c10d = torch.distributed.distributed_c10d

    def __init__(self, n, fn):
        self.all = [Rank(rank, fn) for rank in range(n)]
        self.groups = []
        self.made = [0] * n

    def run(self):
        for rank in self.all:
            rank.start()
        ready = list(self.all)
        while ready:
            for rank in ready:
                rank.step()
            ready = [
                rank for rank in self.all if rank.waits_in and rank.waits_in.complete
            ]
            waiting = [rank for rank in self.all if rank.waits_in]
            if not ready and waiting:
                lost = len(waiting) < len(self.all)
                for rank in waiting:
                    rank.problem = (
                        LOST
                        if lost
                        else TIMED_OUT.format(
                            1e3 * rank.waits_in.timeout.total_seconds()
                        )
                    )
                ready = waiting
        if raised := [rank.raised for rank in self.all if rank.raised]:
            raise raised[0]
        return Launched(tuple(rank.value for rank in self.all), 0.0)

    def get_rank(self):
        return threading.current_thread().rank

    def get_world_size(self):
        return len(self.all)

    def init_process_group(self, backend):
        assert backend == "gloo"

    def new_group(self, timeout):
        here = self.get_rank()
        self.made[here] += 1
        if len(self.groups) < self.made[here]:
            self.groups.append(Group(timeout, self.made[here]))
        return self.groups[self.made[here] - 1]

    def barrier(self, group=None):
        # that of all ranks, before the training, has no limit to keep
        if group is not None:
            self._collective(group, "barrier", torch.zeros(1), sum)

    def all_reduce(self, tensor, group):
        self._collective(group, "all_reduce", tensor, sum)

    def broadcast(self, tensor, source, group):
        self._collective(group, "broadcast", tensor, lambda brought: brought[source])

    def all_gather_object(self, values, value, group):
        self._collective(group, "all_gather_object", torch.zeros(1), sum, value)
        values[:] = threading.current_thread().gathered

    def flight_record(self):
        return threading.current_thread().recorded[-3:]

    def _collective(self, group, kind, tensor, combine, value=None):
        rank = threading.current_thread()
        number = group.calls[rank] = group.calls.get(rank, -1) + 1
        sizes = [] if kind == "barrier" else [list(tensor.shape)]
        rank.recorded.append(
            f"group {group.number}, call {number + 1}: gloo:{kind} {sizes}"
        )
        if len(group.brought) == number:
            group.brought.append(
                Collective(kind, combine, len(self.all), group.timeout)
            )
        group.brought[number].join(rank, kind, tensor, value)


class Collective:
    """One call of each rank: what they brought, and what comes out once
    all are there.
    """

    def __init__(self, kind, combine, ranks, timeout):
        self.kind = kind
        self.combine = combine
        self.ranks = ranks
        self.timeout = timeout
        self.brought = {}
        self.values = {}
        self.result = None

    @property
    def complete(self):
        return len(self.brought) == self.ranks

    def join(self, rank, kind, tensor, value):
        assert kind == self.kind, f"ranks call {kind} and {self.kind} in one group"
        self.brought[rank.rank] = tensor.clone()
        self.values[rank.rank] = value
        rank.wait_in(self)
        if self.result is None:
            self.result = self.combine([self.brought[i] for i in range(self.ranks)])
        tensor.copy_(self.result)
        rank.gathered = [self.values[i] for i in range(self.ranks)]


digits = functools.cache(training_job.digits)


@functools.cache
def run(job, fault, ranks=settings.RANKS, guard=None):
    """As health.run: what the ranks leave."""
    all_ranks = Ranks(ranks, lambda: training_job.train(job, fault, guard))
    with (
        ONE_RUN,
        pytest.MonkeyPatch.context() as patch,
        torch.random.fork_rng(),
        threads(1),
    ):
        patch.setattr(training_job, "dist", all_ranks)
        patch.setattr(training_job, "digits", digits)
        patch.setattr(training_job, "flight_record", all_ranks.flight_record)
        return all_ranks.run()


def use(monkeypatch):
    """Let notebook 17's cases and checks run here."""
    monkeypatch.setattr(health, "run", run)
