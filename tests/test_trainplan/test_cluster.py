"""The cluster model: shapes, memory and time against closed forms and floors, the search, and bad input."""

import contextlib
import dataclasses
import itertools
import random

import pytest

from labkit.measure.published import table
from scripts.published_steps import narayanan_flop_per_token
from trainplan import costs, schedule
from trainplan.cluster import (
    MODELS,
    PARTS,
    PURPOSES,
    SOFTWARE,
    Cluster,
    Layout,
    Transformer,
    best_layout,
    model,
    network,
    require_fit,
    step,
)
from trainplan.cluster.communication_time import communication
from trainplan.cluster.constants import CONSTANTS, MEDIAN_LEFT_OUT
from trainplan.cluster.hardware import group_link
from trainplan.cluster.layout import stage_layers, why_not
from trainplan.cluster.rank_memory import block_kept_bytes, in_flight, stage_memory
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.rates import rates
from trainplan.cluster.software import TORCH
from trainplan.costs.collectives import Link
from trainplan.errors import BadArgument, LayoutError, PlanError, UnknownDevice
from trainplan.facts.devices import devices

A100 = "A100 SXM4 80GB"
GPT3 = model("GPT-3 175B")
OLD = Transformer(8, 1024, 16, vocab=1024, seq=1024, fused_attention=False, dropout=True)


def node(gpus=8, **rest):
    return Cluster(A100, gpus, **rest)


# --- shapes and FLOP -------------------------------------------------------------------------------------------------


def test_parameters_are_those_of_the_published_models():
    for row in table("llmfoundry_throughput_a100"):
        mpt = Transformer(*(int(row[key]) for key in ("layers", "d_model", "heads", "vocab", "seq_len")))
        assert mpt.params == int(row["num_params"])
    for row in table("megatron_table1"):
        made = Transformer(*(int(row[key]) for key in ("layers", "hidden", "heads", "vocab", "seq_len")))
        assert made.params / 1e9 == pytest.approx(float(row["params_b_derived"]), abs=0.006)
    assert model("llama-2-7b") is MODELS["Llama-2-7B"]
    for name in ("Llama-2-7B", "Llama-2-70B"):
        assert MODELS[name].params == costs.NETWORKS[name].params  # the closed form is the sum of the layers
    assert model("Llama-3-405B").params == pytest.approx(405.9e9, rel=0.001)


def test_flop_by_both_conventions():
    for row in table("megatron_table1"):
        made = Transformer(*(int(row[key]) for key in ("layers", "hidden", "heads", "vocab", "seq_len")))
        flop = int(row["batch_seqs"]) * made.seq * narayanan_flop_per_token(made)
        assert flop == pytest.approx(float(row["flops_per_iter_derived"]), rel=1e-4)
    for row in table("llmfoundry_throughput_a100"):
        mpt = Transformer(*(int(row[key]) for key in ("layers", "d_model", "heads", "vocab", "seq_len")))
        mfu = float(row["tokens_per_s"]) * mpt.flop_per_token / int(row["gpus"]) / 312e12
        assert 100 * mfu == pytest.approx(float(row["mfu_pct"]), abs=0.02)


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_block_keeps_what_korthikanti_et_al_count(tensor):
    sbh, ratio = OLD.seq * 3 * OLD.hidden, 5 * OLD.heads * OLD.seq / OLD.hidden

    def kept(recompute, sequence_parallel):
        layout = Layout(tensor=tensor, micro_batch=3, recompute=recompute, sequence_parallel=sequence_parallel)
        return block_kept_bytes(rank_share(OLD, node(), layout, 3), recompute)

    assert kept("none", False) == pytest.approx(sbh * (10 + (24 + ratio) / tensor))
    assert kept("none", True) == pytest.approx(sbh * (34 + ratio) / tensor)
    assert kept("selective", True) == pytest.approx(sbh * 34 / tensor)
    assert kept("full", False) == pytest.approx(sbh * 2)


def test_micro_batches_in_flight_are_those_of_the_simulated_schedule():
    for ranks, microbatches in ((4, 8), (4, 3), (8, 32)):
        held = schedule.simulate(schedule.one_f_one_b(ranks, microbatches)).peak_activations
        layout = Layout(pipeline=ranks)
        assert [in_flight(layout, rank, microbatches) for rank in range(ranks)] == list(held)
    chunks = schedule.simulate(schedule.interleaved(4, 8, 2)).peak_activations
    assert [in_flight(Layout(pipeline=4, interleave=2), rank, 8) for rank in range(4)] == list(chunks)


