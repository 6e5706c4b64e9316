"""Figures of devices: the roofline, how much of a peak is reached, and which devices
suit a job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from exercises.nb01 import device_jobs
from exercises.nb01.device_jobs import Candidate
from exercises.nb01.published_matmuls import PublishedMatmul
from labkit.core.parameters import Count, NonNegative, Positive
from labkit.core.units import format_si, significant
from labkit.measure.ceilings import MachineCeilings
from labkit.plot import Picture
from labkit.plot.core import Drawing, FigureSpec, label_seconds, name_rows, text_beside
from labkit.plot.style import HATCHED, LIMIT, MEASURED, series_style
from trainplan import costs

# of the roof; points up to here are no mistake, since two measurements differ by some
# per cent
_ABOVE = 1.1
_REFUSED: dict[str, Any] = {"color": "white", "edgecolor": "#c8c8c8", "linestyle": ":"}
_GRAY = "#767676"
_COLUMNS = "{:<9} {:<9} {}"  # time, memory, energy, right of a shortlist
# one text a row: one a cell would cost a live frame too long
_ALIGNED: dict[str, Any] = {"family": "monospace"}


@Drawing
def roofline(
    ax: Axes,
    points: Mapping[str, tuple[Positive, Positive]],
    *,
    flop_per_s: Positive,
    bytes_per_s: Positive,
) -> FigureSpec:
    """Measured points (FLOP per byte, FLOP/s) under the roof that two ceilings make;
    both axes logarithmic.

    Source: Williams, Waterman and Patterson (2009), Roofline. Raises BadArgument for
    ceilings or points at or below zero.
    """
    ridge = flop_per_s / bytes_per_s
    shown = [ridge, *(x for x, _ in points.values())]
    x = np.geomspace(min(shown) / 4, max(shown) * 4, 200)
    ax.loglog(
        x,
        np.minimum(flop_per_s, x * bytes_per_s),
        color=LIMIT,
        linewidth=2,
        label="roof (measured ceilings)",
    )
    ax.axvline(ridge, color=LIMIT, linewidth=0.8, linestyle=":")
    ax.annotate(
        "ridge",
        (ridge, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
    )
    shares = {}
    for i, (name, (flop_per_byte, rate)) in enumerate(points.items()):
        shares[name] = rate / min(flop_per_s, flop_per_byte * bytes_per_s)
        label = f"{name}: {shares[name]:.0%} of the roof"
        ax.plot(
            flop_per_byte,
            rate,
            linestyle="",
            markersize=9,
            label=label,
            **series_style(i),
        )
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_major_formatter(lambda value, _: format_si(value, "FLOP/s"))
    ax.set(
        xlabel="arithmetic intensity (FLOP per byte counted)",
        ylabel="rate of arithmetic",
    )
    return FigureSpec(
        _roofline_in_words(shares, ridge), height_in=4.2, width_in=4.8, legend="right"
    )


def roof_of(
    ceilings: MachineCeilings, points: Mapping[str, tuple[float, float]], title: str
) -> Picture:
    """The `roofline` of measured ceilings in float32, with these points."""
    return roofline(
        points,
        flop_per_s=ceilings.limit("float32"),
        bytes_per_s=ceilings.copy_bytes_per_s,
        title=title,
    )


def _roofline_in_words(shares: Mapping[str, float], ridge: float) -> str:
    words = [f"The ridge is at {significant(ridge)} FLOP per byte"]
    words += [
        f"{name} reaches {share:.0%} of the roof" for name, share in shares.items()
    ]
    above = [name for name, share in shares.items() if share > _ABOVE]
    mistake = (
        f" {' and '.join(above)} above the roof: a wrong count, a wrong clock, or data"
        " that a cache served."
    )
    return "; ".join(words) + "." + (mistake if above else "")


@Drawing
def reached(
    ax: Axes,
    published: Sequence[PublishedMatmul],
    *,
    here: Mapping[str, tuple[NonNegative, Positive]] | None = None,
) -> FigureSpec:
    """Matmul rates as a share of the vendor's dense peak: others' hatched with their
    source, `here` solid.

    `here` maps a label to (measured FLOP/s, peak FLOP/s); leave out what has no known
    peak.
    """
    mine: dict[str, Any] = {"color": MEASURED, "label": "measured here"}
    others = {
        **HATCHED,
        "label": (
            "published: "
            + "; ".join(sorted({result.source.split(" (")[0] for result in published}))
        ),
    }
    rows = [
        (label, rate / peak, peak, mine) for label, (rate, peak) in (here or {}).items()
    ]
    rows += [
        (result.device, result.share, result.peak_flop_per_s, others)
        for result in published
    ]
    for y, (_, share, peak, style) in enumerate(rows):
        ax.barh(y, 100 * share, 0.7, **style)
        text_beside(ax, y, f"{share:.0%} of {format_si(peak, 'FLOP/s')}")
    ax.axvline(100, color=LIMIT, linewidth=2, label="limit: the vendor's peak")
    name_rows(ax, [row[0] for row in rows])
    ax.set(
        xlim=(0, 100 * max([1.0, *(row[1] for row in rows)])),
        xlabel="share of the dense peak reached (%)",
    )
    height_in = 1.1 + 0.28 * max(len(rows), 1)
    return FigureSpec(
        _reached_in_words(published, here or {}),
        height_in=height_in,
        width_in=4.5,
        legend="above",
    )


def share_here(
    ceilings: MachineCeilings, dtype: str
) -> dict[str, tuple[float, float]] | None:
    """What `reached` takes of this machine: its name -> the measured and the printed
    FLOP/s of a dtype; None where either is unknown.
    """
    measured = ceilings.limit(dtype)
    printed = ceilings.peak(dtype)
    if measured is None or printed is None:
        return None
    return {ceilings.device: (measured, printed)}


def _reached_in_words(
    published: Sequence[PublishedMatmul], here: Mapping[str, tuple[float, float]]
) -> str:
    words = [
        f"{label}: {rate / peak:.0%} of the peak, measured here"
        for label, (rate, peak) in here.items()
    ]
    if published:
        low = min(published, key=lambda result: result.share)
        high = max(published, key=lambda result: result.share)
        words.append(
            f"best {published[0].dtype} matmuls that others published: from"
            f" {low.share:.0%} ({low.device}) to {high.share:.0%} ({high.device}) of"
            " the peak"
        )
    above = " A board that clocks above its printed boost exceeds its peak." * any(
        r > p for r, p in here.values()
    )
    return (
        "; ".join(words) + "." + above
        if words
        else "Nothing to show: no rate has a known peak."
    )


@Drawing
def shortlist(
    ax: Axes, candidates: Sequence[Candidate], *, most: Count = 14
) -> FigureSpec:
    """Judged devices as bars of a step's roofline time, with memory and energy, or the
    reason against.

    Of each verdict the fastest are shown, `most` in all; the sentence counts every
    candidate.
    """
    rows = _fair_selection(candidates, most)
    for y, candidate in enumerate(rows):
        if candidate.step_s is not None:
            style = HATCHED if candidate.fits else _REFUSED
            ax.barh(y, candidate.step_s, 0.7, **style)
        reason = f"{candidate.verdict}: {candidate.why[0].partition(', so ')[0]}"
        text, color = (
            (_COLUMNS.format(*candidate.amounts), "black")
            if candidate.fits
            else (reason, _GRAY)
        )
        text_beside(ax, y, text, color=color, **_ALIGNED)
    text_beside(
        ax, -1, _COLUMNS.format("time", "memory", "energy"), weight="bold", **_ALIGNED
    )
    # the longest name would be cut
    name_rows(
        ax, [candidate.device.name.removesuffix(" Edition") for candidate in rows]
    )
    for tick, candidate in zip(ax.get_yticklabels(), rows, strict=True):
        tick.set_color("black" if candidate.fits else _GRAY)
    ax.set_xlim(left=0)
    label_seconds(ax.xaxis, ticks=4)
    ax.set_xlabel("roofline time of a step, from dense peaks (calculated)")
    sentence = _shortlist_in_words(candidates, rows)
    height_in = 1.1 + 0.27 * max(len(rows), 1)
    # narrow, since the columns are to the right of the axes; their header is between
    # the axes and the title
    return FigureSpec(sentence, height_in=height_in, width_in=3.6, title_pad=24)


def _fair_selection(candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """Half of the rows for what is in, a quarter each for undecided and out; rows left
    over go on in this order.
    """
    groups = {
        verdict: [candidate for candidate in candidates if candidate.fits is verdict]
        for verdict in (True, None, False)
    }
    room = {True: most // 2, None: most // 4, False: most // 4}
    left = most - sum(
        min(room[verdict], len(group)) for verdict, group in groups.items()
    )
    for verdict, group in groups.items():
        extra = min(left, max(len(group) - room[verdict], 0))
        room[verdict] += extra
        left -= extra
    return [
        candidate
        for verdict, group in groups.items()
        for candidate in group[: room[verdict]]
    ]


def _shortlist_in_words(
    candidates: Sequence[Candidate], rows: Sequence[Candidate]
) -> str:
    if not candidates:
        return "No device to judge."
    groups = {
        verdict: [candidate for candidate in candidates if candidate.fits is verdict]
        for verdict in (True, None, False)
    }
    words = [f"Of {len(candidates)} devices {len(groups[True])} are in"]
    if groups[True]:
        first = groups[True][0]
        time, _, energy = first.amounts
        energy += "" if first.energy_j is None else " at full board power"
        words[0] += f", the fastest {first.device.name}" + (
            f" ({time}, energy {energy})" if first.step_s else ""
        )
    for group in (groups[None], groups[False]):
        if group:
            example = group[0]
            words.append(
                f"{len(group)} {example.verdict}, such as {example.device.name}:"
                f" {example.why[0]}"
            )
    shown = "" if len(rows) == len(candidates) else f" {len(rows)} of them are shown."
    starred = any("*" in candidate.why[0] for candidate in rows if not candidate.fits)
    return (
        "; ".join(words)
        + "."
        + shown
        + " * recalled or derived, not read from a source." * starred
    )


@Drawing
def shortlist_of(
    ax: Axes, *, model: str, batch: Count, sequence: Count, dtype: str, optimizer: str
) -> FigureSpec:
    """The shortlist of the whole catalog for one training step, as sliders set it.

    A setting that the model doesn't allow is explained in words in place of the figure.
    """
    try:
        step = costs.training_step(
            model, batch=batch, seq=sequence, dtype=dtype, optimizer=optimizer
        )
    except ValueError as error:
        ax.set_axis_off()
        ax.annotate(str(error), (0, 0.5), xycoords="axes fraction", wrap=True)
        return FigureSpec(str(error))
    job = device_jobs.Job(
        memory_bytes=step.memory.total_bytes,
        flop=step.flop,
        n_bytes=step.n_bytes,
        dtype=step.compute_dtype,
    )
    return dataclasses.replace(
        shortlist.draw(ax, device_jobs.shortlist(job)),
        title=str(step).replace(": ", ":\n", 1),
    )


@Drawing
def jobs_by_device(ax: Axes, judged: Mapping[str, Sequence[Candidate]]) -> FigureSpec:
    """A step's roofline time of several jobs on the same devices, in the first job's
    order; open markers are out.
    """
    first_job = next(iter(judged.values()), ())
    names = [candidate.device.name for candidate in first_job]
    words = []
    for i, (job, candidates) in enumerate(judged.items()):
        style = {**series_style(i), "markersize": 9, "linestyle": ""}
        ax.plot([], [], label=job, **style)
        for candidate in candidates:
            if candidate.step_s is not None:
                fill = "full" if candidate.fits else "none"
                ax.plot(
                    candidate.step_s,
                    names.index(candidate.device.name),
                    fillstyle=fill,
                    **style,
                )
        inside = [candidate.device.name for candidate in candidates if candidate.fits]
        words.append(f"{job}: {', '.join(inside) if inside else 'no device'} in")
    name_rows(ax, names)
    ax.set_xscale("log")
    ax.locator_params(axis="x", numticks=7)
    label_seconds(ax.xaxis)
    ax.xaxis.set_minor_formatter(lambda _value, _: "")
    ax.grid(axis="y", linewidth=0.4)
    ax.set_xlabel(
        "roofline time of a step (calculated). Open marker: out. No marker: a fact is"
        " missing"
    )
    sentence = "; ".join(words) + "." if words else "No job to draw."
    return FigureSpec(
        sentence, height_in=1.1 + 0.35 * max(len(names), 1), legend="above"
    )
