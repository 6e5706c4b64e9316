"""Right answers of other styles than the solution's: each must pass."""

import functools
import itertools
import math
import operator

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.functional import cross_entropy

from exercises.nb07 import watched
from labkit.lesson import exercise_files
from labkit.measure.machine import threads
from tests.helpers import check
from tests.test_exercises import virtual_clock


def by_moments(kernels, start, end):
    """Counts how many kernels run, moment by moment."""
    moments = sorted(
        [(min(max(t, start), end), step) for pair in kernels for t, step in zip(pair, (1, -1), strict=True)]
    )
    busy = running = 0
    for (now, step), (after, _) in itertools.pairwise([*moments, (end, 0)]):
        running += step
        busy += (after - now) * (running > 0)
    return busy / (end - start)


def by_numpy(kernels, start, end):
    if not kernels:
        return np.float64(0)
    spans = np.clip(np.array(sorted(kernels)), start, end)
    ends = np.maximum.accumulate(spans[:, 1])
    before = np.concatenate([[start], ends[:-1]])
    return np.maximum(ends - np.maximum(spans[:, 0], before), 0).sum() / (end - start)


def losses_of(job, steps):
    return [job.step(job.prepare()) for _ in range(steps)]


def one_ahead(job, steps):
    batch, total = job.prepare(), 0.0
    for i in range(steps):
        total = total + job.step(batch)
        if i < steps - 1:
            batch = job.prepare()
    return float(total) / steps


def running_mean(job, steps):
    mean = 0.0
    for n in range(1, steps + 1):
        mean = mean + (job.step(job.prepare()) - mean) / n
    return mean.item()


def in_place(job, steps):
    total = job.step(job.prepare()).detach().clone()
    for _ in range(steps - 1):
        total += job.step(job.prepare()).detach()
    return total.div_(steps).item()


def into_a_tensor(job, steps):
    total = torch.zeros((), dtype=torch.float64)
    for _ in range(steps):
        total = torch.add(total, job.step(job.prepare()))
    return float(total / steps)


def with_a_flag(job, steps):
    total = 0.0
    bad: bool | torch.Tensor = False
    for _ in range(steps):
        loss = job.step(job.prepare())
        bad = torch.isnan(loss) | bad  # stays on the device
        total = total + loss
    return math.nan if bad else total.item() / steps


def waits_at_the_end(job, steps):
    losses = losses_of(job, steps)
    job.device.synchronize()
    return sum(loss.item() for loss in losses) / steps


def from_the_record(job, steps):
    losses_of(job, steps)
    return sum(job.losses) / steps


def gains_in_rates(load, step, factor, workers):
    before = 1 / (load + step)
    loaded = workers / load if load else math.inf
    after = {"workers": min(loaded, 1 / step), "both": min(loaded, factor / step)}
    return {name: np.float64(rate / before) for name, rate in after.items()} | {
        "faster device": (load + step) / (load + step / factor)
    }


def trained(*, prepare=None, optimizer=None, pick=None, judge=None, add=None, after=None):
    """A mended script in which one part is done in another way."""

    def train(model, images, labels, device, batch, lr):
        x = (prepare or (lambda a: (torch.from_numpy(a).to(device) / 255 - 0.5) / 0.5))(images)
        y, total = torch.from_numpy(labels).to(device), torch.zeros((), device=device)
        updates = (optimizer or torch.optim.SGD)(model.parameters(), lr=lr, momentum=0.9)
        for start in range(0, len(x), batch):
            rows = (pick or slice)(start, min(start + batch, len(x)))
            updates.zero_grad()
            loss = cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            (after or list)(model.parameters())
            updates.step()
            total = (add or (lambda total, loss, n: total + loss.detach() * n))(total, loss, len(y[rows]))
        with torch.no_grad():
            accuracy = (judge or (lambda model, x, y: (model(x).argmax(1) == y).float().mean()))(model, x, y)
        return {"loss": float(total) / len(x), "accuracy": float(accuracy)}

    return train


def in_pieces(model, x, y):
    return sum((model(a).argmax(1) == b).sum() for a, b in zip(x.split(16), y.split(16), strict=True)) / len(x)


def by_polynomial(small, small_s, large, large_s):
    each, fixed = np.polyfit([small, large], [small_s, large_s], 1)
    return (fixed, fixed / each) if large_s > small_s else (small_s, math.inf)


def by_intercept(small, small_s, large, large_s):
    if large_s <= small_s:
        return [small_s, float("inf")]
    fixed = (large * small_s - small * large_s) / (large - small)
    return [fixed, fixed * (large - small) / (large_s - small_s)]


def other_norm(norm):
    def clip(x, most):
        size = norm(x)
        x = x * torch.where(size > most, most / size, 1.0)
        return x - x.mean(), size

    return clip


def by_clamp(x, most):
    norm = x.square().mean().sqrt()
    limited = x * (most / norm).clamp(max=1.0)  # 1 for infinity
    return limited - limited.mean(), norm


def by_arithmetic(x, most):
    norm = (x * x).mean().pow(0.5)
    limited = x / torch.maximum(norm / most, torch.ones_like(norm))
    return [limited.sub(limited.mean()), norm]


