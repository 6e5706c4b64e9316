"""Explain a launch that failed: which rank failed first for its own reason or, after a
timeout, what each was doing.
"""

from __future__ import annotations

import itertools
import json
import re
import signal
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ranks._text import format_seconds
from ranks.launcher.coordinator import CRASHES, Failure, RankState
from ranks.spans import Key

# What gloo, NCCL and torch's store say when it is a peer that has gone. Sources:
# gloo/transport/tcp/pair.cc, torch/csrc/distributed/c10d/NCCLUtils.cpp and TCPStore's
# socket.cpp, torch 2.13.
_LOST = re.compile(
    r"Connection closed by peer"
    r"|Connection reset by peer"
    r"|Connection refused"
    r"|Broken pipe"
    r"|Socket closed"
    r"|Timed out waiting \d+ms for (?:recv|send) operation"
    r"|remote process (?:has )?exited"
    r"|communicator was aborted"
    r"|failed to recv, got 0 bytes"
    r"|Connection was likely closed"
)
_OF_THE_NETWORK = re.compile(r"gloo/transport/|DistNetworkError")
_NO_ROOM = (
    ". /dev/shm is too small for NCCL: give the container --shm-size=1g or --ipc=host,"
    " or set NCCL_SHM_DISABLE=1"
)
# torch/csrc/distributed/c10d/reducer.cpp, with TORCH_DISTRIBUTED_DEBUG=INFO
_WITHOUT_GRADIENT = re.compile(
    r"Parameters which did not receive grad for rank \d+: (.*)"
)
_HERE = str(Path(__file__).parents[1])
# parts of the paths of files whose frames are no part of the reader's own code
_not_the_readers = [_HERE, "site-packages", "<frozen", sys.base_prefix]


def hide_frames(folder: str | Path) -> None:
    """Count the files in a folder as a library's: messages about ranks that wait name
    the reader's line that called it.
    """
    _not_the_readers.append(str(folder))


def is_own(failure: Failure) -> bool:
    """Whether a rank failed for its own reason, and not because the connection to a
    peer broke.
    """
    if failure.code is not None:
        return True
    text = failure.error + failure.traceback
    return not (_LOST.search(text) or _OF_THE_NETWORK.search(text))


def first_failed(states: Sequence[RankState]) -> RankState | None:
    """The rank that failed first for its own reason; where none did, the first that
    failed at all.
    """

    def order(state: RankState) -> tuple[bool, float, int]:
        assert state.failure is not None
        return not is_own(state.failure), state.failure.at_s, state.rank

    failed = [state for state in states if state.failure is not None]
    return min(failed, key=order, default=None)


def explain(states: Sequence[RankState], timeout_s: float, differ: str) -> str:
    """The message about a launch in which a rank failed, or that was not done after
    `timeout_s` seconds.

    `differ` is what `sizes_differ` said.
    """
    first = first_failed(states)
    if first is None or first.failure is None:
        lines = _explain_timeout(states, timeout_s, differ or _mismatch(states))
    else:
        lines = _explain_failure(states, first, first.failure, differ)
    return _with_cell_numbers("\n".join(line for line in lines if line))


def _explain_failure(
    states: Sequence[RankState], first: RankState, failure: Failure, differ: str
) -> list[str]:
    own = is_own(failure)
    lines = [differ]
    if not differ and not own:
        lines.append(_returned_early(states))
    failed = "failed first" if own else "failed"
    when = f"{format_seconds(failure.at_s)} after the start"
    lines.append(f"rank {first.rank} {failed}, {when}: {_how_it_failed(first)}.")
    if not differ:
        lines.append(_mismatch(states))
    if failure.traceback != failure.error:
        lines.append(failure.traceback)
    lines.append(_crash_report(first))
    lines += [_one_line(state) for state in states if state is not first]
    return lines


