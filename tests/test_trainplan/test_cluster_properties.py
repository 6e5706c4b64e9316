"""What holds for a step of any model, layout, precision and software, drawn at random."""

import contextlib
import dataclasses
import random

import pytest

from trainplan.cluster import MODELS, PARTS, PURPOSES, SOFTWARE, Cluster, Layout, step
from trainplan.costs import PRECISIONS
from trainplan.errors import LayoutError

DEVICES = ("A100 SXM4 80GB", "H100 SXM5 80GB", "B200 SXM")
CHOICES = {
    "data": (1, 2, 8), "tensor": (1, 2, 8), "pipeline": (1, 2, 4), "interleave": (1, 1, 2), "zero": (0, 1, 2, 3),
    "micro_batch": (1, 2), "recompute": ("none", "selective", "half", "full"), "sequence_parallel": (False, True),
    "dtype": tuple(PRECISIONS), "optimizer": ("adam", "sgd"), "overlap": (False, True), "context": (1, 1, 2),
    "expert": (1, 1, 4), "shard": (None, None, 2), "schedule": ("1F1B", "1F1B", "ZB-H1", "ZB-V", "DualPipe"),
    "offload": (False, False, True), "software": tuple(SOFTWARE.values()),
}  # fmt: skip


def steps(count, seed):
    """So many steps that can be."""
    draw = random.Random(seed)
    while count:
        layout = Layout(**{field: draw.choice(values) for field, values in CHOICES.items()})
        cluster = Cluster(draw.choice(DEVICES), layout.gpus, min(layout.gpus, 8))
        batch = layout.data * layout.micro_batch * layout.pipeline * draw.choice((1, 4))
        with contextlib.suppress(LayoutError):
            yield step(draw.choice(list(MODELS.values())), cluster, layout, batch)
            count -= 1


def test_a_step_uses_at_most_the_peak_and_no_part_of_it_is_below_zero():
    for made in steps(300, seed=1):
        assert 0 < made.mfu < 1, made
        assert (tuple(made.parts), tuple(made.memory)) == (PARTS, tuple(PURPOSES))
        assert min(*made.parts.values(), *made.memory.values()) >= -1e-12, made
        assert made.seconds == pytest.approx(sum(made.parts.values()))
        assert made.memory_bytes == pytest.approx(sum(made.memory.values()))


@pytest.mark.parametrize("larger", ["batch", "layers", "vocab", "feed_forward", "seq"])
def test_twice_the_work_is_neither_faster_nor_smaller(larger):
    compared = 0
    for made in steps(150, seed=2):
        model, batch = made.model, made.batch * (2 if larger == "batch" else 1)
        if larger != "batch":
            model = dataclasses.replace(model, **{larger: 2 * (getattr(model, larger) or model.inner)})
        with contextlib.suppress(LayoutError):  # a layout that divides the layers needn't divide twice as many
            more = step(model, made.cluster, made.layout, batch)
            compared += 1
            assert more.seconds >= made.seconds, made
            assert more.memory_bytes >= made.memory_bytes * (1 - 1e-12), made
    assert compared > 140
