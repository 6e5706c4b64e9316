"""A pretend GPU with a queue, in virtual time: a kernel that is launched ends later, and
whoever wants to know its time has to wait for it.

Run by test_queued_gpu.py in a process of the rehearsal, where tensors can be on "cuda".
`python -m tests.rehearsal.queued_gpu WITHOUT` prints as JSON what steptime says of each
of LOOPS; WITHOUT names the waits for the GPU that it is made to leave out (FORGOTTEN),
"" for none.
"""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset

import steptime
from steptime.judge import bottleneck, experiments
from steptime.loop import step_loop, turns
from steptime.measure import operator_timing
from steptime.measure.batches import Supply
from steptime.measure.machine import one_thread
from steptime.measure.operator_hooks import EachOperator, replaced
from steptime.measure.stack_samples import stack_of
from test_steptime.loop_parts import labels, mlp
from test_steptime.virtual_time import LAUNCH_S, VirtualTime, run_on

KERNEL_S = 2e-6  # of a kernel that calculates next to nothing
FLOP_PER_S = 2e9
BYTES_PER_S = 2e9
_STEPS = 20
COPY_BYTES_PER_S = 1e9  # between main memory and the GPU
CEILINGS = steptime.Ceilings("planted GPU", {"float32": FLOP_PER_S}, BYTES_PER_S)
# what takes a number out of a tensor, which the host waits for
_READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class QueuedTime(VirtualTime):
    """A clock of the host, and one of a GPU whose one stream works off what is queued.

    The host's goes on with each launch, work and wait. The GPU is done with all that is
    queued at `free_s`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.free_s = 0.0

    def synchronize(self, *_: object) -> None:
        """Wait until the GPU has done all that is queued."""
        self.now_s = max(self.now_s, self.free_s)

    def queue(self, seconds: float) -> None:
        """The GPU begins this when it has done what was queued before."""
        self.free_s = max(self.free_s, self.now_s) + seconds

    def operator(self, func: Any, args: Any, kwargs: Any, depth: int = 2) -> Any:
        """Run an operator: on the host at once, on the GPU in its turn."""
        leaves = [x for x in tree_leaves((args, kwargs)) if torch.is_tensor(x)]
        out = func(*args, **kwargs)
        results = [x for x in tree_leaves(out) if torch.is_tensor(x)]
        if not any(x.is_cuda for x in leaves + results):
            return out
        begin_s = self.now_s
        self.now_s += LAUNCH_S
        call = operator_timing.described(func, args, kwargs, out, 0.0)
        if call.group == "input":
            self._copy(args, kwargs, results[0].nbytes)
        elif call.n_bytes or call.flop:  # a view launches no kernel
            work_s = max(call.flop / FLOP_PER_S, call.n_bytes / BYTES_PER_S)
            self.queue(KERNEL_S + work_s)
        if _READS.intersection(func.tags):
            self.synchronize()
        if self.samples is not None:
            self.samples.take(stack_of(sys._getframe(depth)), self.now_s - begin_s)
        return out

    def _copy(self, args: Any, kwargs: Any, n_bytes: int) -> None:
        """A copy between main memory and the GPU; the host waits for it unless it is
        non_blocking.
        """
        self.queue(n_bytes / COPY_BYTES_PER_S)
        if not (kwargs.get("non_blocking") or True in args[2:]):
            self.synchronize()


class Event:
    """An event of the queue's one stream, in place of torch.cuda.Event."""

    time = QueuedTime()

    def __init__(self, enable_timing: bool = False) -> None:
        self.at_s = -1.0

    def record(self, stream: object = None) -> None:
        """It happens when the GPU has done what is queued so far."""
        self.at_s = max(self.time.now_s, self.time.free_s)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds, once both have happened."""
        if end.at_s > self.time.now_s:
            raise RuntimeError("CUDA error: device not ready")
        return 1e3 * (end.at_s - self.at_s)


def training(model: nn.Module) -> Callable[[Any], torch.Tensor]:
    """A step that trains a model on the GPU and returns its loss."""
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    return step


def on_gpu(*widths: int, rows: int = 64) -> Any:
    """A batch on the GPU for a network of such widths."""
    return torch.randn(rows, widths[0]).cuda(), (labels(rows) % widths[-1]).cuda()


class Decoded(Dataset):
    """Images, each of which takes `decode(i)`."""

    def __init__(self, decode: Callable[[int], torch.Tensor], n: int = 160) -> None:
        self.decode = decode
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return self.decode(i), i % 10


def input_bound(time: QueuedTime) -> Any:
    def decode(i: int) -> torch.Tensor:
        time.work(2e-3)
        return torch.full((64,), 0.1)

    train = training(mlp(64, 32, 10))

    def step(batch: Any) -> None:
        train((batch[0].cuda(), batch[1].cuda()))

    return step, DataLoader(Decoded(decode), batch_size=8)


def launch_bound(time: QueuedTime) -> Any:
    return training(mlp(*[8] * 21, 10)), on_gpu(8, 10, rows=4)


def compute_bound(time: QueuedTime) -> Any:
    return training(mlp(256, 256, 256, 10)), on_gpu(256, 10, rows=128)


def memory_bound(time: QueuedTime) -> Any:
    scale = torch.ones(1, device="cuda", requires_grad=True)
    out = torch.empty(2**18, device="cuda")

    def step(batch: Any) -> None:
        for _ in range(20):
            torch.add(batch[0], 0.5, out=out)
        (out[:1] * scale).sum().backward()

    return step, (torch.randn(2**18).cuda(),)


def each_norm_read(time: QueuedTime) -> Any:
    """Gradients are clipped by hand: .item() for each parameter."""
    model = mlp(*[8] * 14, 10)
    train = training(model)

    def step(batch: Any) -> None:
        train(batch)
        total = 0.0
        for weight in model.parameters():
            total += weight.grad.norm(2).item() ** 2

    return step, on_gpu(8, 10, rows=4)


def loss_read_and_logged(time: QueuedTime, log_s: float = 0.03) -> Any:
    """The GPU waits while the host writes, which it can't do before it has read."""
    train = training(mlp(256, 64, 10))

    def log(loss: float) -> None:
        time.work(log_s)

    def step(batch: Any) -> None:
        log(train(batch).item())

    return step, on_gpu(256, 10, rows=128)


