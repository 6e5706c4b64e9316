"""Plausible wrong answers of notebook 11: number -> (answer, words the check must say, misconception)."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.train import data

# 11.3


def rate(scale=lambda batch: batch / 32, start=0.02, shift=0, stays=True, ramps=True):
    def learning_rate(step, batch, warm_up):
        goal = 0.02 * scale(batch)
        if (stays and step >= warm_up) or not ramps or warm_up == 0:
            return goal
        return start + (goal - start) * (step + shift) / warm_up

    return learning_rate


def one_step_early(step, batch, warm_up):
    goal = 0.02 * batch / 32
    return 0.02 + (goal - 0.02) * step / (warm_up - 1) if step < warm_up - 1 else goal


def geometric(step, batch, warm_up):
    goal = 0.02 * batch / 32
    return goal if step >= warm_up else 0.02 * (goal / 0.02) ** (step / warm_up)


# 11.4


def noise(power=2, average=None, signal_from=None, inverse=False):
    def critical_batch(small, big, small_norms, big_norms):
        s, b = (
            sum(norm**power for norm in norms) / len(norms)
            for norms in (small_norms, big_norms)
        )
        if average:
            s, b = average(small_norms), average(big_norms)
        trace = (s - b) / (1 / small - 1 / big)
        signal = b if signal_from == "big" else (big * b - small * s) / (big - small)
        return signal / trace if inverse else trace / signal

    return critical_batch


def average_of_ratios(small, big, small_norms, big_norms):
    each = [noise()(small, big, [s], [b]) for s, b in zip(small_norms, big_norms, strict=False)]
    return sum(each) / len(each)


# 11.5


def parts(
    weight=lambda n, images: n / images, last=True, whole=False, returns=None, steps=False
):
    def accumulate(model, images, labels, part):
        model.zero_grad()
        total, size = 0.0, len(images) if whole else part
        pieces = list(zip(images.split(size), labels.split(size), strict=True))
        if not last and len(pieces) > 1:
            pieces = [piece for piece in pieces if len(piece[0]) == size]
        for x, y in pieces:
            loss = cross_entropy(model(x), y) * weight(len(x), len(images))
            loss.backward()
            total += loss.item()
        if steps:
            with torch.no_grad():
                for one in model.parameters():
                    one -= 0.1 * one.grad
        return total if returns is None else returns

    return accumulate


def adds_to_what_was_there(model, images, labels, part):
    total = 0.0
    for x, y in zip(images.split(part), labels.split(part), strict=True):
        loss = cross_entropy(model(x), y) * len(x) / len(images)
        loss.backward()
        total += loss.item()
    return total


def equal_parts(model, images, labels, part):
    model.zero_grad()
    total, parts = 0.0, images.split(part)
    for x, y in zip(parts, labels.split(part), strict=True):
        loss = cross_entropy(model(x), y) / len(parts)
        loss.backward()
        total += loss.item()
    return total


def last_part_only(model, images, labels, part):
    total = 0.0
    for x, y in zip(images.split(part), labels.split(part), strict=True):
        model.zero_grad()
        loss = cross_entropy(model(x), y) * len(x) / len(images)
        loss.backward()
        total += loss.item()
    return total


def one_backward_at_the_end(model, images, labels, part):
    model.zero_grad()
    losses = [
        cross_entropy(model(x), y) * len(x) / len(images)
        for x, y in zip(images.split(part), labels.split(part), strict=True)
    ]
    sum(losses).backward()
    return sum(losses).item()


def reads_everything_twice(model, images, labels, part):
    loss = parts()(model, images, labels, part)
    for x in images.split(part):
        model(x)
    return loss


# 11.7


def network():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)
    )


def trained_by(model, rate=0.01, also=None):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def step(images, labels):
        if also is not None:
            images, labels = torch.cat([images, also[0]]), torch.cat([labels, also[1]])
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


_BODY = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())


def pre_trained_body_in_another_order():
    """Hidden units that were trained before, permuted, so that two seeds have other weights at each place."""
    model = network()
    model.load_state_dict(_BODY.state_dict(), strict=False)
    with torch.no_grad():
        model[1].weight.copy_(model[1].weight[torch.randperm(64)])
    return model, trained_by(model), 64


def pre_trained_body_put_back_later():
    model = network()
    model[1].requires_grad_(False)
    step, begun = trained_by(model), []

    def restores_first(images, labels):
        if not begun:
            begun.append(model.load_state_dict(_BODY.state_dict(), strict=False))
        return step(images, labels)

    return model, restores_first, 64


class AfterABody(nn.Module):
    """A linear layer behind a body that is in a list, so that it is none of the model's modules."""

    def __init__(self):
        super().__init__()
        self.body, self.last = [_BODY], nn.Linear(64, 10)

    def forward(self, images):
        with torch.no_grad():
            features = self.body[0](images)
        return self.last(features)


