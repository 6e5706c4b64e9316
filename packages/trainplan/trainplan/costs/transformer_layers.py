"""Transformers as layers: any Transformer's decoder, and BERT-base.

What a block keeps for the backward pass is counted as in Korthikanti et al. 2022,
Reducing activation recomputation in large transformer models, section 4.1: in 16 bit 34
sbh + 5 as²b bytes for a block with dropout and GELU.
"""

from __future__ import annotations

import functools

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
from trainplan.costs.networks import BatchShape, Network
from trainplan.costs.transformers import Transformer


def _attention(model: Transformer, b: BatchShape) -> Cost:
    """Norm, products to queries, keys and values, attention, product, residual sum;
    norms of what latent heads share.

    A head is as wide as the mean of its queries and values.
    """
    bias = not model.gated
    width = (model.query_width + model.value_width) // 2 // model.heads
    cost = attention(
        b.size,
        model.heads,
        b.seq,
        width,
        kv_heads=model.key_value_heads,
        fused=b.fused_attention,
        dropout=model.dropout,
    )
    cost += layer_norm(b.tokens, model.hidden, bias=bias)
    for rank in (model.query_rank, model.kv_rank):
        if rank:
            cost += layer_norm(b.tokens, rank, bias=False)
    for inputs, outputs in model.attention_products:
        cost += linear(b.tokens, inputs, outputs, bias=bias)
    return cost + _residual(model, b)


def _residual(model: Transformer, b: BatchShape) -> Cost:
    elements = b.tokens * model.hidden
    add = elementwise(elements, inputs=2)
    return add + dropout(elements) if model.dropout else add


def _mlp(model: Transformer, b: BatchShape) -> Cost:
    """Norm, linear, activation, linear. GELU (8 FLOP) keeps its input; SwiGLU (5) gate,
    SiLU of it, and the other.

    Of experts, those that a token meets count as one MLP, and the router's product; of
    the others the parameters.
    """
    h = model.hidden
    inner = model.used_inner
    bias = not model.gated
    flop, factors, saved = (5, 2, 3) if model.gated else (8, 1, 1)
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
    if model.experts:
        others = model.expert_params * (model.experts - model.top_k)
        cost += linear(b.tokens, h, model.experts, bias=False) + Cost(params=others)
    return cost


def _blocks(model: Transformer, b: BatchShape) -> dict[str, Cost]:
    # experts that dense blocks lack
    lacking = model.dense * (model.block_params - model.dense_params)
    return {
        "attention blocks": _attention(model, b) * model.layers,
        "MLP blocks": _mlp(model, b) * model.layers + Cost(params=-lacking),
    }


def _decoder(model: Transformer, b: BatchShape) -> dict[str, Cost]:
    h = model.hidden
    vocab = model.vocab
    inputs = {"token embedding": embedding(b.tokens, vocab, h)}
    head = linear(b.tokens, h, vocab, bias=False)
    if not model.gated:
        inputs["position embedding"] = embedding(b.tokens, model.seq, h)
    if model.has_tied_head:  # its parameters are counted as the embedding's
        head += Cost(params=-vocab * h)
    if model.dropout:
        inputs["embedding dropout"] = dropout(b.tokens * h)
    return {
        **inputs,
        **_blocks(model, b),
        "final norm": layer_norm(b.tokens, h, bias=not model.gated),
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
