"""The cluster model: shapes, memory and time against closed forms, and bad input."""

import dataclasses

import pytest

import gpufacts
from trainplan import costs, schedule
from trainplan.cluster import (
    MODELS,
    PURPOSES,
    SOFTWARE,
    Cluster,
    Layout,
    Transformer,
    best_layout,
    model,
    network,
    published_steps,
    require_fit,
    step,
)
from trainplan.cluster.communication_time import communication
from trainplan.cluster.hardware import group_link
from trainplan.cluster.layout import stage_layers
from trainplan.cluster.rank_memory import (
    STATES,
    block_kept_bytes,
    in_flight,
    stage_memory,
)
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.rates import rates
from trainplan.costs.collectives import Link
from trainplan.errors import LayoutError
from trainplan_published import table
from trainplan_published.planner_steps import narayanan_flop_per_token

A100 = "A100 SXM4 80GB"
H100 = "H100 SXM5 80GB"
GPT3 = model("GPT-3 175B")
OLD = Transformer(
    8, 1024, 16, vocab=1024, seq=1024, fused_attention=False, dropout=True
)
LONG = dataclasses.replace(model("Llama-3-8B"), seq=131_072)
MIXTURE = model("Qwen3-30B-A3B")


def node(gpus=8, **rest):
    return Cluster(A100, gpus, **rest)


# --- shapes and FLOP ---


def published_shapes(name):
    """Each row of a published table, and the Transformer of its sizes."""
    width = "d_model" if name == "llmfoundry_throughput_a100" else "hidden"
    columns = ("layers", width, "heads", "vocab", "seq_len")
    for row in table(name):
        yield row, Transformer(*(int(row[column]) for column in columns))


def test_parameters_are_those_of_the_published_models():
    for row, shape in published_shapes("llmfoundry_throughput_a100"):
        assert shape.params == int(row["num_params"])
    for row, shape in published_shapes("megatron_table1"):
        assert shape.params / 1e9 == pytest.approx(
            float(row["params_b_derived"]), abs=0.006
        )
    for name in ("Llama-2-7B", "Llama-2-70B"):
        assert MODELS[name].params == costs.NETWORKS[name].params
    assert model("llama-2-7b") is MODELS["Llama-2-7B"]
    assert model("Llama-3-405B").params == pytest.approx(405.9e9, rel=0.001)


def test_flop_by_both_conventions():
    for row, shape in published_shapes("megatron_table1"):
        flop = int(row["batch_seqs"]) * shape.seq * narayanan_flop_per_token(shape)
        assert flop == pytest.approx(float(row["flops_per_iter_derived"]), rel=1e-4)
    for row, shape in published_shapes("llmfoundry_throughput_a100"):
        tokens_per_s_per_gpu = float(row["tokens_per_s"]) / int(row["gpus"])
        mfu = tokens_per_s_per_gpu * shape.flop_per_token / 312e12
        assert 100 * mfu == pytest.approx(float(row["mfu_pct"]), abs=0.02)


# --- memory ---


@pytest.mark.parametrize("tensor", [1, 8])
def test_a_block_keeps_what_korthikanti_et_al_count(tensor):
    sbh = OLD.seq * 3 * OLD.hidden
    ratio = 5 * OLD.heads * OLD.seq / OLD.hidden

    def kept(recompute, sequence_parallel):
        layout = Layout(
            tensor=tensor,
            micro_batch=3,
            recompute=recompute,
            sequence_parallel=sequence_parallel,
        )
        return block_kept_bytes(rank_share(OLD, node(), layout, 3), recompute)

    assert kept("none", False) == pytest.approx(sbh * (10 + (24 + ratio) / tensor))
    assert kept("none", True) == pytest.approx(sbh * (34 + ratio) / tensor)
    assert kept("selective", True) == pytest.approx(sbh * 34 / tensor)
    assert kept("full", False) == pytest.approx(sbh * 2)


def test_micro_batches_in_flight_are_those_of_the_simulated_schedule():
    for ranks, microbatches in ((4, 8), (4, 3), (8, 32)):
        held = schedule.simulate(
            schedule.one_f_one_b(ranks, microbatches)
        ).peak_activations
        layout = Layout(pipeline=ranks)
        assert [in_flight(layout, rank, microbatches) for rank in range(ranks)] == list(
            held
        )
    chunks = schedule.simulate(schedule.interleaved(4, 8, 2)).peak_activations
    layout = Layout(pipeline=4, interleave=2)
    assert [in_flight(layout, rank, 8) for rank in range(4)] == list(chunks)


