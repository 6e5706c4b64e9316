"""Run a rewritten kernel: blocks one after the other, each by the turns of its threads."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.simt.block import Block, Stopped
from labkit.simt.program import Program
from labkit.simt.space import SharedLayout, Space
from labkit.simt.thread import Dim3, place
from labkit.simt.trouble import Trouble


class Launch:
    """A grid of blocks of threads that run one kernel."""

    def __init__(self, program: Program, space: Space, trouble: Trouble, grid: Dim3, block: Dim3, shared: int) -> None:
        self.program, self.space, self.trouble, self.grid, self.block = program, space, trouble, grid, block
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
