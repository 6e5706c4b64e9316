"""What a rank's process does: meet the notebook, run the function, send home what it returned or why it failed."""

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
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from labkit.dist import rank_context
from labkit.dist.channel import Channel

if TYPE_CHECKING:
    from labkit.dist.comm_trace import Recorder

# What torchrun's agent sets for each rank, and the notebook's own environment must not overwrite.
_AGENT_SETS = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_LEAVE_S = 3.0  # for threads that the function left behind
_LONGEST = 20_000  # characters of a traceback
_dismissed = threading.Event()
_WRAPPERS = tuple(str(Path(*part)) for part in (("ranks", "recording.py"), ("ranks", "worker.py"), ("c10d_logger.py",)))


@dataclass(frozen=True)
class Task:
    """What the notebook hands to each rank."""

    port: int
    token: bytes
    call: bytes  # cloudpickle of (function, arguments)
    environment: dict[str, str | None]  # None for what the notebook no longer has
    sources: dict[str, str]  # the text of the notebook's cells, by the file name in their tracebacks
    start_s: float  # on the shared monotonic clock
    threads: int
    start_method: str | None  # of processes that a rank starts itself, such as a DataLoader's workers


@dataclass(frozen=True)
class Place:
    """Where a rank is: frames (file, line, function, text), innermost last; its exchange, or the last one it made."""

    frames: list[tuple[str, int, str, str]]
    call: str = ""
    name: str = ""
    what: str = ""
    key: tuple[Any, ...] | None = None
    for_s: float = 0.0
    last: str = ""


def main(task: Task) -> None:
    """Run the task as the rank that the environment names. torchrun's agent calls it, in a fresh process."""
    _end_with_parent()
    _take_environment(task)
    rank = int(os.environ["RANK"])
    line = _meet(task, rank, "line")
    me = rank_context.RankContext(rank, line, task.start_s)
    rank_context.enter(me)
    _redirect(task, rank)
    from labkit.dist.comm_trace import Recorder

    recorder = Recorder(me)
    recorder.install()
    threading.Thread(target=_listen, args=(me, recorder), daemon=True).start()
    try:
        result = _call(task, me)
    except BaseException as error:  # SystemExit too: whoever leaves early has to be named
        words = "".join(traceback.format_exception_only(error)).strip()[:_LONGEST]
        last = recorder.last
        me.send(
            "failed", me.now_s(), words, _own_traceback(error), "" if last is None else f"{last.label}{last.with_what}"
        )
        threading.Event().wait()  # peers keep their connections, and so don't fail in turn, until all are ended
    me.send("done", result, me.trail)
    _dismissed.wait()


def _call(task: Task, me: rank_context.RankContext) -> Any:
    import torch
    import torch.distributed as dist

    from labkit.dist.packing import pack

    torch.set_num_threads(task.threads)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # a forked process starts with its parent's state
    if torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    fn, args = pickle.loads(task.call)
    value = fn(*args)
    if me.gpu is not None:
        me.gpu.settle(me.trail)
    try:
        result = pack(value)
    except Exception as error:
        raise TypeError(
            f"what the rank returned, of type {type(value).__name__}, can't be sent to the notebook ({error}). "
            "Return numbers, tensors, or lists and dicts of them"
        ) from None
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    return result


def _own_traceback(error: BaseException) -> str:
    """The traceback without the frames of labkit's and torch's wrappers."""
    whole: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
    part = whole
    while part is not None:
        part.stack = traceback.StackSummary.from_list([f for f in part.stack if not f.filename.endswith(_WRAPPERS)])
        part = part.__cause__ or part.__context__
    return "".join(whole.format()).strip()[-_LONGEST:] if whole is not None else ""


def _end_with_parent() -> None:
    """Arrange that this process ends with the notebook's kernel, even when the kernel is killed outright."""
    if sys.platform != "win32":
        os.setpgid(0, 0)  # a Stop goes to the kernel alone, which then ends all ranks
    if sys.platform == "linux":
        from multiprocessing import forkserver

        from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

        _prctl_pr_set_pdeathsig(signal.SIGKILL)
        # The server that forked this process ends when nobody holds this end of a pipe: only the kernel may hold it.
        server: Any = forkserver._forkserver
        if server._forkserver_alive_fd is not None:
            os.close(server._forkserver_alive_fd)
            server._forkserver_alive_fd = None


def _take_environment(task: Task) -> None:
    for name, value in task.environment.items():
        if name in _AGENT_SETS or name.startswith("TORCHELASTIC"):
            continue
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.environ["OMP_NUM_THREADS"] = str(task.threads)
    multiprocessing.set_start_method(task.start_method or multiprocessing.get_all_start_methods()[0], force=True)
    for name, text in task.sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _meet(task: Task, rank: int, purpose: str) -> Channel:
    """A connection to the notebook, which knows its ranks by the token."""
    line = Channel(socket.create_connection(("127.0.0.1", task.port)))
    line.sock.sendall(task.token)
    line.send((rank, purpose))
    return line


def _redirect(task: Task, rank: int) -> None:
    """Send what is printed, by Python or by C++, to the notebook."""
    if sys.platform == "win32":  # there a socket is no file; the console gets it
        return
    output = _meet(task, rank, "output")
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, "wb"), encoding="utf-8", errors="replace", line_buffering=True)
        for number in (1, 2)
    )
    faulthandler.enable()


def _listen(me: rank_context.RankContext, recorder: Recorder) -> None:
    """Do what the notebook asks; end at once when it is gone."""
    while True:
        try:
            asked = me.line.recv()
        except (EOFError, OSError):
            os._exit(1)
        if asked == "where":
            me.send("where", _place(me, recorder))
        elif asked == "dismissed":
            _dismissed.set()
            time.sleep(_LEAVE_S)
            os._exit(0)


def _place(me: rank_context.RankContext, recorder: Recorder) -> Place:
    main = threading.main_thread().ident
    frame: FrameType | None = sys._current_frames().get(main or 0)
    stack = traceback.extract_stack(frame)
    frames = [(f.filename, f.lineno or 0, f.name, f.line or "") for f in stack]
    own = max((i for i, f in enumerate(frames) if f[0] == __file__), default=-1)
    frames = [f for f in frames[own + 1 :] if not f[0].endswith(_WRAPPERS)]
    call, last = recorder.open.get(main or 0), recorder.last
    if call is None:
        return Place(frames, last="" if last is None else last.label)
    return Place(frames, call.label, call.name, call.what, call.key, me.now_s() - call.start_s)
