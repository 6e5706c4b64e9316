"""Training loops that each have one limit planted, by five times or more, and six in which nothing dominates.

Each is built for a clock. On a virtual one, which only operators and planned work and waits move, what is found depends
on no other program. benchmarks/bottlenecks.py judges the same loops on the real one.
"""

import contextlib
import dataclasses
import functools
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, embedding, scaled_dot_product_attention
from torch.utils._pytree import tree_leaves

from labkit.measure import contention, profiling
from labkit.measure.ceilings import Ceilings as MeasuredCeilings
from labkit.measure.machine import threads
from labkit.measure.probe import Ceiling
from steptime import (
    Ceilings,
    bottleneck,
    budget,
    gains,
    machine,
    operator_timing,
    own_loop,
    pace,
    stopwatch,
    watched_steps,
)
from steptime.stack_samples import StackSamples
from steptime.step import StepProfile
from steptime.torch_calls import EachOperator

LAUNCH_S, FLOP_PER_S, BYTES_PER_S, LINK_BYTES_PER_S = 5e-6, 1e9, 1e9, 2e7
WORK_S = 0.02  # of the host, in virtual time
FAULT_S, NEW_BYTES = 2.5e-5, 2**25  # of a page; tensors from this size on take new memory, as with glibc
_COPY, _MATMUL = (
    Ceiling(rate, rate, rate, unit, at="planted", n=1, runs=1)
    for rate, unit in ((BYTES_PER_S, "B/s"), (FLOP_PER_S, "FLOP/s"))
)
CEILINGS = Ceilings("planted", {"float32": FLOP_PER_S}, BYTES_PER_S, 1)
MEASURED = MeasuredCeilings("planted", 1, _COPY, {"float32": _MATMUL}, (), {}, {}, {}, "")  # as labkit has them


