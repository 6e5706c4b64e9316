"""A Transformer from Hugging Face's config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainplan._text import brief_repr
from trainplan.costs.mixers import (
    ATTENTION,
    CHOSEN,
    CHOSEN_TOKENS,
    DELTA,
    EXPERTS,
    HEAVY,
    HEAVY_TOKENS,
    MAMBA,
    MLP,
    WINDOW,
)
from trainplan.costs.transformers import Transformer, left_out

LONGEST = 8192
"""Tokens a sequence at most, where a file says only how many the model could take."""

# These tie the head to the embedding unless their file says something else: the default
# of their classes in transformers, which a file leaves out. All others write it down.
_TIED = (
    "cohere",
    "cohere2",
    "ernie4_5",
    "ernie4_5_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "smollm3",
)
_GATES = ("silu", "swiglu")
_GEMMA_GATES = ("gelu_pytorch_tanh", "gelu")  # of others they are MLPs without a gate
# What a Gemma 3 leaves out of its text_config. Source: transformers,
# models/gemma3/configuration_gemma3.py, Gemma3TextConfig (008f5c8c).
_GEMMA3 = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
}
_ENCODERS = ("vision_config", "audio_config")
_DECODERS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
# The mixers of costs.mixers by the words of layer_types, but for linear_attention.
_MIXERS = {
    "compressed_sparse_attention": CHOSEN,
    "heavily_compressed_attention": HEAVY,
    "full_attention": ATTENTION,
    "attention": ATTENTION,
    "sliding_attention": WINDOW,
    "mamba": MAMBA,
    "mlp": MLP,
    "moe": EXPERTS,
}
# What linear_attention is, by model_type.
_STATES = {
    "qwen3_next": DELTA,
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": DELTA,
    "nemotron_h": MAMBA,
    "bamba": MAMBA,
    "granitemoehybrid": MAMBA,
}
# Fields that, if they are set, make blocks that a Transformer hasn't: other state
# spaces (Falcon, Mamba-1, Kimi Linear) and experts in some blocks. Attention that
# leaves out keys (DeepSeek-V3.2) has an index_topk.
_OTHER_BLOCKS = (
    "ssm_cfg",
    "mamba_d_ssm",
    "mamba_dt_rank",
    "interleave_moe_layer_step",
    "mlp_only_layers",
    "moe_latent_size",
    "cross_attention_layers",
    "linear_attn_config",
)
# How many experts there are, how many a token meets, and how many all tokens meet, by
# families: DeepSeek, Mixtral, Qwen, then Ling (num_shared_experts), ERNIE and Aria.
# Source: transformers, models/ernie4_5_moe and aria (4.57.3); inclusionAI/Ling-lite,
# configuration_bailing_moe.py (ed7d8154).
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
# Of how many tokens a key is, by DeepSeek-V4's compress_ratios.
_RATIOS = {0: WINDOW, CHOSEN_TOKENS: CHOSEN, HEAVY_TOKENS: HEAVY}


def model_from_config(config: Mapping[str, Any] | str | Path) -> Transformer:
    """The Transformer of a model's `config.json`, given by its path or as a dict.

    Windows, Mamba-2, gated delta nets and compressed keys become a pattern. Blocks that
    predict ahead are left out, and `seq` is what the model could take, at most LONGEST.
    Raises ValueError for a file that isn't one, and for what a Transformer can't be:
    encoders, other state spaces, and experts in some of the blocks.
    """
    name = "config"
    if isinstance(config, str | Path):
        name = str(config)
        config = _read(Path(config))
    elif not isinstance(config, Mapping):
        raise TypeError(
            "Expected the path of a config.json or its fields, got"
            f" {brief_repr(config)}."
        )
    fields = config.get("text_config") or config
    if fields.get("model_type") == "gemma3_text":
        fields = {**_GEMMA3, **fields}
    _refuse_other_kinds({**config, **fields}, name)
    if fields.get("model_type") == "gpt2":
        return _gpt2(fields, name)
    if fields.get("model_type") == "nemotron_h":
        return _nemotron_h(fields, name)
    _require_gate(fields, name)
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
    mixer_after = EXPERTS if mlp.get("experts") else MLP
    blocks = [mixer + mixer_after for mixer in _mixers(fields, sizes["seq"])]
    settings = {**sizes, **attention, **mlp, **_pattern(fields, name, blocks)}
    return Transformer(
        **settings,
        gated=True,
        name=config.get("_name_or_path") or _model_name(name),
        source=name,
    )


def _model_name(path: str) -> str:
    """A model's name by its file, or the folder of a file that is called config."""
    file = Path(path)
    if file.stem == "config":
        return file.parent.name or path
    return file.stem


