"""Write constraints.txt, requirements.lock and docker/requirements.txt anew, with uv.

usage: python -m scripts.constraints [--upgrade]    --upgrade: the newest versions;
without it a version changes only where a range of pyproject.toml asks for it

Each file holds for all of pyproject.toml's Pythons. constraints.txt has the versions of
everything, for `pip install -c`. requirements.lock has what `make setup` installs, each
with the hashes of its files; docker/requirements.txt has what the image installs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "constraints"
# What setup installs, and what the book, the graders and the appendix add.
SET_UP = ("lab", "test", "cpu")
ALL = (*SET_UP, "appendix", "book", "teaching")
# torch pins these for the CUDA that it was built for, 12 or 13: no file can hold both.
FOLLOWS_CUDA = re.compile(r"cuda-(toolkit|bindings)|nvidia-(?!ml-py).+")
# Builds of torch for CUDA 12, 13 and none have different hashes, and one of them may
# come from a disk.
FOLLOWS_TORCH = re.compile(rf"torch|triton|{FOLLOWS_CUDA.pattern}")
ENTRY = re.compile(r"(?m)^(?=[A-Za-z0-9])")
UNIVERSAL = ("--universal", "--python-version", "3.11", "--fork-strategy", "fewest")
# The image's Python and system; a build from source would not be what was hashed.
IMAGE = ("--python-version", "3.12", "--python-platform", "linux")

CONSTRAINTS_TEXT = """\
# Made on {day} by `python -m scripts.constraints` for `pip install -c`:
# one version of each package for Python 3.11 to 3.14, with CUDA 12, 13 or none.
# Left open are cuda-toolkit, cuda-bindings and nvidia-*: their versions follow the CUDA
# that torch was built for, torch pins them itself, and one file can't hold both.
"""
LOCK_TEXT = """\
# Made on {day} by `python -m scripts.constraints`: what `make setup` installs with
# `pip install --require-hashes`, in constraints.txt's versions and for all systems.
# torch and what follows the CUDA that it was built for are installed without hashes.
"""
IMAGE_TEXT = """\
# Made on {day} by `python -m scripts.constraints`: what docker/Dockerfile installs.
"""


def uv() -> str:
    """The program uv, which is installed below `build` where it isn't on the PATH."""
    on_path = shutil.which("uv")
    if on_path:
        return on_path
    home = ROOT / "build" / "uv"
    program = home / "bin" / "uv"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", "uv"], check=True)
    return str(program)


def compiled(inputs: list[str], options: list[str], kept: Path, output: Path) -> str:
    """What `uv pip compile` makes of the inputs: the text of `output`.

    Versions of `kept` stay where they fit: uv reads them from the file that it writes.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    if kept.exists():
        shutil.copyfile(kept, output)
    command = [
        *(uv(), "--system-certs", "pip", "compile", "-q"),
        *inputs,
        *options,
        *("--no-annotate", "--no-header", "-o", str(output)),
    ]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return output.read_text(encoding="utf-8")


def entries(text: str) -> dict[str, str]:
    """{package: its lines, hashes and all} of what uv wrote."""
    blocks = [block for block in ENTRY.split(text) if "==" in block]
    packages = {block.partition("==")[0]: block for block in blocks}
    if len(packages) < len(blocks):
        raise RuntimeError(
            "uv took two versions of a package, for different Pythons or systems; one"
            " line a package is expected. Pin that package in constraints.in."
        )
    return packages


def extras(names: tuple[str, ...]) -> list[str]:
    """The options of uv that name extras of pyproject.toml."""
    return [option for name in names for option in ("--extra", name)]


def constraints(*, upgrade: bool) -> str:
    """The text of constraints.txt."""
    kept = BUILD / "none" if upgrade else ROOT / "constraints.txt"
    options = [*extras(ALL), *UNIVERSAL]
    inputs = ["pyproject.toml", "constraints.in"]
    text = compiled(inputs, options, kept, BUILD / "constraints.txt")
    pins = [
        block.partition(";")[0].strip()
        for name, block in entries(text).items()
        if not FOLLOWS_CUDA.fullmatch(name)
    ]
    day = date.today().isoformat()
    return CONSTRAINTS_TEXT.format(day=day) + "\n".join(pins) + "\n"


def lock() -> str:
    """The text of requirements.lock."""
    options = [
        *extras(SET_UP),
        *UNIVERSAL,
        "-c",
        "constraints.txt",
        "--generate-hashes",
    ]
    inputs = ["pyproject.toml", "constraints.in"]
    text = compiled(inputs, options, BUILD / "none", BUILD / "requirements.lock")
    blocks = [
        block
        for name, block in entries(text).items()
        if not FOLLOWS_TORCH.fullmatch(name)
    ]
    return LOCK_TEXT.format(day=date.today().isoformat()) + "".join(blocks)


def image() -> str:
    """The text of docker/requirements.txt."""
    kept = ROOT / "docker" / "requirements.txt"
    options = [
        *(*extras(("lab", "cuda13")), *IMAGE, "-c", "constraints.txt"),
        *("--generate-hashes", "--only-binary", ":all:"),
    ]
    inputs = ["pyproject.toml", "docker/requirements.in"]
    text = compiled(inputs, options, kept, BUILD / "image.txt")
    return IMAGE_TEXT.format(day=date.today().isoformat()) + text


def main() -> None:
    """Write the three files; the second and third take the first's versions."""
    pins = constraints(upgrade="--upgrade" in sys.argv[1:])
    (ROOT / "constraints.txt").write_text(pins, encoding="utf-8")
    (ROOT / "requirements.lock").write_text(lock(), encoding="utf-8")
    (ROOT / "docker" / "requirements.txt").write_text(image(), encoding="utf-8")


if __name__ == "__main__":
    main()
