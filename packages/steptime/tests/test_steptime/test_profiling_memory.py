import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from steptime._units import format_bytes
from steptime.errors import TooLittleSeen
from steptime.profile.allocations import (
    ACTIVATIONS,
    BEGIN,
    END,
    GRADIENT,
    GRADIENTS,
    MEMORY_CATEGORIES,
    OTHER,
    PARAMETERS,
    STATE,
)
from steptime.profile.memory_timeline import memory_timeline, timeline_of
from test_steptime.loop_parts import lenet

pytestmark = pytest.mark.slow  # profiles whole steps

BATCH = 64
NUMBERS = 62_006  # parameters of a LeNet
# kept of an image: the image, what ReLU and pooling return, and the log-probabilities
KEPT_NUMBERS = 3 * 32**2 + 6 * 28**2 + 6 * 14**2 + 16 * 10**2 + 400 + 120 + 84 + 10
POOLED = 6 * 14**2 + 16 * 5**2  # with the index of each, of 8 bytes
KEPT_BYTES = BATCH * (4 * KEPT_NUMBERS + 8 * POOLED)


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
    model = lenet()
    optimizer = torch.optim.Adam(model.parameters())
    return memory_timeline(a_step(model, optimizer), model, optimizer), model


def test_every_category_is_what_the_arithmetic_says(cnn):
    timeline, model = cnn
    assert max(timeline.n_bytes[PARAMETERS]) == 4 * NUMBERS
    assert max(timeline.n_bytes[GRADIENTS]) == 4 * NUMBERS
    # Adam counts its steps, one number a parameter
    steps = 4 * len(list(model.parameters()))
    assert max(timeline.n_bytes[STATE]) == 2 * 4 * NUMBERS + steps
    assert max(timeline.n_bytes[ACTIVATIONS]) == pytest.approx(KEPT_BYTES, rel=0.01)


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
    """Per block, in widths: input, normalized, q, k, v, mixed, sum, normalized, 4
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

    timeline = memory_timeline(step, model, optimizer)
    assert max(timeline.n_bytes[ACTIVATIONS]) == pytest.approx(expected, rel=0.1)


def test_the_peak_is_the_largest_sum_and_says_what_it_consists_of(cnn):
    timeline, _ = cnn
    assert (
        timeline.peak_bytes
        == sum(timeline.at_peak.values())
        == max(timeline.total_bytes)
    )
    assert timeline.peak_phase in ("forward", "backward")
    assert timeline.peak_operator
    said = str(timeline)
    assert said.startswith("peak ")
    assert f"in {timeline.peak_phase} ({timeline.peak_operator}): " in said
    assert "activations" in said


def test_phases_come_in_order_and_activations_are_gone_after_the_backward_pass(cnn):
    timeline, _ = cnn
    assert list(timeline.times_s) == sorted(timeline.times_s)
    assert tuple(timeline.n_bytes) == MEMORY_CATEGORIES
    assert all(
        len(values) == len(timeline.times_s) and min(values) >= 0
        for values in timeline.n_bytes.values()
    )
    assert [phase.name for phase in timeline.phases] == [
        "forward",
        "backward",
        "optimizer",
    ]
    starts = [phase.start_s for phase in timeline.phases]
    assert starts == sorted(starts)
    assert timeline.n_bytes[ACTIVATIONS][0] == timeline.n_bytes[ACTIVATIONS][-1] == 0
    top = timeline.times_s[
        timeline.n_bytes[ACTIVATIONS].index(max(timeline.n_bytes[ACTIVATIONS]))
    ]
    assert timeline.phases[0].start_s < top <= timeline.phases[0].end_s


def test_gradients_of_the_step_before_are_there_until_they_are_dropped():
    model = lenet()
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
    model = lenet()
    optimizer = torch.optim.Adam(model.parameters())
    timeline = memory_timeline(a_step(model, optimizer, batches=2), model, optimizer)
    names = [phase.name for phase in timeline.phases]
    assert names == ["forward", "backward", "forward", "backward", "optimizer"]
    assert max(timeline.n_bytes[ACTIVATIONS]) <= 1.01 * max(cnn[0].n_bytes[ACTIVATIONS])


def test_inference_has_a_forward_phase_and_keeps_nothing():
    model = lenet().eval()
    images = torch.randn(BATCH, 3, 32, 32)

    def step():
        with torch.no_grad():
            model(images)

    timeline = memory_timeline(step, model)
    assert [phase.name for phase in timeline.phases] == ["forward"]
    assert max(timeline.n_bytes[GRADIENTS]) == max(timeline.n_bytes[STATE]) == 0
    assert max(timeline.n_bytes[ACTIVATIONS]) == 0 < max(timeline.n_bytes[OTHER])


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

    timeline = memory_timeline(step, model, optimizer)
    assert max(timeline.n_bytes[PARAMETERS]) == 4 * (64 * 64 + 64 + 4 * 64) + 8
    assert max(timeline.n_bytes[GRADIENTS]) == 4 * 2 * 64


def test_prediction_and_measurement_stand_side_by_side(cnn):
    timeline, _ = cnn
    memory = SimpleNamespace(
        param_bytes=4 * NUMBERS,
        master_bytes=0,
        gradient_bytes=4 * NUMBERS,
        optimizer_bytes=8 * NUMBERS,
        activation_bytes=KEPT_BYTES,
        total_bytes=16 * NUMBERS + KEPT_BYTES,
    )
    table = timeline.against(memory)
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == [*MEMORY_CATEGORIES, "all"]
    assert rows[PARAMETERS][:3] == ("242 KiB", "242 KiB", "1.00x")
    assert rows[OTHER][0] == "not predicted"
    assert rows["all"][0] == format_bytes(memory.total_bytes)
    assert str(timeline.against(SimpleNamespace(memory=memory))) == str(table)
    assert any("a batch say, is not counted" in note for note in table.notes)


def test_the_hooks_are_gone_afterwards_and_stderr_stays_empty(capfd):
    model = lenet()
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
    timeline = timeline_of(
        gpu_trace(), "cuda", before, {10: (GRADIENTS, 120), 50: (PARAMETERS, 70)}
    )
    assert timeline.n_bytes[PARAMETERS] == (70,) * len(timeline.times_s)
    assert timeline.n_bytes[STATE][0] == 300
    assert timeline.n_bytes[STATE][-1] == 0
    assert sorted(set(timeline.n_bytes[GRADIENTS])) == [0, 100, 120]
    assert max(timeline.n_bytes[ACTIVATIONS]) == 1000
    assert max(timeline.n_bytes[OTHER]) == 500
    assert (timeline.peak_bytes, timeline.peak_operator, timeline.peak_phase) == (
        1970,
        "aten::empty",
        "forward",
    )
    assert timeline.peak_s == pytest.approx(3e-6)


def test_events_of_the_other_device_are_left_out():
    timeline = timeline_of(gpu_trace(), "cpu", {}, {})
    assert {name: max(held) for name, held in timeline.n_bytes.items()} == {
        **dict.fromkeys(MEMORY_CATEGORIES, 0),
        ACTIVATIONS: 64,
    }


def test_bad_input_says_what_to_do():
    model = lenet()
    with pytest.raises(TypeError, match="Pass its name without brackets"):
        memory_timeline(None, model)
    with pytest.raises(
        ValueError, match="Expected a torch module with parameters, got ReLU"
    ):
        memory_timeline(lambda: None, nn.ReLU())
    with pytest.raises(ValueError, match="got one on meta"):
        memory_timeline(lambda: None, nn.Linear(2, 2, device="meta"))
    with pytest.raises(TooLittleSeen, match=r"saw nothing.*CUDA graph"):
        memory_timeline(lambda: None, model)
    with pytest.raises(ZeroDivisionError):
        memory_timeline(lambda: 1 / 0, model)
