"""Transformers by their sizes: parameters, FLOP by the two conventions that
publications use, and published models.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, ClassVar

from trainplan._tables import Shown
from trainplan._text import brief_repr, nearest
from trainplan._units import GIGA, MEGA, significant
from trainplan.arguments import Bounds, Count, NonNegative, Size, checked
from trainplan.csv_tables import rows, settings

# searches try every divisor
_Searched = Annotated[int, Bounds(least=1, most=1_000_000)]


@checked
@dataclass(frozen=True, repr=False)
class Transformer(Shown):
    """A decoder: `layers` blocks of width `hidden` with `heads` attention heads, `seq`
    tokens a sequence.

    `feed_forward` None is 4 hidden, `kv_heads` None as many as heads, `head_dim` None
    hidden / heads. `gated` is a Llama: SwiGLU, RMSNorm, no biases, rotary positions, a
    head of its own, unless `tied` makes the embedding the head. Otherwise it is a GPT:
    GELU, biases, learned positions, a head tied to the embedding. With `experts` each
    block has so many MLPs of width `feed_forward` and a router that sends each token to
    `top_k` of them, and to one more of width `shared` (Shazeer et al. 2017); the first
    `dense` blocks have one MLP as wide as what a token meets of those. No token is
    dropped ("dropless") unless `capacity` is given: then an expert takes that many
    times its mean share, and is padded to it. `max_nodes` limits the nodes that a
    token's experts are on (0: as many as there are). `ahead` more blocks predict later
    tokens, each with a product of 2 hidden to hidden and the head once more (DeepSeek-
    AI 2024, DeepSeek-V3, section 2.2).

    With a `kv_rank` attention is latent: keys and values are made from so many numbers
    a token, queries from `query_rank`, `head_dim` of a head's query and key have no
    positions, `rotary` more have, whose keys all heads share, and a head's values are
    `value_dim` wide (DeepSeek-AI 2024, DeepSeek-V2, section 2.1). With `adapters` only
    products of that rank beside attention's are trained (Hu et al. 2021, LoRA, section
    4.2). `fused_attention` keeps the scores out of memory and skips what the causal
    mask hides (FlashAttention). `dropout` after attention and after each sum costs
    traffic and masks. Raises ValueError for sizes below 1, for heads that don't
    divide, for more experts a token than there are, and for latent attention or experts
    that can't be so.
    """

    MAKER: ClassVar = "trainplan.model('Llama-2-70B') returns one."
    layers: _Searched
    hidden: Count
    heads: _Searched
    vocab: Count = 51_200
    seq: Count = 2048
    feed_forward: Count | None = None
    kv_heads: _Searched | None = None
    head_dim: Count | None = None
    experts: Size = 0
    top_k: Count = 1
    shared: Size = 0
    dense: Size = 0
    capacity: NonNegative = 0
    max_nodes: Size = 0
    ahead: Size = 0
    kv_rank: Size = 0
    query_rank: Size = 0
    rotary: Size = 0
    value_dim: Size = 0
    adapters: Size = 0
    gated: bool = False
    tied: bool = False
    fused_attention: bool = True
    dropout: bool = False
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(
                f"Expected heads that divide hidden = {self.hidden:,}, got"
                f" {self.heads}."
            )
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"Expected kv_heads that divide the {self.heads} heads, got"
                f" {self.kv_heads}."
            )
        if self.top_k > max(self.experts, 1):
            raise ValueError(
                f"Expected top_k of at most the {self.experts} experts, got"
                f" {self.top_k}."
            )
        if not self.experts:
            of_experts = {
                "shared": self.shared,
                "capacity": self.capacity,
                "max_nodes": self.max_nodes,
            }
            names = [name for name, value in of_experts.items() if value]
            if names:
                raise ValueError(f"Expected experts with {', '.join(names)}, got none.")
        most_dense = self.layers - 1 if self.experts else 0
        if self.dense > most_dense:
            raise ValueError(
                f"Expected dense blocks before blocks with experts, got {self.dense} of"
                f" {self.layers}."
            )
        latent = (self.kv_rank, self.query_rank, self.rotary, self.value_dim)
        if any(latent) and not (all(latent) and self.head_dim and self.gated):
            numbers = ", ".join(str(number) for number in latent)
            raise ValueError(
                "Expected kv_rank, query_rank, rotary, value_dim and head_dim"
                " together, in a gated model: latent attention needs them all. Got"
                f" {numbers} and {self.head_dim}."
            )
        if self.adapters and self.experts:
            raise ValueError(
                f"Expected adapters = 0 with experts, got {self.adapters}. Take a dense"
                " model."
            )

    @property
    def inner(self) -> int:
        """Width of an MLP between its two products."""
        return self.feed_forward or 4 * self.hidden

    @property
    def used_inner(self) -> int:
        """Width of all MLPs that a token passes through, together."""
        return self.inner * self.top_k + self.shared if self.experts else self.inner

    @functools.cached_property
    def query_width(self) -> int:
        """Width of all heads' queries together."""
        head_dim = self.head_dim or self.hidden // self.heads
        return self.heads * (head_dim + self.rotary)

    @functools.cached_property
    def value_width(self) -> int:
        """Width of all heads' outputs together."""
        return self.heads * self.value_dim or self.query_width

    @property
    def key_value_heads(self) -> int:
        """How many key and value heads there are."""
        return self.kv_heads or self.heads

    @functools.cached_property
    def kv_width(self) -> int:
        """Width of the keys, and of the values; the mean of both where they differ."""
        mean_width = (self.query_width + self.value_width) // 2
        return mean_width // self.heads * self.key_value_heads

    @property
    def cached_width(self) -> int:
        """Numbers of a token from which its keys and values in a layer are made: what
        inference keeps of it.
        """
        return self.kv_rank + self.rotary if self.kv_rank else 2 * self.kv_width

    @functools.cached_property
    def attention_products(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of a block's products around attention."""
        h = self.hidden
        q = self.query_width
        v = self.value_width
        if not self.kv_rank:
            return ((h, q + 2 * self.kv_width), (q, h))
        return (
            (h, self.query_rank + self.cached_width),
            (self.query_rank, q),
            (self.kv_rank, q - self.heads * self.rotary + v),
            (v, h),
        )

    @functools.cached_property
    def block_params(self) -> int:
        """Parameters of one block, norms and biases included."""
        return self.used_params + self.expert_params * (self.experts - self.top_k)

    @property
    def expert_params(self) -> int:
        """Parameters of one of a block's experts; 0 where there are none."""
        if not self.experts:
            return 0
        matrices = 3 if self.gated else 2
        return matrices * self.hidden * self.inner

    @functools.cached_property
    def used_params(self) -> int:
        """Parameters of one block that a token meets: all of them, or without experts
        that it isn't sent to.
        """
        h = self.hidden
        f = self.used_inner
        attention = sum(inputs * outputs for inputs, outputs in self.attention_products)
        router = h * self.experts
        if self.gated:
            norms = 2 * h + self.query_rank + self.kv_rank
            return attention + 3 * h * f + router + norms
        norms = 4 * h
        biases = (self.query_width + 2 * self.kv_width) + h + f + h
        return attention + 2 * h * f + router + norms + biases

    @property
    def ahead_params(self) -> int:
        """Parameters of the blocks that predict later tokens, each with its product and
        three norms more.
        """
        return self.ahead * (self.block_params + self.hidden * (2 * self.hidden + 3))

    @property
    def has_tied_head(self) -> bool:
        """Whether the head is the token embedding, as it is in every GPT."""
        return self.tied or not self.gated

    @property
    def embedding_params(self) -> int:
        """Parameters of the token embedding, with learned positions where the model has
        them.
        """
        return self.hidden * (self.vocab + (0 if self.gated else self.seq))

    @property
    def head_params(self) -> int:
        """Parameters of the final norm and of the head, where it isn't tied to the
        embedding.
        """
        norm = self.hidden if self.gated else 2 * self.hidden
        return norm if self.has_tied_head else norm + self.hidden * self.vocab

    @functools.cached_property
    def params(self) -> int:
        """All parameters, without those of adapters."""
        blocks = (
            (self.layers - self.dense) * self.block_params
            + self.dense * self.dense_params
            + self.ahead_params
        )
        return blocks + self.embedding_params + self.head_params

    @property
    def dense_params(self) -> int:
        """Parameters of a block with one MLP as wide as what a token meets of a block
        with experts.
        """
        return self.used_params - self.hidden * self.experts

    @property
    def trained_params(self) -> int:
        """Parameters that are trained: all, or those of adapters alone."""
        if not self.adapters:
            return self.params
        widths = sum(inputs + outputs for inputs, outputs in self.attention_products)
        return self.layers * self.adapters * widths

    @functools.cached_property
    def flop_per_token(self) -> int:
        """6 N + 12 L h s: forward and backward FLOP of one token, the full square of
        attention, nothing recomputed.

        Of experts only those count that a token meets; a frozen weight has no gradient,
        so that its product counts 4. Source: Chowdhery et al. 2022, PaLM, appendix B;
        the convention of MosaicML's llm-foundry too.
        """
        blocks = self.layers + self.ahead
        unused = self.block_params - self.used_params
        used = self.params - (blocks - self.dense) * unused
        used += self.ahead * self.head_params
        gradients = 6 * self.trained_params if self.adapters else 2 * used
        scores = 6 * blocks * (self.query_width + self.value_width) * self.seq
        return 4 * used + gradients + scores

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        if self.params >= GIGA:
            count = f"{significant(self.params / GIGA)} billion"
        else:
            count = f"{significant(self.params / MEGA)} million"
        return (
            f"{name}{count} parameters, {self.layers} layers of {self.hidden:,},"
            f" {self.heads} heads, {self.seq:,} tokens"
        )


# Published models, by data/models.csv, which names where each was read.
MODELS: Mapping[str, Transformer] = MappingProxyType(
    {
        row["name"]: Transformer(
            **settings(row), name=row["name"], source=row["source"]
        )
        for row in rows("models")
    }
)

# What a name may end in that says how a model was trained on, and when, not its sizes.
_VERSION = re.compile(
    r"[-_ ](instruct|chat|base|it|pt|hf|thinking|sft|dpo|reasoning|v0\.\d|\d{4})"
    r"(?![a-z0-9.])"
)


def plain_name(name: str) -> str:
    """A model's name as names are compared: small letters and digits, without the
    organization, hyphens and what doesn't change the sizes.

    "meta-llama/Llama-3.1-8B-Instruct" is "llama3.18b".
    """
    own = name.casefold().rpartition("/")[2]
    shortened = _VERSION.sub("", own)
    return re.sub(r"[^a-z0-9.]|\.(?!\d)", "", shortened)


@functools.cache
def _names() -> dict[str, str]:
    """The names in MODELS by the plain names that find them, each model's other names
    among them.
    """
    names = {}
    for row in rows("models"):
        for name in (row["name"], *row["also"].split()):
            names[plain_name(name)] = row["name"]
    return names


def _begins(plain: str, name: str) -> bool:
    """Whether a model's name begins with a plain one, which doesn't end inside a
    number: 22B begins no 2.
    """
    rest = name.casefold()
    for letter in plain:
        rest = rest.lstrip(" -")
        if not rest.startswith(letter):
            return False
        rest = rest[1:]
    return not (plain[-1:].isdigit() and re.match(r"\.?\d", rest))


@checked
def model(name: str) -> Transformer:
    """A published Transformer by the name that Hugging Face or its paper gives it, in
    any case, with or without hyphens and organization.

    So is the only one whose name begins like this; a beginning that ends inside a
    number is none: 22B isn't a 2. Raises ValueError with the nearest names.
    """
    names = _names()
    plain = plain_name(name)
    if plain in names:
        return MODELS[names[plain]]
    longer = [name for name in MODELS if plain and _begins(plain, name)]
    if len(longer) == 1:
        return MODELS[longer[0]]
    near = longer or [names[other] for other in nearest(plain, names)]
    raise ValueError(
        f"Expected a model such as llama3.1-70b, got {brief_repr(name)}. The nearest"
        f" are {', '.join(dict.fromkeys(near))}."
    )
