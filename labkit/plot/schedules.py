"""Figures of schedules: which rank did what when, simulated or measured; predicted
against published throughput.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.parameters import Count, NonNegative
from labkit.core.units import format_seconds, significant
from labkit.plot.core import Drawing, FigureSpec, label_seconds, name_rows
from labkit.plot.style import CYCLE, EDGES, ON_WHITE, patches_of
from ranks import Span
from trainplan.schedule import Overlap, Timetable

# Name, color and texture of each kind. A bar with room for a letter has no texture,
# which would hide the letter.
_KINDS: dict[str, tuple[str, str, str]] = {
    "F": ("F: forward", CYCLE[5], ""),
    "B": ("B: backward", CYCLE[1], "///"),
    "W": ("W: backward of the weights", "#F0E442", "..."),
    "compute": ("compute", CYCLE[2], ""),
    "communication": ("communication", CYCLE[3], "xxx"),
    "optimizer": ("optimizer", CYCLE[4], "---"),
    "idle": ("idle", "#ffffff", ""),
}
_WIDTH_IN = 8.0
_PIXELS = round(100 * _WIDTH_IN)
# of the width; narrower bars would be all edge, and no texture could be seen
_EDGED = 5 / _PIXELS
_MANY = 4000  # spans; more would be narrower than a pixel or two, and hide each other
_MOST = 1_000_000  # spans that are drawn at all
_HIGH = 0.42  # half a bar


@Drawing
def gantt(
    ax: Axes,
    ranks: Timetable | Overlap | Iterable[Span] | Any,
    *,
    until_s: NonNegative = 0.0,
    rows: Count = 1,
) -> FigureSpec:
    """A row for each rank, a bar for each span, with its kind as color and as a letter
    or texture; white is idle.

    Takes what `lab.schedule.simulate` and `overlap` return, what `lab.launch` returns,
    or spans. Where transfers run beside compute, a rank's row has two halves; later
    chunks of a rank are paler. The axis ends at `until_s` or later, and there is room
    for `rows` rows or more, so that two pictures can have the same axes. Thousands of
    spans are drawn as one mixed color a pixel. Raises BadArgument for no spans.
    """
    spans = _spans(ranks)
    zero_s = min(span.start_s for span in spans)
    spent_s = max(span.end_s for span in spans) - zero_s
    length_s = max(until_s, spent_s) or 1.0
    row_of = {rank: y for y, rank in enumerate(sorted({span.rank for span in spans}))}
    many = len(spans) > _MANY
    draw = _draw_mixed if many else _draw_bars
    draw(ax, spans, row_of, zero_s, length_s)
    high = max(rows, len(row_of))
    every = math.ceil(len(row_of) / 16)
    names = [f"rank {rank}" if y % every == 0 else "" for rank, y in row_of.items()]
    name_rows(ax, names, below=high - len(names) + 0.5)
    ax.set_xlim(0, length_s)
    label_seconds(ax.xaxis, ticks=8)
    x = "time (simulated)" if isinstance(ranks, Timetable | Overlap) else "time"
    if not many and any(map(_chunk, spans)):
        x += "; paler: a rank's later chunk"
    ax.set_xlabel(x)
    handles = patches_of(_legend({span.kind for span in spans}))
    height_in = 1.35 + min(0.34 * high, 5.0)
    sentence = _in_words(ranks, spans, len(row_of), spent_s)
    return FigureSpec(
        sentence,
        title_pad=26,
        height_in=height_in,
        width_in=_WIDTH_IN,
        legend="above",
        handles=handles,
        columns=len(handles),
    )


def _spans(ranks: Any) -> list[Span]:
    spans: list[Span] = []
    # it may be anything: what is no list of spans is told below
    with contextlib.suppress(Exception):
        spans = list(itertools.islice(getattr(ranks, "spans", ranks), _MOST))
    if not spans or not all(map(_is_span, spans)):
        raise BadArgument(
            f"Expected the spans of ranks to draw, got {brief_repr(ranks)}. Pass what"
            " lab.schedule.simulate(...) or lab.launch(...) returned; a launch has"
            " spans where its ranks compute on a stand-in or communicate."
        )
    return spans


def _is_span(value: Any) -> bool:
    """Whether a value has the fields of a Span, whichever package made it."""
    try:
        texts = (value.kind, value.label)
        numbers = (value.start_s, value.end_s, value.seconds)
        return (
            type(value.rank) is int
            and {*map(type, texts)} == {str}
            and {*map(type, numbers)} <= {int, float}
        )
    except Exception:  # an object that refuses all questions
        return False


def _draw_bars(
    ax: Axes,
    spans: Sequence[Span],
    rows: Mapping[int, int],
    zero_s: float,
    length_s: float,
) -> None:
    """Draw a bar for each span, those of one look as one collection: a patch for each
    would take long.
    """
    boxes_of: dict[_Look, list[Any]] = defaultdict(list)
    halved = _halved(spans)
    for span in spans:
        y = float(rows[span.rank])
        high = _HIGH
        if span.rank in halved:
            high = _HIGH / 2
            y += high if span.kind == "communication" else -high
        left = span.start_s - zero_s
        right = max(span.end_s - zero_s, left + length_s / _PIXELS)
        has_letter = _write(ax, span, (left + right) / 2, y, length_s)
        is_wide = right - left > _EDGED * length_s
        look = _Look(span.kind, _chunk(span), has_letter, is_wide)
        boxes_of[look].append(
            ((left, y - high), (left, y + high), (right, y + high), (right, y - high))
        )
    for look, boxes in boxes_of.items():
        _, color, hatch = _look(look.kind)
        strength = max(1 - 0.3 * look.chunk, 0.25)
        paler = [1 - (1 - part) * strength for part in to_rgb(color)]
        edge: dict[str, Any] = EDGES if look.is_wide else {**EDGES, "linewidth": 0.0}
        texture = hatch if look.is_wide and not look.has_letter else ""
        bars = PolyCollection(boxes, facecolor=paler, hatch=texture, **edge)
        ax.add_collection(bars, autolim=False)


class _Look(NamedTuple):
    """What bars of one collection have in common."""

    kind: str
    chunk: int
    has_letter: bool
    is_wide: bool


def _look(kind: str) -> tuple[str, str, str]:
    return _KINDS.get(kind, (kind, "#c8c8c8", "\\\\\\"))


def _halved(spans: Sequence[Span]) -> set[int]:
    """Ranks whose communication runs at the same time as something else."""
    halved = set()
    until = dict[int, tuple[float, str]]()
    for span in sorted(
        span for span in spans if span.seconds > 0 and span.kind != "idle"
    ):
        end_s, kind = until.get(span.rank, (span.start_s, span.kind))
        if (
            span.start_s < end_s - 1e-9 * abs(end_s)
            and "communication" in (kind, span.kind)
            and kind != span.kind
        ):
            halved.add(span.rank)
        if span.end_s > end_s or span.rank not in until:
            until[span.rank] = (span.end_s, span.kind)
    return halved


def _chunk(span: Span) -> int:
    number, dot, chunk = span.label.partition(".")
    return int(chunk) if dot and number.isdigit() and chunk.isdigit() else 0


def _write(ax: Axes, span: Span, x: float, y: float, length_s: float) -> bool:
    """Write letter and micro-batch, or the letter alone, into a bar with room for them;
    True if it has its letter.
    """
    letter = span.kind if len(span.kind) == 1 else ""
    for text in (letter + span.label, letter + span.label.partition(".")[0], letter):
        for size, wide in ((7.5, 6.5), (6.0, 5.0)):  # points, pixels a letter
            if text and span.seconds * _PIXELS > (len(text) + 0.6) * wide * length_s:
                # words on a texture can't be read
                behind = ON_WHITE if _look(span.kind)[2] and not letter else None
                ax.text(
                    x,
                    y,
                    text,
                    ha="center",
                    va="center",
                    fontsize=size,
                    color="black",
                    clip_on=True,
                    bbox=behind,
                )
                return bool(letter)
    return False


def _draw_mixed(
    ax: Axes,
    spans: Sequence[Span],
    rows: Mapping[int, int],
    zero_s: float,
    length_s: float,
) -> None:
    """Draw pixels whose color is mixed from those of their kinds and white, by the
    time that each takes of a pixel.
    """
    edges = np.linspace(zero_s, zero_s + length_s, _PIXELS + 1)
    image = np.ones((len(rows), _PIXELS, 3))  # (rows, pixels, colors)
    groups: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in spans:
        groups[rows[span.rank], span.kind].append(span)
    for (y, kind), group in groups.items():
        in_order = sorted(group)
        times = np.array([(span.start_s, span.end_s) for span in in_order]).ravel()
        spent = np.cumsum([0.0, *(span.seconds for span in in_order)])
        at_times = np.repeat(spent, 2)[1:-1]  # at each start and end
        share = np.diff(np.interp(edges, times, at_times)) * _PIXELS / length_s
        _, color, _ = _look(kind)
        image[y] -= share[:, None] * (1 - np.array(to_rgb(color)))
    extent = (0.0, length_s, len(rows) - 0.5, -0.5)
    ax.imshow(image.clip(0, 1), extent=extent, aspect="auto", interpolation="nearest")


def _legend(kinds: set[str]) -> dict[str, tuple[str, str]]:
    present = [kind for kind in _KINDS if kind in kinds] + sorted(kinds - set(_KINDS))
    looks = {name: (color, hatch) for name, color, hatch in map(_look, present)}
    return looks if "idle" in kinds else looks | {"white: idle": ("#ffffff", "")}


def _in_words(ranks: Any, spans: Sequence[Span], rows: int, spent_s: float) -> str:
    if isinstance(ranks, Overlap):
        text = str(ranks)
        return f"{text[0].upper()}{text[1:]}."
    if isinstance(ranks, Timetable):
        held = [f"{n:.3g}" for n in ranks.peak_activations]
        if len(held) > 8:
            most = f"{significant(max(ranks.peak_activations))} at most on any rank"
        elif len(set(held)) == 1:
            most = f"{held[0]} on each rank"
        else:
            most = f"{', '.join(held)}, rank by rank"
        return (
            f"Simulated: {format_seconds(ranks.makespan_s)} from the first step to the"
            f" last; the bubble is {ranks.bubble:.1%} of the ranks' time. Activations"
            f" held at once: {most}."
        )
    parts: dict[str, float] = defaultdict(float)
    for span in spans:
        name, _, _ = _look(span.kind)
        words = name.partition(": ")[2]  # "forward" of "F: forward"
        parts[words or span.kind] += span.seconds
    shares = [
        (seconds / rows / spent_s, kind) for kind, seconds in parts.items() if seconds
    ]
    shares.sort(reverse=True)
    words = ", ".join(f"{kind} {share:.1%}" for share, kind in shares)
    return (
        f"{format_seconds(spent_s)} from the first start to the last end. Of the ranks'"
        f" time: {words or 'nothing'}."
    )
