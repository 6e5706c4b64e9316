"""Compute time on one GPU for one micro-batch: one block, the embedding, and the head with its loss."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from labkit.measure.catalog import Device
from labkit.plan.cluster.constants import CONSTANTS, LOGIT_BYTES, RANDOM_FLOP, SOFTMAX_FLOP, Constants
from labkit.plan.cluster.rates import Rates, rates
from labkit.plan.costs.memory_costs import precision
from labkit.plan.costs.transformers import Transformer


@dataclass(frozen=True)
class PassTimes:
    """Seconds forward, seconds backward, and the seconds of the forward pass that attention's scores take."""

    forward_s: float
    backward_s: float
    scores_s: float = 0.0


@functools.lru_cache(maxsize=4096)
def block_times(
    model: Transformer,
    device: Device,
    dtype: str,
    micro_batch: int,
    tensor: int,
    sequence_parallel: bool,
    constants: Constants = CONSTANTS,
) -> PassTimes:
    """Times of one block on one of `tensor` ranks. Raises LayoutError like `rates`."""
    kind = precision(dtype)
    rate, e = rates(device, kind.compute_dtype, constants), kind.activation_bytes
    tokens, h, f = micro_batch * model.seq, model.hidden, model.inner / tensor
    queries, keys = h / tensor, max(model.kv_width / tensor, h / model.heads)
    up = (2 if model.gated else 1) * f
    forward = backward = 0.0
    for inputs, outputs in ((h, queries + 2 * keys), (queries, h), (h, up), (f, h)):
        forward += rate.matmul_s(tokens, outputs, inputs, element_bytes=e)
        backward += rate.matmul_s(tokens, inputs, outputs, element_bytes=e)
        backward += rate.matmul_s(inputs, outputs, tokens, element_bytes=e, added_bytes=2 * kind.gradient_bytes)
    shared = tensor if sequence_parallel else 1
    # two norms read and write, two residual sums read two and write one; a dropout mask takes a byte an element
    norms = tokens * h * (2 * 2 * e + 2 * 3 * e + 2 * model.dropout) / shared
    activation = tokens * f * (3 if model.gated else 2) * e
    rotary = 2 * tokens * (queries + keys) * e if model.gated else 0
    vector_s = (norms + activation + rotary) / rate.bytes_per_s
    scores = (
        _fused(model, rate, micro_batch, tensor)
        if model.fused_attention
        else _unfused(model, rate, micro_batch, tensor, e)
    )
    return PassTimes(
        forward + vector_s + scores.forward_s, backward + 2 * vector_s + scores.backward_s, scores.forward_s
    )


def _fused(model: Transformer, rate: Rates, micro_batch: int, tensor: int) -> PassTimes:
    """FlashAttention: half of the square and the blocks on its diagonal; 5 products backward where forward has 2.

    Source: Dao et al. 2022, FlashAttention, section 3 and appendix B.
    """
    pairs = micro_batch * model.heads / tensor * model.seq * (model.seq + 128) / 2
    product = 2 * pairs * model.hidden / model.heads / rate.attention_flop_per_s
    softmax = SOFTMAX_FLOP * pairs / rate.vector_flop_per_s
    return PassTimes(2 * product + softmax, 5 * product + softmax)


def _unfused(model: Transformer, rate: Rates, micro_batch: int, tensor: int, e: int) -> PassTimes:
    """Scores in memory, the full square: 2 products; scale, mask and softmax in one kernel; dropout with its mask."""
    count, width, seq = micro_batch * model.heads / tensor, model.hidden / model.heads, model.seq
    product = rate.matmul_s(seq, seq, width, count, e) + rate.matmul_s(seq, width, seq, count, e)
    elements = count * seq * seq / rate.bytes_per_s
    drop = (2 * e + 1) * model.dropout
    random = RANDOM_FLOP * model.dropout * count * seq * seq / rate.vector_flop_per_s
    # the gradient of the scores' inputs is a product along seq, twice, and that of the scores one along the width
    backward = 2 * rate.matmul_s(seq, width, seq, count, e)
    backward += rate.matmul_s(seq, seq, width, count, e) + rate.matmul_s(seq, width, seq, count, e)
    return PassTimes(product + random + (2 * e + drop) * elements, backward + (3 * e + drop) * elements)


@functools.lru_cache(maxsize=4096)
def edge_times(
    model: Transformer, device: Device, dtype: str, micro_batch: int, tensor: int, constants: Constants = CONSTANTS
) -> tuple[PassTimes, PassTimes]:
    """Times of the embedding, and of the final norm, head and loss. Raises LayoutError like `rates`."""
    kind = precision(dtype)
    rate, e = rates(device, kind.compute_dtype, constants), kind.activation_bytes
    tokens, h, vocab = micro_batch * model.seq, model.hidden, model.vocab / tensor
    lookup = 2 * e * tokens * h / rate.bytes_per_s
    head = rate.matmul_s(tokens, vocab, h, element_bytes=e)
    backward = rate.matmul_s(tokens, h, vocab, element_bytes=e) + rate.matmul_s(h, vocab, tokens, element_bytes=e)
    loss = LOGIT_BYTES * tokens * vocab / rate.bytes_per_s
    return PassTimes(lookup, 2 * lookup), PassTimes(head + lookup + loss / 3, backward + 2 * lookup + 2 * loss / 3)
