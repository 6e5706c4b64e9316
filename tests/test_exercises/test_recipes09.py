"""Emulated training in eight and four bits: what is rounded, with which scales."""

import math
import random

import pytest
import torch

import labkit as lab
from exercises.nb09 import recipes
from exercises.nb09.recipes import E2M1, E4M3, E5M2, Recipe, Scaled
from labkit.core.errors import NotFinite
from labkit.train.training import TunedComparison

TORCH = [(E4M3, torch.float8_e4m3fn), (E5M2, torch.float8_e5m2)]


@pytest.fixture(autouse=True)
def one_thread():
    with lab.threads(1):
        yield


def numbers(n=4096, spread=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=draw) * torch.exp(
        spread * torch.randn(n, generator=draw)
    )


@pytest.mark.parametrize(("grid", "dtype"), TORCH)
def test_a_format_rounds_as_torch_does_and_what_is_too_large_becomes_the_largest(
    grid, dtype
):
    x = numbers()
    top = torch.finfo(dtype).max
    assert grid.largest == top
    assert torch.equal(grid(x), x.clamp(-top, top).to(dtype).float())


def test_four_bits_hold_eight_numbers_of_each_sign():
    assert E2M1(torch.linspace(-8, 8, 4001)).unique().tolist() == [
        -6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6,
    ]  # fmt: skip
    # ties to even
    assert E2M1(torch.tensor([0.25, 0.75, 2.5, 5.0])).tolist() == [0, 1, 2, 4]


def test_chance_rounds_without_bias():
    torch.manual_seed(0)
    x = torch.full((100_000,), 2.2)
    rounded = E2M1(x, stochastic=True)
    assert set(rounded.tolist()) == {2, 3}
    assert rounded.mean().item() == pytest.approx(2.2, abs=0.01)


def test_scales_of_mxfp8_are_powers_of_two_and_no_number_overflows():
    x = numbers(32 * 64).view(64, 32)
    rounded = Scaled(E4M3, 32, "power of two")(x)
    scale = 2.0 ** torch.ceil(torch.log2(x.abs().amax(1, keepdim=True) / 448))
    assert torch.equal(rounded, E4M3(x / scale) * scale)
    assert ((rounded - x).abs() <= x.abs() / 16 + scale * 2.0**-10).all()


def test_a_delayed_scale_is_that_of_steps_before():
    delayed = Scaled(E4M3, delayed=True)
    assert delayed(torch.tensor([448.0])).item() == 448
    # the scale of the step before is too small
    assert delayed(torch.tensor([1000.0])).item() == 448
    assert delayed(torch.tensor([1000.0])).item() == pytest.approx(1000, rel=0.07)


def test_a_random_hadamard_matrix_leaves_the_product_as_it_is():
    x = numbers(8 * 32, 0).view(8, 32)
    y = numbers(8 * 32, 0, 1).view(8, 32)
    assert torch.allclose(recipes._turned(x) @ recipes._turned(y).T, x @ y.T, atol=1e-4)
    spike = torch.zeros(1, 16)
    spike[0, 5] = 16.0
    assert recipes._turned(spike).abs().max().item() == pytest.approx(4)


def test_without_rounding_the_gradients_are_those_of_a_linear_layer():
    torch.manual_seed(0)
    layer = recipes.Linear(Recipe(), 32, 16)
    x = torch.randn(8, 32, requires_grad=True)
    (layer(x) ** 2).sum().backward()
    mine = layer.weight.grad.clone()
    of_x = x.grad.clone()
    layer.weight.grad = x.grad = None
    ((x @ layer.weight.T) ** 2).sum().backward()
    assert torch.allclose(mine, layer.weight.grad, rtol=1e-4)
    assert torch.allclose(of_x, x.grad, rtol=1e-4)


