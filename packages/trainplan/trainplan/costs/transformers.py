"""Transformers by their sizes: parameters, FLOP by the two conventions that
publications use, and published models.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from trainplan._tables import Shown
from trainplan._text import brief_repr, nearest
from trainplan._units import GIGA, MEGA, significant
from trainplan.arguments import Bounds, Count, NonNegative, Size, checked
from trainplan.costs.mixers import (
    ATTENTION,
    ATTENTIONS,
    CHOSEN,
    DELTA,
    EXPERTS,
    HEAVY,
    MAMBA,
    MIXERS,
    MLP,
    STATE_SPACES,
    WINDOW,
    CompressedKeys,
    StateSpace,
    blocks_of,
)
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
    times its mean share, and is padded to it. With `expert_biases` every expert adds
    biases to its products, which takes traffic (their parameters aren't counted).
    `max_nodes` limits the nodes that a token's experts are on (0: as many as there
    are). `ahead` more blocks predict later tokens, each with a product of 2 hidden to
    hidden and the head once more (DeepSeek-AI 2024, DeepSeek-V3, section 2.2).

    With a `kv_rank` attention is latent: keys and values are made from so many numbers
    a token, queries from `query_rank`, `head_dim` of a head's query and key have no
    positions, `rotary` more have, whose keys all heads share, and a head's values are
    `value_dim` wide (DeepSeek-AI 2024, DeepSeek-V2, section 2.1). With an
    `attention_gate` queries have as wide a gate of attention's output beside them.

    A `pattern` says what each block is made of, by costs.mixers' letters, and starts
    anew at its end: "W- W- *-" has attention within a `window` of tokens in two of
    three blocks. Without one a block has attention and then its MLP or experts. State
    spaces (M, G) have `state_heads` of width `state_head_dim`, and `state_groups` of
    them share what writes to and reads from their `state_dim` columns. `gated_mlp`
    None is as `gated`; False makes an MLP of two products, as Nemotron-H's. With an
    `out_rank` attention has one key a token and compressed ones (W, C, H; see
    costs.mixers.CompressedKeys): queries come from `query_rank`, the output from
    `out_groups`, and `index_heads` of width `index_dim` choose `index_top_k` keys.
    `streams` residual streams are mixed before and after each mixer (DeepSeek-V4).

    With `adapters` only products of that rank are trained (Hu et al. 2021, LoRA,
    section 4.2), beside those of attention, or where `adapted` is "linear" beside each
    product of a block. `quantized` keeps the blocks' own weights in 4 bit (Dettmers et
    al. 2023, QLoRA), from which each product's are made for a moment.
    `fused_attention` keeps the scores out of memory and skips what the causal mask
    hides (FlashAttention). `dropout` after attention and after each sum costs traffic
    and masks. Raises ValueError for sizes below 1, for heads that don't
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
    expert_biases: bool = False
    max_nodes: Size = 0
    ahead: Size = 0
    kv_rank: Size = 0
    query_rank: Size = 0
    rotary: Size = 0
    value_dim: Size = 0
    attention_gate: bool = False
    pattern: str = ""
    window: Size = 0
    state_heads: Size = 0
    state_head_dim: Size = 0
    state_groups: Size = 0
    state_dim: Size = 0
    out_rank: Size = 0
    out_groups: Size = 0
    index_heads: Size = 0
    index_dim: Size = 0
    index_top_k: Size = 0
    streams: Count = 1
    adapters: Size = 0
    adapted: Literal["attention", "linear"] = "attention"
    quantized: bool = False
    gated: bool = False
    gated_mlp: bool | None = None
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
                "expert_biases": self.expert_biases,
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
        latent = (self.kv_rank, self.rotary, self.value_dim)
        if any(latent) and not (all(latent) and self.head_dim and self.gated):
            numbers = ", ".join(str(number) for number in latent)
            raise ValueError(
                "Expected kv_rank, rotary, value_dim and head_dim together, in a gated"
                " model: latent attention needs them all. Got"
                f" {numbers} and {self.head_dim}."
            )
        if self.experts and (self.quantized or self.adapted != "attention"):
            raise ValueError(
                "Expected adapters beside attention alone, and weights in 16 bit, with"
                " experts, whose products are of many matrices at once, got"
                f" adapted = {self.adapted!r} and quantized = {self.quantized}. Say"
                " --finetune lora:16, or take a dense model."
            )
        if self.quantized and not self.adapters:
            raise ValueError(
                "Expected adapters with quantized weights, which can't be trained, got"
                " none. Say adapters = 16, or --finetune qlora:16."
            )
        self._check_pattern()

    def _check_sizes_of_mixers(self) -> None:
        """ValueError for sizes of mixers that no block has, or that are missing."""
        # letters, and the fields that are set where a block has one of them
        fields_of = {
            (MAMBA, DELTA): (
                "state_heads",
                "state_head_dim",
                "state_groups",
                "state_dim",
            ),
            (CHOSEN, HEAVY): (
                "out_rank",
                "out_groups",
                "index_heads",
                "index_dim",
                "index_top_k",
            ),
            (WINDOW, CHOSEN, HEAVY): ("window",),
            (EXPERTS,): ("experts",),
        }
        for letters, names in fields_of.items():
            count = sum(self.mixers[letter] for letter in letters)
            values = [getattr(self, name) for name in names]
            is_right = all(values) if count else not any(values)
            if not is_right:
                sizes = zip(names, values, strict=True)
                written = ", ".join(f"{name} = {value}" for name, value in sizes)
                raise ValueError(
                    f"Expected {', '.join(names)} with {' or '.join(letters)} in the"
                    f" pattern, and none without, got {written} and {count} such"
                    " mixers."
                )

    def _check_pattern(self) -> None:
        """ValueError for mixers that don't go together."""
        self._check_sizes_of_mixers()
        mixers = self.mixers
        if mixers[MAMBA] and mixers[DELTA]:
            raise ValueError(
                f"Expected {MAMBA} or {DELTA} in the pattern, got both: a model has"
                " one kind of state space."
            )
        if self.pattern and self.dense:
            raise ValueError(
                f"Expected dense = 0 with a pattern, got {self.dense}. Write {MLP} in"
                " place of E for the first blocks."
            )
        if self.out_rank and (mixers[ATTENTION] or not self.query_rank):
            raise ValueError(
                f"Expected query_rank, and {WINDOW} in place of {ATTENTION}, with"
                f" compressed keys, got {self.query_rank} and {mixers[ATTENTION]} of"
                " these."
            )
        if self.state_heads % max(self.state_groups, 1):
            raise ValueError(
                f"Expected state_groups that divide the {self.state_heads}"
                f" state_heads, got {self.state_groups}."
            )

    @functools.cached_property
    def blocks(self) -> tuple[str, ...]:
        """The mixers of each block, by costs.mixers' letters."""
        if self.pattern:
            return blocks_of(self.pattern, self.layers)
        usual = ATTENTION + (EXPERTS if self.experts else MLP)
        dense = ATTENTION + MLP
        return (dense,) * self.dense + (usual,) * (self.layers - self.dense)

    @functools.cached_property
    def mixers(self) -> Counter[str]:
        """How many mixers of each kind all blocks have, without those that predict
        ahead.
        """
        return Counter("".join(self.blocks))

    def per_block(self, *letters: str) -> float:
        """How many mixers of some kinds a block has, in the mean."""
        if letters not in self._means:
            count = sum(self.mixers[letter] for letter in letters)
            self._means[letters] = count / self.layers
        return self._means[letters]

    @functools.cached_property
    def _means(self) -> dict[tuple[str, ...], float]:
        """What `per_block` has counted, which a search asks for again and again."""
        return {}

    @property
    def routed_share(self) -> float:
        """Of how many of its blocks a pattern makes experts; 1 without one."""
        return self.per_block(EXPERTS) if self.pattern else 1.0

    @functools.cached_property
    def state_space(self) -> StateSpace | None:
        """What stands in attention's place in some blocks; None where nothing does."""
        if not self.state_heads:
            return None
        return StateSpace(
            hidden=self.hidden,
            heads=self.state_heads,
            width=self.state_head_dim,
            groups=self.state_groups,
            state=self.state_dim,
            delta=self.mixers[DELTA] > 0,
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
    def compressed(self) -> CompressedKeys | None:
        """Attention with compressed keys; None where all keys are whole."""
        if not self.out_rank:
            return None
        return CompressedKeys(
            hidden=self.hidden,
            heads=self.heads,
            head_dim=self.head_dim or self.hidden // self.heads,
            query_rank=self.query_rank,
            window=self.window,
            index_heads=self.index_heads,
            index_dim=self.index_dim,
            chosen=self.index_top_k,
            groups=self.out_groups,
            out_rank=self.out_rank,
        )

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
        """Inputs and outputs of a block's products around attention, without those that
        compress keys.
        """
        if self.compressed is not None:
            return self.compressed.products
        h = self.hidden
        q = self.query_width
        v = self.value_width
        if not self.kv_rank:
            asked = 2 * q if self.attention_gate else q
            return ((h, asked + 2 * self.kv_width), (q, h))
        keys_and_values = (self.kv_rank, q - self.heads * self.rotary + v)
        if not self.query_rank:
            return ((h, q + self.cached_width), keys_and_values, (v, h))
        return (
            (h, self.query_rank + self.cached_width),
            (self.query_rank, q),
            keys_and_values,
            (v, h),
        )

    @functools.cached_property
    def block_params(self) -> int:
        """Parameters of one block, norms and biases included; of blocks that differ by
        a pattern, the mean.
        """
        if not self.pattern:
            return self._attention_block_params
        return round(sum(self._mixer_params.values()) / self.layers)

    @property
    def _attention_block_params(self) -> int:
        """Parameters of a block of attention and an MLP, or all experts."""
        return self.used_params + self._unmet_params

    @functools.cached_property
    def _mixer_params(self) -> dict[str, int]:
        """Parameters of all mixers of a kind together."""
        state = self.state_space
        state_params = 0 if state is None else state.params + self.hidden
        of_each = {
            **{letter: self._attention_params(letter) for letter in ATTENTIONS},
            MLP: self._mlp_params,
            EXPERTS: self._mlp_params + self._router_params + self._unmet_params,
            MAMBA: state_params,
            DELTA: state_params,
        }
        return {
            letter: count * (of_each[letter] + self.stream_params)
            for letter, count in self.mixers.items()
        }

    @property
    def stream_params(self) -> int:
        """Parameters that mix residual streams around one mixer."""
        n = self.streams
        weights = n * (n + 2)
        return weights * (n * self.hidden + 1) + 3 if n > 1 else 0

    @property
    def has_gated_mlp(self) -> bool:
        """Whether an MLP has three products, one of which is a gate."""
        return self.gated if self.gated_mlp is None else self.gated_mlp

    @property
    def expert_params(self) -> int:
        """Parameters of one of a block's experts; 0 where there are none."""
        if not self.experts:
            return 0
        matrices = 3 if self.has_gated_mlp else 2
        return matrices * self.hidden * self.inner

    @property
    def _unmet_params(self) -> int:
        """Parameters of the experts of a block that a token isn't sent to."""
        return self.expert_params * (self.experts - self.top_k)

    def _attention_params(self, letter: str = ATTENTION) -> int:
        """Parameters of attention in a block, with its norms and biases."""
        h = self.hidden
        if self.compressed is not None:
            return self.compressed.params(letter) + h
        products = sum(inputs * outputs for inputs, outputs in self.attention_products)
        if self.gated:
            return products + h + self.query_rank + self.kv_rank
        return products + 2 * h + (self.query_width + 2 * self.kv_width) + h

    @property
    def _mlp_params(self) -> int:
        """Parameters of all MLPs that a token meets in a block, with norm and biases,
        without a router.
        """
        h = self.hidden
        f = self.used_inner
        matrices = 3 if self.has_gated_mlp else 2
        products = matrices * h * f
        return products + h if self.gated else products + 2 * h + f + h

    @property
    def _router_params(self) -> int:
        return self.hidden * self.experts

    @functools.cached_property
    def used_params(self) -> int:
        """Parameters of a block of attention and an MLP that a token meets: all of
        them, or without experts that it isn't sent to.
        """
        mixing = 2 * self.stream_params
        attention = self._attention_params()
        return attention + self._mlp_params + self._router_params + mixing

    @property
    def ahead_params(self) -> int:
        """Parameters of the blocks that predict later tokens, each with its product and
        three norms more.
        """
        more = self.hidden * (2 * self.hidden + 3)
        return self.ahead * (self._attention_block_params + more)

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
        if self.streams > 1:  # which are weighed for the head
            norm += self.streams * (self.streams * self.hidden + 1) + 1
        return norm if self.has_tied_head else norm + self.hidden * self.vocab

    @functools.cached_property
    def params(self) -> int:
        """All parameters, without those of adapters."""
        blocks = sum(self._mixer_params.values()) + self.ahead_params
        return blocks + self.embedding_params + self.head_params

    @property
    def dense_params(self) -> int:
        """Parameters of a block with one MLP as wide as what a token meets of a block
        with experts.
        """
        return self._attention_params() + self._mlp_params

    @property
    def trained_params(self) -> int:
        """Parameters that are trained: all, or those of adapters alone."""
        if not self.adapters:
            return self.params
        widths = sum(inputs + outputs for inputs, outputs in self.attention_products)
        if self.adapted == "attention":
            return self._attentions * self.adapters * widths
        # queries, keys and values have adapters of their own, as a gate has
        widths += 2 * self.hidden if not self.kv_rank else 0
        matrices = 3 if self.has_gated_mlp else 2
        of_mlps = self.mixers[MLP] * matrices * (self.hidden + self.inner)
        return self.adapters * (self._attentions * widths + of_mlps)

    @property
    def _attentions(self) -> int:
        """How many blocks have attention, within a window or not."""
        return sum(self.mixers[letter] for letter in ATTENTIONS)

    @property
    def active_params(self) -> int:
        """Parameters that a token meets: all, without the experts to which it isn't
        sent.
        """
        with_experts = self.mixers[EXPERTS] + (self.ahead if self.experts else 0)
        return self.params - with_experts * self._unmet_params

    @functools.cached_property
    def flop_per_token(self) -> int:
        """6 N + 12 L h s: forward and backward FLOP of one token, the full square of
        attention, nothing recomputed.

        L are the blocks with attention, within a window or not. A state space counts
        three times its scan (StateSpace.scan_flop) in place of the square, and
        attention to compressed keys those that a query meets (CompressedKeys.keys), and
        three times the indexer's scores. Of experts
        only those count that a token meets; a frozen weight has no gradient, so that
        its product counts 4. Sources: Chowdhery et al. 2022, PaLM, appendix B, the
        convention of MosaicML's llm-foundry too; NVIDIA/Megatron-LM,
        megatron/training/training.py (d98e8a64), hybrid_flops.
        """
        used = self.active_params + self.ahead * self.head_params
        gradients = 6 * self.trained_params if self.adapters else 2 * used
        widths = self.query_width + self.value_width
        scores = 6 * (self._attentions + self.ahead) * widths * self.seq
        if self.compressed is not None:
            letters = {**self.mixers, WINDOW: self.mixers[WINDOW] + self.ahead}
            met = sum(
                letters.get(letter, 0) * self.compressed.keys(letter, self.seq)
                for letter in (WINDOW, CHOSEN, HEAVY)
            )
            scores = round(6 * widths * met)
            scores += 3 * self.mixers[CHOSEN] * self.compressed.index_flop(self.seq)
        scans = 0
        if self.state_space is not None:
            states = sum(self.mixers[letter] for letter in STATE_SPACES)
            scans = 3 * states * self.state_space.scan_flop
        return 4 * used + gradients + scores + scans

    @property
    def hidden_flop_per_token(self) -> float:
        """Of flop_per_token what no query meets: the half of attention's square that a
        causal mask hides, and what is outside of a window.
        """
        if self.compressed is not None:
            return 0.0  # counted are the keys that a query meets
        keys = (self.mixers[ATTENTION] + self.ahead) * self.seq / 2
        window = min(self.window, self.seq)
        within = window - window**2 / (2 * self.seq)
        keys += self.mixers[WINDOW] * (self.seq - within)
        return 6 * (self.query_width + self.value_width) * keys

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        count = f"{_count(self.params)} parameters"
        if self.experts:
            count += f" ({_count(self.active_params)} active)"
        kinds = ""
        if self.state_space is not None or self.compressed is not None:
            counts = [f"{n} of {MIXERS[letter]}" for letter, n in self.mixers.items()]
            kinds = f" ({', '.join(counts)})"
        return (
            f"{name}{count}, {self.layers} layers of {self.hidden:,}{kinds},"
            f" {self.heads} heads, {self.seq:,} tokens{self._trained()}"
        )

    def _trained(self) -> str:
        """What of a model is trained, as the end of a sentence; empty for all."""
        if not self.adapters:
            return ""
        place = "attention" if self.adapted == "attention" else "all products"
        weights = ", weights in 4 bit" if self.quantized else ""
        return f", adapters of rank {self.adapters} beside {place}{weights}"


def _count(params: int) -> str:
    """Parameters in words: 39.2 billion."""
    if params >= GIGA:
        return f"{significant(params / GIGA)} billion"
    return f"{significant(params / MEGA)} million"


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
    r"[-_ ](instruct|chat|base|it|pt|hf|thinking|sft|dpo|reasoning|v[01]\.\d|\d{4}"
    r"|\d+k|bf16|fp16|fp8|nvfp4|mxfp4|bnb|4bit|8bit|gptq|awq|gguf|int[48]|q\d(_[a-z0-9])*"
    r"|unsloth)"
    r"(?![a-z0-9.])"
)


