import itertools
import math
import random

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.core.errors import BadArgument, NotFinite
from labkit.train import training
from labkit.train.training import Run, accuracy, fit, held_out
from labkit.train.training.loop import shuffled

pytestmark = pytest.mark.slow  # trains


def blobs(n=200, classes=4, width=6, seed=3):
    """Images (n, width) around a center for each class: learned in a few steps."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    centers = 3 * torch.randn(classes, width, generator=generator)
    return centers[labels] + torch.randn(n, width, generator=generator), labels


DATA, VALIDATION = held_out(*blobs())
GIVEN = {"data": DATA, "validation": VALIDATION}


def setup_with(model=None, rate=0.1, loss=cross_entropy):
    def setup():
        net = (
            nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
            if model is None
            else model()
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)

        def step(images, labels):
            optimizer.zero_grad()
            value = loss(net(images), labels)
            value.backward()
            optimizer.step()
            return value

        return net, step

    return setup


# The split and the accuracy


def test_every_class_is_split_in_proportion_and_nothing_is_lost():
    images = torch.arange(100.0)[:, None]
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    (kept, kept_labels), (out, out_labels) = held_out(images, labels, share=0.2, seed=1)
    assert sorted(torch.cat([kept, out]).ravel().tolist()) == list(range(100))
    assert out_labels.bincount().tolist() == [12, 6, 2]
    assert len(kept) == 80
    assert torch.equal(labels[out.ravel().long()], out_labels)
    assert torch.equal(labels[kept.ravel().long()], kept_labels)


def test_the_split_is_seeded_and_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    one, same, other = (held_out(*blobs(), seed=seed)[1][0] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("share", [1, 0.001])
def test_a_share_that_leaves_a_side_empty_is_told(share):
    with pytest.raises(BadArgument, match="share"):
        held_out(*blobs(), share=share)


def test_accuracy_counts_in_evaluation_mode_and_restores_each_mode():
    model = nn.Sequential(
        nn.Linear(2, 2, bias=False), nn.Dropout(0.999), nn.BatchNorm1d(2)
    )
    model[2].eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert accuracy(model, images, torch.tensor([0, 1, 0, 0]), batch=3) == 0.75
    assert [part.training for part in model] == [True, True, False]


def test_nan_logits_are_wrong():
    model = nn.Linear(1, 2)
    nn.init.constant_(model.weight, math.nan)
    assert accuracy(model, torch.ones(4, 1), torch.zeros(4, dtype=torch.int64)) == 0


# The loop


def test_a_run_learns_and_says_what_it_did():
    run = fit(setup_with(), seed=0, batch=32, epochs=20, **GIVEN)
    assert run.steps == 20 * 5 == len(run.losses)
    assert run.epochs == 20
    assert run.images == tuple(160 * (i + 1) for i in range(20))
    assert run.accuracies[-1] > 0.95
    assert run.losses[-1] < run.losses[0] / 2
    assert all(a < b for a, b in itertools.pairwise(run.seconds))
    assert run.rate > 0
    assert run.accuracies[-1] == accuracy(run.model, *VALIDATION)
    assert "20 epochs, 100 steps" in str(run)
    assert repr(run) == str(run)


def test_the_same_seed_gives_the_same_losses_and_another_seed_does_not():
    one, same, other = (
        fit(setup_with(), seed=seed, batch=16, epochs=2, **GIVEN).losses
        for seed in (4, 4, 5)
    )
    assert one == same
    assert one != other


def test_until_stops_at_the_accuracy_and_epochs_at_the_latest():
    arrived = fit(setup_with(), seed=0, batch=16, epochs=50, until=0.9, **GIVEN)
    assert arrived.accuracies[-1] >= 0.9 > max([0, *arrived.accuracies[:-1]])
    assert arrived.epochs < 50
    assert arrived.time_to(0.9) == arrived.seconds[-1]
    assert arrived.epochs_to(0.9) == arrived.epochs
    assert arrived.time_to(1.0) in (None, arrived.seconds[-1])
    never = fit(setup_with(rate=1e-9), seed=0, batch=16, epochs=2, until=1.0, **GIVEN)
    assert never.epochs == 2
    assert never.time_to(1.0) is None


def test_the_clock_runs_while_training_and_not_while_evaluating():
    """A step takes 1 on a device that works when waited for, an evaluation 100."""
    now = [0.0]

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 4)

        def forward(self, images):
            now[0] += 1.0 if self.training else 100.0
            return self.inner(images)

    run = fit(
        setup_with(Slow), seed=0, batch=80, epochs=3, clock=lambda: now[0], **GIVEN
    )
    # the step that is thrown away isn't charged either
    assert run.seconds == (2.0, 4.0, 6.0)


def test_the_model_trains_in_training_mode_and_on_epoch_sees_each_epoch():
    modes = []
    seen = []

    def setup():
        model, step = setup_with()()
        return model, lambda *batch: (modes.append(model.training), step(*batch))[1]

    run = fit(setup, seed=0, batch=80, epochs=2, on_epoch=seen.append, **GIVEN)
    assert modes == [True] * 5
    assert [part.epochs for part in seen] == [1, 2]
    assert seen[-1] == run
    assert isinstance(seen[0], Run)


def test_losses_written_to_one_place_are_kept_apart():
    """As a captured CUDA graph returns them."""

    def setup():
        model, step = setup_with()()
        place = torch.zeros(())
        return model, lambda *batch: place.copy_(step(*batch).detach())

    assert fit(setup, seed=0, batch=40, epochs=2, **GIVEN).losses == pytest.approx(
        fit(setup_with(), seed=0, batch=40, epochs=2, **GIVEN).losses
    )


def test_an_epoch_shows_no_image_twice():
    images = torch.arange(10.0)[:, None]
    one, two = (
        torch.cat(rows).tolist()
        for rows in itertools.islice(shuffled(images, 3, seed=0), 2)
    )
    assert len(set(one)) == len(one) == 9
    assert one != two
    assert torch.cat(next(shuffled(images, 3, seed=0))).tolist() == one


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": None}, "epochs= or seconds="),
        ({"batch": 161}, "at most 160"),
        ({"validation": None}, "together"),
        ({"data": (DATA[0], DATA[1][:-1])}, "a label for each"),
        ({"setup": lambda: nn.Linear(6, 4)}, "return \\(model, step\\)"),
        ({"setup": lambda: (nn.Linear(6, 4), lambda x, y: 0.5)}, "loss.item"),
    ],
)
def test_arguments_that_cannot_be_are_told(change, words):
    given = {
        "setup": setup_with(),
        "seed": 0,
        "batch": 8,
        "epochs": 1,
        **GIVEN,
    } | change
    with pytest.raises(BadArgument, match=words):
        fit(**given)


# NaN and infinity


def test_a_rate_too_high_is_told_by_step_and_growth():
    words = (
        r"The loss of step \d+ \(seed 0, batch 16\) is (inf|nan), after .* in step 1"
        r" .*learning rate may be too high"
    )
    with pytest.raises(NotFinite, match=words):
        fit(
            setup_with(rate=1e6, loss=lambda out, y: out.square().mean()),
            seed=0,
            batch=16,
            epochs=5,
            **GIVEN,
        )


def test_nan_in_the_data_is_told_as_such_and_with_the_step_that_met_it():
    images = DATA[0].clone()
    images[17, 2] = math.nan
    order = next(shuffled(images, 16, seed=3))
    met = next(i for i, rows in enumerate(order, start=1) if 17 in rows)
    with pytest.raises(NotFinite, match=rf"step {met} \(seed 3.*the images hold NaN"):
        fit(
            setup_with(),
            seed=3,
            batch=16,
            epochs=5,
            data=(images, DATA[1]),
            validation=VALIDATION,
        )


def test_a_gradient_that_is_no_number_is_told_though_the_loss_is_finite():
    def loss(out, y):
        # sqrt(0): its slope is infinite
        return cross_entropy(out, y) + (out - out.detach()).abs().sqrt().sum()

    with pytest.raises(
        NotFinite, match=r"Weights are not finite after step 1 .*names the operation"
    ):
        fit(setup_with(loss=loss), seed=0, batch=160, epochs=5, **GIVEN)


def test_integer_images_and_models_without_parameters_are_no_trouble():
    images = torch.randint(0, 5, (40, 3), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 4
    net = lambda: nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 4))  # noqa: E731
    assert (
        fit(
            setup_with(net),
            seed=0,
            batch=8,
            epochs=1,
            data=(images, labels),
            validation=(images, labels),
        ).steps
        == 5
    )


# Comparisons of learning, each way at its own rate


def planted(best, top, calls=None):
    """A training whose accuracy is `top` at the rate `best`, less elsewhere, and
    differs from seed to seed.
    """

    def arm(rate, seed):
        if calls is not None:
            calls.append((top, rate, seed))
        if rate > 100 * best:
            raise NotFinite("it diverged")
        return (
            top
            - 0.1 * abs(math.log10(rate / best))
            + random.Random(seed).uniform(-0.04, 0.04)
        )

    return arm


RATES = (0.01, 0.1, 1.0, 10.0)


def test_each_way_gets_its_own_rate_from_seeds_that_judge_nothing():
    calls = []
    found = training.compare_tuned(
        {"a": planted(0.1, 0.9, calls), "b": planted(1.0, 0.8, calls)}, RATES, seeds=12
    )
    assert found.rates == {"a": 0.1, "b": 1.0}
    judged = calls[-24:]
    tuning = calls[:-24]
    assert {seed for *_, seed in judged} == set(range(12))
    assert {seed for *_, seed in tuning}.isdisjoint(range(12))
    assert [top for top, *_ in judged[:6]] == [0.9, 0.8, 0.8, 0.9, 0.9, 0.8]
    assert found.sweeps["a"].results[10.0] != found.sweeps["a"].results[0.1]


def test_a_difference_is_shown_only_where_the_interval_excludes_none():
    apart = training.compare_tuned(
        {"a": planted(0.1, 0.9), "b": planted(1.0, 0.8)}, RATES
    ).gain("b")
    assert (apart.verdict, apart.value) == ("worse", pytest.approx(-0.1))
    assert (
        training.compare_tuned({"a": planted(0.1, 0.8), "b": planted(1.0, 0.9)}, RATES)
        .gain("b")
        .verdict
        == "better"
    )
    chance = random.Random(8)
    gain = training.compare_tuned(
        dict.fromkeys("ab", lambda rate, seed: chance.random()), [0.1]
    ).gain("b")
    assert gain.low < 0 < gain.high
    assert "no difference shown" in str(gain)


def test_few_seeds_give_an_interval_and_no_verdict():
    few = training.compare_tuned(
        {"a": planted(0.1, 0.9), "b": planted(1.0, 0.8)}, RATES, seeds=9
    )
    assert few.gain("b").verdict == "not judged"
    assert "9 paired seeds; a verdict needs 10" in str(few)
    with pytest.raises(BadArgument, match="nearest"):
        few.gain("c")


PLAIN = tuple(0.90 + 0.002 * i for i in range(10))  # from 0.900 to 0.918


@pytest.mark.parametrize(
    ("gains", "keeps"),
    [
        ([0.0] * 10, True),
        ([0.05] * 10, True),
        ([-0.004, 0.004] * 5, True),  # the interval lies within the seeds' spread
        ([-0.001] * 10, False),  # a small loss is still a loss
        ([-0.05] * 10, False),
        ([-0.06, 0.05] * 5, None),  # the interval holds 0, and losses above the spread
        ([0.0] * 9, None),
    ],
)
def test_no_difference_shown_is_no_equal_accuracy(gains, keeps):
    plain = PLAIN[: len(gains)]
    other = tuple(a + gain for a, gain in zip(plain, gains, strict=True))
    assert (
        training.TunedComparison({"a": plain, "b": other}, {}, {}).keeps("b") is keeps
    )


def test_equal_ways_look_different_in_about_5_of_100_comparisons():
    draw = random.Random(7)
    shown = 0
    for _ in range(200):
        pairs = {name: tuple(draw.gauss(0.9, 0.02) for _ in range(10)) for name in "ab"}
        shown += (
            training.TunedComparison(pairs, {}, {}).gain("b").verdict
            != "no difference shown"
        )
    assert 0 < shown / 200 < 0.1


def test_a_training_that_diverges_is_the_worst_and_the_edge_of_the_rates_is_told():
    sweep = training.sweep_rates(planted(0.001, 0.9), RATES)
    assert sweep.results[1.0] == (0.0,) * 3
    assert (sweep.best, sweep.at_edge) == (0.01, True)
    assert "try rates beyond it" in str(sweep)
    costs = training.sweep_rates(
        lambda rate, seed: abs(math.log10(rate)) + seed,
        [1.0, 0.1, 10.0],
        seeds=3,
        lower=True,
    )
    assert (costs.best, costs.at_edge, costs.middle(0.1)) == (1.0, False, 2.0)
    never = training.sweep_rates(planted(1e-9, 0.9), [1.0], lower=True)
    assert never.middle(1.0) == math.inf


def stopped_at(number, arm):
    """The arm, with Ctrl-C in its training of this number."""
    calls = iter(range(number))

    def training(rate, seed):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return arm(rate, seed)

    return training


def test_ctrl_c_keeps_what_was_trained(capsys):
    arm = planted(0.1, 0.9)
    sweep = training.sweep_rates(stopped_at(6, arm), RATES)
    assert {rate: len(each) for rate, each in sweep.results.items()} == {
        0.01: 2,
        0.1: 2,
        1.0: 1,
        10.0: 1,
    }
    with pytest.raises(KeyboardInterrupt):
        training.sweep_rates(stopped_at(0, arm), RATES)
    few = training.compare_tuned({"a": arm, "b": stopped_at(4, arm)}, [0.1])
    assert {len(each) for each in few.accuracies.values()} == {4}
    with pytest.raises(KeyboardInterrupt):
        training.compare_tuned({"a": arm, "b": stopped_at(1, arm)}, [0.1])
    with pytest.raises(KeyboardInterrupt):  # while a rate is chosen
        training.compare_tuned({"a": stopped_at(6, arm), "b": arm}, RATES)
    assert capsys.readouterr().out.count("what was trained is kept") == 2


def test_a_long_sweep_says_how_far_it_is(monkeypatch, capsys):
    clock = itertools.count(0, 4)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    training.sweep_rates(planted(0.1, 0.9), RATES, seeds=1)
    assert "Training 1 of 4" not in (told := capsys.readouterr().out)
    assert told.count("Training 2 of 4: rate 0.1, 0.9") == 1
    assert told.endswith("\n")


# Accuracy


def test_a_column_of_labels_is_refused_and_not_compared_with_every_image():
    model = nn.Flatten()
    images = torch.rand(8, 10)
    labels = torch.zeros(8, dtype=torch.int64)
    assert 0 <= training.accuracy(model, images, labels) <= 1
    with pytest.raises(
        BadArgument, match=r"labels \(images,\), got \(8, 10\) and \(8, 1\)"
    ):
        training.accuracy(model, images, labels[:, None])