def _require_gate(fields: Mapping[str, Any], name: str) -> None:
    """ValueError for MLPs of two matrices, and where nothing says how many."""
    activation = fields.get("hidden_act") or fields.get("hidden_activation")
    kind = fields.get("model_type") or ""
    is_gemma = kind.startswith("gemma")
    if activation in _GATES or (is_gemma and activation in _GEMMA_GATES):
        return
    what = f"hidden_act {brief_repr(activation)}"
    if activation is None:
        what = "no hidden_act"
    if kind:
        what += f" with model_type {kind}"
    raise ValueError(
        f"Expected {name} of a gated MLP, as Llama's (hidden_act silu) or a Gemma's,"
        f" got {what}. Give the model's sizes instead, such as --sizes"
        " layers=32,hidden=4096,heads=32, with gated for three matrices an MLP."
    )


def unread_parts(path: str | Path) -> tuple[str, ...]:
    """The parts of a config.json that model_from_config leaves out: what makes tokens
    of images and sounds.
    """
    fields = _read(Path(path))
    return tuple(part for part in _ENCODERS if fields.get(part))


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
        raise ValueError(
            f"Expected {name} of a decoder, got {names or 'an encoder'}. Encoders can't"
            " be planned here."
        )
    reason = left_out(fields.get("model_type") or "")
    if reason:
        raise ValueError(
            f"Expected {name} of a model that can be planned here, got one that has"
            f" {reason}."
        )
    others = [field for field in _OTHER_BLOCKS if fields.get(field)]
    if fields.get("decoder_sparse_step", 1) != 1:
        others.append("decoder_sparse_step")
    others += _unread_experts(fields)
    if fields.get("index_topk") and fields.get("model_type") != "deepseek_v4":
        others.append("index_topk")
    if fields.get("hybrid_override_pattern") and not _is_nemotron_h(fields):
        others.append("hybrid_override_pattern")
    allowed = set(_MIXERS)
    if fields.get("model_type") in _STATES:
        allowed.add("linear_attention")
    kinds = sorted(set(fields.get("layer_types") or ()) - allowed)
    if others or kinds:
        raise ValueError(
            f"Expected {name} of blocks that are alike, or differ by windows, Mamba-2,"
            " gated delta nets and compressed keys alone, got"
            f" {', '.join(others + kinds)}. Such models can't be planned here."
        )


def _unread_experts(fields: Mapping[str, Any]) -> list[str]:
    """The fields of experts that _experts doesn't know: of a number that has another
    word, and of dense blocks behind or between (ERNIE's).
    """
    if not _first(fields, *_EXPERTS):
        return [
            field
            for field, value in fields.items()
            if "expert" in field and isinstance(value, int) and value > 1
        ]
    last = fields.get("moe_layer_end_index", -1)
    layers = fields.get("num_hidden_layers") or 0
    unread = ["moe_layer_end_index"] if last not in (-1, layers - 1) else []
    if fields.get("moe_layer_interval", 1) != 1:
        unread.append("moe_layer_interval")
    return unread


def _is_nemotron_h(fields: Mapping[str, Any]) -> bool:
    return fields.get("model_type") == "nemotron_h"


