"""Functions for ranks that go wrong, each in one planned way; the tests plant each once, the soak 20 times."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from unittest.mock import patch

import torch
import torch.distributed as dist

import labkit as lab
from ranks.inside import rank_context
from ranks.launcher.coordinator import Coordinator

_TIMEOUT_S, _GRACE_S = 60.0, 0.5
MARK = os.environ.setdefault("LABKIT_PLANTED", f"planted-by-{os.getpid()}")  # ranks have the notebook's environment
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


def prints_letters_in_pieces():
    letters = "µµ\n".encode()
    for piece in (letters[:1], letters[1:3], letters[3:]):
        os.write(1, piece)
        time.sleep(0.2)


def mismatched_collectives():
    rank = start()
    lab.report(rank=rank)
    if rank == 0:
        dist.all_reduce(torch.ones(4))
    else:
        dist.broadcast(torch.ones(4), 0)


def broadcasts_from_itself():
    rank = start()
    lab.report(rank=rank)
    dist.broadcast(torch.ones(4), rank)


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


def half_a_message():
    """Begins to tell the notebook something and never ends."""
    rank = start()
    lab.report(rank=rank)
    context = rank_context.current()
    context.lock.acquire()
    context.channel.sock.sendall(b"\0\0\0")
    time.sleep(60)


def passes_3_and_4_numbers():
    dist.all_reduce(torch.ones(3 + start()))


def passes_two_types():
    """Of the same size: gloo adds them up without a word."""
    x = torch.ones(4, dtype=torch.int32 if start() else torch.float32)
    dist.all_reduce(x)
    return x.tolist()


def broadcasts_too_little():
    """gloo fills a part of the larger tensor without a word."""
    dist.broadcast(torch.ones(4 + start()), 0)


def reduces_what_differs():
    """gloo waits for ever."""
    rank = start()
    lab.report(rank=rank)
    dist.reduce(torch.ones(3 + rank), 0)


def receives_into_too_little():
    rank = start()
    if rank == 0:
        dist.send(torch.ones(4), 1)
        dist.barrier()
    else:
        dist.recv(torch.ones(3), 0)


def leaves_and_fails():
    """Processes that a failed launch has to end as well; the tests look for them by this argument of theirs."""
    subprocess.Popen(["sh", "-c", "sleep 600; :", MARK], start_new_session=True)
    raise ValueError("planted after Popen")


def leaves_and_is_killed():
    subprocess.Popen(["sh", "-c", "sleep 600; :", MARK], start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)


def forks_a_child_that_exits():
    rank, pid = int(os.environ["RANK"]), os.fork()
    if pid == 0:
        lab.report(child=1)  # a line of output, and no message between those of the rank
        os._exit(3)
    return [rank, pid]


def forks_a_child_that_stays():
    rank, pid = int(os.environ["RANK"]), os.fork()
    if pid == 0:
        time.sleep(600)
    return [rank, pid]


def leaves_a_daemon():
    """An orphan in a session of its own."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(theirs, str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    os.wait()
    return [int(os.environ["RANK"]), int(os.read(ours, 20))]


def leaves_programs():
    programs = [subprocess.Popen(["sleep", "600"], start_new_session=own) for own in (False, True)]
    return [int(os.environ["RANK"]), *(program.pid for program in programs)]


def leaves_a_program_that_prints_on():
    program = subprocess.Popen(["sh", "-c", "while :; do echo; sleep 0.01; done"])
    return [int(os.environ["RANK"]), program.pid]


def leaves_a_pool():
    global pool
    pool = multiprocessing.Pool(2)
    return [int(os.environ["RANK"]), *pool.map(own_pid, range(2))]


def own_pid(_):
    return os.getpid()


def leaves_a_thread():
    threading.Thread(target=time.sleep, args=(600,)).start()
    return [int(os.environ["RANK"])]


# Return [rank, numbers of processes that they leave], and have to end soon for all that.
LEAVE = (
    forks_a_child_that_exits,
    forks_a_child_that_stays,
    leaves_a_daemon,
    leaves_programs,
    leaves_a_program_that_prints_on,
    leaves_a_pool,
    leaves_a_thread,
)


def works_for(seconds):
    start()
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(seconds)
    dist.barrier()
    return seconds


def reports_forever():
    rank = start()
    while True:
        lab.report(rank=rank, pid=os.getpid())
        time.sleep(0.05)


def leaves_and_reports_forever():
    daemon = leaves_a_daemon()[1]
    program = subprocess.Popen(["sleep", "600"], start_new_session=True)
    lab.report(pid=os.getpid(), daemon=daemon, program=program.pid)
    time.sleep(600)


# What each does to two ranks: words of RankFailed's message; None where it succeeds.
FAULTS = {
    raises_before_init: ("rank 1 failed first", "ValueError: planted before init", "init_process_group"),
    raises_after_init: ("rank 1 failed first", "ValueError: planted after init", "rank 0 waits in all_reduce"),
    raises_and_closes_first: ("rank 1 failed first", "ValueError: planted in a try", "rank 0 failed after it"),
    mismatched_collectives: (f"2 of 2 ranks were {_HANGS}", "Call 1 of rank 0 is all_reduce, call 1"),
    broadcasts_from_itself: (_HANGS, "rank 0 is broadcast with src=0, call 1 of rank 1 is broadcast with src=1"),
    mismatched_shapes: ("rank 0 passed 4 numbers, rank 1 passed 104",),
    passes_3_and_4_numbers: ("all_reduce, call 1 of its group: rank 0 passed 3 numbers, rank 1 passed 4",),
    passes_two_types: ("with wrong results", "rank 0 passed 4 numbers of float32, rank 1 passed 4 numbers of int32"),
    broadcasts_too_little: ("with wrong results", "rank 0 passed 4 numbers, rank 1 passed 5"),
    reduces_what_differs: (_HANGS, "rank 0 passed 3 numbers, rank 1 passed 4"),
    receives_into_too_little: ("Message 1 from rank 0 to rank 1: rank 0 passed 4 numbers, rank 1 passed 3",),
    half_a_message: (_HANGS, "rank 1 doesn't answer"),
    leaves_and_fails: ("failed first", "ValueError: planted after Popen"),
    leaves_and_is_killed: ("failed first", "killed by SIGKILL"),
    returns_early: ("rank 1 returned while others were still waiting", "in all_reduce"),
    exits_0_early: ("rank 1 failed first", "left with exit code 0 before its function returned"),
    calls_sys_exit: ("rank 1 failed first", "sys.exit"),
    killed: ("rank 1 failed first", "killed by SIGKILL"),
    loops_forever: (
        _HANGS, "rank 0 waits in all_reduce", "rank 1 is at work", "while rank == 1",
        "rank 1 had not made the call in which rank 0 waited",
    ),
    unpicklable_result: ("of type generator, can't be sent to the notebook",),
    huge_result: None,
    launches: ("launch was called inside a rank",),
}  # fmt: skip
