"""Kernels timed against each other on the GPU, or left to recorded runs."""

import functools
from types import SimpleNamespace

import pytest

from labkit.core import comparable
from labkit.core.errors import KernelError
from labkit.core.results import Measurement, profile, recorded, results, to_line
from labkit.lesson import boards as room
from labkit.lesson.boards import SpeedBoard


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
    assert room.race("04.9", "Nothing", launches, bounds={}, size="4 numbers") is None
    assert kernel.calls == []
    assert results().entries() == before
    assert "Markdown" in capsys.readouterr().out  # a sentence, instead of a board without a bar


def test_with_a_gpu_each_launch_gets_its_grid_and_shared_arrays(gpu):
    kernel = Kernel()
    launches = {"one": (kernel, 1, 32, (4,), 7), "other": (kernel, (2, 2), 64, (4,), 8)}
    done = room.race("04.9", "Two launches", launches, bounds={"one": (1e-9, 2e-9)}, size="4 numbers")
    assert [timing.label for timing in done.timings] == ["one", "other"]
    of = dict(kernel.calls)
    assert sorted(of, key=str) == [((2, 2), 64), (1, 32)]
    assert of[1, 32][1] == 7
    assert of[(2, 2), 64][1] == 8
    assert of[1, 32][0] is of[(2, 2), 64][0]
    assert tuple(of[1, 32][0].shape) == (4,)


def test_without_a_gpu_a_recorded_race_is_shown_only_at_its_size(monkeypatch, tmp_path):
    monkeypatch.setattr(room, "machine", lambda: SimpleNamespace(gpus=()))
    for module in (room, comparable):
        monkeypatch.setattr(module, "recorded", functools.partial(recorded, folder=tmp_path))
    one = {"section": "04.9", "what": "one", "value": 1.0, "unit": "s", "origin": "measured", "machine": "a GPU"}
    kept = Measurement(**one, when="then", size="4 numbers", dtype="float32", profile=profile())
    (tmp_path / "gpu.jsonl").write_text(to_line(kept) + "\n")
    boards = []
    monkeypatch.setattr(room, "SpeedBoard", lambda *args, **kw: boards.append(SpeedBoard(*args, **kw)) or boards[-1])
    for size in ("4 numbers", "8 numbers"):
        assert room.race("04.9", "One launch", {"one": (Kernel(), 1, 32, (4,))}, bounds={}, size=size) is None
    same, other = boards
    assert same._bars["one"].others == [("recorded on a GPU", 1.0)]
    assert other._bars["one"].others == []
    assert "Recorded on a GPU, not shown: 4 numbers, here 8 numbers." in other.sentence


def test_arrays_of_two_arguments_are_never_the_same(gpu):
    kernel = Kernel()
    calls = room.ready({"one": (kernel, 1, 32, (4,), (4,))}, room.machine())
    calls["one"]()
    (first, second) = kernel.calls[0][1]
    assert first is not second


def test_a_launch_of_another_form_is_told_so():
    with pytest.raises(KernelError, match=r"Expected \(kernel, grid, block, \*arguments\) for 'one', got 5"):
        room.race("04.9", "Wrong", {"one": 5}, bounds={}, size="4 numbers")
