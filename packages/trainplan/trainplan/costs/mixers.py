"""What the blocks of a transformer are made of, by a letter a mixer: attention, an MLP,
or a state space in attention's place.

Each mixer has a norm before it and a sum after it. The letters are those of Megatron-
Core's hybrid layer patterns (NVIDIA/Megatron-LM, megatron/core/models/hybrid/
hybrid_layer_allocation.py, d98e8a64), and W, C and H.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainplan._text import brief_repr

ATTENTION = "*"
WINDOW = "W"
CHOSEN = "C"
HEAVY = "H"
MAMBA = "M"
DELTA = "G"
MLP = "-"
EXPERTS = "E"
MIXERS = {
    ATTENTION: "attention",
    WINDOW: "attention within a window",
    CHOSEN: "attention to chosen compressed keys",
    HEAVY: "attention to heavily compressed keys",
    MAMBA: "Mamba-2",
    DELTA: "gated delta rule",
    MLP: "MLP",
    EXPERTS: "experts",
}
ATTENTIONS = (ATTENTION, WINDOW, CHOSEN, HEAVY)
STATE_SPACES = (MAMBA, DELTA)
MLPS = (MLP, EXPERTS)
CONVOLVED = 4
"""Tokens that a state space's convolution spans, in Mamba-2 and in Qwen3-Next."""
CHOSEN_TOKENS = 4
HEAVY_TOKENS = 128
"""Tokens of a compressed key of the two kinds, in DeepSeek-V4."""
CHUNK = 64
"""Tokens of a chunk: flash-linear-attention's (bc3b101d). Mamba-2's kernels take 128 or
256, of which scores are a small part."""


def blocks_of(pattern: str, layers: int) -> tuple[str, ...]:
    """The mixers of each of so many blocks, by a pattern that starts anew at its end.

    Spaces stand between blocks ("W- W- *-"); without any, each letter is a block
    ("M-M-M*-"). Raises ValueError for a letter that stands for nothing.
    """
    period = pattern.split() if " " in pattern else list(pattern)
    unknown = sorted(set("".join(period)) - set(MIXERS))
    if unknown:
        letters = ", ".join(f"{letter} ({words})" for letter, words in MIXERS.items())
        raise ValueError(
            f"Expected a pattern of {letters}, with spaces between blocks of several,"
            f" got {''.join(unknown)} in {brief_repr(pattern)}."
        )
    return tuple(period[block % len(period)] for block in range(layers))


