"""The figures of notebook 03: their sentences say what they show, and impossible input is told."""

import numpy as np
import pytest

from labkit.core.errors import BadArgument
from labkit.plot.threads import grey_images, owners, passes


def texts(picture):
    return [text.get_text() for text in picture.ax.texts]


def test_owners_names_block_and_thread_of_every_element():
    picture = owners([0, 0, 1, 1, -1], [0, 1, 0, 1, -1])
    assert texts(picture) == ["block 0\nthread 0", "block 0\nthread 1", "block 1\nthread 0", "block 1\nthread 1"]
    assert picture.sentence == (
        "5 elements: block 0 writes 2, block 1 writes 2. Nobody writes 1 of them (crossed out)."
    )


def test_owners_wraps_long_arrays_and_counts_many_blocks():
    picture = owners(np.arange(45) // 5, np.arange(45) % 5)
    assert picture.ax.get_ylim() == (3, 0)
    assert "9 blocks write 5 to 5 elements each" in picture.sentence


@pytest.mark.parametrize("shape", [(0,), (401,), (2, 2, 2)])
def test_owners_refuses_what_it_cannot_draw(shape):
    with pytest.raises(BadArgument, match="Draw a smaller array"):
        owners(np.zeros(shape, int), np.zeros(shape, int))


@pytest.mark.parametrize(
    ("cpu_s", "words"),
    [
        (0.011, "equally long at 10.0 passes"),
        (1.0, "wins from the first pass on, by 9.9"),
        (0.001, "never wins"),
    ],
)
def test_passes_says_when_the_gpu_wins(cpu_s, words):
    assert words in passes(cpu_s=cpu_s, transfer_s=0.1, kernel_s=0.001, origin="calculated").sentence


def test_passes_refuses_times_of_nothing():
    with pytest.raises(BadArgument, match="transfer_s"):
        passes(cpu_s=1.0, transfer_s=0.0, kernel_s=0.1, origin="measured")


def test_grey_images_stand_side_by_side():
    picture = grey_images({"before": np.eye(3, 5), "after": np.zeros((3, 5))})
    assert [label.get_text() for label in picture.ax.get_xticklabels()] == ["before", "after"]
    assert picture.sentence == "before and after: 3 rows and 5 columns each."
    with pytest.raises(BadArgument, match="one shape"):
        grey_images({"before": np.eye(3), "after": np.eye(4)})
