"""Blocks of several kinds: counts of state spaces against torch's counter and by hand,
windows, blocks that predict ahead, and what a step of them takes.
"""

import dataclasses

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from trainplan import Cluster, Layout, best_layout, step
from trainplan.cluster import MODELS, SOFTWARE, configuration
from trainplan.costs import layers
from trainplan.costs.mixers import CHUNK
from trainplan.costs.transformer_layers import decoder
from trainplan.costs.transformers import Transformer

pytestmark = pytest.mark.slow  # imports torch

KEYS = {
    "out_rank": 8,
    "out_groups": 2,
    "index_heads": 2,
    "index_dim": 8,
    "index_top_k": 4,
}
STATES = {"state_heads": 4, "state_head_dim": 8, "state_groups": 2, "state_dim": 16}
SMALL = {"vocab": 64, "seq": 2 * CHUNK, "feed_forward": 96, "gated": True}
MEGATRON = SOFTWARE["Megatron-Core"]


def mamba_in_chunks(values, writers, readers):
    """The products of Mamba-2 in chunks (Dao and Gu 2024, section 6), without decays:
    values (chunks, heads, chunk, width), the others (chunks, groups, chunk, state).
    """
    shared = values.shape[1] // writers.shape[1]  # heads a group
    scores = readers @ writers.mT  # (chunks, groups, chunk, chunk)
    inside = scores.repeat_interleave(shared, 1) @ values
    states = writers.mT.repeat_interleave(shared, 1) @ values
    earlier = readers.repeat_interleave(shared, 1) @ states.cumsum(0)
    return inside + earlier


def delta_in_chunks(values, keys, queries):
    """The same of the gated delta rule (Yang et al. 2024, section 3.3), without decays
    and without solving for what a chunk's tokens overwrite of each other.
    """
    shared = values.shape[1] // keys.shape[1]
    overlaps = (keys @ keys.mT).repeat_interleave(shared, 1)
    scores = (queries @ keys.mT).repeat_interleave(shared, 1)
    keys = keys.repeat_interleave(shared, 1)  # (chunks, heads, chunk, state)
    queries = queries.repeat_interleave(shared, 1)
    overwritten = overlaps @ keys
    updates = overlaps @ values
    states = keys.mT @ updates
    updates = updates - overwritten @ states
    return scores @ updates + queries @ states


@pytest.mark.parametrize(
    ("pattern", "scan"), [("M*-", mamba_in_chunks), ("G*-", delta_in_chunks)]
)
def test_a_small_hybrid_s_products_agree_with_torch(pattern, scan):
    model = Transformer(3, 32, 4, **SMALL, **STATES, pattern=pattern)
    state = model.state_space
    chunks = model.seq // CHUNK
    values = torch.ones(chunks, 4, CHUNK, 8)
    shared = torch.ones(chunks, 2, CHUNK, 16)
    with FlopCounterMode(display=False) as counter:
        nn.Linear(32, state.projected, bias=False)(torch.ones(model.seq, 32))
        scan(values, shared, shared)
        nn.Linear(4 * 8, 32, bias=False)(torch.ones(model.seq, 4 * 8))
    network = decoder(model)
    cost = network.layer_costs(network.batch())["state space blocks"]
    assert counter.get_total_flops() == cost.matmul_flop
    assert network.params == model.params
    assert cost.saved_elements == model.seq * state.kept


def test_parameters_of_a_small_hybrid_by_hand():
    # products 32 x (2 x 32 + 2 x 32 + 4) and 32 x 32; a convolution over 4 tokens of 96
    # channels, with biases in Mamba-2; 3 or 2 numbers a head; norms of 32 or 8, and 32
    mamba = Transformer(1, 32, 4, **SMALL, **STATES, pattern="M")
    assert mamba.block_params == 32 * 132 + 32 * 32 + 5 * 96 + 3 * 4 + 32 + 32
    delta = Transformer(1, 32, 4, **SMALL, **STATES, pattern="G")
    assert delta.block_params == 32 * 136 + 32 * 32 + 4 * 96 + 2 * 4 + 8 + 32


def test_mfu_counts_the_square_where_there_is_attention_and_scans_elsewhere():
    attention = Transformer(2, 32, 4, **SMALL)
    windows = Transformer(2, 32, 4, **SMALL, pattern="W- *-", window=16)
    assert windows.flop_per_token == attention.flop_per_token
    hybrid = Transformer(2, 32, 4, **SMALL, **STATES, pattern="M- *-")
    square = 12 * 32 * hybrid.seq
    scan = 3 * 7 * 4 * 8 * 16
    assert hybrid.flop_per_token == 6 * hybrid.params + square + scan


