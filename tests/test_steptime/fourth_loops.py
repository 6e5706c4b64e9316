"""A fourth set of the form of unseen_loops, written after the causes that the first three showed had been mended."""

import gc
import itertools
import random

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.func import functional_call
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, IterableDataset

from steptime import gains
from tests.test_steptime.planted_loops import labels, small_batch, training
from tests.test_steptime.unseen_loops import Images, gradients_shared, mlp


def beam_search_in_the_loss(time):
    model = mlp(16, 32, 8)
    optimizer = torch.optim.Adam(model.parameters())

    def expand(beams):
        time.work(0.01)
        return [[*beam, token] for beam in beams for token in range(2)][:4]

    def step(x):
        scores, beams = model(x).log_softmax(1), [[]]
        for _length in range(4):
            beams = expand(beams)
        optimizer.zero_grad()
        (-scores[:, beams[0]].mean()).backward()
        optimizer.step()

    return step, torch.randn(8, 16)


def denoiser(time):
    model, betas = mlp(256, 512, 512, 256), torch.linspace(1e-4, 0.02, 100).cumsum(0)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        noise, level = torch.randn_like(x), betas[torch.randint(100, (len(x), 1))]
        optimizer.zero_grad()
        mse_loss(model((1 - level).sqrt() * x + level.sqrt() * noise), noise).backward()
        optimizer.step()

    return step, torch.randn(128, 256)


def messages_along_edges(time):
    """A layer of a graph network: features are looked up for each edge, and summed for each node."""
    source, target = torch.randint(2_000, (2, 60_000))
    scale = nn.Parameter(torch.ones(32))

    def step(x):
        scale.grad = None
        messages = (x * scale)[source]
        torch.zeros_like(x).index_add_(0, target, messages).mean().backward()

    return step, torch.randn(2_000, 32)


def many_small_tables(time):
    tables, head = nn.ModuleList(nn.Embedding(50, 4) for _ in range(26)), nn.Linear(26 * 4, 2)
    optimizer = torch.optim.SGD([*tables.parameters(), *head.parameters()], lr=0.1)

    def step(rows):
        optimizer.zero_grad()
        fields = torch.cat([table(rows[:, i]) for i, table in enumerate(tables)], 1)
        cross_entropy(head(fields), rows[:, 0] % 2).backward()
        optimizer.step()

    return step, torch.randint(50, (4, 26))


def experts_in_a_loop(time):
    gate, experts = nn.Linear(8, 16), nn.ModuleList(nn.Linear(8, 8) for _ in range(16))
    optimizer = torch.optim.SGD([*gate.parameters(), *experts.parameters()], lr=0.1)

    def step(x):
        weights, out = gate(x).softmax(1), torch.zeros_like(x)
        for i, expert in enumerate(experts):
            rows = (weights[:, i] > 0).nonzero()[:, 0]
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, i, None])
        optimizer.zero_grad()
        mse_loss(out, x).backward()
        optimizer.step()

    return step, torch.randn(8, 8)


def meta_learning(time):
    model = mlp(128, 384, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x):
        weights = dict(model.named_parameters())
        loss = mse_loss(functional_call(model, weights, (x,)), x)
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        moved = {name: w - 0.1 * slope for (name, w), slope in zip(weights.items(), slopes, strict=True)}
        optimizer.zero_grad()
        mse_loss(functional_call(model, moved, (x,)), x).backward()
        optimizer.step()

    return step, torch.randn(256, 128)


def listwise_ranking(time):
    model = mlp(32, 16, 1)
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch):
        ordered = model(batch[0]).squeeze(1).sort(descending=True).values
        optimizer.zero_grad()
        (ordered.logcumsumexp(0) - ordered).mean().backward()
        optimizer.step()

    return step, (torch.randn(64, 32), labels(64))


def resampled_audio(time):
    def resample(rows):
        time.work(0.02)
        return torch.stack(rows)

    class Collator:
        def __call__(self, rows):
            time.wait(5e-3)
            return resample([x for x, _ in rows]), labels(len(rows))

    return training(mlp(64, 64, 10), torch.optim.AdamW), DataLoader(
        Images(640), 16, shuffle=True, collate_fn=Collator()
    )


