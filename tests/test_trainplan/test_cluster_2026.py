"""Models, machines and libraries of 2026: latent attention, DualPipe, limited routing, LoRA, FSDP 2, NVFP4, SHARP."""

import math
import random
from dataclasses import replace

import pytest

from trainplan.cluster import NVL72, SOFTWARE, Cluster, Layout, goodput, model, network, published_steps, step
from trainplan.cluster.communication_time import communication
from trainplan.cluster.constants import DUALPIPE_SMS
from trainplan.cluster.rank_share import rank_share
from trainplan.costs.collectives import fastest_all_reduce_s
from trainplan.costs.transformer_layers import decoder
from trainplan.costs.transformers import MODELS
from trainplan.errors import LayoutError, PlanError

DEEPSEEK, LLAMA = model("DeepSeek-V3"), model("Llama-3-8B")
H800 = Cluster("H800 SXM5 80GB", 2048)
DUALPIPE = Layout(
    128, pipeline=16, expert=64, zero=1, schedule="DualPipe", dtype="mixed float8", software=SOFTWARE["DeepSeek"]
)
EXCHANGE = "context and expert communication"


# ---- models ----


def test_deepseek_v3_has_the_parameters_of_its_checkpoint():
    """671,026,419,200 in the released weights, 58 x 256 of them the router's biases that balance the load."""
    assert DEEPSEEK.params == 671_026_419_200 - 58 * 256
    met = DEEPSEEK.params - 58 * (256 - 8) * DEEPSEEK.expert_params
    assert met / 1e9 == pytest.approx(37, abs=0.6)  # "37B activated", DeepSeek-V3 technical report, section 1


def test_latent_attention_keeps_seventy_kilobytes_a_token():
    """70.272 KB in 16 bit, Llama-3.1-405B 516 KB: DeepSeek-AI 2025, Insights into DeepSeek-V3, table 1."""
    assert 2 * DEEPSEEK.layers * DEEPSEEK.cached_width == 70_272
    assert 2 * 126 * model("Llama-3-405B").cached_width == pytest.approx(516e3, rel=0.001)


def test_a_block_that_predicts_ahead_has_the_published_size():
    """14 billion parameters with the embedding and the head that it shares (the released model's README)."""
    more = replace(DEEPSEEK, ahead=1)
    shared = 2 * DEEPSEEK.vocab * DEEPSEEK.hidden
    assert (more.params - DEEPSEEK.params + shared) / 1e9 == pytest.approx(14, abs=0.6)
    assert 1.03 < more.flop_per_token / DEEPSEEK.flop_per_token < 1.05


@pytest.mark.parametrize("name", MODELS)
def test_the_layers_of_a_model_have_its_parameters(name):
    net, known = decoder(MODELS[name]), MODELS[name]
    assert net.cost(net.batch(1)).params == known.params


def test_latent_attention_s_scores_count_by_the_widths_of_keys_and_values():
    width = 128 * (128 + 64) + 128 * 128
    without = replace(DEEPSEEK, seq=1)
    assert DEEPSEEK.flop_per_token - without.flop_per_token == 6 * 61 * width * 4095


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"kv_rank": 64}, "latent attention needs them all"),
        ({"rotary": 64}, "latent attention needs them all"),
        ({"dense": 1}, "Expected dense blocks before blocks with experts, got 1 of 32"),
        ({"experts": 8, "dense": 32}, "got 32 of 32"),
        ({"experts": 8, "adapters": 4}, "Expected adapters = 0 with experts, got 4"),
    ],
)
def test_a_model_that_cannot_be_is_refused(sizes, words):
    with pytest.raises(LayoutError, match=words):
        replace(LLAMA, **sizes)


def test_stages_hold_all_parameters_of_a_model_once():
    layout = replace(DUALPIPE, schedule="1F1B", expert=1)
    for known in (DEEPSEEK, replace(DEEPSEEK, ahead=1)):
        share = rank_share(known, H800, layout, 15_360)
        assert sum(sum(share.stage_params(stage)) for stage in range(16)) == pytest.approx(known.params, rel=1e-12)