def by_floor(compile_s, eager_s, compiled_s):
    if compiled_s < eager_s:
        return -int(-compile_s // (eager_s - compiled_s))
    return math.inf if compile_s or compiled_s > eager_s else 0


def weighted_by_a_tensor(model, images, labels, part):
    """The share of a part is a number in float32, the loss one in float64."""
    model.zero_grad()
    losses = []
    for x, y in zip(images.split(part), labels.split(part), strict=True):
        loss = cross_entropy(model(x), y)
        loss.backward(torch.tensor(len(y) / len(labels)))
        losses.append(loss.item() * len(y))
    return sum(losses) / len(labels)


def found_by(kind):
    """16.5's own search, whose result is of another kind; it is called with generators of names."""

    def search(techniques, seconds, budget_s):
        given = {"math": math, "itertools": itertools}
        exec(exercise_files.solutions("16")["16.5"], given)
        return kind(given["search"](techniques, lambda on, seed: seconds(iter(on), seed), budget_s))

    return search


def yields(names):
    yield from names


RIGHT = {
    "07.1": [by_moments, by_numpy, lambda *given: torch.tensor(by_numpy(*given))],
    "07.2": [
        lambda job, steps: torch.stack(losses_of(job, steps)).mean().item(),
        lambda job, steps: float(sum(losses_of(job, steps)) / steps),
        lambda job, steps: functools.reduce(operator.add, losses_of(job, steps)).tolist() / steps,
        lambda job, steps: math.fsum(losses_of(job, steps)) / steps,
        lambda job, steps: np.mean([float(loss) for loss in losses_of(job, steps)]),
        lambda job, steps: (sum(losses_of(job, steps)) / steps).cpu().numpy(),
        one_ahead,
        running_mean,
        in_place,
        into_a_tensor,
        with_a_flag,
        waits_at_the_end,
        from_the_record,
    ],
    "07.5": [gains_in_rates],
    "07.6": [
        trained(prepare=lambda a: torch.tensor(((a / 255 - 0.5) / 0.5).astype(np.float32))),
        trained(prepare=lambda a: torch.as_tensor(a).double().div(255).sub(0.5).mul(2).float()),
        trained(optimizer=functools.partial(torch.optim.SGD, fused=True)),
        trained(optimizer=functools.partial(torch.optim.SGD, foreach=True)),
        trained(pick=lambda start, stop: torch.arange(start, stop)),
        trained(judge=in_pieces),
        trained(after=lambda weights: torch.nn.utils.clip_grad_norm_(weights, 1e6)),
        trained(judge=lambda model, x, y: model(x).max(dim=1).indices.eq(y).sum().item() / len(y)),
        trained(add=lambda total, loss, n: total.double() + loss.detach().double() * n),
        trained(add=lambda total, loss, n: total.add_(loss.detach(), alpha=n)),
        trained(add=lambda total, loss, n: total + loss.detach().where(loss == loss, 0.0) * n),
    ],
    "10.1": [by_polynomial, by_intercept],
    "10.2": [
        lambda x, a, b: torch.addcmul(b, x, a).mul_(0.5).relu_(),
        lambda x, a, b: functional.relu(b.addcmul(x, a), inplace=True).div_(2),
        lambda x, a, b: torch.addcmul(b, a, x).clamp_(min=0).multiply_(0.5),
        lambda x, a, b: torch.addcmul(b, x, a, out=torch.empty_like(x)).clamp_min_(0).mul_(0.5),
        lambda x, a, b: functional.leaky_relu_(torch.addcmul(b, x, a), 0.0).mul_(0.5),
        lambda x, a, b: torch.relu_(torch.addcmul(b, x, a)).mul_(0.5),
    ],
    "10.3": [
        by_clamp,
        by_arithmetic,
        other_norm(lambda x: x.pow(2).mean() ** 0.5),
        other_norm(lambda x: torch.linalg.vector_norm(x) / x.numel() ** 0.5),
        other_norm(lambda x: functional.mse_loss(x, torch.zeros_like(x)).sqrt()),
    ],
    "11.5": [weighted_by_a_tensor],
    "16.5": [found_by(kind) for kind in (yields, tuple, lambda names: dict.fromkeys(names).keys(), dict.fromkeys)],
    "10.6a": [by_floor, lambda *given: np.float64(by_floor(*given))],
    "10.6b": [{"class": [False, 12_001], "sweep": (np.True_, 103_500.0), "night": (False, float("inf"))}],
}
CASES = [pytest.param(number, answer, id=f"{number}-{i}") for number in RIGHT for i, answer in enumerate(RIGHT[number])]


@pytest.mark.parametrize(("number", "answer"), CASES)
def test_a_right_answer_of_another_style_passes(number, answer, monkeypatch):
    monkeypatch.setattr(watched, "_SIZES", watched._SIZES[-1:])  # 07.6's smaller trial
    virtual_clock.of_searches(monkeypatch)
    with threads(1):
        outcome = check(number, answer)
    assert outcome.state == "passed", outcome
