"""Which names find a published model, whether its sizes make the parameters that its
name promises, and models from Hugging Face's config.json.
"""

import json
import re
from pathlib import Path

import pytest

from trainplan import model, model_from_config
from trainplan.cluster import MODELS
from trainplan.command import asked

# what people type, and the row that it means
NAMES = {
    "llama3.1-70b": "Llama-3.1-70B",
    "Llama 3.1 8B": "Llama-3.1-8B",
    "meta-llama/Llama-3.1-8B-Instruct": "Llama-3.1-8B",
    "llama3.2-1b": "Llama-3.2-1B",
    "llama-3.3-70b": "Llama-3.3-70B",
    "llama-2-7b-chat-hf": "Llama-2-7B",
    "Meta Llama 3 8B": "Llama-3-8B",
    "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF": "Llama-3.1-8B",
    "llama3.2:3b-instruct-q4_K_M": "Llama-3.2-3B",
    "gpt-oss-120b-mxfp4": "GPT-OSS-120B",
    "mistral-7b": "Mistral-7B",
    "mistralai/Mistral-7B-Instruct-v0.3": "Mistral-7B",
    "mixtral": "Mixtral-8x7B",
    "Mixtral-8x22B-v0.1": "Mixtral-8x22B",
    "qwen2.5-72b": "Qwen2.5-72B",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "Qwen3-30B-A3B",
    "qwen3-32b": "Qwen3-32B",
    "gemma3": "Gemma-3-27B",
    "google/gemma-2-9b-it": "Gemma-2-9B",
    "deepseek-r1": "DeepSeek-R1",
    "deepseek-ai/DeepSeek-R1-0528": "DeepSeek-R1",
    "kimi-k2": "Kimi-K2",
    "openai/gpt-oss-20b": "GPT-OSS-20B",
    "smollm3": "SmolLM3-3B",
    "SmolLM2-135M": "SmolLM2-135M",
    "olmo2": "OLMo-2-7B",
    "glm-4.5": "GLM-4.5",
    "zai-org/GLM-4.6-FP8": "GLM-4.5",
    "zai-org/GLM-4.7": "GLM-4.5",
    "zai-org/GLM-4.7-Flash": "GLM-4.7-Flash",
    "deepseek-ai/DeepSeek-V3.1": "DeepSeek-V3",
    "deepseek-ai/DeepSeek-V3.1-Terminus": "DeepSeek-V3",
    "gpt-3": "GPT-3 175B",
    "gpt2": "GPT-2-124M",
    "gpt2-xl": "GPT-2-1.5B",
    "phi-4": "Phi-4-14B",
    "moonshotai/Kimi-K2-Thinking": "Kimi-K2",
    "nvidia/Nemotron-H-8B-Base-8K": "Nemotron-H-8B",
    "nemotron-h-56b": "Nemotron-H-56B",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "Nemotron-Nano-9B-v2",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "Nemotron-3-Nano-30B-A3B",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "Qwen3-Next-80B-A3B",
    "qwen3.5-35b-a3b": "Qwen3.5-35B-A3B",
    "deepseek-v4": "DeepSeek-V4-Flash",
    "deepseek-ai/DeepSeek-V4-Pro": "DeepSeek-V4-Pro",
}
# Names whose number isn't the count of parameters, and the published count in billions:
# model cards of Llama 3.2, Gemma, Falcon 3, GLM 4.5 and MiniMax M2.
COUNTS = {
    "Llama-3.2-1B": 1.24,
    "Llama-3.2-3B": 3.21,
    "GPT 1.7B": 1.65,
    "Falcon3-1B": 1.67,
    "Falcon3-7B": 7.46,
    "Gemma-2B": 2.51,
    "Gemma-7B": 8.54,
    "Gemma-2-2B": 2.61,
    "Mixtral-8x7B": 46.7,
    "Mixtral-8x22B": 141,
    "GLM-4.5": 355,
    "GLM-4.5-Air": 106,
    "GLM-4.7-Flash": 30,
    "MiniMax-M2": 229,
    "DeepSeek-V3": 671,
    "DeepSeek-R1": 671,
    "Kimi-K2": 1040,
    "DeepSeek-V4-Flash": 284,
    "DeepSeek-V4-Pro": 1573,
}


