"""A third set of the form of unseen_loops, written after the causes that the first two showed had been mended."""

import functools
import gc
import itertools

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, RandomSampler

from steptime import gains
from tests.test_steptime.planted_loops import labels, small_batch, training
from tests.test_steptime.unseen_loops import Images, gradients_shared, mlp


def looked_up_words(time):
    def numericalize(text):
        time.work(2e-3)
        return [len(word) for word in text.split()]

    def collate(rows):
        return torch.tensor([numericalize("some words of a text")[:1] * 64 for _ in rows]).float(), labels(len(rows))

    return training(mlp(64, 64, 10)), DataLoader(Images(1_000), batch_size=16, collate_fn=collate)


def mined_triplets(time):
    model = mlp(64, 64, 16)
    optimizer = torch.optim.Adam(model.parameters())

    def mine(distances):
        time.work(0.03)
        return [max(range(len(row)), key=row.__getitem__) for row in distances]

    def step(batch):
        made = model(batch[0])
        far = mine(torch.cdist(made, made).tolist())
        optimizer.zero_grad()
        mse_loss(made, made[far].detach()).backward()
        optimizer.step()

    return step, small_batch()


def corrupted_triples(time):
    entities = nn.Embedding(300, 16)
    optimizer = torch.optim.SGD(entities.parameters(), lr=0.1)

    def corrupt():
        for _ in range(4):
            time.work(8e-3)
        return torch.randint(300, (64, 2))

    def step(pairs):
        optimizer.zero_grad()
        entities(pairs).prod(1).sum().backward()
        optimizer.step()

    return step, corrupt


