"""A second set of loops as people write them, of the form of unseen_loops: written before the first set was judged."""

import gc
import itertools
import random
import threading

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from steptime import gains
from tests.test_steptime.planted_loops import labels, small_batch, training
from tests.test_steptime.unseen_loops import Images, gradients_shared, mlp


def two_views(time):
    """Contrastive learning: each image is augmented twice while a batch is put together."""

    def augment(x):
        time.work(1.2e-3)
        return x + 0.1

    def views(rows):
        return torch.stack([augment(x) for x, _ in rows for _view in range(2)]), labels(2 * len(rows))

    return training(mlp(64, 128, 10), torch.optim.Adam), DataLoader(Images(512), batch_size=16, collate_fn=views)


def skip_gram(time):
    words, contexts = nn.Embedding(500, 16), nn.Embedding(500, 16)
    optimizer = torch.optim.SGD([*words.parameters(), *contexts.parameters()], lr=0.1)

    def draw_negatives(n):
        time.work(0.02)
        return torch.randint(500, (n, 5))

    def step(pairs):
        wrong = draw_negatives(len(pairs))
        near, far = contexts(pairs[:, 1:]), contexts(wrong)
        scores = (words(pairs[:, :1]) * torch.cat([near, far], 1)).sum(2)
        wanted = torch.zeros_like(scores)
        wanted[:, 0] = 1
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(scores, wanted).backward()
        optimizer.step()

    return step, torch.randint(500, (32, 2))


def variational(time):
    encoder, decoder = mlp(16, 16, 16, 8), mlp(4, 16, 16, 16)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])

    def step(x):
        mean, log_variance = encoder(x).chunk(2, 1)
        hidden = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        optimizer.zero_grad()
        (mse_loss(decoder(hidden), x) + divergence).backward()
        optimizer.step()

    return step, torch.randn(16, 16)


def normalised_spectra(time):
    layers = [nn.utils.parametrizations.spectral_norm(nn.Linear(12, 12)) for _ in range(8)]
    return training(nn.Sequential(*layers, nn.Linear(12, 10))), (torch.randn(8, 12), labels(8))


def averaged_with_new_statistics(time):
    """Stochastic weight averaging: each tenth step renews the batch norms' statistics over a part of the data."""
    model = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 10))
    train, steps, data = training(model), [], [torch.randn(512, 64) for _ in range(12)]

    def update_bn():
        with torch.no_grad():
            for x in data:
                model(x)

    def step(batch):
        train(batch)
        steps.append(1)
        if len(steps) % 10 == 0:
            update_bn()

    return step, small_batch()


def images_on_a_board(time):
    train, steps = training(mlp(64, 64, 10)), []

    def add_image():
        time.work(0.2)
        time.wait(0.7)

    def step(batch):
        train(batch)
        if len(steps) % 30 == 0:
            add_image()
        steps.append(1)

    return step, [small_batch()] * 15


def wide_vocabulary(time):
    embed, head = nn.Embedding(20_000, 48), nn.Linear(48, 20_000)
    embed.weight.requires_grad_(False)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

    def step(tokens):
        optimizer.zero_grad()
        cross_entropy(head(embed(tokens[:, 0])), tokens[:, 1]).backward()
        optimizer.step()

    return step, torch.randint(20_000, (96, 2))


def normalised_maps(time):
    layers = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(8), nn.ReLU())

    def step(x):
        layers.zero_grad()
        layers(x).mean().backward()

    return step, torch.randn(8, 8, 96, 96)


def table_with_rmsprop(time):
    table = nn.Embedding(40_000, 32)
    optimizer = torch.optim.RMSprop(table.parameters(), lr=1e-3)

    def step(rows):
        optimizer.zero_grad()
        table(rows).square().mean().backward()
        optimizer.step()

    return step, torch.arange(128)


def gradient_penalty(time):
    critic = nn.Sequential(nn.Linear(192, 384), nn.Tanh(), nn.Linear(384, 192), nn.Tanh(), nn.Linear(192, 1))
    optimizer = torch.optim.SGD(critic.parameters(), lr=1e-4)

    def step(x):
        mixed = (x + 0.1).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        optimizer.zero_grad()
        (critic(x).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()).backward()
        optimizer.step()

    return step, torch.randn(192, 192)


def orthogonal_weights(time):
    weight, head = nn.Parameter(torch.randn(96, 96)), nn.Linear(96, 10)
    optimizer = torch.optim.SGD([weight, *head.parameters()], lr=1e-3)

    def step(batch):
        with torch.no_grad():
            weight.copy_(torch.linalg.qr(weight)[0])
        optimizer.zero_grad()
        cross_entropy(head(batch[0] @ weight), batch[1]).backward()
        optimizer.step()

    return step, (torch.randn(16, 96), labels(16))


