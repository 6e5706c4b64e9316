"""The figure of the owners of elements: its sentence says what it shows; wrong input is
refused.
"""

import numpy as np
import pytest

from exercises.nb03.figures import owners
from labkit.core.errors import BadArgument


def texts(picture):
    return [text.get_text() for text in picture.ax.texts]


def test_owners_names_block_and_thread_of_every_element():
    picture = owners([0, 0, 1, 1, -1], [0, 1, 0, 1, -1])
    assert texts(picture) == [
        "block 0\nthread 0",
        "block 0\nthread 1",
        "block 1\nthread 0",
        "block 1\nthread 1",
    ]
    assert (
        picture.sentence
        == "5 elements: block 0 writes 2, block 1 writes 2. Nobody writes 1 of them"
        " (crossed out)."
    )


@pytest.mark.parametrize("shape", [(0,), (401,), (2, 2, 2)])
def test_owners_refuses_what_it_cannot_draw(shape):
    with pytest.raises(BadArgument, match="Draw a smaller array"):
        owners(np.zeros(shape, int), np.zeros(shape, int))
