"""Transformers as layers: any Transformer's decoder, and BERT-base.

What a block keeps for the backward pass is counted as in Korthikanti et al. 2022,
Reducing activation recomputation in large transformer models, section 4.1: in 16 bit 34
sbh + 5 as²b bytes for a block with dropout and GELU.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from trainplan.arguments import checked
from trainplan.costs.layers import (
    Cost,
    attention,
    cross_entropy,
    dropout,
    elementwise,
    embedding,
    layer_norm,
    linear,
)
from trainplan.costs.mixers import (
    ATTENTIONS,
    CHOSEN,
    CONVOLVED,
    EXPERTS,
    MLP,
    STATE_SPACES,
    WINDOW,
)
from trainplan.costs.networks import BatchShape, Network
from trainplan.costs.transformers import Transformer


def _attention(model: Transformer, b: BatchShape, letter: str) -> Cost:
    """Norm, products to queries, keys and values, attention, product, residual sum;
    norms of what latent heads share; a gate of attention's output; the compression and
    choice of keys.

    A head is as wide as the mean of its queries and values.
    """
    window = model.window if letter == WINDOW else 0
    if model.compressed is not None:
        window = math.ceil(model.compressed.keys(letter, b.seq))
    bias = not model.gated
    width = (model.query_width + model.value_width) // 2 // model.heads
    cost = attention(
        b.size,
        model.heads,
        b.seq,
        width,
        kv_heads=model.key_value_heads,
        window=window,
        fused=b.fused_attention,
        dropout=model.dropout,
    )
    if model.attention_gate:
        gated = b.tokens * model.query_width
        cost += elementwise(gated, flop_per_element=5, inputs=2, saved=2)
    cost += layer_norm(b.tokens, model.hidden, bias=bias)
    key_rank = model.kv_rank
    if model.compressed is not None:
        key_rank = model.compressed.head_dim
    for rank in (model.query_rank, key_rank):
        if rank:
            cost += layer_norm(b.tokens, rank, bias=False)
    for inputs, outputs in model.attention_products:
        cost += linear(b.tokens, inputs, outputs, bias=bias)
    if model.compressed is not None:
        cost += _compressing(model, b, letter)
    return cost + _residual(model, b)


def _compressing(model: Transformer, b: BatchShape, letter: str) -> Cost:
    """The products that compress and choose keys, the scores of the choice, and the
    parameters of both that are in no product.
    """
    compressed = model.compressed
    assert compressed is not None  # such a mixer has sizes
    cost = Cost()
    for inputs, outputs in compressed.compressing(letter):
        cost += linear(b.tokens, inputs, outputs, bias=False)
    if letter == CHOSEN:
        cost += Cost(matmul_flop=b.tokens * compressed.index_flop(b.seq))
    in_products = cost.params + sum(
        inputs * outputs for inputs, outputs in compressed.products
    )
    in_norms = model.query_rank + compressed.head_dim
    others = compressed.params(letter) - in_products - in_norms
    return cost + Cost(params=others)


def _residual(model: Transformer, b: BatchShape) -> Cost:
    """The sum behind a mixer, with dropout; of several streams a product that says how
    they mix.
    """
    elements = b.tokens * model.hidden
    add = elementwise(elements, inputs=2)
    if model.streams > 1:
        streams = model.streams
        mixing = linear(
            b.tokens, streams * model.hidden, streams * (streams + 2), bias=False
        )
        mixed = elementwise(
            streams * elements, flop_per_element=2 * streams, inputs=2, saved=1
        )
        return replace(mixing, params=model.stream_params) + mixed
    return add + dropout(elements) if model.dropout else add


def _state_space(model: Transformer, b: BatchShape) -> Cost:
    """Norm, product, convolution, scan in chunks, gate and norm of its output, product,
    residual sum. Kept is StateSpace.kept.
    """
    state = model.state_space
    assert state is not None  # such a mixer has sizes
    tokens = b.tokens
    products = [
        linear(tokens, inputs, outputs, bias=False)
        for inputs, outputs in state.products
    ]
    # a multiply-add for each token that the convolution spans, and SiLU (4)
    convolution = elementwise(
        tokens * state.convolved, flop_per_element=2 * CONVOLVED + 4
    )
    scan = Cost(
        matmul_flop=tokens * state.chunked_flop,
        moved_elements=tokens * (state.convolved + state.values),
    )
    # SiLU of the gate, times it, then a norm (7)
    gate = elementwise(tokens * state.values, flop_per_element=12, inputs=2)
    cost = products[0] + convolution + scan + gate + products[1]
    cost += layer_norm(tokens, model.hidden, bias=not model.gated)
    cost += _residual(model, b)
    in_all = state.params + (model.hidden if model.gated else 2 * model.hidden)
    kept = tokens * state.kept
    return replace(cost, params=in_all, saved_elements=kept)


def _mlp(model: Transformer, b: BatchShape, *, routed: bool) -> Cost:
    """Norm, linear, activation, linear. GELU (8 FLOP) keeps its input; SwiGLU (5) gate,
    SiLU of it, and the other.

    Of experts, those that a token meets count as one MLP, and the router's product; of
    the others the parameters.
    """
    h = model.hidden
    inner = model.used_inner
    bias = not model.gated
    flop, factors, saved = (5, 2, 3) if model.has_gated_mlp else (8, 1, 1)
    activation = elementwise(
        b.tokens * inner, flop_per_element=flop, inputs=factors, saved=saved
    )
    cost = (
        layer_norm(b.tokens, h, bias=bias)
        + linear(b.tokens, h, inner * factors, bias=bias)
        + activation
        + linear(b.tokens, inner, h, bias=bias)
        + _residual(model, b)
    )
    if routed:
        others = model.expert_params * (model.experts - model.top_k)
        cost += linear(b.tokens, h, model.experts, bias=False) + Cost(params=others)
    return cost


def _blocks(model: Transformer, b: BatchShape) -> dict[str, Cost]:
    mixers = model.mixers
    attention_blocks = Cost()
    for letter in ATTENTIONS:
        if mixers[letter]:
            attention_blocks += _attention(model, b, letter) * mixers[letter]
    costs = {"attention blocks": attention_blocks}
    if model.state_space is not None:
        states = sum(mixers[letter] for letter in STATE_SPACES)
        costs["state space blocks"] = _state_space(model, b) * states
    costs["MLP blocks"] = (
        _mlp(model, b, routed=False) * mixers[MLP]
        + _mlp(model, b, routed=True) * mixers[EXPERTS]
    )
    return costs


def _decoder(model: Transformer, b: BatchShape) -> dict[str, Cost]:
    h = model.hidden
    vocab = model.vocab
    inputs = {"token embedding": embedding(b.tokens, vocab, h)}
    head = linear(b.tokens, h, vocab, bias=False)
    if not model.gated:
        inputs["position embedding"] = embedding(b.tokens, model.seq, h)
    if model.has_tied_head:  # its parameters are counted as the embedding's
        head += Cost(params=-vocab * h)
    # residual streams are weighed before the head
    in_norm = h if model.gated else 2 * h
    in_head = 0 if model.has_tied_head else h * vocab
    weighing = Cost(params=model.head_params - in_norm - in_head)
    if model.dropout:
        inputs["embedding dropout"] = dropout(b.tokens * h)
    return {
        **inputs,
        **_blocks(model, b),
        "final norm": layer_norm(b.tokens, h, bias=not model.gated) + weighing,
        "head": head,
        "loss": cross_entropy(b.tokens, vocab),
    }


@checked
def decoder(model: Transformer) -> Network:
    """A Transformer's layers, with the loss over its vocabulary: learned positions in a
    GPT, rotary ones in a Llama.
    """
    sample = f"sequence of {model.seq:,} tokens"
    longest = None if model.gated else model.seq
    return Network(
        model.name,
        functools.partial(_decoder, model),
        sample,
        model.source,
        model.seq,
        longest,
    )


def _bert(b: BatchShape) -> dict[str, Cost]:
    model = Transformer(12, 768, 12, vocab=30_522, seq=512, dropout=True)
    return {
        "token embedding": embedding(b.tokens, 30_522, 768),
        "position embedding": embedding(b.tokens, 512, 768),
        "segment embedding": embedding(b.tokens, 2, 768),
        "embedding norm": layer_norm(b.tokens, 768),
        "embedding dropout": dropout(b.tokens * 768),
        **_blocks(model, b),
        "pooler": linear(b.size, 768, 768),
    }


# Uncased, with its pooler and without a head: 12 blocks of 768, 109,482,240 parameters.
# Source: Devlin, Chang, Lee and Toutanova, BERT (2019), section 3; vocabulary 30,522 of
# the released checkpoint.
BERT_BASE = Network(
    "BERT-base",
    _bert,
    "sequence of 512 tokens",
    "Devlin et al. 2019",
    seq=512,
    max_seq=512,
)

# 48 blocks of 1600, 25 heads, head tied to the embedding: 1,557,611,200 parameters.
# Source: Radford et al., Language models are unsupervised multitask learners (2019),
# table 2 (prints 1542M); the released checkpoint has this count.
GPT2_XL = decoder(
    Transformer(
        48,
        1600,
        25,
        50_257,
        1024,
        dropout=True,
        name="GPT-2 XL",
        source="Radford et al. 2019",
    )
)
