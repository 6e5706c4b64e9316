"""Figures of devices: the roofline, how much of a peak is reached, and which devices suit a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from labkit.core.errors import BadArgument, LabError
from labkit.core.units import format_seconds, format_si, significant
from labkit.measure import catalog
from labkit.measure.catalog import Candidate
from labkit.plan import costs
from labkit.plan.published import PublishedMatmul
from labkit.plot.core import CYCLE, HATCHED, LIMIT, MARKERS, MEASURED, Drawing, resize
from labkit.plot.labels import name_rows

# How far above the roof a point may lie before it is called a mistake: two measurements differ by some per cent.
ABOVE = 1.1
_REFUSED: dict[str, Any] = {"color": "white", "edgecolor": "#c8c8c8", "linestyle": ":"}
_COLUMNS = "{:<9} {:<9} {:<9} {}"  # time, memory, energy, launch price, right of a shortlist


@Drawing
def roofline(ax: Axes, points: Mapping[str, tuple[float, float]], *, flop_per_s: float, bytes_per_s: float) -> str:
    """Measured points (FLOP per byte, FLOP/s) under the roof that two ceilings make; both axes logarithmic.

    Source: Williams, Waterman and Patterson (2009), Roofline. Raises BadArgument for ceilings or points at or
    below zero.
    """
    ridge = costs.ridge_flop_per_byte(flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)
    if wrong := [name for name, point in points.items() if not min(point) > 0]:
        raise BadArgument(f"Expected FLOP per byte and FLOP/s above zero, got {points[wrong[0]]} for {wrong[0]!r}.")
    resize(ax, 4.2, width_in=4.8)
    shown = [ridge, *(x for x, _ in points.values())]
    x = np.geomspace(min(shown) / 4, max(shown) * 4, 200)
    ax.loglog(x, np.minimum(flop_per_s, x * bytes_per_s), color=LIMIT, linewidth=2, label="roof (measured ceilings)")
    ax.axvline(ridge, color=LIMIT, linewidth=0.8, linestyle=":")
    ax.annotate("ridge", (ridge, 0.02), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points")
    shares = {}
    for i, (name, (flop_per_byte, rate)) in enumerate(points.items()):
        roof = costs.attainable_flop_per_s(flop_per_byte, flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)
        shares[name] = rate / roof
        label = f"{name}: {shares[name]:.0%} of the roof"
        ax.plot(flop_per_byte, rate, MARKERS[i % len(MARKERS)], color=CYCLE[i % len(CYCLE)], markersize=9, label=label)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_major_formatter(lambda value, _: format_si(value, "FLOP/s"))
    ax.set(xlabel="arithmetic intensity (FLOP per byte counted)", ylabel="rate of arithmetic")
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return _roofline_words(shares, ridge)


def _roofline_words(shares: Mapping[str, float], ridge: float) -> str:
    words = [f"The ridge is at {significant(ridge)} FLOP per byte"]
    words += [f"{name} reaches {share:.0%} of the roof" for name, share in shares.items()]
    above = [name for name, share in shares.items() if share > ABOVE]
    mistake = f" {' and '.join(above)} above the roof: a wrong count, a wrong clock, or data that a cache served."
    return "; ".join(words) + "." + (mistake if above else "")


@Drawing
def reached(
    ax: Axes, published: Sequence[PublishedMatmul], *, here: Mapping[str, tuple[float, float]] | None = None
) -> str:
    """Matmul rates as a share of the vendor's dense peak: others' hatched with their source, `here` solid.

    `here` maps a label to (measured FLOP/s, peak FLOP/s); leave out what has no known peak.
    """
    mine = dict(here or {})
    rows = [(label, rate / peak, peak, True) for label, (rate, peak) in mine.items()]
    rows += [(one.device, one.share, one.peak_flop_per_s, False) for one in published]
    resize(ax, 1.1 + 0.28 * max(len(rows), 1), width_in=4.5)
    for y, (_, share, peak, measured) in enumerate(rows):
        style = {"color": MEASURED} if measured else HATCHED
        ax.barh(y, 100 * share, 0.7, **style)
        text = f"{share:.0%} of {format_si(peak, 'FLOP/s')}"
        ax.annotate(text, (102, y), va="center", fontsize=8, annotation_clip=False)
    ax.axvline(100, color=LIMIT, linewidth=2, label="limit: the vendor's peak")
    name_rows(ax, [row[0] for row in rows])
    ax.set(xlim=(0, 100), xlabel="share of the dense peak reached (%)")
    sources = sorted({one.source.split(" (")[0] for one in published})
    handles: list[Any] = [Patch(**HATCHED, label="published: " + "; ".join(sources))]
    handles += [Patch(color=MEASURED, label="measured here")] * bool(mine)
    handles += ax.get_legend_handles_labels()[0]
    ax.legend(handles=handles, frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.0))
    return _reached_words(published, mine)


def _reached_words(published: Sequence[PublishedMatmul], here: Mapping[str, tuple[float, float]]) -> str:
    words = [f"{label}: {rate / peak:.0%} of the peak, measured here" for label, (rate, peak) in here.items()]
    if published:
        low, high = min(published, key=lambda one: one.share), max(published, key=lambda one: one.share)
        words.append(
            f"best {published[0].dtype} matmuls that others published: from {low.share:.0%} ({low.device}) "
            f"to {high.share:.0%} ({high.device}) of the peak"
        )
    return "; ".join(words) + "." if words else "Nothing to show: no rate has a known peak."


@Drawing
def shortlist(ax: Axes, candidates: Sequence[Candidate], *, title: str = "", most: int = 14) -> str:
    """Judged devices as bars of a step's roofline time, with memory, energy and launch price, or the reason against.

    Of each verdict the fastest are shown, `most` in all; the sentence counts every candidate.
    """
    rows = _fair_selection(candidates, most)
    resize(ax, 1.1 + 0.27 * max(len(rows), 1), width_in=3.6)  # the columns stand to the right of the axes
    for y, one in enumerate(rows):
        if one.step_s is not None:
            ax.barh(y, one.step_s, 0.7, **(HATCHED if one.fits else _REFUSED))
        if one.fits:
            _beside(ax, y, _COLUMNS.format(*one.amounts))
        else:
            _beside(ax, y, f"{one.verdict}: {one.why[0].partition(', so ')[0]}", color="#767676")
    _beside(ax, -1, _COLUMNS.format("time", "memory", "energy", "launch price"), weight="bold")
    name_rows(ax, [one.device.name for one in rows])
    for tick, one in zip(ax.get_yticklabels(), rows, strict=True):
        tick.set_color("black" if one.fits else "#767676")
    ax.set_xlim(left=0)
    ax.locator_params(axis="x", nbins=4)
    ax.xaxis.set_major_formatter(lambda value, _: format_seconds(value))
    ax.set_xlabel("roofline time of a step, from dense peaks (calculated)")
    ax.set_title(title, loc="left", fontsize=10, pad=24)
    return _shortlist_words(candidates, rows)


def _fair_selection(candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """Half of the rows for what is in, a quarter each for undecided and out; rows left over go on in this order."""
    groups = {verdict: [one for one in candidates if one.fits is verdict] for verdict in (True, None, False)}
    room = {True: most // 2, None: most // 4, False: most // 4}
    left = most - sum(min(room[verdict], len(group)) for verdict, group in groups.items())
    for verdict, group in groups.items():
        extra = min(left, max(len(group) - room[verdict], 0))
        room[verdict] += extra
        left -= extra
    return [one for verdict, group in groups.items() for one in group[: room[verdict]]]


def _beside(ax: Axes, y: float, text: str, **style: Any) -> None:
    """One text a row, in a font whose columns align: a text for each cell would cost a live frame too long."""
    plain = text.replace("$", r"\$")  # US$ twice in a line would be set as a formula
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
    ax.annotate(plain, (1.02, y), fontsize=8, family="monospace", **place, **style)


def _shortlist_words(candidates: Sequence[Candidate], rows: Sequence[Candidate]) -> str:
    if not candidates:
        return "No device to judge."
    groups = {verdict: [one for one in candidates if one.fits is verdict] for verdict in (True, None, False)}
    words = [f"Of {len(candidates)} devices {len(groups[True])} are in"]
    if groups[True]:
        first = groups[True][0]
        time, _, energy, _ = first.amounts
        energy += "" if first.energy_j is None else " at full board power"
        words[0] += f", the fastest {first.device.name}" + (f" ({time}, energy {energy})" if first.step_s else "")
    for group in (groups[None], groups[False]):
        if group:
            example = group[0]
            words.append(f"{len(group)} {example.verdict}, such as {example.device.name}: {example.why[0]}")
    shown = "" if len(rows) == len(candidates) else f" {len(rows)} of them are shown."
    starred = any("launch_price_usd" in one.device.unread if one.fits else "*" in one.why[0] for one in rows)
    return "; ".join(words) + "." + shown + " * recalled or derived, not read from a source." * starred


@Drawing
def shortlist_of(
    ax: Axes, *, model: str, batch: int, sequence: int, dtype: str, optimizer: str, budget: int | str, most: int = 14
) -> str:
    """The shortlist of the whole catalogue for one training step, as sliders set it; `budget` is US$ or words for none.

    A setting that the model doesn't allow is said in words in place of the figure.
    """
    try:
        step = costs.training_step(model, batch=batch, seq=sequence, dtype=dtype, optimizer=optimizer)
    except LabError as error:
        ax.clear()
        ax.set_axis_off()
        ax.annotate(str(error), (0, 0.5), xycoords="axes fraction", wrap=True)
        return str(error)
    ax.set_axis_on()
    job = catalog.Job(
        memory_bytes=step.memory.total_bytes,
        flop=step.flop,
        n_bytes=step.n_bytes,
        dtype=step.compute_dtype,
        budget_usd=budget if isinstance(budget, int) else None,
    )
    return shortlist.on(ax, catalog.shortlist(job), title=str(step), most=most)


@Drawing
def jobs_by_device(ax: Axes, judged: Mapping[str, Sequence[Candidate]]) -> str:
    """A step's roofline time of several jobs on the same devices, in the first job's order; open markers are out."""
    names = [one.device.name for one in next(iter(judged.values()), ())]
    resize(ax, 1.1 + 0.35 * max(len(names), 1))
    words = []
    for i, (job, candidates) in enumerate(judged.items()):
        style: dict[str, Any] = {"marker": MARKERS[i], "color": CYCLE[i], "markersize": 9, "linestyle": ""}
        ax.plot([], [], label=job, **style)
        for one in candidates:
            if one.step_s is not None:
                fill = "full" if one.fits else "none"
                ax.plot(one.step_s, names.index(one.device.name), fillstyle=fill, **style)
        inside = [one.device.name for one in candidates if one.fits]
        words.append(f"{job}: {', '.join(inside) if inside else 'no device'} in")
    name_rows(ax, names)
    ax.set_xscale("log")
    ax.locator_params(axis="x", numticks=7)
    ax.xaxis.set_major_formatter(lambda value, _: format_seconds(value))
    ax.xaxis.set_minor_formatter(lambda _value, _: "")
    ax.grid(axis="y", linewidth=0.4)
    ax.set_xlabel("roofline time of a step (calculated). Open marker: out. No marker: a fact is missing")
    if judged:
        ax.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.0))
    return "; ".join(words) + "." if words else "No job to draw."
