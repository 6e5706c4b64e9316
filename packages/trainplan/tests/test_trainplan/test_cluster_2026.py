"""Models, machines and libraries of 2026 against what was published, goodput, and
bills.
"""

import math
import random
from dataclasses import replace

import pytest

from trainplan.cluster import (
    SOFTWARE,
    Cluster,
    Layout,
    Transformer,
    bill,
    goodput,
    model,
    network,
    published_steps,
    step,
)
from trainplan.cluster.communication_time import communication
from trainplan.cluster.constants import BIAS_BYTES, DUALPIPE_SMS
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.rates import rates
from trainplan.cluster.validation import HeldAgainst
from trainplan.costs.collectives import fastest_all_reduce_s
from trainplan.costs.transformer_layers import decoder
from trainplan.costs.transformers import MODELS
from trainplan.errors import LayoutError

DEEPSEEK = model("DeepSeek-V3")
LLAMA = model("Llama-3-8B")
H800 = Cluster("H800 SXM5 80GB", 2048)
H100 = Cluster("H100 SXM5 80GB", 8)
DUALPIPE = Layout(
    128,
    pipeline=16,
    expert=64,
    zero=1,
    schedule="DualPipe",
    dtype="mixed float8",
    software=SOFTWARE["DeepSeek"],
)
EXCHANGE = "context and expert communication"


# ---- models ----


def test_deepseek_v3_has_the_parameters_of_its_checkpoint():
    """671,026,419,200 in the released weights, 58 x 256 of them the router's biases."""
    assert DEEPSEEK.params == 671_026_419_200 - 58 * 256
    used = DEEPSEEK.params - 58 * (256 - 8) * DEEPSEEK.expert_params
    # DeepSeek-V3 technical report, section 1
    assert used / 1e9 == pytest.approx(37, abs=0.6)


def test_latent_attention_keeps_seventy_kilobytes_a_token():
    """DeepSeek-AI 2025, Insights into DeepSeek-V3, table 1: 70.272 KB, Llama-3.1-405B
    516 KB.
    """
    assert 2 * DEEPSEEK.layers * DEEPSEEK.cached_width == 70_272
    assert 2 * 126 * model("Llama-3-405B").cached_width == pytest.approx(
        516e3, rel=0.001
    )


def test_a_block_that_predicts_ahead_has_the_published_size():
    """14 billion with the embedding and the head that it shares (the released model's
    README).
    """
    more = replace(DEEPSEEK, ahead=1)
    shared = 2 * DEEPSEEK.vocab * DEEPSEEK.hidden
    assert (more.params - DEEPSEEK.params + shared) / 1e9 == pytest.approx(14, abs=0.6)
    assert 1.03 < more.flop_per_token / DEEPSEEK.flop_per_token < 1.05


def test_the_layers_of_a_model_and_its_stages_hold_its_parameters_once():
    for shape in MODELS.values():
        layers = decoder(shape)
        assert layers.cost(layers.batch(1)).params == shape.params
    layout = replace(DUALPIPE, schedule="1F1B", expert=1)
    for shape in (DEEPSEEK, replace(DEEPSEEK, ahead=1)):
        share = rank_share(shape, H800, layout, 15_360)
        held = sum(sum(share.stage_params(stage)) for stage in range(16))
        assert held == pytest.approx(shape.params, rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"kv_rank": 64}, "latent attention needs them all"),
        ({"capacity": 1.25}, "Expected experts with capacity, got none"),
        ({"experts": 8, "dense": 32}, "got 32 of 32"),
        (
            {"experts": 8, "adapters": 4, "adapted": "linear"},
            "Expected adapters beside attention alone.* with experts",
        ),
    ],
)
def test_a_model_that_cannot_be_is_refused(sizes, words):
    with pytest.raises(ValueError, match=words):
        replace(LLAMA, **sizes)


# ---- experts ----


def exchange_s(shape, layout):
    return communication(rank_share(shape, H800, layout, 15_360)).experts


def test_limited_routing_sends_one_copy_to_each_node():
    """Of 4 nodes that 8 experts may be on, 4 (1 - (3/4)^8) are met; 7 of 8 nodes are
    others.
    """
    token_bytes = 4096 * 7168 * (1 + 2)  # there in 8 bit, and back in 16
    start_s = H800.between.start_s + H800.between.alpha_s
    leaving_bytes = token_bytes * 4 * (1 - 0.75**8) * 7 / 8
    network_s = 2 * start_s + leaving_bytes / H800.between.bytes_per_s
    node_s = 8 * token_bytes * 7 / 8 / H800.inside.bytes_per_s
    assert exchange_s(DEEPSEEK, DUALPIPE) == pytest.approx(
        max(network_s, node_s), rel=0.01
    )


