"""Run a rewritten kernel: blocks one after the other, each by the turns of its threads."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.gpu.trace.block import Block, Stopped
from labkit.gpu.trace.diagnostics import Diagnostics
from labkit.gpu.trace.program import Program
from labkit.gpu.trace.space import SharedLayout, Space
from labkit.gpu.trace.thread import Dim3, place


class Launch:
    """A grid of blocks of threads that run one kernel."""

    def __init__(
        self, program: Program, space: Space, diagnostics: Diagnostics, grid: Dim3, block: Dim3, shared: int
    ) -> None:
        self.program, self.space, self.diagnostics, self.grid, self.block = program, space, diagnostics, grid, block
        self.layout = SharedLayout(shared)
        self.places = [place(i, block) for i in range(math.prod(block))]

    def run(self, kernel: Callable[..., Any], args: tuple[Any, ...], order: random.Random | None = None) -> None:
        """Run every block, in order or shuffled by `order`, and the threads of each likewise."""
        blocks = math.prod(self.grid)
        numbers = order.sample(range(blocks), blocks) if order else range(blocks)
        collecting = gc.isenabled()
        gc.disable()  # a trace makes millions of objects, and a block ends the cycles it makes
        try:
            with np.errstate(all="ignore"):
                for number in numbers:
                    Block(self, number).run(kernel, args, order)
        except Stopped:
            pass
        finally:
            if collecting:
                gc.enable()
