"""Write trainplan/data/published/planner_steps.csv: the published runs of all
tables, in the planner's own words.

One function a table says what its rows don't print, and where that was found.

usage: python -m trainplan_published.planner_steps
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpufacts import Device, find
from trainplan._units import GIGA, TERA
from trainplan.cluster.constants import EFA_HOP_S, NETWORK_ALPHA_S, NETWORK_SHARE
from trainplan.cluster.hardware import Cluster, network
from trainplan.cluster.layout import Layout
from trainplan.cluster.software import SOFTWARE, Software
from trainplan.costs.transformers import Transformer, model
from trainplan.csv_tables import DATA
from trainplan_published import table

Row = Mapping[str, str]


@dataclass(frozen=True)
class PublishedStep:
    """A published run, and what was published of it: tokens a second and GPU, or in one
    table GB.
    """

    label: str
    model: Transformer
    cluster: Cluster
    layout: Layout
    batch: int  # sequences of a step
    published: float


def _counts(row: Row, *columns: str) -> list[int]:
    return [int(row[column] or 1) for column in columns]


_GIB = 2**30 / GIGA
_A100 = "A100 SXM4 80GB"
_H100 = "H100 SXM5 80GB"
# torchtitan's H100 (benchmarks/llama3_h100_202412_torchtitan.md)
_TITAN_DEVICE = dataclasses.replace(
    find(_H100),
    name="H100 SXM5 96GB HBM2e",
    memory_bytes=96 * GIGA,
    bandwidth_bytes_per_s=2.4 * TERA,
    tdp_w=500.0,
)

# ---- Megatron-LM ----

# Sequences a micro-batch and chunks a pipeline rank, by billions of parameters, which
# table 1 doesn't print. Source: NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh
# (commit 79a3bb6b); overlapped gradients where DDP=torch.
_SC21 = {
    "1.7": (16, 1),
    "3.6": (16, 1),
    "7.5": (16, 1),
    "18.4": (8, 1),
    "39.1": (4, 1),
    "76.1": (2, 3),
    "145.6": (2, 2),
    "310.1": (1, 2),
    "529.6": (1, 3),
    "1008.0": (1, 1),
}


def narayanan_flop_per_token(model: Transformer) -> float:
    """96 l h² (1 + s/6h + V/16lh): FLOP of a token where the blocks' forward pass runs
    twice.

    Source: Narayanan et al. 2021, appendix, equation 3.
    """
    layers = model.layers
    hidden = model.hidden
    return (
        96
        * layers
        * hidden**2
        * (1 + model.seq / 6 / hidden + model.vocab / 16 / layers / hidden)
    )


def megatron() -> Iterator[PublishedStep]:
    """Narayanan et al. 2021, table 1: TFLOP/s a GPU, everything recomputed, attention
    unfused, 80 GB A100s.
    """
    for row in table("megatron_table1"):
        micro_batch, chunks = _SC21[row["params_b"]]
        layers, hidden, heads, vocab, seq = _counts(
            row, "layers", "hidden", "heads", "vocab", "seq_len"
        )
        shape = Transformer(
            layers, hidden, heads, vocab, seq, fused_attention=False, dropout=True
        )
        data, tensor, pipeline, gpus, batch = _counts(
            row, "dp_derived", "tp", "pp", "gpus", "batch_seqs"
        )
        layout = Layout(
            data,
            tensor,
            pipeline,
            chunks,
            0,
            micro_batch,
            "full",
            False,
            "mixed float16",
            overlap=pipeline == 1,
            software=SOFTWARE["Megatron-LM 2021"],
        )
        published = (
            float(row["tflops_per_gpu"]) * TERA / narayanan_flop_per_token(shape)
        )
        yield PublishedStep(
            f"{row['params_b']}B", shape, Cluster(_A100, gpus), layout, batch, published
        )


def selective() -> Iterator[PublishedStep]:
    """Korthikanti et al. 2022, table 5: steps a second, recomputing all or the scores
    alone, 80 GB A100s.
    """
    for row in table("selective_recompute"):
        shape = dataclasses.replace(
            model(row["model"]), seq=2048, fused_attention=False, dropout=True
        )
        gpus, tensor, pipeline, chunks, batch = _counts(
            row, "gpus", "tp", "pp", "chunks", "global_batch_seqs"
        )
        layout = Layout(
            1,
            tensor,
            pipeline,
            chunks,
            0,
            int(row["micro_batch"]),
            "full" if row["recompute"] == "full" else "selective",
            row["sequence_parallel"] == "yes",
            "mixed float16",
            overlap=pipeline == 1,
            software=SOFTWARE["Megatron-LM"],
        )
        label = f"{row['model']}, recompute {row['recompute']}"
        published = batch * shape.seq / float(row["iteration_s"]) / gpus
        yield PublishedStep(
            label, shape, Cluster(_A100, gpus), layout, batch, published
        )


def zero_bubble(memory: bool = False) -> Iterator[PublishedStep]:
    """Qi et al. 2024, table 4, 1F1B plain and interleaved: samples a second and GPU, or
    GB, 80 GB A100s.

    Of 32,000 tokens in the vocabulary, which the table doesn't print, the models have
    the sizes that they are called by.
    """
    for row in table("zero_bubble_throughput_small"):
        if not row["schedule"].startswith("1F1B"):
            continue
        layers, hidden, heads, seq, stages = _counts(
            row, "layers", "hidden", "heads", "seq_len", "pp"
        )
        shape = Transformer(
            layers, hidden, heads, 32_000, seq, fused_attention=False, dropout=True
        )
        layout = Layout(
            pipeline=stages,
            interleave=(layers + 2) // stages if row["schedule"] == "1F1B-I" else 1,
            micro_batch=int(row["micro_batch"]),
            dtype="mixed bfloat16 with float32 gradients",
            overlap=False,
            software=SOFTWARE["Megatron-LM"],
        )
        batch = layout.micro_batch * int(row["microbatches_m"])
        label = (
            f"{row['model']}, {row['schedule']}, {row['microbatches_m']} micro-batches"
        )
        published = (
            float(row["memory_gb"])
            if memory
            else seq * float(row["samples_per_gpu_per_s"])
        )
        yield PublishedStep(
            label, shape, Cluster(_A100, int(row["gpus"])), layout, batch, published
        )


# ---- PyTorch ----


def llm_foundry(name: str) -> Iterator[PublishedStep]:
    """MosaicML llm-foundry: tokens a second and GPU of MPT models, FSDP, on A100s or
    H100s.

    RoCE of 1,600 Gbit/s a node of A100s, InfiniBand of 3,200 Gbit/s one of H100s. The
    40 GB runs used torch 2.0.
    """
    for row in table(name):
        layers, hidden, heads, vocab, seq = _counts(
            row, "layers", "d_model", "heads", "vocab", "seq_len"
        )
        gpus = int(row["gpus"])
        kind = row["gpu"]
        device = _H100 if kind.startswith("h100") else f"A100 SXM4 {kind[-4:-2]}GB"
        layout = Layout(
            gpus,
            zero=3 if row["sharding"] == "FULL_SHARD" else 2,
            micro_batch=int(row["micro_batch"]),
            recompute="full" if row["activation_checkpointing"] == "True" else "none",
            dtype=("mixed " if row["mp_mode"] == "PURE" else "autocast ")
            + ("float8" if row["precision"] == "amp_fp8" else "bfloat16"),
            software=SOFTWARE[
                "llm-foundry, torch 2.0" if kind == "a100_40gb" else "llm-foundry"
            ],
        )
        cluster = Cluster(
            device, gpus, inter=network((50 if device == _H100 else 25) * GIGA)
        )
        label = f"{row['model']}, {seq:,} tokens, {gpus} x {device[10:]}"
        shape = Transformer(layers, hidden, heads, vocab, seq)
        published = float(row["tokens_per_s_per_gpu"])
        yield PublishedStep(
            label, shape, cluster, layout, int(row["global_batch_seqs"]), published
        )


def torchtitan(memory: bool = False) -> Iterator[PublishedStep]:
    """torchtitan: tokens a second and GPU, or GB reserved, of Llamas; FSDP 2, tensor,
    pipeline, context ranks, FP8.

    Its H100s have 96 GB of HBM2e at 2.4 TB/s and 500 W. Where the table doesn't print
    them: 8,192 tokens a sequence, selective recomputation (its default), as many
    micro-batches as stages (its default).
    """
    names = {"Llama 3.1": "Llama-3", "Llama 3": "Llama-3", "Llama 2": "Llama-2"}
    for row in table("torchtitan"):
        if (
            not row["memory_gib" if memory else "tokens_per_s_per_gpu"]
            or not row["local_batch"]
        ):
            continue
        family, _, size = row["model"].rpartition(" ")
        shape = dataclasses.replace(
            model(f"{names[family]}-{size}"), seq=int(row["seq_len"] or 8192)
        )
        gpus, data, tensor, pipeline, context, local = _counts(
            row, "gpus", "dp_shard", "tp", "pp", "cp", "local_batch"
        )
        eight = row["float8"] not in ("", "no")
        software = SOFTWARE["torch eager" if row["compile"] == "no" else "torch"]
        software = dataclasses.replace(
            software,
            async_tensor="all" if row["async_tp"] == "yes" else "no",
            float8_gather=eight,
            reshard=pipeline == 1,
            # of 2025; in 2024 torchtitan compiled blocks alone
            fused_loss=row["gpu"].startswith("H200"),
        )
        layout = Layout(
            data,
            tensor,
            pipeline,
            zero=3,
            micro_batch=max(local // pipeline, 1) if pipeline > 1 else local,
            recompute="full" if row["activation_checkpointing"] == "full" else "half",
            dtype="autocast float8" if eight else "autocast bfloat16",
            context=context,
            software=software,
        )
        cluster = Cluster(*_titan_device(row["gpu"], gpus))
        label = (
            f"{row['model']}, {row['parallelism']}, {shape.seq:,} tokens, {gpus} x"
            f" {row['gpu'][:4]}{', FP8' * eight}"
        )
        published = (
            _GIB * float(row["memory_gib"])
            if memory
            else float(row["tokens_per_s_per_gpu"])
        )
        yield PublishedStep(label, shape, cluster, layout, local * data, published)


def _titan_device(text: str, gpus: int) -> tuple[Device | str, int]:
    if text.startswith("A100"):
        return _A100, gpus
    if text.startswith("H200"):
        return "H200 SXM", gpus
    return _TITAN_DEVICE, gpus


def nanotron(memory: bool = False) -> Iterator[PublishedStep]:
    """nanotron: MFU in % of the best layout found for each size and number of H100
    nodes (Hugging Face 2025), or GB.

    Its FLOP are those of blocks, of all of attention's square and of the head
    (get_flops, num_layers to vocab_size). Gradients are summed and exchanged in float32
    (scripts/scaling_benchmarks.py, ACCUMULATE_GRAD_IN_FP32), in
    DistributedDataParallel's hook behind the backward pass
    (optim/gradient_accumulator.py). Memory is rank 0's, so of the first stage, in units
    of 2^30 bytes (create_table_log in its trainer's logs). Its cluster is AWS's p5 (The
    Ultra-Scale Playbook).
    """
    for row in table("nanotron"):
        layers, hidden, heads, inner = _counts(
            row, "layers", "hidden", "heads", "intermediate"
        )
        shape = Transformer(
            layers,
            hidden,
            heads,
            int(row["vocab"]),
            int(row["seq_len"]),
            inner,
            gated=True,
        )
        gpus, data, tensor, pipeline = _counts(row, "gpus", "dp", "tp", "pp")
        layout = Layout(
            data,
            tensor,
            pipeline,
            zero=1 if row["zero_stage"] == "1" else 0,
            micro_batch=int(row["micro_batch"]),
            dtype="mixed bfloat16 with float32 gradients",
            software=SOFTWARE["nanotron"],
        )
        label = f"{row['model_params_b']}B, {gpus} GPUs, {data} x {tensor} x {pipeline}"
        flop = shape.flop_per_token - 6 * shape.embedding_params
        published = float(row["mfu_pct"]) / 100 * find(_H100).peaks["bfloat16"] / flop
        published = _GIB * float(row["memory_gb"]) if memory else published
        cluster = Cluster(_H100, gpus, inter=network(50 * GIGA, hop_s=EFA_HOP_S))
        yield PublishedStep(
            label, shape, cluster, layout, int(row["global_batch_seqs"]), published
        )


# ---- NVIDIA's recipes ----

_GPT = Transformer(24, 4096, 32, 50_304, 2048)
_NEMO = {
    "GPT3-5B": _GPT,
    "GPT3-20B": dataclasses.replace(_GPT, layers=44, hidden=6144, heads=48),
    "GPT3-175B": model("GPT-3 175B"),
    "Nemotron-8B": dataclasses.replace(
        _GPT, layers=32, vocab=256_000, feed_forward=16_384
    ),
    "Nemotron-340B": Transformer(96, 18_432, 96, 256_000, 4096, 73_728, 8),
}
_BRIDGE = {
    "GPT OSS 120B": "GPT-OSS-120B",
    "LLAMA3_8B": "Llama-3-8B",
    "LLAMA3_70B": "Llama-3-70B",
    "LLAMA3.1_405B": "Llama-3-405B",
    "Qwen3_30B_a3B": "Qwen3-30B-A3B",
    "Qwen3_235B_a22B": "Qwen3-235B-A22B",
}
_BRIDGE_GPUS = {
    "H100": (_H100, 8),
    "B200": ("B200 SXM", 8),
    "GB200": ("GB200 (per Blackwell GPU)", 64),
}
_BRIDGE_DTYPES = {
    "BF16": "mixed bfloat16",
    "FP8-MX": "mixed mxfp8",
    "NVFP4": "mixed nvfp4",
}
_DEEPSEEK = model("DeepSeek-V3")
_ULTRA_GPUS = {
    "B300": ("B300 SXM", 8),
    "GB300": ("GB300 (per Blackwell Ultra GPU)", 64),
}
# Rows whose tokens went to experts by plain all-to-alls, without CUDA graphs of
# attention, and those whose all-to-alls overlapped, by release, model and GPU, where
# the release's other rows differ. Source: NVIDIA-NeMo/Megatron-Bridge,
# scripts/performance/configs, *_workload_base_configs.py, 25.11 (commit 97ad8cc6),
# 26.02 (c0b9a000, with 4a645075 and 0ec1df78 for 26.02.01) and 26.04 (7260d621).
_ALL_TO_ALL = {
    ("25.11", "Qwen3_30B_a3B", "B200"),
    ("25.11", "Qwen3_30B_a3B", "H100"),
    ("25.11", "Qwen3_235B_a22B", "B200"),
    ("25.11", "Qwen3_235B_a22B", "H100"),
    ("25.11", "DeepSeekV3 (w/ MTP)", "B200"),
    ("26.02", "Qwen3_30B_a3B", "B200"),
    ("26.02", "Qwen3_30B_a3B", "H100"),
}
_WITHOUT_GRAPHS = {
    ("26.02.01", "Qwen3_30B_a3B", "H100"),
    ("26.04", "Qwen3_30B_a3B", "H100"),
}
_OVERLAPPED = {
    ("25.11", "Qwen3_30B_a3B", "H100"),
    ("25.11", "Qwen3_235B_a22B", "B200"),
    ("25.11", "Qwen3_235B_a22B", "H100"),
    ("26.02", "Qwen3_30B_a3B", "H100"),
}


def nemo() -> Iterator[PublishedStep]:
    """NVIDIA NeMo 24.07 and 24.12, and Megatron-LM's example: tokens a second and GPU,
    FP8, H100s.
    """
    for row in table("nemo"):
        if row["task"] == "pre-training":
            shape = _NEMO.get(row["model"]) or model(
                row["model"].replace("LLAMA", "Llama-")
            )
            yield _recipe(row, shape, _H100, 8, int(row["gbs"]), int(row["mbs"]))


def megatron_bridge() -> Iterator[PublishedStep]:
    """NVIDIA Megatron Bridge 25.11: tokens a second and GPU, FP8 and bfloat16, dense
    models and mixtures of experts.

    Left out: DeepSeek-V3 and GB300, to which nothing is fitted. 64 GB200 share an
    NVLink switch.
    """
    for row in table("megatron_bridge"):
        is_fitted = row["model"] in _BRIDGE and row["gpu"] in _BRIDGE_GPUS
        if row["release"] == "25.11" and is_fitted:
            yield _bridge(row, model(_BRIDGE[row["model"]]))


def megatron_bridge_2509() -> Iterator[PublishedStep]:
    """NVIDIA Megatron Bridge 25.09: FP8 with a scale a tensor; experts that take their
    mean share of tokens and drop the rest, but for one row.

    By the table's FLOP a token DeepSeek-V3 predicts one token ahead.
    """
    for row in table("megatron_bridge"):
        if row["release"] != "25.09":
            continue
        if row["model"] == "DeepSeekV3":
            shape = dataclasses.replace(_DEEPSEEK, ahead=1)
        else:
            shape = model(_BRIDGE[row["model"]])
        if "dropped" in row["notes"]:
            shape = dataclasses.replace(shape, capacity=1)
        yield _bridge(row, shape)


def megatron_bridge_2026() -> Iterator[PublishedStep]:
    """NVIDIA Megatron Bridge 26.02 to 26.04: those of three models."""
    for row in table("megatron_bridge_2026"):
        yield _bridge(row, model(_BRIDGE[row["model"]]))


def _bridge(row: Row, shape: Transformer) -> PublishedStep:
    device, node = (_BRIDGE_GPUS | _ULTRA_GPUS)[row["gpu"]]
    made = _recipe(
        row, shape, device, node, *_counts(row, "global_batch_seqs", "micro_batch")
    )
    if not shape.experts:
        return made
    software = _expert_habits(row, made.layout.software)
    layout = dataclasses.replace(made.layout, software=software)
    return dataclasses.replace(made, layout=layout)


def _expert_habits(row: Row, software: Software) -> Software:
    """How a row's recipe brings tokens to experts.

    In 25.09 by DeepEP on H100 unless tokens are dropped, without CUDA graphs
    (scripts/performance/run_script.py, commit fa0315ae).
    """
    key = (row["release"], row["model"], row["gpu"])
    if row["release"] == "25.09":
        is_plain = "dropped" in row["notes"]
        has_graphs = False
    else:
        is_plain = key in _ALL_TO_ALL
        has_graphs = not is_plain and key not in _WITHOUT_GRAPHS
    return dataclasses.replace(
        software,
        dispatch="all-to-all" if is_plain else "HybridEP",
        graphs=has_graphs,
        expert_overlap=key in _OVERLAPPED,
    )


def machines_of_2026() -> Iterator[PublishedStep]:
    """Runs to which no constant was fitted: DeepSeek-V3 and GB300 of Megatron Bridge,
    LoRA, and two whole trainings.

    LoRA's rank isn't printed: 32. Llama 3 405B (Llama team 2024, table 4): TFLOP/s a
    GPU, taken to count attention's full square; chunks of one layer, which the paper
    doesn't print, and the habits of torch. DeepSeek-V3 (DeepSeek-AI 2024, table 1 and
    sections 3.2 and 4.2): 2,664 thousand GPU hours for 14.8e12 tokens; one sequence a
    micro-batch, which the paper does not print.
    """
    for row in table("megatron_bridge"):
        if row["release"] != "25.11":
            continue
        if row["model"].startswith("DeepSeekV3"):
            yield _bridge(
                row, dataclasses.replace(_DEEPSEEK, ahead=int("w/ MTP" in row["model"]))
            )
        elif row["gpu"] == "GB300":
            yield _bridge(row, model(_BRIDGE[row["model"]]))
    for row in table("nemo"):
        if row["model"].startswith("LoRA"):
            shape = dataclasses.replace(
                model(row["model"].replace("LoRA LLAMA", "Llama-")), adapters=32
            )
            yield _recipe(row, shape, _H100, 8, int(row["gbs"]), int(row["mbs"]))
    llama = model("Llama-3-405B")
    for data, tflops in ((64, 430), (128, 400)):
        layout = Layout(data, 8, 16, 8, zero=1, software=SOFTWARE["torch"])
        label = f"Llama 3 405B, {layout.gpus:,} x H100, BF16"
        published = tflops * TERA / llama.flop_per_token
        yield PublishedStep(
            label, llama, Cluster(_H100, layout.gpus), layout, 2048, published
        )
    layout = Layout(
        128,
        pipeline=16,
        expert=64,
        zero=1,
        schedule="DualPipe",
        dtype="mixed float8",
        software=SOFTWARE["DeepSeek"],
    )
    cluster = Cluster("H800 SXM5 80GB", layout.gpus)
    hours = 2.664e6
    shape = dataclasses.replace(_DEEPSEEK, ahead=1)
    yield PublishedStep(
        "DeepSeek-V3, 2,048 x H800, FP8",
        shape,
        cluster,
        layout,
        15_360,
        14.8e12 / hours / 3600,
    )


def _recipe(
    row: Row, shape: Transformer, device: str, node: int, batch: int, micro_batch: int
) -> PublishedStep:
    gpus, tensor, pipeline, context, chunks, expert = _counts(
        row, "gpus", "tp", "pp", "cp", "vp", "ep"
    )
    seq = int(row["seq_len"])
    fsdp = row["fsdp"] not in ("", "0")
    layout = Layout(
        gpus // tensor // pipeline // context,
        tensor,
        pipeline,
        chunks if pipeline > 1 else 1,
        3 if fsdp else 1,
        micro_batch,
        dtype=_BRIDGE_DTYPES.get(row["precision"], "mixed float8"),
        context=context,
        expert=expert,
        software=SOFTWARE["Transformer Engine"],
    )
    label = (
        f"{row['release']} {row['model']}, {gpus} x {device[:5].strip()},"
        f" {row['precision']}"
    )
    cluster = Cluster(device, gpus, min(node, gpus))
    shape = dataclasses.replace(shape, seq=seq)
    return PublishedStep(
        label, shape, cluster, layout, batch, float(row["tokens_per_s_per_gpu"])
    )


# ---- memory ----


def memory_of_others() -> Iterator[PublishedStep]:
    """GB of steps to which nothing was fitted: of one GPU, the fullest or rank 0."""
    for row in table("memory"):
        if row["published_gb"]:
            yield memory_step(row)


def memory_step(row: Row) -> PublishedStep:
    """A row of memory.csv; one that ran out of memory published NaN GB."""
    gpus = int(row["gpus"])
    device: Device | str = row["device"]
    if device == _TITAN_DEVICE.name:
        device = _TITAN_DEVICE
    software = SOFTWARE[row["software"]]
    if row["habits"]:
        software = dataclasses.replace(software, **json.loads(row["habits"]))
    return PublishedStep(
        row["label"],
        dataclasses.replace(model(row["model"]), seq=int(row["seq"])),
        Cluster(device, gpus, min(gpus, 8)),
        Layout(**json.loads(row["layout"]), software=software),
        int(row["batch"]),
        float(row["published_gb"] or "nan"),
    )


# ---- TPUs ----

# A chip's link to the data center's network, of which multislice training has 50 Gbit/s
# on v5p and 6.4 Tbit/s a pod of 256 on v5e; on v6e 4 x 200 Gbit/s for 8 chips. Sources:
# Google's TPU v5p, v5e and v6e pages, https://docs.cloud.google.com/tpu/docs/v5p, /v5e,
# /v6e, which also have the shapes of slices.
_TPUS = {
    "v5p": ("TPU v5p (chip)", 6.25 * GIGA), "v5e": ("TPU v5e (chip)", 3.125 * GIGA),
    "v6e": ("TPU v6e Trillium (chip)", 12.5 * GIGA),
}  # fmt: skip
_SLICES = {
    "v5p-128": (4, 4, 4),
    "v5p-256": (4, 4, 8),
    "v5p-512": (4, 8, 8),
    "v5p-1024": (8, 8, 8),
    "v5p-2048": (8, 8, 16),
    "v5p-4096": (8, 16, 16),
    "v5e-256": (16, 16),
    "v6e-256": (16, 16),
}


def _maxtext_shape(scale: int) -> Transformer:
    """The model of a `global_parameter_scale`: heads and MLP, then width, then layers
    double in turn.

    Source: AI-Hypercomputer/maxtext, src/maxtext/configs/types.py,
    get_individual_scales, and base.yml.
    """
    thirds, rest = divmod(scale.bit_length() - 1, 3)
    inner = 2 ** (thirds + (rest > 0))
    outer = 2 ** (thirds + (rest > 1))
    return Transformer(
        16 * 2**thirds,
        2048 * outer,
        16 * inner,
        32_000,
        feed_forward=7168 * inner,
        head_dim=128,
        gated=True,
    )


def maxtext() -> Iterator[PublishedStep]:
    """MaxText on TPUs: TFLOP/s or tokens a second and chip, FSDP in a slice, tensor
    ranks, data ranks between slices.

    Left out: slices whose shape has no wraparound or isn't printed. Its FLOP are those
    of a Transformer without the embedding's lookups, and of all of attention's square
    (docs/reference/performance_metrics.md). Products are kept under "minimal"; whatever
    keeps less is taken as recomputing all.
    """
    for row in table("maxtext_tpu"):
        if (torus := _SLICES.get(row["slice"])) is None:
            continue
        device, network_bytes_per_s = _TPUS[row["tpu"]]
        chips, slices, tensor, fsdp = _counts(
            row, "chips_derived", "n_slices", "tp", "fsdp"
        )
        shape = (
            _maxtext_shape(int(row["params_b"]))
            if not row["model"]
            else model(row["model"])
        )
        shape = dataclasses.replace(shape, seq=int(row["seq_len"]))
        data = chips // tensor
        per_chip = int(row["per_device_batch"])
        layout = Layout(
            data,
            tensor,
            zero=3,
            micro_batch=per_chip * tensor,
            shard=fsdp if slices > 1 else None,
            recompute="none" if row["remat"] == "minimal" else "full",
            dtype="mixed bfloat16",
            software=SOFTWARE["MaxText"],
        )
        cluster = Cluster(
            device,
            chips,
            chips // slices,
            inter=network(network_bytes_per_s),
            torus=torus,
        )
        flop = shape.flop_per_token - 6 * shape.embedding_params
        speed = float(
            row["tokens_per_s_per_chip"] or float(row["tflops_per_chip"]) * TERA / flop
        )
        label = f"{row['model'] or row['params_b'] + 'B'}, {slices} x {row['slice']}"
        yield PublishedStep(label, shape, cluster, layout, per_chip * chips, speed)


TABLES: Mapping[str, tuple[Callable[[], Iterator[PublishedStep]], str]] = {
    "megatron": (megatron, "Narayanan et al. 2021, table 1"),
    "selective recomputation": (selective, "Korthikanti et al. 2022, table 5"),
    "zero bubble": (zero_bubble, "Qi et al. 2024, table 4"),
    "llm-foundry": (
        lambda: llm_foundry("llmfoundry_throughput_a100"),
        "mosaicml/llm-foundry, benchmarking, A100",
    ),
    "llm-foundry H100": (
        lambda: llm_foundry("llmfoundry_throughput_h100"),
        "mosaicml/llm-foundry, benchmarking, H100",
    ),
    "torchtitan": (
        torchtitan,
        "pytorch/torchtitan, benchmarks and docs/performance.md",
    ),
    "nanotron": (nanotron, "huggingface/nanotron, docs/benchmark_summary.svg"),
    "nemo": (nemo, "NVIDIA NeMo, performance summaries 24.07 and 24.12"),
    "megatron bridge": (megatron_bridge, "NVIDIA Megatron Bridge, release 25.11"),
    "megatron bridge 25.09": (
        megatron_bridge_2509,
        "NVIDIA Megatron Bridge, release 25.09",
    ),
    "megatron bridge 2026": (
        megatron_bridge_2026,
        "NVIDIA Megatron Bridge, releases 26.02 to 26.04",
    ),
    "MaxText": (
        maxtext,
        (
            "AI-Hypercomputer/maxtext, configs/tpu, and AI-Hypercomputer/tpu-recipes,"
            " training/trillium"
        ),
    ),
    "machines of 2026": (
        machines_of_2026,
        "each label's: see trainplan_published/planner_steps.py, machines_of_2026",
    ),
    "zero bubble memory": (lambda: zero_bubble(memory=True), "Qi et al. 2024, table 4"),
    "torchtitan memory": (
        lambda: torchtitan(memory=True),
        "pytorch/torchtitan, benchmarks",
    ),
    "nanotron memory": (
        lambda: nanotron(memory=True),
        "huggingface/nanotron, docs/benchmark_summary.svg",
    ),
    "memory of others": (
        memory_of_others,
        "each row's: see trainplan_published/memory.csv",
    ),
}
UNITS = {
    "memory of others": "GB",
    "zero bubble memory": "GB",
    "torchtitan memory": "GB",
    "nanotron memory": "GB of the first stage",
}
COLUMNS = (
    "table",
    "label",
    "unit",
    "published",
    "batch",
    "model",
    "device",
    "cluster",
    "layout",
    "software",
    "source",
    "confidence",
)


def _changed(made: Any, *without: str) -> str:
    """The fields of a dataclass that aren't the defaults, as JSON."""
    changed = {}
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if field.name not in without and value != field.default:
            changed[field.name] = value
    return json.dumps(changed)


