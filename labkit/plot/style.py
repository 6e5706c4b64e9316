"""Colors, markers and textures of all figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.patches import Patch

# Okabe and Ito's colors (2008), which color-blind readers can tell apart.
MEASURED = "#0072B2"
PREDICTED = "#D55E00"
LIMIT = "#000000"
RECORDED = "#8a8a8a"
ACCENT = "#009E73"
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# not measured here
HATCHED: dict[str, Any] = {"facecolor": "white", "edgecolor": RECORDED, "hatch": "//"}
# the reader's prediction
DIAMOND: dict[str, Any] = {
    "marker": "D",
    "color": PREDICTED,
    "fillstyle": "none",
    "markeredgewidth": 2,
    "linestyle": "",
}
# for text on a line or a texture
ON_WHITE: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
EDGES: dict[str, Any] = {"edgecolor": "#404040", "linewidth": 0.4}


def series_style(i: int) -> dict[str, Any]:
    """Color and marker of the `i`-th series; after seven each color comes again with
    another marker.
    """
    return {
        "color": CYCLE[i % len(CYCLE)],
        "marker": MARKERS[(i + i // len(CYCLE)) % len(MARKERS)],
    }


def patches_of(looks: Mapping[str, tuple[str, str]]) -> list[Patch]:
    """What a legend shows for bars that differ in color and texture, by name."""
    return [
        Patch(facecolor=color, hatch=hatch, label=name, **EDGES)
        for name, (color, hatch) in looks.items()
    ]