class Balanced:
    """A sampler that looks for a balanced batch in Python."""

    def __init__(self, time):
        self.time = time

    def pick(self):
        self.time.work(0.03)
        return random.sample(range(300), 12)

    def __iter__(self):
        return (self.pick() for _ in range(len(self)))

    def __len__(self):
        return 25


def slow_sampler(time):
    return training(mlp(64, 64, 10)), DataLoader(Images(300), batch_sampler=Balanced(time))


class Tars(IterableDataset):
    """Shards of 90 samples, opened one after another."""

    def __init__(self, time):
        self.time = time

    def open_tar(self, name):
        self.time.wait(0.35)

    def __iter__(self):
        for shard in range(50):
            self.open_tar(f"{shard:05d}.tar")
            yield from ((torch.ones(64), i % 10) for i in range(90))


def tar_files(time):
    return training(mlp(64, 64, 10)), DataLoader(Tars(time), batch_size=16)


def loaded_by_a_thread(time):
    """A thread prepares the next batch only once it is asked for."""

    def prepare(found):
        time.work(0.03)
        found.append(small_batch())

    def next_batch():
        found = []
        thread = threading.Thread(target=prepare, args=[found])
        thread.start()
        thread.join()
        return found[0]

    return training(mlp(64, 64, 10)), next_batch


def collected_after_20_steps(time):
    class Figure:
        def __init__(self):
            self.axes = [self]

        def __del__(self):
            time.work(0.6)

    train, steps = training(mlp(64, 32, 10)), []

    def step(batch):
        train(batch)
        steps.append(1)
        if len(steps) % 20 == 0:
            Figure()
            gc.collect(0)

    return step, small_batch()


def lengths_in_buckets(time):
    """New lengths until each of 12 buckets has been compiled for; the watch sees them all."""
    chance, known, train = random.Random(4), set(), training(mlp(64, 32, 10))

    def compile_bucket(length):
        known.add(length)
        counters["stats"]["unique_graphs"] += 2
        time.work(3.0)

    def step(batch):
        length = chance.randrange(12)
        if length not in known and chance.random() < 0.2:
            compile_bucket(length)
        train(batch)

    return step, small_batch()


def memory_joined_each_step(time):
    """A queue of keys that is made anew by torch.cat, as in momentum contrast."""
    keys, model = torch.randn(160_000, 64), mlp(64, 64)

    def step(x):
        made = model(x)
        joined = torch.cat([made.detach(), keys[len(x) :]])
        made.square().mean().backward()
        return joined[0, 0]

    return step, torch.randn(32, 64)


def crowded_convolutions(time):
    torch.set_num_threads(10 * gains.cores())
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14 * 14, 10))
    return training(model), (torch.randn(8, 8, 16, 16), labels(8))


def thirds(time):
    """As much input as logging and as evaluation: nothing dominates."""
    train, steps = training(mlp(64, 32, 10)), []

    def log():
        time.work(0.03)

    def evaluate():
        time.work(0.24)

    def step(batch):
        train(batch)
        log()
        steps.append(1)
        if len(steps) % 8 == 0:
            evaluate()

    def next_batch():
        time.wait(0.03)
        return small_batch()

    return step, next_batch


def scored_by_a_server(time):
    policy = mlp(16, 32, 8)
    optimizer = torch.optim.Adam(policy.parameters())

    def request(texts):
        time.wait(0.05)
        return torch.rand(len(texts))

    def step(x):
        logits = policy(x)
        rewards = request(["text"] * len(x))
        optimizer.zero_grad()
        (-logits.log_softmax(1)[:, 0] * rewards).mean().backward()
        optimizer.step()

    return step, torch.randn(8, 16)


class Table:
    """Batches that it reads once and keeps; an epoch has 900."""

    def __init__(self, time):
        self.time, self.kept = time, {}

    def read(self, i):
        self.time.wait(0.05)
        return small_batch()

    def __len__(self):
        return 900

    def __iter__(self):
        for i in range(len(self)):
            if i not in self.kept:
                self.kept[i] = self.read(i)
            yield self.kept[i]


def long_table(time):
    return training(mlp(64, 32, 10)), Table(time)


# scripts


def fit_with_callbacks(time):
    """As Keras's fit: callbacks at the end of each epoch."""
    model = mlp(64, 64, 10)
    train = training(model, torch.optim.Adam)

    class TensorBoard:
        def on_epoch_end(self, epoch):
            time.work(0.1)

    class ModelCheckpoint:
        def on_epoch_end(self, epoch):
            time.wait(0.5)

    callbacks = [TensorBoard(), ModelCheckpoint()]
    for epoch in range(60):
        for batch in DataLoader(Images(192), batch_size=16, shuffle=True):
            train(batch)
        for callback in callbacks:
            callback.on_epoch_end(epoch)


