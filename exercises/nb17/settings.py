"""What notebook 17's training is told and what it leaves: its settings, what is broken,
the evidence of a rank.

Its tables stand beside it: what breaks runs (variants.csv), causes, alarms, settings,
looks, and the lines of logs with their sources (lines.csv).
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path

from exercises.nb17.device_memory import DeviceMemory

RANKS = 4
STEPS = 30
ROWS = 32
LAYERS = 4
# of the machine that each rank has for itself
STEP_S = 0.008
COMM_S = 0.001
CORES = 4
MINUTE_S = 0.3  # of this run, for each minute that a rank may wait in a collective
SIDE_WORK = ("evaluation", "checkpoint", "logging")
NEWEST_DRIVER = 580
# docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
# that has code for this GPU
_FIRST_CUDA = {
    "A100 SXM4 80GB": (11, 0),
    "H100 SXM5 80GB": (11, 8),
    "B200 SXM": (12, 8),
}


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a table beside this file."""
    with (
        Path(__file__)
        .with_name(f"{table}.csv")
        .open(encoding="utf-8", newline="") as file
    ):
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Job:
    """The settings of a training, all of which a mend can change."""

    precision: str = "float32"
    learning_rate: float = 0.1
    clip_norm: float = math.inf
    bad_gradients: str = "keep"
    time_limit_minutes: float = 10.0
    on_all_ranks: tuple[str, ...] = SIDE_WORK
    start_weights: str = "checkpoint of each node"
    copy_weights: str = "never"
    reduced: str = "as it is"
    divide_by: str = "images of all ranks"
    image_cache: str = "as it is"
    replace_node: int = -1
    leave_out_node: int = -1
    loader_workers: int = 2
    rows: int = ROWS
    allocator: str = "default"
    empty_cache: bool = False
    recompute: bool = False
    kept_for_metrics: str = "numbers"
    nccl_net: str = "IB"
    torch_cuda: str = "13.0"
    update_driver: bool = False


@dataclass(frozen=True)
class Fault:
    """What is broken, beside the job's settings; -1 stands for no rank, no layer, no
    step.
    """

    # a layer's output is so many times larger, and made smaller again after it
    gain: tuple[int, float] = (-1, 1.0)
    stale_rank: int = -1  # found no checkpoint, and starts anew
    unreduced_layer: int = -1
    # the rank whose copies are damaged, and the step with an infinite pixel
    bad_images: tuple[int, int] = (-1, -1)
    times: float = 1.0  # how many times longer what is slow takes
    slow_rank: int = -1
    slow_link: int = -1
    slow_loader: tuple[int, ...] = ()
    lost_gpu: tuple[int, int] = (-1, -1)  # rank and step
    gpu: str = "H100 SXM5 80GB"
    driver: int = NEWEST_DRIVER
    capacity_mib: int = 4096
    # does what not all ranks do beside the training; -1: nobody does it
    side_rank: int = 0
    side_first: int = 0  # which of the three kinds of work comes first
    # seed of what is harmless: temperatures and warnings
    noise: int = 0
    # What follows breaks nothing: it makes a changed setting harmless.
    schedule_factor: float = 1.0  # what a schedule multiplies the learning rate by
    full_batches: bool = False  # every rank has as many images as rows
    metrics_on_cpu: bool = False  # tensors kept for metrics are moved to the CPU
    fast_ethernet: bool = False  # as fast as InfiniBand


def runs_on(torch_cuda: str, driver: int, gpu: str) -> bool:
    """Whether PyTorch built for a CUDA version finds this GPU: by the driver's least
    version, and the GPU's first CUDA.

    Within one major version a newer CUDA runs on an older driver: NVIDIA's minor
    version compatibility.
    """
    version = tuple(map(int, torch_cuda.split(".")))
    return driver >= _LEAST_DRIVER[version[0]] and version >= _FIRST_CUDA[gpu]


def batch_s(workers: int, decode_s: float) -> float:
    """Seconds from batch to batch of a rank's loader: more processes than cores wait
    for each other, in this game.
    """
    crowded = max(1.0, workers / CORES)
    return decode_s * crowded**2 / workers


@dataclass
class RankEvidence:
    """What one rank leaves: a value for each step that it began, and how it ended."""

    log: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    # of this rank's gradients, before the all-reduce
    own_norms: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)  # of those that change the weights
    checksums: list[str] = field(default_factory=list)
    # by step: the largest of each layer
    activations: list[list[float]] = field(default_factory=list)
    images: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    # the least and the largest of each step's images
    pixels: list[float] = field(default_factory=list)
    gpu_s: list[float] = field(default_factory=list)  # that the GPU computed
    # that the CPU computed in its place
    cpu_s: list[float] = field(default_factory=list)
    # that the rank waited for its images
    loader_s: list[float] = field(default_factory=list)
    comm_s: list[float] = field(default_factory=list)  # of the all-reduce itself
    # bytes of the GPU's memory after each step
    used: list[int] = field(default_factory=list)
    # the last records of torch's flight recorder
    calls: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    changed: int = 0  # steps that changed the weights
    error: str = ""
    lost_peer: bool = False  # the error is another rank's fault
    stack: list[str] = field(default_factory=list)
    memory: DeviceMemory = field(default_factory=lambda: DeviceMemory(0))
    held_out_loss: float = math.nan
    first_weights: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
