"""A Transformer from Hugging Face's config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainplan._text import brief_repr
from trainplan.costs.transformers import Transformer

LONGEST = 8192
"""Tokens a sequence at most, where a file says only how many the model could take."""

# These tie the head to the embedding unless their file says something else: the default
# of their classes in transformers, which a file leaves out. All others write it down.
_TIED = ("gemma", "gemma2", "gemma3_text", "smollm3")
_GATES = ("silu", "swiglu", "gelu_pytorch_tanh", "gelu")  # Gemma's are GELUs
_DECODERS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_ATTENTION = ("full_attention", "sliding_attention")
# Fields that, if they are set, make blocks that a Transformer hasn't.
_OTHER_BLOCKS = (
    "hybrid_override_pattern",
    "ssm_cfg",
    "mamba_d_state",
    "interleave_moe_layer_step",
    "mlp_only_layers",
    "cross_attention_layers",
    "full_attention_interval",
    "linear_attn_config",
    "index_topk",
)


def model_from_config(config: Mapping[str, Any] | str | Path) -> Transformer:
    """The Transformer of a model's `config.json`, given by its path or as a dict.

    Sliding windows are taken to be full attention, blocks that predict ahead are left
    out, and `seq` is what the model could take, at most LONGEST. Raises ValueError for
    a file that isn't one, and for what a Transformer can't be: encoders, mixtures of
    Mamba and attention, and blocks of several kinds.
    """
    name = "config"
    if isinstance(config, str | Path):
        name = str(config)
        config = _read(Path(config))
    fields = config.get("text_config") or config
    _refuse_other_kinds({**config, **fields}, name)
    if fields.get("model_type") == "gpt2":
        return _gpt2(fields, name)
    activation = fields.get("hidden_act") or fields.get("hidden_activation")
    if activation not in _GATES:
        raise ValueError(
            f"Expected {name} of a gated MLP, as Llama's, got hidden_act"
            f" {brief_repr(activation)}. Give the sizes instead."
        )
    sizes = {
        "layers": _size(fields, "num_hidden_layers", name),
        "hidden": _size(fields, "hidden_size", name),
        "heads": _size(fields, "num_attention_heads", name),
        "vocab": _size(fields, "vocab_size", name),
        "seq": min(fields.get("max_position_embeddings") or LONGEST, LONGEST),
        "tied": fields.get("tie_word_embeddings", fields.get("model_type") in _TIED),
    }
    attention = _latent(fields, name) if fields.get("kv_lora_rank") else _heads(fields)
    mlp = _experts(fields, name)
    return Transformer(
        **sizes,
        **attention,
        **mlp,
        gated=True,
        name=config.get("_name_or_path") or Path(name).parent.name or name,
        source=name,
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"Expected a config.json of Hugging Face's at {path}, which can't be read:"
            f" {error}."
        ) from error
    if not isinstance(fields, dict):
        raise ValueError(f"Expected a JSON object in {path}, got {brief_repr(fields)}.")
    return fields


def _refuse_other_kinds(fields: Mapping[str, Any], name: str) -> None:
    """ValueError for a model that no Transformer is."""
    names = ", ".join(fields.get("architectures") or ())
    is_decoder = not names or any(part in names for part in _DECODERS)
    if fields.get("is_encoder_decoder") or not is_decoder:
        raise ValueError(f"Expected {name} of a decoder, got {names or 'an encoder'}.")
    others = [field for field in _OTHER_BLOCKS if fields.get(field)]
    if fields.get("decoder_sparse_step", 1) != 1:
        others.append("decoder_sparse_step")
    kinds = sorted(set(fields.get("layer_types") or ()) - set(_ATTENTION))
    if others or kinds:
        raise ValueError(
            f"Expected {name} of blocks that are alike, with attention in each, got"
            f" {', '.join(others + kinds)}. Such models can't be planned here."
        )


def _size(fields: Mapping[str, Any], field: str, name: str) -> int:
    value = fields.get(field)
    if not isinstance(value, int) or value < 1:
        raise ValueError(
            f"Expected {field} in {name} to be a whole number of at least 1, got"
            f" {brief_repr(value)}."
        )
    return value


def _heads(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kv_heads": fields.get("num_key_value_heads"),
        "head_dim": fields.get("head_dim"),
    }


def _latent(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The sizes of latent attention, in the words of DeepSeek's config.json."""
    return {
        "kv_rank": _size(fields, "kv_lora_rank", name),
        "query_rank": _size(fields, "q_lora_rank", name),
        "head_dim": _size(fields, "qk_nope_head_dim", name),
        "rotary": _size(fields, "qk_rope_head_dim", name),
        "value_dim": _size(fields, "v_head_dim", name),
    }


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    """The first of several fields that is set; else 0."""
    return next((fields[name] for name in names if fields.get(name)), 0)


def _experts(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The sizes of the MLPs, one in each block or several experts."""
    experts = _first(fields, "n_routed_experts", "num_local_experts", "num_experts")
    if not experts:
        return {"feed_forward": _size(fields, "intermediate_size", name)}
    width = _first(fields, "moe_intermediate_size", "intermediate_size")
    shared = _first(fields, "shared_expert_intermediate_size")
    groups = fields.get("n_group") or 1
    return {
        "feed_forward": width,
        "experts": experts,
        "top_k": _first(fields, "num_experts_per_tok", "experts_per_token"),
        "shared": shared or (fields.get("n_shared_experts") or 0) * width,
        "dense": fields.get("first_k_dense_replace") or 0,
        # a group of experts is a node's (DeepSeek-V3, section 2.1.2)
        "max_nodes": (fields.get("topk_group") or 0) if groups > 1 else 0,
    }


def _gpt2(fields: Mapping[str, Any], name: str) -> Transformer:
    return Transformer(
        _size(fields, "n_layer", name),
        _size(fields, "n_embd", name),
        _size(fields, "n_head", name),
        vocab=_size(fields, "vocab_size", name),
        seq=_size(fields, "n_positions", name),
        feed_forward=fields.get("n_inner"),
        name=fields.get("_name_or_path") or name,
        source=name,
    )