class VirtualTime:
    """A clock that each operator moves by its launch, and by its FLOP or its bytes, whichever take longer.

    Work and waits of the host move it too, and are seen by a sampler of the thread that made the clock.
    """

    def __init__(self):
        self.now_s, self.thread = 0.0, threading.get_ident()
        self.faults, self.samples = 0, None

    def clock(self):
        return self.now_s

    def work(self, seconds, *_):
        """Let seconds pass, 10 times a tenth, with a sample of the stack after each."""
        here = threading.get_ident() == self.thread
        frame = sys._getframe(1) if here else sys._current_frames()[self.thread]
        for _tenth in range(10):
            self.now_s += seconds / 10
            if self.samples is not None:
                self.samples.take(frame, seconds / 10)

    wait = work

    def fault(self, n):
        """The system provides so many pages of new memory."""
        self.faults += n
        self.now_s += n * FAULT_S

    @contextlib.contextmanager
    def sampling(self, samples):
        """Within the block, `samples` are taken: in place of StackSamples.taken."""
        self.samples = samples
        yield
        self.samples = None

    def operator(self, func, args, kwargs, depth=2):
        begin_s, out = self.now_s, func(*args, **kwargs)
        call = operator_timing.described(func, args, kwargs, out, 0.0)
        slower = max(torch.get_num_threads() / gains.cores(), 1.0)  # more threads than cores wait for each other
        makes = bool(func._schema.returns) and func._schema.returns[0].alias_info is None
        if makes and call.n_bytes and isinstance(out, torch.Tensor) and out.nbytes >= NEW_BYTES:
            self.fault(out.nbytes // 4096)
        unexplained_s = 0.2 * (call.name in UNEXPLAINED)
        bytes_per_s = LINK_BYTES_PER_S if call.group == "communication" else BYTES_PER_S
        self.now_s += LAUNCH_S + slower * max(call.flop / FLOP_PER_S, call.n_bytes / bytes_per_s) + unexplained_s
        if self.samples is not None and threading.get_ident() == self.thread:
            self.samples.take(sys._getframe(depth), self.now_s - begin_s)
        return out


class SharedTime(VirtualTime):
    """The same for one of several ranks: a collective begins when the last of them has come to it."""

    def __init__(self):
        super().__init__()
        self.communicated_s = 0.0

    def operator(self, func, args, kwargs, depth=2):
        begin_s = self.now_s
        if shared := func.namespace == "c10d":
            latest = torch.tensor(self.now_s, dtype=torch.float64)
            torch.distributed.all_reduce(latest, torch.distributed.ReduceOp.MAX)
            self.now_s = latest.item()
            if self.samples is not None:
                self.samples.take(sys._getframe(2), self.now_s - begin_s)
            self.now_s += sum(x.nbytes for x in tree_leaves(args) if isinstance(x, torch.Tensor)) / LINK_BYTES_PER_S
        out = super().operator(func, args, kwargs, depth=3)
        self.communicated_s += shared * (self.now_s - begin_s)
        return out


def run_on(time, put=setattr):
    """Let everything be measured on a virtual clock, seldom: readings of one thing are all alike."""
    for module, name, few in (
        (budget, "_ROUNDS", 2), (bottleneck, "_TINY_STEPS", 3), (bottleneck, "_READING_S", 0.0),
        (budget, "_LOOK_S", 0.0), (pace, "_WARM_UP", 1), (own_loop, "_STEPS", 150),
    ):  # fmt: skip
        put(module, name, few)
    put(machine, "_ran_and_waited", lambda: (0, 0))
    for module in (budget, stopwatch, own_loop, watched_steps):
        put(module, "perf_counter", time.clock)
    for module in (operator_timing, pace, stopwatch):
        put(module, "faults_and_switches", lambda: (time.faults, 0))
    put(stopwatch, "_CORE_WAITS", "none")
    put(bottleneck, "compiled_graphs", lambda: 0)  # loops pretend to
    put(StackSamples, "taken", lambda samples: time.sampling(samples))


class RealTime:
    """The machine's own clock, on which work takes the time that it takes."""

    clock, wait = staticmethod(time.perf_counter), staticmethod(time.sleep)

    def work(self, seconds, *_):
        """Nothing: the seconds are planned for virtual time."""


UNEXPLAINED = ("sort", "linalg_qr")  # operators whose virtual time neither their bytes nor their FLOP explain


def training(model, optimizer=torch.optim.SGD, **options):
    used = optimizer(model.parameters(), lr=1e-4, **options)

    def step(batch):
        used.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        used.step()

    return step


def labels(n):
    return torch.arange(n) % 10


def small_step():
    return training(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))


def small_batch():
    return torch.randn(16, 64), labels(16)


# input


def slow_source(time):
    batch = small_batch()

    def fetch():
        time.wait(0.05)
        return batch

    return small_step(), fetch


class Decoded(torch.utils.data.Dataset):
    """Images that take a moment each."""

    def __init__(self, time, each_s=2e-3):
        self.time, self.each_s = time, each_s

    def __getitem__(self, i):
        self.time.wait(self.each_s)
        return torch.full((64,), 0.1 * i), i % 10

    def __len__(self):
        return 64


def slow_decoding(time):
    return small_step(), torch.utils.data.DataLoader(Decoded(time), batch_size=16)


def slow_collate(time):
    def collate(rows):
        time.wait(0.03)
        return torch.utils.data.default_collate(rows)

    return small_step(), torch.utils.data.DataLoader(Decoded(time, 0.0), batch_size=16, collate_fn=collate)


class Waited(torch.utils.data.DataLoader):
    """A loader that takes 80 ms for a batch of its worker, which has a process and a clock of its own."""

    time = RealTime()

    def __iter__(self):
        for batch in super().__iter__():
            self.time.work(0.08)
            yield batch


def slow_workers(time):
    loader = Waited(Decoded(RealTime(), 5e-3), batch_size=16, num_workers=1)
    loader.time = time
    return small_step(), loader


