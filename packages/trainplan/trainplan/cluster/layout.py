"""How a training step is split over the ranks of a cluster, and a model's layers over
the stages of its pipeline.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Literal

from trainplan._tables import Shown
from trainplan.arguments import Count, Dtype, Size, checked
from trainplan.cluster.software import TORCH, Software
from trainplan.costs.memory_costs import optimizer_states, precision
from trainplan.costs.transformers import Transformer

RECOMPUTES = ("none", "selective", "half", "full")
SHORT = {  # what the command line and tables call a field of Layout
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "cp": "context",
    "ep": "expert",
    "vp": "interleave",
    "mb": "micro_batch",
    "zero": "zero",
    "recompute": "recompute",
    "balance": "balance",
}


@checked
@dataclass(frozen=True, repr=False)
class Layout(Shown):
    """`data` x `tensor` x `pipeline` x `context` ranks, tensor ranks side by side in a
    node.

    `interleave` is the chunks of a pipeline rank; `zero` what the data ranks split
    among them: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too (FSDP);
    `micro_batch` the sequences a rank works on at once; `recompute` what the backward
    pass computes again: "none", "selective" (attention's scores), "half" (every second
    product and all that is element-wise, as torchtitan does) or "full" (blocks, from
    their inputs). `overlap` hides data and pipeline communication behind compute where
    it can. `dtype` is a name of PRECISIONS, by default that of `software`;
    `optimizer` one of OPTIMIZER_STATES (trainplan.costs.memory_costs).

    `context` ranks share each sequence and pass keys and values round (Liu et al. 2023,
    Ring attention); for weights and gradients they are data ranks. `expert` of the
    tensor, data and context ranks share a block's experts, each whole, and send tokens
    to each other (Lepikhin et al. 2021, GShard). `shard` is over how many of them ZeRO
    splits, in groups that are replicas of each other (HSDP; None: over all). `schedule`
    is that of the pipeline; "ZB-V" and "DualPipe" have two chunks a rank. `offload`
    keeps optimizer state in main memory and updates there (Ren et al. 2021,
    ZeRO-Offload). Of ZeRO-3's weights those of `prefetch` blocks are gathered ahead of
    the one that is computed (0: none, so that their gathering hides behind nothing),
    and each block's are given up after its forward pass, to be gathered again, or kept
    until its backward pass where `reshard_after_forward` is False (torch's FSDP 2).
    `offload_activations` sends what the backward pass needs to main memory and fetches
    it again, beside compute (torchtune's and TRL's OffloadActivations). `balance` is of
    experts: "forced" gives all of them as many tokens, as published speeds mostly do,
    "learned" lets the router choose, so that ranks wait for the fullest. `software`
    says how the library works, and with a library's name what it can run.
    Raises ValueError for counts below 1 and unknown levels.
    """

    data: Count = 1
    tensor: Count = 1
    pipeline: Count = 1
    interleave: Count = 1
    zero: Literal[0, 1, 2, 3] = 0
    micro_batch: Count = 1
    recompute: Literal["none", "selective", "half", "full"] = "none"
    sequence_parallel: bool = True
    dtype: Dtype = ""
    optimizer: str = "adam"
    overlap: bool = True
    context: Count = 1
    expert: Count = 1
    shard: Count | None = None
    schedule: Literal["1F1B", "ZB-H1", "ZB-V", "DualPipe"] = "1F1B"
    offload: bool = False
    prefetch: Size = 1
    reshard_after_forward: bool = True
    offload_activations: bool = False
    balance: Literal["forced", "learned"] = "forced"
    software: Software = TORCH

    def __post_init__(self) -> None:
        if not self.dtype:
            object.__setattr__(self, "dtype", self.software.dtype)
        precision(self.dtype)
        optimizer_states(self.optimizer)

    @property
    def gpus(self) -> int:
        """Ranks in all, one a GPU."""
        return self.replicas * self.tensor * self.pipeline

    @property
    def replicas(self) -> int:
        """Ranks with the same parameters, among which gradients are summed: data x
        context.
        """
        return self.data * self.context

    @property
    def same_experts(self) -> int:
        """Ranks with the same experts; where none are apart, each tensor rank has a
        part of every expert.
        """
        if self.expert == 1:
            return self.replicas
        return self.replicas * self.tensor // self.expert

    @property
    def sharded(self) -> int:
        """Ranks among which ZeRO splits."""
        return self.shard or self.replicas

    @checked
    def microbatches(self, batch: Count) -> int:
        """Micro-batches that each pipeline works through in a step of `batch`
        sequences.
        """
        return batch // (self.data * self.micro_batch)

    @property
    def short(self) -> str:
        """As the command line takes it: what isn't the default, and always tp; dp
        follows from the GPUs.
        """
        settings = []
        for name, field in SHORT.items():
            value = getattr(self, field)
            default = getattr(Layout, field)
            if name == "tp" or (name != "dp" and value != default):
                settings.append(f"{name}={value}")
        return ",".join(settings)

    def __str__(self) -> str:
        ranks = f"{self.data} data x {self.tensor} tensor x {self.pipeline} pipeline"
        if self.context > 1:
            ranks += f" x {self.context} context"
        parts = [ranks]
        if self.expert > 1:
            parts.append(f"{self.expert} expert ranks")
        if self.schedule != "1F1B":
            parts.append(self.schedule)
        if self.interleave > 1:
            parts.append(f"{self.interleave} chunks a rank")
        if self.zero:
            zero = "ZeRO-3 (FSDP)" if self.zero == 3 else f"ZeRO-{self.zero}"
            groups = "" if self.shard is None else f" in groups of {self.shard}"
            parts.append(zero + groups)
        parts.append(f"micro-batch {self.micro_batch}")
        parts.append(f"recompute {self.recompute}")
        if self.optimizer not in ("adam", "adamw"):
            parts.append(self.optimizer)
        if self.offload:
            parts.append("optimizer offloaded")
        if self.offload_activations:
            parts.append("activations offloaded")
        return ", ".join(parts)


def divisors(number: int) -> list[int]:
    """All divisors of a number, ascending."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


@functools.lru_cache(maxsize=4096)
def stage_layers(layers: int, pipeline: int, interleave: int) -> tuple[int, ...] | None:
    """Layers of each stage, of all its chunks together; None where there are more
    chunks than layers.

    Where `layers` + 2 divide, the first and the last stage have one layer fewer, in
    place of which they have the embedding and the head (Llama team 2024, section 3.3.2;
    Qi et al. 2024, section 5). Where neither divides, some chunks have a layer more
    than others: those of the inner stages first.
    """
    chunks = pipeline * interleave
    if layers % chunks == 0:
        return (layers // pipeline,) * pipeline
    if pipeline > 1 and (layers + 2) % chunks == 0 and layers + 2 >= 2 * pipeline:
        inner = (layers + 2) // pipeline
        return (inner - 1, *(inner,) * (pipeline - 2), inner - 1)
    if chunks > layers:
        return None
    sizes = [layers // chunks * interleave] * pipeline
    order = [*range(1, pipeline - 1), 0, pipeline - 1]
    for i in range(layers % chunks):
        sizes[order[i % pipeline]] += 1
    return tuple(sizes)


@functools.lru_cache(maxsize=4096)
def layers_of_stages(
    model: Transformer, pipeline: int, interleave: int, software: Software
) -> tuple[int, ...] | None:
    """Layers of each stage, as the software deals them: `stage_layers`, or by cost
    where its stages are balanced.

    By cost a stage is full with the block that takes all stages so far above their
    share of blocks and head. None where a stage is left without a layer. Source:
    huggingface/nanotron, src/nanotron/models/base.py, build_model, and models/llama.py,
    get_block_compute_costs.
    """
    if not software.balanced or pipeline == 1:
        return stage_layers(model.layers, pipeline, interleave)
    block = 4 * model.query_width * model.hidden + 3 * model.used_inner * model.hidden
    share = (model.layers * block + model.vocab * model.hidden) / pipeline / block
    ends = [0, *(int(share * stage) + 1 for stage in range(1, pipeline)), model.layers]
    sizes = tuple(end - start for start, end in itertools.pairwise(ends))
    return sizes if min(sizes) > 0 else None
