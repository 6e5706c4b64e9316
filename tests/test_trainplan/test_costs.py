import dataclasses

import pytest

from trainplan import costs
from trainplan.costs import layers
from trainplan.costs.transformer_layers import decoder
from trainplan.costs.transformers import Transformer
from trainplan.errors import BadArgument, PlanError

PUBLISHED_PARAMS = {
    "SimpleCNN": 62_006,  # LeNet-5's layout with full connections, by hand: 456 + 2,416 + 48,120 + 10,164 + 850
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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: costs.conv2d(1, 3, 6, 2, kernel=5), "got kernel 5 on an image of 2 with padding 0, 2 in all"),
        (
            lambda: costs.conv2d(1, 3, 6, 2, kernel=7, padding=2),
            "got kernel 7 on an image of 2 with padding 2, 6 in all",
        ),
        (lambda: costs.conv2d(1, 3, 6, 0, kernel=1), "got kernel 1 on an image of 0"),
        (lambda: layers.pool(1, 3, 2, kernel=3), "got kernel 3 on an image of 2"),
        (lambda: layers.pool(1, 3, 8, kernel=0), "Expected kernel to be a whole number of at least 1, got 0"),
        (lambda: costs.conv2d(1, 3, 6, 8, kernel=3, stride=0), "Expected stride to be a whole number of at least 1"),
        (lambda: costs.conv2d(1, 3, 6, 8, kernel=3, stride=-1), "Expected stride"),
        (lambda: costs.conv2d(1, 3, 6, 8, kernel=3, padding=-1), "Expected padding to be a whole number of at least 0"),
        (lambda: layers.window(4, kernel=5), "got kernel 5 on an image of 4"),
    ],
)
def test_a_kernel_larger_than_the_padded_image_has_no_cost(call, words):
    with pytest.raises(BadArgument, match=words):
        call()


def test_a_kernel_as_large_as_the_padded_image_has_one_output():
    assert costs.conv2d(1, 3, 6, 2, kernel=4, padding=1).n_bytes == 4 * (3 * 2 * 2 + 6 * (3 * 4 * 4 + 1) + 6)
    assert layers.pool(1, 3, 4, kernel=4).n_bytes == 4 * (3 * 4 * 4 + 3)


def test_costs_add_and_repeat():
    one = layers.linear(2, 3, 5)
    assert one + one + one == one * 3
    assert (one * 3).params == 60


@pytest.mark.parametrize(("name", "params"), PUBLISHED_PARAMS.items())
def test_parameters_are_the_published_ones(name, params):
    assert costs.NETWORKS[name].params == params


def test_every_network_is_pinned():
    assert set(costs.NETWORKS) == set(PUBLISHED_PARAMS)


@pytest.mark.parametrize(
    ("name", "looked_up", "blocks", "width"),
    [
        ("GPT-2 XL", 1024 * 1600, 48, 1600),  # the token embedding is the head too, so it does multiply
        ("Llama-2-7B", 32_000 * 4096, 32, 4096),
        ("Llama-2-70B", 32_000 * 8192, 80, 8192),
    ],
)
def test_transformers_follow_palms_formula(name, looked_up, blocks, width):
    # Chowdhery et al. 2022, appendix B: 6N + 12LHQT FLOP a token of training; N without tables that are only looked up
    network = costs.NETWORKS[name]
    expected = 6 * (network.params - looked_up) + 12 * blocks * width * network.seq
    per_token = 3 * network.cost(network.batch()).matmul_flop / network.seq
    assert per_token == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gpt_block_keeps_what_korthikanti_says(fused):
    network = costs.NETWORKS["GPT-2 XL"]
    batch = network.batch(2, 512, element_bytes=2, fused_attention=fused)
    kept = [cost for name, cost in network.layer_costs(batch).items() if name.endswith("blocks")]
    saved_activation_bytes = sum(cost.saved_elements * 2 + cost.saved_fixed_bytes for cost in kept)
    # Korthikanti et al. 2022, equation 1: 34 sbh + 5 as²b, the second term only where scores are in memory
    block = 34 * 512 * 2 * 1600 + (0 if fused else 5 * 25 * 512**2 * 2)
    assert saved_activation_bytes == 48 * block


def torch_step(images):
    """FLOP of a forward pass as torch counts them, and bytes that autograd keeps beside the parameters."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from labkit.train.models import SimpleCNN

    model = SimpleCNN()
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    counter = FlopCounterMode(display=False)
    batch = torch.randn(images, 3, 32, 32)
    labels = torch.zeros(images, dtype=torch.long)
    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(model(batch), labels)
    assert loss.grad_fn is not None  # keeps the graph, and with it every tensor's address, alive until here
    return counter.get_total_flops(), sum(kept.values())


def test_training_flop_agrees_with_torch():
    """The images need no gradient, so the first convolution costs twice its forward pass and not three times."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from labkit.train.models import SimpleCNN

    with FlopCounterMode(display=False) as counter:
        SimpleCNN()(torch.randn(16, 3, 32, 32)).sum().backward()
    network = costs.NETWORKS["SimpleCNN"]
    batch = network.batch(16)
    vector_flop = 3 * network.cost(batch).vector_flop  # torch counts matrix products only
    assert network.training_flop(batch) - vector_flop == counter.get_total_flops()


def test_simple_cnn_agrees_with_torch():
    network = costs.NETWORKS["SimpleCNN"]
    cost = network.cost(network.batch(16))
    flop, saved_activation_bytes = torch_step(16)
    assert cost.matmul_flop == flop
    # torch keeps a 4-byte weight sum of the loss besides
    assert saved_activation_bytes == pytest.approx(cost.saved_elements * 4 + cost.saved_fixed_bytes, abs=8)


