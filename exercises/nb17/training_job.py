"""The training whose breakdowns notebook 17 shows: real networks on real gloo ranks, each beside a simulated GPU.

Four ranks train on digits, and each step is real: forward, backward, an all-reduce of the gradients, a change of the
weights. A rank's GPU is simulated: it takes a time (a sleep) for each step and has a memory whose blocks are as large
as the step's real tensors times `_BYTES_A_BYTE`. settings.py has what it is told.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
import traceback
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from exercises.nb17.device_memory import MIB, Block, DeviceMemory
from exercises.nb17.settings import (
    CPU_TIMES,
    LAYERS,
    MINUTE_S,
    RANKS,
    ROWS,
    SIDE_WORK,
    SLOW_TIMES,
    STEP_S,
    STEPS,
    Fault,
    Job,
    RankEvidence,
)  # fmt: skip
from labkit.measure.standin import StandIn
from labkit.train import data
from ranks import span as recorded_span

_WIDTH, _HELD_OUT, _SIDE_EVERY = 48, 300, 5
_KEPT_STEPS, _KEPT_SHARE = 8, 10  # predictions are kept for so many steps, and are such a part of a layer's activations
_BYTES_A_BYTE = 16_384  # the simulated network has so many times as many activations


def train(job: Job, fault: Fault) -> RankEvidence:
    """Runs on each rank: train, and return the evidence, also where the training breaks off."""
    limit = timedelta(seconds=job.time_limit_minutes * MINUTE_S)
    dist.init_process_group("gloo")
    rank = _Rank(job, fault, dist.new_group(timeout=limit), dist.new_group(timeout=limit))
    dist.barrier()  # with the default's long limit: a busy machine may start the ranks one after the other
    try:
        rank.train()
    except (RuntimeError, MemoryError) as error:
        rank.found.lost_peer = "gloo" in str(error)
        words = str(error).splitlines()[0]
        if rank.found.lost_peer:  # without the file and line that gloo begins with, and the peer's address
            words = re.sub(r"^\[\S+\] | \[[\d.]+\]:.*", "", words)
        rank.found.error = f"{type(error).__name__}: {words}"
        frames = [*traceback.extract_stack()[:-1], *traceback.extract_tb(error.__traceback__)[1:]]
        own = [frame for frame in frames if frame.filename in (__file__, dist.distributed_c10d.__file__)]
        rank.found.stack = [f"{frame.name} ({frame.line})" for frame in own]
    return rank.found


class Network(nn.Module):
    """Four layers; what layer `gain[0]` gives is multiplied by gain[1], which the next one undoes."""

    def __init__(self, gain: tuple[int, float] = (-1, 1.0)) -> None:
        super().__init__()
        sizes = [64, *[_WIDTH] * (LAYERS - 1), 10]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        for weight in [*self.parameters()][:-2:2]:
            nn.init.kaiming_normal_(weight)
        self.gain, self.largest = gain, [0.0] * LAYERS
        self.saved_bytes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, 10) of images (n, 64); notes each layer's largest activation and its bytes."""
        self.saved_bytes = []
        for i, layer in enumerate(self.layers):
            x = layer(x)
            factor = self.gain[1] if i == self.gain[0] else 1.0
            x = x * factor
            self.largest[i] = float(x.detach().abs().max()) if x.numel() else 0.0
            self.saved_bytes.append(x.numel() * x.element_size())
            x = x / factor
            x = torch.relu(x) if i + 1 < LAYERS else x
        return x.float()


