"""Draw packages/kerneltrace/picture.png anew: the addresses that a warp asks for in the
example of the README beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float32

import kerneltrace
from exercises.nb04.figures import warp_lines
from labkit.core.paths import PROJECTS
from labkit.plot.picture import to_png

PICTURE = PROJECTS / "kerneltrace" / "picture.png"
TITLE = "matrix[i, j], as the 16 threads of a block ask for it"


def column_means(matrix: Any, out: Any) -> None:
    """README's kernel, up to its first access to memory."""
    column = cuda.shared.array(16, float32)
    i = cuda.threadIdx.x
    j = cuda.blockIdx.x
    column[i] = matrix[i, j]


if __name__ == "__main__":
    arrays = np.ones((16, 64), np.float32), np.zeros(64, np.float32)
    trace = kerneltrace.trace(column_means, 64, 16, *arrays)
    PICTURE.write_bytes(to_png(warp_lines(trace.request("matrix"), title=TITLE).ax))
