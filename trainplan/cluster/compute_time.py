"""Compute time on one GPU for one micro-batch: one block, the embedding, and the head
with its loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trainplan.cluster.constants import (
    FLASH_BACKWARD,
    LOGIT_BYTES,
    RANDOM_FLOP,
    SOFTMAX_FLOP,
    Constants,
)
from trainplan.cluster.rank_share import RankShare
from trainplan.cluster.rates import Rates, rates
from trainplan.costs.transformers import Transformer

# Bytes that an operation moves an element, forward, as one kernel and (as a kernel
# each) in eager PyTorch. RMSNorm: cast to float32 (2 + 4), square (8), mean (4), times
# (8), cast back (4 + 2), times the weight (4). Rotary positions: cast to float32 (6),
# complex product (8), cast back (6). SwiGLU: silu (4), product (6).
_NORM = (4, 36)
_ROTARY = (4, 20)
_SWIGLU = (6, 10)


@dataclass(frozen=True)
class PassTimes:
    """Seconds forward and backward; and of the forward pass those of attention's
    scores, of products, of the last.
    """

    forward_s: float
    backward_s: float
    scores_s: float = 0.0
    products_s: float = 0.0
    last_s: float = 0.0


class ComputeTimes(NamedTuple):
    """Times of one micro-batch on one rank: of a block, the embedding, and the final
    norm, head and loss.

    `byte_s` are the seconds that a byte takes to or from memory.
    """

    block: PassTimes
    embedding: PassTimes
    head: PassTimes
    byte_s: float


def compute_times(share: RankShare, constants: Constants) -> ComputeTimes:
    """The ComputeTimes of a rank. Raises LayoutError like `rates`."""
    rate = rates(share.cluster.gpu, share.kind.compute_dtype, constants)
    return ComputeTimes(
        _block(share, rate, constants), *_edges(share, constants), 1 / rate.bytes_per_s
    )


def _block(share: RankShare, rate: Rates, constants: Constants) -> PassTimes:
    model = share.model
    layout = share.layout
    kind = share.kind
    tokens = share.tokens
    h = model.hidden
    t = layout.tensor
    e = kind.activation_bytes
    products = [(tokens, inputs, outputs, 1.0) for inputs, outputs in share.products]
    adapted = len(products) * (model.adapters > 0)
    if model.experts:
        local = model.experts / layout.expert
        # experts that have a rank of their own are whole
        split = t if layout.expert == 1 else 1
        routed = tokens * split / t * model.top_k * (model.capacity or 1) / local
        mlps = [(routed, model.inner / split, local)] + [
            (tokens, model.shared / t, 1.0)
        ] * (model.shared > 0)
    else:
        mlps = [(tokens, model.inner / t, 1.0)]
    for rows, f, count in mlps:
        products += [
            (rows, h, (2 if model.gated else 1) * f, count),
            (rows, f, h, count),
        ]
    forward = backward = last = 0.0
    cast = constants.cast * 4 / rate.bytes_per_s if kind.scaled else 0.0
    for i, (rows, inputs, outputs, count) in enumerate(products):
        last = rate.matmul_s(rows, outputs, inputs, count, element_bytes=e)
        forward += last + cast * count * (rows * inputs + inputs * outputs)
        backward += (
            rate.matmul_s(rows, inputs, outputs, count, element_bytes=e)
            + cast * count * rows * outputs
        )
        weight = (inputs, outputs)
        rank = model.adapters
        added = 2 * kind.gradient_bytes
        if not rank:
            backward += rate.matmul_s(
                *weight, rows, count, element_bytes=e, added_bytes=added
            )
        elif i < adapted:
            # two products forward and four backward in place of a frozen weight's
            # gradient
            thin = sum(
                rate.matmul_s(rows, rank, width, count, element_bytes=e)
                for width in weight
            )
            forward = forward + thin
            backward = backward + thin
            backward += sum(
                rate.matmul_s(rank, width, rows, count, e, added) for width in weight
            )
    vector_s = _vector_bytes(share) / rate.bytes_per_s
    scores = (
        _fused(share, rate)
        if model.fused_attention
        else _unfused(model, rate, layout.micro_batch, t, e)
    )
    return PassTimes(
        forward + vector_s + scores.forward_s,
        backward + 2 * vector_s + scores.backward_s,
        scores.forward_s,
        forward,
        last,
    )


def _vector_bytes(share: RankShare) -> float:
    """Bytes that all but products and attention move in a block, forward: norms, sums,
    dropout, MLP, positions.
    """
    model = share.model
    layout = share.layout
    tokens = share.tokens
    e = share.kind.activation_bytes
    eager = not layout.software.fused
    # two norms read and write, two residual sums read two and write one; a dropout mask
    # takes a byte an element
    norm = e / 2 * _NORM[eager and model.gated]
    n_bytes = (
        tokens
        * model.hidden
        * (2 * norm + 2 * 3 * e + 2 * model.dropout)
        / share.sequence_split
    )
    inner = tokens * model.used_inner / layout.tensor
    n_bytes += inner * e * (_SWIGLU[eager] / 2 if model.gated else 2)
    if model.gated:
        n_bytes += (
            tokens * (share.query_width + share.kv_width) * e / 2 * _ROTARY[eager]
        )
    if model.experts:  # tokens gathered for their experts and put back, weighted
        n_bytes += 4 * e * tokens * model.hidden * model.top_k * (model.capacity or 1)
    return n_bytes


def _fused(share: RankShare, rate: Rates) -> PassTimes:
    """FlashAttention: half of the square and the blocks on its diagonal; 5 products
    backward where forward has 2.

    Source: Dao et al. 2022, FlashAttention, section 3 and appendix B.
    """
    model = share.model
    layout = share.layout
    ranks = layout.tensor * layout.context
    pairs = layout.micro_batch * model.heads / ranks * model.seq * (model.seq + 128) / 2
    width = (model.query_width + model.value_width) / 2 / model.heads
    product = (
        2 * pairs * width / rate.attention_flop_per_s[layout.software.attention - 1]
    )
    softmax = SOFTMAX_FLOP * pairs / rate.vector_flop_per_s
    return PassTimes(2 * product + softmax, 5 * product / FLASH_BACKWARD + softmax)


def _unfused(
    model: Transformer, rate: Rates, micro_batch: int, tensor: int, e: int
) -> PassTimes:
    """Scores in memory, the full square: 2 products; scale, mask and softmax in one
    kernel; dropout with its mask.
    """
    count = micro_batch * model.heads / tensor
    width = model.query_width / model.heads
    seq = model.seq
    product = rate.matmul_s(seq, seq, width, count, e) + rate.matmul_s(
        seq, width, seq, count, e
    )
    elements = count * seq * seq / rate.bytes_per_s
    drop = (2 * e + 1) * model.dropout * elements
    dropped = max(
        RANDOM_FLOP * model.dropout * count * seq * seq / rate.vector_flop_per_s, drop
    )
    # the gradient of the scores' inputs is a product along seq, twice, and that of the
    # scores one along the width
    backward = 2 * rate.matmul_s(seq, width, seq, count, e)
    backward += rate.matmul_s(seq, seq, width, count, e) + rate.matmul_s(
        seq, width, seq, count, e
    )
    return PassTimes(
        product + 2 * e * elements + dropped, backward + 3 * e * elements + drop
    )


def _edges(share: RankShare, constants: Constants) -> tuple[PassTimes, PassTimes]:
    """Times of the embedding and of the head.

    Both stay in 16 bit where the blocks compute in 8 or 4 bit (Micikevicius et al.
    2022, FP8 formats for deep learning; NVIDIA 2025, Pretraining large language models
    with NVFP4, section 4, which keeps some blocks in 16 bit too).
    """
    dtype = "bfloat16" if share.kind.scaled else share.kind.compute_dtype
    rate = rates(share.cluster.gpu, dtype, constants)
    e = share.kind.activation_bytes
    tokens = share.tokens
    h = share.model.hidden
    vocab = share.model.vocab / share.layout.tensor
    lookup = 2 * e * tokens * h / rate.bytes_per_s
    head = rate.matmul_s(tokens, vocab, h, element_bytes=e)
    backward = rate.matmul_s(tokens, h, vocab, element_bytes=e)
    backward += (
        0 if share.model.adapters else rate.matmul_s(h, vocab, tokens, element_bytes=e)
    )
    loss = LOGIT_BYTES * tokens * vocab / rate.bytes_per_s
    return PassTimes(lookup, 2 * lookup), PassTimes(
        head + lookup + loss / 3, backward + 2 * lookup + 2 * loss / 3
    )