class Lines:
    """Batches that are parsed from lines of text, again for each pass."""

    def __init__(self, time):
        self.time = time
        self.lines = [json.dumps([0.01 * i] * 6_400) for i in range(16)]

    def __iter__(self):
        for _ in range(4):
            self.time.work(WORK_S)
            yield torch.tensor([json.loads(line)[:64] for line in self.lines]), labels(16)


def generator_of_text(time):
    return small_step(), Lines(time)


def augmented_images(time):
    images = np.random.default_rng(0).random((16, 3, 64, 64), dtype=np.float32)

    def fetch():
        time.work(WORK_S)
        turned = [np.ascontiguousarray(np.sort(np.rot90(image, axes=(1, 2)), axis=0)) for image in images]
        return torch.from_numpy(np.stack(turned)).flatten(1)[:, :64], labels(16)

    return small_step(), fetch


# launch overhead


def many_small_layers(time):
    layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(20)]
    return training(nn.Sequential(*layers, nn.Linear(8, 10))), (torch.randn(4, 8), labels(4))


def one_sample_at_a_time(time):
    model = nn.Linear(16, 10)

    def step(batch):
        for image, label in zip(*batch, strict=True):
            cross_entropy(model(image[None]), label[None]).backward()

    return step, (torch.randn(16, 16), labels(16))


def one_parameter_at_a_time(time):
    layers = [nn.Linear(8, 8) for _ in range(20)]
    model = nn.Sequential(*layers, nn.Linear(8, 10))
    return training(model, torch.optim.Adam, foreach=False), (torch.randn(4, 8), labels(4))


def clipped_by_hand(time):
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)), nn.Linear(8, 10))

    def step(batch):
        model.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        norm = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().sqrt()
        with torch.no_grad():
            for p in model.parameters():
                p -= 1e-4 * p.grad / norm.clamp(min=1.0)

    return step, (torch.randn(4, 8), labels(4))


def weights_averaged_by_hand(time):
    model, mean = (nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)), nn.Linear(8, 10)) for _ in range(2))
    train = training(model)

    def step(batch):
        train(batch)
        with torch.no_grad():
            for weight, average in zip(model.parameters(), mean.parameters(), strict=True):
                average.mul_(0.99).add_(weight, alpha=0.01)

    return step, (torch.randn(4, 8), labels(4))


def cell_by_cell(time):
    cell, head = nn.GRUCell(8, 8), nn.Linear(8, 10)

    def step(batch):
        state = torch.zeros(4, 8)
        for x in batch[0].unbind(1):
            state = cell(x, state)
        cross_entropy(head(state), batch[1]).backward()

    return step, (torch.randn(4, 16, 8), labels(4))


# memory bandwidth


def element_by_element(time):
    bias = torch.zeros(1, requires_grad=True)

    def step(batch):
        out = torch.empty_like(batch[0])
        with torch.no_grad():
            for _ in range(8):
                torch.add(batch[0], 0.5, out=out)
        (out[:1] * bias).sum().backward()

    return step, (torch.randn(512, 4096),)


def large_weights_one_row(time):
    model = nn.Linear(2048, 1024)
    return training(model, torch.optim.Adam), (torch.randn(1, 2048), labels(1))


def large_table(time):
    table = torch.randn(100_000, 32, requires_grad=True)
    used = torch.optim.SGD([table], lr=0.1)

    def step(batch):
        used.zero_grad()
        embedding(batch[0], table).sum().backward()
        used.step()

    return step, (torch.arange(64) * 1_000,)