def _explain_timeout(
    states: Sequence[RankState], timeout_s: float, why: str
) -> list[str]:
    late = f"{sum(state.at_work for state in states)} of {len(states)} ranks"
    longer = "If they were making progress, pass a longer timeout_s."
    lines = [
        f"{late} were not done after {timeout_s:g} s (timeout_s) and were ended.",
        *map(_one_line, states),
        *_progress(states),
        why or _circle(states) or _missing(states) or longer,
    ]
    for state in states:
        if state.activity is not None and state.activity.frames:
            lines.append(f"Stack of rank {state.rank}:")
            lines += map(_frame, state.activity.frames)
    return lines


def _returned_early(states: Sequence[RankState]) -> str:
    """A sentence for ranks that returned while others still needed them; empty if none
    did.
    """
    returned = [state for state in states if state.result is not None]
    if not returned:
        return ""
    return (
        f"{_ranks(returned)} returned while others were still waiting for it: all ranks"
        " of a group have to make the same calls."
    )


def _missing(states: Sequence[RankState]) -> str:
    """A sentence for ranks for which others wait in a call; empty if none waits, or all
    do.
    """
    waiting = [
        state for state in states if state.activity is not None and state.activity.call
    ]
    late = [state for state in states if state.at_work and state not in waiting]
    if not waiting:
        return ""
    if not late:
        return _returned_early(states)
    why = f"{_ranks(late)} had not made the call in which {_ranks(waiting)} waited"
    return f"{why}. If that would still have come, pass a longer timeout_s."


def _progress(states: Sequence[RankState]) -> list[str]:
    """Of each collective that ranks are in: who entered it, who didn't, who has left
    it. Nothing of one that all its ranks are in.
    """
    sentences: dict[Key, str] = {}
    for state in states:
        activity = state.activity
        if activity is None or not activity.members or activity.key is None:
            continue
        key = activity.key
        (*series, number) = key
        members = [states[rank] for rank in activity.members if rank < len(states)]
        inside = [each for each in members if _key(each) == key]
        left: list[RankState] = []
        absent: list[RankState] = []
        for each in members:
            if each.activity is None or each in inside:
                continue  # it has returned, or doesn't answer: its own line says so
            entered = each.activity.collectives.get(tuple(series), 0)
            (left if entered >= number else absent).append(each)
        parts = [f"{_ranks(inside)} entered"]
        parts += [f"{_ranks(absent)} not yet"] if absent else []
        parts += [f"{_ranks(left)} left"] if left else []
        if len(parts) > 1:
            name = activity.name
            sentences[key] = f"{name}, call {number} of its group: {', '.join(parts)}."
    return list(sentences.values())


def _key(state: RankState) -> Key | None:
    return state.activity.key if state.activity is not None else None


def _circle(states: Sequence[RankState]) -> str:
    """A sentence for ranks whose messages wait for each other in a circle; empty if
    none do.
    """
    peer_of: dict[int, int] = {}
    for state in states:
        key = _key(state)
        if key is not None and key[0] == "message":
            _, source, target, _, _ = key
            peer_of[state.rank] = target if state.rank == source else source
    for first in peer_of:
        circle = [first]
        while (peer := peer_of.get(circle[-1])) is not None and peer not in circle:
            circle.append(peer)
        if peer == first and len({_key(states[rank]) for rank in circle}) > 1:
            return _circle_words([states[rank] for rank in circle])
    return ""


def _circle_words(circle: Sequence[RankState]) -> str:
    calls = [state.activity.call for state in circle if state.activity is not None]
    waits = [
        f"rank {state.rank} in {call}"
        for state, call in zip(circle, calls, strict=True)
    ]
    senders = sum("send" in call for call in calls)
    if senders == len(calls):
        advice = (
            "All send before any of them receives. Let one receive first, or start both"
            " with dist.batch_isend_irecv."
        )
    elif senders == 0:
        advice = "All receive before any of them sends. Let one send first."
    else:
        advice = "Sender and receiver have to pass the same tag, in the same order."
    return f"Each waits for the next, in a circle: {', '.join(waits)}. {advice}"


def _ranks(states: Sequence[RankState]) -> str:
    numbers = ", ".join(str(state.rank) for state in states)
    return f"ranks {numbers}" if len(states) > 1 else f"rank {numbers}"


