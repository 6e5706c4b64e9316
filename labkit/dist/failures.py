"""Say which rank failed first for its own reason, or where each stands that doesn't get on."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence

from labkit.dist.coordinator import CRASHES, Failure, RankState
from labkit.core.units import format_seconds

# What gloo, NCCL and torch's store say when it is a peer that has gone. Sources: gloo/transport/tcp/pair.cc,
# torch/csrc/distributed/c10d/NCCLUtils.cpp and TCPStore's socket.cpp, torch 2.13.
_LOST = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe|Socket closed|"
    r"Timed out waiting \d+ms for (?:recv|send) operation|remote process (?:has )?exited|communicator was aborted|"
    r"failed to recv, got 0 bytes|Connection was likely closed"
)
_OF_THE_NETWORK = re.compile(r"gloo/transport/|DistNetworkError")
_SIZES_DIFFER = re.compile(r"(\d+) vs (\d+)\. Received data size doesn't match expected size")
# Calls whose tensors have to be alike on all ranks of the group.
_ALIKE = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "all_gather_into_tensor",
    "reduce_scatter_single", "reduce_scatter_tensor",
)  # fmt: skip


def is_own(failure: Failure) -> bool:
    """Whether a rank failed for its own reason, and not because the connection to a peer broke."""
    text = failure.error + failure.traceback
    return failure.code is not None or not (_LOST.search(text) or _OF_THE_NETWORK.search(text))


def first_failed(states: Sequence[RankState]) -> RankState | None:
    """The rank that failed first for its own reason; where none did, the first that failed at all."""
    failed = [(not is_own(s.failure), s.failure.at_s, i) for i, s in enumerate(states) if s.failure is not None]
    return states[min(failed)[-1]] if failed else None


def headline(states: Sequence[RankState], timeout_s: float) -> str:
    """What other machines are told: why a rank failed here for its own reason; else nothing."""
    first = first_failed(states)
    if first is None:
        late = sum(state.at_work for state in states)
        return f"{late} of its {len(states)} ranks were not done after {timeout_s:g} s"
    own = first.failure is not None and is_own(first.failure)
    return f"rank {first.rank} failed first: {_how(first)}" if own else ""


def explain(states: Sequence[RankState], timeout_s: float, elsewhere: Sequence[str] = ()) -> str:
    """The message about a launch that failed: here, on other machines (`elsewhere`), or by not being done in time."""
    first = first_failed(states)
    if first is None or first.failure is None:
        lines = _hang(states, timeout_s)
    else:
        failure, after = first.failure, format_seconds(first.failure.at_s)
        verb = "failed first" if is_own(failure) else "failed"
        lines = [f"rank {first.rank} {verb}, {after} after the start: {_how(first)}."]
        if not is_own(failure):
            blame = "No rank of this machine is to blame." if elsewhere else _left_early(states)
            lines = [blame, *lines]
        lines += [mismatch(states), "" if failure.traceback == failure.error else failure.traceback, _last_words(first)]
        lines += [_briefly(state) for state in states if state is not first]
    lines = [f"On another machine {words}." for words in elsewhere] + lines
    return named_cells("\n".join(line for line in lines if line))


def _left_early(states: Sequence[RankState]) -> str:
    """A sentence for ranks that returned while others still needed them; empty if none did."""
    returned = [str(state.rank) for state in states if state.result is not None]
    if not returned:
        return ""
    who = f"rank {returned[0]}" if len(returned) == 1 else f"ranks {', '.join(returned)}"
    return f"{who} returned while others were still waiting for it: all ranks of a group have to make the same calls."


def _hang(states: Sequence[RankState], timeout_s: float) -> list[str]:
    late = sum(state.at_work for state in states)
    lines = [f"{late} of {len(states)} ranks were not done after {timeout_s:g} s (timeout_s) and were ended."]
    lines += [_briefly(state) for state in states]
    lines += [mismatch(states) or "If they were getting on, pass a longer timeout_s."]
    for state in states:
        if state.place is not None and state.place.frames:
            lines += [f"Stack of rank {state.rank}:", *map(_frame, state.place.frames)]
    return lines


def mismatch(states: Sequence[RankState]) -> str:
    """A sentence for ranks that wait for each other in calls that don't fit; empty if all fit."""
    waiting = [(s.rank, s.place) for s in states if s.place is not None and s.place.key and s.place.key[0] != "message"]
    for rank, place in waiting:
        for other, their in waiting:
            if other <= rank or place.key is None or their.key is None or place.key[:-1] != their.key[:-1]:
                continue
            ours, theirs = f"Call {place.key[-1]} of rank {rank}", f"call {their.key[-1]} of rank {other}"
            if (place.name, place.key) != (their.name, their.key):
                return (
                    f"{ours} is {place.name}, {theirs} is {their.name}: all ranks of a group have to make the same "
                    "calls in the same order."
                )
            if place.what != their.what and place.name in _ALIKE:
                return f"{ours} is {place.name} of {place.what}, {theirs} of {their.what}: they have to be alike."
    return ""


def _how(state: RankState) -> str:
    """Why a rank failed, on one line."""
    failure = state.failure
    if failure is None:
        return ""
    if failure.code is None:
        if failure.error.startswith("SystemExit"):
            return "it called sys.exit before its function returned"
        if is_own(failure):
            return failure.error.partition("\n")[0].rstrip(".")
        words = _LOST.search(failure.error)
        return f"it lost a peer{f' ({words[0]})' if words else ''}{f', in {failure.call}' if failure.call else ''}"
    if failure.code >= 0:
        return f"it left with exit code {failure.code} before its function returned"
    if differ := _SIZES_DIFFER.search(state.tail):
        got, wanted = differ.groups()
        return (
            f"gloo ended it, for it got {got} bytes from a peer where its own tensor has room for {wanted}: tensors "
            "have to be alike on all ranks, and calls in the same order"
        )
    try:
        name = signal.Signals(-failure.code).name
    except ValueError:
        name = f"signal {-failure.code}"
    memory = ", by the system if memory ran out: use fewer ranks or smaller tensors" if name == "SIGKILL" else ""
    return f"it was killed by {name}{memory}"


def _last_words(state: RankState) -> str:
    """What a crashed process printed, with its stack but without labkit's and Python's own part of that."""
    if not state.crashed:
        return ""
    what, *threads = re.split(
        r"^(?=(?:Current thread|Thread|Stack) .*most recent call first)", _crash(state), flags=re.M
    )
    stacks = [stack.partition("Extension modules:")[0] for stack in threads if "in _listen" not in stack]
    kept = [line for stack in stacks for line in stack.splitlines()[1:]]
    own = next((i for i, line in enumerate(kept) if 'labkit/dist/worker.py"' in line), len(kept))
    hidden = ("labkit/dist/", "c10d_logger.py", "<no Python frame>")
    kept = [line for line in kept[:own] if line.strip() and not any(part in line for part in hidden)]
    return "\n".join([what.strip(), *(["Its stack, innermost first:", *kept] if kept else [])])


def _crash(state: RankState) -> str:
    """The output from the crash on."""
    return state.tail[min((at for word in CRASHES if (at := state.tail.find(word)) >= 0), default=0) :]


def _briefly(state: RankState) -> str:
    """One line about a rank."""
    if state.result is not None:
        return f"  rank {state.rank} has returned"
    if state.failure is not None:
        return f"  rank {state.rank} failed after it: {_how(state)}"
    place = state.place
    if place is None:
        return f"  rank {state.rank} doesn't answer: it is starting, or stopped, or computes outside of Python"
    own = [f for f in place.frames if _is_readers(f[0])]
    at = f", at {_frame(own[-1]).strip()}" if own else ""
    if place.call:
        what = f" ({place.what})" if place.what else ""
        return f"  rank {state.rank} waits in {place.call}{what} for {format_seconds(place.for_s)}{at}"
    last = f", after {place.last}" if place.last else ""
    return f"  rank {state.rank} is at work{last}{at}"


def _is_readers(file: str) -> bool:
    return not ("site-packages" in file or "labkit" in file or file.startswith((sys.base_prefix, "<frozen")))


def _frame(frame: tuple[str, int, str, str]) -> str:
    name, line, function, text = frame
    return f'  File "{name}", line {line}, in {function}: {text}'


def named_cells(text: str) -> str:
    """`text` with the notebook's cells under the numbers that the reader sees, in place of their hidden files."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    names = getattr(getattr(shell, "compile", None), "_filename_map", {})
    for name, number in names.items():
        text = text.replace(f'File "{name}"', f"Cell In[{number}]")
    return text
