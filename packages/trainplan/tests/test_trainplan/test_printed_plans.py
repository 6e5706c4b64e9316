"""The plan is the printed run: what a configuration says, read back and planned again,
takes the same bytes and seconds.
"""

import dataclasses
import itertools
import json
import math
import random
import re
import shlex
import tomllib

import pytest
import yaml

from trainplan.cluster import SOFTWARE, Cluster, best_layout, configuration, model, step
from trainplan.cluster.layout import Layout
from trainplan.csv_tables import rows
from trainplan.errors import LayoutError

MODELS = (
    *("Llama-3.1-8B", "Llama-3.1-70B", "Llama-2-13B", "Qwen3-32B", "Qwen3-1.7B"),
    *("Qwen3-30B-A3B", "Mixtral-8x7B", "Mistral-7B", "DeepSeek-V3", "GPT-3 175B"),
    *("GPT-OSS-20B", "Qwen2.5-72B", "Llama-3.2-1B", "Gemma-2-9B"),
)
CLUSTERS = (
    *(Cluster("H100 SXM5 80GB", gpus) for gpus in (8, 64, 128)),
    Cluster("B200 SXM", 64),
    Cluster("A100 SXM4 80GB", 128),
)
DTYPES = {
    "torchtitan": ("", "", "autocast float8", "bfloat16"),
    "Megatron-Core": (
        *("", "", "mixed bfloat16", "mixed float8", "mixed nvfp4"),
        *("mixed mxfp8 with float32 gradients", "mixed float16"),
    ),
    "nanotron": ("", "bfloat16"),
    "Trainer FSDP": ("", "float32"),
    "Trainer DeepSpeed": ("",),
    "TRL": ("", "float32"),
}


def searched(library, count):
    """Plans that a search finds, of many models, clusters, lengths and precisions."""
    draw = random.Random(f"printed plans of {library}")
    while count:
        shape = model(draw.choice(MODELS))
        if draw.random() < 0.3:
            shape = dataclasses.replace(shape, seq=draw.choice((2048, 32_768)))
        cluster = draw.choice(CLUSTERS)
        software = SOFTWARE[library]
        dtype = draw.choice(DTYPES[library])
        try:
            best = best_layout(shape, cluster, 512, dtype=dtype, software=software)
        except LayoutError:
            continue
        for planned in (best.step, *best.runners_up[:1]):
            if "to be added" not in configuration(planned):
                yield planned
                count -= 1
                if not count:
                    return


@pytest.mark.slow
@pytest.mark.parametrize("library", DTYPES)
def test_what_is_printed_is_what_was_planned(library):
    read = {
        "torchtitan": read_torchtitan,
        "Megatron-Core": read_megatron,
        "nanotron": read_nanotron,
    }
    reader = read.get(library, read_accelerate)
    for planned in searched(library, 14 if library in read else 6):
        shape, layout, batch = reader(configuration(planned))
        again = step(shape, planned.cluster, layout, batch)
        assert again.memory == pytest.approx(planned.memory), configuration(planned)
        assert again.parts == pytest.approx(planned.parts), configuration(planned)


def read_torchtitan(text):
    """The model, layout and batch of a TOML file: its flavor is looked up."""
    keys = tomllib.loads(text)
    named = f"{keys['model']['name']} {keys['model']['flavor']}"
    shape = model(
        next(row["name"] for row in rows("models") if row["torchtitan"] == named)
    )
    training = keys["training"]
    ranks = keys["parallelism"]
    chunks = 1
    pipeline = ranks["pipeline_parallel_degree"]
    micro_batch = training["local_batch_size"]
    if pipeline > 1:
        micro_batch = ranks["pipeline_parallel_microbatch_size"]
        less = ranks["pipeline_parallel_first_stage_less_layers"]
        per_stage = ranks.get("pipeline_parallel_layers_per_stage")
        if per_stage:
            chunks = math.ceil((shape.layers + 2 * less) / per_stage) // pipeline
    replicas = ranks["data_parallel_replicate_degree"]
    shard = ranks["data_parallel_shard_degree"]
    context = ranks["context_parallel_degree"]
    dtype = {
        ("float32", "bfloat16"): "autocast bfloat16",
        ("bfloat16", "bfloat16"): "bfloat16",
        ("float32", "float32"): "float32",
    }[training["dtype"], training["mixed_precision_param"]]
    if "quantize.linear.float8" in keys["model"]["converters"]:
        dtype = "autocast float8"
    layout = Layout(
        data=replicas * shard,
        tensor=ranks["tensor_parallel_degree"],
        pipeline=pipeline,
        interleave=chunks,
        zero=3 if shard * context > 1 else 0,
        micro_batch=micro_batch,
        recompute={"selective": "half"}.get(
            keys["activation_checkpoint"]["mode"], keys["activation_checkpoint"]["mode"]
        ),
        dtype=dtype,
        context=context,
        expert=ranks["expert_parallel_degree"],
        shard=shard * context if replicas > 1 and shard > 1 else None,
        software=dataclasses.replace(
            SOFTWARE["torchtitan"],
            reshard=ranks["fsdp_reshard_after_forward"] == "always",
            fused=keys["compile"]["enable"],
            fused_loss="loss" in keys["compile"]["components"],
            early_stop=keys["activation_checkpoint"]["early_stop"],
        ),
    )
    shape = dataclasses.replace(shape, seq=training["seq_len"])
    return shape, layout, training["global_batch_size"]


