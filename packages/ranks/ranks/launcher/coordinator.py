"""The notebook's end of the channels to its ranks: takes messages as they come, in the
thread that launched.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ranks.channel import Channel
from ranks.inside.rank_context import Report
from ranks.inside.worker import RankActivity
from ranks.spans import RankTrace

_LOOK_S = 0.05  # how often to look for processes that ended without a message
# pieces of 64 KiB of output at a time: a process that writes without end must not hold
# up a launch
_MOST_READ = 256
# characters of a rank's output that are kept for the message about its end
_TAIL = 4000
# What begins the output of a process that Python's faulthandler, or C++, ends.
CRASHES = ("Fatal Python error", "terminate called")


@dataclass(frozen=True)
class Failure:
    """Why a rank ended without a result, and when, in seconds since the launch began.
    `code` if the process ended.
    """

    at_s: float
    error: str
    traceback: str = ""
    call: str = ""  # the last of torch.distributed that it made
    code: int | None = None


@dataclass
class RankState:
    """What the notebook knows of one rank."""

    rank: int
    process: Any
    channel: Channel | None = None
    output: Channel | None = None  # raw bytes that the rank prints
    result: Any = None  # as packing.pack made it
    trace: RankTrace = field(default_factory=RankTrace)
    failure: Failure | None = None
    activity: RankActivity | None = None
    decoder: Any = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    unfinished: str = ""  # output without an end of line
    tail: str = ""
    # from here on its output belongs to the message about its end
    crashed: bool = False

    @property
    def at_work(self) -> bool:
        """Whether neither a result nor a failure has come."""
        return self.result is None and self.failure is None


class Coordinator:
    """Waits for messages of all ranks and for their ends, for one launch."""

    def __init__(
        self, start_s: float, on_report: Callable[[Report], object] | None
    ) -> None:
        self.start_s = start_s
        self.reports: list[Report] = []
        self.states: list[RankState] = []
        self._on_report = on_report
        self._selector = selectors.DefaultSelector()

    def add(self, state: RankState) -> None:
        """Wait for one more rank."""
        self.states.append(state)
        for channel, read in (
            (state.channel, self._read),
            (state.output, self._read_output),
        ):
            if channel is not None:
                on_ready = functools.partial(read, state)
                self._selector.register(channel, selectors.EVENT_READ, on_ready)

    def now_s(self) -> float:
        """Seconds since the launch began."""
        return time.monotonic() - self.start_s

    def attend(self, timeout_s: float) -> None:
        """Wait for messages at most `timeout_s`, and never longer than 0.05 s; take in
        what has come.
        """
        for key, _ in self._selector.select(max(0.0, min(timeout_s, _LOOK_S))):
            key.data()
        for state in self.states:
            if state.at_work and state.process.exitcode is not None:
                self._drain(state)
                if state.at_work:
                    code = state.process.exitcode
                    state.failure = Failure(self.now_s(), "", code=code)

    def ask_activities(self, within_s: float) -> None:
        """Ask every rank at work what it is doing; those that don't answer in time keep
        None.
        """
        asked: list[RankState] = []
        for state in self.states:
            if state.at_work and state.channel is not None:
                asked.append(state)
                with contextlib.suppress(OSError):
                    state.channel.send("activity")
        end_s = self.now_s() + within_s
        while self.now_s() < end_s:
            if not any(s.activity is None and s.at_work for s in asked):
                return
            self.attend(end_s - self.now_s())

    def dismiss(self) -> None:
        """Let the ranks, which have all returned, end."""
        for state in self.states:
            if state.channel is not None:
                with contextlib.suppress(OSError):
                    state.channel.send("dismissed")

    def close(self) -> None:
        """Show what was printed last; close all channels. Safe to call again."""
        for state in self.states:
            self._drain_output(state)
            if state.unfinished:
                self._show(state, "\n")
        for state in self.states:
            for channel in (state.channel, state.output):
                if channel is not None:
                    channel.close()
            state.channel = state.output = None
        self._selector.close()

    def _read(self, state: RankState) -> None:
        channel = state.channel
        if channel is None:
            return
        try:
            received = channel.recv_now()
        except (EOFError, OSError):
            self._selector.unregister(channel)
            channel.close()
            state.channel = None
            return
        if received is None:  # the rest of it is still to come
            return
        message, *content = received
        if message == "report":
            self.reports.append(Report(state.rank, *content))
            if self._on_report is not None:
                self._on_report(self.reports[-1])
        elif message == "activity":
            state.activity = content[0]
        elif message == "done":
            state.result, state.trace = content
        elif message == "failed":
            state.failure = Failure(*content)

    def _read_output(self, state: RankState) -> None:
        output = state.output
        if output is None:
            return
        try:
            data = output.sock.recv(65536)
        except OSError:
            data = b""
        if data:
            self._show(state, state.decoder.decode(data))
            return
        self._selector.unregister(output)
        output.close()
        state.output = None

    def _show(self, state: RankState, text: str) -> None:
        """Print whole lines, each with its rank, so that what ranks print at the same
        time doesn't mix.
        """
        state.tail = (state.tail + text)[-_TAIL:]
        *lines, state.unfinished = (state.unfinished + text).split("\n")
        for line in lines:
            state.crashed = state.crashed or line.startswith(CRASHES)
            if not state.crashed:
                # in one piece: another launch may print in its own thread
                print(f"rank {state.rank}: {line}\n", end="")

    def _drain(self, state: RankState) -> None:
        """Read what a process sent before it ended."""
        while state.channel is not None and state.channel.poll():
            self._read(state)
        self._drain_output(state)

    def _drain_output(self, state: RankState) -> None:
        for _ in range(_MOST_READ):
            if state.output is None or not state.output.poll():
                return
            self._read_output(state)