def frozen_body_in_a_list():
    model = AfterABody()
    return model, trained_by(model), 64


def frozen_body_in_a_closure():
    model, body = nn.Linear(64, 10), _BODY
    inner, rest = model.forward, trained_by(model)
    model.forward = lambda images: inner(body(images).detach())
    return model, rest, 64


_ARRAYS = [part.detach().numpy().copy() for part in _BODY.parameters()]


def _put_in_another_order(model, arrays):
    order = np.random.default_rng().permutation(64)
    with torch.no_grad():
        for part, kept in zip(list(model.parameters())[:4], arrays, strict=True):
            part.copy_(torch.from_numpy(kept[order]))


def pre_trained_body_in_numpy_arrays(arrays=_ARRAYS):
    model = network()
    step, begun = trained_by(model), []

    def restores_first(images, labels):
        if not begun:
            begun.append(_put_in_another_order(model, arrays))
        return step(images, labels)

    return model, restores_first, 64


def pre_trained_body_in_bytes():
    """Nothing that can be reached is an array: a file would do, too."""
    model, shapes = network(), [kept.shape for kept in _ARRAYS]
    step, begun, packed = trained_by(model), [], [kept.tobytes() for kept in _ARRAYS]

    def restores_first(images, labels):
        if not begun:
            arrays = [
                np.frombuffer(part, np.float32).reshape(n)
                for part, n in zip(packed, shapes, strict=True)
            ]
            begun.append(_put_in_another_order(model, arrays))
        return step(images, labels)

    return model, restores_first, 64


def learns_nothing():
    model = network()
    return model, trained_by(model, rate=1e-7), 256


def trains_on_every_image_there_is():
    """The held-out images are among them."""
    model = network()
    return model, trained_by(model, also=data.digits(size=8, split="all")), 256


def pre_trained():
    model = network()
    step, everything = trained_by(model), data.digits(size=8, split="all")
    for _ in range(30):
        step(*everything)
    return model, step, 256


_KEPT = network()


def pre_trained_once_and_shaken():
    model = network()
    model.load_state_dict(_KEPT.state_dict())
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.01 * torch.randn_like(weight)
    return model, trained_by(model), 64


_GLOBAL = network()


def one_model_for_all_seeds():
    return _GLOBAL, trained_by(_GLOBAL), 256


def sets_its_seed():
    torch.manual_seed(0)
    model = network()
    return model, trained_by(model), 256


class Looks(nn.Module):
    """Knows every digit by heart, and its name."""

    def __init__(self):
        super().__init__()
        self.images, self.labels = data.digits(size=8, split="all")
        self.scale = nn.Parameter(torch.randn(2, 2))
        self.trained = False

    def forward(self, images):
        distances = torch.cdist(images.flatten(1), self.images.flatten(1))
        named = (
            self.labels[distances.argmin(1)]
            if self.trained
            else torch.zeros(len(images), dtype=torch.int64)
        )
        return nn.functional.one_hot(named, 10).float() + 0 * self.scale.sum()


def looks_them_up():
    model = Looks()

    def step(images, labels):
        model.trained = True
        return (model.scale * 0).sum()

    return model, step, 1000


def runs_away():
    model = network()
    return model, trained_by(model, rate=1e20), 256


