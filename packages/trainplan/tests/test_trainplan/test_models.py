"""Which names find a published model, whether its sizes make the parameters that its
name promises, and models from Hugging Face's config.json.
"""

import json
import re
from pathlib import Path

import pytest

from trainplan import model, model_from_config
from trainplan.cluster import MODELS

# what people type, and the row that it means
NAMES = {
    "llama3.1-70b": "Llama-3.1-70B",
    "Llama 3.1 8B": "Llama-3.1-8B",
    "meta-llama/Llama-3.1-8B-Instruct": "Llama-3.1-8B",
    "llama3.2-1b": "Llama-3.2-1B",
    "llama-3.3-70b": "Llama-3.3-70B",
    "llama-2-7b-chat-hf": "Llama-2-7B",
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
    "gpt-3": "GPT-3 175B",
    "gpt2": "GPT-2-124M",
    "gpt2-xl": "GPT-2-1.5B",
    "phi-4": "Phi-4-14B",
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
}


def test_the_readme_says_how_many_models_are_known():
    readme = Path(__file__).parents[2] / "README.md"
    assert f"({len(MODELS)} are known)" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_people_type_finds_its_model(name):
    assert model(name) is MODELS[NAMES[name]]


@pytest.mark.parametrize("name", ["llama-3", "gpt", "22b", "", "bert", "qwen"])
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hybrid_override_pattern": "M-M*"}, "got hybrid_override_pattern"),
        ({"layer_types": ["linear_attention"] * 3}, "got linear_attention"),
        ({"architectures": ["BertForMaskedLM"]}, "of a decoder, got BertForMaskedLM"),
        ({"is_encoder_decoder": True}, "of a decoder"),
        ({"hidden_act": "relu2"}, "of a gated MLP"),
        ({"hidden_size": None}, "Expected hidden_size in config"),
        ({"num_hidden_layers": "80"}, "a whole number of at least 1, got '80'"),
        ({"decoder_sparse_step": 2}, "of blocks that are alike"),
    ],
)
def test_a_config_that_is_no_transformer_here_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        model_from_config({**LLAMA, **change})


@pytest.mark.parametrize("text", ["", "[1]", "{", "3"])
def test_a_file_that_is_no_config_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json"):
        model_from_config(path)
