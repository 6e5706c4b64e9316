"""Time notebook 04's fast numba kernels on this GPU beside what their traces promise,
and say where they differ.

usage, in the repository's folder, on a machine with a CUDA GPU that numba can use:
python -m benchmarks.estimates
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import labkit as lab
from exercises.nb04 import numba_kernels as fast
from gpufacts import UnknownDevice
from kerneltrace import Estimate
from labkit.core.display import Table
from labkit.core.units import format_seconds, significant
from labkit.measure.bench import Timing, time_call
from labkit.measure.machine import machine


@dataclass(frozen=True)
class Case:
    """A kernel whose blocks cover `tile` numbers along each axis, on `full` numbers or
    matrices of that side.
    """

    kernel: Any
    tile: int
    block: tuple[int, ...]
    full: int
    traced_depth: int = 0  # of a matmul: turns of its loop that are traced

    def grid(self, n: int) -> tuple[int, ...]:
        """Blocks along each axis."""
        return (n // self.tile,) * (2 if self.traced_depth else 1)

    def arrays(self, n: int, depth: int) -> list[np.ndarray]:
        """What a launch takes: two matrices and their product, or numbers and their
        sum.
        """
        shapes = ((n, depth), (depth, n), (n, n)) if self.traced_depth else ((n,), (1,))
        return [np.ones(shape, np.float32) for shape in shapes]

    def calculated(self, gpu: str) -> Estimate:
        """What the trace of two blocks along each axis says of the full launch."""
        small = 2 * self.tile
        longer = self.full / self.traced_depth if self.traced_depth else 1.0
        trace = lab.trace(
            self.kernel,
            self.grid(small),
            self.block,
            *self.arrays(small, self.traced_depth),
        )
        return trace.estimate(gpu, grid=self.grid(self.full), longer=longer)

    def measured(self) -> Timing:
        """The full launch on this GPU."""
        from numba import cuda

        arrays = [cuda.to_device(array) for array in self.arrays(self.full, self.full)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numba's, on small grids
            launch = self.kernel[self.grid(self.full), self.block]
            return time_call(
                lambda: launch(*arrays),
                label="launch",
                sync=cuda.synchronize,
                budget_s=0.5,
            )


CASES = {
    "sum by shared memory": Case(fast.sum_shared, 256, (256,), 2**26),
    "sum by shuffles": Case(fast.sum_shuffle, 256, (256,), 2**26),
    "matmul, tiled": Case(fast.matmul_tiled, 16, (16, 16), 2048, 64),
    "matmul, blocked": Case(fast.matmul_blocked, 128, (256,), 2048, 32),
}


def main() -> int:
    """Print the table; without a GPU, or for one without known rates, say so."""
    from numba import cuda

    if not machine().gpus or not cuda.is_available():
        print("No GPU that torch and numba can use: nothing to compare.")
        return 0
    gpu = machine().gpus[0].name
    rows = []
    for name, case in CASES.items():
        try:
            promised = case.calculated(gpu)
        except UnknownDevice as error:
            print(error)
            return 0
        took_s = case.measured().median_s
        low_s, high_s = promised.interval_s
        verdict = "as estimated" if low_s <= took_s <= high_s else "differs"
        off = f"{significant(took_s / promised.seconds)} times"
        rows.append(
            (
                name,
                format_seconds(took_s),
                format_seconds(promised.seconds),
                off,
                promised.limit,
                verdict,
            )
        )
    head = (
        "kernel",
        "measured",
        "calculated",
        "measured over calculated",
        "limited by",
        "",
    )
    print(Table(tuple(rows), head, f"What differed from the estimates on {gpu}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
