import dataclasses
import importlib

import pytest
import torch

from labkit.measure.machine import Gpu, Machine

# `labkit.measure.machine` itself is the function
machines = importlib.import_module("labkit.measure.machine")

XEON = Machine(
    "Intel Xeon",
    2,
    4,
    2**34,
    ("avx2", "avx512f", "avx512_bf16", "amx_bf16"),
    versions={"python": "3.11"},
)
H200 = dataclasses.replace(XEON, gpus=(Gpu("NVIDIA H200", (9, 0), 141 * 2**30),))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    monkeypatch.delenv("LABKIT_PROFILE", raising=False)
    return tmp_path


def test_this_machine_is_described():
    here = machines.machine()
    assert 1 <= here.cores <= here.total_cores
    assert here.cpu
    assert here.device == ("cuda" if torch.cuda.is_available() else "cpu")
    assert here.versions["torch"].startswith(torch.__version__.split("+")[0])
    assert torch.ones(2, device=here.device).sum() == 2
    here.sync()


def test_names_for_labels_and_files():
    assert (XEON.name, XEON.slug) == ("2-core Intel Xeon (AMX)", "intel-xeon-2-cores")
    assert (H200.name, H200.slug) == ("NVIDIA H200", "nvidia-h200")
    eight = dataclasses.replace(H200, gpus=H200.gpus * 8)
    assert (eight.name, eight.slug) == ("8x NVIDIA H200", "nvidia-h200-x8")
    plain = dataclasses.replace(XEON, cores=1, flags=())
    assert (plain.name, plain.slug) == ("1-core Intel Xeon", "intel-xeon-1-core")


def test_the_card_says_where_results_go_and_the_profile(home, monkeypatch):
    monkeypatch.setenv("LABKIT_PROFILE", "ci")
    text = str(H200)
    assert str(home / "results.jsonl") in text
    assert "Profile          ci" in text
    assert "2 usable of 4" in text
    assert "NVIDIA H200, 141 GiB, compute capability 9.0" in text
    assert "none that torch can use" in str(XEON)


def test_pick_follows_profile_then_gpu(monkeypatch):
    sizes = {"ci": 1, "cpu": 2, "gpu": 3}
    monkeypatch.setattr(machines, "_gpus", lambda: ())
    assert machines.pick(**sizes) == 2
    monkeypatch.setattr(machines, "_gpus", lambda: H200.gpus)
    monkeypatch.setattr(machines, "_free_at_first", lambda: 5 * 2**30)
    assert machines.pick(**sizes) == 2
    monkeypatch.setattr(machines, "_free_at_first", lambda: 7 * 2**30)
    assert machines.pick(**sizes) == 3
    monkeypatch.setenv("LABKIT_PROFILE", "ci")
    assert machines.pick(**sizes) == 1


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((8, 9), "sm_75 sm_80 sm_90", True),
        ((8, 0), "sm_86", False),
        ((12, 0), "sm_75 sm_90", False),
        ((12, 0), "sm_75 compute_90", True),
        ((9, 0), "sm_90a", True),
    ],
)
def test_torch_runs_on_a_gpu_that_it_has_code_for(capability, built_for, runs):
    assert machines.has_code(capability, built_for.split()) is runs


def test_threads_are_restored_even_after_an_error():
    before = torch.get_num_threads()

    def fail_inside():
        with machines.threads(before + 1) as n:
            assert torch.get_num_threads() == n == before + 1
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert torch.get_num_threads() == before