def test_adam_breaks_where_its_second_state_becomes_zero_and_holds_where_it_does_not():
    with pytest.raises(NotFinite):
        recipes.train(
            recipes.RECIPES["Adam's state in 8 bits"], 1e-2, 0, steps=60, batch=32
        )
    held = recipes.train(
        recipes.RECIPES["Adam's state, never to 0"], 1e-2, 0, steps=60, batch=32
    )
    plain = recipes.train(recipes.RECIPES["float32"], 1e-2, 0, steps=60, batch=32)
    assert math.isclose(held.accuracy, plain.accuracy, abs_tol=0.03)


def test_square_blocks_round_a_matrix_and_its_transpose_alike_and_rows_do_not():
    w = numbers(40 * 50, 2).view(40, 50)
    square = Scaled(E2M1, 16, "e4m3", square=True)
    assert torch.equal(square(w), square(w.T.contiguous()).T)
    row = Scaled(E2M1, 16, "e4m3")
    assert not torch.equal(row(w), row(w.T.contiguous()).T)
    # one scale for 16 x 16: a single large number takes the digits of its whole square
    spike = torch.full((32, 32), 0.1)
    spike[0, 0] = 600.0
    assert (square(spike)[:16, :16] == 0).sum() == 16 * 16 - 1
    assert (row(spike)[0, :16] == 0).sum() == 15
    assert (row(spike)[1] != 0).all()


def test_each_rung_of_nvfp4_adds_one_part_and_the_last_is_the_whole_recipe():
    rungs = list(recipes.LADDER.values())
    parts = [
        (
            rung.weights is not None,
            rung.backward.stochastic,
            rung.hadamard,
            rung.last_kept,
        )
        for rung in rungs
    ]
    assert parts == [tuple(i > part for part in range(4)) for i in range(5)]
    assert all(rung.forward.stochastic is False for rung in rungs)
    torch.manual_seed(0)
    for rung in (rungs[3], rungs[4]):
        last = recipes.NextCharacter(rung, 65, 1.0).layers[-1]
        assert isinstance(last, recipes.Linear) is not rung.last_kept


def test_a_delayed_scale_has_transformer_engines_history_and_one_for_each_factor():
    recipe = recipes.RECIPES["one delayed scale"]
    assert recipe.forward.seen.maxlen == 1024
    layer = recipes.Linear(recipe, 16, 16)
    layer(torch.full((4, 16), 100.0))
    assert max(layer.recipe.forward.seen) == 100
    assert max(layer.recipe.of_weights.seen) < 1


def test_a_ladder_says_what_is_shown_and_what_is_not(monkeypatch):
    """Losses of a made-up training: chance helps by more than seeds differ, the rest by
    less; too few seeds judge nothing.
    """
    gains = dict(zip(recipes.LADDER, (0.1, 0.0, -0.05, 0.0, 0.0), strict=True))

    def train(recipe, rate, seed, **_):
        draw = random.Random(f"{recipe} {seed}")
        loss = 3.0 + draw.gauss(0, 0.01)
        for name, rung in recipes.LADDER.items():
            loss += gains[name]
            if recipe == rung:
                return recipes.Judged(0.2, loss)
        return recipes.Judged(0.2, 3.0)

    monkeypatch.setattr(recipes, "train", train)
    tried = {"float32": Recipe(), **recipes.LADDER}
    trainings = recipes.Trainings(tried, steps=1, outlier=1.0)
    tuned = lab.training.compare_tuned(trainings.arms, [1e-2], seeds=10)
    said = {row[0]: row[3] for row in trainings.ladder(tuned).rows}
    assert list(said.values()) == [
        "worse", "not shown", "better", "not shown", "not shown",
    ]  # fmt: skip
    few = lab.training.compare_tuned(trainings.arms, [1e-2], seeds=2)
    assert all("10 seeds" in row[3] for row in trainings.ladder(few).rows)


def test_with_too_few_seeds_no_recipe_is_said_to_lose():
    for seeds, losing in ((2, None), (10, 1)):
        scores = {"float32": (0.9,) * seeds, "a": (0.1,) * seeds, "b": (0.9,) * seeds}
        tuned = TunedComparison(scores, dict.fromkeys(scores, 0.1), {})
        assert recipes.losing(tuned) == losing
