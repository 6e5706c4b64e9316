"""A step as the libraries are told it that start from a checkpoint: Hugging Face's
Trainer and TRL with accelerate, axolotl, torchtune and litgpt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainplan.cluster.step_prediction import Step

_OPTIM = {  # transformers' OptimizerNames, and axolotl's
    "adam": "adamw_torch_fused",
    "adamw": "adamw_torch_fused",
    "momentum": "sgd",
    "lion": "lion_32bit",
    "adamw_8bit": "adamw_bnb_8bit",
}
_COMPONENTS = {  # torchtune's optimizers
    "adam": "torch.optim.AdamW",
    "adamw": "torch.optim.AdamW",
    "sgd": "torch.optim.SGD",
    "adamw_8bit": "bitsandbytes.optim.AdamW8bit",
    "lion_8bit": "bitsandbytes.optim.Lion8bit",
    "paged_adamw_8bit": "bitsandbytes.optim.PagedAdamW8bit",
}
_LITGPT = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
_ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]  # as most models call them


_IN_FLOAT16 = "autocast float16"
# accelerate's words for precisions; bf16 for all others
_MIXED = {"float32": "no", _IN_FLOAT16: "fp16"}


def checkpoint(step: Step) -> str:
    """The name of a model's checkpoint, which the reader completes to its path."""
    return step.model.name.replace(" ", "-") or "your-model"


def accelerate_config(step: Step) -> dict[str, Any]:
    """The tree of accelerate's configuration file."""
    layout = step.layout
    tree: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if layout.data > 1 else "NO",
        "mixed_precision": _MIXED.get(layout.dtype, "bf16"),
        "num_machines": step.cluster.nodes,
        "num_processes": step.cluster.gpus,
    }
    if layout.software.library == "Trainer DeepSpeed":
        tree["distributed_type"] = "DEEPSPEED"
        tree["deepspeed_config"] = {
            "zero_stage": layout.zero,
            "offload_optimizer_device": "cpu" if layout.offload else "none",
            "offload_param_device": "none",
            "zero3_init_flag": layout.zero == 3,
        }
    elif layout.zero == 3:
        tree["distributed_type"] = "FSDP"
        of_trainer = layout.software.library == "Trainer FSDP"
        again = of_trainer and layout.recompute == "full"
        tree["fsdp_config"] = {f"fsdp_{key}": v for key, v in _fsdp(step).items()}
        tree["fsdp_config"]["fsdp_activation_checkpointing"] = again
    return tree


def _fsdp(step: Step) -> dict[str, Any]:
    return {
        "version": 2,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard_after_forward": step.layout.reshard_after_forward,
        "offload_params": False,
        "cpu_ram_efficient_loading": True,
        "state_dict_type": "SHARDED_STATE_DICT",
    }


def trainer_flags(step: Step) -> dict[str, Any]:
    """Flags of transformers' run_clm.py, most of them TrainingArguments'."""
    layout = step.layout
    # FSDP is told in accelerate's file
    again = layout.recompute == "full" and layout.software.library != "Trainer FSDP"
    return {
        "model_name_or_path": checkpoint(step),
        "dtype": "bfloat16" if layout.dtype == "bfloat16" else "float32",
        "block_size": step.model.seq,
        "activation_checkpointing": again,
        **_training_flags(step),
    }


def _training_flags(step: Step) -> dict[str, Any]:
    """TrainingArguments that all of its kinds have."""
    layout = step.layout
    flags = {
        "bf16": _MIXED.get(layout.dtype, "bf16") == "bf16",
        "per_device_train_batch_size": layout.micro_batch,
        "gradient_accumulation_steps": layout.microbatches(step.batch),
        "optim": _OPTIM.get(layout.optimizer, layout.optimizer),
    }
    if layout.dtype == _IN_FLOAT16:
        flags["fp16"] = True
    if layout.optimizer == "momentum":
        flags["optim_args"] = "momentum=0.9"
    return flags


def trl_flags(step: Step) -> dict[str, Any]:
    """Flags of trl's sft.py: SFTConfig's and ModelConfig's."""
    model = step.model
    layout = step.layout
    # weights that aren't trained stay as they are loaded
    is_frozen = model.adapters > 0 and layout.dtype != "float32"
    in_16_bit = layout.dtype == "bfloat16" or is_frozen
    weights = "float32"
    if in_16_bit:
        weights = "float16" if layout.dtype == _IN_FLOAT16 else "bfloat16"
    flags: dict[str, Any] = {
        "model_name_or_path": checkpoint(step),
        "dtype": weights,
        "max_length": model.seq,
        "packing": True,
        "packing_strategy": "wrapped",
        "gradient_checkpointing": layout.recompute == "full",
        "activation_offloading": layout.offload_activations,
        **_training_flags(step),
    }
    if model.adapters:
        everywhere = model.adapted == "linear"
        flags["use_peft"] = True
        flags["lora_r"] = model.adapters
        flags["lora_target_modules"] = ["all-linear"] if everywhere else _ATTENTION
    if model.quantized:
        flags["load_in_4bit"] = True
        flags["bnb_4bit_quant_type"] = "nf4"
        flags["use_bnb_nested_quant"] = True
        # FSDP splits weights of one dtype
        flags["bnb_4bit_quant_storage"] = weights
    return flags


