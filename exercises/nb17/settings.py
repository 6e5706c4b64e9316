"""What notebook 17's training is told and what it leaves: its settings, what is broken, the evidence of a rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from exercises.nb17.device_memory import MIB, DeviceMemory

RANKS, STEPS, ROWS, LAYERS = 4, 30, 32, 4
STEP_S, CPU_TIMES, SLOW_TIMES, CORES = 0.008, 8, 5, 16
ROOMY = 4096 * MIB
MINUTE_S = 0.2  # of this run, for each minute that a rank may wait in a collective
SIDE_WORK = ("evaluation", "checkpoint", "logging")


@dataclass(frozen=True)
class Job:
    """The settings of a training, all of which a mend can change."""

    precision: str = "float32"
    learning_rate: float = 0.1
    clip_norm: float = math.inf
    bad_gradients: str = "keep"
    time_limit_minutes: float = 15.0
    on_all_ranks: tuple[str, ...] = SIDE_WORK
    start_weights: str = "checkpoint of each node"
    copy_weights: str = "never"
    reduced: str = "as it is"
    divide_by: str = "images of all ranks"
    replace_node: int = -1
    leave_out_node: int = -1
    loader_workers: int = 2
    rows: int = ROWS
    allocator: str = "default"
    empty_cache: bool = False
    torch_cuda: str = "13.0"
    stop_without_gpu: bool = False


@dataclass(frozen=True)
class Fault:
    """What is broken: at most one of these is other than its default. -1 stands for no rank, no layer."""

    gain: tuple[int, float] = (-1, 1.0)  # a layer's output is so many times larger, and made smaller again after it
    stale_rank: int = -1  # found no checkpoint, and starts anew
    unreduced_layer: int = -1
    slow_rank: int = -1
    old_driver: tuple[int, ...] = ()
    driver: str = "13.0"
    decode_s: tuple[float, ...] = (0.001,) * RANKS  # of one batch by one worker
    capacity: int = ROOMY
    side_rank: int = 0  # does what not all ranks do beside the training
    side_first: int = 0  # which of the three kinds of work comes first
    noise: int = 0  # seed of what is harmless: temperatures and warnings


@dataclass
class RankEvidence:
    """What one rank leaves: a value for each step that it began, and how it ended."""

    log: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    own_norms: list[float] = field(default_factory=list)  # of this rank's gradients, before the all-reduce
    norms: list[float] = field(default_factory=list)  # of those that change the weights
    checksums: list[str] = field(default_factory=list)
    activations: list[list[float]] = field(default_factory=list)  # by step: the largest of each layer
    images: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    gpu_s: list[float] = field(default_factory=list)  # that the GPU computed
    cpu_s: list[float] = field(default_factory=list)  # that the CPU computed in its place
    loader_s: list[float] = field(default_factory=list)  # that the rank waited for its images
    sent_bytes: int = 0
    changed: int = 0  # steps that changed the weights
    error: str = ""
    lost_peer: bool = False  # the error is another rank's fault
    stack: list[str] = field(default_factory=list)
    memory: DeviceMemory = field(default_factory=lambda: DeviceMemory(ROOMY))
    driver: str = ""
    device: str = "cuda"
    celsius: int = 0
    mhz: int = 0
    held_out_loss: float = math.nan
    first_weights: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
