"""Build the JupyterLite site: python -m book.lite [--folder build/lite].

JupyterLite is installed into an environment of its own, FOLDER/venv, for which the
first run needs a package index. The site is FOLDER/site: `python -m book --lite
build/lite/site` makes it a part of the book.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

from book.lite import notebooks, wheels
from labkit.core.paths import ROOT

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def main(arguments: list[str]) -> int:
    """Build the site, check it, and say where it is; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m book.lite", description="Build the notebooks for browsers."
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "build" / "lite",
        help="where to build (build/lite)",
    )
    folder = parser.parse_args(arguments).folder.resolve()
    site = folder / "site"
    python = environment(folder / "venv")
    for name in ("contents", "wheels", "site", "work"):
        shutil.rmtree(folder / name, ignore_errors=True)
    names = notebooks.write(folder / "contents")
    (folder / "wheels").mkdir()
    wheels.of_packages(python, folder / "wheels")
    wheels.of_workbook(folder / "wheels", {n.number for n in notebooks.made()})
    built = sorted((folder / "wheels").glob("*.whl"))
    _build(python, folder, built)
    if missing := absent(site, names, (wheel.name for wheel in built)):
        print(f"The site lacks {', '.join(missing)}.", file=sys.stderr)
        return 1
    print(f"{site}: serve it, as with python -m http.server -d {site}")
    return 0


def environment(folder: Path) -> Path:
    """The Python of an environment with requirements.txt, which is made or renewed
    where that has changed.
    """
    python = folder / "bin" / "python"
    listed = REQUIREMENTS.read_text(encoding="utf-8")
    installed = folder / "requirements.txt"
    if installed.is_file() and installed.read_text(encoding="utf-8") == listed:
        return python
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
    subprocess.run(pip, check=True)
    installed.write_text(listed, encoding="utf-8")
    return python


def _build(python: Path, folder: Path, built: Iterable[Path]) -> None:
    work = folder / "work"
    work.mkdir()
    command = [str(python), "-m", "jupyterlite_core", "build", "--no-sourcemaps"]
    command += ["--lite-dir", str(work), "--contents", str(folder / "contents")]
    command += ["--output-dir", str(folder / "site")]
    command += [part for wheel in built for part in ("--piplite-wheels", str(wheel))]
    log = folder / "build.log"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            command, cwd=work, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        print(log.read_text(encoding="utf-8")[-4000:], file=sys.stderr)
        done.check_returncode()


def absent(site: Path, names: Iterable[str], wheel_names: Iterable[str]) -> list[str]:
    """What a site lacks of its pages, notebooks and wheels, or doesn't list."""
    contents = _text(site / "api" / "contents" / "all.json")
    index = _text(site / "pypi" / "all.json")
    missing = [
        page for page in ("lab/index.html", "index.html") if not (site / page).is_file()
    ]
    for name in names:
        is_there = (site / "files" / name).is_file()
        if not is_there or json.dumps(name) not in contents:
            missing.append(name)
    for name in wheel_names:
        if not (site / "pypi" / name).is_file() or name not in index:
            missing.append(name)
    return missing


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