def plain_name(name: str) -> str:
    """A model's name as names are compared: small letters and digits, without the
    organization, hyphens and what doesn't change the sizes.

    "meta-llama/Llama-3.1-8B-Instruct" is "llama3.18b".
    """
    own = name.casefold().rpartition("/")[2]
    shortened = re.sub("^meta[-_ ]", "", _VERSION.sub("", own))
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
    number: 22B begins no 2, and 1T, whose unit isn't the usual one, no 1.
    """
    rest = name.casefold()
    for letter in plain:
        rest = rest.lstrip(" -")
        if not rest.startswith(letter):
            return False
        rest = rest[1:]
    return not (plain[-1:].isdigit() and re.match(r"\.?\d|t", rest))


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
    # "qwen3 moe 235b a22b", as transformers calls the kind
    without_kind = names.get(plain.replace("moe", ""))
    if without_kind is not None and MODELS[without_kind].experts:
        return MODELS[without_kind]
    longer = [name for name in MODELS if plain and _begins(plain, name)]
    if len(longer) == 1:
        return MODELS[longer[0]]
    near = longer or [names[other] for other in nearest(plain, names)]
    reason = left_out(name)
    if reason:
        reason = f" It can't be planned here: it has {reason}."
    raise ValueError(
        f"Expected a model such as llama3.1-70b, got {brief_repr(name)}.{reason} The"
        f" nearest are {', '.join(dict.fromkeys(near))}. For others give --config with"
        " the model's config.json, or --sizes."
    )


def left_out(name: str) -> str:
    """What a model, by its name or model_type, has that no Transformer has; empty for
    other names.
    """
    plain = plain_name(name)
    for row in rows("models_left_out"):
        if re.match(row["words"], plain):
            return row["what"]
    return ""