# The parameters of transformers 5.24.0's own classes with these sizes, on the meta
# device; of Qwen they have norms of queries and keys too, which are left out here, and
# of GPT-OSS biases and sinks.
TRANSFORMERS_PARAMS = {
    "Nemotron-H-8B": 8_100_852_736,
    "Nemotron-H-56B": 56_324_350_464,
    "Nemotron-Nano-9B-v2": 8_888_227_328,
    "Nemotron-Nano-12B-v2": 12_310_001_152,
    "Nemotron-3-Nano-30B-A3B": 31_577_937_344,
    "Qwen3-Next-80B-A3B": 79_674_391_296,
    "Qwen3.5-9B": 8_953_803_264,
    "Qwen3.5-35B-A3B": 34_660_610_688,
    "Kimi-K2": 1_026_408_209_408,
    "DeepSeek-V4-Flash": 284_332_230_231,
    "DeepSeek-V4-Pro": 1_572_997_179_491,
    "Gemma-3-27B": 27_009_002_240,
    "GPT-OSS-120B": 116_829_156_672,
}


@pytest.mark.parametrize("name", TRANSFORMERS_PARAMS)
def test_parameters_are_those_of_transformers(name):
    is_exact = name.startswith(("Nemotron", "Kimi", "DeepSeek"))
    within = 0 if is_exact else 0.0005
    assert MODELS[name].params == pytest.approx(TRANSFORMERS_PARAMS[name], rel=within)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deepseek-v3.2", "keys alone that an indexer chooses"),
        ("kimi-k3", "Kimi's delta attention"),
        ("jamba-1.5-large", "Mamba-1"),
        ("tiiuae/Falcon3-Mamba-7B-Instruct", "Mamba-1"),
        ("nemotron-3-super", "in a narrower space"),
        ("llama4-scout", "attention in chunks"),
        ("tiiuae/falcon-7b", "attention and MLP beside each other"),
        ("state-spaces/mamba-2.8b", "in place of all attention"),
    ],
)
def test_a_model_that_cannot_be_said_is_refused_with_why(name, words):
    with pytest.raises(ValueError, match=words):
        model(name)


def test_a_name_that_only_begins_like_another_family_has_no_reason():
    with pytest.raises(ValueError, match=r"got 'llama 405b'\. The nearest are Llama-3"):
        model("llama 405b")


def test_the_readme_says_how_many_models_are_known():
    readme = Path(__file__).parents[2] / "README.md"
    assert f"({len(MODELS)} are known)" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_people_type_finds_its_model(name):
    assert model(name) is MODELS[NAMES[name]]


@pytest.mark.parametrize("name", ["llama-3", "gpt", "gpt 1", "22b", "", "bert", "qwen"])
def test_a_name_of_none_or_of_several_is_refused_with_the_nearest(name):
    with pytest.raises(ValueError, match="The nearest are"):
        model(name)


def test_the_sizes_of_a_model_make_the_parameters_that_its_name_promises():
    for name, shape in MODELS.items():
        number, unit = re.findall(r"(\d+(?:\.\d+)?)([MBT])(?![a-z])", name + " 0B")[0]
        billions = float(number) * {"M": 1e-3, "B": 1, "T": 1e3}[unit]
        billions = COUNTS.get(name, billions)
        assert shape.params / 1e9 == pytest.approx(billions, rel=0.1), name


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
QWEN_WITH_EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 4096,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 2048,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "topk_group": 4,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GEMMA = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "vocab_size": 262144,
    },
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
NEMOTRON_H = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "attention_head_dim": 128,
    "hidden_size": 4096,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "intermediate_size": 21504,
    "mamba_head_dim": 64,
    "mamba_num_heads": 128,
    "max_position_embeddings": 8192,
    "mlp_hidden_act": "relu2",
    "n_groups": 8,
    "num_attention_heads": 32,
    "num_hidden_layers": 52,
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "vocab_size": 131072,
}
DEEPSEEK_V4 = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "hc_mult": 4,
    "head_dim": 512,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 512,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 43,
    "num_key_value_heads": 1,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "q_lora_rank": 1024,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 129280,
}
QWEN_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "decoder_sparse_step": 1,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "num_attention_heads": 16,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "Llama-3.1-70B"),
        (QWEN_WITH_EXPERTS, "Qwen3-30B-A3B"),
        (DEEPSEEK, "DeepSeek-V3"),
        (GEMMA, "Gemma-3-27B"),
        (GPT_OSS, "GPT-OSS-20B"),
        (NEMOTRON_H, "Nemotron-H-8B"),
        (QWEN_NEXT, "Qwen3-Next-80B-A3B"),
        (DEEPSEEK_V4, "DeepSeek-V4-Flash"),
        (GPT2, "GPT-2-124M"),
    ],
)
def test_a_config_of_hugging_face_is_the_model_of_the_table(tmp_path, config, name):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    read = model_from_config(path)
    published = MODELS[name]
    assert (read.params, read.flop_per_token) == (
        published.params,
        published.flop_per_token,
    )
    assert (read.dense, read.max_nodes) == (published.dense, published.max_nodes)


