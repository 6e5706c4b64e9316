"""Loops of two ranks, which wait for each other or for what they exchange."""

import dataclasses
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.functional import cross_entropy

import steptime
from steptime.judge import experiments
from steptime.measure import budget, clock
from steptime.measure.operator_hooks import EachOperator
from steptime.measure.stack_samples import StackSamples
from steptime.profile.step_profile import StepProfile
from test_steptime.loop_parts import labels, mlp, small_batch
from test_steptime.virtual_time import (
    CEILINGS,
    SharedTime,
    VirtualTime,
    run_on,
)


def gradients_shared(model, batches, before=lambda: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch):
        before()
        optimizer.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
        optimizer.step()

    return step, batches


def many_weights_between_ranks(time, rank):
    return gradients_shared(mlp(512, 1024, 10), (torch.randn(2, 512), labels(2)))


def one_rank_logs(time, rank):
    def log_to_server():
        if rank == 1:
            time.wait(0.06)

    return gradients_shared(mlp(64, 32, 10), small_batch(), log_to_server)


def one_rank_loads_slowly(time, rank):
    def next_batch():
        if rank == 1:
            time.wait(0.06)
        return small_batch()

    return gradients_shared(mlp(64, 32, 10), next_batch)


def one_rank_has_more_rows(time, rank):
    rows = 256 if rank == 1 else 16
    return gradients_shared(mlp(256, 128, 10), (torch.randn(rows, 256), labels(rows)))


def one_rank_saves(time, rank):
    steps = []

    def save():
        steps.append(1)
        if rank == 0 and len(steps) % 5 == 0:
            time.wait(0.4)

    return gradients_shared(mlp(64, 32, 10), small_batch(), save)


def both_load_slowly(time, rank):
    def next_batch():
        time.wait(0.05)
        return small_batch()

    return gradients_shared(mlp(64, 32, 10), next_batch)


# steps that are almost nothing but an exchange, on the machine's own clock too


def summed(time, mib):
    """An exchange of so many MiB."""
    shared = torch.zeros(mib * 2**18)
    weight = torch.zeros(16, requires_grad=True)

    def step(batch):
        (batch[0] * weight).sum().backward()
        dist.all_reduce(shared)

    return step, (torch.ones(16),)


def data_parallel(time, mib):
    """DistributedDataParallel of a quarter as many weights, which little is calculated
    with.

    torch shows nobody the operators of its exchange: on a virtual clock it takes 50 ms.
    """
    model = nn.parallel.DistributedDataParallel(nn.Embedding(mib * 2**10, 64))

    def exchanged(state, bucket):
        time.work(0.05)
        return allreduce_hook(None, bucket)

    if time is not None:
        model.register_comm_hook(None, exchanged)

    def step(batch):
        model(batch[0]).sum().backward()

    return step, (torch.arange(8),)


EXCHANGES = {"all_reduce": summed, "DDP": data_parallel}

# what runs in each of two processes


def judged(rank, meeting, path, find):
    """Write below `path` what `find()` says of this rank's loop.

    Ranks meet in a file `meeting`: a port that is free now may be taken when they
    start.
    """
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
    )
    limit = find()
    dist.barrier()
    dist.destroy_process_group()
    said = {
        name: getattr(limit, name)
        for name in ("dominant", "line", "doubt", "shares", "busy")
    }
    Path(f"{path}-{rank}").write_text(json.dumps({**said, "text": str(limit)}))


def by_steptime(step, batch, trace_path):
    """What limits a loop; the trace of its profile goes to a path."""
    return steptime.find_bottleneck(
        step, batch, budget_s=2, ceilings=CEILINGS, device="cpu", path=trace_path
    )


def exchange(rank, meeting, path, name, find_limit=by_steptime, mib=64, time=None):
    """An exchange is judged, with its profile."""
    trace_path = Path(f"{path}-{rank}-trace.json")

    def find():
        return find_limit(*EXCHANGES[name](time, mib), trace_path)

    judged(rank, meeting, path, find)


def exchange_in_virtual_time(rank, meeting, path, name, find_limit=by_steptime):
    """The same on a virtual clock for each rank: rank 1's goes twice as fast.

    So they have to agree on numbers of runs. A profile knows the real clock alone: its
    trace is real, and the share of communication in it planned.
    """
    time = VirtualTime()
    budget.perf_counter = clock.perf_counter = lambda: (1 + rank) * time.now_s
    clock._CORE_WAITS = "none"
    StackSamples.taken = lambda samples: time.sampling(samples)  # type: ignore[assignment]
    profile_step = experiments.profile_step

    def planned(*args, **kwargs):
        limit = profile_step(*args, **kwargs)
        assert limit.parts["communication"] > 0
        return dataclasses.replace(limit, parts={"communication": 0.9 * limit.mean_s})

    experiments.profile_step = planned
    with EachOperator(time.operator):
        exchange(rank, meeting, path, name, find_limit, mib=1, time=time)


def rank_in_virtual_time(rank, meeting, path, build):
    """A loop of ranks whose clocks meet in each collective; their
    profile is planned.
    """
    time = SharedTime()
    run_on(time)

    def planned(step, steps, warmup, **_):
        step()
        start_s = time.now_s
        communicated_s = time.communicated_s
        for _turn in range(steps):
            step()
        share = (time.communicated_s - communicated_s) / (time.now_s - start_s)
        parts = {"communication": share, "other": 1 - share}
        return StepProfile("planted", 1, (1.0,), parts, (), (), {}, Path())

    def find():
        with EachOperator(time.operator):
            return steptime.find_bottleneck(
                *build(time, rank), budget_s=4, ceilings=CEILINGS, device="cpu"
            )

    experiments.profile_step = planned  # type: ignore[assignment]
    judged(rank, meeting, path, find)


def watched_in_virtual_time(rank, meeting, path, build):
    """The same loop, as a script has it that calls `watch`."""
    time = SharedTime()
    run_on(time)
    step, batches = build(time, rank)
    pages = list[steptime.Limit]()
    load = steptime.watch(
        batches if callable(batches) else lambda: batches,
        steps=24,
        ceilings=CEILINGS,
        device="cpu",
        say=pages.append,
    )

    def find():
        with EachOperator(time.operator):
            while not pages:
                step(load())
        return pages[0]

    judged(rank, meeting, path, find)
