"""The training whose breakdowns notebook 17 shows: real networks on real gloo ranks,
each beside a simulated GPU.

Four ranks train on digits, and each step is real: forward, backward, an all-reduce of
the gradients, a change of the weights; torch's flight recorder notes the collectives. A
rank's GPU, loader and network are simulated: their seconds are noted and not waited
for, and the memory's blocks are as large as the step's real tensors times
`_BYTES_A_BYTE`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import random
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from exercises.nb17 import settings
from exercises.nb17.device_memory import MIB, Block, DeviceMemory
from exercises.nb17.settings import (
    LAYERS,
    RANKS,
    ROWS,
    STEP_S,
    STEPS,
    Fault,
    Job,
    RankEvidence,
)
from labkit.train import data

_SIDE_EVERY = 5
_RECORDS = 3
_WIDTH = 48
HELD_OUT = 300
# predictions are kept for so many steps, and are such a part of a layer's activations
_KEPT_STEPS = 8
_KEPT_SHARE = 10
_BYTES_A_BYTE = 16_384  # the simulated network has so many times as many activations
_HARMLESS = [
    row["text"] for row in settings.rows_of("lines") if row["kind"] == "harmless"
]


def train(
    job: Job, fault: Fault, guard: Callable[..., object] | None = None
) -> RankEvidence:
    """Runs on each rank: train, and return the evidence, also where the training breaks
    off.

    `guard(call, gather)` is called before each collective: `gather(value)` returns a
    list of every rank's value.
    """
    # the newer name and the older
    os.environ |= {"TORCH_FR_BUFFER_SIZE": "64", "TORCH_NCCL_TRACE_BUFFER_SIZE": "64"}
    limit = timedelta(seconds=job.time_limit_minutes * settings.MINUTE_S)
    dist.init_process_group("gloo")
    rank = _Rank(job, fault, guard, *(dist.new_group(timeout=limit) for _ in range(2)))
    # with the default's long limit: a busy machine may start the ranks one after the
    # other
    dist.barrier()
    try:
        rank.train()
    except Exception as error:  # a reader's guard raises what it likes
        rank.found.lost_peer = "gloo" in str(error)
        rank.found.error = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        own = (__file__, dist.distributed_c10d.__file__)
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)[1:]
            if frame.filename in own
        ]
        rank.found.stack = [
            f"{f.name} ({Path(f.filename).name}:{f.lineno})" for f in reversed(frames)
        ]
    rank.found.calls = flight_record()
    return rank.found


def flight_record() -> list[str]:
    """The last collectives of this rank in torch's flight recorder, oldest first; none
    where this torch has no dump.
    """
    dump = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json", None)
    words = (
        "group {process_group[0]}, call {collective_seq_id}: {profiling_name}"
        " {input_sizes}"
    )
    return (
        [
            words.format(**entry)
            for entry in json.loads(dump(True))["entries"][-_RECORDS:]
        ]
        if dump
        else []
    )


class Network(nn.Module):
    """Four layers; what layer `gain[0]` gives is multiplied by gain[1], which the next
    one undoes.
    """

    def __init__(self, gain: tuple[int, float] = (-1, 1.0)) -> None:
        super().__init__()
        sizes = [64, *[_WIDTH] * (LAYERS - 1), 10]
        self.layers = nn.ModuleList(
            nn.Linear(a, b) for a, b in itertools.pairwise(sizes)
        )
        for weight in [*self.parameters()][:-2:2]:
            nn.init.kaiming_normal_(weight)
        self.gain = gain
        self.largest = [0.0] * LAYERS
        self.saved_bytes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, 10) of images (n, 64); notes each layer's largest activation and
        its bytes.
        """
        self.saved_bytes = []
        for i, layer in enumerate(self.layers):
            x = layer(x)
            factor = self.gain[1] if i == self.gain[0] else 1.0
            x = x * factor
            self.largest[i] = float(x.detach().max()) if x.numel() else 0.0
            self.saved_bytes.append(x.numel() * x.element_size())
            x = x / factor
            x = torch.relu(x) if i + 1 < LAYERS else x
        return x.float()