def test_zero_shares_what_it_says_over_the_data_ranks():
    plain = stage_memory(rank_share(GPT3, node(16), Layout(16), 16), 0)
    for zero, shared in ((1, {"float32 master weights", "optimizer state"}), (2, {"gradients"}), (3, {"parameters"})):
        now = stage_memory(rank_share(GPT3, node(16), Layout(16, zero=zero), 16), 0)
        for purpose in shared:
            assert now[purpose] == pytest.approx(plain[purpose] / 16)
        kept = {1: {"gradients", "parameters"}, 2: {"parameters"}, 3: set()}[zero]
        assert all(now[purpose] == plain[purpose] for purpose in kept)
    states = ("parameters", "gradients", "float32 master weights", "optimizer state")
    assert sum(plain[each] for each in states) == pytest.approx(16 * GPT3.params)
    assert set(plain) == set(PURPOSES)
    fsdp = stage_memory(rank_share(GPT3, node(16), Layout(16, zero=3), 16), 0)
    assert fsdp["gathered for a moment"] >= 2 * 2 * GPT3.block_params


def test_layers_that_do_not_divide_give_the_first_and_last_stage_one_fewer_or_some_stages_one_more():
    assert stage_layers(96, 8, 3) == (12,) * 8
    assert stage_layers(126, 16, 8) == (7, *(8,) * 14, 7)
    assert stage_layers(22, 8, 1) == (2, *(3,) * 6, 2)
    assert stage_layers(97, 8, 1) == (12, 13, *(12,) * 6)
    assert stage_layers(7, 8, 1) is None
    for layers, pipeline, chunks in ((126, 16, 1), (22, 8, 1), (94, 4, 1), (80, 7, 3), (80, 64, 1)):
        stages = stage_layers(layers, pipeline, chunks)
        assert len(stages) == pipeline
        assert sum(stages) == layers
        assert max(stages) == stages[1]  # whose memory is looked at
        assert max(stages) - min(stages) <= chunks


# --- time ------------------------------------------------------------------------------------------------------------


def random_steps(count, seed=7):
    draw = random.Random(seed)
    while count:
        shape = draw.choice(list(MODELS.values()))
        data, tensor, pipeline = draw.choice((1, 2, 8, 64)), draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 4, 8))
        layout = Layout(
            data, tensor, pipeline, draw.choice((1, 2)), draw.randrange(4), draw.choice((1, 2)),
            draw.choice(("none", "selective", "full")), draw.random() < 0.5, overlap=draw.random() < 0.5,
        )  # fmt: skip
        gpus = data * tensor * pipeline
        cluster = Cluster(draw.choice((A100, "H100 SXM5 80GB")), gpus, min(gpus, 8))
        batch = data * layout.micro_batch * pipeline * draw.choice((1, 4))
        if not why_not(shape, cluster, layout, batch):
            count -= 1
            yield step(shape, cluster, layout, batch)


def test_no_step_is_faster_than_its_arithmetic_at_peak_and_the_parts_add_up():
    for made in random_steps(200):
        assert set(made.parts) == set(PARTS)
        assert all(seconds >= -1e-12 for seconds in made.parts.values()), made
        assert made.seconds == pytest.approx(sum(made.parts.values()))
        assert 0 < made.mfu < 0.8, made
        assert all(n_bytes >= 0 for n_bytes in made.memory.values())
        bandwidth = made.cluster.gpu.bandwidth_bytes_per_s
        assert made.seconds > made.memory["parameters"] / bandwidth


def test_more_recomputing_takes_longer_and_holds_less():
    made = [
        step(OLD, node(), Layout(8, recompute=recompute, micro_batch=4), 64)
        for recompute in ("none", "selective", "full")
    ]
    assert made[0].seconds < made[1].seconds < made[2].seconds
    assert made[0].memory_bytes > made[1].memory_bytes > made[2].memory_bytes