def test_a_small_transformer_agrees_with_torch():
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    small = decoder(Transformer(1, 64, 4, vocab=32_000, feed_forward=96, gated=True))
    x, table = torch.randn(2, 16, 64), torch.randn(64, 32_000)
    gate_up, down = torch.randn(64, 192), torch.randn(96, 64)
    with FlopCounterMode(display=False) as counter:
        q, k, v = (x @ torch.randn(64, 192)).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).reshape(2, 16, 64) @ torch.randn(64, 64)
        gate, up = (y @ gate_up).chunk(2, -1)
        ((torch.nn.functional.silu(gate) * up) @ down) @ table
    assert small.cost(small.batch(2, 16)).matmul_flop == counter.get_total_flops()


@pytest.mark.parametrize(
    ("dtype", "optimizer", "bytes_a_parameter"),
    [
        ("float32", "sgd", 8),
        ("float32", "momentum", 12),
        ("float32", "adam", 16),
        ("tf32", "adamw", 16),
        ("bfloat16", "adam", 8),
        ("autocast bfloat16", "adam", 18),
        ("mixed float16", "adam", 16),  # Rajbhandari et al. 2020: 2 + 2 + 12
    ],
)
def test_bytes_a_parameter(dtype, optimizer, bytes_a_parameter):
    memory = costs.training_memory(1000, 0, dtype=dtype, optimizer=optimizer)
    assert memory.total_bytes == 1000 * bytes_a_parameter


def test_zero_papers_example():
    # Rajbhandari et al. 2020, section 3.1: GPT-2 with 1.5 billion parameters needs at least 24 GB
    assert costs.training_memory(1_500_000_000, 0, dtype="mixed float16").total_bytes == 24_000_000_000


def test_memory_shows_each_part_and_the_total():
    text = str(costs.training_memory(2**20, 2**20, dtype="float32", optimizer="momentum", fixed_bytes=2**20))
    assert "kept for the backward pass  5.00 MiB" in text
    assert text.splitlines()[-1].split() == ["total", "17.0", "MiB"]


def test_a_training_step_joins_flop_bytes_and_memory():
    network = costs.NETWORKS["SimpleCNN"]
    step = costs.training_step("SimpleCNN", batch=32, dtype="float32", optimizer="momentum")
    conv1_input_gradient = 2 * 3 * 5 * 5 * 6 * 28 * 28  # nobody needs the gradient of an image
    assert step.flop == 32 * (3 * network.forward_flop() - conv1_input_gradient)
    # by hand: gradient read, weight and velocity read and written
    update_bytes = 62_006 * (4 + 8 + 8)
    assert step.n_bytes == 3 * network.cost(network.batch(32)).n_bytes + update_bytes
    assert step.memory.param_bytes == 62_006 * 4
    assert (step.seq, step.compute_dtype) == (None, "float32")
    assert "32 samples, float32, momentum" in str(step)


def test_longer_sequences_cost_more_than_their_length():
    short = costs.training_step("GPT-2 XL", batch=4, seq=512, dtype="autocast bfloat16")
    long = costs.training_step("GPT-2 XL", batch=4, seq=1024, dtype="autocast bfloat16")
    unfused = costs.training_step("GPT-2 XL", batch=4, seq=1024, dtype="autocast bfloat16", fused_attention=False)
    assert 2 < long.flop / short.flop < 2.3  # attention makes it more than double
    assert unfused.memory.activation_bytes > 1.5 * long.memory.activation_bytes
    assert long.compute_dtype == "bfloat16"
    assert long.memory.master_bytes == 4 * 1_557_611_200


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "bert-bas"}, "The nearest is 'BERT-base'"),
        ({"model": "SimpleCNN", "dtype": "fp32"}, "Expected dtype to be one of float32, tf32"),
        ({"model": "SimpleCNN", "optimizer": "Adam"}, "The nearest is 'adam'"),
        ({"model": "BERT-base", "seq": 513}, "at most 512 tokens, the positions that BERT-base has, got 513"),
        (
            {"model": "SimpleCNN", "batch": 0},
            "Expected batch to be a whole number of at least 1, got 0",
        ),
        ({"model": "SimpleCNN", "batch": 2.5}, "batch to be a whole number of at least 1, got 2.5"),
        ({"model": "SimpleCNN", "batch": "64"}, "batch to be a whole number of at least 1, got '64'"),
        ({"model": "BERT-base", "seq": "long"}, "Expected seq to be a whole number of at least 1 or None, got 'long'"),
    ],
)
def test_bad_arguments_are_explained(arguments, words):
    with pytest.raises(PlanError, match=words):
        costs.training_step(**{"batch": 1, **arguments})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: costs.matmul(-2, 3, 4), "Expected m to be a whole number of at least 0, got -2"),
        (lambda: layers.linear(1, "64", 4), "Expected inputs to be a whole number of at least 0, got '64'"),
        (lambda: costs.training_memory(-1, 0), "Expected params to be a whole number of at least 0, got -1"),
        (
            lambda: costs.break_even_steps(1, "1", 1),
            "Expected eager_s to be a finite number above 0, got '1'",
        ),
    ],
)
def test_negative_sizes_and_words_for_numbers_are_named(call, words):
    with pytest.raises(PlanError, match=words):
        call()


def test_public_names_are_there():  # their order is ruff's rule
    assert all(hasattr(costs, name) for name in costs.__all__)
    assert len(set(costs.__all__)) == len(costs.__all__)
