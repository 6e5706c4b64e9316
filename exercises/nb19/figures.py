"""Figures of notebook 19: who is in a batch when, which block of the cache has whose
tokens, how long readers wait, and how many tokens a draft brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from exercises.nb19 import cache_steps
from exercises.nb19.cache_steps import N_BLOCKS, CacheStep
from exercises.nb19.engine import BLOCK, Slots
from exercises.nb19.serving import Latencies, Stay
from exercises.nb19.speculation import Draft, Written, expected_tokens
from labkit.lesson.moving import Moving
from labkit.plot import Picture, scales
from labkit.plot.core import Drawing, FigureSpec, name_rows, text_beside
from labkit.plot.style import CYCLE, EDGES, series_style

_MARK = "#404040"
_CACHE_IN_WORDS = (
    "The KV cache of a batch, ten blocks of 16 tokens. A, B and C grow by a token a"
    " step, and take a block when their last one is full. B ends at step 8 and"
    " gives its blocks back. From step 9 on D has its place in the batch, and takes"
    " free blocks. At step 26 all blocks are taken."
)


@Drawing
def batches(ax: Axes, stays: Mapping[str, Sequence[Stay]]) -> FigureSpec:
    """Who has which place of the batch at which step, for each way of batching; white
    is a place that writes nothing.
    """
    places = 1 + max(stay.place for bars in stays.values() for stay in bars)
    names = []
    ends = {}
    for i, (way, bars) in enumerate(stays.items()):
        names += [f"{way}, place {place + 1}" for place in range(places)]
        ends[way] = max(bar.end for bar in bars)
        for bar in bars:
            corner = (bar.begin, i * places + bar.place - 0.42)
            color = CYCLE[i]
            length = bar.end - bar.begin
            box = Rectangle(corner, length, 0.84, facecolor=color, alpha=0.55, **EDGES)
            ax.add_patch(box)
            ax.text(
                bar.begin + length / 2,
                i * places + bar.place,
                str(bar.request + 1),
                ha="center",
                va="center",
                fontsize=6,
                clip_on=True,
            )
        ax.plot(
            [ends[way]] * 2, [i * places - 0.5, (i + 1) * places - 0.5], color=_MARK
        )
    name_rows(ax, names)
    ax.set_xlim(0, 1.03 * max(ends.values()))
    ax.set_xlabel("step of decoding; numbers: requests in order of arrival")
    steps = ", ".join(f"{way} {end}" for way, end in ends.items())
    factor = max(ends.values()) / min(ends.values())
    return FigureSpec(
        f"Steps until all answers are written: {steps}; a factor of {factor:.2f}.",
        height_in=1.2 + 0.19 * len(names),
    )


@Drawing
def cache_blocks(ax: Axes, step: CacheStep) -> FigureSpec:
    """The blocks of a cache at a step: a row a block, a cell a token, in the color of
    its sequence; strong colors are new since the frame before.
    """
    handles = []
    words = []
    for i, (name, places) in enumerate(step.slots.items()):
        table = step.tables[name]
        handles.append(Patch(facecolor=CYCLE[i], label=f"{name}: blocks {table}"))
        for block in table:
            text_beside(ax, block, name, color=CYCLE[i], weight="bold")
        first_new = len(places) - step.newest[name]
        for number, slot in enumerate(places):
            corner = (slot % BLOCK, slot // BLOCK - 0.42)
            alpha = 1.0 if number >= first_new else 0.4
            ax.add_patch(
                Rectangle(corner, 1, 0.84, facecolor=CYCLE[i], alpha=alpha, **EDGES)
            )
        if places:
            words.append(f"{name} has {len(places)} tokens")
    for block in range(N_BLOCKS):
        corner = (0, block - 0.42)
        ax.add_patch(Rectangle(corner, BLOCK, 0.84, facecolor="none", **EDGES))
    name_rows(ax, [f"block {block}" for block in range(N_BLOCKS)])
    ax.set_xlim(0, BLOCK)
    ax.set_xlabel("place in the block; white: no token yet")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.spines[:].set_visible(False)
    return FigureSpec(
        f"{', '.join(words)}. The step reads the keys and values of {step.n_tokens}"
        f" tokens; {step.n_blocks} of {N_BLOCKS} blocks are taken.",
        title=f"Step {step.number}: {step.n_tokens} tokens in {step.n_blocks} blocks",
        height_in=3.4,
        legend="below",
        handles=handles,
        columns=2,
    )


def cache_film(slots: Slots) -> Moving:
    """The cache of a batch as it fills, step by step; `slots` is exercise 19.6a's."""
    frames = (cache_blocks(step) for step in cache_steps.steps(slots))
    return Moving(frames, _CACHE_IN_WORDS, step="frame")


def waiting(latencies: Latencies) -> Picture:
    """The time to first token that 95 % stay below, by load and way of batching."""
    lines: dict[str, dict[int, float]] = {}
    for (way, load), latency in latencies.of.items():
        lines.setdefault(way, {})[load] = latency.ttft_s[1]
    x = "requests, % of what continuous batching can serve"
    return scales(lines, x=x, y="95 % of TTFT below", unit="s")


@Drawing
def tokens_a_call(
    ax: Axes, write: Callable[..., Written], drafts: Mapping[str, Draft]
) -> FigureSpec:
    """Tokens a call by the number of drafted tokens, measured and calculated, for
    drafts by name.

    `write` is speculate with all but k and the draft. What one drafted token a call
    brings shows the probability a that a guess is right; the other calculated values
    follow from it.
    """
    alone = write(0)
    verdicts = []
    for i, (name, draft) in enumerate(drafts.items()):
        written = {k: write(k, draft) for k in (1, 2, 4, 8)}
        measured = [each.tokens_a_call for each in written.values()]
        a = measured[0] - 1
        calculated = [expected_tokens(a, k) for k in written]
        ax.plot(list(written), measured, label=f"{name}: measured", **series_style(i))
        words = f"{name}: calculated, a = {a:.2f}"
        ax.plot(list(written), calculated, "--", color=CYCLE[i], label=words)
        verdicts += [each.tokens == alone.tokens for each in written.values()]
    ax.set(xlabel="drafted tokens a call", ylabel="tokens a call")
    ax.set_ylim(bottom=0)
    text = "the same" if all(verdicts) else "another"
    return FigureSpec(
        f"With each draft the model wrote {text} text as without one.",
        legend="below",
        columns=2,
    )