class Packed(IterableDataset):
    """Texts are put one behind another until a sequence is full."""

    def __init__(self, time):
        self.time = time

    def pack(self):
        self.time.work(2e-3)
        return torch.randint(50, (65,))

    def __iter__(self):
        return (self.pack() for _ in itertools.count())


def packed_sequences(time):
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(tokens):
        optimizer.zero_grad()
        cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step, DataLoader(Packed(time), batch_size=16)


class Prefetcher:
    """As apex's: the next batch is fetched while the loop asks for this one."""

    def __init__(self, time):
        self.time, self.following = time, small_batch()

    def preload(self):
        self.time.wait(0.04)
        self.following = small_batch()

    def next(self):
        batch = self.following
        self.preload()
        return batch


def prefetched_in_the_same_thread(time):
    return training(mlp(64, 64, 10)), Prefetcher(time).next


def saved_each_sixtieth(time):
    train, steps = training(mlp(64, 32, 10)), itertools.count(1)

    def save_checkpoint():
        time.wait(3.0)

    def step(batch):
        train(batch)
        if next(steps) % 60 == 0:
            save_checkpoint()

    return step, [small_batch()] * 25


def longer_evaluations(time):
    """An evaluation by generating texts of any length."""
    train, steps, chance = training(mlp(64, 32, 10)), itertools.count(1), random.Random(5)

    def generate():
        for _token in range(chance.randrange(4, 40)):
            time.work(0.02)

    def step(batch):
        train(batch)
        if next(steps) % 12 == 0:
            generate()

    return step, small_batch()


def cleaned_up_each_third(time):
    class Node:
        def __init__(self):
            self.parent = self

        def __del__(self):
            time.work(0.2)

    train, steps = training(mlp(64, 32, 10)), itertools.count(1)

    def step(batch):
        train(batch)
        Node()
        if next(steps) % 3 == 0:
            gc.collect()

    return step, small_batch()


def compiled_for_each_task(time):
    """A task in turn every 15 steps, and none of their graphs is kept."""
    train, steps = training(mlp(64, 32, 10)), itertools.count()

    def specialize():
        counters["stats"]["unique_graphs"] += 1
        time.work(1.5)

    def step(batch):
        if next(steps) % 15 == 0:
            specialize()
        train(batch)

    return step, small_batch()


def all_distances(time):
    scale = nn.Parameter(torch.ones(1))

    def step(x):
        scale.grad = None
        with torch.no_grad():
            near = (x[:, None] - x[None]).abs()
        (near[0] * scale).sum().backward()

    return step, torch.randn(4_096)


def crowded_by_the_environment(time):
    """As with OMP_NUM_THREADS of a larger machine."""
    torch.set_num_threads(6 * gains.cores())
    model = nn.Sequential(nn.Conv1d(16, 32, 5), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 60, 10))
    return training(model), (torch.randn(16, 16, 64), labels(16))


class Downloaded(IterableDataset):
    """A file for each batch of 10, downloaded by the first epoch."""

    def __init__(self, time):
        self.time, self.files = time, set()

    def download(self, name):
        self.time.wait(0.3)
        self.files.add(name)

    def __iter__(self):
        for name in range(12):
            if name not in self.files:
                self.download(name)
            yield from ((torch.ones(64), i % 10) for i in range(10))


def downloaded_once(time):
    return training(mlp(64, 64, 10)), DataLoader(Downloaded(time), batch_size=10)


def three_alike(time):
    """Input, products and logging take as long as each other."""
    train = training(mlp(256, 256, 10))

    def write_scalars():
        time.work(0.03)

    def step(batch):
        train(batch)
        write_scalars()

    def next_batch():
        time.work(0.03)
        return torch.randn(96, 256), labels(96)

    return step, next_batch


# scripts


