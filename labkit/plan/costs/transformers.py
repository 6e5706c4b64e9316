"""BERT-base, GPT-2 XL and Llama 2 as layers.

What a block keeps for the backward pass is counted as in Korthikanti et al. 2022, Reducing activation recomputation
in large transformer models, section 4.1: in 16 bit 34 sbh + 5 as²b bytes for a block with dropout and GELU.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.plan.costs.layers import (
    Cost,
    attention,
    cross_entropy,
    dropout,
    elementwise,
    embedding,
    layer_norm,
    linear,
)
from labkit.plan.costs.networks import Batch, Layer, Network


@dataclass(frozen=True)
class _Shape:
    """Sizes of one block: width, feed-forward width, heads, key and value heads; gated is SwiGLU without dropout."""

    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    gated: bool = False

    @property
    def bias(self) -> bool:
        return not self.gated


def _block_attention(shape: _Shape, b: Batch) -> Cost:
    width, bias = shape.width, shape.bias
    head_dim = width // shape.heads
    projected = width + 2 * head_dim * shape.kv_heads
    return (
        layer_norm(b.tokens, width, bias=bias, element_bytes=b.element_bytes)
        + linear(b.tokens, width, projected, bias=bias, element_bytes=b.element_bytes)
        + attention(
            b.size,
            shape.heads,
            b.seq,
            head_dim,
            kv_heads=shape.kv_heads,
            fused=b.fused_attention,
            dropout=not shape.gated,
            element_bytes=b.element_bytes,
        )
        + linear(b.tokens, width, width, bias=bias, element_bytes=b.element_bytes)
        + _residual(shape, b)
    )


def _residual(shape: _Shape, b: Batch) -> Cost:
    elements = b.tokens * shape.width
    add = elementwise(elements, inputs=2, element_bytes=b.element_bytes)
    return add if shape.gated else add + dropout(elements, element_bytes=b.element_bytes)


def _block_mlp(shape: _Shape, b: Batch) -> Cost:
    """Norm, linear, activation, linear. GELU (8 FLOP) keeps its input; SwiGLU (5) gate, SiLU of it, and the other."""
    width, inner, bias = shape.width, shape.feed_forward, shape.bias
    elements = b.tokens * inner
    if shape.gated:
        activation = elementwise(elements, flop_per_element=5, inputs=2, saved=3, element_bytes=b.element_bytes)
    else:
        activation = elementwise(elements, flop_per_element=8, saved=1, element_bytes=b.element_bytes)
    return (
        layer_norm(b.tokens, width, bias=bias, element_bytes=b.element_bytes)
        + linear(b.tokens, width, inner * (1 + shape.gated), bias=bias, element_bytes=b.element_bytes)
        + activation
        + linear(b.tokens, inner, width, bias=bias, element_bytes=b.element_bytes)
        + _residual(shape, b)
    )


def _blocks(shape: _Shape, times: int) -> tuple[Layer, Layer]:
    return (
        Layer("attention blocks", lambda b: _block_attention(shape, b), times),
        Layer("MLP blocks", lambda b: _block_mlp(shape, b), times),
    )


def _embed(name: str, vocabulary: int, width: int) -> Layer:
    return Layer(name, lambda b: embedding(b.tokens, vocabulary, width, element_bytes=b.element_bytes))


def _head(shape: _Shape, vocabulary: int, *, tied: bool) -> tuple[Layer, Layer, Layer]:
    def project(b: Batch) -> Cost:
        cost = linear(b.tokens, shape.width, vocabulary, bias=False, element_bytes=b.element_bytes)
        # a tied head multiplies by the token embedding, which is counted there
        return cost + Cost(params=-vocabulary * shape.width) if tied else cost

    return (
        Layer(
            "final norm", lambda b: layer_norm(b.tokens, shape.width, bias=shape.bias, element_bytes=b.element_bytes)
        ),
        Layer("head", project),
        Layer("loss", lambda b: cross_entropy(b.tokens, vocabulary, element_bytes=b.element_bytes)),
    )


def bert_base() -> Network:
    """BERT-base, uncased, with its pooler and without a head: 12 blocks of 768, 109,482,240 parameters.

    Source: Devlin, Chang, Lee and Toutanova, BERT (2019), section 3; vocabulary 30,522 of the released checkpoint.
    """
    shape = _Shape(width=768, feed_forward=3072, heads=12, kv_heads=12)
    layers = (
        _embed("token embedding", 30_522, 768),
        _embed("position embedding", 512, 768),
        _embed("segment embedding", 2, 768),
        Layer("embedding norm", lambda b: layer_norm(b.tokens, 768, element_bytes=b.element_bytes)),
        Layer("embedding dropout", lambda b: dropout(b.tokens * 768, element_bytes=b.element_bytes)),
        *_blocks(shape, 12),
        Layer("pooler", lambda b: linear(b.size, 768, 768, element_bytes=b.element_bytes)),
    )
    return Network("BERT-base", layers, "sequence of 512 tokens", "Devlin et al. 2019", seq=512, max_seq=512)


def gpt2_xl() -> Network:
    """GPT-2 XL: 48 blocks of 1600, 25 heads, head tied to the embedding: 1,557,611,200 parameters.

    Source: Radford et al., Language models are unsupervised multitask learners (2019), table 2 (prints 1542M); the
    released checkpoint has the count given here.
    """
    shape = _Shape(width=1600, feed_forward=6400, heads=25, kv_heads=25)
    layers = (
        _embed("token embedding", 50_257, 1600),
        _embed("position embedding", 1024, 1600),
        Layer("embedding dropout", lambda b: dropout(b.tokens * 1600, element_bytes=b.element_bytes)),
        *_blocks(shape, 48),
        *_head(shape, 50_257, tied=True),
    )
    return Network("GPT-2 XL", layers, "sequence of 1,024 tokens", "Radford et al. 2019", seq=1024, max_seq=1024)


def llama2(name: str, *, blocks: int, width: int, feed_forward: int, heads: int, kv_heads: int) -> Network:
    """A Llama 2 decoder: RMSNorm, SwiGLU, rotary positions (no parameters), no biases, no dropout, an untied head.

    Source: Touvron et al., Llama 2: open foundation and fine-tuned chat models (2023), section 2.2.
    """
    shape = _Shape(width=width, feed_forward=feed_forward, heads=heads, kv_heads=kv_heads, gated=True)
    layers = (_embed("token embedding", 32_000, width), *_blocks(shape, blocks), *_head(shape, 32_000, tied=False))
    return Network(name, layers, "sequence of 4,096 tokens", "Touvron et al. 2023", seq=4096)


def llama2_7b() -> Network:
    """Llama 2 7B: 6,738,415,616 parameters."""
    return llama2("Llama-2-7B", blocks=32, width=4096, feed_forward=11_008, heads=32, kv_heads=32)


def llama2_70b() -> Network:
    """Llama 2 70B, 8 query heads to a key and value head: 68,976,648,192 parameters."""
    return llama2("Llama-2-70B", blocks=80, width=8192, feed_forward=28_672, heads=64, kv_heads=8)
