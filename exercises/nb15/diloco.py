"""What ranks that rarely meet train on, and what they have written to each other."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

_NUMBERS = 64
_LABELS = 10
_BATCH = 128
_HELD_OUT = 2_000
_IO = Path("/proc/self/io")


def batch(step: int, rank: int, size: int) -> tuple[Tensor, Tensor]:
    """Numbers (size, 64), and which of each row's first ten is the largest (size,)."""
    draw = torch.Generator().manual_seed(1_000 * step + rank)
    x = torch.randn(size, _NUMBERS, generator=draw)
    return x, x[:, :_LABELS].argmax(1)


def loss(net: nn.Module, step: int, rank: int, size: int = _BATCH) -> Tensor:
    """The mean loss () of a network on a rank's batch of a step."""
    x, labels = batch(step, rank, size)
    return cross_entropy(net(x), labels)


def held_out_loss(net: nn.Module) -> float:
    """The mean loss on rows that no rank trains on."""
    with torch.no_grad():
        return float(loss(net, 0, 999, _HELD_OUT))


def written_bytes() -> int | None:
    """Bytes that this process has written so far, to sockets too, as Linux counts them
    (proc(5), wchar of /proc/pid/io); None elsewhere.
    """
    if not _IO.exists():
        return None
    counts = dict(line.split(": ") for line in _IO.read_text().splitlines())
    return int(counts["wchar"])