def updates(time, **options):
    """An optimizer's step on eight times as many bytes as fit in most caches; the gradients stay."""
    weights = [nn.Parameter(torch.ones(2**19)) for _ in range(4)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adam(weights, **options)

    def step(batch):
        batch[0].add(1)
        optimizer.step()

    return step, (torch.ones(4),)


def plain_adam(time):
    return updates(time, foreach=False)


def foreach_adam(time):
    return updates(time, foreach=True)


def fused_adam(time):
    return updates(time, fused=True)


def on_kept_memory(work):
    """A step that calls work(x, out) on 16 MiB each."""
    x, out = torch.ones(2**22), torch.empty(2**22)

    def step(batch):
        batch[0].add(1)
        work(x, out)

    return step, (torch.ones(4),)


def copies(time):
    return on_kept_memory(lambda x, out: out.copy_(x))


def into_kept_memory(time):
    return on_kept_memory(lambda x, out: torch.add(x, x, out=out))


def zeros(time):
    return on_kept_memory(lambda x, out: out.zero_())


def strided_addition(time):
    return on_kept_memory(lambda x, out: x[::4].add_(1))


def gradient_of_a_table(time):
    table = nn.Embedding(2**16, 64)

    def step(batch):
        table.zero_grad()
        table(batch[0]).sum().backward()

    return step, (torch.arange(8),)


# arithmetic


def large_matmuls(time):
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return training(model), (torch.randn(1024, 512), labels(1024))


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


def validated_now_and_then(time):
    """Every fourth step tests the model on many rows."""
    model, calls = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 10)), []
    held, train = torch.randn(4096, 64), training(model)

    def step(batch):
        calls.append(1)
        train(batch)
        if len(calls) % 4 == 0:
            with torch.no_grad():
                model(held)

    return step, small_batch()


# unknown


def sorting(time):
    scale = torch.ones(1, requires_grad=True)

    def step(batch):
        (batch[0] * scale).sort().values[:, 0].sum().backward()

    return step, (torch.randn(256, 2048),)


def factored(time):
    weight = torch.randn(192, 192)

    def step(batch):
        q = torch.linalg.qr(weight)[0]
        (batch[0] @ q).sum()

    return step, (torch.randn(8, 192),)


# other host work


def with_host_work(work):
    train = small_step()

    def step(batch):
        train(batch)
        work(batch)

    return step, small_batch()


def tokenizer(time):
    text, known = "the quick brown fox jumps over the lazy dog " * 400, {}

    def tokenize(batch):
        time.work(WORK_S)
        return [known.setdefault(word.lower(), len(known)) for word in text.split() for _ in range(3)]

    return with_host_work(tokenize)


def sleeping(time):
    def pause(batch):
        time.wait(0.02)

    return with_host_work(pause)


def locked_by_another(time):
    lock = threading.Lock()

    def hold(held):
        with lock:
            held.set()
            time.wait(0.02)

    def wait_for_the_lock(batch):
        other = threading.Thread(target=hold, args=[held := threading.Event()])
        other.start()
        held.wait()
        with lock:
            pass
        other.join()

    return with_host_work(wait_for_the_lock)


def checkpoint(time):
    weights = torch.randn(1_000_000)

    def save(batch):
        with tempfile.TemporaryFile() as file:
            torch.save(weights, file)
            file.flush()
            os.fsync(file.fileno())
            time.work(WORK_S)

    return with_host_work(save)


def text_log(time):
    weights = torch.randn(10_000)

    def log(batch):
        with tempfile.TemporaryFile("w") as file:
            for number in weights.tolist():
                file.write(f"{number:.5f}\n")
            time.work(WORK_S)

    return with_host_work(log)


def json_metrics(time):
    metrics = {f"layer {i}": [0.1 * j for j in range(100)] for i in range(200)} | {"a tensor": small_batch()[1]}

    def report(batch):
        json.dumps(metrics, default=functools.partial(time.work, WORK_S))

    return with_host_work(report)


def collecting_garbage(time):
    class Slow:
        """Part of a cycle, and slow to be collected."""

        def __init__(self):
            self.itself = self

        def __del__(self):
            time.work(WORK_S)

    kept = [[i] for i in range(100_000)]

    def collect(batch):
        Slow()
        gc.collect()
        return kept

    return with_host_work(collect)


def hook_in_backward(time):
    model = nn.Linear(64, 10)

    def slow_hook(gradient):
        sum(i * i for i in range(20_000))
        time.work(WORK_S)

    model.weight.register_hook(slow_hook)
    return training(model), small_batch()