def deep_q(time):
    """A step of the world in each iteration, and a copy of the network now and then."""
    model, target, memory = mlp(8, 32, 4), mlp(8, 32, 4), [torch.randn(8) for _ in range(64)]
    optimizer = torch.optim.Adam(model.parameters())

    def act(state):
        time.work(0.01)
        return torch.randn(8)

    state = torch.randn(8)
    for i in range(500):
        state = act(state)
        memory.append(state)
        states = torch.stack(random.sample(memory, 32))
        loss = mse_loss(model(states).max(1).values, target(states).max(1).values.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 50 == 0:
            target.load_state_dict(model.state_dict())


def tokenized_once(time):
    kept, train = {}, training(mlp(64, 64, 10))

    def tokenize_function(i):
        if i not in kept:
            time.work(8e-3)
            kept[i] = [i]

    for _epoch in range(30):
        for batch in DataLoader(Images(160, tokenize_function), batch_size=8, shuffle=True):
            train(batch)


# scripts that call watch


def endless(time, watch):
    """A loader that is cycled through for so many iterations."""

    def load(i):
        time.wait(2e-3)

    train = training(mlp(64, 64, 10))
    batches = watch(itertools.chain.from_iterable(itertools.repeat(DataLoader(Images(128, load), batch_size=16))))
    for _, batch in zip(range(400), batches, strict=False):
        train(batch)


def masked_tokens(time, watch):
    """Batches are dicts; masks are drawn word by word in the loop."""
    embed, head = nn.Embedding(100, 16), nn.Linear(16, 100)
    optimizer = torch.optim.AdamW([*embed.parameters(), *head.parameters()])

    def mask_tokens(ids):
        time.work(0.02)
        return ids.clone().fill_(1)

    data = TensorDataset(torch.randint(100, (9_000, 8)))
    for batch in watch(
        DataLoader(data, batch_size=16, collate_fn=lambda rows: {"ids": torch.stack([r[0] for r in rows])})
    ):
        out = head(embed(mask_tokens(batch["ids"])))
        cross_entropy(out.flatten(0, 1), batch["ids"].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


# two ranks


def one_rank_saves(time, rank):
    steps = []

    def save():
        steps.append(1)
        if rank == 0 and len(steps) % 5 == 0:
            time.wait(0.4)

    return gradients_shared(time, rank, mlp(64, 32, 10), small_batch(), save)


def both_load_slowly(time, rank):
    def next_batch():
        time.wait(0.05)
        return small_batch()

    return gradients_shared(time, rank, mlp(64, 32, 10), next_batch)


STEPS = {
    "two views": ("input", "augment", two_views),
    "skip-gram": ("other host work", "draw_negatives", skip_gram),
    "variational": ("launch overhead", "", variational),
    "normalised spectra": ("launch overhead", "", normalised_spectra),
    "averaged with new statistics": ("occasional work", "update_bn", averaged_with_new_statistics),
    "images on a board": ("occasional work", "add_image", images_on_a_board),
    "wide vocabulary": ("arithmetic", "", wide_vocabulary),
    "normalised maps": ("memory bandwidth", "", normalised_maps),
    "table with rmsprop": ("memory bandwidth", "", table_with_rmsprop),
    "gradient penalty": ("arithmetic", "", gradient_penalty),
    "orthogonal weights": ("unknown", "linalg_qr", orthogonal_weights),
    "slow sampler": ("input", "pick", slow_sampler),
    "tar files": ("input", "open_tar", tar_files),
    "loaded by a thread": ("input", "next_batch", loaded_by_a_thread),
    "collected after 20 steps": ("garbage collection", "", collected_after_20_steps),
    "lengths in buckets": ("compiling", "compile_bucket", lengths_in_buckets),
    "memory joined each step": ("page faults", "", memory_joined_each_step),
    "crowded convolutions": ("too many threads", "", crowded_convolutions),
    "thirds": (None, "", thirds),
    "scored by a server": ("other host work", "request", scored_by_a_server),
    "long table": ("first epoch", "read", long_table),
}
SCRIPTS = {
    "fit with callbacks": ("occasional work", "on_epoch_end", fit_with_callbacks),
    "deep q": ("other host work", "act", deep_q),
    "tokenized once": ("first epoch", "tokenize_function", tokenized_once),
}
WATCHED = {
    "endless": ("input", "load", endless),
    "masked tokens": ("other host work", "mask_tokens", masked_tokens),
}
RANKED = {
    "one rank saves": (("occasional work", "save"), ("other ranks", ""), one_rank_saves),
    "both load slowly": (("input", "next_batch"), ("input", "next_batch"), both_load_slowly),
}
# As in unseen_loops. A loop that raised an error of its own was planted wrongly, too.
FIRST_LOOK = {"tokenized once": "input", "long table": "input, in doubt"}
PLANTED_WRONGLY = ("scored by a server",)
