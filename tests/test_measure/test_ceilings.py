import dataclasses
import importlib
import itertools

import pytest
import torch

from gpufacts import UnknownDevice
from labkit.core import results
from labkit.core.errors import BadArgument
from labkit.measure import catalog, host, probe
from labkit.measure.ceilings import MachineCeilings
from labkit.measure.machine import Gpu, Machine
from labkit.measure.probe import Ceiling, Probe, ProbeSizes, SelfCheck
from steptime import EachOperator
from steptime.measure import clock

# `labkit.measure.ceilings` itself is the function
module = importlib.import_module("labkit.measure.ceilings")

TINY = Probe("cpu", ProbeSizes(copy_bytes=2**16, matmul_n=(16, 32), budget_s=1e-4))
NATIVE = ("avx512_bf16",)
CPU = Machine(
    "Test CPU", 2, 2, 2**34, NATIVE, versions={"torch": "2.13.0", "python": "3.11"}
)
GPU = dataclasses.replace(CPU, gpus=(Gpu("NVIDIA Fake 9000", (9, 0), 2**36),))
COPY = Ceiling(2e9, 1.9e9, 2.1e9, "B/s", "1 to 1", 1, 5)
FLOAT32 = Ceiling(1e12, 0.9e12, 1.1e12, "FLOP/s", "8 × 8", 8, 5)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_PROFILE", raising=False)
    module._store_at.cache_clear()
    return tmp_path / "home"


@pytest.fixture
def measured(monkeypatch):
    """Counts the measurements, which are replaced by fixed numbers on a
    fixed machine.
    """
    calls = []

    def fake(probe, flags):
        calls.append((probe.device, torch.get_num_threads()))
        return (
            COPY,
            {"float32": FLOAT32},
            (SelfCheck("copy", True, "fine"),),
            {"float16": "left out."},
        )

    monkeypatch.setattr(module, "measure", fake)
    monkeypatch.setattr(module, "machine", lambda: CPU)
    return calls


def new_kernel():
    module._store_at.cache_clear()


def test_the_clock_is_that_by_which_steptime_times_operators(monkeypatch):
    probes = []

    def measure(probe, flags):
        probes.append(probe)
        return COPY, {"float32": FLOAT32}, (), {}

    monkeypatch.setattr(module, "machine", lambda: CPU)
    monkeypatch.setattr(module, "measure", measure)
    module.measure_ceilings()
    assert type(probes[0].clock) is clock.Clock


def test_the_second_call_measures_nothing(measured, home):
    first = module.measure_ceilings()
    new_kernel()
    assert module.measure_ceilings() == first
    assert len(measured) == 1
    assert (home / "ceilings.jsonl").exists()
    module.measure_ceilings(remeasure=True)
    assert len(measured) == 2


def test_a_new_torch_is_measured_again(measured, monkeypatch):
    module.measure_ceilings()
    newer = dataclasses.replace(CPU, versions={**CPU.versions, "torch": "2.14.0"})
    monkeypatch.setattr(module, "machine", lambda: newer)
    assert module.measure_ceilings().conditions["torch"] == "2.14.0"
    assert len(measured) == 2


def test_another_power_limit_is_measured_again(measured, monkeypatch):
    for limit in ("70 W", "60 W", "60 W"):
        monkeypatch.setattr(
            host, "power", lambda gpu, limit=limit: {"power limit": limit}
        )
        assert module.measure_ceilings().conditions["power limit"] == limit
    assert len(measured) == 2


def test_an_unrelated_version_is_not_a_reason(measured, monkeypatch):
    module.measure_ceilings()
    monkeypatch.setattr(
        module,
        "machine",
        lambda: dataclasses.replace(CPU, versions={"torch": "2.13.0"}),
    )
    module.measure_ceilings()
    assert len(measured) == 1


