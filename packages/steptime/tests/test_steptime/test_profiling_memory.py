import itertools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.train import models
from steptime.allocations import (
    ACTIVATIONS,
    BEGIN,
    CATEGORIES,
    END,
    GRADIENT,
    GRADIENTS,
    OTHER,
    PARAMETERS,
    STATE,
)
from steptime.errors import BadArgument
from steptime.memory_by_category import memory_timeline, timeline_of
from steptime.units import format_bytes
from trainplan import costs

pytestmark = pytest.mark.slow  # profiles whole steps

BATCH = 64


def a_step(model, optimizer, *, zero_last=False, keep=False, batches=1):
    images = torch.randn(BATCH, 3, 32, 32)
    labels = torch.randint(0, 10, (BATCH,))

    def step():
        if not zero_last:
            optimizer.zero_grad(set_to_none=not keep)
        for _ in range(batches):
            cross_entropy(model(images.clone()), labels).backward()
        optimizer.step()
        if zero_last:
            optimizer.zero_grad()

    return step


@pytest.fixture(scope="module")
def cnn():
    model = models.SimpleCNN()
    optimizer = torch.optim.Adam(model.parameters())
    return memory_timeline(a_step(model, optimizer), model, optimizer), model


def test_every_category_is_what_the_arithmetic_says(cnn):
    found, model = cnn
    predicted = costs.training_step("SimpleCNN", batch=BATCH).memory
    assert max(found.n_bytes[PARAMETERS]) == predicted.param_bytes
    assert max(found.n_bytes[GRADIENTS]) == predicted.gradient_bytes
    # Adam counts its steps, one number a parameter
    steps = 4 * len(list(model.parameters()))
    assert max(found.n_bytes[STATE]) == predicted.optimizer_bytes + steps
    assert max(found.n_bytes[ACTIVATIONS]) == pytest.approx(
        predicted.activation_bytes, rel=0.01
    )


def mlp_by_hand():
    """Bytes kept for backward: the batch, each hidden layer after its ReLU,
    log-probabilities and labels.
    """
    rows = 256
    widths = (512, 1024, 1024, 10)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    return (
        model,
        lambda: torch.randn(rows, 512),
        torch.randint(10, (rows,)),
        4 * rows * sum(widths),
    )


class Block(nn.Module):
    """A transformer's block, all of whose tensors of B x T x C numbers
    can be counted.
    """

    def __init__(self, width, heads):
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.between = nn.LayerNorm(width)
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            self.qkv(self.before(x))
            .view(b, t, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


def transformer_by_hand():
    """Per block, in widths: input, normalised, q, k, v, mixed, sum, normalised, 4
    before and 4 after GELU.
    """
    rows = 4
    seq = 128
    width = 128
    blocks = 3
    model = nn.Sequential(
        *(Block(width, 4) for _ in range(blocks)),
        nn.Flatten(),
        nn.Linear(seq * width, 10),
    )
    kept = 4 * rows * seq * width * (16 * blocks + 1)  # and the last block's result
    return (
        model,
        lambda: torch.randn(rows, seq, width),
        torch.randint(10, (rows,)),
        kept,
    )


@pytest.mark.parametrize("by_hand", [mlp_by_hand, transformer_by_hand])
def test_activations_are_what_a_count_by_hand_says(by_hand):
    model, batch, truth, expected = by_hand()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        cross_entropy(model(batch()), truth).backward()
        optimizer.step()

    found = memory_timeline(step, model, optimizer)
    assert max(found.n_bytes[ACTIVATIONS]) == pytest.approx(expected, rel=0.1)


def test_the_peak_is_the_largest_sum_and_says_what_it_consists_of(cnn):
    found, _ = cnn
    assert found.peak_bytes == sum(found.at_peak.values()) == max(found.total_bytes)
    assert found.peak_phase in ("forward", "backward")
    assert found.peak_operator
    said = str(found)
    assert said.startswith("peak ")
    assert f"in {found.peak_phase} ({found.peak_operator}): " in said
    assert "activations" in said


def test_phases_come_in_order_and_activations_are_gone_after_the_backward_pass(cnn):
    found, _ = cnn
    assert list(found.times_s) == sorted(found.times_s)
    assert tuple(found.n_bytes) == CATEGORIES
    assert all(
        len(values) == len(found.times_s) and min(values) >= 0
        for values in found.n_bytes.values()
    )
    assert [phase.name for phase in found.phases] == [
        "forward",
        "backward",
        "optimizer",
    ]
    starts = [phase.start_s for phase in found.phases]
    assert starts == sorted(starts)
    assert found.n_bytes[ACTIVATIONS][0] == found.n_bytes[ACTIVATIONS][-1] == 0
    top = found.times_s[
        found.n_bytes[ACTIVATIONS].index(max(found.n_bytes[ACTIVATIONS]))
    ]
    assert found.phases[0].start_s < top <= found.phases[0].end_s


def test_gradients_of_the_step_before_are_there_until_they_are_dropped():
    model = models.SimpleCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole = 4 * sum(p.numel() for p in model.parameters())
    gradients = memory_timeline(a_step(model, optimizer), model, optimizer).n_bytes[
        GRADIENTS
    ]
    assert (gradients[0], min(gradients), gradients[-1]) == (whole, 0, whole)
    kept = memory_timeline(
        a_step(model, optimizer, keep=True), model, optimizer
    ).n_bytes[GRADIENTS]
    assert min(kept) == whole
    dropped = memory_timeline(
        a_step(model, optimizer, zero_last=True), model, optimizer
    ).n_bytes[GRADIENTS]
    assert (dropped[0], max(dropped), dropped[-1]) == (0, whole, 0)


def test_two_batches_a_step_have_two_forward_passes_but_not_twice_the_activations(cnn):
    model = models.SimpleCNN()
    optimizer = torch.optim.Adam(model.parameters())
    found = memory_timeline(a_step(model, optimizer, batches=2), model, optimizer)
    names = [phase.name for phase in found.phases]
    assert names == ["forward", "backward", "forward", "backward", "optimizer"]
    assert max(found.n_bytes[ACTIVATIONS]) <= 1.01 * max(cnn[0].n_bytes[ACTIVATIONS])


def test_inference_has_a_forward_phase_and_keeps_nothing():
    model = models.SimpleCNN().eval()
    images = torch.randn(BATCH, 3, 32, 32)

    def step():
        with torch.no_grad():
            model(images)

    found = memory_timeline(step, model)
    assert [phase.name for phase in found.phases] == ["forward"]
    assert max(found.n_bytes[GRADIENTS]) == max(found.n_bytes[STATE]) == 0
    assert max(found.n_bytes[ACTIVATIONS]) == 0 < max(found.n_bytes[OTHER])


def test_buffers_count_as_parameters_and_frozen_ones_have_no_gradient():
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=0.1
    )
    x = torch.randn(32, 64)

    def step():
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    found = memory_timeline(step, model, optimizer)
    assert max(found.n_bytes[PARAMETERS]) == 4 * (64 * 64 + 64 + 4 * 64) + 8
    assert max(found.n_bytes[GRADIENTS]) == 4 * 2 * 64