@pytest.mark.parametrize("pattern", ["", "M- *-"])
def test_a_block_that_predicts_ahead_is_a_block_a_product_and_the_head(pattern):
    states = STATES if pattern else {}
    without = Transformer(2, 32, 4, **SMALL, **states, pattern=pattern)
    ahead = dataclasses.replace(without, ahead=1)
    # a block of attention and an MLP, a product of 2 hidden to hidden, three norms
    block = Transformer(1, 32, 4, **SMALL).block_params + 2 * 32 * 32 + 3 * 32
    assert ahead.params - without.params == block
    again = 6 * (block + ahead.head_params) + 12 * 32 * ahead.seq
    assert ahead.flop_per_token - without.flop_per_token == again


def test_a_window_s_work_is_its_own():
    full = layers.attention(1, 2, 64, 8)
    assert layers.attention(1, 2, 64, 8, window=100) == full
    assert 4 * layers.attention(1, 2, 64, 8, window=16).matmul_flop == full.matmul_flop


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"pattern": "X-"}, "Expected a pattern of"),
        ({"pattern": "M-"}, "Expected state_heads, state_head_dim"),
        ({"state_heads": 4}, "with M or G in the pattern, and none without"),
        ({"pattern": "W- *-"}, "Expected window with W or C or H in the pattern"),
        ({"window": 64}, "Expected window with W or C or H in the pattern"),
        ({"pattern": "*E *-"}, "Expected experts with E in the pattern"),
        ({"pattern": "*- *-", "experts": 4}, "Expected experts with E in the pattern"),
        ({"pattern": "M- G-", **STATES}, "Expected M or G in the pattern, got both"),
        ({"pattern": "M-", **STATES, "state_groups": 3}, "Expected state_groups that"),
        ({"pattern": "*E", "experts": 4, "dense": 1}, "Expected dense = 0 with a"),
        ({"pattern": "C-", "window": 8}, "Expected out_rank, out_groups, index_heads"),
        ({"pattern": "*- H-", "window": 8, **KEYS}, "Expected query_rank, and W in"),
    ],
)
def test_a_pattern_that_cannot_be_is_explained(sizes, words):
    with pytest.raises(ValueError, match=words):
        Transformer(2, 32, 4, **SMALL, **sizes)


def planned(model, **rest):
    layout = Layout(data=8, zero=3, dtype="mixed bfloat16", **rest)
    return step(model, Cluster("H100 SXM5 80GB", 8), layout, 16)


@pytest.mark.parametrize(
    ("name", "pattern"), [("Llama-3.2-1B", "*- *-"), ("Qwen3-30B-A3B", "*E *E")]
)
def test_the_usual_blocks_in_a_pattern_are_the_usual_blocks(name, pattern):
    usual = MODELS[name]
    written = dataclasses.replace(usual, pattern=pattern)
    assert written.params == usual.params
    assert written.flop_per_token == usual.flop_per_token
    for recompute in ("none", "full"):
        mine = planned(written, recompute=recompute)
        theirs = planned(usual, recompute=recompute)
        assert mine.parts == pytest.approx(theirs.parts)
        assert mine.memory == pytest.approx(theirs.memory)


def test_windows_take_less_time_than_the_square_and_no_longer_than_it():
    gemma = dataclasses.replace(MODELS["Gemma-3-4B"], seq=32_768)
    full = dataclasses.replace(gemma, pattern="", window=0)
    wide = dataclasses.replace(gemma, window=gemma.seq)
    assert planned(wide).seconds == pytest.approx(planned(full).seconds)
    assert planned(gemma).seconds < 0.8 * planned(full).seconds
    assert planned(gemma).memory == planned(full).memory
    # MFU counts the square, of which the step says how much is hidden
    assert planned(gemma).mfu > planned(full).mfu > planned(full).causal_mfu
    assert planned(gemma).causal_mfu < 0.6
    assert "a causal mask and windows hide" in str(planned(gemma))


