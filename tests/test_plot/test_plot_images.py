"""Figures of images: their sentences say what they show; wrong input is refused."""

import numpy as np
import pytest

from labkit.core.errors import BadArgument
from labkit.plot import gray_images


def test_gray_images_stand_side_by_side():
    picture = gray_images({"before": np.eye(3, 5), "after": np.zeros((3, 5))})
    assert [label.get_text() for label in picture.ax.get_xticklabels()] == [
        "before",
        "after",
    ]
    assert picture.sentence == "before, after: 3 rows and 5 columns each."
    with pytest.raises(BadArgument, match="one shape"):
        gray_images({"before": np.eye(3), "after": np.eye(4)})