def test_tokens_in_8_bit_take_three_quarters_of_the_time_and_a_capacity_pads_them():
    anywhere = replace(DEEPSEEK, max_nodes=0)
    eight_bit_s = exchange_s(anywhere, DUALPIPE)
    in_16_bit = replace(DUALPIPE, software=SOFTWARE["Transformer Engine"])
    assert eight_bit_s == pytest.approx(
        0.75 * exchange_s(anywhere, in_16_bit), rel=0.01
    )
    padded = replace(anywhere, capacity=1.5)
    assert exchange_s(padded, DUALPIPE) == pytest.approx(1.5 * eight_bit_s, 0.01)


def test_dualpipe_hides_most_of_the_exchange_behind_compute():
    hidden, shown = (
        step(DEEPSEEK, H800, replace(DUALPIPE, overlap=overlap), 15_360)
        for overlap in (True, False)
    )
    left = hidden.parts[EXCHANGE] / shown.parts[EXCHANGE]
    # of 120 micro-batches those that fill and empty the pipeline
    exposed = (1.25 * 16 - 0.5) / 120
    assert left == pytest.approx(exposed + (1 - exposed) * DUALPIPE_SMS / 132, rel=0.05)
    assert hidden.parts["compute"] == shown.parts["compute"]


def qwen_on_16_h100(**habits):
    """Qwen3-30B-A3B in bfloat16, 16 x H100, EP 16, 1,024 sequences."""
    software = replace(SOFTWARE["Transformer Engine"], **habits)
    layout = Layout(16, zero=1, expert=16, dtype="mixed bfloat16", software=software)
    shape = replace(model("Qwen3-30B-A3B"), seq=4096)
    return step(shape, Cluster("H100 SXM5 80GB", 16), layout, 1024)


def test_what_brings_tokens_to_experts_shows_as_it_was_measured():
    """24.7138 s with HybridEP, 20.9920 s where it overlaps (NVIDIA-NeMo/Megatron-Bridge,
    skills/nemo-mbridge-perf-expert-parallel-overlap), 45.65 s by plain all-to-alls
    (nemo-mbridge-perf-moe-dispatcher-selection, 2026-05-17). None was fitted to.
    """
    sent_once_s = qwen_on_16_h100().seconds
    overlapped_s = qwen_on_16_h100(expert_overlap=True).seconds
    plain_s = qwen_on_16_h100(dispatch="all-to-all").seconds
    assert sent_once_s == pytest.approx(24.7138, rel=0.2)
    assert sent_once_s / overlapped_s == pytest.approx(24.7138 / 20.9920, rel=0.05)
    assert plain_s == pytest.approx(45.65, rel=0.2)


def test_experts_that_drop_tokens_wait_for_no_counts():
    """18,066 tokens a second and GPU where tokens are dropped (release 25.09), 9,299
    where none are (25.11): Qwen3-30B-A3B on 8 B200, one sequence a micro-batch.
    """
    dropping, dropless = (
        row.by.tokens_per_s_per_gpu
        for name in ("megatron bridge 25.09", "megatron bridge")
        for row in published_steps(name).rows
        if "Qwen3_30B_a3B, 8 x B200" in row.label
    )
    assert dropping / dropless == pytest.approx(18_066 / 9_299, rel=0.1)


def test_biases_of_experts_take_the_traffic_of_their_kernels():
    gpt = replace(model("GPT-OSS-120B"), seq=4096)
    assert gpt.expert_biases
    cluster = Cluster("H100 SXM5 80GB", 64)
    layout = Layout(16, pipeline=4, expert=8, zero=1, dtype="mixed bfloat16")
    with_s, without_s = (
        step(replace(gpt, expert_biases=biases), cluster, layout, 1280).parts["compute"]
        for biases in (True, False)
    )
    # of 4 copies of a token, in 9 blocks of a stage, in 80 micro-batches
    elements = 80 * 9 * 4096 * 4 * 2880
    byte_s = 1 / rates(cluster.gpu, "bfloat16").bytes_per_s
    added_s = sum(BIAS_BYTES) * elements * byte_s
    assert with_s - without_s == pytest.approx(added_s, rel=1e-6)


