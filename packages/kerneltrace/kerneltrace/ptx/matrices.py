"""Matrices that a warp loads, multiplies and stores as a whole: mma, ldmatrix, and
nvcuda::wmma.

A fragment is given by the row and column (lanes, elements) of what each lane holds.
Those of wmma are not specified, but the same for each kind of matrix at all times: here
the lanes hold pieces of 16 bytes of a matrix as it lies in memory, of a sum row by row,
in turn, and again where there is room. Source: NVIDIA, Parallel Thread Execution ISA,
"Warp Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from kerneltrace.machine.grid import WARP
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.decode import Decoder, Step
from kerneltrace.ptx.text import Instruction, words_of
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES, opened, to_tf32
from kerneltrace.ptx.warps import whole_warps

_ELEMENTS = {"f16", "bf16", "tf32", "f32", "f64", "s8", "u8", "s32"}
_PIECE = 16
"""Bytes that a lane loads or stores at once in wmma, where that many of its elements
are neighbors.
"""


class Matrices:
    """Makes the steps of instructions on matrices."""

    def __init__(self, decoder: Decoder, accesses: Accesses) -> None:
        self._decoder = decoder
        self._accesses = accesses

    def step(self, instruction: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        name = instruction.name
        parts = instruction.parts
        if name == "ldmatrix" and "m8n8" in parts and parts[-1] == "b16":
            return self._load_rows(instruction)
        shapes = [part for part in parts if re.fullmatch(r"m\d+n\d+k\d+", part)]
        kinds = [part for part in parts if part in TYPES]
        if name not in ("mma", "wmma") or not shapes:
            return None
        if not set(kinds) <= _ELEMENTS:
            return None
        shape = shapes[0]
        if name == "mma":
            two_sizes = "m8n8k" if "f64" in kinds else "m16n8k"
            if len(kinds) != 4 or parts[2] != shape or not shape.startswith(two_sizes):
                return None
        fragment = Fragments(instruction, shape)
        if "mma" in (name, parts[0]):
            return self._multiply(instruction, kinds, fragment)
        return self._move(instruction, fragment)

    def _load_rows(self, instruction: Instruction) -> Step:
        """8 x 8 matrices of 16 bits: each lane gives the address of a row, and gets two
        neighbors of each matrix.
        """
        write, count = self._decoder.results(instruction.operands[0])
        target = self._accesses.target("load", instruction, instruction.operands[1], 2)

        def step(t: Threads) -> None:
            giving = whole_warps(t, instruction) < 8 * count
            address = target.at(t)
            rows = np.zeros((t.n, 8), "u2")
            with t.only(giving):
                rows[giving] = self._accesses.load(t, target, address[giving], "u2", 8)
            matrices = rows.reshape(-1, 4, 8, 8)  # (warps, matrices, rows, columns)
            if "trans" in instruction.parts:
                matrices = matrices.swapaxes(2, 3)
            pairs = np.ascontiguousarray(matrices).view("u4")
            # (threads, matrices)
            write(t, pairs.reshape(-1, 4, WARP).swapaxes(1, 2).reshape(-1, 4))

        return step

    def _move(self, instruction: Instruction, fragment: Fragments) -> Step:
        """Load or store a matrix of wmma whose rows, or columns, lie a given number of
        elements apart.
        """
        way, part, *_ = instruction.parts
        kind = instruction.kind
        is_load = way == "load"
        by_rows = "row" in instruction.parts
        registers, where, *rest = instruction.operands
        if not is_load:
            registers, where = where, registers
        dtype = TYPES[kind]
        rows, columns = fragment.extents[part]
        length = columns if by_rows else rows
        apart = self._decoder.source(rest[0] if rest else str(length), "u32")
        register = TYPES[_register(kind)]
        words = words_of(registers)
        write, _ = self._decoder.results(registers)
        held = self._decoder.gathered(words, _register(kind))
        count = register.itemsize // dtype.itemsize * len(words)
        row, column = fragment.places(part, dtype, count)
        along, across = (row, column) if by_rows else (column, row)
        per = min(_PIECE // dtype.itemsize, count)
        if part in "cd" and not by_rows:
            per = 1
        # A lane may hold its elements several times.
        once = min(max(rows * columns // WARP, per), count)
        target = self._accesses.target(way, instruction, where, dtype.itemsize)

        def step(t: Threads) -> None:
            lane = whole_warps(t, instruction)
            values = held(t).view(dtype)  # (lanes, elements)
            stride = t.each(apart)[:, None].astype(int)
            offset = along[lane] * stride + across[lane]
            address = target.at(t)[:, None] + offset * dtype.itemsize
            for i in range(0, once, per):
                t.begin()
                piece = values[:, i : i + per]
                if is_load:
                    piece[:] = self._accesses.load(t, target, address[:, i], dtype, per)
                else:
                    self._accesses.store(t, target, address[:, i], piece)
            values = values[:, np.arange(count) % once]
            if is_load:
                write(t, np.ascontiguousarray(values).view(register))

        return step

    def _multiply(
        self, instruction: Instruction, kinds: list[str], fragment: Fragments
    ) -> Step:
        """D = a b + c of matrices whose parts lie in the registers of a
        warp's lanes.
        """
        if len(kinds) == 2:
            kinds[1:1] = ["f16", "f16"]
        kind_of = dict(zip("dabc", kinds, strict=True))
        operands = dict(zip("dabc", instruction.operands, strict=False))
        sources = {
            part: self._decoder.gathered(
                words_of(operands[part]), _register(kind_of[part])
            )
            for part in "abc"
        }
        write, _ = self._decoder.results(operands["d"])
        exact = np.dtype({"s32": "i8", "f64": "f8"}.get(kind_of["d"], "f4"))
        dtype = TYPES[kind_of["d"]]
        count = math.prod(fragment.extents["d"]) // WARP
        rows, columns = fragment.places("d", dtype, count)

        def matrix(t: Threads, part: str) -> Array:
            """The numbers that the lanes hold, as (warps, rows, columns)."""
            kind = kind_of[part]
            numbers = opened(np.ascontiguousarray(sources[part](t)), kind)
            values = numbers.reshape(t.n, -1)  # (lanes, elements)
            if kind == "tf32":
                values = to_tf32(values)
            matrices = np.zeros((t.n // WARP, *fragment.extents[part]), exact)
            places = fragment.places(part, TYPES[kind], values.shape[1])
            matrices[:, *places] = values.reshape(t.n // WARP, WARP, -1)
            return matrices

        def step(t: Threads) -> None:
            whole_warps(t, instruction)
            product = matrix(t, "a") @ matrix(t, "b") + matrix(t, "c")
            totals = np.ascontiguousarray(product.astype(dtype)[:, rows, columns])
            write(t, totals.reshape(t.n, -1).view(TYPES[_register(kind_of["d"])]))

        return step


class Fragments:
    """Where the elements lie that each lane holds of the matrices a, b, c and d of an
    instruction.
    """

    def __init__(self, instruction: Instruction, shape: str) -> None:
        m, n, k = map(int, re.findall(r"\d+", shape))
        self.extents = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}
        self._is_mma = instruction.name == "mma"
        layouts = [part for part in instruction.parts if part in ("row", "col")]
        # one layout is that of both
        by_part = zip("ab", layouts * 2, strict=False)
        self._by_columns = {part for part, layout in by_part if layout == "col"}

    def places(
        self, part: str, dtype: np.dtype[Any], count: int
    ) -> tuple[Array, Array]:
        """Row and column (lanes, elements) of each of the `count` elements that a lane
        holds.
        """
        lane = np.arange(WARP)[:, None]
        element = np.arange(count)[None]
        rows, columns = self.extents[part]
        if not self._is_mma:
            per = min(_PIECE // dtype.itemsize, count)
            piece = element // per * WARP + lane
            number = (piece * per + element % per) % (rows * columns)
            if part in self._by_columns:
                return number % rows, number // rows
            return number // columns, number % columns
        per = 2 if part in "cd" else max(4 // dtype.itemsize, 1)
        register = element // per
        if part != "b" and rows == 16:  # the rows lane // 4 and 8 more
            down = register % 2
            along = register // 2
        else:
            down = 0 * register
            along = register
        across = lane // 4 + 8 * down
        inner = lane % 4 * per + element % per + 4 * per * along
        return (inner, across) if part == "b" else (across, inner)


def _register(kind: str) -> str:
    """The type of the registers that hold elements of a type."""
    return kind if kind in ("f32", "f64", "s32") else "b32"
