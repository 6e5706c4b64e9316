"""An environment with a wheel and what its metadata asks for, and nothing else; made
without a network.

The wheel, and those of projects of packages/ that it needs, are built as pip builds
them; the other packages that it needs are linked from the environment that runs the
tests.
"""

import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from labkit.core.paths import INSTRUMENTS, PROJECTS


def build(name, folder):
    """The wheel of the project in the folder `name`, built from a copy, since
    setuptools leaves files behind.
    """
    source = folder / "source" / name
    shutil.copytree(
        PROJECTS / name,
        source,
        ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"),
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run(
        [*command, "--wheel-dir", folder, source],
        check=True,
        capture_output=True,
        text=True,
    )
    (wheel,) = folder.glob(f"{name}-*.whl")
    return wheel


def required(asking):
    """The names of the distributions that one needs here."""
    asked = map(Requirement, asking.requires or [])
    return [
        one.name
        for one in asked
        if not one.marker or one.marker.evaluate({"extra": ""})
    ]


def all_required(asking):
    """The installed distributions that one needs, and those that they need, by name."""
    needed = {}
    waiting = required(asking)
    while waiting:
        name = waiting.pop()
        if name in INSTRUMENTS:  # it has a wheel of its own
            continue
        distribution = metadata.distribution(name)
        if distribution.name not in needed:
            needed[distribution.name] = distribution
            waiting += required(distribution)
    return needed


def _unpack(wheel, packages):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)


def environment(wheel, folder):
    """The Python of a new environment with the wheel and what it needs, each by a link
    to where it is installed.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    _unpack(wheel, packages)
    (asking,) = metadata.distributions(path=[str(packages)])
    for name in set(required(asking)) & set(INSTRUMENTS):
        _unpack(build(name, wheel.parent), packages)
    for needed in all_required(asking).values():
        parts = {file.parts[0] for file in needed.files or []}
        for top in parts - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(needed.locate_file(top))))
    return folder / "bin" / "python"