def test_zero_shares_what_it_says_over_the_data_ranks():
    states = ("parameters", "gradients", "float32 master weights", "optimizer state")
    shared = {1: states[2:], 2: states[1:], 3: states}
    plain = stage_memory(rank_share(GPT3, node(16), Layout(16), 16), 0)
    assert set(plain) == set(PURPOSES)
    assert sum(plain[state] for state in states) == pytest.approx(16 * GPT3.params)
    for zero, purposes in shared.items():
        memory = stage_memory(rank_share(GPT3, node(16), Layout(16, zero=zero), 16), 0)
        for state in states:
            parts = 16 if state in purposes else 1
            assert memory[state] == pytest.approx(plain[state] / parts)
    assert memory["gathered for a moment"] >= 2 * 2 * GPT3.block_params


@pytest.mark.parametrize(
    ("library", "dtype", "zero", "whole", "split"),
    [
        # bytes a parameter on each rank, and those that the ranks share
        ("torchtitan", "", 3, 0, 16),
        ("torchtitan", "", 0, 18, 0),
        ("Megatron-Core", "", 0, 18, 0),
        ("Megatron-Core", "", 1, 6, 12),
        ("Megatron-Core", "mixed bfloat16", 1, 4, 12),
        ("Megatron-Core", "mixed float8", 1, 4, 12),
        # in 16 bit, and twice in 8
        ("Megatron-Core", "mixed float8", 0, 18, 0),
        ("nanotron", "bfloat16", 1, 2 + 2 + 4, 4),
        ("DeepSpeed", "", 2, 2, 14),
        ("DeepSpeed", "", 3, 0, 16),
    ],
)
def test_each_library_holds_its_own_bytes_a_parameter(
    library, dtype, zero, whole, split
):
    shape = dataclasses.replace(GPT3, gated=True)
    software = dataclasses.replace(SOFTWARE[library], bucket=0)
    layout = Layout(16, zero=zero, dtype=dtype, software=software)
    memory = stage_memory(rank_share(shape, node(16), layout, 16), 0)
    a_param = sum(memory[state] for state in STATES) / shape.params
    assert a_param == pytest.approx(whole + split / 16)


@pytest.mark.parametrize(
    ("dtype", "input_bytes"),
    [
        ("mixed bfloat16", 2),
        ("mixed float8", 1),
        ("mixed mxfp8 with float32 gradients", 1 + 1 / 32),
        ("mixed nvfp4", 1 / 2 + 1 / 16),
        ("autocast float8", 2),
    ],
)
def test_products_keep_their_inputs_as_they_take_them(dtype, input_bytes):
    shape = model("Llama-3-8B")
    kept = {  # of a token: how many numbers, and their bytes
        "inputs of the norms": (2 * 4096, 2),
        "inputs of the products behind them": (2 * 4096, input_bytes),
        "queries": (4096, 2),
        "keys and values": (2 * 1024, 2),
        "attention's output": (4096, 2),
        "log-sum-exp of a head's row": (32, 4),
        "gate and its factor": (2 * 14_336, 2),
        "input of the last product": (14_336, input_bytes),
    }
    if input_bytes < 2:
        kept["input of the product behind attention"] = (4096, input_bytes)
    share = rank_share(shape, Cluster("B200 SXM", 8), Layout(8, dtype=dtype), 8)
    a_token = sum(numbers * n_bytes for numbers, n_bytes in kept.values())
    assert block_kept_bytes(share, "none") == pytest.approx(8192 * a_token)


@pytest.mark.parametrize(
    ("sizes", "layers"),
    [
        ((96, 8, 3), (12,) * 8),
        ((126, 16, 8), (7, *(8,) * 14, 7)),
        ((22, 8, 1), (2, *(3,) * 6, 2)),
        ((7, 8, 1), None),
    ],
)
def test_stages_share_layers_as_evenly_as_they_can(sizes, layers):
    assert stage_layers(*sizes) == layers


# --- time ---