def _mismatch(states: Sequence[RankState]) -> str:
    """A sentence for ranks that wait for each other in collectives that don't fit;
    empty if all fit.
    """
    waiting: list[tuple[int, str, Key]] = []
    for state in states:
        if state.activity is not None and state.activity.key:
            key = state.activity.key
            if key[0] != "message":
                waiting.append((state.rank, state.activity.name, key))
    for a, b in itertools.combinations(waiting, 2):
        rank_a, name_a, (*group_a, number_a) = a
        rank_b, name_b, (*group_b, number_b) = b
        if group_a == group_b and (name_a, number_a) != (name_b, number_b):
            return (
                f"Call {number_a} of rank {rank_a} is {name_a}, call {number_b} of rank"
                f" {rank_b} is {name_b}: all ranks of a group have to make the same"
                " calls, with the same src or dst, in the same order."
            )
    return ""


class _Tensor(NamedTuple):
    """What one rank passed to a call."""

    function: str
    size: int
    dtype: str
    n_bytes: int


def sizes_differ(folder: str) -> str:
    """Sentences for the first call to which ranks passed tensors that don't fit; empty
    if all fit.

    `folder` has what each rank noted (`CommTracer`). gloo may hang then, end a process,
    or return wrong numbers.
    """
    text_of = dict[int, bytes]()
    for path in Path(folder).glob("sizes-*"):
        _, _, number = path.name.partition("-")
        text_of[int(number)] = path.read_bytes()
    if len(set(text_of.values())) < 2:  # the same on all ranks
        return ""
    calls: dict[Key, dict[int, _Tensor]] = {}
    for rank, text in sorted(text_of.items()):
        for line in text.splitlines():
            # half a line, if the rank was killed while it wrote
            with suppress(ValueError):
                function, size, dtype, n_bytes, *key = json.loads(line)
                tensor = _Tensor(function, size, dtype, n_bytes)
                calls.setdefault(tuple(key), {})[rank] = tensor
    for key, tensors in calls.items():
        if key[0] == "message":
            words = _message_differs(key, tensors)
        else:
            words = _collective_differs(key, tensors)
        if words:
            return words
    return ""


def _message_differs(key: Key, tensors: dict[int, _Tensor]) -> str:
    _, source, target, _, number = key
    if len(tensors) < 2:
        return ""
    fits = tensors[source].n_bytes <= tensors[target].n_bytes
    if fits and tensors[source].dtype == tensors[target].dtype:
        return ""
    return f"Message {number} from rank {source} to rank {target}: {_passed(tensors)}."


def _collective_differs(key: Key, tensors: dict[int, _Tensor]) -> str:
    functions = {tensor.function for tensor in tensors.values()}
    # other calls that don't fit are `_mismatch`'s
    if len(functions) > 1 or len(set(tensors.values())) == 1:
        return ""
    return (
        f"{min(functions)}, call {key[-1]} of its group: {_passed(tensors)}. All ranks"
        " of a group have to pass as many numbers, of one type."
    )


def _passed(tensors: dict[int, _Tensor]) -> str:
    """Who passed what: "rank 0 passed 3 numbers, rank 1 passed 4 numbers"."""
    one_type = len({tensor.dtype for tensor in tensors.values()}) == 1
    phrases = []
    for rank, tensor in tensors.items():
        of_type = "" if one_type else f" of {tensor.dtype}"
        phrases.append(f"rank {rank} passed {tensor.size:,} numbers{of_type}")
    return textwrap.shorten(", ".join(phrases), 500, placeholder="...")


def _parameter_names(names: str) -> str:
    """The names as named_parameters() gives them: torch writes a dot before those that
    belong to the module itself.
    """
    bare = [name.strip().removeprefix(".") for name in names.split(",")]
    return textwrap.shorten(", ".join(bare), 500, placeholder="...")