# ---- experts ----


def _exchange_s(known, layout):
    return communication(rank_share(known, H800, layout, 15_360)).experts


def test_limited_routing_sends_one_copy_to_each_node():
    """Of 4 nodes that 8 experts may be on, 4 (1 - (3/4)^8) are met; 7 of 8 nodes are others than the token's own."""
    token = 4096 * 7168 * (1 + 2)  # bytes there in 8 bit, and back in 16
    start_s = H800.between.start_s + H800.between.alpha_s
    network_s = 2 * start_s + token * 4 * (1 - 0.75**8) * 7 / 8 / H800.between.bytes_per_s
    node_s = 8 * token * 7 / 8 / H800.inside.bytes_per_s
    assert _exchange_s(DEEPSEEK, DUALPIPE) == pytest.approx(max(network_s, node_s), rel=0.01)
    assert _exchange_s(replace(DEEPSEEK, max_nodes=0), DUALPIPE) > 1.8 * _exchange_s(DEEPSEEK, DUALPIPE)


def test_tokens_sent_in_8_bit_take_three_quarters_of_the_time():
    anywhere, sixteen = replace(DEEPSEEK, max_nodes=0), replace(DUALPIPE, software=SOFTWARE["Transformer Engine"])
    assert _exchange_s(anywhere, DUALPIPE) == pytest.approx(0.75 * _exchange_s(anywhere, sixteen), rel=0.01)
    assert _exchange_s(anywhere, replace(DUALPIPE, dtype="mixed bfloat16")) > _exchange_s(anywhere, DUALPIPE)


def test_a_capacity_pads_what_experts_compute_and_exchange():
    padded = replace(DEEPSEEK, capacity=1.5, max_nodes=0)
    assert _exchange_s(padded, DUALPIPE) == pytest.approx(
        1.5 * _exchange_s(replace(padded, capacity=0), DUALPIPE), 0.01
    )
    dropless = step(DEEPSEEK, H800, DUALPIPE, 15_360)
    assert step(replace(DEEPSEEK, capacity=1.5), H800, DUALPIPE, 15_360).parts["compute"] > dropless.parts["compute"]


def test_dualpipe_hides_most_of_the_exchange_behind_compute():
    hidden = step(DEEPSEEK, H800, DUALPIPE, 15_360)
    shown = step(DEEPSEEK, H800, replace(DUALPIPE, overlap=False), 15_360)
    left = hidden.parts[EXCHANGE] / shown.parts[EXCHANGE]
    exposed = (1.25 * 16 - 0.5) / 120  # of 120 micro-batches those that fill and empty the pipeline
    assert left == pytest.approx(exposed + (1 - exposed) * DUALPIPE_SMS / 132, rel=0.05)
    assert shown.parts[EXCHANGE] > 0.25 * shown.seconds
    assert hidden.parts["compute"] == shown.parts["compute"]


def test_dualpipe_hides_nothing_where_the_pipeline_only_fills_and_empties():
    few = replace(DUALPIPE, data=128)
    with_overlap, without = (step(DEEPSEEK, H800, replace(few, overlap=on), 16 * 128) for on in (True, False))
    assert with_overlap.parts[EXCHANGE] == pytest.approx(without.parts[EXCHANGE])


def test_no_more_is_hidden_than_there_is_compute():
    slow = replace(H800, inter=network(1e9))
    found = step(DEEPSEEK, slow, DUALPIPE, 15_360)
    assert found.parts[EXCHANGE] > 5 * found.parts["compute"]


# ---- precision, adapters, sharding ----