@pytest.mark.parametrize(("pipeline", "microbatches"), [(2, 2), (4, 8), (8, 64)])
def test_the_bubble_of_equal_stages_is_the_closed_form_and_the_simulation_s(pipeline, microbatches):
    equal = Transformer(64, 4096, 32, vocab=1, seq=2048)  # a head that costs nothing
    near = Link(0, 1e18)
    cluster = node(pipeline, gpus_per_node=pipeline, intra=near)
    made = step(equal, cluster, Layout(pipeline=pipeline), microbatches)
    work = made.parts["compute"]
    assert made.parts["bubble"] / work == pytest.approx((pipeline - 1) / microbatches, rel=0.03)
    each = work / microbatches
    simulated = schedule.simulate(
        schedule.one_f_one_b(pipeline, microbatches), forward_s=each / 3, backward_s=2 * each / 3
    )
    assert made.seconds - made.parts["optimizer"] == pytest.approx(simulated.makespan_s, rel=0.03)
    halved = step(equal, cluster, Layout(pipeline=pipeline, interleave=2), microbatches)
    assert halved.parts["bubble"] == pytest.approx(made.parts["bubble"] / 2, rel=0.05)


def test_an_uneven_last_stage_makes_the_others_wait():
    heavy = Transformer(8, 1024, 16, vocab=200_000)
    made = step(heavy, node(8), Layout(pipeline=8), 256)
    assert made.parts["bubble"] > made.parts["compute"]  # a head as large as many blocks


def test_communication_follows_bytes_and_links():
    slow = node(8, intra=Link(0, 20e9))
    assert (
        step(GPT3, slow, Layout(tensor=8), 8).parts["tensor communication"]
        > 5 * step(GPT3, node(8), Layout(tensor=8), 8).parts["tensor communication"]
    )
    assert step(OLD, node(8), Layout(8), 8).parts["tensor communication"] == 0
    hidden = step(OLD, node(8), Layout(8, micro_batch=8), 512).parts["data communication"]
    shown = step(OLD, node(8), Layout(8, micro_batch=8, overlap=False), 512).parts["data communication"]
    assert hidden < 0.85 * shown
    once = step(OLD, node(8), Layout(8, zero=1, overlap=False), 64).parts["data communication"]
    each = step(OLD, node(8), Layout(8, zero=3, overlap=False), 64).parts["data communication"]
    assert 8 < each / once < 20  # 8 micro-batches: 3 passes each in place of 2 in all, and a start for each layer


def test_a_ring_over_nodes_leaves_each_over_all_its_members_links():
    cluster = Cluster(A100, 64, inter=network(25e9))
    whole, one = group_link(cluster, 64, 1), group_link(cluster, 8, 8)
    assert group_link(cluster, 8, 1) is cluster.inside
    assert one.bytes_per_s == pytest.approx(0.85 * 25e9)
    assert whole.bytes_per_s == pytest.approx(8 * 0.85 * 25e9)


def test_rates_follow_the_step():
    made = step(GPT3, node(64), Layout(1, 8, 8, interleave=3), 64)
    tokens = 300e9
    assert made.tokens == 64 * 2048
    assert made.train_s(tokens) == pytest.approx(tokens / made.tokens_per_s)
    assert "MFU" in str(made)
    assert "optimizer" in made._repr_html_()


def test_matrix_products_are_never_above_the_best_published_rate_and_small_ones_well_below():
    rate = rates(node().gpu, "bfloat16")
    speed = {n: 2 * n**3 / rate.matmul_s(n, n, n) for n in (64, 512, 4096, 32768)}
    assert list(speed.values()) == sorted(speed.values())
    assert speed[32768] < 271.2e12  # data/published/matmul_efficiency.csv
    assert speed[512] < 0.3 * speed[32768]


# --- what newer runs do ----------------------------------------------------------------------------------------------

LONG = dataclasses.replace(model("Llama-3-8B"), seq=131_072)
MIXTURE = model("Qwen3-30B-A3B")


