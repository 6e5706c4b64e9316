"""The wheels of the site: those of the packages, as pip builds them, and one with
labkit, the exercises and the published tables that its notebooks use.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from labkit.core.paths import EXERCISES, PROJECTS, PUBLISHED, ROOT, SOURCES

PACKAGES = ("gpufacts", "kerneltrace", "ranks", "trainplan")
_NAME = "workbook_in_browser"
_VERSION = "1.0.0"
_INFO = f"{_NAME}-{_VERSION}.dist-info"
_KINDS = {".py", ".csv", ".css", ".html", ".js", ".md"}
_LEFT_OUT = {"__pycache__", "wrong_answers.py"}
_METADATA = f"""\
Metadata-Version: 2.1
Name: workbook-in-browser
Version: {_VERSION}
Summary: What the workbook's notebooks for browsers import: labkit, and the exercises.
License: MIT AND CC-BY-4.0
Requires-Python: >=3.11
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: book.lite
Root-Is-Purelib: true
Tag: py3-none-any
"""


def of_packages(python: Path, folder: Path) -> list[Path]:
    """Build the packages' wheels into a folder, with the pip of `python`."""
    with tempfile.TemporaryDirectory() as copies:
        for name in PACKAGES:
            # setuptools leaves files behind
            ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            shutil.copytree(PROJECTS / name, Path(copies, name), ignore=ignored)
            words = "-m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir"
            command = [str(python), *words.split(), str(folder)]
            subprocess.run([*command, str(Path(copies, name))], check=True)
    return sorted(folder.glob("*.whl"))


def of_workbook(folder: Path, numbers: Iterable[str]) -> Path:
    """Write the wheel with what the notebooks of these numbers import.

    Its files lie as in the repository, so that labkit finds its tables.
    """
    wheel = folder / f"{_NAME}-{_VERSION}-py3-none-any.whl"
    files = {name: path.read_bytes() for name, path in _files(numbers)}
    files[f"{_INFO}/METADATA"] = _METADATA.encode()
    files[f"{_INFO}/WHEEL"] = _WHEEL.encode()
    files[f"{_INFO}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    rows = [
        f"{name},{_hash(content)},{len(content)}" for name, content in files.items()
    ]
    record = "\n".join([*rows, f"{_INFO}/RECORD,,", ""])
    files[f"{_INFO}/RECORD"] = record.encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            # dated 1980: the same bytes for the same sources
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return wheel


def _files(numbers: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Name in the wheel, and path, of each file."""
    browser = Path(__file__).with_name("browser")
    for path in browser.glob("*.py"):
        yield path.name, path
    folders = [SOURCES["labkit"], *(EXERCISES / f"nb{number}" for number in numbers)]
    paths = [path for folder in folders for path in folder.rglob("*")]
    paths += EXERCISES.glob("*")
    paths += (path for folder in PUBLISHED for path in folder.glob("*.csv"))
    for path in paths:
        is_wanted = path.suffix in _KINDS and not _LEFT_OUT & set(path.parts)
        if path.is_file() and is_wanted:
            yield path.relative_to(ROOT).as_posix(), path


def _hash(content: bytes) -> str:
    """A file's hash as a wheel's RECORD has it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"