def _how_it_failed(state: RankState) -> str:
    """Why a rank failed, on one line."""
    failure = state.failure
    assert failure is not None
    if failure.code is None:
        if failure.error.startswith("SystemExit"):
            return "it called sys.exit before its function returned"
        if is_own(failure):
            first_line = failure.error.partition("\n")[0].rstrip(".")
            unused = _WITHOUT_GRADIENT.search(failure.error)
            if unused:
                return (
                    "DistributedDataParallel got no gradient for"
                    f" {_parameter_names(unused[1])}. Use these parameters in the loss,"
                    " freeze them, or pass find_unused_parameters=True"
                )
            # github.com/NVIDIA/nccl/issues/342
            no_room = "segment /dev/shm/nccl" in failure.error
            return first_line + _NO_ROOM if no_room else first_line
        lost = _LOST.search(failure.error)
        how = f" ({lost[0]})" if lost else ""
        where = f", in {failure.call}" if failure.call else ""
        return f"it lost a peer{how}{where}"
    if failure.code >= 0:
        return f"it left with exit code {failure.code} before its function returned"
    if "Received data size doesn't match expected size" in state.tail:
        return (
            "gloo ended it, for it got more bytes from a peer than its own tensor has"
            " room for"
        )
    try:
        name = signal.Signals(-failure.code).name
    except ValueError:
        name = f"signal {-failure.code}"
    memory = ""
    if name == "SIGKILL":
        memory = ", by the system if memory ran out: use fewer ranks or smaller tensors"
    return f"it was killed by {name}{memory}"


def _crash_report(state: RankState) -> str:
    """What a crashed process printed, its stack without the frames of this package and
    Python around the reader's.
    """
    if not state.crashed:
        return ""
    starts = [state.tail.find(word) for word in CRASHES if word in state.tail]
    what, *threads = re.split(
        r"^(?=(?:Current thread|Thread|Stack) .*most recent call first)",
        state.tail[min(starts, default=0) :],
        flags=re.M,
    )
    stack: list[str] = []
    for thread in threads:
        if "in _listen" not in thread:
            frames, _, _ = thread.partition("Extension modules:")
            stack += frames.splitlines()[1:]
    # Python's handler of fatal errors writes "é" in a path as "\xe9".
    here = _HERE.encode("ascii", "backslashreplace").decode()
    hidden = (here, "c10d_logger.py", "<no Python frame>")
    own: list[str] = []
    for line in stack:
        if f'{here}/inside/worker.py"' in line:  # which called the function
            break
        if line.strip() and not any(part in line for part in hidden):
            own.append(line)
    lines = [what.strip()]
    if own:
        lines += ["Its stack, innermost first:", *own]
    return "\n".join(lines)


def _one_line(state: RankState) -> str:
    """What a rank did at last."""
    if state.result is not None:
        return f"  rank {state.rank} has returned"
    if state.failure is not None:
        return f"  rank {state.rank} failed after it: {_how_it_failed(state)}"
    activity = state.activity
    if activity is None:
        return (
            f"  rank {state.rank} doesn't answer: it is starting, or stopped, or"
            " computes outside of Python"
        )
    own = [
        (file, line, function, text)
        for file, line, function, text in activity.frames
        if not any(part in file for part in _not_the_readers)
    ]
    at = f", at {_frame(own[-1]).strip()}" if own else ""
    if activity.call:
        what = f" ({activity.what})" if activity.what else ""
        return (
            f"  rank {state.rank} waits in {activity.call}{what} for"
            f" {format_seconds(activity.for_s)}{at}"
        )
    last = f", after {activity.last}" if activity.last else ""
    return f"  rank {state.rank} is at work{last}{at}"


def _frame(frame: tuple[str, int, str, str]) -> str:
    file, line, function, text = frame
    return f'  File "{file}", line {line}, in {function}: {text}'


def _with_cell_numbers(text: str) -> str:
    """`text` with the notebook's cells under the numbers that the reader sees, in place
    of their hidden files.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    compiler = getattr(shell, "compile", None)
    number_of = getattr(compiler, "_filename_map", {})
    for name, number in number_of.items():
        text = text.replace(f'File "{name}"', f"Cell In[{number}]")
    return text
