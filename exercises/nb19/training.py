"""What notebook 19 does with the small GPT: train it with some switches for a few
steps, or until it has reached a loss.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from exercises.nb19.gpt import Switches, Training
from labkit.core.display import ShownAsTable, Table
from labkit.core.parameters import checked
from labkit.lesson.boards import SpeedBoard
from labkit.measure.bench import Comparison
from labkit.measure.machine import machine, pick
from labkit.measure.memory import peak_memory
from labkit.plot import Picture, scales
from labkit.train.training import RateSweep, sweep_rates

_SEEDS = 2  # of each rate of a sweep


@dataclass(frozen=True)
class Trainer:
    """Trains on a text (N,) of tokens; losses are of another one, held out."""

    text: Tensor
    held_out: Tensor

    def begun(self, seed: int = 0, **switches: Any) -> Training:
        """A training with nanoGPT's settings but for `switches`."""
        return Training(Switches(**switches), self.text, seed)

    def loss_after(self, steps: int, seed: int = 0, **switches: Any) -> float:
        """The held-out loss after so many steps."""
        training = self.begun(seed, **switches)
        for _ in range(steps):
            training.step()
        return training.loss_on(self.held_out)

    def until(self, target: float, seed: int = 0, **switches: Any) -> tuple[int, float]:
        """Train until the held-out loss has reached a target: the tokens that were
        read, and the loss.

        A CPU looks at the loss every 3,072 tokens, and gives up after 400,000; a GPU
        reads more of both.
        """
        patience = pick(ci=1_536, cpu=400_000, gpu=40_000_000)
        between = pick(ci=512, cpu=3_072, gpu=65_536)
        training = self.begun(seed, **switches)
        loss = math.inf
        while loss > target and training.tokens < patience:
            looks = training.tokens // between
            training.step()
            if training.tokens // between > looks:
                loss = training.loss_on(self.held_out)
        return training.tokens, loss

    def sweep(
        self, rates: Iterable[float], *, width: int, mup: int = 0, **switches: Any
    ) -> RateSweep:
        """The held-out loss after some steps by learning rate, two seeds each, of a
        network of another width; `mup` is the width that a rate was found at.

        It says how far it is. After Ctrl-C it has what was trained until then.
        """
        usual = Switches()
        steps = pick(ci=3, cpu=100, gpu=300)
        own: dict[str, Any] = {
            **switches,
            "width": width,
            "heads": width * usual.heads // usual.width,
            "mup": mup,
            "compiled": "",
            "warmup": 10,
        }

        def loss_of(rate: float, seed: int) -> float:
            loss = self.loss_after(steps, seed, **own, rate=rate)
            return loss if math.isfinite(loss) else math.inf

        return sweep_rates(loss_of, sorted(rates), seeds=range(_SEEDS), lower=True)


class Repeated:
    """Trains anew at each call, from the next seed, until a loss is reached; `reached`
    has (tokens, loss) of each training, in their order.
    """

    def __init__(
        self, trainer: Trainer, target: float, switches: Mapping[str, Any]
    ) -> None:
        self.reached: list[tuple[int, float]] = []
        self.target = target
        self._trainer = trainer
        self._switches = dict(switches)
        self._seeds = itertools.count()

    def __call__(self) -> None:
        """Train once more."""
        seed = next(self._seeds)
        result = self._trainer.until(self.target, seed, **self._switches)
        self.reached.append(result)

    @property
    def arrived(self) -> bool:
        """Whether each training has reached the loss."""
        return all(loss <= self.target for _, loss in self.reached)

    def by_seed(self, seconds: Iterable[float]) -> list[tuple[float, int]]:
        """(seconds, tokens) of the last trainings, those that were timed: the first
        warms up.
        """
        timed = list(seconds)
        last = self.reached[-len(timed) :]
        return [(s, tokens) for s, (tokens, _) in zip(timed, last, strict=True)]


@dataclass(frozen=True, repr=False)
class RowsMemory(ShownAsTable):
    """Name of a step -> bytes that the embedding's rows need at least, calculated, and
    the peak of the whole step, measured.
    """

    calculated: Mapping[str, float]
    peaks: Mapping[str, int]

    def ratio(self, name: str) -> float:
        """How many times the first step's peak another one's is."""
        return self.peaks[name] / next(iter(self.peaks.values()))

    def table(self) -> Table:
        """A row for each step, in MiB."""
        rows = tuple(
            (name, f"{self.calculated[name] / 2**20:.1f}", f"{peak / 2**20:.1f}")
            for name, peak in self.peaks.items()
        )
        heads = ("step", "rows alone, calculated, MiB", "peak, measured, MiB")
        return Table(rows, heads)


@checked
def memory_of(steps: Mapping[str, Training]) -> RowsMemory:
    """The memory of one step of each training."""
    calculated = {name: _least_bytes(each.on) for name, each in steps.items()}
    peaks = {name: peak_memory(each.step).peak_bytes for name, each in steps.items()}
    return RowsMemory(calculated, peaks)


def race_steps(board: SpeedBoard, steps: Mapping[str, Training]) -> Comparison:
    """Race the steps of trainings that read equally many tokens in each."""
    on = next(iter(steps.values())).on
    return board.compare(
        {name: each.step for name, each in steps.items()},
        items=on.batch * on.context,
        sync=machine().sync,
        budget_s=pick(ci=0.1, cpu=1.5, gpu=3),
        min_runs=5,
    )


def _least_bytes(on: Switches) -> float:
    """What the rows need at least, at the larger of two moments: in backward three
    times the logits of a part; in the optimizer's step the rows' gradient, AdamW's two
    numbers for each, and two more while it works, unless it is fused.
    """
    logits = 3 * on.batch * on.context * on.rows / on.parts
    optimizer = (3 if on.fused else 5) * on.rows * on.width
    return 4 * max(logits, optimizer)


def valleys(sweeps: Mapping[str, RateSweep]) -> Picture:
    """The held-out loss by rate of each sweep."""
    lines = {
        name: {rate: sweep.middle(rate) for rate in sweep.results}
        for name, sweep in sweeps.items()
    }
    return scales(lines, x="rate", y="held-out loss", unit="nats")