def test_context_ranks_split_activations_and_attention_and_pay_for_keys():
    one, eight = (step(LONG, node(), Layout(8 // n, zero=3, context=n), 8) for n in (1, 8))
    assert eight.memory["kept for the backward pass"] == pytest.approx(one.memory["kept for the backward pass"] / 8)
    assert eight.memory["parameters"] == one.memory["parameters"]  # for weights they are data ranks
    # the same work a step, in 8 micro-batches of an eighth
    assert eight.parts["compute"] == pytest.approx(one.parts["compute"], rel=0.05)
    assert eight.parts["context and expert communication"] > one.parts["context and expert communication"] == 0


def test_experts_count_once_for_flop_and_all_for_memory():
    assert MIXTURE.params / 1e9 == pytest.approx(30.5, abs=0.1)
    used = MIXTURE.params - MIXTURE.layers * (MIXTURE.block_params - MIXTURE.used_params)
    assert used / 1e9 == pytest.approx(3.3, abs=0.1)  # Qwen3 technical report: 30B-A3B
    assert model("GPT-OSS-120B").params / 1e9 == pytest.approx(116.8, abs=1)  # gpt-oss model card
    apart, whole = (step(MIXTURE, node(), Layout(8, zero=1, expert=n), 64) for n in (8, 1))
    in_experts = MIXTURE.layers * MIXTURE.experts * MIXTURE.expert_params
    assert whole.memory["parameters"] - apart.memory["parameters"] == pytest.approx(2 * in_experts * 7 / 8)
    assert apart.parts["context and expert communication"] > whole.parts["context and expert communication"] == 0
    assert apart.parts["data communication"] < whole.parts["data communication"]  # one rank holds each expert


def test_an_all_to_all_sends_every_token_top_k_times_there_and_back():
    link = Link(0, 1e9)
    tokens, width = MIXTURE.seq, MIXTURE.hidden
    expected = 2 * tokens * MIXTURE.top_k * width * 2 * 7 / 8 / 1e9
    share = rank_share(MIXTURE, node(8, intra=link), Layout(8, expert=8), 8)
    assert communication(share).experts == pytest.approx(expected)


def test_an_end_of_a_pipeline_sends_once_a_micro_batch_and_an_inner_stage_twice():
    shape = dataclasses.replace(GPT3, vocab=1)  # so that no head slows the last stage
    ends, inner = (step(shape, node(p), Layout(pipeline=p, overlap=False), 8) for p in (2, 4))
    assert inner.parts["pipeline communication"] == pytest.approx(2 * ends.parts["pipeline communication"])


def test_dropout_in_attention_takes_its_memory_traffic_or_its_arithmetic():
    before = [step(dataclasses.replace(OLD, dropout=d), node(1), Layout(), 8).parts["compute"] for d in (False, True)]
    elements = 8 * OLD.layers * OLD.heads * OLD.seq**2
    byte_s = 1 / rates(node(1).gpu, "bfloat16").bytes_per_s
    masks = 8 * OLD.layers * OLD.seq * OLD.hidden * 3 * 2 * byte_s  # those after attention and the MLP, both passes
    assert before[1] - before[0] == pytest.approx(2 * 5 * elements * byte_s + masks)


def test_groups_that_shard_exchange_less_between_nodes_and_hold_more():
    cluster = Cluster("H100 SXM5 80GB", 1024, inter=network(1e9))
    shape = model("Llama-3-70B")  # large, so that latency hardly counts; and nothing is hidden
    whole, groups = (step(shape, cluster, Layout(1024, zero=3, shard=n, overlap=False), 1024) for n in (None, 8))
    assert groups.parts["data communication"] < 0.7 * whole.parts["data communication"]
    assert groups.memory["optimizer state"] == pytest.approx(128 * whole.memory["optimizer state"])


def test_eight_bit_products_are_faster_but_not_twice_and_keep_their_master_weights():
    shape, cluster = model("Llama-3-70B"), Cluster("H100 SXM5 80GB", 64)
    sixteen, eight = (
        step(shape, cluster, Layout(8, 8, zero=1, dtype=f"mixed {d}"), 64) for d in ("bfloat16", "float8")
    )
    assert 1.2 < sixteen.seconds / eight.seconds < 1.8
    assert eight.memory == sixteen.memory


def test_what_a_library_does_shows():
    shape, cluster = model("Llama-3-8B"), Cluster("H100 SXM5 80GB", 64)

    def with_software(layout=Layout(8, 8, zero=3, recompute="full"), batch=64, **changes):  # noqa: B008
        return step(shape, cluster, dataclasses.replace(layout, software=dataclasses.replace(TORCH, **changes)), batch)

    plain = with_software()
    for change, part in (
        ({"fused": False}, "compute"), ({"attention": 1}, "compute"), ({"early_stop": False}, "recompute"),
    ):  # fmt: skip
        assert with_software(**change).parts[part] > plain.parts[part], change
    assert with_software(copied_gathers=False).parts["tensor communication"] < plain.parts["tensor communication"]
    summed = Layout(8, 8, zero=1)
    added = {fused: with_software(summed, 640, fused_gradients=fused) for fused in (False, True)}
    assert added[True].parts["compute"] < added[False].parts["compute"] < 1.1 * added[True].parts["compute"]
    alone = {fused: with_software(summed, 8, fused_gradients=fused).seconds for fused in (False, True)}
    assert alone[True] == alone[False]  # one micro-batch has nothing to add to
    for kind in ("backward", "all"):
        assert with_software(async_tensor=kind).parts["tensor communication"] < plain.parts["tensor communication"]
    fused = with_software(fused_loss=True)
    assert plain.memory["logits and loss"] == pytest.approx(3 * fused.memory["logits and loss"], rel=0.1)
    pipeline = Layout(8, 1, 8, zero=3)
    kept = with_software(pipeline, 256, reshard=False)
    assert kept.parts["data communication"] < with_software(pipeline, 256).parts["data communication"] / 4
    gathered = with_software(pipeline, 256).memory["gathered for a moment"]
    assert kept.memory["gathered for a moment"] > gathered
    # where weights stay, the gradients of all layers are summed whole, in 4 bytes, until the last micro-batch
    summed = with_software(dataclasses.replace(pipeline, dtype="autocast bfloat16"), 256, reshard=False)
    alone = with_software(dataclasses.replace(pipeline, dtype="autocast bfloat16"), 8, reshard=False)
    of_stage = shape.layers / 8 * shape.block_params + shape.embedding_params
    more = summed.memory["gathered for a moment"] - alone.memory["gathered for a moment"]
    assert more == pytest.approx(4 * of_stage * (1 - 8 / shape.layers), rel=1e-4)  # one block's were there before
    copied = with_software(summed.layout, 256, gradient_copies=4).memory["gradients"]
    assert copied == pytest.approx(2 * with_software(summed.layout, 256).memory["gradients"])
    spare = with_software(fragments=0.2).memory["fragments"]
    assert spare == pytest.approx(
        0.2 * (plain.memory["kept for the backward pass"] + plain.memory["gathered for a moment"])
    )


def test_schedules_without_bubble_and_their_memory():
    cluster = node(8)
    made = {
        name: step(OLD, cluster, Layout(pipeline=8, schedule=name), 32)
        for name in ("1F1B", "ZB-H1", "ZB-V", "DualPipe")
    }
    bubbles = {name: each.parts["bubble"] for name, each in made.items()}
    assert bubbles["1F1B"] > bubbles["ZB-H1"] > bubbles["ZB-V"]
    assert bubbles["1F1B"] > bubbles["DualPipe"]
    weights = {name: each.memory["parameters"] for name, each in made.items()}
    assert weights["DualPipe"] == pytest.approx(2 * weights["1F1B"], rel=0.1)
    assert all(each.outside for name, each in made.items() if name != "1F1B")


def test_an_offloaded_optimizer_takes_time_for_memory():
    shape, cluster = model("Llama-2-7B"), node(8)
    here, there = (step(shape, cluster, Layout(8, zero=1, offload=away), 64) for away in (False, True))
    assert there.memory["optimizer state"] == there.memory["float32 master weights"] == 0
    assert there.parts["optimizer"] > 10 * here.parts["optimizer"]


def test_small_work_waits_for_the_host():
    tiny = Transformer(24, 256, 8, seq=128)
    made = step(tiny, node(), Layout(8), 8)
    assert made.parts["compute"] >= tiny.layers * CONSTANTS.block_s
    assert step(dataclasses.replace(tiny, seq=256), node(), Layout(8), 8).parts["compute"] == pytest.approx(
        made.parts["compute"], rel=0.05
    )


def test_a_pod_is_one_node_with_a_torus():
    pod = Cluster("TPU v5p (chip)", 512, gpus_per_node=512, torus=(8, 8, 8), reserve=0.05)
    ring = dataclasses.replace(pod, torus=None)
    assert group_link(pod, 512, 1).alpha_s == pytest.approx(group_link(ring, 512, 1).alpha_s * 21 / 511)
    made = step(model("Llama-2-70B"), pod, Layout(512, zero=3, software=SOFTWARE["Transformer Engine"]), 2048)
    assert 0.5 < made.mfu < 0.75  # MaxText reports 0.54 to 0.69 on v5p
    assert made.outside
    with pytest.raises(LayoutError, match="Expected a torus of the 512 devices"):
        Cluster("TPU v5p (chip)", 512, gpus_per_node=512, torus=(8, 8))


@pytest.mark.parametrize(
    ("ranks", "stride", "axes", "hops"),
    [
        (64, 1, 3, 9), (16, 4, 2, 6), (16, 1, 2, 6), (4, 1, 1, 3), (4, 4, 1, 3), (4, 16, 1, 3),
        (2, 1, 0.5, 1),  # no ring, so each link carries one direction
        (2, 2, 0.5, 2),  # a ring, whose wires two groups share
    ],
)  # fmt: skip
def test_a_group_has_the_links_of_the_axes_that_it_spans(ranks, stride, axes, hops):
    slice_of_64 = Cluster("TPU v5p (chip)", 64, gpus_per_node=64, torus=(4, 4, 4))
    whole, link = slice_of_64.inside, group_link(slice_of_64, ranks, stride)
    assert whole.bytes_per_s == pytest.approx(0.9 * 600e9)  # 1,200 GB/s both directions together
    assert link.bytes_per_s == pytest.approx(axes / 3 * whole.bytes_per_s)
    assert (ranks - 1) * link.alpha_s == pytest.approx(hops * whole.alpha_s)


def test_sides_of_a_torus_may_differ():
    slice_of_128 = Cluster("TPU v5p (chip)", 128, gpus_per_node=128, torus=(4, 4, 8))
    rates = {ranks: group_link(slice_of_128, ranks, 1).bytes_per_s / 540e9 for ranks in (4, 8, 32, 128)}
    assert rates == pytest.approx({4: 0.5 / 3, 8: 1 / 3, 32: 2 / 3, 128: 1.0})
    rows = group_link(slice_of_128, 16, 8)
    assert rows.bytes_per_s == pytest.approx(2 / 3 * 540e9)


def test_slices_exchange_over_the_data_centre_s_network():
    two = Cluster("TPU v5e (chip)", 512, gpus_per_node=256, torus=(16, 16), inter=network(3.125e9))
    assert group_link(two, 2, 256).bytes_per_s == network(3.125e9).bytes_per_s
    assert group_link(two, 256, 1) == two.inside or group_link(two, 256, 1).bytes_per_s == two.inside.bytes_per_s


def test_a_reserve_is_left_free():
    own, shape = SOFTWARE["torch"], model("Llama-2-70B")
    assert best_layout(shape, node(64), 512, software=own).step.memory_bytes > 0.92 * 80e9
    found = best_layout(shape, Cluster(A100, 64, reserve=0.08), 512, software=own)
    assert all(each.memory_bytes <= 0.92 * 80e9 for each in (found.step, *found.runners_up))


# --- search ----------------------------------------------------------------------------------------------------------


def test_the_best_layout_is_the_fastest_that_fits_of_all():
    cluster, batch = node(16), 64
    shape = model("Llama-2-7B")
    found = best_layout(shape, cluster, batch, software=SOFTWARE["torch"])
    steps = (found.step, *found.runners_up)
    assert [each.seconds for each in steps] == sorted(each.seconds for each in steps)
    assert all(each.fits for each in steps)
    fastest = float("inf")
    for data, tensor, pipeline, zero, micro_batch, recompute in itertools.product(
        (1, 2, 4, 8, 16), (1, 2, 4, 8), (1, 2, 4, 8, 16), range(4), (1, 2, 4), ("none", "full")
    ):
        layout = Layout(data, tensor, pipeline, 1, zero, micro_batch, recompute)
        if not why_not(shape, cluster, layout, batch):
            made = step(shape, cluster, layout, batch)
            fastest = min(fastest, made.seconds if made.fits else fastest)
    assert found.step.seconds <= fastest
    assert sum(found.rejected.values()) == found.tried - 1
    assert "don't fit in memory" in str(found)
    assert "Not searched: tensor ranks in several nodes" in str(found)
    within = [each for each in found.runners_up if each.seconds < (1 + MEDIAN_LEFT_OUT) * found.step.seconds]
    assert found.alike >= len(within)


def test_more_chunks_than_eight_are_found():
    """Eighty layers in four stages of 20 chunks, as NVIDIA trains Llama 2 70B."""
    found = best_layout(model("Llama-2-70B"), Cluster("H100 SXM5 80GB", 32, reserve=0.0), 32, runners_up=1000)
    assert max(each.layout.interleave for each in (found.step, *found.runners_up)) > 8


@pytest.mark.slow
def test_long_sequences_and_experts_are_searched_too():
    assert best_layout(LONG, Cluster("H100 SXM5 80GB", 64), 4).layout.context > 1
    large = model("Qwen3-235B-A22B")
    found = best_layout(large, Cluster("H100 SXM5 80GB", 128), 256, software=SOFTWARE["Megatron-Core"])
    assert found.layout.expert > 1


def test_seventy_billion_parameters_on_64_gpus_of_80_gb():
    cluster, shape = node(64), model("Llama-2-70B")
    assert not step(shape, cluster, Layout(64), 512).fits
    found = best_layout(shape, cluster, 512)
    assert found.step.fits
    assert 0.4 < found.step.mfu < 0.7
    assert found.layout.gpus == 64


def test_a_hundred_thousand_gpus_and_a_trillion_parameters():
    assert best_layout(model("Llama-3-405B"), Cluster("H100 SXM5 80GB", 100_000), 100_000).layout.gpus == 100_000
    assert best_layout(model("GPT 1T"), Cluster(A100, 4096), 4096, runners_up=2).runners_up[1].fits


def test_what_does_not_fit_says_what_is_over_by_how_much_and_what_splits_it():
    for reserve, words in ((0.0, r"74.5 GiB a GPU"), (0.08, r"68.5 GiB a GPU \(74.5 GiB less 8% in reserve\)")):
        made = step(model("Llama-2-70B"), Cluster(A100, 64, reserve=reserve), Layout(64), 512)
        with pytest.raises(LayoutError, match=words + ", .* over; .* optimizer state, .* and ZeRO 1 to 3"):
            require_fit(made)
    with pytest.raises(LayoutError, match=r"leanest .* TiB over"):
        best_layout(model("GPT 1T"), node(8), 8)
    fine = best_layout(model("Llama-2-7B"), node(8), 64).step
    assert require_fit(fine) is fine


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "batch", "words"),
    [
        (Layout(8, 8, 1), 64, "got 8 x 8 x 1 = 64|take data = 8"),
        (Layout(4, 1, 1), 64, "= 64 GPUs, got 4 x 1 x 1 = 4"),
        (Layout(1, 64, 1), 64, "Expected tensor to divide the 96 heads, got 64. The nearest: 48 or 96"),
        (Layout(1, 4, 16, 7), 64, "16 stages x 7 chunks, and there are 96 layers"),
        (Layout(1, 4, 2, context=4), 64, "1 x 4 x 2 x 4 = 32. With 4 x 2 x 4, take data = 2"),
        (Layout(64, expert=3), 64, "Expected expert to divide the 64 data, context and tensor ranks, got 3"),
        (Layout(64, expert=2), 64, "Expected expert to divide the 0 experts, got 2"),
        (Layout(64, zero=3, shard=24), 64, "Expected shard to divide the 64 data and context ranks, got 24"),
        (Layout(1, 4, 16, 2, schedule="ZB-V"), 64, "Expected interleave = 1 with ZB-V"),
        (Layout(64, shard=8), 64, "Expected zero = 1, 2 or 3 with shard = 8"),
        (Layout(64, schedule="DualPipe"), 64, "Expected an even number of stages with DualPipe"),
        (Layout(64, micro_batch=2), 65, "= 128 divide, got 65. The nearest: 128"),
        (Layout(64), 100, "The nearest: 64 or 128"),
        (Layout(64, interleave=2), 64, "without a pipeline"),
        (Layout(2, 4, 8, 2), 6, "multiples of the 8 stages"),
        (Layout(64), 0, "batch"),
    ],
)
def test_layouts_that_cannot_be(layout, batch, words):
    cluster = node(8) if "8 x 8" in words else node(64)
    with pytest.raises(LayoutError, match=words):
        step(GPT3, cluster, layout, batch)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Layout(0), LayoutError, "data"),
        (lambda: Layout(tensor=1.5), LayoutError, "tensor"),
        (lambda: Layout(zero=4), LayoutError, "Expected zero to be one of 0, 1, 2, 3, got 4"),
        (lambda: Layout(recompute="ful"), LayoutError, "nearest is 'full'"),
        (lambda: Layout(dtype="bf16"), PlanError, "bfloat16"),
        (lambda: Cluster("A100 SXM4 90GB", 8), UnknownDevice, "A100 SXM4 80GB"),
        (lambda: node(12), LayoutError, "The nearest are 8 and 16"),
        (lambda: node(0), LayoutError, "gpus"),
        (lambda: node(reserve=1.0), LayoutError, "Expected reserve below 1"),
        (
            lambda: Transformer(2, 96, 12, experts=4, top_k=5),
            LayoutError,
            "Expected top_k of at most the 4 experts, got 5",
        ),
        (lambda: Transformer(2, 96, 12, top_k=2), LayoutError, "Expected top_k of at most the 0 experts, got 2"),
        (lambda: model("GPT3"), PlanError, "GPT-3 175B"),
        (lambda: Transformer(2, 100, 3), LayoutError, "divide hidden"),
        (lambda: Transformer(2, 96, 12, kv_heads=5), LayoutError, "divide the 12 heads"),
        (lambda: step(OLD, Cluster("Tesla P100 SXM2 16GB", 8), Layout(8), 8), LayoutError, "peak in bfloat16"),
        (lambda: best_layout(costs.network("SimpleCNN"), node(), 8), LayoutError, "Transformer"),
        (lambda: best_layout(OLD, node(), 0), LayoutError, "batch"),
        (lambda: step(OLD, node(), Layout(8), 8).train_s(-1), BadArgument, "tokens"),
        (lambda: step(costs.network("SimpleCNN"), node(), Layout(8), 8), LayoutError, "Transformer"),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_node_of_cards_talks_over_pcie_and_one_of_boards_over_nvlink():
    assert "NVLink 3" in str(node())
    assert "NVLink 4" in str(Cluster("H200 SXM", 8))
    for name, pcie in (("A100 PCIe 80GB", 4), ("GeForce RTX 4090", 4), ("L4", 4), ("GeForce RTX 3090", 4)):
        assert f"PCIe {pcie}.0" in str(Cluster(name, 8))
    assert "25 GB/s a GPU" in str(node(16))
    assert "50 GB/s a GPU" in str(Cluster("H200 SXM", 16))