def test_four_bit_is_for_devices_that_have_it():
    layout = Layout(8, zero=3, dtype="mixed nvfp4")
    with pytest.raises(LayoutError, match="known peak in float4, got H100"):
        step(LLAMA, Cluster("H100 SXM5 80GB", 8), layout, 64)
    blackwell = Cluster("GB200 (per Blackwell GPU)", 8)
    four, eight = (step(LLAMA, blackwell, replace(layout, dtype=dtype), 64) for dtype in (layout.dtype, "mixed float8"))
    assert eight.seconds / 2 < four.seconds < eight.seconds
    assert "no published step was computed in 4 bit" in four.outside


def test_adapters_have_gradients_and_the_weights_beside_them_none():
    cluster, layout = Cluster("H100 SXM5 80GB", 8), Layout(8)
    whole, adapted = (step(replace(LLAMA, adapters=rank), cluster, layout, 64) for rank in (0, 16))
    by_hand = 32 * 16 * ((4096 + 4096 + 2 * 1024) + (4096 + 4096))
    assert replace(LLAMA, adapters=16).trained_params == by_hand
    for purpose in ("gradients", "optimizer state", "float32 master weights"):
        assert adapted.memory[purpose] == pytest.approx(whole.memory[purpose] * by_hand / LLAMA.params)
    assert adapted.memory["parameters"] == whole.memory["parameters"]
    assert 2 / 3 < adapted.parts["compute"] / whole.parts["compute"] < 0.9
    assert adapted.parts["data communication"] < 0.05 * whole.parts["data communication"]
    flop = replace(LLAMA, adapters=16, seq=1).flop_per_token / replace(LLAMA, seq=1).flop_per_token
    assert flop == pytest.approx(2 / 3, abs=0.01)


def test_weights_kept_after_the_forward_pass_cost_memory_and_save_a_gather():
    cluster, layout = Cluster("H100 SXM5 80GB", 64, inter=network(5e9)), Layout(64, zero=3)
    given_up, kept = (step(LLAMA, cluster, replace(layout, reshard_after_forward=on), 64) for on in (True, False))
    assert kept.memory["gathered for a moment"] > 10 * given_up.memory["gathered for a moment"]
    assert kept.parts["data communication"] < 0.8 * given_up.parts["data communication"]


def test_prefetch_hides_the_gathering_of_weights_for_a_block_s_memory():
    cluster, layout = Cluster("H100 SXM5 80GB", 64), Layout(64, zero=3)
    none, one, four = (step(LLAMA, cluster, replace(layout, prefetch=ahead), 256) for ahead in (0, 1, 4))
    assert none.parts["data communication"] > 1.2 * one.parts["data communication"]
    assert one.seconds == four.seconds
    held = [one.memory["gathered for a moment"] for one in (none, one, four)]
    assert held[2] - held[1] == pytest.approx(3 * (held[1] - held[0]))


# ---- machines ----


def test_blackwell_ultra_has_its_facts_and_its_network():
    rack = Cluster("GB300 (per Blackwell Ultra GPU)", 2 * NVL72, NVL72)
    assert rack.nodes == 2
    assert rack.gpu.peaks["float4"] == 3 * rack.gpu.peaks["float8"] == 15e15
    assert "XDR" in rack.between.name
    assert rack.inside.bytes_per_s > 600e9


def test_a_rack_of_72_keeps_inside_what_nodes_of_8_send_between():
    layout = replace(DUALPIPE, data=4, pipeline=16, expert=64, schedule="1F1B", dtype="mixed bfloat16")
    racks, nodes = (Cluster("GB200 (per Blackwell GPU)", 64, per_node) for per_node in (64, 8))
    inside, between = (
        communication(
            rank_share(replace(DEEPSEEK, max_nodes=0), one, replace(layout, data=64, pipeline=1), 256)
        ).experts
        for one in (racks, nodes)
    )
    assert between > 5 * inside


