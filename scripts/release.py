"""Build the packages as they are released, check them, and say what was done.

usage: python -m scripts.release [--tag gpufacts-1.0.0]

Without a tag: sdists and wheels in build/release. With one: print the package that it
releases, and exit with 1 if pyproject.toml or CHANGELOG.md doesn't agree with it.

`make release` runs it. It needs a package index, for the tools and for what the
packages need.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from labkit.core.paths import INSTRUMENTS, PROJECTS, ROOT
from scripts import notebooks, recipes

FOLDER = ROOT / "build" / "release"
TOOLS = ROOT / "build" / "release-tools"
TOOLS_LIST = ROOT / "scripts" / "release.txt"
# A user's program for each package, whose annotation is right.
TYPED = {
    "gpufacts": 'import gpufacts\n\nname: str = gpufacts.find("H100").name\n',
    "kerneltrace": (
        "import kerneltrace\n\nok: bool = kerneltrace.trace(print, 1, 32).ok\n"
    ),
    "ranks": "import ranks\n\nseconds: float = ranks.now_s()\n",
    "steptime": (
        "import steptime\n\ntimes: float = steptime.compare('a.json', 'b.json').times\n"
    ),
    "trainplan": (
        "import trainplan\n\nlayers: int = trainplan.model('Llama-3-8B').layers\n"
    ),
}
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
_PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)([^)\s]+)\)")
_HEADING = re.compile(r"(?m)^## \[(?P<version>[^\]]+)\] - (?P<date>\S+)$")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class ReleaseFailed(Exception):
    """What was expected of a package, what came, and what to do."""


def project(package: str) -> dict[str, Any]:
    """The table `project` of a package's pyproject.toml."""
    with open(PROJECTS / package / "pyproject.toml", "rb") as file:
        return dict(tomllib.load(file)["project"])


