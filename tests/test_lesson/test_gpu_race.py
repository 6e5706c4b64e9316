"""Kernels timed against each other on the GPU, or left to recorded runs."""

from types import SimpleNamespace

import pytest

from labkit.core.errors import KernelError
from labkit.core.results import results
from labkit.lesson import gpu_race as room


class Kernel:
    """What numba makes of a kernel: indexed by a launch, then called."""

    def __init__(self):
        self.calls = []

    def __getitem__(self, launch):
        return lambda *arguments: self.calls.append((launch, arguments))

    def __call__(self):
        raise AssertionError("a kernel is called with a launch only")


@pytest.fixture
def gpu(monkeypatch):
    here = SimpleNamespace(gpus=("a GPU",), device="cpu", sync=lambda: None)
    monkeypatch.setattr(room, "machine", lambda: here)
    monkeypatch.setattr("numba.cuda.as_cuda_array", lambda tensor: tensor)


def test_without_a_gpu_nothing_is_launched_or_recorded(monkeypatch, capsys):
    monkeypatch.setattr(room, "machine", lambda: SimpleNamespace(gpus=()))
    kernel, before = Kernel(), results().entries()
    launches = {"one": (kernel, 1, 32, (4,)), "other": (kernel, 2, 32, (4,))}
    assert room.race("04.9", "Nothing", launches, bounds={}) is None
    assert kernel.calls == []
    assert results().entries() == before
    assert "Markdown" in capsys.readouterr().out  # a sentence, instead of a board without a bar


def test_with_a_gpu_each_launch_gets_its_grid_and_shared_arrays(gpu):
    kernel = Kernel()
    launches = {"one": (kernel, 1, 32, (4,), 7), "other": (kernel, (2, 2), 64, (4,), 8)}
    done = room.race("04.9", "Two launches", launches, bounds={"one": (1e-9, 2e-9)})
    assert [timing.label for timing in done.timings] == ["one", "other"]
    of = dict(kernel.calls)
    assert sorted(of, key=str) == [((2, 2), 64), (1, 32)]
    assert of[1, 32][1] == 7
    assert of[(2, 2), 64][1] == 8
    assert of[1, 32][0] is of[(2, 2), 64][0]
    assert tuple(of[1, 32][0].shape) == (4,)


def test_arrays_of_two_arguments_are_never_the_same(gpu):
    kernel = Kernel()
    calls = room.ready({"one": (kernel, 1, 32, (4,), (4,))}, room.machine())
    calls["one"]()
    (first, second) = kernel.calls[0][1]
    assert first is not second


def test_a_launch_of_another_form_is_told_so():
    with pytest.raises(KernelError, match=r"Expected \(kernel, grid, block, \*arguments\) for 'one', got 5"):
        room.race("04.9", "Wrong", {"one": 5}, bounds={})
