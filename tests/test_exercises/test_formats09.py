"""Number formats: equal to torch's casts, bits there and back, and limits as the
standards print them.
"""

import math

import numpy as np
import pytest
import torch

from exercises.nb09 import formats
from labkit.core.errors import LabError

IN_TORCH = [each for each in formats.ALL if each is not formats.tfloat32]
in_torch = pytest.mark.parametrize("format_", IN_TORCH, ids=str)


def all_patterns(format_):
    width = 1 + format_.exponent_bits + format_.fraction_bits
    return [f"{number:0{width}b}" for number in range(2**width)] if width <= 16 else []


def spacing(format_, x):
    """Distance between neighbors in the binade of `x`, which is a number of the
    format.
    """
    return max(
        math.ldexp(format_.epsilon, math.frexp(x)[1] - 1) if x else 0.0,
        format_.min_subnormal,
    )


def awkward(format_):
    """float32 numbers that rounding gets wrong: ties, both sides of each limit,
    subnormals, random bit patterns.
    """
    draw = np.random.default_rng(9)
    patterns = draw.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    near = 2.0 ** draw.uniform(
        math.log2(format_.min_subnormal) - 3, math.log2(format_.max) + 1, 20_000
    )
    own = format_.round(near)
    with np.errstate(over="ignore", invalid="ignore"):
        ties = own + np.array([spacing(format_, value) for value in own]) / 2
    limits = [
        0.0,
        math.inf,
        math.nan,
        format_.max,
        format_.min_normal,
        format_.min_subnormal,
        format_.min_subnormal / 2,
    ]
    limits += [
        format_.max * (1 + format_.epsilon * part)
        for part in (0.125, 0.249, 0.25, 0.251, 0.5, 0.75, 1, 2)
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.array(limits, dtype=np.float32)
        steps = [np.nextafter(edges, np.float32(side)) for side in (0, np.inf)]
        values = np.concatenate(
            [patterns, near.astype(np.float32), ties.astype(np.float32), edges, *steps]
        )
    return np.concatenate([values, -values]).astype(np.float32)


@in_torch
def test_rounding_is_torchs_cast(format_):
    values = awkward(format_)
    cast = torch.from_numpy(values).to(getattr(torch, format_.name)).double().numpy()
    ways = [format_.round(values)]
    # beyond the largest, some versions of torch give NaN and others the largest
    if not format_.has_inf:
        with np.errstate(invalid="ignore"):
            saturated = np.clip(values.astype(np.float64), -format_.max, format_.max)
        ways.append(format_.round(saturated))
    wrong = [~((cast == way) | (np.isnan(cast) & np.isnan(way))) for way in ways]
    assert not all(different.any() for different in wrong), (
        values[wrong[0]][:5],
        cast[wrong[0]][:5],
    )
    signs = [
        (np.signbit(cast) == np.signbit(way))[~np.isnan(cast + way)].all()
        for way in ways
    ]
    assert all(signs), "the sign of zero too"


def test_tfloat32_keeps_float32s_range_and_float16s_digits():
    draw = np.random.default_rng(19)
    values = draw.uniform(1, 2, 5000) * 2.0 ** draw.integers(-14, 15, 5000)
    assert (formats.tfloat32.round(values) == formats.float16.round(values)).all()
    assert formats.tfloat32.round(1e38) == pytest.approx(1e38, rel=2**-11)
    assert (formats.tfloat32.min_normal, formats.tfloat32.bias) == (
        formats.float32.min_normal,
        formats.float32.bias,
    )


@in_torch
def test_limits_are_torchs(format_):
    info = torch.finfo(getattr(torch, format_.name))
    assert (format_.max, format_.min_normal, format_.epsilon) == (
        info.max,
        info.smallest_normal,
        info.eps,
    )
    assert 0 < format_.round(format_.min_subnormal) == format_.min_subnormal
    assert format_.round(format_.min_subnormal / 2) == 0


@pytest.mark.parametrize(
    "format_", [formats.float8_e4m3fn, formats.float8_e5m2], ids=str
)
def test_every_pattern_of_eight_bits_is_torchs(format_):
    patterns = all_patterns(format_)
    stored = (
        torch.arange(256, dtype=torch.uint8)
        .view(getattr(torch, format_.name))
        .double()
        .tolist()
    )
    ours = [format_.value(pattern) for pattern in patterns]
    assert np.array_equal(ours, stored, equal_nan=True)


@pytest.mark.parametrize(
    "format_", [each for each in formats.ALL if all_patterns(each)], ids=str
)
def test_bits_come_back_from_their_value(format_):
    for pattern in all_patterns(format_)[::7]:
        value = format_.value(pattern)
        if not math.isnan(value):
            assert "".join(format_.bits(value)) == pattern


def test_bits_are_shown_with_gaps_and_read_with_or_without():
    assert str(formats.float8_e5m2.bits(-1.25)) == "1 01111 01"
    for text in ("1 01111 01", "10111101", "1_01111_01", ("1", "01111", "01")):
        assert formats.float8_e5m2.value(text) == -1.25


@pytest.mark.parametrize("text", ["1 01111 0", "1 01111 012", "", "2 01111 01"])
def test_other_text_is_refused_with_the_bits_expected(text):
    with pytest.raises(
        LabError,
        match=(
            r"Expected 8 bits of 0 and 1 for float8_e5m2 .1 sign, 5 exponent, 2"
            r" fraction."
        ),
    ):
        formats.float8_e5m2.value(text)


def test_what_overflows_is_infinite_or_nan():
    e4m3 = formats.float8_e4m3fn
    # the tie goes to the even neighbor, and 480 would be odd
    assert e4m3.round(464.0) == 448
    assert math.isnan(e4m3.round(465.0))
    assert formats.float16.round(65519.0) == 65504
    assert formats.float16.round([65520.0, -65520.0]).tolist() == [math.inf, -math.inf]


def test_shares_count_what_is_lost():
    half = formats.float16
    values = [
        0.0,
        math.nan,
        math.inf,
        2**-26,
        -(2**-25),
        2**-24,
        1e-6,
        1.0,
        -2.0,
        65504.0,
        1e5,
        -1e6,
    ]
    shares = half.shares(values)
    assert shares == pytest.approx((2 / 9, 2 / 9, 3 / 9, 2 / 9))
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_simulated_layers_round_weights_inputs_outputs_and_gradients(dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(40, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4)
    )
    x = torch.randn(8, 40)
    out = formats.autocast_forward(model, x, dtype)

    def cut(tensor):
        return tensor.to(dtype).float()

    first = model[0]
    last = model[2]
    hidden = torch.relu(
        cut(torch.nn.functional.linear(cut(x), cut(first.weight), cut(first.bias)))
    )
    assert torch.equal(
        out, cut(torch.nn.functional.linear(hidden, cut(last.weight), cut(last.bias)))
    )
    assert not torch.equal(out, model(x)), "the hooks are gone afterwards"
    sent = 1e-3 * torch.randn(out.shape)
    out.backward(sent)
    assert torch.equal(last.weight.grad, cut(cut(sent).T @ hidden))
    assert first.weight.grad.dtype == torch.float32


def test_weights_and_state_are_rounded_and_the_count_of_steps_is_not():
    weight = torch.full((3,), 1.0001, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=1e-4)
    for _ in range(300):
        optimizer.zero_grad()
        (weight * 1.001).sum().backward()
        optimizer.step()
        formats.round_weights(optimizer, torch.bfloat16)
    state = optimizer.state[weight]
    for tensor in (weight.detach(), state["exp_avg"], state["exp_avg_sq"]):
        assert torch.equal(tensor, tensor.bfloat16().float())
    assert float(state["step"]) == 300
    assert weight.tolist() == [1.0] * 3, "each step is too small for bfloat16"
