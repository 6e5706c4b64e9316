"""What holds for a step of any model, layout, precision and software,
drawn at random.
"""

import contextlib
import dataclasses
import random

import pytest

from gpufacts import devices
from trainplan.cluster import (
    MODELS,
    PARTS,
    PURPOSES,
    SOFTWARE,
    Cluster,
    Layout,
    model,
    step,
)
from trainplan.costs import PRECISIONS
from trainplan.errors import LayoutError

pytestmark = pytest.mark.slow

DEVICES = ("A100 SXM4 80GB", "H100 SXM5 80GB", "B200 SXM")
CHOICES = {
    "data": (1, 2, 8),
    "tensor": (1, 2, 8),
    "pipeline": (1, 2, 4),
    "interleave": (1, 1, 2),
    "zero": (0, 1, 2, 3),
    "micro_batch": (1, 2),
    "recompute": ("none", "selective", "half", "full"),
    "sequence_parallel": (False, True),
    "dtype": tuple(PRECISIONS),
    "optimizer": ("adam", "sgd"),
    "overlap": (False, True),
    "context": (1, 1, 2),
    "expert": (1, 1, 4),
    "shard": (None, None, 2),
    "schedule": ("1F1B", "1F1B", "ZB-H1", "ZB-V", "DualPipe"),
    "offload": (False, False, True),
    "software": tuple(SOFTWARE.values()),
}


def steps(count, seed):
    """So many steps that can be."""
    draw = random.Random(seed)
    while count:
        layout = Layout(
            **{field: draw.choice(values) for field, values in CHOICES.items()}
        )
        cluster = Cluster(draw.choice(DEVICES), layout.gpus, min(layout.gpus, 8))
        batch = layout.data * layout.micro_batch * layout.pipeline * draw.choice((1, 4))
        with contextlib.suppress(LayoutError):
            yield step(draw.choice(list(MODELS.values())), cluster, layout, batch)
            count -= 1


def test_a_step_uses_at_most_the_peak_and_no_part_of_it_is_below_zero():
    for planned in steps(300, seed=1):
        assert 0 < planned.mfu < 1, planned
        assert (tuple(planned.parts), tuple(planned.memory)) == (PARTS, tuple(PURPOSES))
        assert min(*planned.parts.values(), *planned.memory.values()) >= -1e-12, planned
        assert planned.seconds == pytest.approx(sum(planned.parts.values()))
        assert planned.memory_bytes == pytest.approx(sum(planned.memory.values()))
        assert (
            planned.seconds
            > planned.memory["parameters"] / planned.cluster.gpu.bandwidth_bytes_per_s
        )


@pytest.mark.parametrize("dtype", ["float32", "mixed bfloat16", "mixed float8"])
def test_a_step_on_any_device_uses_at_most_the_peak(dtype):
    shape = model("Qwen3-30B-A3B")
    layout = Layout(dtype=dtype, micro_batch=8)
    planned = []
    for device in devices():
        with contextlib.suppress(LayoutError):  # a device without this dtype
            planned.append(step(shape, Cluster(device, 1), layout, 8))
    assert len(planned) > 10
    assert all(0 < entry.mfu < 1 for entry in planned), max(
        planned, key=lambda entry: entry.mfu
    )


@pytest.mark.parametrize("larger", ["batch", "layers", "vocab", "feed_forward", "seq"])
def test_twice_the_work_is_neither_faster_nor_smaller(larger):
    compared = 0
    for planned in steps(80, seed=2):
        shape = planned.model
        batch = planned.batch
        if larger == "batch":
            batch *= 2
        else:
            shape = dataclasses.replace(
                shape, **{larger: 2 * (getattr(shape, larger) or shape.inner)}
            )
        # its layout needn't divide twice as many layers
        with contextlib.suppress(LayoutError):
            more = step(shape, planned.cluster, planned.layout, batch)
            compared += 1
            assert more.seconds >= planned.seconds, planned
            assert more.memory_bytes >= planned.memory_bytes * (1 - 1e-12), planned
    assert compared > 70
