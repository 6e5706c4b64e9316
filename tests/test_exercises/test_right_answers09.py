"""Right answers of notebooks 09 and 11 in other styles than the solution's: each must pass."""

import heapq
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.helpers import check
from tests.test_exercises import virtual_clock


def by_ldexp(sign, exponent, fraction):
    bias, power, digits = 2 ** (len(exponent) - 1) - 1, int(exponent, 2), int(fraction, 2)
    size = np.ldexp(digits + (power > 0) * 2.0 ** len(fraction), max(power, 1) - bias - len(fraction))
    return np.copysign(size, -1 if sign == "1" else 1)


def smallest_first(numbers, add):
    heap = list(numbers)
    heapq.heapify(heap)
    while len(heap) > 1:
        heapq.heappush(heap, add(heapq.heappop(heap), heapq.heappop(heap)))
    return heap[0] if heap else 0.0


def in_torch(numbers, add):
    sums = list(torch.tensor(numbers))
    while len(sums) > 1:
        sums = [add(*sums[i : i + 2]) if i + 1 < len(sums) else sums[i] for i in range(0, len(sums), 2)]
    return sums[0] if sums else torch.zeros(())


def by_autograd(loss, optimizer, scale, good):
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    gradients = torch.autograd.grad(loss * scale, weights, allow_unused=True)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = None if gradient is None else gradient / scale
    if any(not gradient.isfinite().all() for gradient in gradients if gradient is not None):
        return scale * 0.5, 0
    optimizer.step()
    return (scale * 2, 0) if good == 99 else (scale, good + 1)


def by_foreach(loss, optimizer, scale, good):
    optimizer.zero_grad(set_to_none=False)
    loss.mul(scale).backward()
    gradients = [w.grad for group in optimizer.param_groups for w in group["params"] if w.grad is not None]
    torch._foreach_div_(gradients, scale)
    if not math.isfinite(sum(gradient.abs().sum().item() for gradient in gradients)):
        return [scale / 2, 0]
    optimizer.step()
    return [scale, good + 1] if good < 99 else [2 * scale, 0]


def by_data(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master.data.add_(weight.grad, alpha=-lr)
        weight.data = master.bfloat16()


def by_sgd(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master.grad = weight.grad.float()
    torch.optim.SGD(masters, lr).step()
    for weight, master in zip(weights, masters, strict=True):
        weight.data.copy_(master)


def by_solve(small, big, small_norms, big_norms):
    squares = [np.mean(np.square(norms)) for norms in (small_norms, big_norms)]
    signal, noise = np.linalg.solve(np.array([[1, 1 / small], [1, 1 / big]]), squares)
    return noise / signal


def divided_at_the_end(model, images, labels, part):
    model.zero_grad()
    total: float | torch.Tensor = 0.0
    for x, y in zip(images.split(part), labels.split(part), strict=True):
        loss = cross_entropy(model(x), y, reduction="sum")
        loss.backward()
        total += loss.detach()
    for weight in model.parameters():
        weight.grad /= len(images)
    return total / len(images)


def added_by_hand(model, images, labels, part):
    weights, total = list(model.parameters()), 0.0
    sums = [torch.zeros_like(weight) for weight in weights]
    for rows in torch.arange(len(images)).split(part):
        loss = cross_entropy(model(images[rows]), labels[rows]) * len(rows) / len(images)
        for one, gradient in zip(sums, torch.autograd.grad(loss, weights), strict=True):
            one += gradient
        total += loss.item()
    for weight, gradient in zip(weights, sums, strict=True):
        weight.grad = gradient
    return total


def recipe_with(prepare, kind=nn.Linear):
    def recipe():
        def block(inputs, outputs):
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            return convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)

        model = nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), kind(10))
        prepare(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(images, labels):
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss

        return model, step, 64

    return recipe


RIGHT = {
    "09.1": [by_ldexp, lambda *bits: torch.tensor(by_ldexp(*bits))],
    "09.2": [smallest_first, in_torch],
    "09.3": [by_autograd, by_foreach],
    "09.5": [by_data, by_sgd],
    "11.3": [lambda step, batch, warm_up: np.interp(step, [0, warm_up], [0.02, 0.02 * batch / 32])],
    "11.4": [by_solve],
    "11.5": [divided_at_the_end, added_by_hand],
    "11.7": [
        recipe_with(lambda model: nn.init.zeros_(model[-1].weight), lambda n: nn.Linear(128, n)),
        recipe_with(lambda model: nn.init.orthogonal_(model[0].weight), lambda n: nn.Linear(128, n)),
        recipe_with(lambda model: model(torch.zeros(2, 1, 8, 8)), nn.LazyLinear),
    ],
}
CASES = [
    pytest.param(number, answer, id=f"{number}-{i}", marks=[pytest.mark.complete] if i else [])
    for number in RIGHT
    for i, answer in enumerate(RIGHT[number])
]


@pytest.mark.parametrize(("number", "answer"), CASES)
def test_a_right_answer_of_another_style_passes(number, answer, monkeypatch):
    virtual_clock.of_trainings(monkeypatch)
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome
