"""Figures of notebook 19: who is in a batch when, which sequence has which places of
the cache, and how many tokens a draft brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from exercises.nb19.engine import BLOCK, Slots
from exercises.nb19.serving import Latencies, Stay
from exercises.nb19.speculation import Draft, Written, expected_tokens
from labkit.plot import Picture, scales
from labkit.plot.core import Drawing, FigureSpec, name_rows
from labkit.plot.style import CYCLE, EDGES, series_style

_MARK = "#404040"


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
def pages(ax: Axes, slots: Slots) -> FigureSpec:
    """Where a cache of twelve blocks keeps three sequences that grow turn by turn, the
    second of which ends, and a fourth that comes then.
    """
    free = list(range(12))
    tables: dict[str, list[int]] = {name: [] for name in "ABCD"}
    lengths = dict.fromkeys(tables, 0)
    # sequence, and its tokens from then on
    life = "A20 B40 C10 A40 B50 C30 B0 D70 A55"
    for turn in life.split():
        name = turn[0]
        lengths[name] = int(turn[1:])
        slots(tables[name], free, lengths[name])
    for i, (name, table) in enumerate(tables.items()):
        for slot in slots(table, free, lengths[name]):
            corner = (slot % BLOCK, slot // BLOCK - 0.42)
            ax.add_patch(Rectangle(corner, 1, 0.84, facecolor=CYCLE[i], **EDGES))
    for block in range(12):
        corner = (0, block - 0.42)
        ax.add_patch(Rectangle(corner, BLOCK, 0.84, facecolor="none", **EDGES))
    names = [f"block {block}" for block in range(12)]
    name_rows(ax, names)
    ax.set_xlim(0, BLOCK)
    ax.set_xlabel("place in the block; white: no token yet")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.spines[:].set_visible(False)
    handles = [
        Patch(facecolor=CYCLE[i], label=f"{name}: blocks {table}", **EDGES)
        for i, (name, table) in enumerate(tables.items())
        if table
    ]
    return FigureSpec(
        "B has ended, and its blocks serve others. A sequence's last block alone may be"
        " partly empty.",
        height_in=3.6,
        legend="below",
        handles=handles,
        columns=3,
    )


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
    ax.set_ylim(bottom=1)
    text = "the same" if all(verdicts) else "another"
    return FigureSpec(
        f"With each draft the model wrote {text} text as without one.",
        legend="below",
        columns=2,
    )