def test_the_time_of_a_hybrid_is_that_of_its_mixers():
    sizes = {
        "vocab": 131_072,
        "seq": 8192,
        "feed_forward": 21_504,
        "kv_heads": 8,
        "gated": True,
        "gated_mlp": False,
        "state_heads": 128,
        "state_head_dim": 64,
        "state_groups": 8,
        "state_dim": 128,
    }
    by_pattern = {}
    for pattern in ("M- *-", "M-*-"):
        layers_there = 8 if " " in pattern else 16
        model = Transformer(layers_there, 4096, 32, **sizes, pattern=pattern)
        assert model.mixers == {"M": 4, "*": 4, "-": 8}
        by_pattern[pattern] = planned(model)
    of_blocks, of_mixers = by_pattern.values()
    assert of_blocks.mfu == pytest.approx(of_mixers.mfu, rel=0.05)
    assert of_blocks.memory["parameters"] == of_mixers.memory["parameters"]
    for entry in (of_blocks, of_mixers):
        assert "no published step had state spaces beside attention" in entry.outside
        assert 0.2 < entry.mfu < 0.6


# In 8 bit: GPU, how many, those that share experts, sequences a step and at once, tokens a
# second and GPU. Sources: NVIDIA-NeMo/Megatron-Bridge (067f987d), docs/performance-summary-
# archive.md, 26.04, 26.04.01 and 26.06.01; docs/performance-summary.md, 26.08. Nothing was
# fitted to them.
PUBLISHED = [
    ("Nemotron-3-Nano-30B-A3B", "GB300", 8, 8, 512, 4, 40_960),
    ("Nemotron-3-Nano-30B-A3B", "GB200", 8, 8, 512, 2, 34_816),
    ("Nemotron-3-Nano-30B-A3B", "B300", 8, 8, 512, 4, 37_316),
    ("Nemotron-3-Nano-30B-A3B", "B200", 8, 8, 512, 2, 32_768),
    ("Nemotron-3-Nano-30B-A3B", "H100", 16, 8, 1024, 1, 14_719),
    ("DeepSeek-V4-Flash", "GB300", 128, 64, 2048, 1, 8224),
    ("DeepSeek-V4-Flash", "GB200", 128, 64, 2048, 1, 7776),
]


@pytest.mark.parametrize(
    ("name", "gpu", "gpus", "expert_ranks", "batch", "at_once", "speed"), PUBLISHED
)
def test_a_published_step_is_within_its_interval(
    name, gpu, gpus, expert_ranks, batch, at_once, speed
):
    model = MODELS[name]
    cluster = Cluster(gpu, gpus, gpus_per_node=expert_ranks)
    layout = Layout(
        data=gpus,
        expert=expert_ranks,
        zero=1,
        micro_batch=at_once,
        dtype="mixed float8",
        software=MEGATRON,
    )
    planned = step(model, cluster, layout, batch)
    published_s = batch * model.seq / gpus / speed
    low, high = planned.interval_s
    assert low < published_s < high
    assert planned.seconds == pytest.approx(published_s, rel=0.25)


def test_tensor_ranks_have_whole_groups_of_a_state_space():
    model = Transformer(2, 32, 4, **SMALL, **STATES, pattern="M- *-")
    cluster = Cluster("H100 SXM5 80GB", 4)
    with pytest.raises(ValueError, match="to divide the 2 groups of state spaces"):
        step(model, cluster, Layout(tensor=4), 1)
    assert step(model, cluster, Layout(data=2, tensor=2), 2).fits


def test_compressed_keys_count_what_a_query_meets():
    flash = MODELS["DeepSeek-V4-Flash"]
    keys = flash.compressed
    assert keys.keys("W", 4096) == 128
    assert keys.keys("H", 4096) == 128 + 4096 / 128 / 2
    assert keys.keys("C", 4096) == 128 + 512 * (1 - 512 * 4 / 2 / 4096)
    # published: 706 to 748 TFLOP/s at 7,776 to 8,224 tokens/s, with a block ahead, the
    # embedding's product left out
    ahead = dataclasses.replace(flash, ahead=1)
    counted = ahead.flop_per_token - 6 * flash.embedding_params
    assert counted == pytest.approx(748e12 / 8224, rel=0.03)
    network = decoder(flash)
    assert network.params == flash.params
    short = dataclasses.replace(flash, seq=4096)
    long = dataclasses.replace(flash, seq=65_536)
    assert long.flop_per_token < 2 * short.flop_per_token


@pytest.mark.parametrize("name", ["Nemotron-H-8B", "Nemotron-3-Nano-30B-A3B"])
def test_a_search_plans_a_hybrid_in_a_library_that_runs_it(name):
    cluster = Cluster("H100 SXM5 80GB", 64)
    best = best_layout(MODELS[name], cluster, 128, software=MEGATRON)
    assert best.step.fits
    assert configuration(best.step) == ""
    with pytest.raises(ValueError, match="state_heads = 0 in torchtitan"):
        best_layout(MODELS[name], cluster, 128, software=SOFTWARE["torchtitan"])
