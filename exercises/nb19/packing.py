"""Documents of unequal length in the rows of a batch: padded, or packed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from exercises.nb19 import gpt
from exercises.nb19.training import Trainer
from labkit.lesson.boards import SpeedBoard
from labkit.measure.bench import Ratio
from labkit.measure.machine import machine, pick

_ROWS = 8  # of a batch

Batches = list[Tensor]  # each (8, length)


def lines_of(text: Tensor, newline: int, n_lines: int) -> list[Tensor]:
    """The first lines of a text (N,), each cut to the context's length at its end."""
    ends = (text == newline).nonzero().flatten()[:n_lines]
    context = gpt.Switches().context
    return [line[-context:] for line in text.tensor_split(ends + 1)[:-1]]


def padded(rows: Sequence[Tensor]) -> Batches:
    """Eight rows each, padded to the longest of the eight."""
    eights = [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]
    return [
        pad_sequence(list(eight), batch_first=True, padding_value=gpt.PADDING).to(
            machine().device
        )
        for eight in eights
    ]


def packed(documents: Sequence[Tensor]) -> Batches:
    """The documents joined, and cut into rows of the context's length."""
    rows = torch.cat(list(documents)).split(gpt.Switches().context + 1)
    return padded(rows)


def race(
    trainer: Trainer, board: SpeedBoard, documents: Sequence[Tensor], separator: int
) -> dict[str, Ratio]:
    """How many times as many tokens that count a second are read in packed rows as in
    padded ones: as they are, and with a mask that keeps the documents apart.
    """
    step = trainer.begun(compiled="").step
    step_apart = trainer.begun(compiled="", separator=separator).step
    in_padded = padded(documents)
    in_packed = packed(documents)
    ways = {
        "padded lines": lambda: [step(rows) for rows in in_padded],
        "packed lines": lambda: [step(rows) for rows in in_packed],
        "packed, documents apart": lambda: [step_apart(rows) for rows in in_packed],
    }
    compared = board.compare(
        ways,
        sync=machine().sync,
        budget_s=pick(ci=0.1, cpu=1.5, gpu=3),
        min_runs=5,
    )
    more = _counted(in_packed, separator) / _counted(in_padded, separator)
    return {name: compared.ratio(name).times(more) for name in list(ways)[1:]}


def _counted(batches: Batches, separator: int) -> int:
    """Tokens that count: those that their own document predicts."""
    counts = [(gpt.targets(rows, separator) >= 0).sum().item() for rows in batches]
    return int(sum(counts))