def axolotl_config(step: Step) -> dict[str, Any]:
    """The tree of axolotl's configuration file."""
    model = step.model
    layout = step.layout
    tree: dict[str, Any] = {
        "base_model": checkpoint(step),
        "sequence_len": model.seq,
        "sample_packing": True,
        "attn_implementation": "flash_attention_2",
        "bf16": layout.dtype != "float32",
        "micro_batch_size": layout.micro_batch,
        "gradient_accumulation_steps": layout.microbatches(step.batch),
        "optimizer": _OPTIM.get(layout.optimizer, layout.optimizer),
        "gradient_checkpointing": layout.recompute == "full",
        "activation_offloading": layout.offload_activations,
    }
    if model.adapters:
        tree["adapter"] = "qlora" if model.quantized else "lora"
        tree["load_in_4bit"] = model.quantized
        tree["lora_r"] = model.adapters
        if model.adapted == "linear":
            tree["lora_target_linear"] = True
        else:
            tree["lora_target_modules"] = _ATTENTION
    if layout.zero == 3:
        tree["fsdp_version"] = 2
        settings = {key: v for key, v in _fsdp(step).items() if key != "version"}
        tree["fsdp_config"] = settings
    return tree


def torchtune_command(step: Step) -> list[str]:
    """The command of torchtune; what it doesn't say is as in the model's own file."""
    model = step.model
    layout = step.layout
    method = "lora" if model.adapters else "full"
    devices = "distributed" if step.cluster.gpus > 1 else "single_device"
    launch = "tune run"
    if step.cluster.gpus > 1:
        nodes = step.cluster.nodes
        launch += f" --nnodes {nodes} --nproc_per_node {step.cluster.gpus // nodes}"
    settings: dict[str, Any] = {
        "tokenizer.max_seq_len": model.seq,
        "dataset.packed": True,
        "batch_size": layout.micro_batch,
        "gradient_accumulation_steps": layout.microbatches(step.batch),
        "optimizer._component_": _COMPONENTS[layout.optimizer],
        "dtype": "bf16" if layout.dtype == "bfloat16" else "fp32",
        "compile": False,
        "enable_activation_checkpointing": layout.recompute == "full",
        "enable_activation_offloading": layout.offload_activations,
    }
    if layout.zero == 3 and not model.adapters:
        settings["fsdp_reshard_after_forward"] = layout.reshard_after_forward
    if model.adapters:
        settings["model.lora_rank"] = model.adapters
        settings["model.lora_attn_modules"] = "[q_proj,k_proj,v_proj,output_proj]"
        settings["model.apply_lora_to_mlp"] = model.adapted == "linear"
        settings["model.quantize_base"] = model.quantized
    words = [f"{launch} {method}_finetune_{devices}", "--config plan.yaml"]
    return words + [f"{name}={value}" for name, value in settings.items()]


def litgpt_command(step: Step) -> list[str]:
    """The command of litgpt."""
    model = step.model
    layout = step.layout
    nodes = step.cluster.nodes
    method = "lora" if model.adapters else "full"
    flags: dict[str, Any] = {
        "precision": "bf16-true" if layout.dtype == "bfloat16" else "32-true",
        "devices": step.cluster.gpus // nodes,
        "num_nodes": nodes,
        "train.micro_batch_size": layout.micro_batch,
        "train.global_batch_size": step.batch,
        "train.max_seq_length": model.seq,
        "optimizer": _LITGPT[layout.optimizer],
    }
    if model.quantized:
        flags["quantize"] = "bnb.nf4-dq"
    if model.adapters:
        flags["lora_r"] = model.adapters
        for part in ("query", "key", "value", "projection"):
            flags[f"lora_{part}"] = True
        flags["lora_mlp"] = model.adapted == "linear"
    return [f"litgpt finetune_{method} {checkpoint(step)}", *flag_words(flags)]


def flag_words(flags: Mapping[str, Any]) -> list[str]:
    """A command's flags as words, each with its value."""
    words = []
    for name, value in flags.items():
        text = " ".join(value) if isinstance(value, list) else str(value)
        words.append(f"--{name} {text.lower() if isinstance(value, bool) else text}")
    return words
