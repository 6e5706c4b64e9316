"""Number formats: equal to torch's casts, bits there and back, and limits as the standards print them."""

import math
import struct

import numpy as np
import pytest
import torch

from exercises.nb09 import formats
from labkit.core.errors import LabError

IN_TORCH = [each for each in formats.ALL if each is not formats.tfloat32]
in_torch = pytest.mark.parametrize("format_", IN_TORCH, ids=str)
every_format = pytest.mark.parametrize("format_", formats.ALL, ids=str)


def all_patterns(format_):
    width = 1 + format_.exponent_bits + format_.fraction_bits
    return [f"{number:0{width}b}" for number in range(2**width)] if width <= 16 else []


def spacing(format_, x):
    """Distance between neighbours in the binade of `x`, which is a number of the format."""
    return max(math.ldexp(format_.epsilon, math.frexp(x)[1] - 1) if x else 0.0, format_.min_subnormal)


def awkward(format_):
    """float32 numbers that rounding gets wrong: ties, both sides of each limit, subnormals, random bit patterns."""
    draw = np.random.default_rng(9)
    patterns = draw.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    near = 2.0 ** draw.uniform(math.log2(format_.min_subnormal) - 3, math.log2(format_.max) + 1, 20_000)
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
    limits += [format_.max * (1 + format_.epsilon * part) for part in (0.125, 0.249, 0.25, 0.251, 0.5, 0.75, 1, 2)]
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.array(limits, dtype=np.float32)
        steps = [np.nextafter(edges, np.float32(side)) for side in (0, np.inf)]
        values = np.concatenate([patterns, near.astype(np.float32), ties.astype(np.float32), edges, *steps])
    return np.concatenate([values, -values]).astype(np.float32)


@in_torch
def test_rounding_is_torchs_cast(format_):
    values = awkward(format_)
    cast = torch.from_numpy(values).to(getattr(torch, format_.name)).double().numpy()
    ways = [format_.round(values)]
    if not format_.has_inf:  # beyond the largest, some versions of torch give NaN and others the largest
        with np.errstate(invalid="ignore"):
            saturated = np.clip(values.astype(np.float64), -format_.max, format_.max)
        ways.append(format_.round(saturated))
    wrong = [~((cast == way) | (np.isnan(cast) & np.isnan(way))) for way in ways]
    assert not all(different.any() for different in wrong), (values[wrong[0]][:5], cast[wrong[0]][:5])
    signs = [(np.signbit(cast) == np.signbit(way))[~np.isnan(cast + way)].all() for way in ways]
    assert all(signs), "the sign of zero too"


def test_the_cases_have_ties_overflow_and_subnormals():
    """The comparison above is worth nothing where it never meets what is difficult."""
    values = awkward(formats.float16)
    values = values[~np.isnan(values)].astype(np.float64)
    stored = formats.float16.round(values)
    finite = np.isfinite(stored) & (stored != 0)
    half = np.array([spacing(formats.float16, value) for value in stored[finite]]) / 2
    assert (np.abs(values[finite] - stored[finite]) == half).sum() > 1000
    assert (np.isinf(stored) & np.isfinite(values)).sum() > 100
    assert ((np.abs(stored) < formats.float16.min_normal) & (stored != 0)).sum() > 100


def test_tfloat32_keeps_float32s_range_and_float16s_digits():
    draw = np.random.default_rng(19)
    values = draw.uniform(1, 2, 5000) * 2.0 ** draw.integers(-14, 15, 5000)
    assert (formats.tfloat32.round(values) == formats.float16.round(values)).all()
    assert formats.tfloat32.round(1e38) == pytest.approx(1e38, rel=2**-11)
    assert (formats.tfloat32.min_normal, formats.tfloat32.bias) == (formats.float32.min_normal, formats.float32.bias)


def test_tfloat32_ties_go_to_even():
    assert formats.tfloat32.round([1 + 2**-11, 1 + 3 * 2**-11]).tolist() == [1.0, 1 + 2**-9]


@in_torch
def test_limits_are_torchs(format_):
    info = torch.finfo(getattr(torch, format_.name))
    assert (format_.max, format_.min_normal, format_.epsilon) == (info.max, info.smallest_normal, info.eps)
    assert 0 < format_.round(format_.min_subnormal) == format_.min_subnormal
    assert format_.round(format_.min_subnormal / 2) == 0


def test_limits_are_those_that_the_specifications_print():
    assert (formats.float8_e4m3fn.max, formats.float8_e4m3fn.min_subnormal) == (448, 2**-9)
    assert (formats.float8_e5m2.max, formats.float8_e5m2.min_subnormal) == (57344, 2**-16)
    assert (formats.float16.max, formats.float16.min_subnormal) == (65504, 2**-24)


@pytest.mark.parametrize("format_", [formats.float8_e4m3fn, formats.float8_e5m2], ids=str)
def test_every_pattern_of_eight_bits_is_torchs(format_):
    patterns = all_patterns(format_)
    stored = torch.arange(256, dtype=torch.uint8).view(getattr(torch, format_.name)).double().tolist()
    ours = [format_.value(pattern) for pattern in patterns]
    assert np.array_equal(ours, stored, equal_nan=True)


@pytest.mark.parametrize("format_", [each for each in formats.ALL if all_patterns(each)], ids=str)
def test_bits_come_back_from_their_value(format_):
    for pattern in all_patterns(format_)[::7]:
        value = format_.value(pattern)
        if not math.isnan(value):
            assert "".join(format_.bits(value)) == pattern