@pytest.mark.parametrize(("pipeline", "microbatches"), [(2, 2), (8, 64)])
def test_the_bubble_of_equal_stages_is_the_closed_form_and_the_simulation_s(
    pipeline, microbatches
):
    equal = Transformer(64, 4096, 32, vocab=1, seq=2048)  # a head that costs nothing
    cluster = node(pipeline, gpus_per_node=pipeline, intra=Link(0, 1e18))
    planned = step(equal, cluster, Layout(pipeline=pipeline), microbatches)
    work_s = planned.parts["compute"]
    assert planned.parts["bubble"] / work_s == pytest.approx(
        (pipeline - 1) / microbatches, rel=0.03
    )
    each_s = work_s / microbatches
    order = schedule.one_f_one_b(pipeline, microbatches)
    simulated = schedule.simulate(
        order, forward_s=each_s / 3, backward_s=2 * each_s / 3
    )
    without_optimizer_s = planned.seconds - planned.parts["optimizer"]
    assert without_optimizer_s == pytest.approx(simulated.makespan_s, rel=0.03)
    halved = step(equal, cluster, Layout(pipeline=pipeline, interleave=2), microbatches)
    assert halved.parts["bubble"] == pytest.approx(
        planned.parts["bubble"] / 2, rel=0.05
    )


def test_a_ring_over_nodes_leaves_each_over_all_its_members_links():
    cluster = Cluster(A100, 64, inter=network(25e9))
    assert group_link(cluster, 8, 1) is cluster.inside
    assert group_link(cluster, 8, 8).bytes_per_s == pytest.approx(0.85 * 25e9)
    assert group_link(cluster, 64, 1).bytes_per_s == pytest.approx(8 * 0.85 * 25e9)


def test_matrix_products_are_never_above_the_best_published_rate():
    rate = rates(node().gpu, "bfloat16")
    flop_per_s = {n: 2 * n**3 / rate.matmul_s(n, n, n) for n in (64, 512, 4096, 32768)}
    assert list(flop_per_s.values()) == sorted(flop_per_s.values())
    assert (
        flop_per_s[32768] < 271.2e12
    )  # trainplan/data/published/matmul_efficiency.csv
    assert flop_per_s[512] < 0.3 * flop_per_s[32768]


