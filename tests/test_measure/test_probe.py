import contextlib
import dataclasses
import itertools

import pytest
import torch

from labkit.measure import probe
from labkit.measure.probe import Ceiling, Probe, ProbeSizes

TINY = ProbeSizes(copy_bytes=2**16, matmul_n=(16, 32), budget_s=1e-4)
RATE = Ceiling(1e12, 0.9e12, 1.1e12, "FLOP/s", "8 × 8", 8, 5)


class Device:
    """Takes a second for each unit of work it is given, in a simulated time."""

    def __init__(self):
        self.now_s = 0.0

    def work(self, seconds):
        self.now_s += seconds


@pytest.mark.parametrize(
    ("growth", "passed"),
    [(1.0, False), (1.5, False), (2.0, True), (2.4, True), (4.0, False)],
)
def test_doubling_accepts_about_two(growth, passed):
    device = Device()
    timed = Probe(
        "cpu", dataclasses.replace(TINY, budget_s=10.0), clock=lambda: device.now_s
    )
    check = timed.doubling("x", lambda: device.work(1.0), lambda: device.work(growth))
    assert check.passed is passed


@pytest.mark.parametrize(
    ("states", "turns"),
    [
        # steady at last
        ([(40, 1980), (46, 1980), (51, 1965), (55, 1950), (55, 1950)], 5),
        # its clock falls longer than its temperature rises
        ([(55, 1980), (55, 1950), (55, 1935), (55, 1935)], 4),
        ([None], 1),  # nobody knows
        ([(heat, 1980) for heat in range(40, 99)], 30),  # never
    ],
)
def test_a_gpu_is_kept_busy_until_heat_and_clock_stay_and_no_longer_than_a_minute(
    monkeypatch, states, turns
):
    now_s = [0.0]
    readings = iter(states)

    @contextlib.contextmanager
    def matmul(*_, **__):
        yield lambda: now_s.__setitem__(0, now_s[0] + 0.01)

    def state(names):
        read = next(readings)
        return {} if read is None else dict(zip(names, map(str, read), strict=True))

    monkeypatch.setattr(probe, "_matmul", matmul)
    monkeypatch.setattr(probe, "sync_of", lambda device: lambda: None)
    monkeypatch.setattr(probe.host, "gpu_state", state)
    Probe("cuda", ProbeSizes(1, (16,), 0.2), clock=lambda: now_s[0]).settle()
    assert 2.0 * turns <= now_s[0] <= 2.2 * turns


def test_float32_is_full_float32_and_the_mode_is_restored():
    mode = torch.backends.mkldnn.matmul
    before = mode.fp32_precision
    mode.fp32_precision = "bf16"
    try:
        with probe._matmul("cpu", "float32", rows=8, n=8) as call:
            assert mode.fp32_precision == "ieee"
            call()
        assert mode.fp32_precision == "bf16"
    finally:
        mode.fp32_precision = before


@pytest.mark.parametrize(("memory", "expected"), [(2**40, 256 * 2**20), (2**30, 2**27)])
def test_the_copy_fits_small_machines(memory, expected):
    assert probe.sizes_for("cpu", memory_bytes=memory).copy_bytes == expected
    assert probe.sizes_for("cpu", memory_bytes=memory, profile="ci").copy_bytes == 2**27


def test_a_copy_counts_bytes_read_and_written():
    tick = itertools.count(step=1e-3)  # every call takes a millisecond
    found, _ = Probe("cpu", TINY, clock=lambda: next(tick)).copy()
    assert found.value == pytest.approx(2 * TINY.copy_bytes / 1e-3)


def test_running_out_of_memory_keeps_what_was_measured(monkeypatch):
    real = torch.mm

    def mm(a, b, out):
        if len(a) > 16:
            raise torch.OutOfMemoryError("no room")
        return real(a, b, out=out)

    monkeypatch.setattr(torch, "mm", mm)
    assert Probe("cpu", TINY).matmul("float32").n == 16
    assert (
        Probe("cpu", dataclasses.replace(TINY, matmul_n=(32,))).matmul("float32")
        is None
    )


def test_emulated_bfloat16_is_recognized(monkeypatch):
    now_s = 0.0
    real = torch.mm

    def mm(a, b, out):
        nonlocal now_s
        now_s += 0.37 if a.dtype == torch.bfloat16 else 1e-3
        return real(a, b, out=out)

    monkeypatch.setattr(torch, "mm", mm)
    assert "370 times as long as float32" in probe.bfloat16_is_slow(
        clock=lambda: now_s, n=8
    )
