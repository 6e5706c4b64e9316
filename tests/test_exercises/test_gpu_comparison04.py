"""Kernels timed against each other on the GPU, or left to recorded runs."""

from types import SimpleNamespace

import pytest

import labkit as lab
from exercises.nb04 import gpu_comparison, races, resources
from exercises.nb04.gpu_comparison import time_on_gpu
from exercises.nb05 import nvrtc
from kerneltrace import Estimate
from kerneltrace.errors import KernelError, MissingCompiler
from labkit.core.results import results
from labkit.lesson.boards import SpeedBoard
from labkit.measure.bench import Comparison

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


# -- C07, "coalesce accesses, merge parallel work"


def timed(**seconds):
    timings = [lab.Timing(row, s, (s,) * 5) for row, s in seconds.items()]
    ratios = [lab.speedup(timings[0], other) for other in timings[1:]]
    return Comparison(tuple(timings), tuple(ratios))


def test_without_a_gpu_only_the_first_half_of_c07_is_told():
    on_cpu = timed(all=8.0, every_16th=6.0, in_a_row=0.5)
    evidence, when = races.halves_of_c07(on_cpu, None, None)
    assert {name: ratio.value for name, ratio in evidence.items()} == {"coalesced": 12}
    assert "first half" in when


def test_on_a_gpu_both_halves_of_c07_are_told():
    strides = timed(stride_1=1.0, stride_8=4.0)
    adding = timed(all_atomic=9.0, halves=3.0, shuffles=2.0, in_few_blocks=1.0)
    evidence, when = races.halves_of_c07(strides, strides, adding)
    assert {name: ratio.value for name, ratio in evidence.items()} == {
        "coalesced": 4,
        "merged": 2,
    }
    assert "GPU" in when


@pytest.mark.parametrize(
    "call",
    [
        lambda: resources.takes(races.copies, arrays=2, assumed={"registers": 24}),
        lambda: nvrtc.build("int x;") or {"registers": 24},
    ],
)
def test_without_a_compiler_a_notebook_says_how_to_install_one(
    call, monkeypatch, capsys
):
    def lacks(*_, **__):
        raise MissingCompiler("NVRTC is missing. Install it: pip install it")

    monkeypatch.setattr(resources, "compile_numba", lacks)
    monkeypatch.setattr(nvrtc, "compile_cuda", lacks)
    assert call() == {"registers": 24}
    assert "pip install" in capsys.readouterr().out
