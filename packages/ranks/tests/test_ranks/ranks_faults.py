"""Functions for ranks that go wrong, each in one planned way; the tests plant each
once, the soak 20 times.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist

from ranks import launch, report
from ranks.inside import rank_context
from ranks.launcher.coordinator import Coordinator

_TIMEOUT_S = 60.0
# ranks have the notebook's environment
MARK = os.environ.setdefault("LABKIT_PLANTED", f"planted-by-{os.getpid()}")
_HANGS = f"not done after {_TIMEOUT_S:g} s"


@contextlib.contextmanager
def hangs_end_at_once():
    """Inside, the timeouts of launches are over as soon as each rank has reported that
    it hangs.

    So the busiest machine has time to get there, and no test waits it out.
    """
    now_s = Coordinator.now_s

    def later_s(coordinator):
        all_hang = len(coordinator.reports) >= len(coordinator.states) > 0
        return now_s(coordinator) + _TIMEOUT_S * all_hang

    with patch.object(Coordinator, "now_s", later_s):
        yield


def launch_fault(fault):
    """Launch two ranks with a minute's timeout, which is over once both hang."""
    with hangs_end_at_once():
        return launch(fault, 2, timeout_s=_TIMEOUT_S)


def start():
    dist.init_process_group("gloo")
    return dist.get_rank()


def when_inside(function, do):
    """Call `do` from a thread, once the main thread is in a function of this name."""
    main_thread = threading.main_thread().ident

    def watch():
        names = []
        while function not in names:
            time.sleep(0.01)
            frames = traceback.walk_stack(sys._current_frames()[main_thread])
            names = [frame.f_code.co_name for frame, _ in frames]
        do()

    threading.Thread(target=watch, daemon=True).start()


def report_inside(function):
    """Report once this rank is in a function, which it won't leave."""
    rank = dist.get_rank()
    when_inside(function, lambda: report(rank=rank))


def _peer_waits():
    """A file that rank 0 makes once it waits for rank 1, on this launch's free port."""
    return Path(tempfile.gettempdir()) / f"{MARK}-{os.environ['MASTER_PORT']}"


def wait_for_peer():
    """In rank 1: return once rank 0 waits for it."""
    while not _peer_waits().exists():
        time.sleep(0.01)
    _peer_waits().unlink()


def raises_before_init():
    if os.environ["RANK"] == "1":
        wait_for_peer()
        raise ValueError("planted before init")
    when_inside("connect_and_check", _peer_waits().touch)
    start()


def raises_after_init():
    if start() == 1:
        wait_for_peer()
        raise ValueError("planted after init")
    when_inside("all_reduce", _peer_waits().touch)
    dist.all_reduce(torch.ones(4))


def raises_and_closes_first():
    """The one to blame breaks its connections, and so its peer, before its own error
    gets out.
    """
    rank = start()
    try:
        if rank == 1:
            raise ValueError("planted in a try")
        dist.all_reduce(torch.ones(4))
    finally:
        dist.destroy_process_group()
        if rank == 0:
            _peer_waits().touch()  # it has failed
        else:
            wait_for_peer()


def prints_letters_in_pieces():
    letters = "µµ\n".encode()
    for piece in (letters[:1], letters[1:3], letters[3:]):
        os.write(1, piece)
        time.sleep(0.2)


def mismatched_collectives():
    rank = start()
    if rank == 0:
        report_inside("all_reduce")
        dist.all_reduce(torch.ones(4))
    else:
        report_inside("broadcast")
        dist.broadcast(torch.ones(4), 0)


def broadcasts_from_itself():
    rank = start()
    report_inside("broadcast")
    dist.broadcast(torch.ones(4), rank)


def returns_early():
    if start() == 1:
        wait_for_peer()
        return
    when_inside("all_reduce", _peer_waits().touch)
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
    report_inside("_loops" if rank == 1 else "all_reduce")
    if rank == 1:
        _loops(rank)
    dist.all_reduce(torch.ones(4))


def _loops(rank):
    while rank == 1:
        pass


def unpicklable_result():
    return (i for i in range(3))


def launches():
    return launch(start, 2)


def waits_for_nobody():
    rank = start()
    if rank == 0:
        report_inside("recv")
        dist.recv(torch.ones(4), 1)
    else:
        report(rank=rank)
        time.sleep(600)


def both_send_first():
    rank = start()
    report_inside("send")
    x = torch.ones(1_000_000)
    dist.send(x, 1 - rank)
    dist.recv(x, 1 - rank)


def both_receive_first():
    rank = start()
    report_inside("recv")
    x = torch.ones(4)
    dist.recv(x, 1 - rank)
    dist.send(x, 1 - rank)


def sends_with_another_tag():
    if start() == 0:
        report_inside("send")
        dist.send(torch.ones(4), 1, tag=3)
    else:
        report_inside("recv")
        dist.recv(torch.ones(4), 0, tag=4)


class Gated(torch.nn.Module):
    """Never uses its gate, nor a scale of its own."""

    def __init__(self):
        super().__init__()
        self.used = torch.nn.Linear(4, 4)
        self.gate = torch.nn.Linear(4, 4, bias=False)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.used(x)


def leaves_out_a_parameter():
    start()
    model = torch.nn.parallel.DistributedDataParallel(Gated())
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()