class _Rank:
    def __init__(self, job: Job, fault: Fault, group: Any, side_group: Any) -> None:
        self.job, self.fault, self.group, self.side_group = job, fault, group, side_group
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        here = self.rank
        replaced = here == job.replace_node
        draw = random.Random(f"{fault.noise} {here}")
        slow = fault.slow_rank == here and not replaced
        driver = fault.driver if here in fault.old_driver and not replaced else "13.0"
        self.on_cpu = driver < job.torch_cuda
        self.step_s = STEP_S * (CPU_TIMES if self.on_cpu else SLOW_TIMES if slow else 1)
        self.decode_s = min(fault.decode_s) if replaced else fault.decode_s[here]
        self.found = RankEvidence(
            driver=driver, device="cpu" if self.on_cpu else "cuda", celsius=draw.randrange(58, 79) + 9 * slow,
            mhz=1980 // (SLOW_TIMES if slow else 1),
            memory=DeviceMemory(fault.capacity, job.allocator == "expandable segments"),
        )  # fmt: skip
        self.warnings = {draw.randrange(STEPS): draw.choice(_HARMLESS)} if draw.random() < 0.7 else {}
        self.model = _checkpoint(fault, here, job)
        self.images, self.labels = _digits()
        self.device = StandIn(1.0)
        self.kept: list[Block] = []

    def train(self) -> None:
        """All steps, and the held-out loss after them."""
        job, found = self.job, self.found
        if self.on_cpu:
            self._log(f"UserWarning: CUDA initialization: the NVIDIA driver on your system is too old ({found.driver})")
            if job.stop_without_gpu:
                raise RuntimeError("no CUDA device is available, and the job was told to stop then")
        self._keep("model and optimizer", 300 * MIB)
        if job.start_weights == "rank 0":
            self._copy_weights()
        found.first_weights = self._flat().tolist()
        for step in range(STEPS):
            if job.copy_weights == "every step":
                self._copy_weights()
            self._step(step)
            if step % _SIDE_EVERY == _SIDE_EVERY - 1:
                self._side_work(SIDE_WORK[(step // _SIDE_EVERY + self.fault.side_first) % len(SIDE_WORK)])
        found.weights = self._flat().tolist()
        with torch.no_grad():
            found.held_out_loss = float(cross_entropy(self.model(self.images[-_HELD_OUT:]), self.labels[-_HELD_OUT:]))

    def _step(self, step: int) -> None:
        job, found = self.job, self.found
        found.checksums.append(hashlib.md5(self._flat().numpy().tobytes()).hexdigest()[:6])
        x, y = self._batch(step)
        waited_s = max(0.0, self.decode_s / job.loader_workers - self.step_s)
        found.loader_s.append(waited_s)
        if waited_s:
            with recorded_span("idle", "loader"):
                self.device.compute(waited_s)
        if self.on_cpu:
            with recorded_span("idle", "on the CPU"):
                self.device.compute(self.step_s)
        else:
            self.device.compute(self.step_s, str(step))
        (found.cpu_s if self.on_cpu else found.gpu_s).append(self.step_s)
        (found.gpu_s if self.on_cpu else found.cpu_s).append(0.0)
        half = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(job.precision)
        with torch.autocast("cpu", half, enabled=half is not None):
            loss_sum = cross_entropy(self.model(x), y, reduction="sum")
        if not self.on_cpu:
            self._use_memory()
        self.model.zero_grad()
        loss_sum.backward()
        found.activations.append(list(self.model.largest))
        found.losses.append(float(loss_sum.detach()) / max(len(y), 1))
        self._log(f"step {step:2} loss {found.losses[-1]:.3f}")
        if step in self.warnings:
            self._log(self.warnings[step])
        self._change_weights(len(y))

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images of a step for this rank: a part of its rows, since what they come from varies in length."""
        picked: list[int] = []
        kinds = (len(self.labels) - _HELD_OUT) // 2  # short batches are of the digits 5 to 9, others of all
        parts = range(self.rank, RANKS, self.ranks)  # all of them, where there is one rank
        for part in parts:
            draw = random.Random(f"batch {step} {part}")
            n = draw.randrange(2, ROWS + 1)
            drawn = draw.sample(range(kinds, 2 * kinds) if n < 12 else range(2 * kinds), n)
            picked += [] if part == self.job.leave_out_node else drawn[: self.job.rows]
        self.found.images.append(len(picked))
        self.found.rows.append(self.job.rows * len(parts))
        return self.images[picked], self.labels[picked]

    def _change_weights(self, images: int) -> None:
        """Add up gradients over ranks, divide them, and take a step of gradient descent."""
        job, found = self.job, self.found
        own = {"images of this rank": max(images, 1), "rows": job.rows * RANKS // self.ranks}.get(job.divide_by, 1)
        parameters = list(self.model.parameters())
        skipped = self.fault.unreduced_layer if job.reduced == "as it is" else -1
        alone = [i // 2 == skipped for i in range(len(parameters))]
        gradients = [p.grad / own for p in parameters if p.grad is not None]
        found.own_norms.append(float(torch.cat([g.flatten() for g in gradients]).norm()))
        count = torch.tensor([float(images)])
        flat = torch.cat([*[g.flatten() for g, left in zip(gradients, alone, strict=True) if not left], count])
        dist.all_reduce(flat, group=self.group)
        found.sent_bytes += flat.nbytes
        total = float(flat[-1]) if job.divide_by == "images of all ranks" else self.ranks
        parts = iter(flat[:-1].split([g.numel() for g, left in zip(gradients, alone, strict=True) if not left]))
        for i, gradient in enumerate(gradients):
            if alone[i]:
                gradients[i] = gradient / (max(images, 1) if own == 1 else 1)
            else:
                gradients[i] = next(parts).view_as(gradient) / total
        if job.bad_gradients == "set to zero":
            gradients = [g.nan_to_num(0.0, 0.0, 0.0) for g in gradients]
        norm = float(torch.cat([g.flatten() for g in gradients]).norm())
        found.norms.append(norm)
        if job.bad_gradients == "skip the step" and not math.isfinite(norm):
            return
        rate = job.learning_rate * min(1.0, job.clip_norm / max(norm, 1e-12))
        found.changed += norm > 0
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(rate * gradient)

    def _side_work(self, what: str) -> None:
        """What is done beside the training every few steps, in a group of its own."""
        if what not in self.job.on_all_ranks and self.rank != self.fault.side_rank:
            return
        {"evaluation": self._evaluation, "checkpoint": self._wait_for_files, "logging": self._mean_loss}[what]()

    def _evaluation(self) -> None:
        with torch.no_grad():
            right = (self.model(self.images[-_HELD_OUT:]).argmax(1) == self.labels[-_HELD_OUT:]).float().sum()
        dist.all_reduce(right, group=self.side_group)

    def _wait_for_files(self) -> None:
        dist.barrier(group=self.side_group)

    def _mean_loss(self) -> None:
        dist.all_reduce(torch.tensor(self.found.losses[-1]), group=self.side_group)

    def _copy_weights(self) -> None:
        flat = self._flat()
        dist.broadcast(flat, 0, group=self.group)
        self.found.sent_bytes += flat.nbytes
        nn.utils.vector_to_parameters(flat, self.model.parameters())

    def _flat(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()

    def _use_memory(self) -> None:
        """Allocate and free on the simulated GPU what the step's forward and backward hold."""
        memory = self.found.memory
        if self.job.empty_cache:
            memory.release()
        sizes = [size * _BYTES_A_BYTE for size in self.model.saved_bytes]
        held = [self._keep("layer 1", sizes[0])]
        self.kept.append(self._keep("predictions", sizes[0] // _KEPT_SHARE))  # for the metrics of the next steps
        held += [self._keep(f"layer {i + 1}", sizes[i]) for i in range(1, LAYERS)]
        for i in reversed(range(LAYERS)):
            gradient = self._keep(f"gradient {i + 1}", sizes[i])
            memory.free(held[i])
            memory.free(gradient)
        if len(self.kept) > _KEPT_STEPS:
            memory.free(self.kept.pop(0))

    def _keep(self, owner: str, size: int) -> Block:
        return self.found.memory.allocate(max(size, 2 * MIB), owner)

    def _log(self, line: str) -> None:
        self.found.log.append(line)


_HARMLESS = (
    "WARN checkpoint: upload took 4.1 s, retrying in the background",
    "FutureWarning: the argument 'pin_memory_device' will be removed in a later release",
    "WARN health check: answer after 2.3 s",
    "WARN loader: 1 image could not be read, its neighbour was taken",
)


def _digits() -> tuple[Tensor, Tensor]:
    images, labels = data.digits()
    order = torch.argsort(labels[:-_HELD_OUT], stable=True)
    images = 2 * images.flatten(1) - 0.6
    return torch.cat([images[order], images[-_HELD_OUT:]]), torch.cat([labels[order], labels[-_HELD_OUT:]])


def _checkpoint(fault: Fault, rank: int, job: Job) -> Network:
    """The network that a rank starts with: after five steps, or new where no checkpoint was found."""
    torch.manual_seed(17)
    model = Network(fault.gain)
    if rank == fault.stale_rank and rank != job.replace_node:
        return model
    images, labels = _digits()
    for first in range(5):
        model.zero_grad()
        cross_entropy(model(images[first::30]), labels[first::30]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad if parameter.grad is not None else 0)
    return model