def test_against_costs_puts_prediction_and_measurement_side_by_side(cnn):
    found, _ = cnn
    step = costs.training_step("SimpleCNN", batch=BATCH)
    table = found.against(step)
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == [*CATEGORIES, "all"]
    assert rows[PARAMETERS][:3] == ("242 KiB", "242 KiB", "1.00x")
    assert rows[OTHER][0] == "not predicted"
    assert rows["all"][0] == format_bytes(step.memory.total_bytes)
    assert str(found.against(step.memory)) == str(table)
    assert any("a batch say, is not counted" in note for note in table.notes)


def test_the_hooks_are_gone_afterwards_and_stderr_stays_empty(capfd):
    model = models.SimpleCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory_timeline(a_step(model, optimizer), model, optimizer)
    assert all(not p._post_accumulate_grad_hooks for p in model.parameters())
    assert capfd.readouterr().err == ""


def mark(name, ts):
    return {"name": name, "ts": ts, "dur": 1.0, "cat": "user_annotation"}


def op(name, ts, dur):
    return {"name": name, "ts": ts, "dur": dur, "cat": "cpu_op"}


def memory(ts, address, n_bytes, kind=1):
    return {
        "name": "[memory]",
        "ts": ts,
        "args": {"Addr": address, "Bytes": n_bytes, "Device Type": kind},
    }


def gpu_trace():
    """A step on a GPU as its allocator reports it: blocks older than the trace are
    freed with an event.
    """
    return [
        memory(1, 10, 100),  # the gradient of the step before, at address 10
        mark(BEGIN, 2),
        op("aten::empty", 4, 4),
        memory(5, 20, 1000),  # kept for the backward pass
        memory(6, 30, 500),
        memory(7, 30, -500),  # freed within its operator
        memory(7.5, 99, 64, kind=0),  # the host's
        op("aten::mul", 9, 2),
        memory(10, 10, -100),
        memory(10.5, 40, -300),  # a block of the optimizer that is older than the trace
        op("autograd::engine::evaluate_function: MulBackward0", 20, 10),
        memory(21, 10, 120),  # the same address again, for the new gradient
        mark(f"{GRADIENT}10", 22),
        memory(25, 20, -1000),
        mark("Optimizer.step#SGD.step", 40),
        mark(END, 50),
    ]


def test_a_trace_of_a_gpu_is_sorted_by_address_and_time():
    before = {10: (GRADIENTS, 100), 40: (STATE, 300), 50: (PARAMETERS, 70)}
    found = timeline_of(
        gpu_trace(), "cuda", before, {10: (GRADIENTS, 120), 50: (PARAMETERS, 70)}
    )
    assert found.n_bytes[PARAMETERS] == (70,) * len(found.times_s)
    assert found.n_bytes[STATE][0] == 300
    assert found.n_bytes[STATE][-1] == 0
    assert sorted(set(found.n_bytes[GRADIENTS])) == [0, 100, 120]
    assert max(found.n_bytes[ACTIVATIONS]) == 1000
    assert max(found.n_bytes[OTHER]) == 500
    assert (found.peak_bytes, found.peak_operator, found.peak_phase) == (
        1970,
        "aten::empty",
        "forward",
    )
    assert found.peak_s == pytest.approx(3e-6)


def test_events_of_the_other_device_are_left_out():
    found = timeline_of(gpu_trace(), "cpu", {}, {})
    assert {name: max(held) for name, held in found.n_bytes.items()} == {
        **dict.fromkeys(CATEGORIES, 0),
        ACTIVATIONS: 64,
    }


def test_bad_input_says_what_to_do():
    model = models.SimpleCNN()
    with pytest.raises(BadArgument, match="Pass its name without brackets"):
        memory_timeline(None, model)
    with pytest.raises(
        BadArgument, match="Expected a torch module with parameters, got ReLU"
    ):
        memory_timeline(lambda: None, nn.ReLU())
    with pytest.raises(BadArgument, match="got one on meta"):
        memory_timeline(lambda: None, nn.Linear(2, 2, device="meta"))
    with pytest.raises(BadArgument, match=r"saw nothing.*CUDA graph"):
        memory_timeline(lambda: None, model)
    with pytest.raises(ZeroDivisionError):
        memory_timeline(lambda: 1 / 0, model)
