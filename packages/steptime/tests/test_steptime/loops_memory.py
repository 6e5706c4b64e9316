"""Loops that move more bytes than they compute: memory bandwidth, and page faults of
new memory.
"""

import torch
from torch import nn
from torch.nn.functional import embedding

from test_steptime.loop_parts import labels, training, with_host_work

# memory bandwidth


def element_by_element(time, passes=8):
    bias = torch.zeros(1, requires_grad=True)

    def step(batch):
        out = torch.empty_like(batch[0])
        with torch.no_grad():
            for _ in range(passes):
                torch.add(batch[0], 0.5, out=out)
        (out[:1] * bias).sum().backward()

    return step, (torch.randn(512, 4096),)


def in_one_pass(time):
    """`element_by_element`, mended."""
    return element_by_element(time, passes=1)


def large_weights_one_row(time):
    return training(nn.Linear(2048, 1024), torch.optim.Adam), (
        torch.randn(1, 2048),
        labels(1),
    )


def large_table(time):
    table = torch.randn(100_000, 32, requires_grad=True)
    optimizer = torch.optim.SGD([table], lr=0.1)

    def step(batch):
        optimizer.zero_grad()
        embedding(batch[0], table).sum().backward()
        optimizer.step()

    return step, (torch.arange(64) * 1_000,)


def updates(**options):
    """An optimizer's step on eight times as many bytes as fit in most caches; the
    gradients stay.
    """
    weights = [nn.Parameter(torch.ones(2**19)) for _ in range(4)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adam(weights, **options)

    def step(batch):
        batch[0].add(1)
        optimizer.step()

    return step, (torch.ones(4),)


def foreach_adam(time):
    return updates(foreach=True)


def fused_adam(time):
    return updates(fused=True)


def on_kept_memory(work):
    """A step that calls work(x, out) on 16 MiB each."""
    x = torch.ones(2**22)
    out = torch.empty(2**22)

    def step(batch):
        batch[0].add(1)
        work(x, out)

    return step, (torch.ones(4),)


def copies(time):
    return on_kept_memory(lambda x, out: out.copy_(x))


def into_kept_memory(time):
    return on_kept_memory(lambda x, out: torch.exp(x, out=out))


def zeros(time):
    return on_kept_memory(lambda x, out: out.zero_())


def strided_addition(time):
    return on_kept_memory(lambda x, out: x[::4].add_(1))


def normalized_maps(time):
    layers = nn.Sequential(
        nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(8), nn.ReLU()
    )

    def step(x):
        layers.zero_grad()
        layers(x).mean().backward()

    return step, torch.randn(8, 8, 96, 96)


def kept_after_each_step(time):
    """The weights so far are copied, in case that they are the best."""
    model = nn.Linear(1024, 1024)
    train = training(nn.Linear(16, 10))
    best = {}

    def step(batch):
        train(batch)
        best.update({name: w.clone() for name, w in model.state_dict().items()})

    return step, (torch.randn(4, 16), labels(4))


def nothing_kept(time):
    """`kept_after_each_step`, mended."""
    return training(nn.Linear(16, 10)), (torch.randn(4, 16), labels(4))


# page faults


def doubled_anew(time):
    x = torch.ones(2**23)

    def step(batch):
        batch[0].add(1)
        x * 2

    return step, (torch.ones(4),)


def doubled_in_place(time):
    """`doubled_anew`, mended."""
    x = torch.ones(2**23)

    def step(batch):
        batch[0].add(1)
        torch.mul(x, 2, out=x)

    return step, (torch.ones(4),)


def new_activations(time):
    bias = torch.zeros(1, requires_grad=True)

    def step(batch):
        (torch.tanh(batch[0] + bias)[0]).sum().backward()

    return step, (torch.randn(2048, 4096),)


def mixed_up_in_numpy(time):
    """New memory that is no tensor's."""

    def mix_up(batch):
        time.fault(6_000)

    return with_host_work(mix_up)
