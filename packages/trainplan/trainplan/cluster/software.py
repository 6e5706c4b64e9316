"""What a library does in a training step that no data sheet says: its kernels, how it
exchanges, and what it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from trainplan._text import lookup
from trainplan.arguments import Count, Dtype, Share, Size, checked
from trainplan.costs.memory_costs import precision
from trainplan.csv_tables import rows, settings


@functools.cache
def versions() -> Mapping[str, str]:
    """The libraries that have rules, and the version of each that they were read in."""
    return {row["library"]: row["version"] for row in rows("libraries")}


@checked
@dataclass(frozen=True)
class Software:
    """The habits of a library. The defaults are those of compiled PyTorch, in a program
    of one's own.

    `attention` is the generation of the fused attention: 1 and 2 use Ampere's
    instructions on newer devices too, 3 (and cuDNN's) those of the device (Dao 2023,
    FlashAttention-2; Shah et al. 2024, FlashAttention-3). `fused`: a chain of
    element-wise operations is one kernel, not one each. `early_stop`: the second
    forward pass of a block ends before its last product, which nothing needs
    (torch.utils.checkpoint with use_reentrant=False). `async_tensor`: what of the
    tensor ranks' traffic runs beside products: "backward", that of gradients, beside
    the gradients of weights (Megatron-LM from 2022), or "all", in pieces of a product
    (Wang et al. 2023, Overlap communication with dependent computation; Transformer
    Engine; torch's asynchronous tensor parallelism). `reshard`: ZeRO-3 gathers the
    weights for every pass of every micro-batch; without, once a step, and keeps them.
    `float8_gather`: it gathers them in 8 bit where they are computed with in 8 bit;
    `float8_dispatch`: so are tokens sent to experts, not what comes back (DeepSeek-AI
    2024, DeepSeek-V3, section 3.3.3; DeepEP). `fused_loss`: the loss works in the
    logits' place. `fused_gradients`: the product that makes a weight's gradient adds it
    to the sum of earlier micro-batches (Megatron-LM from 2022); else a kernel of its
    own reads and writes both. `copied_gathers`: sequence-parallel gathers and scatters
    aren't along the first dimension, and so are copied (torch's DTensor;
    pytorch/torchtitan, pull request 437). `messages` is the number of collectives in
    which gradients (or new weights) of a block are exchanged under ZeRO-0 and 1; 0 puts
    those of all blocks into one. `gradient_copies`: bytes a parameter of gradients
    beside the sum, such as the buckets of DistributedDataParallel; `bucket` numbers of
    gradients wait beside them under ZeRO, whatever the model. `balanced`: stages
    have layers so that their products take as long, the head's among them, and not
    equally many. `fragments`: what the allocator holds and can't use, as a share of
    what a step allocates and frees; fitted by trainplan_published/fit_cluster.py to the
    library's published memory; of llm-foundry, which published none, assumed so that
    its runs fit what is printed, but for two that a full memory slowed. `library` is
    the one of data/libraries.csv whose rules a layout must keep; "" has none. `dtype`
    is the precision, a name of PRECISIONS, in which it trains unless it is told
    otherwise. `logit_bytes` are those of a logit in all blocks of memory that a
    loss which isn't fused takes: in torch logits in 16 bit, whose room their gradient
    finds free, and three of 4 bytes, for logits in float32, their log-probabilities and
    the gradient of these (torch.nn.functional.cross_entropy). `logit_tokens`: how many
    tokens have logits at once, where head and loss work through pieces (0: all), or
    `logit_pieces` how many pieces there are.
    `wide_table_states`: optimizers in 8 bit keep the embedding's states in float32.
    `unfused_attention` names the models whose attention keeps its scores in memory.

    `dispatch` is how tokens get to experts on other ranks. "all-to-all" sorts them by
    expert, sends a copy to each and sorts what arrives, and the host waits for their
    counts (Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py,
    MoEAlltoAllTokenDispatcher). "HybridEP" sends a copy to each node that has some of
    a token's experts, and sorts on the way, as DeepEP does (DeepSeek-AI 2024,
    DeepSeek-V3, section 3.2.2; NVIDIA Megatron Bridge,
    skills/nemo-mbridge-perf-moe-dispatcher-selection). `graphs`: CUDA graphs launch a
    block with experts but for the experts. `expert_overlap`: tokens travel beside the
    compute of another micro-batch (overlap_moe_expert_parallel_comm).
    """

    attention: Literal[1, 2, 3] = 2
    fused: bool = True
    early_stop: bool = True
    async_tensor: Literal["no", "backward", "all"] = "no"
    reshard: bool = True
    float8_gather: bool = False
    float8_dispatch: bool = False
    fused_loss: bool = False
    fused_gradients: bool = False
    copied_gathers: bool = True
    messages: Size = 0
    gradient_copies: Size = 0
    bucket: Size = 0
    balanced: bool = False
    fragments: Share = 0.2
    library: str = ""
    dtype: Dtype = "mixed bfloat16"
    logit_bytes: Count = 14
    logit_tokens: Size = 0
    logit_pieces: Count = 1
    wide_table_states: bool = False
    unfused_attention: str = ""
    dispatch: Literal["all-to-all", "HybridEP"] = "all-to-all"
    graphs: bool = False
    expert_overlap: bool = False

    def __post_init__(self) -> None:
        precision(self.dtype)
        if self.library:
            lookup(self.library, versions(), "library")


# The presets of data/software.csv, which says why each is so.
SOFTWARE: Mapping[str, Software] = MappingProxyType(
    {row["name"]: Software(**settings(row)) for row in rows("software")}
)
TORCH = SOFTWARE["torch"]
TORCHTITAN = SOFTWARE["torchtitan"]
