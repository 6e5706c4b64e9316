"""Kernels timed against each other on the GPU, or left to recorded runs."""

from types import SimpleNamespace

import pytest

from exercises.nb04 import gpu_comparison
from exercises.nb04.gpu_comparison import time_on_gpu
from kerneltrace import Estimate
from kerneltrace.errors import KernelError
from labkit.core.results import results
from labkit.lesson.boards import SpeedBoard

pytestmark = pytest.mark.slow  # draws boards


class Kernel:
    """What numba makes of a kernel: indexed by a launch, then called."""

    def __init__(self):
        self.calls = []

    def __getitem__(self, launch):
        return lambda *arguments: self.calls.append((launch, arguments))

    def __call__(self):
        raise AssertionError("a kernel is called with a launch only")


ESTIMATE = Estimate("one", "RTX A6000", 0.25, {"memory": 0.25, "launch": 1e-6}, 1.0, ())


@pytest.fixture
def gpu(monkeypatch):
    here = SimpleNamespace(gpus=("a GPU",), device="cpu", sync=lambda: None)
    monkeypatch.setattr(gpu_comparison, "machine", lambda: here)
    monkeypatch.setattr("numba.cuda.is_available", lambda: True)
    monkeypatch.setattr("numba.cuda.as_cuda_array", lambda tensor: tensor)


def boards(monkeypatch):
    """The boards that are made from now on."""
    made = []
    make = lambda *args, **how: made.append(SpeedBoard(*args, **how)) or made[-1]  # noqa: E731
    monkeypatch.setattr(gpu_comparison, "SpeedBoard", make)
    return made


def test_without_a_gpu_nothing_is_launched_or_recorded(monkeypatch):
    monkeypatch.setattr(gpu_comparison, "machine", lambda: SimpleNamespace(gpus=()))
    kernel = Kernel()
    before = results().entries()
    launches = {"one": (kernel, 1, 32, (4,)), "other": (kernel, 2, 32, (4,))}
    found = boards(monkeypatch)
    assert (
        time_on_gpu(
            "04.9", "Nothing", launches, estimates={"one": ESTIMATE}, size="4 numbers"
        )
        is None
    )
    assert kernel.calls == []
    assert results().entries() == before
    assert found[0]._bars["one"].others == [
        ("calculated: RTX A6000, memory limits", 0.25)
    ]
    assert found[0]._bars["other"].others == []


@pytest.mark.complete
def test_with_a_gpu_each_launch_gets_its_grid_and_shared_arrays(gpu, monkeypatch):
    kernel = Kernel()
    launches = {"one": (kernel, 1, 32, (4,), 7), "other": (kernel, (2, 2), 64, (4,), 8)}
    found = boards(monkeypatch)
    done = time_on_gpu(
        "04.9", "Two launches", launches, estimates={"one": ESTIMATE}, size="4 numbers"
    )
    # beside what was measured
    assert found[0]._bars["one"].others == [
        ("calculated: RTX A6000, memory limits", 0.25)
    ]
    assert [timing.label for timing in done.timings] == ["one", "other"]
    of = dict(kernel.calls)
    assert sorted(of, key=str) == [((2, 2), 64), (1, 32)]
    assert of[1, 32][1] == 7
    assert of[(2, 2), 64][1] == 8
    assert of[1, 32][0] is of[(2, 2), 64][0]
    assert tuple(of[1, 32][0].shape) == (4,)


def test_arrays_of_two_arguments_are_never_the_same(gpu):
    kernel = Kernel()
    calls = gpu_comparison.ready(
        {"one": (kernel, 1, 32, (4,), (4,))}, gpu_comparison.machine()
    )
    calls["one"]()
    first, second = kernel.calls[0][1]
    assert first is not second


def test_a_launch_of_another_form_is_told_so():
    with pytest.raises(
        KernelError,
        match=r"Expected \(kernel, grid, block, \*arguments\) for 'one', got 5",
    ):
        time_on_gpu("04.9", "Wrong", {"one": 5}, estimates={}, size="4 numbers")
