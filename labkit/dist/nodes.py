"""What the machines of a launch tell each other through torch's store: their clocks, their failures, what ranks did."""

from __future__ import annotations

import pickle
import time
import zlib
from typing import Any

from labkit.core.errors import RankFailed

_PINGS = 9
_LOOK_S = 0.02


class Nodes:
    """One node among all, numbered from 0; the store goes with node 0, which therefore leaves last."""

    def __init__(self, store: Any, node: int, count: int) -> None:
        self.store, self.node, self.count = store, node, count
        self.others = [other for other in range(count) if other != node]
        self.ahead_s = 0.0  # of node 0's monotonic clock

    def set_clock(self) -> None:
        """Find by how much this node's clock is ahead of node 0's; all nodes call it at once.

        Each in turn asks node 0 for its time, nine times, and keeps the quickest answer, which is wrong by half its
        round trip at most. Source: Cristian, Probabilistic clock synchronization (1989).
        """
        quickest_s = float("inf")
        for asker in range(1, self.count):
            for ping in range(_PINGS):
                asked, answered = (f"clock/{what}/{asker}/{ping}" for what in ("asked", "answered"))
                if self.node == 0:
                    self.store.wait([asked])
                    self.store.set(answered, repr(time.monotonic()))
                elif self.node == asker:
                    sent_s = time.monotonic()
                    self.store.set(asked, "")
                    theirs_s = float(self.store.get(answered))
                    took_s = time.monotonic() - sent_s
                    if took_s < quickest_s:
                        quickest_s, self.ahead_s = took_s, sent_s + took_s / 2 - theirs_s

    def tell_failure(self, own: str, within_s: float) -> list[str]:
        """Tell the others why this node failed, `own` words or none, and hear for a moment why they did."""
        heard: dict[int, str] = {}
        end_s = time.monotonic() + within_s
        try:
            if self.others:
                self.store.set(f"failed/{self.node}", own)
            while len(heard) < len(self.others) and not any(heard.values()) and time.monotonic() < end_s:
                heard = self._failures()
                time.sleep(_LOOK_S)
            self._leave(end_s)
        except RuntimeError:  # the store has gone with its node
            pass
        return [words for words in heard.values() if words]

    def exchange(self, mine: Any, within_s: float) -> list[Any]:
        """What each node passes as `mine`, by node; all nodes call it at once. RankFailed where one has failed."""
        if not self.others:
            return [mine]
        end_s = time.monotonic() + within_s
        keys = [f"exchange/{node}" for node in range(self.count)]
        try:
            self.store.set(keys[self.node], zlib.compress(pickle.dumps(mine)))
            while not self.store.check(keys):
                failed = next((words for words in self._failures().values() if words), "")
                if failed or time.monotonic() > end_s:
                    raise RankFailed(
                        "All ranks of this machine have returned. On another machine "
                        + (failed or f"ranks were not done {within_s:g} s later")
                    )
                time.sleep(_LOOK_S)
            everything = [pickle.loads(zlib.decompress(self.store.get(key))) for key in keys]
            self._leave(end_s)
        except RuntimeError as error:
            raise RankFailed(
                f"All ranks of this machine have returned, but another machine is gone: {error}."
            ) from None
        return everything

    def _failures(self) -> dict[int, str]:
        found = [other for other in self.others if self.store.check([f"failed/{other}"])]
        return {other: self.store.get(f"failed/{other}").decode() for other in found}

    def _leave(self, end_s: float) -> None:
        """Let node 0 wait for the others, who have heard all there is."""
        if self.others:
            self.store.set(f"left/{self.node}", "")
        while self.node == 0 and self.others and time.monotonic() < end_s:
            if self.store.check([f"left/{other}" for other in self.others]):
                return
            time.sleep(_LOOK_S)
