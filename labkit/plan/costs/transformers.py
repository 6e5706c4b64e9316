"""Transformers by their sizes: parameters, FLOP by the two conventions that publications use, and published models."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from labkit.core.arguments import check_number, lookup
from labkit.core.display import Shown
from labkit.core.errors import LayoutError
from labkit.core.units import GIGA, MEGA, significant

_NARAYANAN = "Narayanan et al. 2021, Efficient large-scale language model training on GPU clusters, table 1"


@dataclass(frozen=True, repr=False)
class Transformer(Shown):
    """A decoder: `layers` blocks of width `hidden` with `heads` attention heads, `seq` tokens a sequence.

    `feed_forward` None is 4 hidden, `kv_heads` None as many as heads. `gated` is a Llama: SwiGLU, RMSNorm, no biases,
    rotary positions, a head of its own. Otherwise it is a GPT: GELU, biases, learned positions, a head tied to the
    embedding. `fused_attention` keeps the scores out of memory and skips what the causal mask hides (FlashAttention).
    `dropout` after attention and after each sum costs traffic and masks. Raises LayoutError for sizes below 1, and
    for heads that don't divide.
    """

    layers: int
    hidden: int
    heads: int
    vocab: int = 51_200
    seq: int = 2048
    feed_forward: int | None = None
    kv_heads: int | None = None
    gated: bool = False
    fused_attention: bool = True
    dropout: bool = False
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "vocab", "seq"):
            check_number(name, getattr(self, name), least=1, whole=True, error=LayoutError)
        for name in ("feed_forward", "kv_heads"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least=1, whole=True, error=LayoutError)
        if self.hidden % self.heads:
            raise LayoutError(f"Expected heads that divide hidden = {self.hidden:,}, got {self.heads}.")
        if self.heads % self.key_value_heads:
            raise LayoutError(f"Expected kv_heads that divide the {self.heads} heads, got {self.kv_heads}.")

    @property
    def inner(self) -> int:
        """Width of the MLP between its two products."""
        return self.feed_forward or 4 * self.hidden

    @property
    def key_value_heads(self) -> int:
        """How many key and value heads there are."""
        return self.kv_heads or self.heads

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        return self.hidden // self.heads * self.key_value_heads

    @functools.cached_property
    def block_params(self) -> int:
        """Parameters of one block, norms and biases included."""
        h, f, kv = self.hidden, self.inner, self.kv_width
        weights = 2 * h * h + 2 * h * kv + (3 if self.gated else 2) * h * f
        small = 2 * h if self.gated else 4 * h + (h + 2 * kv) + h + f + h
        return weights + small

    @property
    def embedding_params(self) -> int:
        """Parameters of the token embedding, with learned positions where the model has them."""
        return self.hidden * (self.vocab + (0 if self.gated else self.seq))

    @property
    def head_params(self) -> int:
        """Parameters of the final norm and of the head, where it isn't tied to the embedding."""
        return self.hidden * (self.vocab + 1) if self.gated else 2 * self.hidden

    @functools.cached_property
    def params(self) -> int:
        """All parameters."""
        return self.layers * self.block_params + self.embedding_params + self.head_params

    @functools.cached_property
    def flop_per_token(self) -> int:
        """6 N + 12 L h s: forward and backward FLOP of one token, the full square of attention, nothing recomputed.

        Source: Chowdhery et al. 2022, PaLM, appendix B; the convention of MosaicML's llm-foundry too.
        """
        return 6 * self.params + 12 * self.layers * self.hidden * self.seq

    def narayanan_flop(self, sequences: int, recompute: bool = True) -> float:
        """96 B s l h² (1 + s/6h + V/16lh): FLOP of a step of B sequences with its blocks' forward run twice.

        Without `recompute` 72 B s l h² (1 + s/6h + V/12lh). Written with this model's matrices, which for a GPT gives
        those. Source: Narayanan et al. 2021, appendix, equation 3; Korthikanti et al. 2022, appendix A.
        """
        h, tokens = self.hidden, sequences * self.seq
        matrices = 2 * h * h + 2 * h * self.kv_width + (3 if self.gated else 2) * h * self.inner
        block = 2 * tokens * (matrices + 2 * h * self.seq)
        return (4 if recompute else 3) * self.layers * block + 6 * tokens * h * self.vocab

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return (
            f"{name}{billions(self.params)} parameters, {self.layers} layers of {self.hidden:,}, "
            f"{self.heads} heads, {self.seq:,} tokens"
        )


def billions(count: float) -> str:
    """A count of parameters in words: 1.75e11 -> '175 billion'."""
    return f"{significant(count / GIGA)} billion" if count >= GIGA else f"{significant(count / MEGA)} million"


def _gpt(name: str, layers: int, hidden: int, heads: int) -> Transformer:
    return Transformer(layers, hidden, heads, name=name, source=_NARAYANAN)


def _llama(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    inner: int,
    *,
    kv_heads: int,
    vocab: int = 32_000,
    seq: int = 4096,
    source: str = "Touvron et al. 2023, Llama 2",
) -> Transformer:
    return Transformer(
        layers, hidden, heads, vocab, seq, feed_forward=inner, kv_heads=kv_heads, gated=True, name=name, source=source
    )


_DUBEY = "Llama team 2024, The Llama 3 herd of models, table 3"
_KNOWN = (
    _gpt("GPT 1.7B", 24, 2304, 24),
    _gpt("GPT 3.6B", 30, 3072, 32),
    _gpt("GPT 7.5B", 36, 4096, 32),
    _gpt("GPT 18B", 40, 6144, 48),
    Transformer(48, 6144, 64, name="GPT 22B", source="Korthikanti et al. 2022, table 3"),
    _gpt("GPT 39B", 48, 8192, 64),
    _gpt("GPT 76B", 60, 10_240, 80),
    _gpt("GPT 145B", 80, 12_288, 96),
    Transformer(96, 12_288, 96, name="GPT-3 175B", source="Korthikanti et al. 2022, table 3"),
    _gpt("GPT 310B", 96, 16_384, 128),
    _gpt("GPT 530B", 105, 20_480, 128),
    _gpt("GPT 1T", 128, 25_600, 160),
    _llama("Llama-2-7B", 32, 4096, 32, 11_008, kv_heads=32),
    _llama("Llama-2-13B", 40, 5120, 40, 13_824, kv_heads=40),
    _llama("Llama-2-70B", 80, 8192, 64, 28_672, kv_heads=8),
    _llama("Llama-3-8B", 32, 4096, 32, 14_336, kv_heads=8, vocab=128_256, seq=8192, source=_DUBEY),
    _llama("Llama-3-70B", 80, 8192, 64, 28_672, kv_heads=8, vocab=128_256, seq=8192, source=_DUBEY),
    _llama("Llama-3-405B", 126, 16_384, 128, 53_248, kv_heads=8, vocab=128_256, seq=8192, source=_DUBEY),
)
MODELS: Mapping[str, Transformer] = MappingProxyType({model.name: model for model in _KNOWN})


def model(name: str) -> Transformer:
    """A published Transformer by its name in MODELS, in any case of letters. Raises BadArgument with the nearest."""
    exact = {known.casefold(): known for known in MODELS}.get(str(name).casefold(), name)
    return lookup(exact, MODELS, "model")