def test_a_plan_says_whether_routing_is_forced_or_learned():
    """8.6859 s with routing forced even, 18.3943 s in the median with a learned router
    (marin-community/marin, issue 7668).
    """
    shape = replace(model("Qwen3-30B-A3B"), seq=4096)
    cluster = Cluster("GB200 (per Blackwell GPU)", 64, 64)
    layout = Layout(64, expert=64, zero=1, software=SOFTWARE["Megatron-Core"])
    forced, learned = (
        step(shape, cluster, replace(layout, balance=balance), 1024)
        for balance in ("forced", "learned")
    )
    assert "Routing forced even (balance=forced)" in str(forced)
    assert "up to 2.1 times as long" in str(forced.table())
    assert "Routing learned (balance=learned)" in str(learned)
    assert any("learned router" in reason for reason in learned.outside)
    assert forced.seconds < learned.seconds < 1.4 * forced.seconds
    measured_s = forced.seconds * 18.3943 / 8.6859
    assert learned.interval_s[0] < forced.seconds < measured_s < learned.interval_s[1]


def test_a_run_of_another_laboratory_is_in_its_interval():
    """8.6859 s a step on 64 GB200 (marin-community/marin, issue 7668): 48 layers of
    5,120, 8 of 256 experts of 1,280, one more of 5,120. Heads and vocabulary aren't
    printed; these come to its FLOP a token within 5 %.
    """
    shape = Transformer(
        48, 5120, 40, 128_256, 4096, 1280, 10, 128,
        experts=256, top_k=8, shared=5120, gated=True,
    )  # fmt: skip
    assert shape.flop_per_token == pytest.approx(779.333e12 * 64 / 482_887, rel=0.05)
    layout = Layout(
        64,
        expert=64,
        zero=1,
        dtype="mixed bfloat16",
        software=replace(SOFTWARE["Transformer Engine"], graphs=False),
    )
    run = step(shape, Cluster("GB200 (per Blackwell GPU)", 64, 64), layout, 1024)
    low_s, high_s = run.interval_s
    assert low_s < 8.6859 < high_s
    assert run.seconds == pytest.approx(8.6859, rel=0.15)


@pytest.mark.parametrize(
    ("device", "torus", "published"),
    [
        ("TPU v6e Trillium (chip)", (16, 16), 3899),
        ("TPU v5p (chip)", (8, 4, 8), 2909),
    ],
)
def test_mixtures_of_experts_on_tpus_wait_for_no_host(device, torus, published):
    """Mixtral-8x7B, tokens a second and chip: AI-Hypercomputer/maxtext,
    docs/reference/models/tiering.md. Batch and recomputation aren't printed there.
    """
    layout = Layout(
        256,
        zero=3,
        micro_batch=8,
        recompute="full",
        dtype="mixed bfloat16",
        software=SOFTWARE["MaxText"],
    )
    shape = replace(model("Mixtral-8x7B"), seq=4096)
    run = step(shape, Cluster(device, 256, 256, torus=torus), layout, 2048)
    assert run.tokens_per_s_per_gpu == pytest.approx(published, rel=0.2)


# ---- precision, adapters, sharding, machines ----


def test_four_bit_is_for_devices_that_have_it():
    layout = Layout(8, zero=3, dtype="mixed nvfp4")
    with pytest.raises(LayoutError, match="known peak in float4, got H100"):
        step(LLAMA, H100, layout, 64)
    blackwell = Cluster("GB200 (per Blackwell GPU)", 8)
    four = step(LLAMA, blackwell, layout, 64)
    eight = step(LLAMA, blackwell, replace(layout, dtype="mixed float8"), 64)
    assert eight.seconds / 2 < four.seconds < eight.seconds
    assert "another precision" in str(bill(four, 1e12))


def test_adapters_have_gradients_and_the_weights_beside_them_none():
    whole, adapted = (
        step(replace(LLAMA, adapters=rank), H100, Layout(8), 64) for rank in (0, 16)
    )
    by_hand = 32 * 16 * ((4096 + 4096 + 2 * 1024) + (4096 + 4096))
    assert adapted.model.trained_params == by_hand
    for purpose in ("gradients", "optimizer state", "float32 master weights"):
        expected_bytes = whole.memory[purpose] * by_hand / LLAMA.params
        assert adapted.memory[purpose] == pytest.approx(expected_bytes)
    assert adapted.memory["parameters"] == whole.memory["parameters"]
    flop = [replace(LLAMA, adapters=rank, seq=1).flop_per_token for rank in (0, 16)]
    assert flop[1] / flop[0] == pytest.approx(2 / 3, abs=0.01)


