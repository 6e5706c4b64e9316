"""Functions for ranks that go wrong, each in one planned way; the tests plant each once, the soak 20 times."""

import os
import signal
import sys
import time
from unittest.mock import patch

import torch
import torch.distributed as dist

import labkit as lab
from labkit.dist.coordinator import Coordinator

_TIMEOUT_S, _GRACE_S = 60.0, 0.5
_HANGS = f"not done after {_TIMEOUT_S:g} s"


def launch_fault(fault):
    """Launch two ranks with a minute's timeout, which is over half a second after both have reported anything.

    Ranks that are about to hang report it. So the busiest machine has time to get there, and no test waits it out.
    """
    reported_s, now_s = [], Coordinator.now_s

    def later_s(self):
        both_hang = len(reported_s) == 2 and now_s(self) > reported_s[-1] + _GRACE_S
        return now_s(self) + _TIMEOUT_S * both_hang

    with patch.object(Coordinator, "now_s", later_s):
        return lab.launch(fault, 2, timeout_s=_TIMEOUT_S, on_report=lambda report: reported_s.append(report.at_s))


def start():
    dist.init_process_group("gloo")
    return dist.get_rank()


def raises_before_init():
    if os.environ["RANK"] == "1":
        time.sleep(0.5)  # its peer shall have begun to wait for it
        raise ValueError("planted before init")
    start()


def raises_after_init():
    if start() == 1:
        time.sleep(0.5)  # its peer shall have begun to wait for it
        raise ValueError("planted after init")
    dist.all_reduce(torch.ones(4))


def raises_and_closes_first():
    """The one to blame breaks its connections, and so its peer, before its own error gets out."""
    rank = start()
    try:
        if rank == 1:
            raise ValueError("planted in a try")
        dist.all_reduce(torch.ones(4))
    finally:
        dist.destroy_process_group()
        time.sleep(0.6 * rank)


def mismatched_collectives():
    rank = start()
    lab.report(rank=rank)
    if rank == 0:
        dist.all_reduce(torch.ones(4))
    else:
        dist.broadcast(torch.ones(4), 0)


def mismatched_shapes():
    rank = start()
    dist.all_reduce(torch.ones(4 + 100 * rank))


def returns_early():
    if start() == 1:
        time.sleep(0.5)  # its peer shall have begun to wait for it
        return
    dist.all_reduce(torch.ones(4))


def exits_0_early():
    if start() == 1:
        os._exit(0)
    dist.all_reduce(torch.ones(4))


def calls_sys_exit():
    if start() == 1:
        sys.exit()
    dist.all_reduce(torch.ones(4))


def killed():
    if start() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))


def loops_forever():
    rank = start()
    lab.report(rank=rank)
    while rank == 1:
        pass
    dist.all_reduce(torch.ones(4))


def unpicklable_result():
    return (i for i in range(3))


def huge_result():
    return torch.arange(16_000_000, dtype=torch.float32)  # 64 MB


def launches():
    return lab.launch(start, 2)


def waits_for_nobody():
    rank = start()
    lab.report(rank=rank)
    if rank == 0:
        dist.recv(torch.ones(4), 1)
    else:
        time.sleep(60)


def works():
    rank = start()
    x = torch.ones(2) * rank
    dist.all_reduce(x)
    return x.tolist()


def reports_forever():
    rank = start()
    while True:
        lab.report(rank=rank, pid=os.getpid())
        time.sleep(0.05)


# What each does to two ranks: words of RankFailed's message; None where it succeeds.
FAULTS = {
    raises_before_init: ("rank 1 failed first", "ValueError: planted before init", "init_process_group"),
    raises_after_init: ("rank 1 failed first", "ValueError: planted after init", "rank 0 waits in all_reduce"),
    raises_and_closes_first: ("rank 1 failed first", "ValueError: planted in a try", "rank 0 failed after it"),
    mismatched_collectives: (f"2 of 2 ranks were {_HANGS}", "Call 1 of rank 0 is all_reduce, call 1"),
    mismatched_shapes: ("tensors have to be alike on all ranks",),
    returns_early: ("rank 1 returned while others were still waiting", "in all_reduce"),
    exits_0_early: ("rank 1 failed first", "left with exit code 0 before its function returned"),
    calls_sys_exit: ("rank 1 failed first", "sys.exit"),
    killed: ("rank 1 failed first", "killed by SIGKILL"),
    loops_forever: (_HANGS, "rank 0 waits in all_reduce", "rank 1 is at work", "while rank == 1"),
    unpicklable_result: ("of type generator, can't be sent to the notebook",),
    huge_result: None,
    launches: ("lab.launch was called inside a rank",),
}  # fmt: skip