def read_megatron(text):
    """The model, layout and batch of a command line."""
    words = shlex.split(text.replace("\\\n", " "))
    flags = {}
    for i, word in enumerate(words):
        if word.startswith("--"):
            following = words[i + 1] if i + 1 < len(words) else "--"
            flags[word[2:]] = True if following.startswith("--") else following
    nodes = int(re.search(r"--nnodes=(\d+)", text)[1])
    gpus = nodes * int(re.search(r"--nproc-per-node=(\d+)", text)[1])

    def number(name, default=None):
        return int(flags[name]) if name in flags else default

    shape = dataclasses.replace(
        model("Llama-3.1-8B"),
        layers=number("num-layers"),
        hidden=number("hidden-size"),
        heads=number("num-attention-heads"),
        vocab=number("vocab-size"),
        seq=number("seq-length"),
        **megatron_widths(flags, number),
        gated="swiglu" in flags,
        tied="untie-embeddings-and-output-weights" not in flags,
        ahead=number("mtp-num-layers", 0),
        **megatron_windows(flags),
        name="",
        source="",
    )
    tensor = number("tensor-model-parallel-size")
    pipeline = number("pipeline-model-parallel-size")
    context = number("context-parallel-size")
    replicas = gpus // tensor // pipeline
    chunks = number("num-virtual-stages-per-pipeline-rank", 1)
    if "pipeline-model-parallel-layout" in flags:
        chunks = (flags["pipeline-model-parallel-layout"].count("|") + 1) // pipeline
    strategies = {"optim_grads": 2, "optim_grads_params": 3}
    distributed = int("use-distributed-optimizer" in flags)
    instances = number("num-distributed-optimizer-instances", 1)
    is_flexible = flags.get("moe-token-dispatcher-type") == "flex"
    layout = Layout(
        data=replicas // context,
        tensor=tensor,
        pipeline=pipeline,
        interleave=chunks,
        zero=strategies.get(flags.get("data-parallel-sharding-strategy"), distributed),
        micro_batch=number("micro-batch-size"),
        recompute=flags.get("recompute-granularity", "none"),
        sequence_parallel=tensor == 1 or "sequence-parallel" in flags,
        dtype=megatron_dtype(flags),
        context=context,
        expert=number("expert-model-parallel-size"),
        shard=replicas // instances if instances > 1 else None,
        offload="optimizer-cpu-offload" in flags,
        software=dataclasses.replace(
            SOFTWARE["Megatron-Core"],
            dispatch="HybridEP" if is_flexible else "all-to-all",
            graphs="cuda-graph-impl" in flags,
            expert_overlap="overlap-moe-expert-parallel-comm" in flags,
        ),
    )
    return shape, layout, number("global-batch-size")


def megatron_widths(flags, number):
    """Widths of heads, of MLPs and of experts."""
    widths = {
        "feed_forward": number("ffn-hidden-size"),
        "kv_heads": number("num-query-groups"),
        "head_dim": number("kv-channels"),
    }
    if "multi-latent-attention" in flags:
        widths |= {
            "kv_rank": number("kv-lora-rank"),
            "query_rank": number("q-lora-rank"),
            "head_dim": number("qk-head-dim"),
            "rotary": number("qk-pos-emb-head-dim"),
            "value_dim": number("v-head-dim"),
        }
    if "num-experts" in flags:
        frequency = flags.get("moe-layer-freq", "[0]*0")
        widths |= {
            "feed_forward": number("moe-ffn-hidden-size"),
            "experts": number("num-experts"),
            "top_k": number("moe-router-topk"),
            "shared": number("moe-shared-expert-intermediate-size", 0),
            "expert_biases": "disable-bias-linear" not in flags,
            "dense": int(re.match(r"\[0\]\*(\d+)", frequency)[1]),
        }
    return widths


