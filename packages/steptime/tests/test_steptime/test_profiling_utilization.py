import dataclasses
import math

import pytest
import torch

from steptime import Ceilings, utilization
from steptime.measure import ceilings


def matmul(**rates):
    return {
        "matmul_flop_per_s": rates,
        "highest_flop_per_s": {dtype: 1.1 * rate for dtype, rate in rates.items()},
    }


GPU = Ceilings(
    device="NVIDIA Fake 9000",
    copy_bytes_per_s=2e9,
    **matmul(float32=50e12, bfloat16=700e12),
    peaks={"float32": 60e12, "bfloat16": 900e12, "float16": 900e12},
    remarks={
        "float16": "the device has too little free memory for the smallest shape."
    },
)


@pytest.fixture
def cpu():
    ceilings = {
        "device": "Test CPU",
        "threads": torch.get_num_threads(),
        "peaks": {},
        "remarks": {},
    }
    return dataclasses.replace(GPU, **matmul(float32=1e12), **ceilings)


def test_both_shares_and_what_they_are_shares_of():
    usage = utilization(25e12, 1.0, ceilings=GPU)
    assert usage.flop_per_s == 25e12
    assert usage.of_ceiling == pytest.approx(0.5)
    assert usage.of_peak == pytest.approx(25 / 60)
    assert usage.suspects == ()
    assert "0.4% of 50.0 TFLOP/s" in str(utilization(0.2e12, 1.0, ceilings=GPU)), (
        "small shares keep a digit"
    )
    assert str(usage).splitlines() == [
        "25.0 TFLOP in 1.00 s: 25.0 TFLOP/s in float32 on NVIDIA Fake 9000",
        "share of the measured ceiling: 50% of 50.0 TFLOP/s, a matmul on this machine",
        "share of the data sheet's peak: 42% of 60.0 TFLOP/s",
    ]


def test_a_dtype_of_torch_counts_by_its_name():
    usage = utilization(14e12, 0.2, dtype=torch.bfloat16, ceilings=GPU)
    assert (usage.seconds, usage.dtype) == (0.2, "bfloat16")
    assert usage.of_ceiling == pytest.approx(0.1)


def test_what_is_unknown_is_said_and_not_made_up(cpu):
    no_peak = utilization(1e11, 1.0, ceilings=cpu)
    assert no_peak.of_peak is None
    assert "peak: unknown, since these ceilings have no peak for it" in str(no_peak)
    assert "Test CPU, " in str(no_peak)
    no_ceiling = utilization(1e12, 1.0, dtype="float16", ceilings=GPU)
    assert no_ceiling.of_ceiling is None
    assert "ceiling: unknown, the device has too little free memory" in str(no_ceiling)
    neither = utilization(1e12, 1.0, dtype="bfloat16", ceilings=cpu)
    assert "unknown, since no bfloat16 matmul was measured here" in str(neither)
    assert neither.suspects == ()


def test_over_the_ceiling_is_a_mistake_to_find_and_never_clipped():
    usage = utilization(100e12, 1.0, ceilings=GPU)
    assert usage.of_ceiling == pytest.approx(2.0)
    said = str(usage)
    assert "200% of 50.0 TFLOP/s" in said
    assert (
        "A share over 100 %: the ceiling is too low, or something is wrong. Check, in"
        " this order:" in said
    )
    first, second, third = usage.suspects
    assert first.startswith("the dtype: in bfloat16 it would be 14% of the ceiling")
    assert second.startswith("the FLOP: a multiply-add counts 2")
    assert third.startswith("the clock: without a wait for the GPU")


def test_another_number_of_threads_comes_first(cpu):
    other = dataclasses.replace(cpu, threads=torch.get_num_threads() + 3)
    first, *others = utilization(2e12, 1.0, ceilings=other).suspects
    assert f"that of {other.threads}, torch uses {torch.get_num_threads()} now" in first
    assert not any("clock" in suspect for suspect in others)
    assert not any(
        "threads" in suspect
        for suspect in utilization(2e12, 1.0, ceilings=cpu).suspects
    )