class _Rank:
    def __init__(
        self,
        job: Job,
        fault: Fault,
        guard: Callable[..., object] | None,
        group: Any,
        side_group: Any,
    ) -> None:
        self.job = job
        self.fault = fault
        self.guard = guard
        self.group = group
        self.side_group = side_group
        self.rank = dist.get_rank()
        self.ranks = dist.get_world_size()
        # another machine has none of this one's faults
        self.here = -2 if self.rank == job.replace_node else self.rank
        driver = settings.NEWEST_DRIVER if job.update_driver else fault.driver
        self.on_cpu = not settings.runs_on(job.torch_cuda, driver, fault.gpu)
        slow = fault.times if self.on_cpu or fault.slow_rank == self.here else 1.0
        self.step_s = STEP_S * slow * (4 / 3 if job.recompute else 1)
        self.decode_s = (
            STEP_S * fault.times if self.here in fault.slow_loader else 0.001
        )
        slow_ethernet = job.nccl_net == "Socket" and not fault.fast_ethernet
        slow_net = slow_ethernet or fault.slow_link not in (-1, job.replace_node)
        # where nothing else is slow, a mend may still choose the slow network
        times = fault.times if fault.times > 1 else 2.0
        self.comm_s = settings.COMM_S + (STEP_S * (times - 1) if slow_net else 0.0)
        memory = DeviceMemory(
            fault.capacity_mib * MIB, job.allocator == "expandable segments"
        )
        self.found = RankEvidence(memory=memory)
        draw = random.Random(f"{fault.noise} {self.rank}")
        self.warnings = (
            {draw.randrange(STEPS): draw.choice(_HARMLESS)}
            if draw.random() < 0.7
            else {}
        )
        self.model = first_network(fault, self.here)
        self.images, self.labels = digits()
        self.kept: list[Block] = []

    def train(self) -> None:
        """All steps, and the held-out loss after them."""
        job = self.job
        evidence = self.found
        self._keep("model and optimizer", 300 * MIB)
        if job.start_weights == "rank 0":
            self._copy_weights()
        evidence.first_weights = self._flat().tolist()
        for step in range(STEPS):
            if job.copy_weights == "every step":
                self._copy_weights()
            self._step(step)
            if step % _SIDE_EVERY == _SIDE_EVERY - 1:
                self._side_work(
                    settings.SIDE_WORK[
                        (step // _SIDE_EVERY + self.fault.side_first) % 3
                    ]
                )
        evidence.weights = self._flat().tolist()
        with torch.no_grad():
            evidence.held_out_loss = float(
                cross_entropy(
                    self.model(self.images[-HELD_OUT:]), self.labels[-HELD_OUT:]
                )
            )

    def _step(self, step: int) -> None:
        job = self.job
        evidence = self.found
        evidence.checksums.append(
            hashlib.md5(self._flat().numpy().tobytes()).hexdigest()[:6]
        )
        x, y = self._batch(step)
        waited_s = max(
            0.0, settings.batch_s(job.loader_workers, self.decode_s) - self.step_s
        )
        evidence.loader_s.append(waited_s)
        if (self.here, step) == self.fault.lost_gpu:
            raise RuntimeError("CUDA error: unspecified launch failure")
        (evidence.cpu_s if self.on_cpu else evidence.gpu_s).append(self.step_s)
        (evidence.gpu_s if self.on_cpu else evidence.cpu_s).append(0.0)
        half = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(job.precision)
        with torch.autocast("cpu", half, enabled=half is not None):
            loss_sum = cross_entropy(self.model(x), y, reduction="sum")
        if not self.on_cpu:
            self._use_memory()
        evidence.used.append(evidence.memory.used)
        self.model.zero_grad()
        loss_sum.backward()
        evidence.activations.append(list(self.model.largest))
        evidence.losses.append(float(loss_sum.detach()) / max(len(y), 1))
        evidence.log.append(f"step {step:2} loss {evidence.losses[-1]:.3f}")
        evidence.log += [self.warnings[step]] if step in self.warnings else []
        self._change_weights(len(y))

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images of a step for this rank: a part of its rows, since what they come from
        varies in length.
        """
        picked: list[int] = []
        # short batches are of the digits 5 to 9, others of all
        kinds = (len(self.labels) - HELD_OUT) // 2
        # all of them, where there is one rank
        parts = range(self.rank, RANKS, self.ranks)
        for part in parts:
            draw = random.Random(f"batch {step} {part}")
            n = ROWS if self.fault.full_batches else draw.randrange(2, ROWS + 1)
            drawn = draw.sample(
                range(kinds, 2 * kinds) if n < 12 else range(2 * kinds), n
            )
            picked += [] if part == self.job.leave_out_node else drawn[: self.job.rows]
        self.found.images.append(len(picked))
        self.found.rows.append(self.job.rows * len(parts))
        images = self.images[picked]
        damaged, infinite = self.fault.bad_images
        if damaged == self.here and self.job.image_cache == "as it is" and len(picked):
            images = images.clone() if infinite >= 0 else -images
            images[0, 0] = math.inf if infinite == step else images[0, 0]
        self.found.pixels += (
            [float(images.min()), float(images.max())] if len(picked) else []
        )
        return images, self.labels[picked]

    def _change_weights(self, images: int) -> None:
        """Add up gradients over ranks, divide them, and take a step of gradient
        descent.
        """
        job = self.job
        evidence = self.found
        own = {
            "images of this rank": max(images, 1),
            "rows": job.rows * RANKS // self.ranks,
        }.get(job.divide_by, 1)
        parameters = list(self.model.parameters())
        skipped = self.fault.unreduced_layer if job.reduced == "as it is" else -1
        alone = [i // 2 == skipped for i in range(len(parameters))]
        gradients = [p.grad / own for p in parameters if p.grad is not None]
        evidence.own_norms.append(
            float(torch.cat([g.flatten() for g in gradients]).norm())
        )
        count = torch.tensor([float(images)])
        flat = torch.cat(
            [
                *[
                    g.flatten()
                    for g, left in zip(gradients, alone, strict=True)
                    if not left
                ],
                count,
            ]
        )
        evidence.comm_s.append(self.comm_s)
        self._call(dist.all_reduce, self.group, flat)
        evidence.sent_bytes += flat.nbytes
        total = (
            float(flat[-1]) if job.divide_by == "images of all ranks" else self.ranks
        )
        parts = iter(
            flat[:-1].split(
                [
                    g.numel()
                    for g, left in zip(gradients, alone, strict=True)
                    if not left
                ]
            )
        )
        for i, gradient in enumerate(gradients):
            if alone[i]:
                gradients[i] = gradient / (max(images, 1) if own == 1 else 1)
            else:
                gradients[i] = next(parts).view_as(gradient) / total
        if job.bad_gradients == "set to zero":
            gradients = [g.nan_to_num(0.0, 0.0, 0.0) for g in gradients]
        norm = float(torch.cat([g.flatten() for g in gradients]).norm())
        evidence.norms.append(norm)
        if job.bad_gradients == "skip the step" and not math.isfinite(norm):
            return
        rate = job.learning_rate * self.fault.schedule_factor
        rate *= min(1.0, job.clip_norm / max(norm, 1e-12))
        evidence.changed += norm > 0
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(rate * gradient)

    def _side_work(self, what: str) -> None:
        """What is done beside the training every few steps, in a group of its own."""
        if what not in self.job.on_all_ranks and self.rank != self.fault.side_rank:
            return
        {
            "evaluation": self._evaluation,
            "checkpoint": self._wait_for_files,
            "logging": self._mean_loss,
        }[what]()

    def _evaluation(self) -> None:
        with torch.no_grad():
            right = (
                (
                    self.model(self.images[-HELD_OUT:]).argmax(1)
                    == self.labels[-HELD_OUT:]
                )
                .float()
                .sum()
            )
        self._call(dist.all_reduce, self.side_group, right)

    def _wait_for_files(self) -> None:
        self._call(dist.barrier, self.side_group)

    def _mean_loss(self) -> None:
        self._call(
            dist.all_reduce, self.side_group, torch.tensor(self.found.losses[-1])
        )

    def _call(
        self, collective: Callable[..., object], group: Any, *tensors: Tensor
    ) -> None:
        if self.guard:
            self.guard(
                (collective.__name__, tuple(tensors[0].shape) if tensors else ()),
                self._gather,
            )
        collective(*tensors, group=group)

    def _gather(self, value: object) -> list[Any]:
        values: list[Any] = [None] * self.ranks
        dist.all_gather_object(values, value, group=self.group)
        return values

    def _copy_weights(self) -> None:
        flat = self._flat()
        dist.broadcast(flat, 0, group=self.group)
        self.found.sent_bytes += flat.nbytes
        nn.utils.vector_to_parameters(flat, self.model.parameters())

    def _flat(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()

    def _use_memory(self) -> None:
        """Allocate and free on the simulated GPU what the step's forward and backward
        hold.
        """
        memory = self.found.memory
        if self.job.empty_cache:
            memory.release()
        sizes = [
            size * _BYTES_A_BYTE // (3 if self.job.recompute else 1)
            for size in self.model.saved_bytes
        ]
        on_gpu = not self.fault.metrics_on_cpu
        leaks = self.job.kept_for_metrics == "tensors" and on_gpu
        held = [self._keep("layer 1", sizes[0])]
        # with its graph or without
        self.kept.append(
            self._keep("metrics", sizes[0] // (2 if leaks else _KEPT_SHARE))
        )
        held += [self._keep(f"layer {i + 1}", sizes[i]) for i in range(1, LAYERS)]
        for i in reversed(range(LAYERS)):
            gradient = self._keep(f"gradient {i + 1}", sizes[i])
            memory.free(held[i])
            memory.free(gradient)
        if len(self.kept) > _KEPT_STEPS and not leaks:
            memory.free(self.kept.pop(0))

    def _keep(self, owner: str, size: int) -> Block:
        return self.found.memory.allocate(max(size, 2 * MIB), owner)


def digits() -> tuple[Tensor, Tensor]:
    """Images (n, 64) sorted by label, then HELD_OUT others; and the labels."""
    images, labels = data.digits()
    order = torch.argsort(labels[:-HELD_OUT], stable=True)
    images = 2 * images.flatten(1) - 0.6
    return torch.cat([images[order], images[-HELD_OUT:]]), torch.cat(
        [labels[order], labels[-HELD_OUT:]]
    )


def first_network(fault: Fault, rank: int) -> Network:
    """The network that a rank starts with: after five steps, or new where no checkpoint
    was found.
    """
    torch.manual_seed(17)
    model = Network(fault.gain)
    if rank == fault.stale_rank:
        return model
    images, labels = digits()
    for first in range(5):
        model.zero_grad()
        cross_entropy(model(images[first::30]), labels[first::30]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(
                    0.1 * parameter.grad if parameter.grad is not None else 0
                )
    return model