def loss_read(time: QueuedTime) -> Any:
    """`loss_read_and_logged`, mended."""
    return loss_read_and_logged(time, log_s=0.0)


def written_beside_the_gpu(time: QueuedTime, log_s: float = 0.03) -> Any:
    """The host's work takes longer than the GPU's, which it hides."""
    train = training(mlp(256, 256, 10))

    def log() -> None:
        time.work(log_s)

    def step(batch: Any) -> None:
        train(batch)
        log()

    return step, on_gpu(256, 10, rows=128)


def nothing_written(time: QueuedTime) -> Any:
    """`written_beside_the_gpu`, mended: the GPU's work is left."""
    return written_beside_the_gpu(time, log_s=0.0)


def pageable_copies(time: QueuedTime) -> Any:
    train = training(nn.Sequential(nn.AvgPool1d(2048), nn.Flatten(), nn.Linear(8, 10)))
    labels_there = labels(64).cuda()

    def step(batch: Any) -> None:
        train((batch.cuda().unsqueeze(1)[:, :, : 8 * 2048], labels_there))

    return step, torch.randn(64, 2**15)


def kept_on_the_gpu(time: QueuedTime) -> Any:
    """`pageable_copies`, mended."""
    step, batch = pageable_copies(time)
    return step, batch.cuda()


def resized_on_the_gpu(time: QueuedTime) -> Any:
    """The loader queues its work on the GPU: as much in each epoch."""

    def resize(i: int) -> torch.Tensor:
        big = torch.full((2**18,), 0.1, device="cuda")
        for _ in range(4):
            big = big * 1.5
        return big[:64]

    return training(mlp(64, 32, 10)), DataLoader(
        Decoded(resize, 40_000),
        batch_size=4,
        collate_fn=lambda rows: (
            torch.stack([x for x, _ in rows]),
            torch.arange(len(rows), device="cuda") % 10,
        ),
    )


LOOPS = {
    input_bound: ("input", "decode", 2.0),
    launch_bound: ("launch overhead", "", 0.1),
    compute_bound: ("arithmetic", "", 4.0),
    memory_bound: ("memory bandwidth", "", 0.5),
    each_norm_read: ("launch overhead", "", 0.1),
    loss_read_and_logged: ("other host work", "log", 4.0),
    written_beside_the_gpu: ("other host work", "log", 4.0),
    pageable_copies: ("input", "", 1.0),
    resized_on_the_gpu: ("input", "", 2.0),
}
"""Each with its limit, the function to be named, and the budget in seconds."""
MENDED = {
    loss_read_and_logged: loss_read,
    written_beside_the_gpu: nothing_written,
    pageable_copies: kept_on_the_gpu,
}


