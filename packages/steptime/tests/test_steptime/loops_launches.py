"""Loops of many small operators, whose launches take longer than their work."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from test_steptime.loop_parts import labels, mlp, training


def many_small_layers(time):
    return training(mlp(*[8] * 21, 10)), (torch.randn(4, 8), labels(4))


def one_sample_at_a_time(time):
    model = nn.Linear(16, 10)

    def step(batch):
        for image, label in zip(*batch, strict=True):
            cross_entropy(model(image[None]), label[None]).backward()

    return step, (torch.randn(16, 16), labels(16))


def all_samples_at_once(time):
    """`one_sample_at_a_time`, mended."""
    model = nn.Linear(16, 10)

    def step(batch):
        cross_entropy(model(batch[0]), batch[1], reduction="sum").backward()

    return step, (torch.randn(16, 16), labels(16))


def one_parameter_at_a_time(time, **update):
    layers = [nn.Linear(8, 8) for _ in range(20)]
    model = nn.Sequential(*layers, nn.Linear(8, 10))
    return training(model, torch.optim.Adam, **(update or {"foreach": False})), (
        torch.randn(4, 8),
        labels(4),
    )


def all_parameters_at_once(time):
    """`one_parameter_at_a_time`, mended."""
    return one_parameter_at_a_time(time, fused=True)


def clipped_with_item(time):
    """Gradients are clipped by hand: each norm is read."""
    model = mlp(*[8] * 14, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch):
        optimizer.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        total = 0.0
        for weight in model.parameters():
            total += weight.grad.detach().norm(2).item() ** 2
        for weight in model.parameters():
            weight.grad.mul_(min(1.0, 1.0 / (total**0.5 + 1e-6)))
        optimizer.step()

    return step, (torch.randn(4, 8), labels(4))


def clipped_without_item(time):
    """`clipped_with_item`, mended."""
    model = mlp(*[8] * 14, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch):
        optimizer.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    return step, (torch.randn(4, 8), labels(4))


def one_token(time):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(16, 10))
    return training(model), (torch.randn(1, 1, 16), labels(1))


def recurrent_by_hand(time):
    """A cell for each of 32 moments."""
    cell = nn.LSTMCell(4, 4)

    def step(x):
        cell.zero_grad()
        h = c = torch.zeros(2, 4)
        for moment in x:
            h, c = cell(moment, (h, c))
        h.sum().backward()

    return step, torch.randn(32, 2, 4)


def recurrent_as_one(time):
    """`recurrent_by_hand`, mended."""
    layer = nn.LSTM(4, 4)

    def step(x):
        layer.zero_grad()
        layer(x)[0][-1].sum().backward()

    return step, torch.randn(32, 2, 4)
