"""FLOP, bytes and memory against counts by hand, torch's counter and published
formulas; break-even.
"""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from trainplan import costs
from trainplan.costs import layers
from trainplan.costs.transformer_layers import decoder
from trainplan.costs.transformers import Transformer

pytestmark = pytest.mark.slow  # imports torch, whose first backward pass takes a second

PUBLISHED_PARAMS = {
    # LeNet-5's layout with full connections, by hand: 456 + 2,416 + 48,120 + 10,164 +
    # 850
    "SimpleCNN": 62_006,
    "BERT-base": 109_482_240,  # bert-base-uncased, the encoder with its pooler
    "GPT-2 XL": 1_557_611_200,  # gpt2-xl
    "Llama-2-7B": 6_738_415_616,  # meta-llama/Llama-2-7b
    "Llama-2-70B": 68_976_648_192,  # meta-llama/Llama-2-70b
}


def test_layers_by_hand():
    linear = layers.linear(2, 3, 5)
    assert (linear.flop, linear.params, linear.n_bytes) == (60, 20, 4 * (6 + 20) + 40)
    conv = costs.conv2d(1, 3, 6, 32, kernel=5)
    assert (conv.flop, conv.params) == (2 * 6 * 28 * 28 * 75, 456)
    assert conv.n_bytes == 4 * (3 * 32 * 32 + 456 + 6 * 28 * 28)
    pool = dataclasses.replace(layers.pool(1, 6, 28, kernel=2), element_bytes=2)
    assert (pool.flop, pool.saved_fixed_bytes) == (3 * 6 * 14 * 14, 8 * 6 * 14 * 14)
    assert pool.n_bytes == 2 * 6 * (28 * 28 + 14 * 14)
    assert costs.matmul(2, 3, 5).n_bytes == 4 * (6 + 15 + 10)
    assert costs.elementwise(10, inputs=2).n_bytes == 120
    assert layers.embedding(4, 100, 8).params == 800
    assert layers.attention(1, 2, 8, 4).matmul_flop == 2 * (2 * 8 * 8 * 8)
    assert linear + linear + linear == linear * 3


def test_a_kernel_as_large_as_the_padded_image_has_one_output():
    conv = costs.conv2d(1, 3, 6, 2, kernel=4, padding=1)
    assert conv.n_bytes == 4 * (3 * 2 * 2 + 6 * (3 * 4 * 4 + 1) + 6)
    assert layers.pool(1, 3, 4, kernel=4).n_bytes == 4 * (3 * 4 * 4 + 3)


def test_parameters_are_the_published_ones():
    assert {
        name: network.params for name, network in costs.NETWORKS.items()
    } == PUBLISHED_PARAMS


@pytest.mark.parametrize(
    ("name", "looked_up", "blocks", "width"),
    [
        # its token embedding is the head too, so it multiplies
        ("GPT-2 XL", 1024 * 1600, 48, 1600),
        ("Llama-2-70B", 32_000 * 8192, 80, 8192),
    ],
)
def test_transformers_follow_palms_formula(name, looked_up, blocks, width):
    """6 N + 12 L H Q T FLOP a token, N without tables that are only looked up.

    Source: Chowdhery et al. 2022, appendix B.
    """
    network = costs.NETWORKS[name]
    expected = 6 * (network.params - looked_up) + 12 * blocks * width * network.seq
    per_token = 3 * network.cost(network.batch()).matmul_flop / network.seq
    assert per_token == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gpt_block_keeps_what_korthikanti_says(fused):
    network = costs.NETWORKS["GPT-2 XL"]
    batch = network.batch(2, 512, element_bytes=2, fused_attention=fused)
    kept = [
        cost
        for name, cost in network.layer_costs(batch).items()
        if name.endswith("blocks")
    ]
    saved_activation_bytes = sum(
        cost.saved_elements * 2 + cost.saved_fixed_bytes for cost in kept
    )
    # Korthikanti et al. 2022, equation 1: 34 sbh + 5 as²b, the second term only where
    # scores are in memory
    block = 34 * 512 * 2 * 1600 + (0 if fused else 5 * 25 * 512**2 * 2)
    assert saved_activation_bytes == 48 * block


def test_memory_shows_each_part_and_the_total():
    text = str(
        costs.training_memory(
            2**20, 2**20, dtype="float32", optimizer="momentum", fixed_bytes=2**20
        )
    )
    assert "kept for the backward pass  5.00 MiB" in text
    assert text.splitlines()[-1].split() == ["total", "17.0", "MiB"]


def test_a_training_step_joins_flop_bytes_and_memory():
    network = costs.NETWORKS["SimpleCNN"]
    step = costs.training_step(
        "SimpleCNN", batch=32, dtype="float32", optimizer="momentum"
    )
    # nobody needs the gradient of an image
    conv1_input_gradient = 2 * 3 * 5 * 5 * 6 * 28 * 28
    assert step.flop == 32 * (3 * network.forward_flop() - conv1_input_gradient)
    # by hand: gradient read, weight and velocity read and written
    update_bytes = 62_006 * (4 + 8 + 8)
    assert step.n_bytes == 3 * network.cost(network.batch(32)).n_bytes + update_bytes
    assert step.memory.param_bytes == 62_006 * 4
    assert (step.seq, step.compute_dtype) == (None, "float32")
    assert "32 samples, float32, momentum" in str(step)


