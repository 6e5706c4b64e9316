"""Lines that make Python wait for a GPU: found on any machine, whatever takes the
numbers out.
"""

import io
import warnings

import numpy as np
import pytest
import torch

from steptime import wait_lines
from steptime.profile.gpu_waits import each_read

x = torch.rand(4, 4)
READS = {
    "item": lambda: x.sum().item(),
    "float": lambda: float(x.sum()),
    "bool": lambda: bool((x > 2).any()),
    "compare": lambda: max(x.sum(), 1.0),
    "format": lambda: f"{x.sum():.2f}",
    "print": lambda: print(x, file=io.StringIO()),
    "list": lambda: x.tolist(),
    "cpu": lambda: x.cpu(),
    "numpy": lambda: x.numpy(),
    "array": lambda: np.asarray(x),
    "nonzero": lambda: x.nonzero(),
    "mask": lambda: x[x > 0.5],
    "masked_select": lambda: x.masked_select(x > 0.5),
    "unique": lambda: x.unique(),
    "equal": lambda: torch.equal(x, x),
    "allclose": lambda: torch.allclose(x, x),
    "apply": lambda: x.clone().apply_(abs),
}
QUEUED = {
    "sum": lambda: x.sum() + 1,
    "compare": lambda: torch.where(x > 0.5, x, 0.0),
    "rows": lambda: x[torch.tensor([2, 1])],
    "slice": lambda: x[:2, None],
    "shape": lambda: x.shape[0] * x.numel() + len(x),
    "stack": lambda: torch.stack([x, x]).mean(),
    "isnan": lambda: x.isnan().any(),
    "argmax": lambda: x.argmax(1) == 2,
    "clip": lambda: torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(x)], 1.0),
}


@pytest.mark.parametrize("read", READS)
def test_what_takes_numbers_out_is_seen_once(read):
    seen = []
    with each_read(lambda: seen.append(read)):
        READS[read]()
    assert len(seen) == 1


@pytest.mark.parametrize("work", QUEUED)
def test_what_needs_no_number_is_not(work):
    seen = []
    with each_read(lambda: seen.append(work)):
        QUEUED[work]()
    assert seen == []


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="a GPU waits only for what is on it"
)
def test_lines_of_the_readers_own_code_are_counted():
    def loop():
        for _ in range(3):
            loss = x.sum()
            loss.item()
            if loss > 100:
                raise ValueError

    assert wait_lines(loop).rows == (("loss.item()", "3"), ("if loss > 100:", "3"))
    assert wait_lines(lambda: x + 1).rows == (("none", ""),)
    with pytest.raises(TypeError, match="work"):
        wait_lines(3)


def test_on_a_gpu_torchs_warnings_are_counted_and_its_mode_is_undone(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def work():
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        raise KeyError

    with pytest.raises(KeyError):
        wait_lines(work)
    assert modes == ["warn", "default"]

    def quieter():
        warnings.warn("something else", stacklevel=1)
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)

    lines = wait_lines(quieter)
    assert lines.rows == (
        ('warnings.warn("called a synchronizing CUDA operation", stacklevel=1)', "2"),
    )
    assert lines.headings[0] == "line that waits for the GPU"
