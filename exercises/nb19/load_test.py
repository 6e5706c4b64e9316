"""The engine of notebook 19 under load: all requests at once, and as they arrive."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from IPython.display import display
from torch import Tensor

from exercises.nb19 import figures, serving
from exercises.nb19.engine import Admit, Engine, Request, Slots
from exercises.nb19.serving import Latencies, Latency
from labkit.core import live_line
from labkit.lesson import journal
from labkit.lesson.boards import SpeedBoard
from labkit.measure.machine import machine, pick
from labkit.plot import Picture
from labkit.train.models import SmallGPT

_WAYS = ("static", "continuous")


@dataclass(frozen=True)
class LoadTest:
    """A model that writes for n readers, whose prompts are cut from a text (N,), with
    exercise 19.6a's `slots` and `admit`.
    """

    model: SmallGPT
    slots: Slots
    admit: Admit
    text: Tensor
    n: int

    def serve(self, way: str, rate: float = 0.0) -> Sequence[Request]:
        """The answers, written in "static" or "continuous" batches; all requests come
        at once, or with a rate so many a second.
        """
        engine = Engine(self.model, self.slots, self.admit, static=way == "static")
        return engine.serve(serving.requests_of(self.text, self.n, rate=rate))

    def run(self, board: SpeedBoard, key: str) -> Picture:
        """Race both ways on a board, with all requests at once, and record their ratio
        under a key. Then let requests arrive at rates up to what continuous batching
        can serve: show what their readers notice.
        """
        requests = serving.requests_of(self.text, self.n)
        race = board.compare(
            {way: functools.partial(self.serve, way) for way in _WAYS},
            items=sum(request.n_new for request in requests),
            sync=machine().sync,
            budget_s=pick(ci=0.1, cpu=2, gpu=2),
            min_runs=5,
        )
        journal.record(key, race.ratio("continuous"), "x")
        latencies = self._under_load(self.n / race.timings[1].median_s)
        display(latencies)
        return figures.waiting(latencies)

    def _under_load(self, most: float) -> Latencies:
        """What readers notice at some loads, in percent of `most` requests a second;
        after Ctrl-C at those that were served until then.
        """
        loads = pick(ci=(100,), cpu=(25, 50, 75, 100), gpu=(25, 50, 75, 100))
        latencies: dict[tuple[str, int], Latency] = {}
        try:
            for load in loads:
                for way in _WAYS:
                    live_line.tell(f"Load {load} % of {loads[-1]} %, {way} batching.")
                    served = self.serve(way, rate=load / 100 * most)
                    latencies[way, load] = serving.latency_of(served)
        except KeyboardInterrupt:
            if not latencies:
                raise
            live_line.tell("Stopped; the loads until then are shown.")
        live_line.end()
        return Latencies(latencies)