def text() -> str:
    """The file's text."""
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n")
    write.writerow(COLUMNS)
    for name, (rows, source) in TABLES.items():
        unit = UNITS.get(name, "tokens/s a GPU")
        for row in rows():
            gpu = row.cluster.gpu
            link = row.cluster.inter
            device = (
                {"name": gpu.name} if isinstance(row.cluster.device, str) else _own(gpu)
            )
            cluster: dict[str, object] = {
                "gpus": row.cluster.gpus,
                "gpus_per_node": row.cluster.gpus_per_node,
            }
            if row.cluster.torus is not None:
                cluster["torus"] = row.cluster.torus
            if link is not None:
                cluster["inter"] = round(link.bytes_per_s / NETWORK_SHARE)
                if (hop_s := link.alpha_s - NETWORK_ALPHA_S) > 0:
                    cluster["hop_s"] = round(hop_s, 9)
            write.writerow(
                (
                    name,
                    row.label,
                    unit,
                    f"{row.published:.6g}",
                    row.batch,
                    _changed(row.model, "name", "source"),
                    json.dumps(device),
                    json.dumps(cluster),
                    _changed(row.layout, "software"),
                    _changed(row.layout.software, "library"),
                    source,
                    "read from source text",
                )
            )
    return file.getvalue()


def _own(gpu: Device) -> dict[str, Any]:
    """A device by the one of gpufacts' table that it is like, and what differs."""
    like = next(
        device
        for device in (find(_A100), find(_H100), find("H200 SXM"))
        if device.sms == gpu.sms
    )
    names = ("memory_bytes", "bandwidth_bytes_per_s", "tdp_w")
    changed = {
        name: getattr(gpu, name)
        for name in names
        if getattr(gpu, name) != getattr(like, name)
    }
    return {"name": like.name, **changed}


if __name__ == "__main__":
    (DATA / "published" / "planner_steps.csv").write_text(text(), encoding="utf-8")