def test_bits_of_float32_are_those_in_memory():
    for value in (0.1, -1.5, 1e-40, 3e38, 0.0, -0.0, math.inf):
        (stored,) = struct.unpack(">I", struct.pack(">f", value))
        assert "".join(formats.float32.bits(value)) == f"{stored:032b}"


@every_format
def test_nan_is_written_as_nan(format_):
    bits = format_.bits(math.nan)
    assert set(bits.exponent) == {"1"}
    assert math.isnan(format_.value(bits))


def test_bits_are_shown_with_gaps_and_read_with_or_without():
    assert str(formats.float8_e5m2.bits(-1.25)) == "1 01111 01"
    for text in ("1 01111 01", "10111101", "1_01111_01", ("1", "01111", "01")):
        assert formats.float8_e5m2.value(text) == -1.25


@pytest.mark.parametrize("text", ["1 01111 0", "1 01111 012", "", "2 01111 01"])
def test_other_text_is_refused_with_the_bits_expected(text):
    with pytest.raises(LabError, match=r"Expected 8 bits of 0 and 1 for float8_e5m2 .1 sign, 5 exponent, 2 fraction."):
        formats.float8_e5m2.value(text)


def test_what_overflows_is_infinite_or_nan():
    e4m3 = formats.float8_e4m3fn
    assert e4m3.round(464.0) == 448  # the tie goes to the even neighbour, and 480 would be odd
    assert math.isnan(e4m3.round(465.0))
    assert formats.float16.round(65519.0) == 65504
    assert formats.float16.round([65520.0, -65520.0]).tolist() == [math.inf, -math.inf]


def test_arithmetic_rounded_here_is_the_formats_own():
    draw = np.random.default_rng(29)
    a, b = (draw.lognormal(0, 3, 5000).astype(np.float16) for _ in range(2))
    for operation in (np.add, np.multiply, np.divide):
        with np.errstate(over="ignore", under="ignore"):
            wanted = operation(a, b).astype(np.float64)
        assert np.array_equal(formats.float16.round(operation(a.astype(float), b.astype(float))), wanted)


def test_shares_count_what_is_lost():
    half = formats.float16
    values = [0.0, math.nan, math.inf, 2**-26, -(2**-25), 2**-24, 1e-6, 1.0, -2.0, 65504.0, 1e5, -1e6]
    shares = half.shares(values)
    assert shares == pytest.approx((2 / 9, 2 / 9, 3 / 9, 2 / 9))
    assert sum(shares) == pytest.approx(1)


def test_shares_of_nothing_are_refused():
    with pytest.raises(LabError, match="at least one finite number other than 0"):
        formats.float16.shares([0.0, math.nan])


def test_a_tensor_can_be_rounded_and_counted():
    values = torch.tensor([[1.0, 1e-9]])
    assert formats.float16.round(values).tolist() == [[1.0, 0.0]]
    assert formats.float16.shares(values).flushed == 0.5


def test_the_table_names_every_format_and_its_limits():
    text = str(formats.table())
    assert "float8_e4m3fn  1 + 4 + 3" in text
    assert "448" in text
    assert "3.40282e+38" in text
    assert repr(formats.float16) == "float16"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_simulated_layers_round_weights_inputs_outputs_and_gradients(dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
    x = torch.randn(8, 40)
    out = formats.autocast_forward(model, x, dtype)

    def cut(tensor):
        return tensor.to(dtype).float()

    first, last = model[0], model[2]
    hidden = torch.relu(cut(torch.nn.functional.linear(cut(x), cut(first.weight), cut(first.bias))))
    assert torch.equal(out, cut(torch.nn.functional.linear(hidden, cut(last.weight), cut(last.bias))))
    assert not torch.equal(out, model(x)), "the hooks are gone afterwards"
    sent = 1e-3 * torch.randn(out.shape)
    out.backward(sent)
    assert torch.equal(last.weight.grad, cut(cut(sent).T @ hidden))
    assert first.weight.grad.dtype == torch.float32


def test_simulated_float16_flushes_gradients_that_a_scale_saves():
    layer = torch.nn.Linear(3, 2)
    for scale, lost in ((1.0, True), (1024.0, False)):
        layer.zero_grad()
        (scale * 1e-9 * formats.autocast_forward(layer, torch.ones(1, 3), torch.float16).sum()).backward()
        assert bool((layer.weight.grad == 0).all()) is lost


def test_simulation_is_close_to_autocasts_own_bfloat16():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 16), torch.randn(8, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = layer(x)
    assert torch.allclose(formats.autocast_forward(layer, x, torch.bfloat16), wanted.float(), rtol=2**-7, atol=1e-2)


def test_hooks_are_taken_off_after_an_error_too():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    with pytest.raises(RuntimeError):
        formats.autocast_forward(model, torch.ones(1, 4), torch.float16)
    assert not model[0]._forward_hooks


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


def stochastic(x):
    """float32 rounded to bfloat16, up with the probability that what is cut off has of the distance."""
    bits = x.view(torch.int32) + torch.randint(2**16, x.shape, dtype=torch.int32)
    return (bits & -(2**16)).view(torch.float32)


def test_a_function_of_ones_own_rounds_too_and_keeps_the_mean_of_steps_too_small():
    torch.manual_seed(0)
    weight = torch.ones(2000, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    for _ in range(50):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
        formats.round_weights(optimizer, stochastic)
    assert torch.equal(weight.detach(), weight.detach().bfloat16().float())
    assert weight.mean().item() == pytest.approx(0.95, abs=0.002)
