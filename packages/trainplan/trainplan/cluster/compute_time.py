"""Compute time on one GPU for one micro-batch: one block, the embedding, and the head
with its loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trainplan.cluster.constants import (
    BIAS_BYTES,
    FLASH_BACKWARD,
    LOGIT_BYTES,
    RANDOM_FLOP,
    SOFTMAX_FLOP,
    Constants,
)
from trainplan.cluster.rank_share import RankShare
from trainplan.cluster.rates import Rates, rates
from trainplan.costs.memory_costs import NF4_BYTES
from trainplan.costs.mixers import (
    ATTENTION,
    ATTENTIONS,
    CHOSEN,
    CHOSEN_TOKENS,
    HEAVY,
    MIXERS,
    MLPS,
    STATE_SPACES,
    WINDOW,
)
from trainplan.costs.transformers import Transformer


class _Moved(NamedTuple):
    """Bytes that an operation in 16 bit moves an element, forward: as one kernel, and
    as a kernel for each step in eager PyTorch.
    """

    fused: int
    eager: int

    def by(self, *, eager: bool) -> int:
        return self.eager if eager else self.fused


# RMSNorm: cast to float32 (2 + 4), square (8), mean (4), times (8), cast back (4 + 2),
# times the weight (4). Rotary positions: cast to float32 (6), complex product (8), cast
# back (6). SwiGLU: silu (4), product (6).
_NORM = _Moved(4, 36)
_ROTARY = _Moved(4, 20)
_SWIGLU = _Moved(6, 10)
_FLASH_TILE = 128  # keys of a tile of fused attention


class _Product(NamedTuple):
    """`number` products of (rows, inputs) with weights (inputs, outputs)."""

    rows: float
    inputs: float
    outputs: float
    number: float = 1.0


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
    kind = share.kind
    adapters = model.adapters
    e = kind.activation_bytes
    added = 2 * kind.gradient_bytes  # a gradient is added to the sum so far
    cast = constants.cast * 4 / rate.bytes_per_s if kind.scaled else 0.0
    around = [_Product(share.tokens, *widths) for widths in share.products]
    forward = backward = last = 0.0
    # how many of its mixers a block has, in the mean of those of a pattern
    attentions = model.per_block(*ATTENTIONS)
    weighted = [
        *((attentions, product) for product in around),
        *_compressing(share),
        *((model.per_block(*STATE_SPACES), product) for product in _states(share)),
        *((model.per_block(*MLPS), product) for product in _mlp_products(share)),
    ]
    for times, (rows, inputs, outputs, number) in weighted:
        last = rate.matmul_s(rows, outputs, inputs, number, e)
        cast_forward = cast * number * (rows * inputs + inputs * outputs)
        forward += times * (last + cast_forward)
        backward += times * rate.matmul_s(rows, inputs, outputs, number, e)
        backward += times * cast * number * rows * outputs
        if not adapters:  # else weights are frozen
            backward += times * rate.matmul_s(inputs, outputs, rows, number, e, added)
        if model.quantized:  # read in 4 bit, written and read in 16 bit, in each pass
            weights = times * number * inputs * outputs
            made_s = weights * (NF4_BYTES + 2 * e) / rate.bytes_per_s
            forward += made_s
            backward += made_s
    # beside what adapters are, two thin products forward and four backward
    beside = weighted if model.adapted == "linear" else weighted[: len(around)]
    for times, (rows, inputs, outputs, number) in beside if adapters else ():
        for width in (inputs, outputs):
            thin = rate.matmul_s(rows, adapters, width, number, e)
            forward += times * thin
            backward += times * thin
            backward += times * rate.matmul_s(adapters, width, rows, number, e, added)
    vector_s = _vector_bytes(share, constants) / rate.bytes_per_s
    biases = _biases(share, rate)
    scores = _fused(share, rate) if model.fused_attention else _unfused(share, rate)
    scan_s = _scan_s(share, rate)
    return PassTimes(
        forward + vector_s + scores.forward_s + biases.forward_s + scan_s,
        backward + 2 * vector_s + scores.backward_s + biases.backward_s + 2 * scan_s,
        scores.forward_s,
        forward,
        last,
    )


def _compressing(share: RankShare) -> list[tuple[float, _Product]]:
    """The products that compress and choose keys, whole on each rank, each with how
    often a block has it.
    """
    compressed = share.model.compressed
    if compressed is None:
        return []
    return [
        (share.model.per_block(letter), _Product(share.tokens, *widths))
        for letter in (CHOSEN, HEAVY)
        for widths in compressed.compressing(letter)
    ]


def _states(share: RankShare) -> list[_Product]:
    """The products around a state space; none where there is none."""
    state = share.model.state_space
    if state is None:
        return []
    (hidden, projected), (values, _) = state.products
    tensor = share.layout.tensor
    return [
        _Product(share.tokens, hidden, projected / tensor),
        _Product(share.tokens, values / tensor, hidden),
    ]


def _scan_s(share: RankShare, rate: Rates) -> float:
    """Seconds that the states of a block take forward: their products in chunks, at the
    rate of fused attention's second generation, or the bytes that convolution, scan,
    gate and norm move.

    Nothing was fitted to it: no published step had state spaces. Backward takes twice
    as long.
    """
    state = share.model.state_space
    if state is None:
        return 0.0
    tokens = share.tokens / share.layout.tensor
    e = share.kind.activation_bytes
    products_s = tokens * state.chunked_flop / rate.attention_flop_per_s[1]
    # convolution and scan read and write what is convolved and the output; the norm
    # reads output and gate, and writes
    elements = 3 * state.convolved + 4 * state.values
    moved_s = tokens * e * elements / rate.bytes_per_s
    return share.model.per_block(*STATE_SPACES) * (products_s + moved_s)


def _mlp_products(share: RankShare) -> list[_Product]:
    model = share.model
    tokens = share.tokens
    expert_ranks = share.layout.expert
    t = share.layout.tensor
    factors = 2 if model.has_gated_mlp else 1

    def mlp(rows: float, width: float, number: float = 1.0) -> list[_Product]:
        return [
            _Product(rows, model.hidden, factors * width, number),
            _Product(rows, width, model.hidden, number),
        ]

    if not model.experts:
        return mlp(tokens, model.inner / t)
    experts = model.experts / expert_ranks
    # experts that have a rank of their own are whole
    split = t if expert_ranks == 1 else 1
    products = mlp(share.routed / experts, model.inner / split, experts)
    if model.shared:
        products += mlp(tokens, model.shared / t)
    return products


def _biases(share: RankShare, rate: Rates) -> PassTimes:
    """Times of the kernels that add the second bias of each expert, weighted by the
    token's share of the expert.
    """
    if not share.biases:
        return PassTimes(0.0, 0.0)
    routed = share.model.routed_share * share.routed
    element_s = routed * share.model.hidden / rate.bytes_per_s
    return PassTimes(BIAS_BYTES[0] * element_s, BIAS_BYTES[1] * element_s)


def _vector_bytes(share: RankShare, constants: Constants) -> float:
    """Bytes that all but products and attention move in a block, forward: norms, sums,
    dropout, MLP, positions.
    """
    model = share.model
    tokens = share.tokens
    e = share.kind.activation_bytes
    eager = not share.layout.software.fused
    # two norms read and write, two residual sums read two and write one; a dropout mask
    # takes a byte an element
    norm = e / 2 * _NORM.by(eager=eager and model.gated)
    masks = 2 if model.dropout else 0
    mixers = model.per_block(*MIXERS)
    # residual streams are read to make one of them, and to be mixed, and written
    summed = 3 if model.streams == 1 else 3 * model.streams + 2
    hidden_bytes = mixers * norm + mixers * summed * e + masks
    n_bytes = tokens * model.hidden * hidden_bytes / share.sequence_split
    inner = tokens * model.used_inner / share.layout.tensor
    inner *= model.per_block(*MLPS)
    if model.has_gated_mlp:
        n_bytes += inner * e / 2 * _SWIGLU.by(eager=eager)
    else:
        n_bytes += inner * e * 2
    if model.gated:
        rotated = tokens * (share.query_width + share.kv_width)
        rotated *= model.per_block(*ATTENTIONS)
        n_bytes += rotated * e / 2 * _ROTARY.by(eager=eager)
    # tokens gathered for their experts and put back, weighted
    routed = model.routed_share * share.routed
    n_bytes += 4 * e * routed * model.hidden
    if share.dispatch == "all-to-all":
        n_bytes += constants.all_to_all * routed * model.hidden
    return n_bytes


def _fused(share: RankShare, rate: Rates) -> PassTimes:
    """FlashAttention: half of the square and the blocks on its diagonal; 5 products
    backward where forward has 2.

    Source: Dao et al. 2022, FlashAttention, section 3 and appendix B.
    """
    model = share.model
    layout = share.layout
    ranks = layout.tensor * layout.context
    pairs = layout.micro_batch * model.heads / ranks * _pairs(model)
    width = (model.query_width + model.value_width) / 2 / model.heads
    flop_per_s = rate.attention_flop_per_s[layout.software.attention - 1]
    product = 2 * pairs * width / flop_per_s
    softmax = SOFTMAX_FLOP * pairs / rate.vector_flop_per_s
    index_s = _index_s(share, rate)
    return PassTimes(
        2 * product + softmax + index_s,
        5 * product / FLASH_BACKWARD + softmax + 2 * index_s,
    )


def _index_s(share: RankShare, rate: Rates) -> float:
    """Seconds of the scores by which a block's keys are chosen, forward: half of the
    square, whole on each tensor rank.
    """
    model = share.model
    if model.compressed is None:
        return 0.0
    heads = model.index_heads
    keys = model.seq / CHOSEN_TOKENS / 2
    product = rate.matmul_s(share.tokens, keys, model.index_dim, heads)
    return model.per_block(CHOSEN) * product


def _pairs(model: Transformer) -> float:
    """Pairs of a query and a key that a head and a block compute, in the mean: half of
    the square, or what of it is within the window, and the tiles on the diagonal.
    """
    seq = model.seq
    if model.compressed is not None:
        met = sum(
            model.per_block(letter) * model.compressed.keys(letter, seq)
            for letter in ATTENTIONS
        )
        return seq * met
    pairs = model.per_block(ATTENTION) * seq * (seq + _FLASH_TILE) / 2
    if model.window:
        window = min(model.window, seq)
        # each query has `window` keys but the first ones, who have fewer
        within = window * (seq + _FLASH_TILE / 2) - window**2 / 2
        pairs += model.per_block(WINDOW) * min(within, seq * (seq + _FLASH_TILE) / 2)
    return pairs


def _unfused(share: RankShare, rate: Rates) -> PassTimes:
    """Scores in memory, the full square: 2 products; scale, mask and softmax in one
    kernel; dropout with its mask.
    """
    model = share.model
    seq = model.seq
    e = share.kind.activation_bytes
    count = share.layout.micro_batch * model.heads / share.layout.tensor
    width = model.query_width / model.heads
    along_width_s = rate.matmul_s(seq, seq, width, count, e)
    along_seq_s = rate.matmul_s(seq, width, seq, count, e)
    attentions = model.per_block(*ATTENTIONS)
    scores = count * seq * seq
    byte_s = scores / rate.bytes_per_s  # of a byte a score
    drop_s = dropout_s = 0.0
    if model.dropout:
        drop_s = (2 * e + 1) * byte_s
        dropout_s = max(RANDOM_FLOP * scores / rate.vector_flop_per_s, drop_s)
    # backward, each product has two for the gradients of its inputs: of the four, three
    # are along seq
    return PassTimes(
        attentions * (along_width_s + along_seq_s + 2 * e * byte_s + dropout_s),
        attentions * (along_width_s + 3 * along_seq_s + 3 * e * byte_s + drop_s),
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
    lookup_s = 2 * e * tokens * h / rate.bytes_per_s
    forward_s = rate.matmul_s(tokens, vocab, h, element_bytes=e)
    backward_s = rate.matmul_s(tokens, h, vocab, element_bytes=e)
    if not share.model.adapters:
        backward_s += rate.matmul_s(h, vocab, tokens, element_bytes=e)
    loss_s = LOGIT_BYTES * tokens * vocab / rate.bytes_per_s
    embedding = PassTimes(lookup_s, 2 * lookup_s)
    head = PassTimes(
        forward_s + lookup_s + loss_s / 3, backward_s + 2 * lookup_s + 2 * loss_s / 3
    )
    return embedding, head
