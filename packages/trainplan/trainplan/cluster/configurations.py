"""A step as its library is told it: torchtitan's TOML, Megatron-Core's command line or
nanotron's YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainplan.arguments import checked
from trainplan.cluster.finetuning_configurations import (
    accelerate_config,
    axolotl_config,
    flag_words,
    litgpt_command,
    torchtune_command,
    trainer_flags,
    trl_flags,
)
from trainplan.cluster.layout import Layout, stage_layers
from trainplan.cluster.libraries import torchtitan_flavor
from trainplan.cluster.rank_share import dispatch, has_graphs
from trainplan.cluster.software import versions
from trainplan.cluster.step_prediction import Step
from trainplan.costs.memory_costs import precision
from trainplan.costs.mixers import WINDOW
from trainplan.costs.transformers import Transformer

_MEGATRON_OPTIMIZERS = {"momentum": "sgd", "muon": "muon", "lion": "lion"}


@checked
def configuration(step: Step) -> str:
    """What to give the library that a step is calculated for, as text; empty where
    nothing here writes for it, as for models with state spaces or
    compressed keys.

    It says what a plan decides: sizes, ranks, batch, precision and recomputing. Data,
    rates of learning and the length of the run are the reader's.
    """
    library = step.layout.software.library
    nodes = step.cluster.nodes
    launch = f"torchrun --nnodes={nodes} --nproc-per-node={step.cluster.gpus // nodes}"
    about = f"# {library} {versions().get(library)}: {launch}"
    if step.model.state_space is not None or step.model.compressed is not None:
        return _finetuning(step)  # which names a checkpoint, whatever it has
    if library == "Megatron-Core" and step.model.adapters:
        return ""  # NeMo and Megatron Bridge add adapters in Python
    if library == "Megatron-Core":
        return _megatron_command(step, launch)
    if library == "torchtitan":
        command = f"{about} -m torchtitan.train \\\n#   --job.config_file plan.toml"
        return "\n".join([command, *_titan(step)])
    if library == "nanotron":
        command = f"{about} run_train.py \\\n#   --config-file plan.yaml"
        return "\n".join([command, *_yaml(_nanotron(step))])
    return _finetuning(step)


def _finetuning(step: Step) -> str:
    """As `configuration`, for libraries that start from a checkpoint."""
    library = step.layout.software.library
    about = f"# {library} {versions().get(library)}"
    if library == "axolotl":
        command = f"{about}: axolotl train plan.yaml"
        return "\n".join([command, *_yaml(axolotl_config(step))])
    if library == "torchtune":
        command = " \\\n  ".join(torchtune_command(step))
        return f"{about}, beside the file of the model's own recipe\n{command}"
    if library == "litgpt":
        return f"{about}\n" + " \\\n  ".join(litgpt_command(step))
    if library == "TRL":
        script = "trl/scripts/sft.py"
        flags = trl_flags(step)
    elif library.startswith("Trainer"):
        script = "run_clm.py"
        flags = trainer_flags(step)
    else:
        return ""
    words = [f"accelerate launch --config_file plan.yaml {script}", *flag_words(flags)]
    command = " \\\n#   ".join(words)
    return "\n".join([f"{about}: {command}", *_yaml(accelerate_config(step))])


def _megatron_command(step: Step, launch: str) -> str:
    layout = step.layout
    # tensor and context ranks ask for it before Blackwell, and FSDP forbids it
    # (megatron/training/arguments.py)
    if layout.zero < 2 and (layout.tensor > 1 or layout.context > 1):
        launch = f"CUDA_DEVICE_MAX_CONNECTIONS=1 {launch}"
    words = [f"{launch} pretrain_gpt.py"]
    for name, value in (_megatron_layout(step) | _megatron_model(step)).items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words.append(f"--{name} {value}")
    return " \\\n  ".join(words)


def _megatron_layout(step: Step) -> dict[str, Any]:
    layout = step.layout
    layers = step.model.layers
    chunks = layout.pipeline * layout.interleave
    split = layout.tensor > 1 and layout.sequence_parallel
    hidden = layout.replicas > 1 and layout.overlap
    fsdp = layout.zero >= 2
    full = layout.recompute == "full"
    # embedding and head count as a layer each
    ends = layers % chunks > 0 and (layers + 2) % chunks == 0
    uneven = None
    if layers % chunks and not ends:
        sizes = stage_layers(layers, chunks, 1) or ()
        uneven = "|".join(f"t*{size}" for size in sizes)
    strategies = {2: "optim_grads", 3: "optim_grads_params"}
    return {
        "tensor-model-parallel-size": layout.tensor,
        "sequence-parallel": split,
        "tp-comm-overlap": split and layout.software.async_tensor == "all",
        "pipeline-model-parallel-size": layout.pipeline,
        "num-virtual-stages-per-pipeline-rank": (
            layout.interleave if layout.interleave > 1 and not uneven else None
        ),
        "account-for-embedding-in-pipeline-split": ends,
        "account-for-loss-in-pipeline-split": ends,
        "pipeline-model-parallel-layout": f'"E{uneven}L"' if uneven else None,
        "context-parallel-size": layout.context,
        "expert-model-parallel-size": layout.expert,
        "expert-tensor-parallel-size": 1 if layout.expert > 1 else None,
        "use-distributed-optimizer": layout.zero > 0,
        "num-distributed-optimizer-instances": (
            layout.replicas // layout.sharded if layout.shard else None
        ),
        "use-megatron-fsdp": fsdp,
        "ckpt-format": "fsdp_dtensor" if fsdp else None,
        "data-parallel-sharding-strategy": strategies.get(layout.zero),
        "overlap-grad-reduce": hidden,
        "overlap-param-gather": hidden and layout.zero > 0,
        "optimizer": _MEGATRON_OPTIMIZERS.get(layout.optimizer),
        "optimizer-cpu-offload": layout.offload,
        "use-precision-aware-optimizer": layout.offload,
        "micro-batch-size": layout.micro_batch,
        "global-batch-size": step.batch,
        "recompute-granularity": (
            None if layout.recompute == "none" else layout.recompute
        ),
        "recompute-method": "uniform" if full else None,
        "recompute-num-layers": 1 if full else None,
        "recompute-modules": "core_attn" if layout.recompute == "selective" else None,
        **_megatron_precision(layout),
    }


def _megatron_precision(layout: Layout) -> dict[str, Any]:
    """The flags of a precision; 8- and 4-bit weights are stored as such where the
    optimizer is distributed, which alone allows it.
    """
    kind = precision(layout.dtype)
    is_half = kind.compute_dtype == "float16"
    is_bfloat = kind.param_bytes == 2 and not is_half
    flags: dict[str, Any] = {
        "bf16": is_bfloat,
        "fp16": is_half,
        "grad-reduce-in-bf16": is_bfloat and kind.gradient_bytes == 2,
    }
    if kind.compute_dtype == "float8":
        block_scaled = "mxfp8" in layout.dtype
        flags["fp8-format"] = "e4m3" if block_scaled else "hybrid"
        flags["fp8-recipe"] = "mxfp8" if block_scaled else "tensorwise"
        flags["fp8-param-gather"] = layout.zero > 0
    if kind.compute_dtype == "float4":
        flags["fp4-format"] = "e2m1"
        flags["fp4-recipe"] = "nvfp4"
        flags["fp4-param-gather"] = layout.zero > 0
    return flags


def _megatron_model(step: Step) -> dict[str, Any]:
    model = step.model
    gated = model.gated
    experts = model.experts
    grouped = model.key_value_heads < model.heads
    dropped = None if model.dropout else 0.0
    return {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "num-attention-heads": model.heads,
        "ffn-hidden-size": model.used_inner if model.dense else model.inner,
        "multi-latent-attention": model.kv_rank > 0,
        "q-lora-rank": model.query_rank or None,
        "kv-lora-rank": model.kv_rank or None,
        "qk-head-dim": model.head_dim if model.kv_rank else None,
        "qk-pos-emb-head-dim": model.rotary or None,
        "v-head-dim": model.value_dim or None,
        "kv-channels": None if model.kv_rank else model.query_width // model.heads,
        "group-query-attention": grouped,
        "num-query-groups": model.key_value_heads if grouped else None,
        **_megatron_windows(model),
        "num-experts": experts or None,
        "moe-router-topk": model.top_k if experts else None,
        "moe-ffn-hidden-size": model.inner if experts else None,
        "moe-grouped-gemm": experts > 0,
        "moe-shared-expert-intermediate-size": model.shared or None,
        **_megatron_dispatch(step),
        "moe-layer-freq": (
            f'"[0]*{model.dense}+[1]*{model.layers - model.dense}"'
            if model.dense
            else None
        ),
        "mtp-num-layers": model.ahead or None,
        "swiglu": gated,
        "disable-bias-linear": gated and not model.expert_biases,
        "normalization": "RMSNorm" if gated else "LayerNorm",
        "untie-embeddings-and-output-weights": not model.has_tied_head,
        "attention-dropout": dropped,
        "hidden-dropout": dropped,
        "position-embedding-type": "rope" if gated else "learned_absolute",
        "seq-length": model.seq,
        "max-position-embeddings": model.seq,
        "tokenizer-type": "NullTokenizer",
        "vocab-size": model.vocab,
        "mock-data": True,
    }


def _megatron_dispatch(step: Step) -> dict[str, Any]:
    """The flags that say how tokens get to experts, and what CUDA graphs launch."""
    layout = step.layout
    if not step.model.experts:
        return {}
    is_plain = dispatch(step.model, step.cluster, layout) != "HybridEP"
    is_graphed = has_graphs(step.model, layout)
    return {
        "moe-token-dispatcher-type": "alltoall" if is_plain else "flex",
        "moe-flex-dispatcher-backend": None if is_plain else "hybridep",
        "overlap-moe-expert-parallel-comm": layout.software.expert_overlap,
        "cuda-graph-impl": "transformer_engine" if is_graphed else None,
        "cuda-graph-modules": (
            "attn moe_router moe_preprocess" if is_graphed else None
        ),
    }


def _megatron_windows(model: Transformer) -> dict[str, Any]:
    """The flags of blocks whose attention looks back over a window alone: how many
    tokens before its own, and a 1 for each such block.
    """
    if not model.window:
        return {}
    within = ",".join(str(int(WINDOW in block)) for block in model.blocks)
    return {
        "window-size": f'"{model.window - 1},0"',
        "window-attn-skip-freq": f'"[{within}]"',
    }


def _titan(step: Step) -> Iterator[str]:
    """The lines of a TOML file."""
    model = step.model
    layout = step.layout
    name, flavor = torchtitan_flavor(model)
    if flavor == "mine":
        yield f'# "mine" is to be added to torchtitan/models/{name}/__init__.py:'
        yield f"#   {model}"
    stages = _titan_stages(layout)
    layers = model.layers + 2 * _titan_less(model.layers, stages)
    per_stage = _up(layers, stages)
    if stages > layout.pipeline and _up(layers, per_stage) != stages:
        yield (
            "# Chunks of different sizes: name the layers of each in"
            " module_fqns_per_model_part."
        )
    for table, values in _titan_tables(step, name, flavor).items():
        yield f"\n[{table}]"
        yield from (f"{key} = {json.dumps(value)}" for key, value in values.items())


def _titan_tables(step: Step, name: str, flavor: str) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file, for a model's name and flavor."""
    layout = step.layout
    software = layout.software
    kind = precision(layout.dtype)
    float8 = kind.compute_dtype == "float8"
    tables: dict[str, dict[str, Any]] = {
        "model": {
            "name": name,
            "flavor": flavor,
            "converters": ["quantize.linear.float8"] if float8 else [],
        },
        "training": {
            "local_batch_size": (
                step.batch // layout.data if layout.pipeline > 1 else layout.micro_batch
            ),
            "global_batch_size": step.batch,
            "seq_len": step.model.seq,
            "dtype": "float32" if kind.casts or kind.param_bytes == 4 else "bfloat16",
            "mixed_precision_param": "bfloat16" if kind.param_bytes == 2 else "float32",
            "mixed_precision_reduce": "float32",
        },
        "parallelism": _titan_parallelism(step),
        "activation_checkpoint": {
            "mode": "selective" if layout.recompute == "half" else layout.recompute,
            "selective_ac_option": "op",
            "early_stop": software.early_stop,
        },
        "compile": {
            "enable": software.fused,
            "components": ["model", "loss"] if software.fused_loss else ["model"],
        },
    }
    if float8:
        tables["quantize.linear.float8"] = {
            "enable_fsdp_float8_all_gather": software.float8_gather
        }
    return tables