def test_what_a_gemma_3_leaves_out_of_its_config_is_transformers_default():
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
        "vocab_size": 262_144,  # transformers' is that of the model with images
    }
    read = model_from_config({"model_type": "gemma3", "text_config": text})
    assert read.params == MODELS["Gemma-3-4B"].params


# What transformers 4.57.3 writes for its class's own sizes, those of ERNIE-4.5-21B-A3B,
# and inclusionAI/Ling-Coder-lite's config.json, of 16.8 billion parameters.
ERNIE = {
    "architectures": ["Ernie4_5_MoeForCausalLM"],
    "model_type": "ernie4_5_moe",
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 12288,
    "max_position_embeddings": 131072,
    "moe_intermediate_size": 1536,
    "moe_k": 6,
    "moe_layer_end_index": 27,
    "moe_layer_interval": 1,
    "moe_layer_start_index": 1,
    "moe_num_experts": 64,
    "moe_num_shared_experts": 2,
    "num_attention_heads": 20,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "vocab_size": 103424,
}
LING = {
    "architectures": ["BailingMoeForCausalLM"],
    "model_type": "bailing_moe",
    "first_k_dense_replace": 0,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 1408,
    "num_attention_heads": 16,
    "num_experts": 64,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "num_shared_experts": 2,
    "tie_word_embeddings": False,
    "vocab_size": 126464,
}


@pytest.mark.parametrize(
    ("config", "params", "top_k"), [(ERNIE, 21_825_437_888, 6), (LING, 16.8e9, 6)]
)
def test_experts_are_read_in_the_words_of_each_family(config, params, top_k):
    read = model_from_config(config)
    assert read.params == pytest.approx(params, rel=0.002)
    assert (read.experts, read.top_k, read.shared // read.feed_forward) == (
        64,
        top_k,
        2,
    )


def test_a_head_that_a_class_ties_by_default_has_no_parameters_of_its_own():
    untied = {key: LLAMA[key] for key in LLAMA if key != "tie_word_embeddings"}
    of_cohere = model_from_config({**untied, "model_type": "cohere"})
    assert of_cohere.tied
    assert not model_from_config(untied).tied


def test_what_a_config_has_beside_the_text_model_is_told(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "vision_config": {"depth": 32}}))
    words = ["--config", str(path), "--gpus", "64xH100", "--show", "1"]
    assert "without vision_config" in str(asked(words).table())


def test_queries_of_latent_attention_may_come_from_hidden():
    lite = {**DEEPSEEK, "q_lora_rank": None}
    read = model_from_config(lite)
    heads = read.query_width
    whole = read.hidden * heads
    halves = 1536 * (read.hidden + heads) + 1536  # with a norm
    blocks = read.params - model_from_config(DEEPSEEK).params
    assert blocks == read.layers * (whole - halves)


@pytest.mark.parametrize(
    ("file", "name"), [("mine.json", "mine"), ("tiny/config.json", "tiny")]
)
def test_a_config_is_called_as_its_file_or_folder(tmp_path, file, name):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    assert model_from_config(path).name == name


