"""What compilers make of this notebook's kernels: compiled here where they are
installed, and recorded otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kerneltrace import tiles
from kerneltrace.errors import KernelError
from labkit.core.data_table import TableRow, read_table
from labkit.core.display import Shown, Table
from labkit.core.errors import DataError
from labkit.core.paths import DATA
from labkit.measure.machine import machine

NEEDS = "a CUDA GPU of compute capability 8.0 and Triton"
TENSOR_CORES = (8, 0)
"""The compute capability from which on Triton uses them: below, it makes scalar
arithmetic of tl.dot (triton-lang/triton pull request 5066).
"""
RECORDED = DATA / "tile_code.csv"  # data/make/tile_code.py
_VECTORS = {"ld.global.v4.b32": 4, "ld.global.v2.b32": 2, "ld.global.b32": 1}
_SHOWN = (
    "mma.sync",
    "wgmma",
    "tcgen05",
    "fma",
    "ldmatrix",
    "cp.async",
    "TMA (cp.async.bulk)",
    "mbarrier",
    "bar.sync",
)
_OTHER = {"setmaxnreg": "setmaxnreg", "cluster": "barrier.cluster"}
_WHAT = ("threads", "registers", "B of shared memory", "numbers a load")


def with_triton() -> bool:
    """Whether `triton` is the package itself."""
    return hasattr(tiles.triton, "__version__")


def launches(*, dots: bool = True) -> bool:
    """Whether kernels of Triton can be launched here: with `dots` those that multiply
    matrices, on tensor cores.
    """
    gpus = machine().gpus
    if not gpus or not hasattr(tiles.triton, "runtime"):
        return False
    return not dots or gpus[0].compute_capability >= TENSOR_CORES


@dataclass(frozen=True, repr=False)
class Code(Shown):
    """A compiled kernel: how often families of instructions stand in its PTX, and what
    a program of it takes.
    """

    name: str
    capability: int
    counts: dict[str, int]
    origin: str

    @property
    def vector(self) -> int:
        """Numbers of 4 bytes that one load from memory brings to a thread."""
        return self.counts["numbers a load"]

    @property
    def instructions(self) -> dict[str, int]:
        """The families of instructions that occur, and how often."""
        return {what: n for what, n in self.counts.items() if what not in _WHAT}

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {what}" for what, n in self.instructions.items())
        return f"{self.name} for {self.capability / 10:.1f}: {counts} ({self.origin})"


def code(
    name: str, kernel: Any, *args: Any, capability: int = 90, **constants: Any
) -> Code:
    """A kernel of the notebook, compiled by Triton for these arguments, or as it was
    recorded under `name`.

    `capability` is 75, 80, 90 or 100; num_warps, num_stages and num_ctas are Triton's
    options. KernelError for what was not recorded, where Triton is not installed.
    """
    if with_triton():
        made = tiles.compile(kernel, *args, capability=capability, **constants)
        return Code(
            name,
            capability,
            counted(made),
            f"compiled here by Triton {tiles.triton.__version__}",
        )
    wanted = name, str(capability)
    if not (
        rows := [
            row for row in recorded() if (row["name"], row["capability"]) == wanted
        ]
    ):
        raise KernelError(
            f"{name!r} wasn't recorded for {capability / 10:.1f}: compiling it needs"
            " Triton, on Linux."
        )
    counts = {row["what"]: int(row["value"]) for row in rows}
    return Code(name, capability, counts, f"recorded, by {rows[0]['compiler']}")


def dots(matmul: Any) -> list[Code]:
    """The notebook's matmul of float16 for a GPU on which Triton has no tensor cores,
    7.5, and for one on which it has, 8.0.
    """
    import torch

    half = torch.empty(16, dtype=torch.float16)
    shape = {"GROUP": 0, "TILE": 64, "DEPTH": 64}
    return [
        code("tl.dot", matmul, half, half, half, 4096, capability=capability, **shape)
        for capability in (75, 80)
    ]


def generations(pointers: Any, descriptors: Any, **shape: int) -> list[Code]:
    """The notebook's two matmuls for float16: with pointers, and with descriptors in
    three ways.

    These are plain, with specialized warps, and in clusters of two blocks.
    """
    import torch

    half = torch.empty(16, dtype=torch.float16)
    versions: list[tuple[str, Any, dict[str, int], tuple[int, ...]]] = [
        ("pointers", pointers, {"GROUP": 0}, (80, 90, 100)),
        ("descriptors", descriptors, {"SPECIAL": False}, (90, 100)),
        ("specialized", descriptors, {"SPECIAL": True}, (90, 100)),
        ("in pairs", descriptors, {"SPECIAL": False, "num_ctas": 2}, (90, 100)),
    ]
    return [
        code(
            name, kernel, half, half, half, 4096, capability=each, **constants, **shape
        )
        for name, kernel, constants, capabilities in versions
        for each in capabilities
    ]


def counted(made: tiles.TileCode) -> dict[str, int]:
    """The counts of a compiled kernel, by what was counted."""
    counts = made.instructions | {
        what: made.ptx.count(text) for what, text in _OTHER.items()
    }
    vector = max((n for text, n in _VECTORS.items() if text in made.ptx), default=0)
    threads = int(made.ptx.split(".reqntid ")[1].split()[0].rstrip(","))
    sizes = zip(
        _WHAT, (threads, made.registers, made.shared_bytes, vector), strict=True
    )
    return {what: n for what, n in (*counts.items(), *sizes) if n}


def table(codes: Sequence[Code]) -> Table:
    """A column for each compiled kernel, a row for each family of instructions that
    copy, multiply or wait.
    """
    there = [
        what
        for what in (*_SHOWN, *_OTHER, *_WHAT[:-1])
        if any(what in code.counts for code in codes)
    ]
    rows = tuple(
        (
            what,
            *(
                f"{code.counts[what]:,}" if what in code.counts else ""
                for code in codes
            ),
        )
        for what in there
    )
    headings = (
        "instructions",
        *(f"{code.name} {code.capability / 10:.1f}" for code in codes),
    )
    return Table(
        rows, headings, notes=tuple(dict.fromkeys(code.origin for code in codes))
    )


def recorded() -> list[TableRow]:
    """Rows of the table that data/make/tile_code.py wrote. Raises DataError for a
    damaged file.
    """
    return read_table(RECORDED, _row, DataError)


def _row(row: TableRow) -> TableRow:
    for name in ("capability", "value"):
        int(row[name])
    return row