def _titan_parallelism(step: Step) -> dict[str, Any]:
    layout = step.layout
    software = layout.software
    shard = layout.sharded // layout.context if layout.zero else 1
    given_up = software.reshard and layout.reshard_after_forward
    return {
        "data_parallel_replicate_degree": layout.data // shard,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "always" if given_up else "never",
        "tensor_parallel_degree": layout.tensor,
        "enable_async_tensor_parallel": software.async_tensor == "all",
        "context_parallel_degree": layout.context,
        "expert_parallel_degree": layout.expert,
        "expert_tensor_parallel_degree": layout.tensor if layout.expert == 1 else 1,
        "pipeline_parallel_degree": layout.pipeline,
        **(_titan_pipeline(step) if layout.pipeline > 1 else {}),
    }


def _titan_pipeline(step: Step) -> dict[str, Any]:
    """The keys of [parallelism] that a pipeline has more."""
    layout = step.layout
    stages = _titan_stages(layout)
    less = _titan_less(step.model.layers, stages)
    if layout.schedule == "ZB-V":
        schedule = "ZBVZeroBubble"
    elif layout.interleave > 1:
        schedule = "Interleaved1F1B"
    else:
        schedule = "1F1B"
    keys = {
        "schedule": schedule,
        "microbatch_size": layout.micro_batch,
        "first_stage_less_layers": less,
        "last_stage_less_layers": less,
    }
    if stages > layout.pipeline:
        keys["layers_per_stage"] = _up(step.model.layers + 2 * less, stages)
    return {f"pipeline_parallel_{key}": value for key, value in keys.items()}