def u_net(time):
    down, up = nn.Conv2d(3, 32, 3, 2, 1), nn.ConvTranspose2d(32, 3, 4, 2, 1)
    middle = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 32, 3, padding=1))
    optimizer = torch.optim.SGD([*down.parameters(), *middle.parameters(), *up.parameters()], lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        hidden = down(x)
        mse_loss(up(hidden + middle(hidden)), x).backward()
        optimizer.step()

    return step, torch.randn(4, 3, 32, 32)


def gradients_of_each_sample(time):
    model = nn.Linear(8, 2)

    def step(batch):
        norms = []
        for x, y in zip(batch[0], batch[1], strict=True):
            grads = torch.autograd.grad(cross_entropy(model(x[None, :8]), y[None] % 2), model.parameters())
            norms.append(torch.stack([g.norm() for g in grads]).norm())
        torch.stack(norms).mean().item()

    return step, small_batch()


def table_with_adagrad(time):
    table = nn.Embedding(30_000, 32)
    optimizer = torch.optim.Adagrad(table.parameters(), foreach=True)

    def step(rows):
        optimizer.zero_grad()
        table(rows).sum().backward()
        optimizer.step()

    return step, torch.arange(32)


def moving_average(time):
    weights, means = ([torch.ones(2**18) for _ in range(8)] for _ in range(2))
    train = training(mlp(64, 16, 10))

    def step(batch):
        train(batch)
        torch._foreach_lerp_(means, weights, 0.01)

    return step, small_batch()


def every_seventh(time):
    train, steps = training(mlp(64, 32, 10)), itertools.count(1)

    def confusion_matrix():
        time.work(0.1)

    def step(batch):
        train(batch)
        if next(steps) % 7 == 0:
            confusion_matrix()

    return step, [small_batch()] * 9


def attention_is_plotted(time):
    train, steps = training(mlp(64, 32, 10)), itertools.count()

    def draw():
        time.work(0.5)

    def plot():
        draw()
        time.wait(0.2)

    def step(batch):
        if next(steps) % 40 == 39:
            plot()
        train(batch)

    return step, small_batch()


def collected_by_a_callback(time):
    class Batch:
        def __init__(self):
            self.owner = self

        def __del__(self):
            time.work(0.05)

    train = training(mlp(64, 32, 10))

    def on_batch_end():
        Batch()
        gc.collect(0)

    def step(batch):
        train(batch)
        on_batch_end()

    return step, [small_batch()] * 20


def compiled_for_each_sixth(time):
    train, steps = training(mlp(64, 32, 10)), itertools.count(1)

    def forward(batch):
        if next(steps) % 6 == 0:
            counters["stats"]["unique_graphs"] += 1
            time.work(0.6)
        train(batch)

    return forward, small_batch()


def tiled_images(time):
    x, scale = torch.ones(3_000, 1024), nn.Parameter(torch.ones(1))

    def step(batch):
        scale.grad = None
        tiled = x.repeat(4, 1)
        (tiled[0] * scale).sum().backward()

    return step, (torch.ones(4),)


def crowded_mlp(time):
    torch.set_num_threads(5 * gains.cores())
    return training(mlp(128, 256, 10)), (torch.randn(64, 128), labels(64))


def input_and_metrics(time):
    train = training(mlp(64, 32, 10))

    def metrics():
        time.work(0.04)

    def step(batch):
        train(batch)
        metrics()

    def next_batch():
        time.work(0.042)
        return small_batch()

    return step, next_batch


def kept_by_a_decorator(time):
    @functools.cache
    def spectrogram(i):
        time.work(7e-3)
        return i

    return training(mlp(64, 64, 10)), DataLoader(Images(20_000, spectrogram), batch_size=8, shuffle=True)


def transformed_row_by_row(time):
    def transform(i):
        time.wait(1e-3)
        time.work(1e-3)

    return training(mlp(64, 64, 10)), DataLoader(Images(5_000, transform), batch_size=16, shuffle=True)


def evaluated_on_the_same_kind_of_data(time):
    model, data = mlp(64, 64, 10), Images(192)
    train = training(model)

    def predict(x):
        time.work(0.05)
        return model(x)

    for _epoch in range(40):
        for batch in DataLoader(data, batch_size=16, shuffle=True):
            train(batch)
        with torch.no_grad():
            for x, _y in DataLoader(data, batch_size=32):
                predict(x)


def hooks_after_each_batch(time):
    model = mlp(64, 64, 10)

    class Module:
        def training_step(self, batch):
            return cross_entropy(model(batch[0]), batch[1])

        def on_train_batch_end(self):
            time.wait(0.03)

    module, optimizer = Module(), torch.optim.AdamW(model.parameters())
    for _epoch in range(30):
        for batch in DataLoader(Images(160), batch_size=16):
            optimizer.zero_grad()
            module.training_step(batch).backward()
            optimizer.step()
            module.on_train_batch_end()


def sampled_with_replacement(time, watch):
    def read(i):
        time.wait(2e-3)

    data = Images(600, read)
    train = training(mlp(64, 64, 10))
    batches = watch(DataLoader(data, batch_size=20, sampler=RandomSampler(data, replacement=True)))
    for _epoch in range(10):
        for batch in batches:
            train(batch)


def one_rank_evaluates(time, rank):
    steps = itertools.count(1)

    def evaluate():
        if next(steps) % 8 == 0 and rank == 0:
            time.work(0.5)

    return gradients_shared(time, rank, mlp(64, 32, 10), small_batch(), evaluate)


STEPS = {
    "looked up words": ("input", "numericalize", looked_up_words),
    "mined triplets": ("other host work", "mine", mined_triplets),
    "corrupted triples": ("input", "corrupt", corrupted_triples),
    "u-net": ("arithmetic", "", u_net),
    "gradients of each sample": ("launch overhead", "", gradients_of_each_sample),
    "table with adagrad": ("memory bandwidth", "", table_with_adagrad),
    "moving average": ("memory bandwidth", "", moving_average),
    "every seventh": ("occasional work", "confusion_matrix", every_seventh),
    "attention is plotted": ("occasional work", "draw", attention_is_plotted),
    "collected by a callback": ("garbage collection", "on_batch_end", collected_by_a_callback),
    "compiled for each sixth": ("compiling", "forward", compiled_for_each_sixth),
    "tiled images": ("page faults", "", tiled_images),
    "crowded mlp": ("too many threads", "", crowded_mlp),
    "input and metrics": (None, "", input_and_metrics),  # 51 %: in doubt
    "kept by a decorator": ("first epoch", "spectrogram", kept_by_a_decorator),
    "transformed row by row": ("input", "transform", transformed_row_by_row),
}
SCRIPTS = {
    "evaluated on the same kind of data": ("occasional work", "predict", evaluated_on_the_same_kind_of_data),
    "hooks after each batch": ("other host work", "on_train_batch_end", hooks_after_each_batch),
}
WATCHED = {"sampled with replacement": ("input", "read", sampled_with_replacement)}
RANKED = {
    "one rank evaluates": (("occasional work", "evaluate"), ("other ranks", ""), one_rank_evaluates),
}
# As in unseen_loops. The script called watch anew in each epoch; two watches that ended at one step raised an error.
FIRST_LOOK = {"input and metrics": "input, in doubt"}
PLANTED_WRONGLY = ("sampled with replacement",)
