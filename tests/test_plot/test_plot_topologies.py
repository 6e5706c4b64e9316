"""The memory bars of layouts."""

from labkit import plot
from labkit.plan.cluster import PURPOSES, Cluster, Layout, model, step
from labkit.plot.clusters import _PURPOSES


def test_memory_bars_have_every_purpose_and_say_what_does_not_fit():
    shape, cluster = model("Llama-2-70B"), Cluster("A100 SXM4 80GB", 64)
    steps = {
        "copies": step(shape, cluster, Layout(64), 512),
        "FSDP": step(shape, cluster, Layout(64, zero=3, recompute="full"), 512),
    }
    made = plot.memory_parts(steps)
    assert made.sentence.startswith("copies: ")
    assert "does not fit; FSDP" in made.sentence
    widths = {
        name: sum(bar.get_width() for bar in made.ax.patches if round(bar.get_y() + 0.275) == y)
        for y, name in enumerate(steps)
    }
    assert all(abs(widths[name] / (steps[name].memory_bytes / 2**30) - 1) < 1e-9 for name in steps)
    assert set(_PURPOSES) == set(PURPOSES)
    assert plot.memory_parts({}).sentence == "No layout to draw."