def works():
    rank = start()
    x = torch.ones(2) * rank
    dist.all_reduce(x)
    return x.tolist()


def half_a_message():
    """Rank 1 begins to tell the notebook something and never ends; rank 0 reports for
    both.
    """
    rank = start()
    if rank == 1:
        context = rank_context.current()
        context.lock.acquire()
        context.channel.sock.sendall(b"\0\0\0")
    dist.barrier()
    if rank == 0:
        report(rank=0)
        report(rank=1)
    time.sleep(600)


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
    report_inside("reduce")
    dist.reduce(torch.ones(3 + rank), 0)


def receives_into_too_little():
    rank = start()
    if rank == 0:
        dist.send(torch.ones(4), 1)
        dist.barrier()
    else:
        dist.recv(torch.ones(3), 0)


def leaves_and_is_killed():
    """A process that a failed launch has to end as well; the tests look for it by this
    argument.
    """
    subprocess.Popen(["sh", "-c", "sleep 600; :", MARK], start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)


def forks_a_child_that_exits():
    rank = int(os.environ["RANK"])
    pid = os.fork()
    if pid == 0:
        report(child=1)  # a line of output, and no message between those of the rank
        os._exit(3)
    return [rank, pid]


def forks_a_child_that_stays():
    rank = int(os.environ["RANK"])
    pid = os.fork()
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
    programs = [
        subprocess.Popen(["sleep", "600"], start_new_session=own)
        for own in (False, True)
    ]
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


# Return [rank, numbers of processes that they leave], and have to end soon for all
# that.
LEAVE = (
    forks_a_child_that_exits,
    forks_a_child_that_stays,
    leaves_a_daemon,
    leaves_programs,
    leaves_a_program_that_prints_on,
    leaves_a_pool,
    leaves_a_thread,
)


def leaves_all():
    """All of it at once; the thread comes last, since a process that has one had better
    not fork.
    """
    return [int(os.environ["RANK"]), *(pid for leaves in LEAVE for pid in leaves()[1:])]


def works_for(seconds):
    start()
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(seconds)
    dist.barrier()
    return seconds


def reports_forever():
    rank = start()
    while True:
        report(rank=rank, pid=os.getpid())
        time.sleep(0.05)


def leaves_and_reports_forever():
    daemon = leaves_a_daemon()[1]
    program = subprocess.Popen(["sleep", "600"], start_new_session=True)
    report(pid=os.getpid(), daemon=daemon, program=program.pid)
    time.sleep(600)


# What each does to two ranks: words of RankFailed's message.
FAULTS = {
    raises_before_init: (
        "rank 1 failed first",
        "ValueError: planted before init",
        "init_process_group",
    ),
    raises_after_init: (
        "rank 1 failed first",
        "ValueError: planted after init",
        "rank 0 waits in all_reduce",
    ),
    raises_and_closes_first: (
        "rank 1 failed first",
        "ValueError: planted in a try",
        "rank 0 failed after it",
    ),
    mismatched_collectives: (
        f"2 of 2 ranks were {_HANGS}",
        "Call 1 of rank 0 is all_reduce, call 1",
    ),
    broadcasts_from_itself: (
        _HANGS,
        "rank 0 is broadcast with src=0, call 1 of rank 1 is broadcast with src=1",
    ),
    passes_3_and_4_numbers: (
        "all_reduce, call 1 of its group: rank 0 passed 3 numbers, rank 1 passed 4",
    ),
    passes_two_types: (
        "with wrong results",
        "rank 0 passed 4 numbers of float32, rank 1 passed 4 numbers of int32",
    ),
    broadcasts_too_little: (
        "with wrong results",
        "rank 0 passed 4 numbers, rank 1 passed 5",
    ),
    reduces_what_differs: (_HANGS, "rank 0 passed 3 numbers, rank 1 passed 4"),
    receives_into_too_little: (
        "Message 1 from rank 0 to rank 1: rank 0 passed 4 numbers, rank 1 passed 3",
    ),
    both_send_first: (_HANGS, "All send before any of them receives"),
    both_receive_first: (
        "rank 0 in recv from 1, rank 1 in recv from 0. All receive before",
    ),
    sends_with_another_tag: (_HANGS, "have to pass the same tag"),
    leaves_out_a_parameter: (
        "DistributedDataParallel got no gradient for gate.weight, scale.",
    ),
    half_a_message: (_HANGS, "rank 1 doesn't answer"),
    leaves_and_is_killed: ("failed first", "killed by SIGKILL"),
    returns_early: ("rank 1 returned while others were still waiting", "in all_reduce"),
    exits_0_early: (
        "rank 1 failed first",
        "left with exit code 0 before its function returned",
    ),
    calls_sys_exit: ("rank 1 failed first", "sys.exit"),
    killed: ("rank 1 failed first", "killed by SIGKILL"),
    loops_forever: (
        _HANGS,
        "rank 0 waits in all_reduce",
        "rank 1 is at work",
        "in _loops",
        "all_reduce, call 1 of its group: rank 0 entered, rank 1 not yet",
        "rank 1 had not made the call in which rank 0 waited",
    ),
    unpicklable_result: ("of type generator, can't be sent back (",),
    launches: ("launch was called inside a rank",),
}
