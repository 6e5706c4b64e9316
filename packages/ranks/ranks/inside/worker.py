"""What a rank's process does: connect to the notebook, run the function, send back its
result or why it failed.
"""

from __future__ import annotations

import faulthandler
import io
import linecache
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranks.channel import Channel
from ranks.inside import rank_context
from ranks.spans import Key
from ranks.system import seconds_on_cores

if TYPE_CHECKING:
    from ranks.inside.comm_trace import CommTracer

LEAVE_S = 3.0  # for threads that the function left behind
_LONGEST = 20_000  # characters of a traceback
_dismissed = threading.Event()
# Files whose frames are no part of the reader's call: ours, and torch's logging of
# collectives.
_WRAPPERS = (
    str(Path(__file__).with_name("comm_trace.py")),
    str(Path(__file__).with_name("worker.py")),
    "c10d_logger.py",
)


@dataclass(frozen=True)
class Task:
    """What the notebook hands to each rank."""

    nproc: int
    folder: str  # of the launch; no other user can enter it
    free_port: int  # where nothing of ours listens
    call: bytes  # cloudpickle of (function, arguments)
    environment: dict[str, str | None]  # None for what the notebook no longer has
    # the text of the notebook's cells, by the file name in their tracebacks
    sources: dict[str, str]
    start_s: float  # on the shared monotonic clock
    threads: int
    # of processes that a rank starts itself, such as a DataLoader's workers
    start_method: str | None


@dataclass(frozen=True)
class RankActivity:
    """What a rank is doing: its stack, and the call of torch.distributed that it is in,
    or else its last one.
    """

    # file, line, function, text; innermost last
    frames: list[tuple[str, int, str, str]]
    call: str = ""  # as a picture writes it: "send to 1"
    name: str = ""
    what: str = ""
    key: Key | None = None
    for_s: float = 0.0
    last: str = ""
    members: tuple[int, ...] = ()  # the ranks of the call's group
    # how many collectives the rank has entered, by the series of each group
    collectives: dict[Key, int] = field(default_factory=dict)


def main(rank: int, task: Task, messages: socket.socket, output: socket.socket) -> None:
    """Run the task as `rank`, in a process of its own. Both sockets lead to the
    notebook.
    """
    _end_with_parent()
    _set_environment(rank, task)
    context = rank_context.RankContext(rank, Channel(messages), task.start_s)
    _redirect_output(output)
    rank_context.set_current(context)
    from ranks.inside import rank_groups
    from ranks.inside.comm_trace import CommTracer

    rank_groups.install(task.folder)
    tracer = CommTracer(context, task.folder)
    tracer.install()
    threading.Thread(target=_listen, args=(context, tracer), daemon=True).start()
    try:
        result = _call(task, context)
    except BaseException as error:
        # SystemExit too: whoever leaves early has to be named
        words = "".join(traceback.format_exception_only(error)).strip()[:_LONGEST]
        context.send(
            "failed", context.now_s(), words, _own_traceback(error), _last_call(tracer)
        )
        # peers keep their connections, and so don't fail in turn, until all are ended
        threading.Event().wait()
    context.send("done", result, context.trace)
    _dismissed.wait()


def _last_call(tracer: CommTracer) -> str:
    """The rank's last call of torch.distributed, with its tensor; "" without any."""
    call = tracer.last
    if call is None:
        return ""
    return f"{call.label} ({call.what})" if call.what else call.label


def _call(task: Task, context: rank_context.RankContext) -> Any:
    """Run the notebook's function; what it returned, packed."""
    import torch
    import torch.distributed as dist

    from ranks.packing import pack

    torch.set_num_threads(task.threads)
    if "TORCH_DISTRIBUTED_DEBUG" not in os.environ:
        # so that DistributedDataParallel names the parameters that it misses
        dist.set_debug_level(dist.DebugLevel.INFO)  # type: ignore[attr-defined]
    if "numpy" in sys.modules:
        # a forked process starts with its parent's state
        sys.modules["numpy"].random.seed()
    fn, args = pickle.loads(task.call)
    value = fn(*args)
    context.settle_trace()
    context.trace.spent = seconds_on_cores()
    try:
        result = pack(value)
    except Exception as error:
        raise TypeError(
            f"what the rank returned, of type {type(value).__name__}, can't be sent"
            f" back ({error}). Return numbers, tensors, or lists and dicts of them"
        ) from None
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    return result