def test_threads_and_profile_are_kept_apart(measured, monkeypatch):
    one = module.measure_ceilings(threads=1)
    two = module.measure_ceilings(threads=2)
    monkeypatch.setenv("LABKIT_PROFILE", "ci")
    module.measure_ceilings(threads=1)
    assert [n for _, n in measured] == [1, 2, 1]
    monkeypatch.delenv("LABKIT_PROFILE")
    assert (module.measure_ceilings(threads=1), module.measure_ceilings(threads=2)) == (
        one,
        two,
    )
    assert len(measured) == 3


def test_a_folder_that_cannot_be_written_keeps_them_in_memory(
    measured, monkeypatch, tmp_path
):
    (tmp_path / "file").write_text("")
    # a folder inside a file: not even root can
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "file" / "home"))
    first = module.measure_ceilings()
    assert "stay in memory" in first.note
    assert "LABKIT_HOME" in str(first)
    assert "stay in memory" in module.measure_ceilings().note
    assert len(measured) == 1


@pytest.mark.parametrize("damage", ["{", '{"copy": {}}', "\xff", "a word for a number"])
def test_a_damaged_file_is_measured_again_and_said(measured, home, damage):
    module.measure_ceilings()
    file = home / "ceilings.jsonl"
    word_for_number = file.read_text().replace("2000000000.0", '"fast"')
    text = word_for_number if damage == "a word for a number" else damage
    file.write_bytes(text.encode("latin-1", errors="replace"))
    new_kernel()
    again = module.measure_ceilings()
    assert len(measured) == 2
    assert "ceilings.jsonl, line 1 is skipped" in again.note
    new_kernel()
    assert module.measure_ceilings().note == ""
    assert len(measured) == 2


@pytest.mark.parametrize(
    ("checks", "remarks", "why"),
    [
        ((SelfCheck("copy", False, "odd"),), {}, "a self-check failed"),
        ((), {"busy": "9 threads wanted 2 cores."}, "the machine was busy"),
    ],
)
def test_doubtful_ceilings_do_not_outlive_the_kernel(
    measured, monkeypatch, checks, remarks, why
):
    monkeypatch.setattr(
        module,
        "measure",
        lambda *_: (measured.append(1), (COPY, {}, checks, remarks))[1],
    )
    assert why in module.measure_ceilings().note
    module.measure_ceilings()
    assert len(measured) == 1
    new_kernel()
    module.measure_ceilings()
    assert len(measured) == 2


def test_a_kernel_is_given_the_same_again_whatever_another_one_measures(
    measured, monkeypatch
):
    first = module.measure_ceilings()
    new_kernel()
    found_in_the_file = module.measure_ceilings()
    mine = module._store_at(results.state_folder() / "ceilings.jsonl")
    faster = dataclasses.replace(COPY, value=3e9, high=4e9)
    monkeypatch.setattr(
        module, "measure", lambda *_: (faster, {"float32": FLOAT32}, (), {})
    )
    new_kernel()
    other = module.measure_ceilings(remeasure=True)
    monkeypatch.setattr(module, "_store_at", lambda path: mine)
    assert module.measure_ceilings() == found_in_the_file == first
    assert other.copy_bytes_per_s == 3e9
    assert module.measure_ceilings(remeasure=True) != first
    assert module.measure_ceilings().copy_bytes_per_s == 3e9


def test_float16_is_never_touched_on_a_cpu():
    seen = set()

    def noted(func, args, kwargs):
        out = func(*args, **kwargs)
        seen.update(
            x.dtype
            for x in (*args, *kwargs.values(), out)
            if isinstance(x, torch.Tensor)
        )
        return out

    with EachOperator(noted):
        _, matmul, _, remarks = module.measure(TINY, NATIVE)
    assert {torch.float32, torch.bfloat16, torch.float64} <= seen
    assert torch.float16 not in seen
    assert set(matmul) == {"float32", "bfloat16", "float64"}
    assert "never timed on a CPU" in remarks["float16"]


