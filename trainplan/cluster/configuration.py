"""A step as its library is told it: torchtitan's TOML, Megatron-Core's flags or nanotron's YAML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainplan.arguments import checked
from trainplan.cluster.layout import stage_layers
from trainplan.cluster.libraries import versions
from trainplan.cluster.step_prediction import Step

# Names of MODELS that the versions in data/libraries.csv have a model of.
# Source: pytorch/torchtitan, torchtitan/models/llama3/__init__.py and torchtitan/models/qwen3/__init__.py
TITAN_FLAVORS = {
    "Llama-3-8B": ("llama3", "8B"), "Llama-3-70B": ("llama3", "70B"), "Llama-3-405B": ("llama3", "405B"),
    "Qwen3-30B-A3B": ("qwen3", "30B-A3B"), "Qwen3-235B-A22B": ("qwen3", "235B-A22B"),
}  # fmt: skip


@checked
def configuration(made: Step) -> str:
    """What to give the step's library, as text; empty for a program of one's own, and for libraries without a writer.

    It says what the plan decides: sizes, ranks, batch, recomputing. Data, learning rate and length of the run are the
    reader's.
    """
    library = made.layout.software.library
    return WRITERS[library](made) if library in WRITERS else ""


def _launch(made: Step) -> str:
    cluster = made.cluster
    return f"torchrun --nnodes={cluster.nodes} --nproc-per-node={min(cluster.gpus, cluster.gpus_per_node)}"


def _megatron(made: Step) -> str:
    """The command line of Megatron-Core's pretrain_gpt.py, a flag a line."""
    given = _megatron_layout(made) | _megatron_model(made)
    flags = [f"--{name}" if value is True else f"--{name} {value}" for name, value in given.items() if _said(value)]
    return " \\\n  ".join([f"{_launch(made)} pretrain_gpt.py", *flags])


def _said(value: Any) -> bool:
    return value is not None and value is not False


def _megatron_layout(made: Step) -> dict[str, Any]:
    layout, fsdp = made.layout, made.layout.zero >= 2
    split, full = layout.replicas > 1, layout.recompute == "full"
    tensor = layout.tensor > 1 and layout.sequence_parallel
    return {
        "tensor-model-parallel-size": layout.tensor,
        "sequence-parallel": tensor,
        "tp-comm-overlap": tensor and layout.software.async_tensor == "all",
        "pipeline-model-parallel-size": layout.pipeline,
        "num-virtual-stages-per-pipeline-rank": layout.interleave if layout.interleave > 1 else None,
        **_megatron_stages(made),
        "context-parallel-size": layout.context,
        "expert-model-parallel-size": layout.expert,
        "expert-tensor-parallel-size": 1 if layout.expert > 1 else None,
        "use-distributed-optimizer": layout.zero > 0,
        "num-distributed-optimizer-instances": layout.replicas // layout.sharded if layout.zero else None,
        "use-megatron-fsdp": fsdp,
        "data-parallel-sharding-strategy": "optim_grads_params"
        if layout.zero == 3
        else "optim_grads"
        if fsdp
        else None,
        "ckpt-format": "fsdp_dtensor" if fsdp else None,
        "overlap-grad-reduce": split and layout.overlap,
        "overlap-param-gather": split and layout.overlap and layout.zero > 0,
        "optimizer-cpu-offload": layout.offload,
        "use-precision-aware-optimizer": layout.offload,
        "micro-batch-size": layout.micro_batch,
        "global-batch-size": made.batch,
        "recompute-granularity": None if layout.recompute == "none" else layout.recompute,
        "recompute-method": "uniform" if full else None,
        "recompute-num-layers": 1 if full else None,
        "recompute-modules": "core_attn" if layout.recompute == "selective" else None,
        "bf16": "bfloat16" in layout.dtype or "float8" in layout.dtype,
        "fp16": "float16" in layout.dtype.split(),
        "fp8-format": "hybrid" if "float8" in layout.dtype else None,
    }


def _megatron_stages(made: Step) -> dict[str, Any]:
    """How layers are dealt to stages that they don't divide evenly among."""
    layers, slots = made.model.layers, made.layout.pipeline * made.layout.interleave
    if layers % slots == 0:
        return {}
    if (layers + 2) % slots == 0:
        return {"account-for-embedding-in-pipeline-split": True, "account-for-loss-in-pipeline-split": True}
    sizes = stage_layers(layers, made.layout.pipeline, made.layout.interleave) or ()
    return {"pipeline-model-parallel-layout": f'"E{"|".join(f"t*{size}" for size in sizes)}L"'}


def _megatron_model(made: Step) -> dict[str, Any]:
    model, gated = made.model, made.model.gated
    return {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "ffn-hidden-size": model.inner,
        "num-attention-heads": model.heads,
        "kv-channels": model.query_width // model.heads,
        "group-query-attention": model.key_value_heads < model.heads,
        "num-query-groups": model.key_value_heads if model.key_value_heads < model.heads else None,
        "num-experts": model.experts or None,
        "moe-router-topk": model.top_k if model.experts else None,
        "moe-ffn-hidden-size": model.inner if model.experts else None,
        "moe-shared-expert-intermediate-size": model.shared or None,
        "moe-token-dispatcher-type": "alltoall" if model.experts else None,
        "moe-grouped-gemm": model.experts > 0,
        "swiglu": gated,
        "normalization": "RMSNorm" if gated else None,
        "disable-bias-linear": gated,
        "untie-embeddings-and-output-weights": gated,
        "position-embedding-type": "rope" if gated else "learned_absolute",
        "attention-dropout": None if model.dropout else 0.0,
        "hidden-dropout": None if model.dropout else 0.0,
        "seq-length": model.seq,
        "max-position-embeddings": model.seq,
        "tokenizer-type": "NullTokenizer",
        "vocab-size": model.vocab,
        "mock-data": True,
    }