def test_context_ranks_split_activations_and_pay_for_keys():
    one, eight = (
        step(LONG, node(), Layout(8 // n, zero=3, context=n), 8) for n in (1, 8)
    )
    kept = "kept for the backward pass"
    exchange = "context and expert communication"
    assert eight.memory[kept] == pytest.approx(one.memory[kept] / 8)
    # for weights they are data ranks
    assert eight.memory["parameters"] == one.memory["parameters"]
    # the same work a step, in 8 micro-batches of an eighth
    assert eight.parts["compute"] == pytest.approx(one.parts["compute"], rel=0.05)
    assert eight.parts[exchange] > one.parts[exchange] == 0


def test_experts_count_once_for_flop_and_all_for_memory():
    assert MIXTURE.params / 1e9 == pytest.approx(30.5, abs=0.1)
    used = MIXTURE.params - MIXTURE.layers * (
        MIXTURE.block_params - MIXTURE.used_params
    )
    assert used / 1e9 == pytest.approx(3.3, abs=0.1)  # Qwen3 technical report: 30B-A3B
    # its model card
    assert model("GPT-OSS-120B").params / 1e9 == pytest.approx(116.8, abs=1)
    apart, whole = (
        step(MIXTURE, node(), Layout(8, zero=1, expert=n), 64) for n in (8, 1)
    )
    in_experts = MIXTURE.layers * MIXTURE.experts * MIXTURE.expert_params
    less_bytes = whole.memory["parameters"] - apart.memory["parameters"]
    assert less_bytes == pytest.approx(2 * in_experts * 7 / 8)
    # one rank holds each expert
    assert apart.parts["data communication"] < whole.parts["data communication"]


def test_an_all_to_all_sends_every_token_top_k_times_there_and_back():
    n_bytes = 2 * MIXTURE.seq * MIXTURE.top_k * MIXTURE.hidden * 2 * 7 / 8
    cluster = node(8, intra=Link(0, 1e9))
    share = rank_share(MIXTURE, cluster, Layout(8, expert=8), 8)
    assert communication(share).experts == pytest.approx(n_bytes / 1e9)


def test_an_inner_stage_of_a_pipeline_sends_twice_a_micro_batch_and_its_ends_once():
    shape = dataclasses.replace(GPT3, vocab=1)  # so that no head slows the last stage
    ends, inner = (
        step(shape, node(p), Layout(pipeline=p, overlap=False), 8) for p in (2, 4)
    )
    part = "pipeline communication"
    assert inner.parts[part] == pytest.approx(2 * ends.parts[part])


def test_dropout_in_attention_takes_its_memory_traffic():
    without, with_dropout = (
        step(dataclasses.replace(OLD, dropout=dropout), node(1), Layout(), 8)
        for dropout in (False, True)
    )
    elements = 8 * OLD.layers * OLD.heads * OLD.seq**2
    byte_s = 1 / rates(node(1).gpu, "bfloat16").bytes_per_s
    # the masks after attention and the MLP, in both passes
    masks_s = 8 * OLD.layers * OLD.seq * OLD.hidden * 3 * 2 * byte_s
    more_s = with_dropout.parts["compute"] - without.parts["compute"]
    assert more_s == pytest.approx(2 * 5 * elements * byte_s + masks_s)


@pytest.mark.parametrize(
    ("ranks", "stride", "axes", "hops"),
    [
        (64, 1, 3, 9),
        (16, 4, 2, 6),
        (4, 16, 1, 3),
        (2, 1, 0.5, 1),  # no ring, so each link carries one direction
        (2, 2, 0.5, 2),  # a ring, whose wires two groups share
    ],
)
def test_a_group_has_the_links_of_the_axes_that_it_spans(ranks, stride, axes, hops):
    slice_of_64 = Cluster("TPU v5p (chip)", 64, gpus_per_node=64, torus=(4, 4, 4))
    whole = slice_of_64.inside
    link = group_link(slice_of_64, ranks, stride)
    # of 1,200 GB/s in both directions
    assert whole.bytes_per_s == pytest.approx(0.9 * 600e9)
    assert link.bytes_per_s == pytest.approx(axes / 3 * whole.bytes_per_s)
    assert (ranks - 1) * link.alpha_s == pytest.approx(hops * whole.alpha_s)


# --- what does not fit, and bad input ---


def test_what_does_not_fit_says_by_how_much_and_what_makes_it_smaller():
    cluster = Cluster(A100, 64, reserve=0.08)
    large = step(model("Llama-2-70B"), cluster, Layout(64), 512)
    words = (
        r"68.5 GiB a GPU \(74.5 GiB less 8% in reserve\), .* over; .* optimizer state,"
        r" .* and ZeRO 1"
    )
    with pytest.raises(LayoutError, match=words):
        require_fit(large)
    with pytest.raises(LayoutError, match=r"leanest .* TiB over"):
        best_layout(model("GPT 1T"), node(8), 8)
    small = step(model("Llama-2-7B"), node(8), Layout(8, zero=3), 64)
    assert require_fit(small) is small


@pytest.mark.parametrize(
    ("layout", "batch", "words"),
    [
        (Layout(8, 8, 2), 64, "got 8 x 8 x 2 = 128. .*take data = 4"),
        (
            Layout(1, 64, 1),
            64,
            "Expected tensor to divide the 96 heads, got 64. The nearest: 48 or 96",
        ),
        (Layout(1, 4, 16, 7), 64, "16 stages x 7 chunks, and there are 96 layers"),
        (
            Layout(64, zero=3, shard=24),
            64,
            "Expected shard to divide the 64 data and context ranks",
        ),
        (
            Layout(64, schedule="DualPipe"),
            64,
            "Expected an even number of stages with DualPipe",
        ),
        (Layout(1, 4, 16, 2, schedule="ZB-V"), 64, "Expected interleave = 1 with ZB-V"),
        (Layout(64, micro_batch=2), 65, "= 128 divide, got 65. The nearest: 128"),
        (Layout(64, interleave=2), 64, "without a pipeline"),
        (Layout(2, 4, 8, 2), 6, "multiples of the 8 stages"),
    ],
)
def test_layouts_that_cannot_be(layout, batch, words):
    with pytest.raises(LayoutError, match=words):
        step(GPT3, node(64), layout, batch)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: Layout(zero=4),
            ValueError,
            "Expected zero to be one of 0, 1, 2, 3, got 4",
        ),
        (lambda: Layout(recompute="ful"), ValueError, "nearest is 'full'"),
        (
            lambda: Cluster("A100 SXM4 90GB", 8),
            gpufacts.UnknownDevice,
            "A100 SXM4 80GB",
        ),
        (lambda: node(12), ValueError, "The nearest are 8 and 16"),
        (
            lambda: Transformer(2, 96, 12, kv_heads=5),
            ValueError,
            "divide the 12 heads",
        ),
        (lambda: model("GPT-5"), ValueError, "The nearest are GPT"),
        (lambda: published_steps("megatorn"), ValueError, "'megatron'"),
        (
            lambda: best_layout(costs.network("SimpleCNN"), node(), 8),
            TypeError,
            "Transformer",
        ),
        (lambda: step(OLD, node(), Layout(8), 8).train_s(-1), ValueError, "tokens"),
        (
            lambda: step(OLD, Cluster("Tesla P100 SXM2 16GB", 8), Layout(8), 8),
            LayoutError,
            "peak in bfloat16",
        ),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    ("device", "node_gpus", "inside", "between"),
    [
        ("MI325X", 8, "448 GB/s a direction", "InfiniBand NDR"),
        ("MI355X", 8, "536 GB/s a direction", "InfiniBand NDR"),
        ("Gaudi 2", 8, "21 Ethernet ports, 262 GB/s", "3 Ethernet ports, 37.5 GB/s"),
        ("Gaudi 3", 8, "21 Ethernet ports, 525 GB/s", "3 Ethernet ports, 75.0 GB/s"),
        ("Trainium 2", 16, "512 GB/s a direction", "EFA, 25 GB/s"),
        ("A800", 8, "200 GB/s a direction", "InfiniBand NDR"),
        ("H20", 8, "NVLink 4", "InfiniBand NDR"),
        ("p5en.48xlarge", 8, "NVLink 4", "InfiniBand NDR"),
        ("GB200 NVL72", 72, "900 GB/s a direction", "InfiniBand NDR"),
    ],
)
def test_a_node_of_each_device_has_its_size_and_links(
    device, node_gpus, inside, between
):
    cluster = Cluster(device, 144)
    assert cluster.gpus_per_node == node_gpus
    assert inside in str(cluster)
    assert between in str(cluster)
    llama = model("llama3.2-1b")
    planned = step(llama, cluster, Layout(data=144, zero=3), 288)
    assert 0.1 < planned.mfu < 0.8
    is_nvidia = cluster.gpu.vendor == "NVIDIA" and device != "H20"
    assert ("compared on this device" in str(planned.outside)) != is_nvidia
    # a Cluster that is written down again is the same one
    assert dataclasses.replace(cluster, gpus=node_gpus).gpus_per_node == node_gpus