@pytest.mark.parametrize(
    ("config", "change", "pattern", "window"),
    [
        (LLAMA, {}, "", 0),
        (LLAMA, {"sliding_window": 4096}, "W- W-", 4096),
        (LLAMA, {"sliding_window": 4096, "use_sliding_window": False}, "", 0),
        (LLAMA, {"sliding_window": 200_000}, "", 0),
        (GPT_OSS, {"sliding_window": 128}, "WE *E", 128),
        (
            LLAMA,
            {"model_type": "gemma2", "sliding_window": 4096},
            "W- *-",
            4096,
        ),
        (
            LLAMA,
            {
                "model_type": "gemma3_text",
                "sliding_window": 1024,
                "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 26
                + ["sliding_attention"] * 2,
            },
            "W- W- *-",
            1024,
        ),
        (QWEN_NEXT, {}, "GE GE GE *E", 0),
        (NEMOTRON_H, {}, NEMOTRON_H["hybrid_override_pattern"], 0),
        (
            NEMOTRON_H,
            {
                "hybrid_override_pattern": None,
                "layers_block_type": ["mamba", "mlp", "attention", "mlp"] * 2,
            },
            "M-*-",
            0,
        ),
        (
            LLAMA,
            {
                "model_type": "granitemoehybrid",
                "layer_types": ["mamba", "mamba", "attention", "mamba"] * 20,
                "mamba_d_head": "auto",
                "mamba_d_state": 128,
                "mamba_n_groups": 1,
                "mamba_n_heads": 128,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
                "shared_intermediate_size": 1024,
            },
            "ME ME *E ME",
            0,
        ),
    ],
)
def test_what_blocks_are_made_of_becomes_a_pattern(config, change, pattern, window):
    read = model_from_config({**config, **change})
    assert (read.pattern, read.window) == (pattern, window)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hybrid_override_pattern": "M-M*"}, "got hybrid_override_pattern"),
        ({"index_topk": 512}, "got index_topk"),
        ({"mamba_dt_rank": 256}, "got mamba_dt_rank"),
        ({"layer_types": ["linear_attention"] * 3}, "got linear_attention"),
        ({"architectures": ["BertForMaskedLM"]}, "of a decoder, got BertForMaskedLM"),
        ({"is_encoder_decoder": True}, "of a decoder"),
        ({"hidden_act": "relu2"}, "of a gated MLP"),
        ({"hidden_act": "gelu"}, "of a gated MLP"),  # a GPT's, of two matrices
        ({"hidden_act": None}, "got no hidden_act"),
        ({"model_type": "gpt_neox"}, "attention and MLP beside each other"),
        ({"model_type": "mamba"}, "in place of all attention"),
        ({"hidden_size": None}, "Expected hidden_size in config"),
        ({"num_hidden_layers": "80"}, "a whole number of at least 1, got '80'"),
        ({"decoder_sparse_step": 2}, "of blocks that are alike"),
        ({"expert_count": 8}, "of blocks that are alike, .* got expert_count"),
        (
            {"num_experts": 8, "moe_layer_interval": 2},
            "of blocks that are alike, .* got moe_layer_interval",
        ),
        (
            {"num_experts": 8, "moe_intermediate_size": [64, 64]},
            r"Expected moe_intermediate_size to be one whole number .* got \[64, 64\]",
        ),
    ],
)
def test_a_config_that_is_no_transformer_here_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        model_from_config({**LLAMA, **change})


@pytest.mark.parametrize(
    ("config", "change", "words"),
    [
        (NEMOTRON_H, {"hybrid_override_pattern": "M-ME*"}, "of MLPs or of experts"),
        (
            NEMOTRON_H,
            {"hybrid_override_pattern": None, "layers_block_type": ["conv"]},
            "Expected layers_block_type of linear_attention, .* got 'conv'",
        ),
        (NEMOTRON_H, {"ssm_state_size": None}, "Expected ssm_state_size in config"),
        (DEEPSEEK_V4, {"compress_ratios": [8] * 43}, "compress_ratios of 0, 4, 128"),
        (QWEN_NEXT, {"linear_num_key_heads": 0}, "Expected linear_num_key_heads"),
    ],
)
def test_a_hybrid_s_config_that_lacks_something_is_refused(config, change, words):
    with pytest.raises(ValueError, match=words):
        model_from_config({**config, **change})


def test_what_is_neither_a_path_nor_fields_is_refused():
    with pytest.raises(TypeError, match=r"the path of a config\.json or its fields"):
        model_from_config(5)


@pytest.mark.parametrize("text", ["", "[1]", "{", "3"])
def test_a_file_that_is_no_config_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json"):
        model_from_config(path)
