"""Explain a launch that failed: which rank failed first for its own reason or, after a
timeout, what each was doing.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ranks.arguments import cut, format_seconds
from ranks.launcher.coordinator import CRASHES, Failure, RankState

# What gloo, NCCL and torch's store say when it is a peer that has gone. Sources:
# gloo/transport/tcp/pair.cc, torch/csrc/distributed/c10d/NCCLUtils.cpp and TCPStore's
# socket.cpp, torch 2.13.
_LOST = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken"
    r" pipe|Socket closed|"
    r"Timed out waiting \d+ms for (?:recv|send) operation|remote process (?:has"
    r" )?exited|communicator was aborted|"
    r"failed to recv, got 0 bytes|Connection was likely closed"
)
_OF_THE_NETWORK = re.compile(r"gloo/transport/|DistNetworkError")
_NO_ROOM = (
    ". /dev/shm is too small for NCCL: give the container --shm-size=1g or --ipc=host,"
    " or set NCCL_SHM_DISABLE=1"
)
_HERE = str(Path(__file__).parents[1])
# Parts of the paths of files whose frames are no part of the reader's own code. A
# package built on this one adds its own folder, so that messages name the reader's line
# that called it.
NOT_THE_READERS = [_HERE, "site-packages", "<frozen", sys.base_prefix]


def is_own(failure: Failure) -> bool:
    """Whether a rank failed for its own reason, and not because the connection to a
    peer broke.
    """
    text = failure.error + failure.traceback
    return failure.code is not None or not (
        _LOST.search(text) or _OF_THE_NETWORK.search(text)
    )


def first_failed(states: Sequence[RankState]) -> RankState | None:
    """The rank that failed first for its own reason; where none did, the first that
    failed at all.
    """
    failed = [
        (not is_own(s.failure), s.failure.at_s, s.rank)
        for s in states
        if s.failure is not None
    ]
    return states[min(failed)[-1]] if failed else None


def explain(states: Sequence[RankState], timeout_s: float, differ: str) -> str:
    """The message about a launch in which a rank failed, or that was not done after
    `timeout_s` seconds.

    `differ` is what `sizes_differ` said.
    """
    first = first_failed(states)
    if first is None or first.failure is None:
        lines = _explain_timeout(states, timeout_s, differ or _mismatch(states))
    else:
        failure = first.failure
        own = is_own(first.failure)
        lines = [
            differ or ("" if own else _returned_early(states)),
            (
                f"rank {first.rank} {'failed first' if own else 'failed'},"
                f" {format_seconds(failure.at_s)} after the start:"
                f" {_how_it_failed(first)}."
            ),
            "" if differ else _mismatch(states),
            "" if failure.traceback == failure.error else failure.traceback,
            _crash_report(first),
            *(_one_line(state) for state in states if state is not first),
        ]
    return _with_cell_numbers("\n".join(line for line in lines if line))


def _explain_timeout(
    states: Sequence[RankState], timeout_s: float, why: str
) -> list[str]:
    late = f"{sum(state.at_work for state in states)} of {len(states)} ranks"
    lines = [
        f"{late} were not done after {timeout_s:g} s (timeout_s) and were ended.",
        *map(_one_line, states),
    ]
    lines += [
        why
        or _missing(states)
        or "If they were making progress, pass a longer timeout_s."
    ]
    for state in states:
        if state.activity is not None and state.activity.frames:
            lines += [
                f"Stack of rank {state.rank}:",
                *map(_frame, state.activity.frames),
            ]
    return lines


def _returned_early(states: Sequence[RankState]) -> str:
    """A sentence for ranks that returned while others still needed them; empty if none
    did.
    """
    returned = [state for state in states if state.result is not None]
    who = f"{_ranks(returned)} returned while others were still waiting for it"
    return (
        f"{who}: all ranks of a group have to make the same calls." if returned else ""
    )


def _missing(states: Sequence[RankState]) -> str:
    """A sentence for ranks for which others wait in a call; empty if none waits, or all
    do.
    """
    waiting = [
        state for state in states if state.activity is not None and state.activity.call
    ]
    late = [state for state in states if state.at_work and state not in waiting]
    if not waiting or not late:
        return _returned_early(states) if waiting else ""
    why = f"{_ranks(late)} had not made the call in which {_ranks(waiting)} waited"
    return f"{why}. If that would still have come, pass a longer timeout_s."


def _ranks(states: Sequence[RankState]) -> str:
    return (
        f"rank{'s' * (len(states) > 1)}"
        f" {', '.join(str(state.rank) for state in states)}"
    )


def _mismatch(states: Sequence[RankState]) -> str:
    """A sentence for ranks that wait for each other in collectives that don't fit;
    empty if all fit.
    """
    calling = [
        (s.rank, s.activity, s.activity.key)
        for s in states
        if s.activity is not None and s.activity.key
    ]
    waiting = [
        (rank, activity, key) for rank, activity, key in calling if key[0] != "message"
    ]
    for rank, mine, key in waiting:
        for other, theirs, other_key in waiting:
            # a key is a group and the call's number there
            if other <= rank or key[:-1] != other_key[:-1]:
                continue
            call = f"Call {key[-1]} of rank {rank}"
            other_call = f"call {other_key[-1]} of rank {other}"
            if (mine.name, key) != (theirs.name, other_key):
                return (
                    f"{call} is {mine.name}, {other_call} is {theirs.name}: all ranks"
                    " of a group have to make the same calls, with the same src or"
                    " dst, in the same order."
                )
    return ""


def sizes_differ(folder: str) -> str:
    """Sentences for the first call to which ranks passed tensors that don't fit; empty
    if all fit.

    `folder` has what each rank noted (`CommTracer`). gloo may hang then, end a process,
    or return wrong numbers.
    """
    noted = {
        int(path.name.partition("-")[2]): path.read_bytes()
        for path in Path(folder).glob("sizes-*")
    }
    calls: dict[tuple[Any, ...], dict[int, tuple[str, int, str, int]]] = {}
    if len(set(noted.values())) > 1:
        for rank, lines in sorted(noted.items()):
            for line in lines.splitlines():
                # half a line, if the rank was killed while it wrote
                with suppress(ValueError):
                    name, size, dtype, n_bytes, *key = json.loads(line)
                    calls.setdefault(tuple(key), {})[rank] = name, size, dtype, n_bytes
    for key, passed in calls.items():
        names = {each[0] for each in passed.values()}
        dtypes = {each[2] for each in passed.values()}
        if key[0] == "message":
            source, target, _, number = key[1:]
            if len(passed) == 2 and (
                passed[source][3] > passed[target][3] or len(dtypes) > 1
            ):
                return (
                    f"Message {number} from rank {source} to rank {target}:"
                    f" {_passed(passed, dtypes)}."
                )
        elif len(names) == 1 and len({each[1:] for each in passed.values()}) > 1:
            return (
                f"{min(names)}, call {key[-1]} of its group: {_passed(passed, dtypes)}."
                " All ranks of a group have to pass as many numbers, of one type."
            )
    return ""


def _passed(passed: dict[int, tuple[str, int, str, int]], dtypes: set[str]) -> str:
    """Who passed what: "rank 0 passed 3 numbers, rank 1 passed 4 numbers"."""
    of = {dtype: f" of {dtype}" if len(dtypes) > 1 else "" for dtype in dtypes}
    each = (
        f"rank {rank} passed {size:,} numbers{of[dtype]}"
        for rank, (_, size, dtype, _) in passed.items()
    )
    return cut(", ".join(each), 500)


def _how_it_failed(state: RankState) -> str:
    """Why a rank failed, on one line."""
    failure = state.failure
    assert failure is not None
    if failure.code is None:
        if failure.error.startswith("SystemExit"):
            return "it called sys.exit before its function returned"
        if is_own(failure):
            # github.com/NVIDIA/nccl/issues/342
            room = _NO_ROOM * ("segment /dev/shm/nccl" in failure.error)
            return failure.error.partition("\n")[0].rstrip(".") + room
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
    name = next(
        (one.name for one in signal.Signals if one == -failure.code),
        f"signal {-failure.code}",
    )
    memory = (
        ", by the system if memory ran out: use fewer ranks or smaller tensors"
        if name == "SIGKILL"
        else ""
    )
    return f"it was killed by {name}{memory}"


def _crash_report(state: RankState) -> str:
    """What a crashed process printed, its stack without the frames of this package and
    Python around the reader's.
    """
    if not state.crashed:
        return ""
    start = min(
        (at for word in CRASHES if (at := state.tail.find(word)) >= 0), default=0
    )
    what, *threads = re.split(
        r"^(?=(?:Current thread|Thread|Stack) .*most recent call first)",
        state.tail[start:],
        flags=re.M,
    )
    stacks = [
        stack.partition("Extension modules:")[0]
        for stack in threads
        if "in _listen" not in stack
    ]
    kept = [line for stack in stacks for line in stack.splitlines()[1:]]
    own = next(
        (i for i, line in enumerate(kept) if f'{_HERE}/inside/worker.py"' in line),
        len(kept),
    )
    hidden = (_HERE, "c10d_logger.py", "<no Python frame>")
    kept = [
        line
        for line in kept[:own]
        if line.strip() and not any(part in line for part in hidden)
    ]
    return "\n".join(
        [what.strip(), *(["Its stack, innermost first:", *kept] if kept else [])]
    )


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
        frame
        for frame in activity.frames
        if not any(part in frame[0] for part in NOT_THE_READERS)
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
    return '  File "{}", line {}, in {}: {}'.format(*frame)


def _with_cell_numbers(text: str) -> str:
    """`text` with the notebook's cells under the numbers that the reader sees, in place
    of their hidden files.
    """
    ipython = sys.modules.get("IPython")
    names = getattr(
        getattr(ipython.get_ipython() if ipython else None, "compile", None),
        "_filename_map",
        {},
    )
    for name, number in names.items():
        text = text.replace(f'File "{name}"', f"Cell In[{number}]")
    return text
