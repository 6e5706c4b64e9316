"""Figures of number formats: a number's bits, what a format does to gradients, and
accuracy beside speed.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from exercises.nb09 import formats
from exercises.nb09.formats import Format
from labkit.core.arguments import as_array
from labkit.core.parameters import AnyNumber, Array, Items
from labkit.core.units import significant
from labkit.plot.core import Drawing, FigureSpec, name_rows, text_beside
from labkit.plot.style import CYCLE, LIMIT, MEASURED, PREDICTED
from labkit.train.training.tuned import PAIRS

if TYPE_CHECKING:
    from labkit.train.training import TunedComparison
    from labkit.train.training.tuned import AccuracyGain

_PARTS = {"sign": CYCLE[4], "exponent": CYCLE[5], "fraction": "#d9d9d9"}
_FATES: dict[str, dict[str, Any]] = {
    "flushed to zero": {"facecolor": PREDICTED, "edgecolor": "white", "hatch": "xx"},
    "subnormal: fewer digits": {
        "facecolor": CYCLE[4],
        "edgecolor": "white",
        "hatch": "//",
    },
    "normal": {"facecolor": MEASURED, "edgecolor": "white"},
    "overflow": {"facecolor": "black", "edgecolor": "white", "hatch": ".."},
}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_ABOVE_LIMITS = 46.0  # points between axes and title, where limits are named
_LONGEST_LINE = 78  # letters, for which there is room beside a row
_SMALLEST_POWER = -60  # what is smaller still is drawn in the first bar


@Drawing
def bits(
    ax: Axes,
    value: AnyNumber,
    shown: Annotated[Sequence[Format], Items(1)] = formats.ALL,
) -> FigureSpec:
    """The bits of a number in some formats, a row each, and the number that they stand
    for with its relative error.
    """
    widest = max(each.exponent_bits for each in shown)
    words = []
    for y, each in enumerate(shown):
        # the exponents end on one line
        parts = each.bits(value)
        x = float(widest - each.exponent_bits)
        for part, text in zip(_PARTS, parts, strict=True):
            for digit in text:
                ax.barh(y, 1.0, 0.62, left=x, color=_PARTS[part], edgecolor="white")
                ax.text(x + 0.5, y, digit, ha="center", va="center", fontsize=8)
                x += 1
        words.append(_stored(value, each))
        ax.text(x + 0.5, y, words[-1], va="center", fontsize=9)
    name_rows(ax, [each.name for each in shown], above=0.6)
    ax.set_xlim(0, 32)
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    in_words = [f"{each} {word}" for each, word in zip(shown, words, strict=True)]
    return FigureSpec(
        f"{value:.8g} in bits: {'; '.join(in_words)}.",
        title=f"{value:.8g}, rounded to each format",
        height_in=1.3 + 0.36 * len(shown),
        legend="below",
        handles=[Patch(color=color, label=part) for part, color in _PARTS.items()],
        columns=len(_PARTS),
    )


def _stored(value: float, each: Format) -> str:
    stored = each.round(value)
    if stored == value or np.isnan(value):
        return f"{stored:.8g} (exact)"
    if not np.isfinite(stored):
        return f"{'infinite' if np.isinf(stored) else 'NaN'}: beyond {each.max:.6g}"
    if stored == 0:
        return f"0: flushed, half of {each.min_subnormal:.3g} or less"
    few = ", subnormal" if abs(stored) < each.min_normal else ""
    return f"{stored:.8g} ({100 * (stored - value) / abs(value):+.2g} %{few})"


@Drawing
def gradients(
    ax: Axes, values: Array, number_format: Format = formats.float16
) -> FigureSpec:
    """How many numbers have which magnitude, by powers of two, and what a format makes
    of them.

    `values` is an array or tensor; those that are 0, infinite or NaN are left out.
    Raises LabError where none is left.
    """
    magnitudes = np.abs(as_array(values).astype(np.float64).ravel())
    kept = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
    shares = number_format.shares(kept)
    powers = np.maximum(np.floor(np.log2(kept)), _SMALLEST_POWER)
    stored = number_format.round(kept)
    fates = [stored == 0, (stored > 0) & (stored < number_format.min_normal)]
    fates += [
        (stored >= number_format.min_normal) & np.isfinite(stored),
        ~np.isfinite(stored),
    ]
    bins = np.arange(powers.min(), powers.max() + 1)
    floor = np.zeros(len(bins))
    for fate, style in zip(fates, _FATES.values(), strict=True):
        percent = (
            100
            / len(kept)
            * np.array([(powers[fate] == power).sum() for power in bins])
        )
        ax.bar(bins + 0.5, percent, 1.0, bottom=floor, **style)
        floor += percent
    limits = {
        "smallest": number_format.min_subnormal,
        "normal from": number_format.min_normal,
    }
    limits["largest"] = number_format.max
    for i, (name, limit) in enumerate(limits.items()):
        ax.axvline(np.log2(limit), color=LIMIT, linewidth=1.5)
        ax.annotate(
            f"{name} {limit:.2g}",
            (np.log2(limit), 1.02 + 0.07 * i),
            xycoords=("data", "axes fraction"),
            fontsize=8,
            ha="center",
            annotation_clip=False,
        )
    low = np.log2(number_format.min_subnormal) - 6
    high = np.log2(number_format.max) + 2
    ax.set_xlim(min(low, bins[0] - 1), max(high, bins[-1] + 2))
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.xaxis.set_major_formatter(
        lambda value, _: "2" + f"{value:.0f}".translate(_RAISED)
    )
    ax.set(
        xlabel=f"magnitude; lines: limits of {number_format}", ylabel="% of the numbers"
    )
    named = zip(_FATES.items(), shares, strict=True)
    handles = [
        Patch(**style, label=f"{fate}: {share:.1%}")
        for (fate, style), share in named
        if share > 0
    ]
    zeros = int((magnitudes == 0).sum())
    sentence = (
        f"{len(kept):,} numbers in {number_format}: {shares.flushed:.1%} are flushed to"
        f" zero, {shares.subnormal:.1%} subnormal, {shares.overflow:.1%} overflow"
    )
    sentence += f"; {zeros:,} more were 0 before." if zeros else "."
    return FigureSpec(
        sentence,
        title_pad=_ABOVE_LIMITS,
        height_in=3.6,
        width_in=4.8,
        legend="right",
        handles=handles,
    )


@Drawing
def accuracy_by_seed(
    ax: Axes, tuned: TunedComparison, *, notes: Mapping[str, str] | None = None
) -> FigureSpec:
    """Held-out accuracy of each way to train at its rate, a dot a seed; the band is the
    first way's range.

    Beside a row stands how far its accuracy is from the first way's, in points, with a
    95 % interval. A way whose accuracy is lower beyond chance (`gain`) is marked: a
    speed without the accuracy is no speed-up. `notes` stand beside their rows; a way
    whose note begins with "simulated" is drawn hollow.
    """
    baseline = next(iter(tuned.accuracies))
    first = tuned.accuracies[baseline]
    ax.axvspan(100 * min(first), 100 * max(first), color="#e6e6e6", zorder=0)
    for y, (name, values) in enumerate(tuned.accuracies.items()):
        gain = tuned.gain(name)
        note = (notes or {}).get(name, "")
        color = PREDICTED if gain.verdict == "worse" else MEASURED
        fill = "none" if note.startswith("simulated") else "full"
        offsets = y + np.linspace(-0.18, 0.18, len(values))
        ax.plot(
            100 * np.asarray(values),
            offsets,
            "o",
            color=color,
            fillstyle=fill,
            markersize=6,
        )
        middle = 100 * statistics.fmean(values)
        ax.plot([middle, middle], [y - 0.32, y + 0.32], color=LIMIT, linewidth=2)
        words = f"rate {tuned.rates[name]:g}"
        if name != baseline:
            words += f" · {_points(gain)}"
        if note:
            fits = len(words) + len(note) < _LONGEST_LINE
            words += f" · {note}" if fits else f"\n{note}"
        text_beside(ax, y, words)
    name_rows(ax, list(tuned.accuracies))
    ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.set_xlabel(f"held-out accuracy in % (dot: a seed, line: mean, band: {baseline})")
    return FigureSpec(
        _in_short(tuned),
        height_in=1.3 + 0.42 * len(tuned.accuracies),
        width_in=4.2,
    )


def _points(gain: AccuracyGain) -> str:
    """What a row's comparison with the first one shows."""
    value, low, high = (100 * part for part in (gain.value, gain.low, gain.high))
    return f"{gain.verdict}: {value:+.1f} points ({low:+.1f} to {high:+.1f})"


def _in_short(tuned: TunedComparison) -> str:
    """The first way's mean, and which ways differ from it beyond chance."""
    baseline, *others = tuned.accuracies
    values = tuned.accuracies[baseline]
    mean = f"{significant(100 * statistics.fmean(values))} %"
    begin = f"{baseline} reaches {mean}, the mean of {len(values)} seeds"
    if len(values) < PAIRS:
        return f"{begin}; with fewer than {PAIRS}, nothing is judged."
    verdicts = {name: tuned.gain(name).verdict for name in others}
    same = [name for name in others if verdicts[name] == "no difference shown"]
    parts = [begin]
    parts += [
        f"{name} against {baseline}: {verdict}"
        for name, verdict in verdicts.items()
        if name not in same or len(same) == 1
    ]
    if len(same) > 1:
        parts.append(f"no difference from {baseline} shown for {len(same)} ways")
    return f"{'; '.join(parts)}."