def _mixers(fields: Mapping[str, Any], seq: int) -> list[str]:
    """What stands in attention's place in each block; empty where attention does."""
    layers = fields["num_hidden_layers"]
    ratios = fields.get("compress_ratios")
    if ratios and not fields.get("layer_types"):
        return [_letter(ratio, _RATIOS, "compress_ratios") for ratio in ratios[:layers]]
    types = fields.get("layer_types") or fields.get("layers_block_type")
    interval = fields.get("full_attention_interval")
    if fields.get("attn_layer_indices") is not None:  # Bamba's
        full = fields["attn_layer_indices"]
        types = ["attention" if i in full else "mamba" for i in range(layers)]
    elif not types and interval:
        types = _every(interval, layers, "linear_attention")
    elif not types:
        types = _windowed(fields)
    state = _STATES.get(fields.get("model_type", ""), MAMBA)
    mixers = [_MIXERS.get(kind, state) for kind in types]
    window = fields.get("sliding_window") or seq
    if window >= seq:
        mixers = [ATTENTION if mixer == WINDOW else mixer for mixer in mixers]
    return [] if set(mixers) <= {ATTENTION} else mixers


def _letter(kind: Any, letters: Mapping[Any, str], field: str) -> str:
    """The mixer of a word of a file's."""
    if kind not in letters:
        raise ValueError(
            f"Expected {field} of {', '.join(map(str, letters))}, got"
            f" {brief_repr(kind)}. Such models can't be planned here."
        )
    return letters[kind]


def _every(interval: int, layers: int, other: str) -> list[str]:
    """Full attention in every so many blocks, at the end of each group."""
    return [
        other if (block + 1) % interval else "full_attention" for block in range(layers)
    ]


def _windowed(fields: Mapping[str, Any]) -> list[str]:
    """The layer_types of files that are older than these, by transformers' defaults."""
    layers = fields["num_hidden_layers"]
    window = fields.get("sliding_window")
    if not window or fields.get("use_sliding_window") is False:
        return []
    kind = fields.get("model_type", "")
    usual = {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "cohere2": 4}
    interval = fields.get("sliding_window_pattern") or usual.get(kind)
    if interval:
        return _every(interval, layers, "sliding_attention")
    full = 0  # blocks that have none, the first ones of Qwen2
    if kind.startswith("qwen"):
        full = fields.get("max_window_layers") or 0
    return [
        "full_attention" if block < full else "sliding_attention"
        for block in range(layers)
    ]


