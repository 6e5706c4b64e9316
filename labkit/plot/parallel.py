"""The figure of what ranks exchange: bytes of sharding and of tensor parallelism, by the tokens of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from labkit.core.units import format_bytes
from labkit.plot.core import CYCLE, LIMIT, MARKERS, ON_WHITE, Drawing, resize
from labkit.plot.labels import label_ticks, write_beside


@Drawing
def bytes_by_tokens(
    ax: Axes,
    counted: Mapping[str, Mapping[int, float]],
    *,
    params: int,
    blocks: int,
    hidden: int,
    ranks: int,
    element_bytes: int = 4,
) -> str:
    """Bytes that a rank sends in a step, by tokens of the global batch: lines predicted, dots counted.

    `counted` maps "FSDP" and "tensor parallel" to bytes by tokens. FSDP moves all `params` three times, (n - 1) / n of
    them from each rank; tensor parallelism all-reduces tokens * hidden numbers four times a block by a ring.
    """
    share = (ranks - 1) / ranks * element_bytes
    per_token = 8 * share * blocks * hidden
    lines = {"FSDP": (3 * share * params, 0.0), "tensor parallel": (0.0, per_token)}
    equal = 3 * params / (8 * blocks * hidden)
    seen = [tokens for found in counted.values() for tokens in found]
    x = np.geomspace(min([equal, *seen]) / 2, max([equal, *seen]) * 2, 100)
    for i, (way, (fixed, slope)) in enumerate(lines.items()):
        ax.plot(x, fixed + slope * x, color=CYCLE[i], linestyle=("-", "--")[i], label=f"{way}, predicted")
        if found := counted.get(way):
            ax.plot(list(found), list(found.values()), MARKERS[i], color=CYCLE[i], label=f"{way}, counted")
    ax.axvline(equal, color=LIMIT, linewidth=1, linestyle=":")
    ax.set_xscale("log", base=4)
    ax.set_yscale("log", base=4)
    place: dict[str, Any] = {"offset": (6, 8), "va": "baseline", "fontsize": 9, "bbox": ON_WHITE}
    write_beside(ax, equal, ax.get_ylim()[0], f"equal at {equal:,.0f} tokens", **place)
    label_ticks(ax.xaxis, "{:,.0f}".format)
    label_ticks(ax.yaxis, format_bytes)
    ax.minorticks_off()
    ax.set(xlabel="tokens of the global batch in a step", ylabel="bytes sent by a rank")
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    resize(ax, 3.6)
    return f"Left of {equal:,.0f} tokens tensor parallelism sends less, right of it FSDP does."