def test_switches_that_add_halve_what_an_all_reduce_sends_between_nodes():
    plain, sharp = (network(50e9, sharp=on) for on in (False, True))
    seconds = [fastest_all_reduce_s(1e10, 512, link, in_node=False) for link in (plain, sharp)]
    assert seconds[1] / seconds[0] == pytest.approx(0.5, abs=0.02)
    layout = Layout(512)
    summed = [
        step(LLAMA, Cluster("H100 SXM5 80GB", 512, inter=one), replace(layout, overlap=False), 512)
        for one in (plain, sharp)
    ]
    assert summed[1].parts["data communication"] < summed[0].parts["data communication"]


def test_clipping_waits_for_one_number_from_all_ranks():
    layout = Layout(8192, zero=3)
    few, many = (step(LLAMA, Cluster("H100 SXM5 80GB", n), replace(layout, data=n), n) for n in (8, 8192))
    assert 50e-6 < many.parts["optimizer"] - few.parts["optimizer"] / 1024 < 1e-3  # a GPU updates a 1,024th


# ---- what was published, and was not fitted ----


def test_runs_of_2026_are_met_by_constants_that_never_saw_them():
    found = published_steps("machines of 2026")
    assert len(found.rows) == 16
    assert found.median_error <= 0.10, found
    assert all(abs(row.error) <= 0.4 for row in found.rows), found
    assert all(row.by.outside for row in found.rows if abs(row.error) > 0.15)


def test_deepseek_v3_s_training_is_within_its_interval():
    row = published_steps("machines of 2026").rows[-1]
    low, high = (seconds / row.by.tokens * 14.8e12 * 2048 / 3600 for seconds in row.by.interval_s)
    assert low < 2.664e6 < high
    assert abs(row.error) < 0.15


# ---- goodput ----


def test_goodput_of_llama_3_s_run_is_above_nine_tenths():
    """54 days, 16,384 GPUs, 419 interruptions, above 90 % effective: Llama team 2024, section 3.3.4."""
    between_h = 54 * 24 * 16_384 / 419
    assert goodput(16_384, between_h, save_s=30, restart_s=300).share > 0.9
    assert goodput(16_384, between_h, save_s=30).between_s / 3600 == pytest.approx(3.09, abs=0.01)


def test_the_interval_is_young_s_where_saves_are_short_and_the_best_there_is():
    found = goodput(1024, 50_000, save_s=2)
    assert found.interval_s == pytest.approx(math.sqrt(2 * 2 * found.between_s), rel=0.02)
    for save_s in (1, 60, 1800):
        best = goodput(4096, 50_000, save_s=save_s, restart_s=120)
        for factor in (0.7, 1.4):
            other = goodput(4096, 50_000, save_s=save_s, restart_s=120, interval_s=factor * best.interval_s)
            assert other.share < best.share
    assert sum((best.share, best.saving, best.failing)) == pytest.approx(1)


def test_goodput_is_a_share_that_falls_with_gpus_and_is_what_a_simulation_finds():
    shares = [goodput(n, 50_000, save_s=60, restart_s=300).share for n in (1, 1024, 16_384, 100_000, 10_000_000)]
    assert shares == sorted(shares, reverse=True)
    assert 0 <= shares[-1] < shares[0] < 1
    plan, draw = goodput(16_384, 50_000, save_s=60, restart_s=300), random.Random(0)
    clock_s = done_s = 0.0
    failure_s = draw.expovariate(1 / plan.between_s)
    while done_s < 3e7:
        wait_s = clock_s + plan.interval_s + plan.save_s
        if wait_s <= failure_s:
            clock_s, done_s = wait_s, done_s + plan.interval_s
            continue
        clock_s = failure_s
        while True:  # a failure during a restart begins it anew
            failure_s = clock_s + draw.expovariate(1 / plan.between_s)
            if failure_s >= clock_s + plan.restart_s:
                clock_s += plan.restart_s
                break
            clock_s = failure_s
    assert done_s / clock_s == pytest.approx(plan.share, abs=0.01)
    with pytest.raises(PlanError, match="save_s"):
        goodput(8, 50_000, save_s=0)
