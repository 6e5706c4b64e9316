"""Matrices that a warp loads, multiplies and stores as a whole (nvcuda::wmma).

Which elements a lane holds is not specified, but for each kind of matrix it is the same at all times. Here the
lanes hold pieces of 16 bytes of a matrix as it lies in memory, of a sum row by row, in turn, and again where there is
room.
Source: NVIDIA, Parallel Thread Execution ISA, "Matrix multiply-accumulate operation using wmma instructions".
"""

from __future__ import annotations

import re

import numpy as np

from kerneltrace.log.grid import WARP
from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.decode import Decoder, Step, words_of
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import ELEMENTS, TYPES, numbers_in
from kerneltrace.ptx.warps import whole_warps

_PIECE = 16
"""Bytes that a lane loads or stores at once, where that many of its elements are neighbours."""


def wmma_step(one: Instruction, decoder: Decoder, accesses: Accesses) -> Step | None:
    """The step of an instruction; None for one that is not known here."""
    shape = next((part for part in one.parts if re.fullmatch(r"m\d+n\d+k\d+", part)), "")
    kinds = [part for part in one.parts if part in TYPES]
    if one.name != "wmma" or not shape or not {*kinds} <= {*ELEMENTS, "f32", "s32"}:
        return None
    m, n, k = map(int, re.findall(r"\d+", shape))
    if one.parts[0] == "mma":
        return _multiply(one, decoder, kinds, (m, n, k))
    rows, columns = {"a": (m, k), "b": (k, n)}.get(one.parts[1], (m, n))
    return _move(one, decoder, accesses, rows, columns)


def _move(one: Instruction, decoder: Decoder, accesses: Accesses, rows: int, columns: int) -> Step:
    """Load or store a matrix whose rows, or columns, lie a given number of elements apart."""
    is_load, kind, by_rows = one.parts[0] == "load", one.parts[-1], "row" in one.parts
    where, what, *stride = one.operands if not is_load else (one.operands[1], one.operands[0], *one.operands[2:])
    dtype, is_sum = ELEMENTS.get(kind, TYPES[kind]), one.parts[1] in "cd"
    at, names = accesses.address(where, dtype.itemsize)
    apart = decoder.source((*stride, str(columns if by_rows else rows))[0], TYPES["u32"])
    register = TYPES[kind] if kind in ("f32", "f64", "s32") else TYPES["u32"]
    writes, sources = decoder.results(what), [decoder.source(word, register) for word in words_of(what) if not is_load]
    many = max(register.itemsize // dtype.itemsize, 1) * len(words_of(what))
    whole = min(_PIECE // dtype.itemsize, many)
    element = _order(np.arange(WARP * many), many, whole) % (rows * columns)
    along, across = np.divmod(element, columns if by_rows or is_sum else rows)
    along, across = (across, along) if is_sum and not by_rows else (along, across)
    per = 1 if is_sum and not by_rows else whole
    once = max(rows * columns // WARP, per)  # elements of a lane, which may hold them several times
    site = decoder.site("load" if is_load else "store", one)

    def step(t: Threads) -> None:
        lane = whole_warps(t, one)
        held = np.zeros((t.n, many), dtype)
        if not is_load:
            held[:] = np.ascontiguousarray(
                np.stack([np.broadcast_to(source(t), t.n) for source in sources], axis=-1)
            ).view(dtype)
        raw, size = held.view("u1"), per * dtype.itemsize
        offset = along[lane] * np.broadcast_to(apart(t), t.n)[:, None].astype(int) + across[lane]
        base, numbers = at(t), t.numbers
        for first in range(0, min(once, many), per):
            part = slice(first * dtype.itemsize, first * dtype.itemsize + size)

            def perform(u: Threads, address: Array, part: slice = part) -> None:
                buffer, place = accesses.memory.bytes_at(u, address)
                its, where = np.searchsorted(numbers, u.numbers), place[:, None] + np.arange(size)
                if is_load:
                    raw[its, part] = buffer[where]
                else:
                    buffer[where] = raw[its, part]

            t.begin()
            places = base + offset[:, first] * dtype.itemsize
            instead = (lambda _: None) if is_load else None
            accesses.checked(one, site, lambda _, its=places: its, names, size, perform, instead)(t)  # type: ignore[misc]
        held[:] = held[:, np.arange(many) % once]
        for i, write in enumerate(writes if is_load else ()):
            write(t, held.view(register)[:, i].copy())

    return step


def _order(numbers: Array, many: int, per: int) -> Array:
    """What is numbered piece by piece, as (lanes, elements) of pieces of `per` elements."""
    return numbers.reshape(-1, many // per, WARP, per).swapaxes(1, 2).reshape(-1, many)


def _multiply(one: Instruction, decoder: Decoder, kinds: list[str], shape: tuple[int, int, int]) -> Step | None:
    (m, n, k), plain = shape, ("f32", "f64", "s32")
    into, of, _, added = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
    if of not in ELEMENTS:
        return None
    layouts = [part for part in one.parts if part in ("row", "col")]
    parts = [
        [decoder.source(word, TYPES[kind if kind in plain else "u32"]) for word in words_of(operand)]
        for operand, kind in zip(one.operands[1:4], (of, of, added), strict=True)
    ]
    writes, exact = decoder.results(one.operands[0]), np.dtype({"s32": "i8", "f64": "f8"}.get(into, "f4"))
    dtype = np.dtype("f2") if into == "f16" else TYPES[into]

    def step(t: Threads) -> None:
        whole_warps(t, one)
        matrices = []
        for sources, kind, (rows, columns), layout in zip(
            parts, (of, of, added), ((m, k), (k, n), (m, n)), (*layouts, "row"), strict=True
        ):
            bits = np.stack([np.broadcast_to(source(t), t.n) for source in sources], axis=-1)
            value = numbers_in(bits, kind)
            per = min(_PIECE // ELEMENTS.get(kind, TYPES[kind]).itemsize, value.shape[1])
            pieces = value.reshape(t.n // WARP, WARP, -1, per).swapaxes(1, 2)  # (warps, pieces, lanes, elements)
            flat = pieces.reshape(t.n // WARP, -1)[:, : rows * columns].astype(exact)
            by_rows = layout == "row"
            matrix = flat.reshape(-1, *((rows, columns) if by_rows else (columns, rows)))
            matrices.append(matrix if by_rows else matrix.swapaxes(1, 2))
        left, right, sums = matrices
        whole = np.ascontiguousarray((left @ right + sums).astype(dtype))
        many = m * n // WARP
        whole = _order(whole.reshape(-1), many, min(_PIECE // dtype.itemsize, many))
        found = whole.view("u4") if into == "f16" else whole
        for i, write in enumerate(writes):
            write(t, found[:, i].copy())

    return step
