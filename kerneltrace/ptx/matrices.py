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

from kerneltrace.log.grid import WARP
from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.decode import Decoder, Step, words_of
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import ELEMENTS, TYPES, numbers_in
from kerneltrace.ptx.warps import whole_warps

_ELEMENTS = ELEMENTS | {kind: TYPES[kind] for kind in ("f32", "s32")}
_PIECE = 16
"""Bytes that a lane loads or stores at once in wmma, where that many of its elements
are neighbours.
"""


class Matrices:
    """Makes the steps of instructions on matrices."""

    def __init__(self, decoder: Decoder, accesses: Accesses) -> None:
        self._decoder = decoder
        self._accesses = accesses

    def step(self, one: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        if one.name == "ldmatrix" and "m8n8" in one.parts and one.parts[-1] == "b16":
            return self._load_rows(one)
        shape = next(
            (part for part in one.parts if re.fullmatch(r"m\d+n\d+k\d+", part)), ""
        )
        kinds = [part for part in one.parts if part in TYPES]
        is_known = bool(shape) and {*kinds} <= _ELEMENTS.keys()
        if one.name == "mma":
            is_known &= len(kinds) == 4 and one.parts[2] == shape
            is_known &= shape.startswith("m8n8k" if "f64" in kinds else "m16n8k")
        if one.name not in ("mma", "wmma") or not is_known:
            return None
        fragment = Fragments(one, shape)
        return (
            self._multiply(one, kinds, fragment)
            if "mma" in (one.name, one.parts[0])
            else self._move(one, fragment)
        )

    def _load_rows(self, one: Instruction) -> Step:
        """8 x 8 matrices of 16 bits: each lane gives the address of a row, and gets two
        neighbours of each matrix.
        """
        writes = self._decoder.results(one.operands[0])
        site = self._decoder.site("load", one)
        at, names = self._accesses.address(one.operands[1], 2)

        def step(t: Threads) -> None:
            giving = whole_warps(t, one) < 8 * len(writes)
            address = at(t)
            rows = np.zeros((t.n, 8), "u2")
            with t.only(giving):
                rows[giving] = self._accesses.load(
                    t, one, site, address[giving], names, "u2", 8
                )
            matrices = rows.reshape(-1, 4, 8, 8)
            matrices = matrices.swapaxes(2, 3) if "trans" in one.parts else matrices
            # (warps, matrices, rows, 4)
            pairs = np.ascontiguousarray(matrices).view("u4")
            for i, write in enumerate(writes):
                write(t, pairs[:, i].reshape(-1))

        return step

    def _move(self, one: Instruction, fragment: Fragments) -> Step:
        """Load or store a matrix of wmma whose rows, or columns, lie a given number of
        elements apart.
        """
        is_load = one.parts[0] == "load"
        kind = one.parts[-1]
        by_rows = "row" in one.parts
        where, what = one.operands[1::-1] if is_load else one.operands[:2]
        dtype = _ELEMENTS[kind]
        part = one.parts[1]
        words = words_of(what)
        at, names = self._accesses.address(where, dtype.itemsize)
        given = (*one.operands[2:], str(fragment.extents[part][by_rows]))[0]
        apart = self._decoder.source(given, TYPES["u32"])
        register = _register(kind)
        writes = self._decoder.results(what) if is_load else []
        held = None if is_load else self._decoder.gathered(words, register)
        many = register.itemsize // dtype.itemsize * len(words)
        places = fragment.places(part, dtype, many)
        along, across = places if by_rows else places[::-1]
        per = 1 if part in "cd" and not by_rows else min(_PIECE // dtype.itemsize, many)
        # A lane may hold its elements several times.
        once = min(max(math.prod(fragment.extents[part]) // WARP, per), many)
        site = self._decoder.site("load" if is_load else "store", one)

        def step(t: Threads) -> None:
            lane = whole_warps(t, one)
            values = held(t).view(dtype) if held else np.zeros((t.n, many), dtype)
            offset = (
                along[lane] * np.broadcast_to(apart(t), t.n)[:, None].astype(int)
                + across[lane]
            )
            address = at(t)[:, None] + offset * dtype.itemsize
            for first in range(0, once, per):
                t.begin()
                part = values[:, first : first + per]
                if is_load:
                    part[:] = self._accesses.load(
                        t, one, site, address[:, first], names, dtype, per
                    )
                else:
                    self._accesses.store(t, one, site, address[:, first], names, part)
            values = values[:, np.arange(many) % once]
            for i, write in enumerate(writes):
                write(t, np.ascontiguousarray(values).view(register)[:, i])

        return step

    def _multiply(
        self, one: Instruction, kinds: list[str], fragment: Fragments
    ) -> Step:
        """D = a b + c of matrices whose parts lie in the registers of a
        warp's lanes.
        """
        into, of, other, added = (
            kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
        )
        given = [
            (part, kind, self._decoder.gathered(words_of(operand), _register(kind)))
            for part, kind, operand in zip(
                "abc", (of, other, added), one.operands[1:4], strict=True
            )
        ]
        writes = self._decoder.results(one.operands[0])
        exact = np.dtype({"s32": "i8", "f64": "f8"}.get(into, "f4"))
        dtype = _ELEMENTS[into]
        rows, columns = fragment.places(
            "d", dtype, math.prod(fragment.extents["d"]) // WARP
        )

        def step(t: Threads) -> None:
            whole_warps(t, one)
            matrices = []
            for part, kind, bits in given:
                values = numbers_in(bits(t), kind)
                matrices.append(np.zeros((t.n // WARP, *fragment.extents[part]), exact))
                places = fragment.places(part, _ELEMENTS[kind], values.shape[1])
                matrices[-1][:, *places] = values.reshape(t.n // WARP, WARP, -1)
            left, right, sums = matrices
            totals = np.ascontiguousarray(
                (left @ right + sums).astype(dtype)[:, rows, columns]
            )
            found = totals.reshape(t.n, -1).view(_register(into))
            for i, write in enumerate(writes):
                write(t, found[:, i])

        return step


class Fragments:
    """Where the elements lie that each lane holds of the matrices a, b, c and d of an
    instruction.
    """

    def __init__(self, one: Instruction, shape: str) -> None:
        m, n, k = map(int, re.findall(r"\d+", shape))
        self.extents = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}
        self._is_mma = one.name == "mma"
        layouts = [part for part in one.parts if part in ("row", "col")]
        self._by_columns = {
            part
            for part, layout in zip("ab", layouts * 2, strict=False)
            if layout == "col"
        }

    def places(self, part: str, dtype: np.dtype[Any], many: int) -> tuple[Array, Array]:
        """Row and column (lanes, elements) of each of the `many` elements that a lane
        holds.
        """
        lane = np.arange(WARP)[:, None]
        element = np.arange(many)[None]
        rows, columns = self.extents[part]
        if not self._is_mma:
            per = min(_PIECE // dtype.itemsize, many)
            number = ((element // per * WARP + lane) * per + element % per) % (
                rows * columns
            )
            return (
                divmod(number, rows)[::-1]
                if part in self._by_columns
                else divmod(number, columns)
            )
        per = 2 if part in "cd" else max(4 // dtype.itemsize, 1)
        register = element // per
        half = element % per
        has_two = part != "b" and rows == 16  # of the rows lane // 4 and 8 more
        down, along = (
            (register % 2, register // 2) if has_two else (0 * register, register)
        )
        row = lane // 4 + 8 * down
        column = lane % 4 * per + half + 4 * per * along
        return (column, row) if part == "b" else (row, column)


def _register(kind: str) -> np.dtype[Any]:
    return TYPES[kind] if kind in ("f32", "f64", "s32") else TYPES["u32"]