def _own_traceback(error: BaseException) -> str:
    """The traceback without the frames of our and torch's wrappers."""
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    while part is not None:
        frames = [f for f in part.stack if not f.filename.endswith(_WRAPPERS)]
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    return "".join(whole.format()).strip()[-_LONGEST:]


def _end_with_parent() -> None:
    """Arrange that this process ends with the notebook's kernel, even when the kernel
    is killed outright.
    """
    if sys.platform != "win32":
        os.setpgid(0, 0)  # a Stop goes to the kernel alone, which then ends all ranks
    if sys.platform == "linux":
        from multiprocessing import forkserver

        # Private, and the only name for it.
        from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

        _prctl_pr_set_pdeathsig(signal.SIGKILL)
        # The server that forked this process ends when nobody holds this end of a pipe:
        # only the kernel may hold it.
        server: Any = forkserver._forkserver
        if server._forkserver_alive_fd is not None:
            os.close(server._forkserver_alive_fd)
            server._forkserver_alive_fd = None


def _set_environment(rank: int, task: Task) -> None:
    """Give this process the notebook's environment, torchrun's variables, and the text
    of the notebook's cells.
    """
    for name, value in task.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    own_rank = str(rank)
    all_ranks = str(task.nproc)
    # Last, since the notebook may itself run under torchrun. Source:
    # LocalElasticAgent._start_workers of torch 2.13.
    os.environ |= {
        "RANK": own_rank,
        "LOCAL_RANK": own_rank,
        "ROLE_RANK": own_rank,
        "ROLE_NAME": "rank",
        "GROUP_RANK": "0",
        "WORLD_SIZE": all_ranks,
        "LOCAL_WORLD_SIZE": all_ranks,
        "ROLE_WORLD_SIZE": all_ranks,
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(task.free_port),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "ranks",
        "OMP_NUM_THREADS": str(task.threads),
    }
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    multiprocessing.set_start_method(
        task.start_method or multiprocessing.get_all_start_methods()[0], force=True
    )
    for name, text in task.sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _redirect_output(output: socket.socket) -> None:
    """Send what is printed, by Python or by C++, to the notebook."""
    if sys.platform == "win32":  # there a socket is no file; the console gets it
        return
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    sys.stdout = _text_file(1)
    sys.stderr = _text_file(2)
    faulthandler.enable()  # a crash prints its stack, which the notebook quotes


def _text_file(descriptor: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        os.fdopen(descriptor, "wb"),
        encoding="utf-8",
        errors="replace",
        line_buffering=True,
    )


def _listen(context: rank_context.RankContext, tracer: CommTracer) -> None:
    """Do what the notebook asks; end at once when it is gone."""
    while True:
        try:
            request = context.channel.recv()
        except (EOFError, OSError):
            if sys.platform != "win32":
                os.killpg(0, signal.SIGKILL)  # what the function started, too
            os._exit(1)
        if request == "activity":
            context.send("activity", _activity(context, tracer))
        elif request == "dismissed":
            _dismissed.set()
            time.sleep(LEAVE_S)
            os._exit(0)  # a thread that the function left behind would keep the process


def _activity(context: rank_context.RankContext, tracer: CommTracer) -> RankActivity:
    """What the main thread, which runs the notebook's function, is doing."""
    main_thread = threading.main_thread().ident or 0
    frames: list[tuple[str, int, str, str]] = []
    for frame in traceback.extract_stack(sys._current_frames().get(main_thread)):
        if frame.filename == __file__:
            frames.clear()  # only what this file has called
        elif not frame.filename.endswith(_WRAPPERS):
            frames.append(
                (frame.filename, frame.lineno or 0, frame.name, frame.line or "")
            )
    call = tracer.open.get(main_thread)
    if call is None:
        last = tracer.last.label if tracer.last is not None else ""
        return RankActivity(frames, last=last, collectives=tracer.collectives)
    return RankActivity(
        frames,
        call.label,
        call.name + call.root,
        call.what,
        call.key,
        context.now_s() - call.start_s,
        members=call.members,
        collectives=tracer.collectives,
    )