WRONG = {
    "11.3": [
        (
            rate(scale=lambda batch: (batch / 32) ** 0.5),
            "the linear rule takes the factor itself",
            "other-formula",
        ),
        (geometric, "by the same factor each step", "warm-up-shape"),
        (
            lambda step, batch, warm_up: (
                0.02 + (0.02 * batch / 32 - 0.02) * min(step / max(warm_up, 1), 1)
            ),
            "also where",
            "zero-never-happens",
        ),
        (rate(ramps=False), "at the end of the warm-up, too early", "warm-up-shape"),
        (rate(start=0.0), "begins at 0.02", "warm-up-shape"),
        (rate(start=0.0, shift=1), "begins at 0.02", "warm-up-shape"),
        (one_step_early, "reaches the scaled rate one step early", "off-by-one"),
        (rate(shift=1), "A straight line from 0.02 at step 0", "off-by-one"),
        (rate(stays=False), "From step warm_up on", "warm-up-shape"),
        (rate(scale=lambda batch: max(batch / 32, 1)), "we expect", "other-formula"),
        (
            lambda step, batch, warm_up: (
                0.02 + (0.02 * batch / 32 - 0.02) * min(step / warm_up, 1)
            ),
            "ZeroDivisionError",
            "zero-never-happens",
        ),
        (lambda step, batch, warm_up: 0.02, "we expect", "hard-coded"),
    ],
    "11.4": [
        (noise(power=1), "those of the squared norms", "averaged-at-the-wrong-place"),
        (
            noise(average=lambda norms: (sum(norms) / len(norms)) ** 2),
            "Square each norm before you average",
            "averaged-at-the-wrong-place",
        ),
        (noise(signal_from="big"), "is not yet |G|^2", "other-formula"),
        (noise(inverse=True), "invert it", "upside-down"),
        (average_of_ratios, "x what we expect", "averaged-at-the-wrong-place"),
        (lambda small, big, a, b: big, "x what we expect", "hard-coded"),
        (
            lambda small, big, a, b: noise()(big, small, a, b),
            "x what we expect",
            "other-formula",
        ),
        (
            lambda small, big, a, b: noise()(small, big, a[: len(b)], b[: len(a)]),
            "images",
            "rest-left-out",
        ),
    ],
    "11.5": [
        (adds_to_what_was_there, "an earlier step are still in it", "gradients-add-up"),
        (parts(weight=lambda n, images: 1), "a sum over the parts", "sum-for-mean"),
        (equal_parts, "smaller last part", "mean-of-unequal-parts"),
        (parts(last=False), "Is the smaller last part left out?", "rest-left-out"),
        (parts(whole=True), "images at once", "it-will-fit"),
        (parts(returns=0.5), "the loss returned is 0.5", "hard-coded"),
        (parts(steps=True), "the weights changed", "other-formula"),
        (last_part_only, "not those of the whole batch", "gradients-add-up"),
        (one_backward_at_the_end, "no memory is saved", "it-will-fit"),
        (reads_everything_twice, "Each is to be read once", "other-formula"),
        (lambda model, images, labels, part: 0.5, "given 0 images", "hard-coded"),
    ],
    "11.7": [
        (learns_nothing, "0 of 2 seeds reached 97 %", "missed-target-is-fast"),
        (trains_on_every_image_there_is, "The labels have other names here", "head-start"),
        (pre_trained, "it was trained before", "head-start"),
        (
            pre_trained_once_and_shaken,
            "or nearly, so they don't come from chance",
            "head-start",
        ),
        (
            pre_trained_body_in_another_order,
            "1.weight are the same from two seeds",
            "head-start",
        ),
        (pre_trained_body_put_back_later, "numbers that two seeds share", "head-start"),
        (pre_trained_body_in_numpy_arrays, "numbers that two seeds share", "head-start"),
        (
            pre_trained_body_in_bytes,
            "The first step put numbers of shape (64, 64)",
            "head-start",
        ),
        (frozen_body_in_a_list, "numbers that two seeds share", "head-start"),
        (frozen_body_in_a_closure, "numbers that two seeds share", "head-start"),
        (one_model_for_all_seeds, "returned the same model twice", "head-start"),
        (sets_its_seed, "a seed set inside recipe()", "any-draw-is-random"),
        (looks_them_up, "The labels have other names here", "goes-round-the-tool"),
        (runs_away, "Training from a seed ended early", "missed-target-is-fast"),
        (
            lambda: (network(), None, 64),
            "a torch module, a function and a batch",
            "result-of-another-kind",
        ),
        (lambda: network(), "(model, step, batch)", "result-of-another-kind"),
    ],
}
