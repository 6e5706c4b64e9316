"""Loops whose products and convolutions take their time."""

import random

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, mse_loss, scaled_dot_product_attention
from torch.utils.data import DataLoader, TensorDataset

from test_steptime.loop_parts import labels, mlp, training


def large_matmuls(time):
    return training(mlp(512, 512, 512, 10)), (torch.randn(1024, 512), labels(1024))


def convolutions(time):
    model = nn.Sequential(nn.Conv2d(32, 64, 3), nn.Flatten(), nn.LazyLinear(10))
    batch = torch.randn(16, 32, 24, 24), labels(16)
    model(batch[0])
    return training(model), batch


def attention(time):
    scale = torch.ones(1, requires_grad=True)

    def step(batch):
        q = batch[0] * scale
        scaled_dot_product_attention(q, q, q).sum().backward()

    return step, (torch.randn(2, 4, 512, 64),)


def lstm(time):
    model = nn.LSTM(128, 256, batch_first=True)

    def step(batch):
        model.zero_grad()
        model(batch[0])[0].sum().backward()

    return step, (torch.randn(64, 24, 128),)


def meta_learning(time):
    """A gradient of a gradient."""
    model = mlp(128, 384, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x):
        weights = dict(model.named_parameters())
        loss = mse_loss(functional_call(model, weights, (x,)), x)
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        moved = {
            name: w - 0.1 * slope
            for (name, w), slope in zip(weights.items(), slopes, strict=True)
        }
        optimizer.zero_grad()
        mse_loss(functional_call(model, moved, (x,)), x).backward()
        optimizer.step()

    return step, torch.randn(256, 128)


def random_lengths(time):
    """Batches of 20 to 200 rows, in no order."""
    chance = random.Random(7)

    def fetch():
        n = chance.randrange(20, 200)
        return torch.randn(n, 384), labels(n)

    return training(nn.Sequential(nn.Linear(384, 384), nn.Linear(384, 10))), fetch


def some_input(time):
    """Input takes less than the products."""

    def fetch():
        time.wait(0.1)
        return torch.randn(256, 256), labels(256)

    return training(nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 10))), fetch


def teacher_and_student(time, watch):
    """Distillation: the teacher's forward pass is most of a step."""
    teacher = mlp(256, 1024, 1024, 10)
    student = mlp(256, 64, 10)
    optimizer = torch.optim.Adam(student.parameters())
    data = TensorDataset(torch.randn(8_000, 256), torch.zeros(8_000))
    for x, _y in watch(DataLoader(data, batch_size=32)):
        with torch.no_grad():
            wanted = teacher(x).softmax(1)
        optimizer.zero_grad()
        cross_entropy(student(x), wanted).backward()
        optimizer.step()
