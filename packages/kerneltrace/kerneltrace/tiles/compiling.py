"""Compile a Triton kernel for a GPU that need not be here, and read what became of its
source.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufacts import Device, find
from kerneltrace._tables import ShownAsTable, Table
from kerneltrace.compiler.compiled import compiled
from kerneltrace.errors import CompileError, MissingCompiler
from kerneltrace.judge.estimate import capability as capability_of
from kerneltrace.judge.occupancy import Occupancy
from kerneltrace.ptx.triton import (
    configured,
    has_triton,
    is_triton,
    jit_function,
    python_of,
    triton_code,
)
from kerneltrace.tiles.traffic import room

CAPABILITIES = (75, 80, 90, 100)
FAMILIES = {
    "mma.sync": r"mma\.sync",
    "wgmma": r"wgmma\.mma_async",
    "tcgen05": r"tcgen05\.mma",
    "fma": r"fma\.rn",
    "TMA (cp.async.bulk)": r"cp\.async\.bulk\.(?!commit|wait)",
    "cp.async": r"cp\.async\.(?:ca|cg)\.",
    "ldmatrix": "ldmatrix",
    "mbarrier": "mbarrier",
    "bar.sync": r"bar(?:rier)?(?:\.cta)?\.sync",
    "ld.global": r"ld\.global",
    "st.global": r"st\.global",
    "ld.shared": r"ld\.shared",
    "st.shared": r"st\.shared",
    "shfl": r"shfl",
    "atom": r"(?:atom|red)\.",
}
"""Instructions of PTX that show what the compiler made of a tile's operations (PTX
ISA).
"""


@dataclass(frozen=True, repr=False)
class TileCode(ShownAsTable):
    """A compiled kernel: its PTX, and for each family of instructions how many came
    from which line of the source.

    `registers` and the bytes of `spills` are a thread's, `shared_bytes` a program's.
    """

    kernel: str
    capability: int
    num_warps: int
    ptx: str
    shared_bytes: int
    registers: int
    spills: int
    lines: dict[str, dict[int, int]]

    @property
    def instructions(self) -> dict[str, int]:
        """How often each family stands in the PTX; a loop's body counts once."""
        return {family: sum(lines.values()) for family, lines in self.lines.items()}

    def table(self) -> Table:
        """A row for each family."""
        rows = tuple(
            (family, str(n), ", ".join(map(str, sorted(self.lines[family]))))
            for family, n in self.instructions.items()
        )
        title = (
            f"{self.kernel} for compute capability {self.capability / 10:.1f},"
            f" {self.num_warps} warps: {self.registers} registers, {self.spills} B of"
            f" spills, {self.shared_bytes:,} B of shared memory"
        )
        return Table(rows, ("instructions", "number", "lines"), title)


def compile(  # noqa: A001 - the name that the package shows
    kernel: Any,
    *args: Any,
    capability: int = 80,
    num_warps: int = 0,
    num_stages: int = 0,
    num_ctas: int = 1,
    **constants: Any,
) -> TileCode:
    """Compile a kernel under @triton.jit for example arguments, and its tl.constexpr by
    name; needs no GPU.

    `capability` is 75, 80, 90 or 100, `num_ctas` the blocks of a cluster; what is not
    passed is as for `trace`. Below 80 Triton makes scalar multiply-adds of tl.dot.
    MissingCompiler where Triton is not installed, KernelError in Triton's words for
    what it can't compile.
    """
    if capability not in CAPABILITIES:
        raise ValueError(
            f"Expected capability to be one of {', '.join(map(str, CAPABILITIES))}, got"
            f" {capability!r}."
        )
    if not has_triton():
        raise MissingCompiler(
            "Compiling a kernel of tiles needs Triton, on Linux: pip install triton."
        )
    if hasattr(kernel, "fn"):
        constants, configuration = configured(kernel, args, constants)
        num_warps = num_warps or getattr(configuration, "num_warps", 4)
        num_stages = num_stages or getattr(configuration, "num_stages", 3)
    kernel = jit_function(kernel)
    if not is_triton(kernel):
        raise TypeError(
            "Expected a function under @triton.jit of Triton itself: import triton from"
            " there."
        )
    code = triton_code(
        kernel, args, constants, capability, num_warps, num_stages, num_ctas
    )
    ptx = code.asm["ptx"]
    used = _assembled(ptx, capability)
    lines: dict[str, Counter[int]] = {family: Counter() for family in FAMILIES}
    marks = re.split(r"\.loc\s+\d+\s+(\d+)", re.sub(r"//[^\n]*", "", ptx))
    for line, part in zip([0, *marks[1::2]], marks[::2], strict=True):
        for family, pattern in FAMILIES.items():
            lines[family][int(line)] += len(re.findall(rf"(?<![\w.%]){pattern}", part))
    return TileCode(
        python_of(kernel).__name__,
        capability,
        num_warps,
        ptx,
        code.metadata.shared,
        used.registers,
        used.spill_store_bytes + used.spill_load_bytes,
        {family: dict(+n) for family, n in lines.items() if +n},
    )


@functools.cache
def _assembled(ptx: str, capability: int) -> Any:
    """What the assembler that Triton brings says of a kernel."""
    nvidia: Any = importlib.import_module("triton.backends.nvidia.compiler")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        target = Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        suffix = "a" if capability >= 90 else ""
        arch = f"sm_{capability}{suffix}"
        command = [
            nvidia.get_ptxas(capability).path,
            "-v",
            f"--gpu-name={arch}",
            str(source),
            "-o",
            str(target),
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            raise CompileError(
                f"The assembler rejects Triton's PTX: {process.stderr.strip()}"
            )
        return compiled(
            ptx,
            process.stderr,
            target.read_bytes(),
            compute_capability=divmod(capability, 10),
            why="",
        ).only


def occupancy(code: TileCode, device: str | Device) -> Occupancy:
    """How many programs of a compiled kernel an SM of that GPU holds at a time."""
    chip = find(device)
    if capability_of(chip)[0] != code.capability // 10:
        raise ValueError(
            f"{chip.name} has compute capability {chip.compute_capability}: compile"
            " for it."
        )
    return room(chip, code.num_warps, code.registers, code.shared_bytes)