def shuffled_in_python(time):
    train = small_step()

    def shuffled(n):
        order = [*range(1000 * n)]
        random.shuffle(order)
        time.work(WORK_S)
        return [i % n for i in order[:n]]

    def step(batch):
        train((batch[0][shuffled(len(batch[0]))], batch[1]))

    return step, small_batch()


def numpy_and_back(time):
    rows = torch.randn(64, 4096)

    def sort_in_numpy(batch):
        time.work(WORK_S)
        torch.from_numpy(np.sort(rows.numpy(), axis=0)[:, ::-1].copy())

    return with_host_work(sort_in_numpy)


def checkpoint_now_and_then(time):
    calls = []

    def save_every_fifth(batch):
        calls.append(1)
        if len(calls) % 5 == 0:
            time.wait(0.1)

    return with_host_work(save_every_fifth)


def growing_history(time):
    history = [0.5 * i for i in range(200_000)]

    def remember(batch):
        history.append(1.0)
        time.work(WORK_S)
        statistics.fmean(history)

    return with_host_work(remember)


# nothing dominates


def often(time, work, seconds):
    """A function that calls `work` as often as takes `seconds` on this clock."""
    each_s = []
    with threads(1):  # on a busy machine, several wait for each other
        for _ in range(30):
            start = time.clock()
            work()
            each_s.append(time.clock() - start)
    n = max(round(seconds / min(each_s)), 1)  # other programs only lengthen it

    def repeated():
        for _ in range(n):
            work()

    return repeated


def mixture(time, *kinds, part_s=0.02):
    """A loop that spends the same time on each kind of work."""
    a, big = torch.randn(128, 128), torch.randn(64, 1024)
    product, out, one = torch.empty_like(a), torch.empty_like(big), torch.ones(1)
    works = {
        "arithmetic": lambda: torch.mm(a, a, out=product),
        "memory bandwidth": lambda: torch.add(big, 0.5, out=out),
        "launch overhead": lambda: one * 2,
    }
    used = [often(time, works[kind], part_s) for kind in kinds if kind in works]
    used += [functools.partial(time.wait, part_s)] * kinds.count("other host work")

    def step(batch):
        for work in used:
            work()
        return batch[0] + 1

    def fetch():
        time.wait(part_s)
        return (one,)

    return step, fetch if "input" in kinds else (one,)


BALANCED = {
    "input, memory, products": ("input", "memory bandwidth", "arithmetic"),
    "host, memory, products": ("other host work", "memory bandwidth", "arithmetic"),
    "input, host, products": ("input", "other host work", "arithmetic"),
    "input, host, memory": ("input", "other host work", "memory bandwidth"),
    "four kinds": ("input", "other host work", "memory bandwidth", "arithmetic"),
    "launches too": ("input", "other host work", "memory bandwidth", "arithmetic", "launch overhead"),
}

# name of the limit -> loops
PLANTED = {
    "input": (slow_source, slow_decoding, slow_collate),
    "launch overhead": (
        many_small_layers, one_sample_at_a_time, one_parameter_at_a_time, clipped_by_hand, cell_by_cell,
        weights_averaged_by_hand,
    ),
    "memory bandwidth": (
        element_by_element, large_weights_one_row, large_table, plain_adam, foreach_adam, fused_adam, copies,
        into_kept_memory, zeros, strided_addition, gradient_of_a_table,
    ),
    "arithmetic": (large_matmuls, convolutions, attention, lstm),
    "unknown": (sorting, factored),
    "other host work": (sleeping,),
    "occasional work": (validated_now_and_then, checkpoint_now_and_then),
}  # fmt: skip
# the same for loops whose time is Python's or another process's; of host work, the function that it is in
HOST_WORK = {
    "input": {slow_workers: "", generator_of_text: "", augmented_images: ""},
    "other host work": {
        tokenizer: "tokenize",
        locked_by_another: "wait_for_the_lock",
        checkpoint: "save",
        text_log: "log",
        json_metrics: "report",
        hook_in_backward: "slow_hook",
        shuffled_in_python: "shuffled",
        numpy_and_back: "sort_in_numpy",
        growing_history: "remember",
        sleeping: "pause",
    },
    "occasional work": {checkpoint_now_and_then: "save_every_fifth"},
    "garbage collection": {collecting_garbage: "collect"},
}