@dataclass(frozen=True)
class StateSpace:
    """A mixer that sums up all earlier tokens in a matrix a head, of `width` rows and
    `state` columns: Mamba-2's (Dao and Gu 2024, Transformers are SSMs, section 7), or
    with `delta` the gated delta rule's (Yang et al. 2024, Gated delta networks).

    `groups` of heads share what writes to the matrix and what reads from it: B and C of
    Mamba-2, keys and queries of the delta rule.
    """

    hidden: int
    heads: int
    width: int
    groups: int
    state: int
    delta: bool

    @property
    def values(self) -> int:
        """Width of all heads' inputs together, and of their outputs."""
        return self.heads * self.width

    @property
    def keys(self) -> int:
        """Width of what writes to the states, and of what reads from them."""
        return self.groups * self.state

    @property
    def convolved(self) -> int:
        """Width of what the convolution runs over: inputs, writers and readers."""
        return self.values + 2 * self.keys

    @property
    def projected(self) -> int:
        """Width of the first product's output: a gate, what is convolved, and a number
        a head for the step (Mamba-2), or two for decay and strength (delta rule).
        """
        numbers = 2 if self.delta else 1
        return self.values + self.convolved + numbers * self.heads

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the products around the state space."""
        return ((self.hidden, self.projected), (self.values, self.hidden))

    @property
    def params(self) -> int:
        """Parameters, without the norm before it.

        Beside the products: the convolution, which has biases in Mamba-2 alone; a decay
        and a bias a head, and in Mamba-2 a weight of its input; a norm of the output,
        which all heads share under the delta rule. Sources: transformers, models/
        nemotron_h and models/qwen3_next.
        """
        in_products = sum(inputs * outputs for inputs, outputs in self.products)
        if self.delta:
            return (
                in_products + CONVOLVED * self.convolved + 2 * self.heads + self.width
            )
        return (
            in_products
            + (CONVOLVED + 1) * self.convolved
            + 3 * self.heads
            + self.values
        )

    @property
    def scan_flop(self) -> int:
        """FLOP of a token's update and reading of the states, forward: 7 an element of
        them in Mamba-2, 8 under the delta rule.

        Source: NVIDIA/Megatron-LM, megatron/training/training.py (d98e8a64),
        mamba_layer_flops and gdn_layer_flops.
        """
        return (8 if self.delta else 7) * self.values * self.state

    @property
    def chunked_flop(self) -> int:
        """FLOP of a token where chunks of tokens go through matrix products, forward:
        scores of a chunk and their sums, what it reads of the state before it, and what
        it adds to that. The delta rule has both once more, for what a chunk's tokens
        overwrite of each other and of the state.

        Sources: Dao and Gu 2024, section 6; Yang et al. 2024, section 3.3, by the
        products of fla-org/flash-linear-attention, fla/ops/gated_delta_rule (bc3b101d).
        """
        in_chunk = 2 * CHUNK * (self.keys + self.values)
        in_states = 4 * self.values * self.state
        if not self.delta:
            return in_chunk + in_states
        overwritten = 2 * CHUNK * self.heads * self.state
        return 2 * in_chunk + overwritten + in_states + in_states // 2

    @property
    def kept(self) -> int:
        """Elements of a token that are kept for the backward pass: the inputs of both
        products and both norms, and what the first product returns. The delta rule
        keeps what was convolved too, and a chunk's scores.

        Sources: state-spaces/mamba, mamba_ssm/ops/triton/ssd_combined.py (e9594ce1),
        MambaSplitConv1dScanCombinedFn; flash-linear-attention (bc3b101d), fla/ops/
        gated_delta_rule/chunk.py.
        """
        by_delta = self.convolved + CHUNK * self.heads if self.delta else 0
        return 2 * self.hidden + self.projected + by_delta + 2 * self.values


@dataclass(frozen=True)
class CompressedKeys:
    """Attention of all heads to one key a token within a window, and to keys that stand
    for several tokens: for 4, of which an indexer chooses some (CHOSEN), or for 128, of
    which none is left out (HEAVY). A key is its value too, and the output is projected
    by `groups` of heads to `out_rank` each.

    Source: DeepSeek-V4 as in transformers, models/deepseek_v4 (5.24.0).
    """

    hidden: int
    heads: int
    head_dim: int
    query_rank: int
    window: int
    index_heads: int
    index_dim: int
    chosen: int
    groups: int
    out_rank: int

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the products around attention, without what compresses;
        the third is one of each group.
        """
        width = self.heads * self.head_dim
        return (
            (self.hidden, self.query_rank + self.head_dim),
            (self.query_rank, width),
            (width, self.out_rank),
            (self.groups * self.out_rank, self.hidden),
        )

    def compressing(self, letter: str) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the products that compress keys, and choose them."""
        if letter == HEAVY:
            return ((self.hidden, 2 * self.head_dim),)
        if letter == CHOSEN:
            twice = 4 * (self.head_dim + self.index_dim)
            return (
                (self.hidden, twice + self.index_heads),
                (self.query_rank, self.index_heads * self.index_dim),
            )
        return ()

    def params(self, letter: str) -> int:
        """Parameters, without the norm before it: products, norms, a sink a head, and
        weights of the tokens of a compressed key by their place.
        """
        both = (*self.products, *self.compressing(letter))
        count = sum(inputs * outputs for inputs, outputs in both)
        count += self.query_rank + self.head_dim + self.heads
        if letter == HEAVY:
            return count + (1 + HEAVY_TOKENS) * self.head_dim
        if letter == CHOSEN:
            return count + (1 + 2 * CHOSEN_TOKENS) * (self.head_dim + self.index_dim)
        return count

    def keys(self, letter: str, seq: int) -> float:
        """How many keys a query meets, in the mean of a sequence.

        Source: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/utils/
        flop_utils.py (067f987d), dsv4_hybrid.
        """
        window = min(self.window, seq)
        if letter == HEAVY:
            return window + seq / HEAVY_TOKENS / 2
        if letter == CHOSEN:
            chosen = min(self.chosen, seq // CHOSEN_TOKENS)
            return window + chosen * (1 - chosen * CHOSEN_TOKENS / (2 * seq))
        return window

    def index_flop(self, seq: int) -> int:
        """FLOP of a token's scores of all keys to choose from, forward; as there, of
        the full square.
        """
        return 2 * self.index_heads * self.index_dim * (seq // CHOSEN_TOKENS)