def test_values_say_what_they_are():
    assert repr(Layout(2, 4, 8, 2, 3)) == (
        "2 data x 4 tensor x 8 pipeline, 2 chunks a rank, ZeRO-3 (FSDP), micro-batch 1, recompute none"
    )
    assert str(GPT3).startswith("GPT-3 175B: 175 billion parameters")
    assert "64 x A100 SXM4 80GB (80.0 GB)" in str(node(64))
    assert "between nodes" not in str(node(8))


@pytest.mark.parametrize("dtype", ["float32", "tf32", "mixed float16", "mixed bfloat16", "mixed float8"])
def test_no_step_uses_more_than_the_peak(dtype):
    layout, made = Layout(dtype=dtype, micro_batch=8), []
    for device, name, seq in itertools.product(devices(), ("GPT 1.7B", "Llama-3-405B", "Qwen3-30B-A3B"), (8192, 2**20)):
        with contextlib.suppress(LayoutError):  # a device without this dtype
            made.append(step(dataclasses.replace(model(name), seq=seq), Cluster(device, 1), layout, 8))
    assert len(made) > 10
    assert all(0 < one.mfu < 1 for one in made), max(made, key=lambda one: one.mfu)
    unlike = "no published step was computed in float32 or tf32"
    assert all((unlike in one.outside) == (dtype in ("float32", "tf32")) for one in made)
