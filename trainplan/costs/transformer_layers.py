"""Transformers as layers: any Transformer's decoder, and BERT-base.

What a block keeps for the backward pass is counted as in Korthikanti et al. 2022, Reducing activation recomputation
in large transformer models, section 4.1: in 16 bit 34 sbh + 5 as²b bytes for a block with dropout and GELU.
"""

from __future__ import annotations

from trainplan.arguments import checked
from trainplan.costs.layers import Cost, attention, cross_entropy, dropout, elementwise, embedding, layer_norm, linear
from trainplan.costs.networks import BatchShape, LayerCost, Network
from trainplan.costs.transformers import Transformer


def _attention(model: Transformer, b: BatchShape) -> Cost:
    """Norm, projection to queries, keys and values, attention, projection, residual sum."""
    h, bias = model.hidden, not model.gated
    return (
        layer_norm(b.tokens, h, bias=bias)
        + linear(b.tokens, h, h + 2 * model.kv_width, bias=bias)
        + attention(
            b.size,
            model.heads,
            b.seq,
            h // model.heads,
            kv_heads=model.key_value_heads,
            fused=b.fused_attention,
            dropout=model.dropout,
        )
        + linear(b.tokens, h, h, bias=bias)
        + _residual(model, b)
    )


def _residual(model: Transformer, b: BatchShape) -> Cost:
    elements = b.tokens * model.hidden
    add = elementwise(elements, inputs=2)
    return add + dropout(elements) if model.dropout else add


def _mlp(model: Transformer, b: BatchShape) -> Cost:
    """Norm, linear, activation, linear. GELU (8 FLOP) keeps its input; SwiGLU (5) gate, SiLU of it, and the other."""
    h, inner, bias = model.hidden, model.inner, not model.gated
    flop, factors, saved = (5, 2, 3) if model.gated else (8, 1, 1)
    return (
        layer_norm(b.tokens, h, bias=bias)
        + linear(b.tokens, h, inner * factors, bias=bias)
        + elementwise(b.tokens * inner, flop_per_element=flop, inputs=factors, saved=saved)
        + linear(b.tokens, inner, h, bias=bias)
        + _residual(model, b)
    )


def _blocks(model: Transformer) -> tuple[LayerCost, LayerCost]:
    return (
        LayerCost("attention blocks", lambda b: _attention(model, b), model.layers),
        LayerCost("MLP blocks", lambda b: _mlp(model, b), model.layers),
    )


def _embedding(name: str, vocabulary: int, width: int) -> LayerCost:
    return LayerCost(name, lambda b: embedding(b.tokens, vocabulary, width))


def _embedding_dropout(width: int) -> LayerCost:
    return LayerCost("embedding dropout", lambda b: dropout(b.tokens * width))


def _norm(name: str, model: Transformer) -> LayerCost:
    bias = not model.gated
    return LayerCost(name, lambda b: layer_norm(b.tokens, model.hidden, bias=bias))


def _head(model: Transformer) -> LayerCost:
    def cost(b: BatchShape) -> Cost:
        product = linear(b.tokens, model.hidden, model.vocab, bias=False)
        # a GPT's head multiplies by the token embedding, whose parameters are counted there
        return product if model.gated else product + Cost(params=-model.vocab * model.hidden)

    return LayerCost("head", cost)


@checked
def decoder(model: Transformer) -> Network:
    """A Transformer's layers, with the loss over its vocabulary: learned positions in a GPT, rotary ones in a Llama."""
    embeddings = [_embedding("token embedding", model.vocab, model.hidden)]
    if not model.gated:
        embeddings.append(_embedding("position embedding", model.seq, model.hidden))
    if model.dropout:
        embeddings.append(_embedding_dropout(model.hidden))
    loss = LayerCost("loss", lambda b: cross_entropy(b.tokens, model.vocab))
    layers = (*embeddings, *_blocks(model), _norm("final norm", model), _head(model), loss)
    longest = None if model.gated else model.seq
    return Network(
        model.name, layers, f"sequence of {model.seq:,} tokens", model.source, seq=model.seq, max_seq=longest
    )


def bert_base() -> Network:
    """BERT-base, uncased, with its pooler and without a head: 12 blocks of 768, 109,482,240 parameters.

    Source: Devlin, Chang, Lee and Toutanova, BERT (2019), section 3; vocabulary 30,522 of the released checkpoint.
    """
    model = Transformer(12, 768, 12, vocab=30_522, seq=512, dropout=True)
    layers = (
        _embedding("token embedding", 30_522, 768),
        _embedding("position embedding", 512, 768),
        _embedding("segment embedding", 2, 768),
        _norm("embedding norm", model),
        _embedding_dropout(768),
        *_blocks(model),
        LayerCost("pooler", lambda b: linear(b.size, 768, 768)),
    )
    return Network("BERT-base", layers, "sequence of 512 tokens", "Devlin et al. 2019", seq=512, max_seq=512)


def gpt2_xl() -> Network:
    """GPT-2 XL: 48 blocks of 1600, 25 heads, head tied to the embedding: 1,557,611,200 parameters.

    Source: Radford et al., Language models are unsupervised multitask learners (2019), table 2 (prints 1542M); the
    released checkpoint has the count given here.
    """
    source = "Radford et al. 2019"
    return decoder(Transformer(48, 1600, 25, 50_257, 1024, dropout=True, name="GPT-2 XL", source=source))
