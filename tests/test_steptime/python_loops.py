"""A fifth set of the form of unseen_loops: Python that lets no other thread run for a few milliseconds at a time.

Each was written down, with its class and its function, before it was judged for the first time, which was on the real
clock: benchmarks/bottlenecks.py. On a virtual clock, the work takes WORK_S or a multiple of it.
"""

import copy
import heapq
import itertools
import pickle
import random
import re
import statistics
from collections import Counter
from fractions import Fraction

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from tests.test_steptime.planted_loops import WORK_S, labels, small_batch, training, with_host_work
from tests.test_steptime.unseen_loops import mlp


def edit_distances(time):
    wanted, heard = "the cat sat on the mat and purred", "a cat sits on a mat where it purrs"

    def edit_distance(a, b):
        row = [*range(len(b) + 1)]
        for i, x in enumerate(a, 1):
            above, row[0] = row[0], i
            for j, y in enumerate(b, 1):
                above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
        time.work(WORK_S / 10)
        return row[-1]

    def word_errors(batch):
        return sum(edit_distance(wanted[i:], heard) for i in range(10))

    return with_host_work(word_errors)


def cleaned_by_expressions(time):
    page, tag, spaces = "<p class=x>some   text &amp; more</p>\n" * 2_400, re.compile(r"<[^>]*>"), re.compile(r"\s+")

    def clean_page():
        time.work(WORK_S)
        return len(spaces.sub(" ", tag.sub("", page)).replace("&amp;", "&"))

    def next_batch():
        clean_page()
        return small_batch()

    return training(mlp(64, 32, 10)), next_batch


def checked_before_each_layer(time):
    model, ranges = mlp(64, 32, 10), []

    def note_range(module, inputs):
        values = inputs[0].tolist()
        ranges.append(max(max(abs(x) for x in row) for row in values * 20))
        time.work(WORK_S)

    model[0].register_forward_pre_hook(note_range)
    return training(model), small_batch()


def rounded_in_backward(time):
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, gradient):
            return straight_through(gradient)

    def straight_through(gradient):
        clipped = [[min(max(x, -1.0), 1.0) for x in row] for row in gradient.tolist() for _ in range(40)]
        time.work(WORK_S)
        return gradient * (len(clipped) > 0)

    model = mlp(64, 32)
    head, optimizer = nn.Linear(32, 10), torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch):
        optimizer.zero_grad()
        cross_entropy(head(Rounded.apply(model(batch[0]))), batch[1]).backward()
        optimizer.step()

    return step, small_batch()


def rate_from_all_losses(time):
    model = mlp(64, 32, 10)
    optimizer = torch.optim.AdamW(model.parameters())
    past = [1.0 + 1e-3 * (i % 7) for i in range(18_000)]

    def plateau(_step):
        time.work(WORK_S)
        return 0.5 if statistics.median(past) > statistics.median(past[:12_000]) else 1.0

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, plateau)

    def step(batch):
        optimizer.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()
        scheduler.step()

    return step, small_batch()


class Documents(Dataset):
    """Texts whose letters are joined to tokens in Python."""

    def __init__(self, time):
        self.time, self.text = time, "low lower lowest new newer newest " * 3

    def merge_pairs(self, tokens):
        for _merge in range(4):
            (a, b), _count = Counter(itertools.pairwise(tokens)).most_common(1)[0]
            merged = []
            for token in tokens:
                if merged and (merged[-1], token) == (a, b):
                    merged[-1] = a + b
                else:
                    merged.append(token)
            tokens = merged
        self.time.work(WORK_S / 8)
        return tokens

    def __getitem__(self, i):
        return torch.full((64,), 0.01 * len(self.merge_pairs([*self.text]))), i % 10

    def __len__(self):
        return 4_000


def joined_to_tokens(time):
    return training(mlp(64, 32, 10)), DataLoader(Documents(time), batch_size=16)


def settings_are_copied(time):
    settings = {f"layer {i}": {"sizes": [i, i + 1], "names": [f"w{i}", f"b{i}"]} for i in range(500)}

    def snapshot(batch):
        time.work(WORK_S)
        return copy.deepcopy(settings)

    return with_host_work(snapshot)


def replay_by_priority(time):
    chance, memory = random.Random(4), []

    def remember_all(batch):
        memory.clear()
        for i in range(4_000):
            heapq.heappush(memory, (chance.random(), i))
        time.work(WORK_S)
        return heapq.nsmallest(16, memory)

    return with_host_work(remember_all)


def table_of_metrics(time):
    metrics = {f"blocks.{i}.attention.weight": 1e-3 * i for i in range(1_500)}

    def format_table(batch):
        time.work(WORK_S)
        return "\n".join(f"{name:<40}{value:>12.5f}{value**2:>12.3e}" for name, value in metrics.items())

    return with_host_work(format_table)


