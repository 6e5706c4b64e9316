"""Loops as people write them, on the clocks of planted_loops: their classes were written down before they were judged.

`STEPS` are name -> (limit, function to be named, maker of a step and its batches); `SCRIPTS` are name -> (limit,
function, script), where a script takes a clock and is a whole training; `WATCHED` the same for a script that takes
`watch` too and calls it with its loader. `RANKED` are name -> (limit and function for each of two ranks, maker of a
step and its batches for a rank). None is the limit where nothing takes more than half of the time.
"""

import gc
import itertools
import json
import logging
import random

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, one_hot
from torch.utils.checkpoint import checkpoint as recompute
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from steptime import gains
from tests.test_steptime.planted_loops import labels, small_batch, training

LOG = logging.getLogger(__name__)


def mlp(*widths):
    layers = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Images(Dataset):
    """So many images; `prepare(i)` is called for each."""

    def __init__(self, n, prepare=lambda i: None):
        self.n, self.prepare = n, prepare

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.prepare(i)
        return torch.full((64,), 0.01 * i), i % 10


class Block(nn.Module):
    """A block of a GPT."""

    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out, self.mlp = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            mlp(width, 4 * width, width),
        )

    def forward(self, x):
        n, length, width = x.shape
        split = self.qkv(self.first(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*split.unbind(0), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.second(x))


# steps


def accuracy_in_python(time):
    """PyTorch's beginner tutorial, with an accuracy that walks over the predictions."""
    model = mlp(64, 64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def count_correct(predicted, wanted):
        time.work(0.03)
        return sum(int(a == b) for a, b in zip(predicted, wanted, strict=True))

    def step(batch):
        x, y = batch
        predicted = model(x)
        loss = cross_entropy(predicted, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item(), count_correct(predicted.argmax(1).tolist(), y.tolist())

    return step, DataLoader(Images(128), batch_size=32)


def ema_of_the_state(time):
    model, average = mlp(*[12] * 16, 10), mlp(*[12] * 16, 10)
    train = training(model, torch.optim.AdamW, foreach=False)

    def step(batch):
        train(batch)
        with torch.no_grad():
            kept = average.state_dict()
            for name, value in model.state_dict().items():
                kept[name].lerp_(value, 0.01)

    return step, (torch.randn(8, 12), labels(8))


def gan(time, each=None, after=lambda: None):
    generator, critic, steps = mlp(4, 8, 8, 8), mlp(8, 8, 8, 1), []
    of_generator, of_critic = (torch.optim.Adam(m.parameters(), 2e-4, (0.5, 0.999)) for m in (generator, critic))

    def step(batch):
        real = batch[0][:4, :8]
        fake = generator(torch.randn(len(real), 4))
        of_critic.zero_grad()
        scores = critic(torch.cat([real, fake.detach()]))
        wanted = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
        binary_cross_entropy_with_logits(scores, wanted).backward()
        of_critic.step()
        of_generator.zero_grad()
        binary_cross_entropy_with_logits(critic(fake), torch.ones(len(real), 1)).backward()
        of_generator.step()
        steps.append(1)
        if each and len(steps) % each == 0:
            after()

    return step, small_batch()


def gan_with_samples(time):
    def save_samples():
        time.work(0.9)

    return gan(time, 25, save_samples)


def decoder_cell_by_cell(time):
    cell, embed, head = nn.LSTMCell(16, 16), nn.Embedding(32, 16), nn.Linear(16, 32)
    optimizer = torch.optim.Adam([*cell.parameters(), *embed.parameters(), *head.parameters()])

    def step(tokens):
        state, loss = None, torch.zeros(())
        for now, following in zip(tokens.T[:-1], tokens.T[1:], strict=True):
            state = cell(embed(now), state)
            loss = loss + cross_entropy(head(state[0]), following)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
        optimizer.step()

    return step, torch.randint(32, (4, 24))


def language_model_lstm(time):
    embed, lstm, head = nn.Embedding(50, 192), nn.LSTM(192, 192, 2, batch_first=True), nn.Linear(192, 50)
    optimizer = torch.optim.SGD([*embed.parameters(), *lstm.parameters(), *head.parameters()], lr=0.1)

    def step(tokens):
        optimizer.zero_grad()
        out, _ = lstm(embed(tokens[:, :-1]))
        cross_entropy(head(out).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step, torch.randint(50, (32, 25))


def accumulated_with_adam(time):
    """The update of many weights after each fourth batch is dearer than four batches."""
    model = nn.Sequential(nn.Embedding(2**15, 64), nn.Flatten(), nn.Linear(64, 10))
    optimizer, steps = torch.optim.AdamW(model.parameters()), []
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    model[0].weight.requires_grad_(False)

    def step(batch):
        (cross_entropy(model(batch[0]), batch[1]) / 4).backward()
        steps.append(1)
        if len(steps) % 4 == 0:
            optimizer.step()

    return step, (torch.arange(8)[:, None], labels(8))


def clipped_with_item(time):
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


def log_to_a_file(time):
    train = training(mlp(64, 32, 10), torch.optim.Adam)

    def write_line(values):
        json.dumps(values)
        time.wait(0.025)

    def step(batch):
        train(batch)
        write_line({"loss": 0.5, "rate": 1e-4})

    return step, small_batch()


def progress_bar(time):
    train = training(mlp(64, 32, 10))

    def set_postfix(**values):
        for _ in range(3):
            time.work(7e-3)

    def step(batch):
        train(batch)
        set_postfix(loss=1.0)

    return step, [small_batch()] * 50


def cropped_in_the_main_process(time):
    def random_crop(i):
        time.work(2e-3)

    return training(mlp(64, 128, 10), torch.optim.Adam), DataLoader(
        Images(320, random_crop), batch_size=16, shuffle=True
    )


def padded_by_collate(time):
    chance = random.Random(1)

    def pad(rows):
        time.work(1e-3 * chance.randrange(10, 60))
        return torch.nn.utils.rnn.pad_sequence([x for x, _ in rows], batch_first=True), labels(len(rows))

    return training(mlp(64, 64, 10)), DataLoader(Images(4_000), batch_size=20, collate_fn=pad)


class TwoWorkers:
    """Batches of two workers that keep up badly: two come together, every 120 ms."""

    num_workers, prefetch_factor = 2, 2

    def __init__(self, time):
        self.time = time

    def __len__(self):
        return 5_000

    def __iter__(self):
        for i in range(len(self)):
            self.time.wait(0.12 * (i % 2 == 0))
            yield small_batch()


def too_few_workers(time):
    train = training(mlp(64, 64, 10))

    def step(batch):
        train(batch)
        time.work(1e-3)

    return step, TwoWorkers(time)


def collected_each_step(time):
    class Node:
        def __init__(self):
            self.parent = self

        def __del__(self):
            time.work(0.015)

    train = training(mlp(64, 32, 10))

    def step(batch):
        train(batch)
        Node()
        gc.collect(0)

    return step, small_batch()


def collected_by_the_dataset(time):
    class Node:
        def __init__(self):
            self.parent = self

        def __del__(self):
            time.work(4e-3)

    def parse(i):
        Node()
        gc.collect(0)

    return training(mlp(64, 32, 10)), DataLoader(Images(200, parse), batch_size=4)


def decoded_from_memory(time):
    def decode(i):
        for _row in range(4):
            time.work(1e-3)

    return training(mlp(64, 256, 10)), DataLoader(Images(2_000, decode), batch_size=8)


def opened_for_each_sample(time):
    def open_file(i):
        time.wait(3e-3)

    return training(mlp(64, 256, 10)), DataLoader(Images(500, open_file), batch_size=10, shuffle=True)


class Buffered(IterableDataset):
    """A stream with a buffer for shuffling, which is filled after each 12 batches."""

    def __init__(self, time):
        self.time = time

    def fill_buffer(self):
        self.time.wait(0.7)
        return [*range(12 * 16)]

    def __iter__(self):
        while True:
            for i in self.fill_buffer():
                yield torch.full((64,), 1.0 * i), i % 10


def shuffle_buffer(time):
    return training(mlp(64, 64, 10)), DataLoader(Buffered(time), batch_size=16)


def long_first_epoch(time):
    """A cache that the first epoch fills; the watch ends long before."""
    known = set()

    def read_once(i):
        if i not in known:
            known.add(i)
            time.wait(4e-3)

    return training(mlp(64, 64, 10)), DataLoader(Images(40_000, read_once), batch_size=16)


def long_shuffled_first_epoch(time):
    known = {}

    def load(i):
        if i not in known:
            time.work(6e-3)
            known[i] = True

    return training(mlp(64, 64, 10)), DataLoader(Images(30_000, load), batch_size=8, shuffle=True)


def short_first_epoch(time):
    known = {}

    def resize(i):
        if i not in known:
            known[i] = time.work(0.01)

    return training(mlp(64, 64, 10), torch.optim.Adam), DataLoader(Images(96, resize), batch_size=16, shuffle=True)


def ragged_batches(time):
    """A third of the batches has a length that is new to torch.compile."""
    chance, known, train = random.Random(2), set(), training(mlp(64, 32, 10))

    def compile_for(length):
        known.add(length)
        counters["stats"]["unique_graphs"] += 1
        time.work(0.8)

    def step(batch):
        length = chance.randrange(10_000) if chance.random() < 0.33 else 0
        if length and length not in known:
            compile_for(length)
        train(batch)

    return step, small_batch()


def hard_negatives(time):
    model = mlp(64, 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch):
        loss = cross_entropy(model(batch[0]), batch[1], reduction="none")
        hardest = loss.sort(descending=True).values[:64]
        optimizer.zero_grad()
        hardest.mean().backward()
        optimizer.step()

    return step, (torch.randn(256, 64), labels(256))


def crowded_attention(time):
    torch.set_num_threads(6 * gains.cores())
    model = Block(96, 4)

    def step(x):
        model.zero_grad()
        model(x).square().mean().backward()

    return step, torch.randn(4, 64, 96)


class Environment:
    """A simulator that takes a moment for each action."""

    def __init__(self, time, each_s):
        self.time, self.each_s = time, each_s

    def simulate(self, action):
        self.time.work(self.each_s)
        return torch.randn(8), 1.0


def policy_gradient(time):
    policy, world = mlp(8, 16, 4), Environment(time, 2e-3)
    optimizer = torch.optim.Adam(policy.parameters())

    def step(state):
        chosen, rewards = [], []
        for _ in range(24):
            choice = torch.distributions.Categorical(logits=policy(state))
            action = choice.sample()
            chosen.append(choice.log_prob(action))
            state, reward = world.simulate(action.item())
            rewards.append(reward)
        optimizer.zero_grad()
        (-torch.stack(chosen) * torch.tensor(rewards)).sum().backward()
        optimizer.step()

    return step, torch.randn(8)


def replayed_experience(time):
    model, other, world, memory = mlp(8, 64, 4), mlp(8, 64, 4), Environment(time, 5e-3), []
    optimizer = torch.optim.Adam(model.parameters())

    def collect():
        for _ in range(8):
            memory.append(world.simulate(0)[0])
        return torch.stack(random.choices(memory, k=32))

    def step(states):
        wanted = 1 + 0.99 * other(states).detach().max(1).values
        optimizer.zero_grad()
        mse_loss(model(states)[:, 0], wanted).backward()
        optimizer.step()

    return step, collect


def evaluated_with_a_loader(time):
    model = mlp(64, 64, 10)
    train, steps = training(model), []

    def show(i):
        time.work(1.5e-3)

    def evaluate():
        model.eval()
        with torch.no_grad():
            for x, _y in DataLoader(Images(128, show), batch_size=32):
                model(x)
        model.train()

    def step(batch):
        train(batch)
        steps.append(1)
        if len(steps) % 15 == 0:
            evaluate()

    return step, [small_batch()] * 30


def evaluation_beside_a_log(time):
    train, steps = training(mlp(64, 32, 10)), []

    def log_step():
        time.work(6e-3)

    def run_validation():
        time.work(0.18)

    def step(batch):
        train(batch)
        log_step()
        steps.append(1)
        if not len(steps) % 12:
            run_validation()

    return step, small_batch()


def histograms_each_tenth(time):
    model, steps = mlp(64, 64, 64, 10), []
    train = training(model)

    def log_histograms():
        for weight in model.parameters():
            torch.histc(weight.detach(), 64)
            time.work(0.05)

    def step(batch):
        train(batch)
        steps.append(1)
        if len(steps) % 10 == 0:
            log_histograms()

    return step, small_batch()


def tokens_in_the_step(time):
    """As a Trainer whose data are strings."""
    model = nn.Sequential(nn.EmbeddingBag(1_000, 32), nn.Linear(32, 10))
    train = training(model)

    def tokenize(texts):
        time.work(0.04)
        return torch.tensor([[len(word) for word in text.split()] for text in texts])

    def step(batch):
        train((tokenize(batch["text"]), batch["labels"]))

    return step, [{"text": ["a few words of a text"] * 16, "labels": labels(16)}] * 20


def recommender(time):
    users, items = nn.Embedding(60_000, 48), nn.Embedding(40_000, 48)
    optimizer = torch.optim.SGD([*users.parameters(), *items.parameters()], lr=0.05)

    def step(batch):
        user, item, rating = batch
        optimizer.zero_grad()
        mse_loss((users(user) * items(item)).sum(1), rating).backward()
        optimizer.step()

    return step, (torch.arange(64), torch.arange(64), torch.rand(64))


def adam_on_wide_layers(time):
    return training(mlp(1024, 2048, 1024, 10), torch.optim.Adam), (torch.randn(2, 1024), labels(2))


def gpt(time):
    blocks, head = nn.Sequential(Block(128, 4), Block(128, 4)), nn.Linear(128, 64)
    optimizer = torch.optim.AdamW([*blocks.parameters(), *head.parameters()])

    def step(batch):
        optimizer.zero_grad()
        cross_entropy(head(blocks(batch[0])).flatten(0, 1), batch[1]).backward()
        optimizer.step()

    return step, (torch.randn(8, 96, 128), torch.randint(64, (8 * 96,)))


def recomputed_activations(time):
    blocks = nn.ModuleList([Block(128, 2), Block(128, 2)])
    optimizer = torch.optim.SGD(blocks.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        out = x * 1.0
        for block in blocks:
            out = recompute(block, out, use_reentrant=False)
        out.square().mean().backward()
        optimizer.step()

    return step, torch.randn(6, 96, 128, requires_grad=True)


def residual_network(time):
    def layer(a, b, stride=1):
        return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

    model = nn.Sequential(layer(3, 48), layer(48, 48), layer(48, 96, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return training(nn.Sequential(model, nn.Linear(96, 10))), (torch.randn(8, 3, 24, 24), labels(8))


def scaled_by_many_passes(time):
    """Elementwise passes over activations that stay below what is new memory each time."""
    bias = nn.Parameter(torch.zeros(1024))

    def step(x):
        bias.grad = None
        out = torch.tanh(torch.sigmoid(x + bias) * 1.5 + 0.5)
        nn.functional.dropout(out, 0.1).mean().backward()

    return step, torch.randn(1024, 1024)


def one_hot_images(time):
    """Targets as large as the logits of each pixel, new each time."""
    weight = nn.Parameter(torch.ones(1))

    def step(batch):
        weight.grad = None
        wanted = one_hot(batch[1], 40).float()
        (batch[0] * weight - wanted[:, :1].squeeze()).square().mean().backward()

    return step, (torch.randn(2**18), torch.randint(40, (2**18,)))


def mixed_up_in_numpy(time):
    train = training(mlp(64, 32, 10))

    def mix_up():
        time.fault(6_000)

    def step(batch):
        mix_up()
        train(batch)

    return step, small_batch()


def half_input_half_update(time):
    """Nothing dominates: as much input as metrics, and some arithmetic."""
    train = training(mlp(256, 512, 10))

    def confusion():
        time.work(0.06)

    def step(batch):
        train(batch)
        confusion()

    def next_batch():
        time.wait(0.06)
        return torch.randn(64, 256), labels(64)

    return step, next_batch


def loader_that_keeps_up(time):
    return training(mlp(256, 1024, 256, 10)), [(torch.randn(64, 256), labels(64))] * 40


def growing_lengths(time):
    """A curriculum: sequences grow longer."""
    model, steps = Block(96, 2), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def next_batch():
        steps.append(1)
        return torch.randn(2, min(48 + len(steps) // 8, 128), 96)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step, next_batch


def scheduler_that_plots(time):
    train = training(mlp(64, 32, 10))

    class Plateau:
        def __init__(self):
            self.history = []

        def adjust(self, loss):
            self.history.append(loss)
            time.work(0.02)

    scheduler = Plateau()

    def step(batch):
        train(batch)
        scheduler.adjust(0.5)

    return step, [small_batch()] * 16


# scripts


def hugging_face(time):
    """A Trainer whose callback reports after each 20 steps."""
    model, data = mlp(64, 64, 10), Images(400)

    class Callback:
        def on_log(self, step, logs):
            time.wait(0.5)

    class Trainer:
        def __init__(self):
            self.optimizer, self.callbacks, self.global_step = torch.optim.AdamW(model.parameters()), [Callback()], 0

        def training_step(self, inputs):
            model.train()
            loss = cross_entropy(model(inputs[0]), inputs[1])
            loss.backward()
            return loss.detach()

        def train(self):
            total = torch.tensor(0.0)
            for _epoch in range(50):
                for inputs in DataLoader(data, batch_size=8, shuffle=True):
                    total += self.training_step(inputs)
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.global_step += 1
                    if self.global_step % 20 == 0:
                        for callback in self.callbacks:
                            callback.on_log(self.global_step, {"loss": total.item() / 20})

    Trainer().train()


def loader_made_anew(time):
    """Each epoch makes its DataLoader, which reads an index first."""

    class Files(IterableDataset):
        def read_index(self):
            time.wait(0.5)

        def __iter__(self):
            self.read_index()
            yield from ((torch.ones(64), i % 10) for i in range(80))

    train = training(mlp(64, 64, 10))
    for _epoch in range(60):
        for x, y in DataLoader(Files(), batch_size=16):
            train((x, y))


def saved_after_each_epoch(time):
    model = mlp(64, 64, 10)
    train = training(model)

    def save_state():
        model.state_dict()
        time.wait(0.6)

    for _epoch in range(40):
        for batch in DataLoader(Images(160), batch_size=8):
            train(batch)
        save_state()


def validated_after_each_epoch(time):
    model = mlp(64, 64, 10)
    optimizer, criterion = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), nn.CrossEntropyLoss()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    data, held = DataLoader(Images(240), batch_size=16), DataLoader(Images(320), batch_size=32)

    def score(output, target):
        time.work(0.08)
        return (output.argmax(1) == target).float().mean()

    def evaluate():
        model.eval()
        with torch.inference_mode():
            for image, target in held:
                score(model(image), target)

    for _epoch in range(30):
        model.train()
        for image, target in data:
            loss = criterion(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        evaluate()


def metric_logger(time):
    """torchvision's references: a logger that smooths and prints each step."""
    model = mlp(64, 64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    class MetricLogger:
        def update(self, **values):
            time.work(0.012)

        def log_every(self, batches, n):
            for i, batch in enumerate(batches):
                yield batch
                if i % n == 0:
                    LOG.debug("%d", i)

    for _epoch in range(30):
        logger = MetricLogger()
        for image, target in logger.log_every(DataLoader(Images(160), batch_size=16), 10):
            loss = cross_entropy(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            logger.update(loss=loss.item(), lr=0.1)


def proximal_policy(time):
    """PPO: four updates after each rollout."""
    policy, world = mlp(8, 32, 4), Environment(time, 2e-3)
    optimizer = torch.optim.Adam(policy.parameters())

    def rollout():
        return torch.stack([world.simulate(0)[0] for _ in range(64)])

    for _iteration in range(100):
        states = rollout()
        for _update in range(4):
            loss = -torch.log_softmax(policy(states), 1)[:, 0].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def evolution_of_a_rollout(time):
    """REINFORCE without a loader: each update needs an episode."""
    policy, world = mlp(8, 32, 4), Environment(time, 1e-3)
    optimizer = torch.optim.Adam(policy.parameters())
    for _episode in range(400):
        states = torch.stack([world.simulate(0)[0] for _ in range(30)])
        optimizer.zero_grad()
        torch.log_softmax(policy(states), 1)[:, 0].mean().backward()
        optimizer.step()


def accumulate_and_gather(time):
    """As with accelerate: a context accumulates, and predictions are gathered for a metric."""
    model = mlp(64, 64, 10)
    optimizer = torch.optim.AdamW(model.parameters())

    class Accelerator:
        def __init__(self):
            self.step = 0

        def backward(self, loss):
            (loss / 2).backward()

        def gather_for_metrics(self, values):
            time.wait(0.015)
            return values

    accelerator = Accelerator()
    for _epoch in range(40):
        for x, y in DataLoader(Images(256), batch_size=16):
            output = model(x)
            accelerator.backward(cross_entropy(output, y))
            accelerator.step += 1
            if accelerator.step % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
            accelerator.gather_for_metrics(output.argmax(1))


def cached_transforms(time):
    """The first epoch of 14 batches transforms, later ones take what it has kept."""
    kept, train = {}, training(mlp(64, 64, 10))

    def transform(i):
        if i not in kept:
            time.work(6e-3)
            kept[i] = True

    data = DataLoader(Images(224, transform), batch_size=16, shuffle=True)
    for _epoch in range(40):
        for batch in data:
            train(batch)


# scripts that call watch


def nanogpt(time, watch):
    """nanoGPT's train.py: losses are estimated on 20 batches each time."""
    embed, block, head = nn.Embedding(64, 32), Block(32, 2), nn.Linear(32, 64)
    weights = [*embed.parameters(), *block.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=6e-4, betas=(0.9, 0.95))
    data = torch.randint(64, (2_000,))

    def get_batch(split):
        at = torch.randint(len(data) - 9, (4,))
        return torch.stack([data[i : i + 8] for i in at]), torch.stack([data[i + 1 : i + 9] for i in at])

    get_batch = watch(get_batch)

    def loss_of(x, y):
        return cross_entropy(head(block(embed(x))).flatten(0, 1), y.flatten())

    @torch.no_grad()
    def estimate_loss():
        time.work(0.5)
        return torch.stack([loss_of(*get_batch("val")) for _ in range(2)]).mean()

    x, y = get_batch("train")
    for i in range(300):
        if i % 25 == 0:
            estimate_loss()
        for _micro_step in range(2):
            loss = loss_of(x, y) / 2
            x, y = get_batch("train")
            loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def memory_mapped(time, watch):
    """Batches from a memory map, which the system reads page by page."""
    train = training(mlp(64, 64, 10))

    def get_batch():
        rows = []
        for i in torch.randint(10**6, (16,)).tolist():
            time.wait(2e-3)
            rows.append(torch.full((64,), 1e-6 * i))
        return torch.stack(rows), labels(16)

    get_batch = watch(get_batch)
    for _ in range(300):
        train(get_batch())


def saved_whenever_better(time, watch):
    train, best, chance = training(mlp(64, 32, 10)), 1.0, random.Random(11)

    def keep_best():
        time.wait(0.3)

    for batch in watch([small_batch()] * 400):
        train(batch)
        loss = chance.random()
        if loss < 0.1 * best:
            keep_best()


def teacher_and_student(time, watch):
    """Distillation: the teacher's forward pass is most of a step."""
    teacher, student = mlp(256, 1024, 1024, 10), mlp(256, 64, 10)
    optimizer = torch.optim.Adam(student.parameters())
    for x, _y in watch(DataLoader(TensorDataset(torch.randn(8_000, 256), torch.zeros(8_000)), batch_size=32)):
        with torch.no_grad():
            wanted = teacher(x).softmax(1)
        optimizer.zero_grad()
        cross_entropy(student(x), wanted).backward()
        optimizer.step()


def rows_of_a_table(time, watch):
    """Rows of a data frame are made tensors one by one."""

    class Frame(Dataset):
        def __len__(self):
            return 20_000

        def row(self, i):
            time.work(4e-4)
            return torch.full((64,), 1e-4 * i), i % 10

        def __getitem__(self, i):
            return self.row(i)

    train = training(mlp(64, 64, 10), torch.optim.AdamW)
    for batch in watch(DataLoader(Frame(), batch_size=64, shuffle=True)):
        train(batch)


# two ranks


def gradients_shared(time, rank, model, batches, before=lambda: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch):
        before()
        optimizer.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        for weight in model.parameters():
            torch.distributed.all_reduce(weight.grad)
        optimizer.step()

    return step, batches


def one_rank_logs(time, rank):
    def log_to_server():
        if rank == 1:
            time.wait(0.06)

    return gradients_shared(time, rank, mlp(64, 32, 10), small_batch(), log_to_server)


def one_rank_loads_slowly(time, rank):
    def next_batch():
        if rank == 1:
            time.wait(0.06)
        return small_batch()

    return gradients_shared(time, rank, mlp(64, 32, 10), next_batch)


def one_rank_has_more_rows(time, rank):
    rows = 256 if rank == 1 else 16
    return gradients_shared(time, rank, mlp(256, 128, 10), (torch.randn(rows, 256), labels(rows)))


def many_weights_between_ranks(time, rank):
    return gradients_shared(time, rank, mlp(512, 1024, 10), (torch.randn(2, 512), labels(2)))


STEPS = {
    "accuracy in Python": ("other host work", "count_correct", accuracy_in_python),
    "ema of the state": ("launch overhead", "", ema_of_the_state),
    "gan": ("launch overhead", "", gan),
    "gan with samples": ("occasional work", "save_samples", gan_with_samples),
    "decoder cell by cell": ("launch overhead", "", decoder_cell_by_cell),
    "language model lstm": ("arithmetic", "", language_model_lstm),
    "accumulated with adam": ("occasional work", "step", accumulated_with_adam),
    "clipped with item": ("launch overhead", "", clipped_with_item),
    "log to a file": ("other host work", "write_line", log_to_a_file),
    "progress bar": ("other host work", "set_postfix", progress_bar),
    "cropped in the main process": ("input", "random_crop", cropped_in_the_main_process),
    "padded by collate": ("input", "pad", padded_by_collate),
    "too few workers": ("input", "", too_few_workers),
    "collected each step": ("garbage collection", "", collected_each_step),
    "collected by the dataset": ("garbage collection", "", collected_by_the_dataset),
    "decoded from memory": ("input", "decode", decoded_from_memory),
    "opened for each sample": ("input", "open_file", opened_for_each_sample),
    "shuffle buffer": ("input", "fill_buffer", shuffle_buffer),
    "long first epoch": ("first epoch", "read_once", long_first_epoch),
    "long shuffled first epoch": ("first epoch", "load", long_shuffled_first_epoch),
    "short first epoch": ("first epoch", "resize", short_first_epoch),
    "ragged batches": ("compiling", "compile_for", ragged_batches),
    "hard negatives": ("unknown", "sort", hard_negatives),
    "crowded attention": ("too many threads", "", crowded_attention),
    "policy gradient": ("other host work", "simulate", policy_gradient),
    "replayed experience": ("input", "simulate", replayed_experience),
    "evaluated with a loader": ("occasional work", "show", evaluated_with_a_loader),
    "evaluation beside a log": ("occasional work", "run_validation", evaluation_beside_a_log),
    "histograms each tenth": ("occasional work", "log_histograms", histograms_each_tenth),
    "tokens in the step": ("other host work", "tokenize", tokens_in_the_step),
    "recommender": ("memory bandwidth", "", recommender),
    "adam on wide layers": ("memory bandwidth", "", adam_on_wide_layers),
    "gpt": ("arithmetic", "", gpt),
    "recomputed activations": ("arithmetic", "", recomputed_activations),
    "residual network": ("arithmetic", "", residual_network),
    "scaled by many passes": ("memory bandwidth", "", scaled_by_many_passes),
    "one hot images": ("page faults", "", one_hot_images),
    "mixed up in numpy": ("page faults", "", mixed_up_in_numpy),
    "half input half update": (None, "", half_input_half_update),
    "loader that keeps up": ("arithmetic", "", loader_that_keeps_up),
    "growing lengths": ("arithmetic", "", growing_lengths),
    "scheduler that plots": ("other host work", "adjust", scheduler_that_plots),
}
SCRIPTS = {
    "hugging face": ("occasional work", "on_log", hugging_face),
    "loader made anew": ("input", "read_index", loader_made_anew),
    "saved after each epoch": ("occasional work", "save_state", saved_after_each_epoch),
    "validated after each epoch": ("occasional work", "score", validated_after_each_epoch),
    "metric logger": ("other host work", "update", metric_logger),
    "proximal policy": ("occasional work", "simulate", proximal_policy),
    "evolution of a rollout": ("other host work", "simulate", evolution_of_a_rollout),
    "accumulate and gather": ("other host work", "gather_for_metrics", accumulate_and_gather),
    "cached transforms": ("first epoch", "transform", cached_transforms),
}
WATCHED = {
    "nanogpt": ("occasional work", "estimate_loss", nanogpt),
    "memory mapped": ("input", "get_batch", memory_mapped),
    "saved whenever better": ("occasional work", "keep_best", saved_whenever_better),
    "teacher and student": ("arithmetic", "", teacher_and_student),
    "rows of a table": ("input", "row", rows_of_a_table),
}
RANKED = {
    "one rank logs": (("other ranks", ""), ("other host work", "log_to_server"), one_rank_logs),
    "one rank loads slowly": (("other ranks", ""), ("input", "next_batch"), one_rank_loads_slowly),
    "one rank has more rows": (("other ranks", ""), ("arithmetic", ""), one_rank_has_more_rows),
    "many weights between ranks": (("communication", ""), ("communication", ""), many_weights_between_ranks),
}
# What the first look found amiss: what was said of a loop; each is named rightly now, or in doubt.
FIRST_LOOK = {
    "long first epoch": "input",
    "long shuffled first epoch": "input",
    "cached transforms": "input",
    "collected by the dataset": "nothing dominates, in doubt",
    "one rank loads slowly": "communication, in doubt",
}
PLANTED_WRONGLY = ("gan", "many weights between ranks")  # they had another limit on the virtual clock, and were mended