@pytest.mark.parametrize(
    ("dtype", "optimizer", "bytes_a_parameter"),
    [
        ("float32", "sgd", 8),
        ("float32", "momentum", 12),
        ("tf32", "adamw", 16),
        ("bfloat16", "adam", 8),
        ("autocast bfloat16", "adam", 18),
        ("mixed float16", "adam", 16),  # Rajbhandari et al. 2020: 2 + 2 + 12
    ],
)
def test_bytes_a_parameter(dtype, optimizer, bytes_a_parameter):
    memory = costs.training_memory(1000, 0, dtype=dtype, optimizer=optimizer)
    assert memory.total_bytes == 1000 * bytes_a_parameter


# ---- against torch ----


def lenet():
    """LeNet-5's layout with full connections, which is the network "SimpleCNN"."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def test_training_flop_agrees_with_torch():
    """Images need no gradient, so the first convolution costs twice its forward pass,
    not thrice.
    """
    with FlopCounterMode(display=False) as counter:
        lenet()(torch.randn(16, 3, 32, 32)).sum().backward()
    network = costs.NETWORKS["SimpleCNN"]
    batch = network.batch(16)
    # torch counts matrix products only
    vector_flop = 3 * network.cost(batch).vector_flop
    assert network.training_flop(batch) - vector_flop == counter.get_total_flops()


def test_flop_and_kept_bytes_of_a_forward_pass_agree_with_torch():
    model = lenet()
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    kept_bytes = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept_bytes[storage.data_ptr()] = storage.nbytes()
        return tensor

    images = torch.randn(16, 3, 32, 32)
    labels = torch.zeros(16, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = functional.cross_entropy(model(images), labels)
    # it keeps every tensor, so no address is used twice
    assert loss.grad_fn is not None
    network = costs.NETWORKS["SimpleCNN"]
    cost = network.cost(network.batch(16))
    assert cost.matmul_flop == counter.get_total_flops()
    # torch keeps a 4-byte weight sum of the loss besides
    expected_bytes = cost.saved_elements * 4 + cost.saved_fixed_bytes
    assert sum(kept_bytes.values()) == pytest.approx(expected_bytes, abs=8)


def test_a_small_transformer_agrees_with_torch():
    small = decoder(Transformer(1, 64, 4, vocab=32_000, feed_forward=96, gated=True))
    x = torch.randn(2, 16, 64)  # batch, sequence, width
    with FlopCounterMode(display=False) as counter:
        # 3 of 4 heads, 16 numbers each
        qkv = (x @ torch.randn(64, 192)).view(2, 16, 3, 4, 16)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        y = mixed.transpose(1, 2).reshape(2, 16, 64) @ torch.randn(64, 64)
        gate, up = (y @ torch.randn(64, 192)).chunk(2, -1)
        _ = ((functional.silu(gate) * up) @ torch.randn(96, 64)) @ torch.randn(
            64, 32_000
        )
    assert small.cost(small.batch(2, 16)).matmul_flop == counter.get_total_flops()


# ---- refusals and break-even ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "bert-bas"}, "The nearest is 'BERT-base'"),
        (
            {"model": "SimpleCNN", "dtype": "fp32"},
            "Expected dtype to be one of float32, tf32",
        ),
        ({"model": "SimpleCNN", "optimizer": "Adam"}, "The nearest is 'adam'"),
        (
            {"model": "BERT-base", "seq": 513},
            "at most 512 tokens, the positions that BERT-base has, got 513",
        ),
        (
            {"model": "SimpleCNN", "batch": 2.5},
            "batch to be a whole number of at least 1, got 2.5",
        ),
    ],
)
def test_a_training_step_that_cannot_be_is_explained(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        costs.training_step(**{"batch": 1, **arguments})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: costs.conv2d(1, 3, 6, 2, kernel=7, padding=2),
            "got kernel 7 on an image of 2 with padding 2, 6 in all",
        ),
        (lambda: layers.pool(1, 3, 2, kernel=3), "got kernel 3 on an image of 2"),
        (
            lambda: costs.conv2d(1, 3, 6, 8, kernel=3, stride=0),
            "Expected stride to be a whole number of at least 1",
        ),
        (
            lambda: costs.matmul(-2, 3, 4),
            "Expected m to be a whole number of at least 0, got -2",
        ),
        (
            lambda: costs.break_even_steps(1, "1", 1),
            "Expected eager_s to be a finite number above 0, got '1'",
        ),
        (lambda: costs.break_even_steps(math.nan, 0.5, 0.25), "Expected"),
    ],
)
def test_numbers_that_cannot_be_are_named(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


@pytest.mark.parametrize(
    ("compile_s", "eager_s", "compiled_s", "steps"),
    [
        (8.0, 0.5, 0.25, 32),
        (1.0, 1.0, 0.25, 2),  # 4/3, rounded up
        (0.0, 0.5, 0.5, 0),
        (0.0, 0.25, 0.5, math.inf),
        (8.0, 0.5, 0.5, math.inf),
    ],
)
def test_compiling_pays_after_so_many_steps(compile_s, eager_s, compiled_s, steps):
    assert costs.break_even_steps(compile_s, eager_s, compiled_s) == steps