def test_slow_bfloat16_is_left_out_with_its_reason(monkeypatch):
    monkeypatch.setattr(
        probe, "bfloat16_is_slow", lambda clock: "not timed at size: 370 times as long"
    )
    _, matmul, _, remarks = module.measure(TINY, ())
    assert "bfloat16" not in matmul
    assert "370 times" in remarks["bfloat16"]


def test_a_device_that_takes_constant_time_fails_the_doubling_checks(monkeypatch):
    # whatever is between two readings takes a millisecond
    tick = itertools.count(step=1e-3)
    monkeypatch.setattr(host, "last_level_cache_bytes", lambda: None)
    _, _, checks, _ = module.measure(
        dataclasses.replace(TINY, clock=lambda: next(tick)), NATIVE
    )
    assert [check.passed for check in checks] == [False, False]
    assert "took 1.00 times as long, expected 1.6 to 2.5" in checks[0].detail
    assert "failed" in str(checks[1])


@pytest.mark.parametrize(
    ("share", "passed"), [(1.04, True), (1.11, None), (1.3, False)]
)
def test_a_card_may_clock_a_little_above_its_data_sheet(share, passed):
    fast = dataclasses.replace(FLOAT32, value=share * 1e12, low=1e12, high=1.4e12)
    check = probe.peak_check({"float32": fast}, {"float32": 1e12}, "")
    assert check.passed is passed


def fake_catalog(monkeypatch, *, bandwidth, flop_per_s):
    row = type("Device", (), {"bandwidth_bytes_per_s": bandwidth})()
    monkeypatch.setattr(catalog, "find", lambda name, memory_bytes: row)
    monkeypatch.setattr(catalog, "peak", lambda device, dtype: flop_per_s.get(dtype))
    monkeypatch.setattr(module, "machine", lambda: GPU)


def test_a_ceiling_above_the_peak_is_reported(measured, monkeypatch):
    fake_catalog(monkeypatch, bandwidth=4e9, flop_per_s={"float32": 0.5e12})
    found = module.measure_ceilings()
    assert found.checks[-1].passed is False
    assert "float32 measured 1.00 TFLOP/s, peak 500 GFLOP/s" in found.checks[-1].detail
    assert "copy" not in found.checks[-1].detail
    assert "50% of 4.00 GB/s" in str(found)


def test_below_the_peaks_passes_and_unknown_ones_are_none(measured, monkeypatch):
    fake_catalog(monkeypatch, bandwidth=4e9, flop_per_s={})
    found = module.measure_ceilings()
    assert found.checks[-1].passed is True
    assert found.peak("copy") == 4e9
    assert found.peak("float32") is None
    assert "unknown" in str(found)


def test_an_unknown_gpu_has_no_peaks_and_says_so(measured, monkeypatch):
    def find(name, memory_bytes):
        raise UnknownDevice(name)

    monkeypatch.setattr(catalog, "find", find)
    monkeypatch.setattr(module, "machine", lambda: GPU)
    found = module.measure_ceilings()
    assert found.peak("float32") is None
    assert found.checks[-1].passed is None
    assert "NVIDIA Fake 9000 is not in the catalog" in str(found)


def example(**changes):
    fields = {
        "device": "<Test>",
        "threads": 2,
        "copy": COPY,
        "matmul": {"float32": FLOAT32},
        "checks": (),
    }
    fields |= {
        "peaks": {},
        "remarks": {"float16": "left out."},
        "conditions": {},
        "when": "2026",
    }
    return MachineCeilings(**{**fields, **changes})


def test_limits_by_name_and_by_torch_dtype():
    found = example()
    assert found.limit("float32") == found.limit(torch.float32) == 1e12
    assert found.limit("bfloat16") is None
    assert (found.copy_bytes_per_s, found.matmul_flop_per_s) == (2e9, {"float32": 1e12})
    with pytest.raises(BadArgument, match=r"got 'flaot32'. The nearest is 'float32'"):
        found.limit("flaot32")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_is_measured():
    found = module.measure_ceilings()
    assert found.limit("float16") > found.limit("float32")
    assert all(check.passed is not False for check in found.checks)
