"""Draw timeline.png: three steps on four ranks, of which rank 2 computes twice as
long as the others.

usage: python draw_timeline.py
"""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from matplotlib.patches import Patch

import ranks

COLORS = {"compute": "#0072B2", "communication": "#D55E00", "idle": "#d9d9d9"}


def steps() -> None:
    """What each rank runs: sleep in place of compute, and an all-reduce of 4 MB after
    each step.
    """
    dist.init_process_group("gloo")
    x = torch.ones(1_000_000)
    dist.barrier()
    for step in range(3):
        with ranks.span("compute", f"step {step}", simulated=True):
            time.sleep(0.04 if dist.get_rank() == 2 else 0.02)
        dist.all_reduce(x)


def main() -> None:
    """Launch and draw."""
    spans = [span for span in ranks.launch(steps, 4).spans if span.label != "barrier"]
    zero_s = min(span.start_s for span in spans)
    figure, ax = plt.subplots(figsize=(8, 2.4), layout="constrained")
    for span in spans:
        left_ms = 1e3 * (span.start_s - zero_s)
        ms = 1e3 * span.seconds
        ax.barh(f"rank {span.rank}", ms, left=left_ms, color=COLORS[span.kind])
    ax.invert_yaxis()
    ax.set_xlabel("ms since the first step began")
    patches = [Patch(color=color, label=kind) for kind, color in COLORS.items()]
    figure.legend(handles=patches, loc="outside upper right", ncols=3)
    figure.savefig(Path(__file__).with_name("timeline.png"), dpi=110)


if __name__ == "__main__":
    main()