def _titan_stages(layout: Layout) -> int:
    """Stages of the pipeline, a rank's chunks apart."""
    return layout.pipeline * (2 if layout.schedule == "ZB-V" else layout.interleave)


def _titan_less(layers: int, stages: int) -> int:
    """How many layers the first and the last stage have less than others."""
    return 1 if layers % stages and (layers + 2) % stages == 0 else 0


def _up(number: int, parts: int) -> int:
    """A number over a number of parts, rounded up."""
    return -(-number // parts)


def _nanotron(step: Step) -> dict[str, Any]:
    model = step.model
    layout = step.layout
    qwen: dict[str, Any] = {}  # which only Qwen2Config has
    if layout.context > 1:
        qwen["_attn_implementation"] = "llama3_ring_attention"
        qwen["ring_attn_heads_k_stride"] = 1  # which ring attention asks for
    if model.experts:
        qwen["moe_config"] = _nanotron_experts(model)
    shape = {
        "is_qwen2_config" if qwen else "is_llama_config": True,
        "hidden_size": model.hidden,
        "intermediate_size": model.used_inner if model.dense else model.inner,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.key_value_heads,
        "max_position_embeddings": model.seq,
        "vocab_size": model.vocab,
        "tie_word_embeddings": model.has_tied_head,
        **qwen,
    }
    return {
        "parallelism": {
            "dp": layout.data,
            "pp": layout.pipeline,
            "tp": layout.tensor,
            "context_parallel_size": layout.context,
            "expert_parallel_size": layout.expert,
            "pp_engine": "1f1b",
            "recompute_layer": layout.recompute == "full",
            "tp_mode": "REDUCE_SCATTER" if layout.sequence_parallel else "ALL_REDUCE",
            "tp_linear_async_communication": layout.software.async_tensor != "no",
        },
        "tokens": {
            "sequence_length": model.seq,
            "micro_batch_size": layout.micro_batch,
            "batch_accumulation_per_replica": layout.microbatches(step.batch),
        },
        "optimizer": {
            "zero_stage": layout.zero,
            "accumulate_grad_in_fp32": precision(layout.dtype).gradient_bytes == 4,
        },
        "model": {"dtype": "bfloat16", "model_config": shape},
    }


def _nanotron_experts(model: Transformer) -> dict[str, Any]:
    """The keys of moe_config, whose defaults are those of another model."""
    return {
        "num_experts": model.experts,
        "top_k": model.top_k,
        "moe_intermediate_size": model.inner,
        "shared_expert_intermediate_size": model.shared,
        "enable_shared_expert": model.shared > 0,
        "layers": list(range(model.dense, model.layers)),
    }


def _yaml(tree: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{key}: {json.dumps(value)}"
