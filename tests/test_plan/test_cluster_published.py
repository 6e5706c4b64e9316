"""The cluster model against published steps with one set of constants, and that set against the script that fits it."""

import dataclasses
import statistics

import pytest

from labkit.core.errors import DataError, LabError
from labkit.measure.catalog import find
from labkit.plan.cluster import COMPARISONS, published_steps
from labkit.plan.cluster.constants import CONSTANTS
from labkit.plan.cluster.rates import best_share
from labkit.plan.cluster.validation import llmfoundry, megatron, zero_bubble, zero_bubble_memory
from labkit.plan.published import table
from scripts import fit_cluster


def test_megatron_s_table_of_ten_models_up_to_a_trillion_parameters():
    found = megatron()
    assert len(found.rows) == 10
    assert found.median_error <= 0.03
    assert found.errors[-1] <= 0.06


def test_llm_foundry_s_139_runs():
    found = llmfoundry()
    assert len(found.rows) == 139
    assert found.median_error <= 0.05
    assert found.errors[int(0.9 * 139)] <= 0.12
    for gpus in (8, 16, 32, 64, 128):  # one node and many
        rows = [abs(row.error) for row in found.rows if row.by.cluster.gpus == gpus]
        assert statistics.median(rows) <= 0.08, gpus
    for recompute in ("none", "full"):
        rows = [abs(row.error) for row in found.rows if row.by.layout.recompute == recompute]
        assert statistics.median(rows) <= 0.08, recompute


def test_a_table_that_nothing_was_fitted_to_throughput_and_memory():
    found = zero_bubble()
    assert len(found.rows) == 12
    assert found.median_error <= 0.10
    held = zero_bubble_memory()
    assert held.errors[-1] <= 0.05  # GB on the fullest of 8 GPUs, plain and interleaved


def test_what_ran_is_said_to_fit_in_memory():
    for found in (megatron(), llmfoundry()):
        over = [row.by.memory_bytes / row.by.capacity_bytes for row in found.rows]
        assert max(over) <= 1.03  # printed sizes are 1e9 bytes; the cards have 5 % more


def test_the_constants_in_use_are_those_that_the_script_finds():
    found = fit_cluster.fit(rounds=12)
    for name in fit_cluster.FITTED:
        assert getattr(found, name) == pytest.approx(getattr(CONSTANTS, name), rel=0.03), name
    assert fit_cluster.loss(CONSTANTS) < 0.06


@pytest.mark.parametrize("name", ["sustained", "attention"])
def test_a_constant_that_is_off_by_a_fifth_is_seen_in_the_tables(name):
    off = dataclasses.replace(CONSTANTS, **{name: 0.8 * getattr(CONSTANTS, name)})
    assert fit_cluster.loss(off) > 1.1 * fit_cluster.loss(CONSTANTS)


def test_what_was_assumed_hardly_matters_to_the_tables():
    for fill_s in (1e-6, 3e-6):
        assumed = dataclasses.replace(CONSTANTS, fill_s=fill_s)
        assert megatron(assumed).median_error <= 0.05
        assert llmfoundry(assumed).median_error <= 0.05


def test_the_best_published_matmul_rate_is_the_device_s_own_where_there_is_one():
    assert best_share(find("A100 SXM4 80GB"), "bfloat16") == pytest.approx(0.869, abs=0.001)
    assert best_share(find("A100 PCIe 80GB"), "bfloat16") == pytest.approx(0.811, abs=0.001)
    assert best_share(find("H100 SXM5 80GB"), "float16") == pytest.approx(0.803, abs=0.001)
    assert 0.5 < best_share(find("Tesla V100 SXM2 16/32GB"), "float16") < 0.9


def test_an_unknown_table_is_refused_with_those_that_there_are():
    with pytest.raises(DataError, match="megatron_table1"):
        table("megatron")
    assert all(row["confidence"] == "read from source text" for row in table("llmfoundry_throughput_a100"))


def test_a_comparison_by_its_name():
    assert set(COMPARISONS) == {"megatron", "llm-foundry", "zero bubble", "zero bubble memory"}
    assert "10 runs" in str(published_steps("megatron"))
    with pytest.raises(LabError, match="'megatron'"):
        published_steps("megatorn")
