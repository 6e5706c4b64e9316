"""What one rank holds and does of a step, derived once from model, cluster, layout and batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trainplan.cluster.hardware import Cluster, group_link
from trainplan.cluster.layout import Layout, stage_layers
from trainplan.costs.collectives import Link
from trainplan.costs.memory_costs import Precision, precision
from trainplan.costs.transformers import Transformer


@dataclass(frozen=True)
class RankShare:
    """One rank's share of a step of `batch` sequences in a layout that divides them (layout.why_not is empty).

    Each number is derived when it is first asked for, and kept.
    """

    model: Transformer
    cluster: Cluster
    layout: Layout
    batch: int

    @cached_property
    def kind(self) -> Precision:
        """Bytes a number by its role."""
        return precision(self.layout.dtype)

    @cached_property
    def microbatches(self) -> int:
        """Micro-batches that the rank works through."""
        return self.layout.microbatches(self.batch)

    @cached_property
    def tokens(self) -> float:
        """Tokens of one micro-batch."""
        return self.layout.micro_batch * self.model.seq / self.layout.context

    @cached_property
    def boundary_bytes(self) -> float:
        """Bytes of the activations between two blocks, of one micro-batch."""
        return self.tokens * self.model.hidden * self.kind.activation_bytes

    @cached_property
    def sequence_split(self) -> int:
        """Among how many ranks what isn't split by heads is split along the sequence."""
        return self.layout.tensor if self.layout.sequence_parallel else 1

    @cached_property
    def query_width(self) -> float:
        """Width of the rank's heads."""
        return self.model.query_width / self.layout.tensor

    @cached_property
    def kv_width(self) -> float:
        """Width of the rank's keys, and of its values: one head at least."""
        return max(self.model.kv_width / self.layout.tensor, self.model.query_width / self.model.heads)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """Layers of each stage, of all its chunks together."""
        divided = stage_layers(self.model.layers, self.layout.pipeline, self.layout.interleave)
        assert divided is not None  # why_not refuses the others
        return divided

    @property
    def first_layers(self) -> float:
        """Layers whose parameters a rank exchanges one after another, on average."""
        return max(self.model.layers / self.layout.pipeline, 1)

    @cached_property
    def block_params(self) -> tuple[float, float]:
        """Parameters of a block without ZeRO: outside of experts, and in them."""
        in_experts = self.model.experts * self.model.expert_params
        split = self.layout.tensor if self.layout.expert == 1 else self.layout.expert
        return (self.model.block_params - in_experts) / self.layout.tensor, in_experts / split

    def stage_params(self, stage: int) -> tuple[float, float]:
        """Parameters of a rank of a stage without ZeRO: outside of experts, and in them.

        For a tied head the last stage has a copy of the embedding. DualPipe holds two stages.
        """
        model, p, ends = self.model, self.layout.pipeline, 0
        if stage == 0:
            ends += model.embedding_params
        if stage == p - 1:
            ends += model.head_params + (model.vocab * model.hidden if p > 1 and not model.gated else 0)
        copies = 2 if self.layout.schedule == "DualPipe" else 1
        others, in_experts = self.block_params
        layers = copies * self.layers[stage]
        return layers * others + copies * ends / self.layout.tensor, layers * in_experts

    @cached_property
    def tensor_link(self) -> Link:
        """The link of the tensor ranks, who stand side by side."""
        return group_link(self.cluster, self.layout.tensor, 1)

    @cached_property
    def context_link(self) -> Link:
        """The link of the context ranks."""
        return group_link(self.cluster, self.layout.context, self.layout.tensor)

    @cached_property
    def expert_link(self) -> Link:
        """The link of the ranks that share the experts."""
        return group_link(self.cluster, self.layout.expert, 1)

    @cached_property
    def data_link(self) -> Link:
        """The link of the ranks among which ZeRO splits."""
        return group_link(self.cluster, self.layout.sharded, self.layout.tensor)