@pytest.mark.parametrize(
    ("device", "peaks"),
    [
        ("GB10", "float32, float4"),
        ("RTX PRO 6000 Blackwell Server Edition", "float32"),
        ("V100 32GB", "float64, float32, float16"),
    ],
)
def test_a_device_without_a_peak_in_bfloat16_is_refused_in_words(device, peaks):
    with pytest.raises(LayoutError, match=f"peak in bfloat16.* peaks in {peaks}"):
        step(model("llama3.2-1b"), Cluster(device, 1), Layout(), 1)


def test_a_v100_is_planned_in_float16():
    layout = Layout(dtype="mixed float16")
    planned = step(model("llama3.2-1b"), Cluster("V100 32GB", 1), layout, 1)
    assert 0.3 < planned.mfu < 0.7


def test_values_say_what_they_are():
    layout = Layout(2, 4, 8, 2, 3)
    assert (
        repr(layout)
        == "2 data x 4 tensor x 8 pipeline, 2 chunks a rank, ZeRO-3 (FSDP), micro-batch"
        " 1, recompute none"
    )
    assert str(GPT3).startswith("GPT-3 175B: 175 billion parameters")
    assert "16 x A100 SXM4 80GB (80.0 GB), NVLink 3" in str(node(16))
    assert "InfiniBand HDR, 25 GB/s a GPU" in str(node(16))
    assert "PCIe 4.0" in str(Cluster("A100 PCIe 80GB", 8))
    planned = step(GPT3, node(64), Layout(1, 8, 8, interleave=3), 64)
    assert "MFU" in str(planned)
    assert "optimizer" in planned._repr_html_()
    assert planned.train_s(300e9) == pytest.approx(300e9 / planned.tokens_per_s)