def early_stopping(time):
    model = mlp(64, 64, 10)
    train, held_out = training(model), Images(96)

    def score(predicted):
        time.work(0.15)
        return float(predicted.mean())

    class EarlyStopping:
        best, patience = 1e9, 0

        def validate(self):
            with torch.no_grad():
                now = sum(score(model(x)) for x, _y in DataLoader(held_out, batch_size=32))
            self.best, self.patience = min(self.best, now), self.patience + 1
            return self.patience > 1_000

    stopping = EarlyStopping()
    for _epoch in range(100):
        for batch in DataLoader(Images(200), batch_size=20, shuffle=True):
            train(batch)
        if stopping.validate():
            break


def worlds_side_by_side(time):
    """Four steps of all worlds before each update, by a class that has them."""
    policy = mlp(16, 32, 4)
    optimizer = torch.optim.RMSprop(policy.parameters())

    class Worlds:
        def advance(self, actions):
            time.wait(8e-3)
            return torch.randn(8, 16), torch.rand(8)

    worlds, states = Worlds(), torch.randn(8, 16)
    for _update in range(300):
        losses = []
        for _ in range(4):
            chances = policy(states).log_softmax(1)
            states, rewards = worlds.advance(chances.argmax(1).tolist())
            losses.append(-(chances[:, 0] * rewards).mean())
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()


# scripts that call watch


def watched_anew_in_each_epoch(time, watch):
    def read(i):
        time.wait(2e-3)

    train = training(mlp(64, 64, 10))
    for _epoch in range(10):
        for batch in watch(DataLoader(Images(600, read), batch_size=20, shuffle=True)):
            train(batch)


def both_loaders_watched(time, watch):
    """The loaders of training and of validation are both handed to watch."""
    model = mlp(64, 64, 10)
    train = training(model)

    def compare(predicted):
        time.work(0.1)

    loaders = {name: watch(DataLoader(Images(n), batch_size=16)) for name, n in (("train", 320), ("validation", 160))}
    for _epoch in range(20):
        for batch in loaders["train"]:
            train(batch)
        with torch.no_grad():
            for x, _y in loaders["validation"]:
                compare(model(x))


# two ranks


def both_evaluate(time, rank):
    steps = itertools.count(1)

    def evaluate():
        if next(steps) % 6 == 0:
            time.work(0.4)

    return gradients_shared(time, rank, mlp(64, 32, 10), small_batch(), evaluate)


STEPS = {
    "beam search in the loss": ("other host work", "expand", beam_search_in_the_loss),
    "denoiser": ("arithmetic", "", denoiser),
    "messages along edges": ("memory bandwidth", "", messages_along_edges),
    "many small tables": ("launch overhead", "", many_small_tables),
    "experts in a loop": ("launch overhead", "", experts_in_a_loop),
    "meta learning": ("arithmetic", "", meta_learning),
    "listwise ranking": ("unknown", "sort", listwise_ranking),
    "resampled audio": ("input", "resample", resampled_audio),
    "packed sequences": ("input", "pack", packed_sequences),
    "prefetched in the same thread": ("input", "preload", prefetched_in_the_same_thread),
    "saved each sixtieth": ("occasional work", "save_checkpoint", saved_each_sixtieth),
    "longer evaluations": ("occasional work", "generate", longer_evaluations),
    "cleaned up each third": ("garbage collection", "", cleaned_up_each_third),
    "compiled for each task": ("compiling", "specialize", compiled_for_each_task),
    "all distances": ("page faults", "", all_distances),
    "crowded by the environment": ("too many threads", "", crowded_by_the_environment),
    "downloaded once": ("first epoch", "download", downloaded_once),
    "three alike": (None, "", three_alike),
}
SCRIPTS = {
    "early stopping": ("occasional work", "score", early_stopping),
    "worlds side by side": ("other host work", "advance", worlds_side_by_side),
}
WATCHED = {
    "watched anew in each epoch": ("input", "read", watched_anew_in_each_epoch),
    "both loaders watched": ("occasional work", "compare", both_loaders_watched),
}
RANKED = {"both evaluate": (("occasional work", "evaluate"), ("occasional work", "evaluate"), both_evaluate)}
# As in unseen_loops. The two scripts with several watches had one of each epoch or loader, which each saw a part.
FIRST_LOOK = {
    "downloaded once": "input",
    "watched anew in each epoch": "other host work",
    "both loaders watched": "occasional work, without its line",
}
PLANTED_WRONGLY = ()
