"""Clocks for planted loops: a virtual one, which operators and planned work move, and a
real one.

On the virtual clock, what is found depends on no other program. The real one is for
benchmarks/bottlenecks.py.
"""

import contextlib
import sys
import threading
import time

import torch
from torch.utils._pytree import tree_leaves

from steptime import Ceilings
from steptime.judge import bottleneck, experiments, operator_limits
from steptime.judge.tried_changes import cores
from steptime.loop import step_loop, turns
from steptime.measure import budget, clock, machine, operator_timing
from steptime.measure.stack_samples import StackSamples, stack_of

LAUNCH_S = 5e-6
FLOP_PER_S = 1e9
BYTES_PER_S = 1e9
LINK_BYTES_PER_S = 2e7  # between ranks
FAULT_S = 2.5e-5  # of a page
NEW_BYTES = 2**25  # tensors from this size on take new memory, as with glibc
# neither their bytes nor their FLOP explain their time
UNEXPLAINED = ("sort", "linalg_qr")
UNEXPLAINED_S = 0.2
WORK_S = 0.02  # of the host, where a loop plans no other time

CEILINGS = Ceilings("planted", {"float32": FLOP_PER_S}, BYTES_PER_S, 1)


class VirtualTime:
    """A clock that each operator moves by its launch, and by its FLOP or its bytes.

    Work and waits of the host move it too. A sampler of the thread that made it sees
    them.
    """

    def __init__(self):
        self.now_s = 0.0
        self.thread = threading.get_ident()
        self.faults = 0
        self.samples = None

    def clock(self):
        return self.now_s

    def work(self, seconds, *_):
        """Let seconds pass, 10 times a tenth, with a sample of the stack after each."""
        here = threading.get_ident() == self.thread
        frame = sys._getframe(1) if here else sys._current_frames()[self.thread]
        for _tenth in range(10):
            self.now_s += seconds / 10
            if self.samples is not None:
                self.samples.take(stack_of(frame), seconds / 10)

    wait = work

    def fault(self, n):
        """The system provides so many pages of new memory."""
        self.faults += n
        self.now_s += n * FAULT_S

    @contextlib.contextmanager
    def sampling(self, samples):
        """Within the block, `samples` are taken: in place of StackSamples.taken."""
        self.samples = samples
        yield
        self.samples = None

    def operator(self, func, args, kwargs, depth=2):
        begin_s = self.now_s
        out = func(*args, **kwargs)
        call = operator_timing.described(func, args, kwargs, out, 0.0)
        # More threads than cores wait for each other.
        slower = max(torch.get_num_threads() / cores(), 1.0)
        makes = (
            bool(func._schema.returns) and func._schema.returns[0].alias_info is None
        )
        if (
            makes
            and call.n_bytes
            and isinstance(out, torch.Tensor)
            and out.layout == torch.strided
            and out.nbytes >= NEW_BYTES
        ):
            self.fault(out.nbytes // 4096)
        bytes_per_s = LINK_BYTES_PER_S if call.group == "communication" else BYTES_PER_S
        self.now_s += LAUNCH_S + slower * max(
            call.flop / FLOP_PER_S, call.n_bytes / bytes_per_s
        )
        self.now_s += UNEXPLAINED_S * (call.name in UNEXPLAINED)
        if self.samples is not None and threading.get_ident() == self.thread:
            self.samples.take(stack_of(sys._getframe(depth)), self.now_s - begin_s)
        return out


class SharedTime(VirtualTime):
    """The same for one of several ranks: a collective begins when the last of them
    comes.
    """

    def __init__(self):
        super().__init__()
        self.communicated_s = 0.0

    def operator(self, func, args, kwargs, depth=2):
        begin_s = self.now_s
        shared = func.namespace == "c10d"
        if shared:
            latest = torch.tensor(self.now_s, dtype=torch.float64)
            torch.distributed.all_reduce(latest, torch.distributed.ReduceOp.MAX)
            self.now_s = latest.item()
            if self.samples is not None:
                self.samples.take(stack_of(sys._getframe(2)), self.now_s - begin_s)
            n_bytes = sum(
                x.nbytes for x in tree_leaves(args) if isinstance(x, torch.Tensor)
            )
            self.now_s += n_bytes / LINK_BYTES_PER_S
        out = super().operator(func, args, kwargs, depth=3)
        self.communicated_s += shared * (self.now_s - begin_s)
        return out


def run_on(time, put=setattr):
    """Measure everything on a virtual clock, seldom: all readings of a
    thing are alike.
    """
    put(budget, "_ROUNDS", 2)
    put(budget, "_LOOK_S", 0.0)
    put(bottleneck, "TINY_STEPS", 3)
    put(experiments, "TINY_STEPS", 3)
    put(experiments, "_READING_S", 0.0)
    put(operator_limits, "_WARM_UP", 1)
    put(step_loop, "_STEPS", 80)
    put(machine, "_ran_and_waited", lambda: (0, 0))
    for module in (budget, clock, step_loop, turns):
        put(module, "perf_counter", time.clock)
    for module in (operator_timing, operator_limits, clock):
        put(module, "faults_and_switches", lambda: (time.faults, 0))
    put(clock, "_CORE_WAITS", "none")
    put(experiments, "compiled_graphs", lambda: 0)  # loops pretend to
    put(StackSamples, "taken", lambda samples: time.sampling(samples))


class RealTime:
    """The machine's own clock, on which work takes the time that it takes."""

    clock = staticmethod(time.perf_counter)
    wait = staticmethod(time.sleep)

    def work(self, seconds, *_):
        """Nothing: the seconds are planned for virtual time."""