def forget(_: object = None) -> None:
    """In place of a wait for the GPU."""


@contextlib.contextmanager
def forgotten_when_timing() -> Iterator[None]:
    """Nothing that is timed by the host's clock is waited for."""
    with replaced(bottleneck, sync_of=lambda device: forget):
        yield


@contextlib.contextmanager
def forgotten_in_events() -> Iterator[None]:
    """Events are read before they have happened."""
    cuda = SimpleNamespace(Event=Event, synchronize=forget)
    with replaced(turns, torch=SimpleNamespace(cuda=cuda)):
        yield


@contextlib.contextmanager
def forgotten_while_watching() -> Iterator[None]:
    """The host's clock alone says how long the loop was watched, and how long a batch
    takes that was loaded before.
    """

    def watch_loop(*arguments: Any) -> Any:
        *others, budget = arguments
        budget = copy.copy(budget)
        budget.sync = forget
        return step_loop.watch_loop(*others, budget)

    with replaced(experiments, watch_loop=watch_loop):
        yield


FORGOTTEN = {
    "": contextlib.nullcontext,
    "when timing": forgotten_when_timing,
    "in events": forgotten_in_events,
    "while watching": forgotten_while_watching,
}
"""Waits for the GPU that steptime can be made to leave out."""


@contextlib.contextmanager
def queued_time() -> Iterator[QueuedTime]:
    """Within the block, everything is measured on the clocks of a queue."""
    time = QueuedTime()
    Event.time = time
    with contextlib.ExitStack() as stack:

        def put(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(replaced(owner, **{name: value}))

        run_on(time, put)
        put(torch.cuda, "Event", Event)
        put(torch.cuda, "synchronize", time.synchronize)
        stack.enter_context(one_thread())
        stack.enter_context(EachOperator(time.operator))
        yield time


def judged(build: Callable[[QueuedTime], Any], budget_s: float) -> dict[str, Any]:
    """What steptime says of a loop, and how long that took, as a share of the
    budget.
    """
    with queued_time() as time:
        step, batches = build(time)
        begin_s = time.now_s
        # diagnose would put the clock back, to which the loop's functions refer
        page = steptime.find_bottleneck(
            step,
            batches,
            budget_s=budget_s,
            ceilings=CEILINGS,
            device="cuda",
            try_changes=True,
        )
        time.synchronize()
        taken_s = time.now_s - begin_s
    return described(page) | {"took": taken_s / budget_s, "real_s": mean_s(build)}


def described(page: steptime.Limit) -> dict[str, Any]:
    """What the tests look at."""
    gain = page.gain(page.largest)
    return {
        "limit": page.dominant,
        "line": page.line,
        "loop_s": page.loop_s,
        "doubt": page.doubt,
        "most": page.bound(page.largest) if gain is None else gain.times,
        "text": str(page),
    }


def judged_script() -> dict[str, Any]:
    """What steptime says of a script that watches its own loop."""
    pages = list[steptime.Limit]()
    with queued_time() as time:
        step, batch = compute_bound(time)
        for rows in steptime.watch(
            [batch] * 60, steps=40, ceilings=CEILINGS, device="cuda", say=pages.append
        ):
            step(rows)
    (page,) = pages
    return described(page)


def mean_s(build: Callable[[QueuedTime], Any]) -> float:
    """Seconds of a step of the loop, without steptime."""
    with queued_time() as time:
        step, batches = build(time)
        next_batch = Supply(batches)
        step(next_batch())
        time.synchronize()
        begin_s = time.now_s
        for _ in range(_STEPS):
            step(next_batch())
        time.synchronize()
        return (time.now_s - begin_s) / _STEPS


def main(forgotten: str) -> None:
    """Print what is said of each loop, or the error, as JSON."""
    pages = dict[str, Any]()
    with FORGOTTEN[forgotten]():
        for build, (_, _, budget_s) in LOOPS.items():
            pages[build.__name__] = judged(build, budget_s)
        try:
            pages["script"] = judged_script()
        except RuntimeError as error:
            pages["script"] = {"error": str(error)}
    mended_s = {loop.__name__: mean_s(mended) for loop, mended in MENDED.items()}
    print(json.dumps({"pages": pages, "mended_s": mended_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