def test_the_ceilings_own_noise_and_a_busy_machine_are_named(cpu):
    busy = dataclasses.replace(cpu, remarks={"busy": "9 threads wanted 2 cores."})
    suspects = " ".join(utilization(1.05e12, 1.0, ceilings=busy).suspects)
    assert "its own readings reach 1.10 TFLOP/s" in suspects
    assert "the machine was busy" in suspects
    assert "its own readings" not in " ".join(
        utilization(1.2e12, 1.0, ceilings=busy).suspects
    )


def test_a_ceiling_of_a_slower_clock_is_named_with_that_clock():
    hot = dataclasses.replace(
        GPU, remarks={"clock": "1065 MHz of 1590 MHz, 70 W of 70 W, 71 °C at the end."}
    )
    assert (
        utilization(55e12, 1.0, ceilings=hot).suspects[-1]
        == "the ceiling: it was measured at a clock of 1065 MHz of 1590 MHz, 70 W of 70"
        " W, 71 °C at the end."
    )
    assert not any(
        "1065" in suspect for suspect in utilization(45e12, 1.0, ceilings=hot).suspects
    )


def test_over_the_peak_alone_is_possible_where_the_ceiling_is_too():
    ceilings = dataclasses.replace(GPU, **matmul(float32=65e12))
    usage = utilization(62e12, 1.0, ceilings=ceilings)
    assert usage.suspects == ()
    assert "103% of 60.0 TFLOP/s: possible" in str(usage)
    unmeasured = utilization(1000e12, 1.0, dtype="float16", ceilings=GPU)
    assert unmeasured.suspects


def test_ceilings_are_this_machines_where_none_are_given(monkeypatch, cpu):
    monkeypatch.setattr("steptime.profile.utilization.measure_ceilings", lambda: cpu)
    assert utilization(1e11, 1.0).of_ceiling == pytest.approx(0.1)


def test_bad_input_says_what_to_do(cpu):
    for flop in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="flop to be a finite number above 0"):
            utilization(flop, 1.0, ceilings=cpu)
    for seconds in (None, True, "1"):
        with pytest.raises(TypeError, match="seconds to be a finite number above 0"):
            utilization(1e9, seconds, ceilings=cpu)
    for name in ("GPU", {"float32": 1e12}):
        with pytest.raises(TypeError, match="Expected ceilings to be a Ceilings"):
            utilization(1e9, 1.0, ceilings=name)
    with pytest.raises(ValueError, match=r"Expected dtype to be one of .* 'float32'"):
        utilization(1e9, 1.0, dtype="float33", ceilings=cpu)


def test_small_ceilings_work_on_small_tensors(monkeypatch):
    monkeypatch.setattr(ceilings, "_readings", lambda work, sync: [1.0] * 7)
    small = ceilings.measure_ceilings("cpu", small=True)
    assert (small.copy_bytes_per_s, small.matmul_flop_per_s) == (
        2 * 2**24,
        {"float32": 2 * 512**3},
    )


@pytest.mark.parametrize("rate", [0.0, -1e11, math.nan, math.inf])
def test_ceilings_without_a_rate_above_0_are_refused(rate):
    with pytest.raises(ValueError, match="copy_bytes_per_s to be a finite number abo"):
        Ceilings("cpu", {"float32": 1e11}, rate)
    with pytest.raises(ValueError, match="matmul_flop_per_s to be a finite number abo"):
        Ceilings("cpu", {"float32": rate}, 1e11)


def test_ceilings_of_another_type_are_refused():
    with pytest.raises(TypeError, match="matmul_flop_per_s to be a Mapping"):
        Ceilings("cpu", 1e11, 1e11)
    with pytest.raises(TypeError, match="copy_bytes_per_s to be a finite number"):
        Ceilings("cpu", {"float32": 1e11}, None)