def state_is_pickled(time):
    state = [{"id": i, "score": 0.5 * i, "tags": (str(i), i % 7)} for i in range(4_000)]

    def pack_state(batch):
        time.work(WORK_S)
        return len(pickle.dumps(state))

    return with_host_work(pack_state)


def jittered_points(time):
    chance, points = random.Random(2), [(0.1 * i, 0.2 * i, 0.3 * i) for i in range(1_024)]

    def jitter():
        time.work(WORK_S)
        return [[x + chance.gauss(0, 0.01) for x in point] for point in points]

    def next_batch():
        return torch.tensor(jitter()).flatten()[:1_024].view(16, 64), labels(16)

    return training(mlp(64, 32, 10)), next_batch


def exact_mean_of_weights(time):
    def exact_mean(batch):
        time.work(WORK_S)
        return sum((Fraction(x) for x in batch[0][0].tolist() * 10), Fraction(0))

    return with_host_work(exact_mean)


def a_dear_and_a_cheap_count(time):
    """One after another, without an operator between them: the first takes about four times as long."""
    words = [f"word {i % 900}" for i in range(30_000)]

    def count_words():
        counts = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        time.work(WORK_S)
        return counts

    def count_letters():
        time.work(WORK_S / 4)
        return sum(len(word) for word in words[:10_000])

    def summarise(batch):
        return count_words(), count_letters()

    return with_host_work(summarise)


def neighbours_each_fourth(time):
    train, steps, points = (
        training(mlp(64, 32, 10)),
        itertools.count(1),
        [(i * 37 % 101, i * 53 % 97) for i in range(90)],
    )

    def find_neighbours():
        time.work(8 * WORK_S)
        return [min(((x - u) ** 2 + (y - v) ** 2, u) for u, v in points if (u, v) != (x, y)) for x, y in points * 2]

    def step(batch):
        train(batch)
        if next(steps) % 4 == 0:
            find_neighbours()

    return step, small_batch()


def grouped_by_length(time):
    lengths = [(i * 7919) % 511 for i in range(6_000)]

    class ByLength:
        def group(self):
            time.work(WORK_S)
            return sorted(range(len(lengths)), key=lambda i: (lengths[i] // 16, -i))

        def __iter__(self):
            for first in range(200):
                yield self.group()[first : first + 16]

        def __len__(self):
            return 200

    rows = [(torch.ones(64), i % 10) for i in range(6_000)]
    return training(mlp(64, 32, 10)), DataLoader(rows, batch_sampler=ByLength())


STEPS = {
    "edit distances": ("other host work", "edit_distance", edit_distances),
    "cleaned by expressions": ("input", "clean_page", cleaned_by_expressions),
    "checked before each layer": ("other host work", "note_range", checked_before_each_layer),
    "rounded in backward": ("other host work", "straight_through", rounded_in_backward),
    "rate from all losses": ("other host work", "plateau", rate_from_all_losses),
    "joined to tokens": ("input", "merge_pairs", joined_to_tokens),
    "settings are copied": ("other host work", "snapshot", settings_are_copied),
    "replay by priority": ("other host work", "remember_all", replay_by_priority),
    "table of metrics": ("other host work", "format_table", table_of_metrics),
    "state is pickled": ("other host work", "pack_state", state_is_pickled),
    "jittered points": ("input", "jitter", jittered_points),
    "exact mean of weights": ("other host work", "exact_mean", exact_mean_of_weights),
    "a dear and a cheap count": ("other host work", "count_words", a_dear_and_a_cheap_count),
    "neighbours each fourth": ("occasional work", "find_neighbours", neighbours_each_fourth),
    "grouped by length": ("input", "group", grouped_by_length),
}
SCRIPTS, WATCHED, RANKED = {}, {}, {}
# What was named at the first look, on a busy machine: each answer said so. A thread then waited 5 ms to take a sample.
FIRST_LOOK = {
    "cleaned by expressions": "small_batch, in doubt",
    "checked before each layer": "the line of backward(), in doubt",
    "rate from all losses": "the line of optimizer.step(), in doubt",
    "joined to tokens": "__getitem__, in doubt",
    "settings are copied": "the line of backward(), in doubt",
    "replay by priority": "the line of backward(), in doubt",
    "table of metrics": "the line of backward(), in doubt",
    "state is pickled": "the line of backward(), in doubt",
    "jittered points": "next_batch, in doubt",
    "exact mean of weights": "the line of backward(), in doubt",
    "a dear and a cheap count": "the line of backward(), in doubt",
    "neighbours each fourth": "other host work, in doubt",
    "grouped by length": "first epoch, in doubt",
}
PLANTED_WRONGLY = ()