def megatron_windows(flags):
    """The pattern of blocks with a window, and how many tokens it has."""
    if "window-size" not in flags:
        return {}
    rest = "E" if "num-experts" in flags else "-"
    within = json.loads(flags["window-attn-skip-freq"])
    pattern = " ".join(("*W"[has_window]) + rest for has_window in within)
    return {"pattern": pattern, "window": int(flags["window-size"].split(",")[0]) + 1}


def megatron_dtype(flags):
    """The precision that the flags stand for."""
    if "fp16" in flags:
        return "mixed float16"
    if "bf16" not in flags:
        return "float32"
    compute = "bfloat16"
    if "fp8-format" in flags:
        compute = {"tensorwise": "float8", "mxfp8": "mxfp8"}[flags["fp8-recipe"]]
    if "fp4-format" in flags:
        compute = flags["fp4-recipe"]
    gradients = "" if "grad-reduce-in-bf16" in flags else " with float32 gradients"
    return f"mixed {compute}{gradients}"


def read_nanotron(text):
    """The model, layout and batch of a YAML file."""
    keys = yaml.safe_load(text)
    sizes = keys["model"]["model_config"]
    ranks = keys["parallelism"]
    tokens = keys["tokens"]
    shape = dataclasses.replace(
        model("Llama-3.1-8B"),
        layers=sizes["num_hidden_layers"],
        hidden=sizes["hidden_size"],
        heads=sizes["num_attention_heads"],
        vocab=sizes["vocab_size"],
        seq=tokens["sequence_length"],
        feed_forward=sizes["intermediate_size"],
        kv_heads=sizes["num_key_value_heads"],
        tied=sizes["tie_word_embeddings"],
        name="",
        source="",
    )
    if experts := sizes.get("moe_config"):
        shape = dataclasses.replace(
            shape,
            experts=experts["num_experts"],
            top_k=experts["top_k"],
            feed_forward=experts["moe_intermediate_size"],
            shared=experts["shared_expert_intermediate_size"],
            dense=shape.layers - len(experts["layers"]),
        )
    has_float32 = keys["optimizer"]["accumulate_grad_in_fp32"]
    layout = Layout(
        data=ranks["dp"],
        tensor=ranks["tp"],
        pipeline=ranks["pp"],
        zero=keys["optimizer"]["zero_stage"],
        micro_batch=tokens["micro_batch_size"],
        recompute="full" if ranks["recompute_layer"] else "none",
        sequence_parallel=ranks["tp_mode"] == "REDUCE_SCATTER",
        dtype="mixed bfloat16 with float32 gradients" if has_float32 else "bfloat16",
        context=ranks["context_parallel_size"],
        expert=ranks["expert_parallel_size"],
        software=SOFTWARE["nanotron"],
    )
    rounds = tokens["batch_accumulation_per_replica"]
    return shape, layout, ranks["dp"] * tokens["micro_batch_size"] * rounds


def read_accelerate(text):
    """The model, layout and batch of a command for accelerate, and of its YAML file."""
    command, _, _ = text.partition("\ncompute_environment")
    words = shlex.split(re.sub(r"\\\n#", " ", command))
    flags = {
        name.removeprefix("--"): value
        for name, value in itertools.pairwise(words)
        if name.startswith("--")
    }
    library = command.partition(":")[0].removeprefix("# ").rpartition(" ")[0]
    keys = yaml.safe_load(text)
    fsdp = keys.get("fsdp_config", {})
    deepspeed = keys.get("deepspeed_config", {})
    zero = 3 if fsdp else deepspeed.get("zero_stage", 0)
    again = ("activation_checkpointing", "gradient_checkpointing")
    is_full = fsdp.get("fsdp_activation_checkpointing") or any(
        flags.get(name) == "true" for name in again
    )
    if deepspeed:
        dtype = "mixed bfloat16"
    elif flags["bf16"] == "false":
        dtype = "float32"
    else:
        dtype = "autocast bfloat16" if flags["dtype"] == "float32" else "bfloat16"
    micro_batch = int(flags["per_device_train_batch_size"])
    layout = Layout(
        data=keys["num_processes"],
        zero=zero,
        micro_batch=micro_batch,
        recompute="full" if is_full else "none",
        dtype=dtype,
        offload=deepspeed.get("offload_optimizer_device") == "cpu",
        reshard_after_forward=fsdp.get("fsdp_reshard_after_forward", True),
        software=SOFTWARE[library],
    )
    tokens = int(flags.get("block_size") or flags["max_length"])
    shape = dataclasses.replace(model(flags["model_name_or_path"]), seq=tokens)
    rounds = int(flags["gradient_accumulation_steps"])
    return shape, layout, layout.data * micro_batch * rounds