def _pattern(fields: Mapping[str, Any], name: str, blocks: list[str]) -> dict[str, Any]:
    """The pattern of these blocks, by its shortest period, and the sizes of its mixers;
    empty where there are no blocks.
    """
    if not blocks:
        return {}
    period = next(
        length
        for length in (*range(1, len(blocks) // 2 + 1), len(blocks))
        if all(block == blocks[i % length] for i, block in enumerate(blocks))
    )
    letters = set("".join(blocks))
    if all(len(block) == 1 for block in blocks):
        settings: dict[str, Any] = {"pattern": "".join(blocks[:period])}
    else:  # of one block twice, since a space tells its mixers from blocks of one
        settings = {"pattern": " ".join(blocks[: max(period, 2)])}
    if WINDOW in letters:
        settings["window"] = _size(fields, "sliding_window", name)
    if letters & {MAMBA, DELTA}:
        settings |= _states(fields, name)
    if letters & {CHOSEN, HEAVY}:
        settings |= _compressed(fields, name)
    return settings


def _compressed(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The sizes of attention to compressed keys, in the words of DeepSeek-V4's."""
    return {
        "window": _size(fields, "sliding_window", name),
        "query_rank": _size(fields, "q_lora_rank", name),
        "out_rank": _size(fields, "o_lora_rank", name),
        "out_groups": _size(fields, "o_groups", name),
        "index_heads": _size(fields, "index_n_heads", name),
        "index_dim": _size(fields, "index_head_dim", name),
        "index_top_k": _size(fields, "index_topk", name),
        "streams": fields.get("hc_mult") or 1,
        "kv_heads": 1,
    }


def _states(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The sizes of state spaces, in the words of the model's own config.json."""
    kind = _STATES.get(fields.get("model_type", ""))
    if kind == DELTA:
        words = (
            "linear_num_value_heads",
            "linear_value_head_dim",
            "linear_num_key_heads",
            "linear_key_head_dim",
        )
    elif _is_nemotron_h(fields):
        words = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size")
    else:
        words = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state")
    heads, width, groups, state = words
    sizes = {
        "state_heads": _size(fields, heads, name),
        "state_groups": _size(fields, groups, name),
        "state_dim": _size(fields, state, name),
        "attention_gate": kind == DELTA and fields.get("attn_output_gate", True),
    }
    if fields.get(width) == "auto":  # Bamba's and Granite's
        inner = fields.get("mamba_expand", 2) * _size(fields, "hidden_size", name)
        sizes["state_head_dim"] = inner // sizes["state_heads"]
    else:
        sizes["state_head_dim"] = _size(fields, width, name)
    return sizes


def _nemotron_h(fields: Mapping[str, Any], name: str) -> Transformer:
    """A Nemotron-H: each block is one mixer, MLPs have squared ReLU."""
    types = fields.get("layers_block_type") or ()
    state_words = {"linear_attention": MAMBA, **_MIXERS}
    letters = fields.get("hybrid_override_pattern") or [
        _letter(kind, state_words, "layers_block_type") for kind in types
    ]
    if {MLP, EXPERTS} <= set(letters):
        raise ValueError(
            f"Expected {name} of MLPs or of experts, got both, which differ in width."
            " Such models can't be planned here."
        )
    mlp: dict[str, Any] = {"feed_forward": _size(fields, "intermediate_size", name)}
    if EXPERTS in letters:
        shared = fields.get("moe_shared_expert_intermediate_size") or 0
        mlp = {
            "feed_forward": _size(fields, "moe_intermediate_size", name),
            "experts": _size(fields, "n_routed_experts", name),
            "top_k": _size(fields, "num_experts_per_tok", name),
            "shared": shared * (fields.get("n_shared_experts") or 0),
        }
    return Transformer(
        len(letters),
        _size(fields, "hidden_size", name),
        _size(fields, "num_attention_heads", name),
        vocab=_size(fields, "vocab_size", name),
        seq=min(fields.get("max_position_embeddings") or LONGEST, LONGEST),
        kv_heads=fields.get("num_key_value_heads"),
        head_dim=fields.get("head_dim") or fields.get("attention_head_dim"),
        tied=fields.get("tie_word_embeddings", False),
        **mlp,
        **_pattern(fields, name, list(letters)),
        gated=True,
        gated_mlp=False,
        name=fields.get("_name_or_path") or _model_name(name),
        source=name,
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
        "query_rank": fields.get("q_lora_rank") or 0,  # 0: queries are not compressed
        "head_dim": _size(fields, "qk_nope_head_dim", name),
        "rotary": _size(fields, "qk_rope_head_dim", name),
        "value_dim": _size(fields, "v_head_dim", name),
    }


def _first(fields: Mapping[str, Any], *names: str) -> int:
    """The first of several fields that is set; else 0."""
    name = next((name for name in names if fields.get(name)), "")
    value = fields.get(name, 0)
    if not isinstance(value, int):  # a list has a number for each block (Hunyuan)
        raise ValueError(
            f"Expected {name} to be one whole number for all blocks, got"
            f" {brief_repr(value)}. Such models can't be planned here."
        )
    return value


def _experts(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The sizes of the MLPs, one in each block or several experts."""
    experts = _first(fields, *_EXPERTS)
    shared = _first(
        fields, "shared_expert_intermediate_size", "shared_intermediate_size"
    )
    if not experts:
        # Granite's dense models have the shared expert alone
        of_granite = fields.get("model_type") == "granitemoehybrid" and shared
        return {"feed_forward": of_granite or _size(fields, "intermediate_size", name)}
    width = _first(fields, "moe_intermediate_size", "intermediate_size")
    groups = fields.get("n_group") or 1
    return {
        "feed_forward": width,
        "experts": experts,
        "top_k": _first(fields, *_TOP_K),
        "expert_biases": fields.get("model_type") == "gpt_oss",
        "shared": shared or _first(fields, *_SHARED) * width,
        "dense": _first(fields, "first_k_dense_replace", "moe_layer_start_index"),
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
        name=fields.get("_name_or_path") or _model_name(name),
        source=name,
    )