def exchange_in_virtual_time(rank, meeting, path, planted):
    """The same on a virtual clock for each rank: rank 1's goes twice as fast, so that they have to agree.

    A profile knows the real clock alone: its trace is real, and the share of communication in it planned.
    """
    time = VirtualTime()
    budget.perf_counter = stopwatch.perf_counter = lambda: (1 + rank) * time.now_s
    stopwatch._CORE_WAITS = "none"
    StackSamples.taken = lambda samples: time.sampling(samples)  # type: ignore[assignment]
    contention.read = lambda: contention.Reading(0.0, 2, {}, 0.0, 0.0)
    profile_step = bottleneck.profile_step

    def planned(*args, **kwargs):
        found = profile_step(*args, **kwargs)
        assert found.parts["communication"] > 0
        return dataclasses.replace(found, parts={"communication": 0.9 * found.mean_s})

    bottleneck.profile_step = planned
    with EachOperator(time.operator):
        exchange(rank, meeting, path, planted, mib=1, time=time)


def rank_in_virtual_time(rank, meeting, path, make):
    """One of two ranks of the loop make(time, rank), whose clocks meet in each collective."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    time = SharedTime()
    run_on(time)

    def planned(step, steps, warmup, **_):
        step()
        start_s, communicated_s = time.now_s, time.communicated_s
        for _turn in range(steps):
            step()
        return bottleneck_profile((time.communicated_s - communicated_s) / (time.now_s - start_s))

    bottleneck.profile_step = planned  # type: ignore[assignment]
    with EachOperator(time.operator):
        found = bottleneck.find_bottleneck(*make(time, rank), budget_s=4, ceilings=CEILINGS, device="cpu")
    dist.barrier()
    dist.destroy_process_group()
    told = {"dominant": found.dominant, "line": found.line, "doubt": found.doubt, "text": str(found)}
    Path(f"{path}-{rank}").write_text(json.dumps(told))


def bottleneck_profile(share):
    """A profile of a step with this share of exposed communication."""
    parts = {"communication": share, "other": 1 - share}
    return StepProfile("planted", 1, (1.0,), parts, (), (), {}, Path())


def exchange(rank, meeting, path, planted, mib=64, time=None):
    """One of two ranks whose step is almost nothing but an exchange; each writes what limits it below `path`.

    They meet in a file `meeting`: a port that is free now may be taken when they start.
    """
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    step, batch = {"all_reduce": summed, "DDP": data_parallel}[planted](dist, mib, time)
    found = profiling.find_bottleneck(step, batch, budget_s=2, ceilings=MEASURED)
    dist.barrier()
    dist.destroy_process_group()
    told = {"dominant": found.dominant, "shares": found.shares, "busy": found.busy, "text": str(found)}
    Path(f"{path}-{rank}").write_text(json.dumps(told))


def summed(dist, mib, time):
    """An exchange of so many MiB."""
    shared, weight = torch.zeros(mib * 2**18), torch.zeros(16, requires_grad=True)

    def step(batch):
        (batch[0] * weight).sum().backward()
        dist.all_reduce(shared)

    return step, (torch.ones(16),)


def data_parallel(dist, mib, time):
    """DistributedDataParallel of a quarter as many weights, which little is calculated with.

    torch shows nobody the operators of its exchange: on a virtual clock it takes 50 ms.
    """
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    model = nn.parallel.DistributedDataParallel(nn.Embedding(mib * 2**10, 64))

    def exchanged(state, bucket):
        time.work(0.05)
        return allreduce_hook(None, bucket)

    if time is not None:
        model.register_comm_hook(None, exchanged)

    def step(batch):
        model(batch[0]).sum().backward()

    return step, (torch.arange(8),)
