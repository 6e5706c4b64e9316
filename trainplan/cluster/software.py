"""What a library does in a training step that no data sheet says: its kernels, and how it exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from trainplan.arguments import Share, Size, checked


@checked
@dataclass(frozen=True)
class Software:
    """The habits of a library. The defaults are those of compiled PyTorch.

    `attention` is the generation of the fused attention: 1 and 2 use Ampere's instructions on newer devices too, 3 (and
    cuDNN's) those of the device (Dao 2023, FlashAttention-2; Shah et al. 2024, FlashAttention-3). `fused`: a chain of
    element-wise operations is one kernel, not one each. `early_stop`: the second forward pass of a block ends before
    its last product, which nothing needs (torch.utils.checkpoint with use_reentrant=False). `async_tensor`: what of the
    tensor ranks' traffic runs beside products: "backward", that of gradients, beside the gradients of weights
    (Megatron-LM from 2022), or "all", in pieces of a product (Wang et al. 2023, Overlap communication with dependent
    computation; Transformer Engine; torch's asynchronous tensor parallelism). `reshard`: ZeRO-3 gathers the weights for
    every pass of every micro-batch; without, once a step, and keeps them. `float8_gather`: it gathers them in 8 bit
    where they are computed with in 8 bit; `float8_dispatch`: so are tokens sent to experts, not what comes back
    (DeepSeek-AI 2024, DeepSeek-V3, section 3.3.3; DeepEP). `fused_loss`: the loss works in the logits' place.
    `fused_gradients`: the product that makes a weight's gradient adds it to the sum of earlier micro-batches
    (Megatron-LM from 2022); else a kernel of its own reads and writes both. `copied_gathers`: sequence-parallel gathers
    and scatters aren't along the first dimension, and so are copied (torch's DTensor; pytorch/torchtitan, pull request
    437). `messages` is the number of collectives in which gradients (or new weights) of a block are exchanged under
    ZeRO-0 and 1; 0 puts those of all blocks into one. `gradient_copies`: bytes a parameter of gradients beside the sum,
    such as the buckets of DistributedDataParallel. `fragments`: what the allocator holds and can't use, as a share of
    what a step allocates and frees; fitted by scripts/fit_memory.py to the library's published memory, and torch's
    where none was published.
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
    fragments: Share = 0.1


_MEGATRON = Software(early_stop=False, fused_loss=True, copied_gathers=False, fragments=0.0)
SOFTWARE: Mapping[str, Software] = MappingProxyType(
    {
        # blocks are compiled, the loss is not (torchtitan until 2024)
        "torch": Software(),
        "torch eager": Software(fused=False),
        # Megatron-LM's own recomputation runs a block's forward pass to its end
        # (megatron/core/tensor_parallel/random.py)
        "Megatron-LM 2021": _MEGATRON,
        "Megatron-LM": replace(_MEGATRON, async_tensor="backward", fused_gradients=True),
        "Transformer Engine": replace(_MEGATRON, attention=3, async_tensor="all", fused_gradients=True),
        "DeepSeek": replace(_MEGATRON, attention=3, early_stop=True, fused_gradients=True, float8_dispatch=True),
        # element-wise chains of a GPT are few; attention is the Triton kernel of FlashAttention 1, and the loss
        # FlashAttention's, in the logits' place
        "llm-foundry": Software(attention=1, fused_loss=True, fragments=0.05),
        "llm-foundry, torch 2.0": Software(attention=1, early_stop=False, fused_loss=True, fragments=0.05),
        # XLA's collective matmuls and asynchronous collectives, switched on in MaxText's scripts for TPUs; jax.checkpoint
        # drops from the second forward pass what no gradient needs (jax/_src/ad_checkpoint.py, remat_dce)
        "MaxText": Software(async_tensor="all", fused_loss=True, copied_gathers=False, fragments=0.0),
        # ZeRO-1 exchanges tensor by tensor: 4 matrices and 2 norms a block (nanotron, optim/zero.py). 16-bit gradients and
        # DistributedDataParallel's buckets stay beside the float32 sum (optim/gradient_accumulator.py)
        "nanotron": Software(copied_gathers=False, messages=6, gradient_copies=4, fragments=0.35),
    }
)
TORCH = SOFTWARE["torch"]