def newest_change(package: str) -> tuple[str, str]:
    """Version and date of the first entry of a package's CHANGELOG.md; the date is
    "unreleased" until somebody sets it.
    """
    text = (PROJECTS / package / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = _HEADING.search(text)
    if heading is None:
        raise ReleaseFailed(
            f"Expected a heading such as ## [1.0.0] - 2026-12-01 in {package}'s"
            " CHANGELOG.md, found none: write it above what has changed."
        )
    return heading["version"], heading["date"]


def require_same_version(package: str) -> None:
    """Raise ReleaseFailed unless pyproject.toml and CHANGELOG.md have one version."""
    version = project(package)["version"]
    changed, _ = newest_change(package)
    if version != changed:
        raise ReleaseFailed(
            f"Expected one version of {package}, got {version} in pyproject.toml and"
            f" {changed} in CHANGELOG.md: make them the same."
        )


def package_of(tag: str) -> str:
    """The package that a tag such as gpufacts-1.0.0 releases; ReleaseFailed where there
    is none, the version is another one, or CHANGELOG.md has no date for it.
    """
    package, _, version = tag.partition("-")
    if package not in INSTRUMENTS:
        raise ReleaseFailed(
            f"Expected a tag such as gpufacts-1.0.0, got {tag!r}. Packages:"
            f" {', '.join(INSTRUMENTS)}."
        )
    require_same_version(package)
    changed, date = newest_change(package)
    if version != changed:
        raise ReleaseFailed(
            f"Expected the tag {package}-{changed}, as pyproject.toml has it, got"
            f" {tag!r}: tag the commit with that version."
        )
    if not _DATE.fullmatch(date):
        raise ReleaseFailed(
            f"Expected a date such as 2026-12-01 for {tag} in CHANGELOG.md, got"
            f" {date!r}: set it, and tag that commit."
        )
    return package


def readme_of_release(text: str, tag: str, address: str) -> str:
    """A package's README as its wheel has it, which no clone surrounds.

    It installs by name, which brings gpufacts where that is needed. Its links and
    pictures lead to `address`, at the tag; without an address they are left out.
    """
    text = text.replace("./packages/gpufacts ./packages/", "./packages/")
    text = text.replace("./packages/", "").replace("` in a clone", "`")
    package = tag.partition("-")[0]
    if not address:
        text = re.sub(rf"{_PICTURE.pattern}\n\n", "", text)
        return _LINK.sub(r"\1", text)
    pages = f"{address}/blob/{tag}/packages/{package}"
    files = f"{address}/raw/{tag}/packages/{package}"
    text = _PICTURE.sub(lambda m: m[0].replace(f"({m[1]})", f"({files}/{m[1]})"), text)
    return _LINK.sub(rf"[\1]({pages}/\2)", text)


def stage(package: str, folder: Path, address: str) -> Path:
    """A copy of a package's project in `folder` as it is released: without tests, with
    the README of a release, and with the address where there is one.
    """
    left_out = shutil.ignore_patterns("tests", "__pycache__", "*.egg-info", ".*")
    source = folder / package
    shutil.copytree(PROJECTS / package, source, ignore=left_out)
    tag = f"{package}-{project(package)['version']}"
    readme = source / "README.md"
    text = readme_of_release(readme.read_text(encoding="utf-8"), tag, address)
    readme.write_text(text, encoding="utf-8")
    if address:
        urls = f'Repository = "{address}"\n'
        urls += f'Changelog = "{address}/blob/main/packages/{package}/CHANGELOG.md"\n'
        with open(source / "pyproject.toml", "a", encoding="utf-8") as file:
            file.write(f"\n[project.urls]\n{urls}")
    return source


def wheel_faults(names: Iterable[str], package: str, version: str) -> list[str]:
    """What is wrong with a wheel, given the paths of its files; [] if nothing is."""
    names = set(names)
    about = f"{package}-{version}.dist-info/"
    wanted = {
        f"{package}/__init__.py",
        f"{package}/py.typed",
        f"{about}licenses/LICENSE",
    }
    faults = [f"lacks {name}" for name in sorted(wanted - names)]
    foreign = [name for name in names if not name.startswith((f"{package}/", about))]
    faults += [f"has {name} of another package" for name in sorted(foreign)]
    return faults + _tests_among(names)


def sdist_faults(names: Iterable[str], package: str, version: str) -> list[str]:
    """What is wrong with an sdist, given the paths of its files; [] if nothing is."""
    root = f"{package}-{version}/"
    inside = {name.removeprefix(root) for name in names if name != root.rstrip("/")}
    wanted = {
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "docs/recipes.md",
        "pyproject.toml",
    }
    faults = [f"lacks {name}" for name in sorted(wanted - inside)]
    folders = {name.partition("/")[0] for name in inside if "/" in name}
    foreign = folders - {package, "docs", f"{package}.egg-info"}
    faults += [f"has the folder {name}" for name in sorted(foreign)]
    return faults + _tests_among(inside)


def _tests_among(names: Iterable[str]) -> list[str]:
    tests = [
        name
        for name in names
        if any(part == "tests" or part.startswith("test_") for part in name.split("/"))
    ]
    return [f"has the test {name}" for name in sorted(tests)]


def _run(words: Sequence[str | Path], cwd: Path = ROOT) -> str:
    """What a command prints; ReleaseFailed, with that, where it fails."""
    ended = subprocess.run(
        list(map(str, words)), cwd=cwd, capture_output=True, text=True, check=False
    )
    printed = ended.stdout + ended.stderr
    if ended.returncode:
        raise ReleaseFailed(f"{' '.join(map(str, words))} failed:\n{printed}")
    return printed


def _tools() -> Path:
    """The Python of the environment with what TOOLS_LIST names, made once."""
    python = TOOLS / "bin" / "python"
    if not python.exists():
        venv.create(TOOLS, with_pip=True)
    _run([python, "-m", "pip", "install", "-q", "-r", TOOLS_LIST])
    return python


def _build(tools: Path, package: str, address: str) -> tuple[Path, Path]:
    """The sdist of a package, and the wheel that is built from it."""
    with tempfile.TemporaryDirectory() as folder:
        source = stage(package, Path(folder), address)
        _run([tools, "-m", "build", "-q", "--no-isolation", "-o", FOLDER, source])
    version = project(package)["version"]
    (wheel,) = FOLDER.glob(f"{package}-{version}-*.whl")
    (sdist,) = FOLDER.glob(f"{package}-{version}.tar.gz")
    return sdist, wheel


def _check_files(tools: Path, package: str, sdist: Path, wheel: Path) -> None:
    """Look into both files, with the tools and by the list of what belongs there."""
    _run([tools, "-m", "twine", "check", "--strict", sdist, wheel])
    _run([tools, "-m", "check_wheel_contents", wheel])
    version = project(package)["version"]
    with zipfile.ZipFile(wheel) as archive:
        faults = wheel_faults(archive.namelist(), package, version)
    with tarfile.open(sdist) as packed:
        faults += sdist_faults(packed.getnames(), package, version)
    if faults:
        raise ReleaseFailed(f"The files of {package} {version}: {'; '.join(faults)}.")


def _check_installed(package: str, wheel: Path, folder: Path) -> None:
    """Install the wheel and what it needs where nothing else is, and run there what its
    README and its recipes show, and mypy on a user's program.
    """
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"
    options = ["-q", "--find-links", str(FOLDER), "-c", str(ROOT / "constraints.txt")]
    _run([python, "-m", "pip", "install", *options, wheel])
    _run([python, "-m", "pip", "check"])
    (folder / "example.py").write_text(recipes.example(package), encoding="utf-8")
    _run([python, "-I", "example.py"], cwd=folder)
    for recipe in recipes.recipes(package):
        printed = recipes.printed(recipe, str(python), alone=True)
        if package not in recipes.TIMED and printed != recipe.shown:
            raise ReleaseFailed(
                f"The recipe of {package} {recipe.title!r} prints\n{printed}\nand not"
                " what stands below it: python -m scripts.recipes writes that anew."
            )
    _check_types(package, python, folder)


def _check_types(package: str, python: Path, folder: Path) -> None:
    """Let mypy read a user's program, which is right, and one with a wrong type."""
    right = folder / "right.py"
    wrong = folder / "wrong.py"
    right.write_text(TYPED[package], encoding="utf-8")
    wrong.write_text(
        re.sub(r": \w+ =", ": set[int] =", TYPED[package]), encoding="utf-8"
    )
    mypy = [sys.executable, "-m", "mypy", "--strict", f"--python-executable={python}"]
    _run([*mypy, right.name], cwd=folder)
    try:
        _run([*mypy, wrong.name], cwd=folder)
    except ReleaseFailed as error:
        if "[assignment]" in str(error):
            return
        raise
    raise ReleaseFailed(f"mypy sees no types in {package}: is py.typed in its wheel?")


def release(package: str, tools: Path, address: str) -> None:
    """Build a package, check it, and print a line; ReleaseFailed says what is wrong."""
    begun_s = time.monotonic()
    require_same_version(package)
    sdist, wheel = _build(tools, package, address)
    _check_files(tools, package, sdist, wheel)
    with tempfile.TemporaryDirectory() as folder:
        _check_installed(package, wheel, Path(folder))
    version, date = newest_change(package)
    kilobytes = [f"{path.stat().st_size / 1000:,.0f} kB" for path in (wheel, sdist)]
    seconds = time.monotonic() - begun_s
    print(
        f"{package} {version} ({date}): wheel {kilobytes[0]}, sdist {kilobytes[1]};"
        " contents, metadata, README's example,"
        f" {len(recipes.recipes(package))} recipes and types are right,"
        f" {seconds:.0f} s",
        flush=True,
    )


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release")
    parser.add_argument("--tag", help="such as gpufacts-1.0.0")
    tag = parser.parse_args(arguments).tag
    try:
        if tag:
            print(package_of(tag))
            return 0
        address = notebooks.address()
        shutil.rmtree(FOLDER, ignore_errors=True)
        tools = _tools()
        for package in INSTRUMENTS:  # gpufacts, which others need, comes first
            release(package, tools, address)
    except (ReleaseFailed, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"All are in {FOLDER.relative_to(ROOT)}; nothing was uploaded.")
    if not address:
        print("Without `make address` their READMEs have no pictures and no links.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