def test_each_block_gathered_ahead_takes_the_same_memory_and_the_first_hides_it():
    cluster = Cluster("H100 SXM5 80GB", 64, inter=network(25e9))
    none, one, four = (
        step(LLAMA, cluster, Layout(64, zero=3, prefetch=blocks), 256)
        for blocks in (0, 1, 4)
    )
    assert none.parts["data communication"] > 1.2 * one.parts["data communication"]
    assert one.seconds == four.seconds
    held = [planned.memory["gathered for a moment"] for planned in (none, one, four)]
    assert held[2] - held[1] == pytest.approx(3 * (held[1] - held[0]))


def test_switches_that_add_halve_what_an_all_reduce_sends_between_nodes():
    plain_s, sharp_s = (
        fastest_all_reduce_s(1e10, 512, network(50e9, sharp=sharp), in_node=False)
        for sharp in (False, True)
    )
    assert sharp_s / plain_s == pytest.approx(0.5, abs=0.02)


# ---- what was published, and was not fitted ----


def test_runs_of_2026_are_met_by_constants_that_never_saw_them():
    runs = published_steps("machines of 2026")
    assert len(runs.rows) == 16
    assert runs.median_error <= 0.10, runs
    assert all(abs(row.error) <= 0.4 for row in runs.rows), runs
    for row in runs.rows:
        run = HeldAgainst(row.label, row.predicted, row.published, row.by)
        assert run.expected or run.by.outside


def test_deepseek_v3_s_training_is_within_its_interval():
    row = published_steps("machines of 2026").rows[-1]
    low_h, high_h = (
        seconds / row.by.tokens * 14.8e12 * 2048 / 3600 for seconds in row.by.interval_s
    )
    assert low_h < 2.664e6 < high_h
    assert abs(row.error) < 0.15


# ---- goodput and bills ----


def test_goodput_of_llama_3_s_run_is_above_nine_tenths():
    """54 days, 16,384 GPUs, 419 interruptions: Llama team 2024, section 3.3.4."""
    gpu_hours_between = 54 * 24 * 16_384 / 419
    run = goodput(16_384, gpu_hours_between, save_s=30, restart_s=300)
    assert run.share > 0.9
    assert run.between_s / 3600 == pytest.approx(3.09, abs=0.01)


def test_the_interval_is_young_s_where_saves_are_short_and_the_best_there_is():
    short = goodput(1024, 50_000, save_s=2)
    assert short.interval_s == pytest.approx(
        math.sqrt(2 * 2 * short.between_s), rel=0.02
    )
    for save_s in (1, 1800):
        fixed = {"save_s": save_s, "restart_s": 120}
        best = goodput(4096, 50_000, **fixed)
        for factor in (0.7, 1.4):
            other = goodput(4096, 50_000, **fixed, interval_s=factor * best.interval_s)
            assert other.share < best.share


def test_goodput_is_what_a_simulation_finds():
    plan = goodput(16_384, 50_000, save_s=60, restart_s=300)
    draw = random.Random(0)

    def lasts_s():
        return draw.expovariate(1 / plan.between_s)

    clock_s = 0.0
    progress_s = 0.0
    failure_s = lasts_s()
    while progress_s < 3e7:
        saved_s = clock_s + plan.interval_s + plan.save_s
        if saved_s <= failure_s:
            clock_s = saved_s
            progress_s += plan.interval_s
            continue
        clock_s = failure_s
        failure_s += lasts_s()
        # it fails during the restart, and begins anew
        while failure_s < clock_s + plan.restart_s:
            clock_s = failure_s
            failure_s += lasts_s()
        clock_s += plan.restart_s
    assert progress_s / clock_s == pytest.approx(plan.share, abs=0.01)


def test_a_bill_is_time_by_gpus_rent_and_power():
    planned = step(LLAMA, Cluster("H100 SXM5 80GB", 64), Layout(64, zero=3), 64)
    cost = bill(planned, 1e12, 2.5, goodput=0.8)
    assert cost.days == pytest.approx(1e12 / planned.tokens_per_s / 86_400 / 0.8)
    assert cost.gpu_hours == pytest.approx(64 * 24 * cost.days)
    assert (cost.usd, cost.kwh) == pytest.approx(
        (2.5 * cost.gpu_hours, 0.7 * cost.gpu_hours)
    )
    assert "million US$" in str(cost)
    assert "US$" not in str(bill(planned, 1e12))
    unknown_power = replace(
        planned.cluster, device=replace(planned.cluster.gpu, tdp_w=None)
    )
    assert bill(step(LLAMA, unknown_power, planned.layout, 64), 1e12).kwh is None
    with pytest.raises(
        ValueError, match=r"goodput of at most 1, a share of the time, got 1\.2"
    ):
        bill(planned, 1e12, goodput=1.2)