def _titan(made: Step) -> str:
    """The configuration file of torchtitan, and the command that takes it."""
    model, layout = made.model, made.layout
    name, flavor = TITAN_FLAVORS.get(model.name, ("llama3", "mine"))
    eight = "float8" in layout.dtype
    tables: dict[str, dict[str, Any]] = {
        "model": {"name": name, "flavor": flavor, "converters": ["quantize.linear.float8"] * eight},
        "training": {
            "local_batch_size": made.batch // layout.data if layout.pipeline > 1 else layout.micro_batch,
            "global_batch_size": made.batch,
            "seq_len": model.seq,
        },
        "parallelism": _titan_ranks(made),
        "activation_checkpoint": {
            "mode": {"half": "selective"}.get(layout.recompute, layout.recompute), "selective_ac_option": "op",
        },
        "compile": {"enable": layout.software.fused, "components": ["model", "loss"]},
    }  # fmt: skip
    if eight:
        tables["quantize.linear.float8"] = {"enable_fsdp_float8_all_gather": layout.software.float8_gather}
    lines = [f"# torchtitan {versions()['torchtitan']}: {_launch(made)} \\"]
    lines.append("#   -m torchtitan.train --job.config_file plan.toml")
    if flavor == "mine":
        lines.append(f'# "mine" is to be added to the flavors in torchtitan/models/{name}/__init__.py: {model}')
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines)


def _titan_ranks(made: Step) -> dict[str, Any]:
    layout, layers = made.layout, made.model.layers
    shard = layout.sharded // layout.context if layout.zero else 1
    ranks: dict[str, Any] = {
        "data_parallel_replicate_degree": layout.data // shard,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "always" if layout.software.reshard else "never",
        "tensor_parallel_degree": layout.tensor,
        "enable_async_tensor_parallel": layout.software.async_tensor == "all",
        "context_parallel_degree": layout.context,
        "expert_parallel_degree": layout.expert,
        "expert_tensor_parallel_degree": layout.tensor if layout.expert == 1 else 1,
        "pipeline_parallel_degree": layout.pipeline,
    }
    if layout.pipeline > 1:
        chunks = 2 if layout.schedule == "ZB-V" else layout.interleave
        even = layers % (layout.pipeline * chunks) == 0
        single = "1F1B" if chunks == 1 else "Interleaved1F1B"
        ranks |= {
            "pipeline_parallel_schedule": "ZBVZeroBubble" if layout.schedule == "ZB-V" else single,
            "pipeline_parallel_microbatch_size": layout.micro_batch,
            "pipeline_parallel_first_stage_less_layers": 0 if even else 1,
            "pipeline_parallel_last_stage_less_layers": 0 if even else 1,
        }
        if chunks > 1:
            ranks["pipeline_parallel_layers_per_stage"] = -(-layers // (layout.pipeline * chunks))
    return ranks


def _nanotron(made: Step) -> str:
    """The parts of nanotron's configuration file that a plan decides."""
    model, layout = made.model, made.layout
    tree = {
        "parallelism": {
            "dp": layout.data,
            "pp": layout.pipeline,
            "tp": layout.tensor,
            "context_parallel_size": layout.context,
            "expert_parallel_size": layout.expert,
            "pp_engine": "1f1b",
            "tp_mode": "REDUCE_SCATTER" if layout.sequence_parallel else "ALL_REDUCE",
            "tp_linear_async_communication": layout.software.async_tensor != "no",
            "recompute_layer": layout.recompute == "full",
        },
        "tokens": {
            "sequence_length": model.seq,
            "micro_batch_size": layout.micro_batch,
            "batch_accumulation_per_replica": layout.microbatches(made.batch),
        },
        "optimizer": {"zero_stage": layout.zero, "accumulate_grad_in_fp32": "autocast" in layout.dtype},
        "model": {
            "dtype": "bfloat16",
            "model_config": {
                "is_llama_config": True,
                "hidden_size": model.hidden,
                "intermediate_size": model.inner,
                "num_hidden_layers": model.layers,
                "num_attention_heads": model.heads,
                "num_key_value_heads": model.key_value_heads,
                "max_position_embeddings": model.seq,
                "vocab_size": model.vocab,
                "tie_word_embeddings": not model.gated,
            },
        },
    }
    head = f"# nanotron {versions()['nanotron']}: {_launch(made)} run_train.py --config-file plan.yaml"
    return "\n".join([head, *_yaml(tree)])


def _yaml(tree: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{key}: {json.dumps(value)}"


WRITERS: Mapping[str, Callable[[Step], str]] = {"Megatron-Core": _megatron, "torchtitan": _titan, "nanotron": _nanotron}
