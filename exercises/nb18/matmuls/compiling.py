"""Compile this folder's matmuls without a GPU: each language in a Python that has its
compiler, with nothing else of this project.

usage: python -m exercises.nb18.matmuls.compiling LANGUAGE

It prints a line for each compute capability: capability, instructions, what came out.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FOLDER = Path(__file__).parent
CAPABILITIES = (80, 90, 100)


@dataclass(frozen=True)
class Language:
    """A language, its kernel's file in this folder, the packages that compile it as pip
    takes them (`beside`: those that they import), and the compute capabilities that the
    kernel is for.
    """

    name: str
    file: str
    packages: tuple[str, ...]
    beside: tuple[str, ...] = ()
    output: str = "PTX"
    capabilities: tuple[int, ...] = CAPABILITIES

    @property
    def text(self) -> str:
        """The source of its kernel."""
        return (FOLDER / self.file).read_text(encoding="utf-8")

    @property
    def compiler(self) -> str:
        """The packages and their versions that are installed here; empty where one
        isn't.
        """
        names = [re.split(r"[=\[]", package)[0] for package in self.packages]
        try:
            return ", ".join(f"{name} {version(name)}" for name in names)
        except PackageNotFoundError:
            return ""


LANGUAGES = {
    language.name: language
    for language in (
        Language("Triton", "in_triton.py", ("triton==3.9.0",)),
        Language("Gluon", "in_gluon.py", ("triton==3.9.0",), capabilities=(100,)),
        Language("CuTe DSL", "in_cute.py", ("nvidia-cutlass-dsl==4.8.1",)),
        Language(
            "cuTile",
            "in_cutile.py",
            ("cuda-tile[tileiras]==1.7.0", "nvidia-cuda-tileiras==13.4.92"),
            output="cubin",
        ),
        Language(
            "Helion",
            "in_helion.py",
            ("helion==1.5.1", "triton==3.9.0"),
            beside=("torch==2.13.0", "packaging"),
        ),
        Language(
            "TileLang",
            "in_tilelang.py",
            ("tilelang==0.1.15",),
            beside=("torch==2.13.0",),
            output="CUDA C++",
        ),
        Language("Mojo", "in_mojo.mojo", ("mojo==1.2.0", "max-core==26.7.0")),
    )
}
# how instructions are written in PTX, and in TileLang's CUDA C++
_MULTIPLY = {
    "mma.sync": r"mma\.sync|tl::mma_sync",
    "wgmma": r"wgmma\.mma_async|tl::wgmma",
    "tcgen05": r"tcgen05\.mma|tl::tcgen05mma",
}
_COPY = {
    "TMA": r"cp\.async\.bulk|tl::tma_load",
    "cp.async": r"cp\.async\.c[ag]|tl::cp_async",
    "plain loads": r"ld\.global",
}
_SPECIALIZED = {"setmaxnreg": r"setmaxnreg|tl::warpgroup_reg_alloc"}


def instructions(code: str | bytes) -> str:
    """What a compiled kernel multiplies with, copies its tiles with, and whether warps
    exchange registers: "wgmma, TMA"; for a program as bytes, its size.
    """
    if isinstance(code, bytes):
        return f"a program of {len(code) / 1000:.0f} kB"
    first_found = [
        next((name for name, pattern in family.items() if re.search(pattern, code)), "")
        for family in (_MULTIPLY, _COPY, _SPECIALIZED)
    ]
    return ", ".join(filter(None, first_found))


def compiled(name: str, capability: int) -> str | bytes:
    """What the compiler of a language makes of its kernel for 80, 90 or 100.

    ImportError where the compiler isn't installed.
    """
    language = LANGUAGES[name]
    if name == "Mojo":
        return _compiled_mojo(language, capability)
    module = language.file.removesuffix(".py")
    kernel = importlib.import_module(f"exercises.nb18.matmuls.{module}")
    code: str | bytes = kernel.code(capability)
    return code


def _compiled_mojo(language: Language, capability: int) -> str:
    """PTX that the Mojo program prints; the target stands in its text."""
    beside = Path(sys.executable).with_name("mojo")
    command = str(beside) if beside.exists() else shutil.which("mojo")
    if command is None:
        raise ImportError("No command `mojo` beside this Python or on the PATH.")
    architecture = f"sm_{capability}" + "a" * (capability >= 90)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, language.file)
        file.write_text(language.text.replace("sm_90a", architecture), encoding="utf-8")
        run = subprocess.run(
            [command, "run", str(file)], capture_output=True, text=True, check=True
        )
    return run.stdout


def main(name: str) -> None:
    """Print what became of a language's kernel."""
    language = LANGUAGES[name]
    for capability in language.capabilities:
        made = compiled(name, capability)
        print(
            capability, instructions(made), language.output, language.compiler, sep="\t"
        )


if __name__ == "__main__":
    main(sys.argv[1])
