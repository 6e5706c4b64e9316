"""The programs that some tests need and Python doesn't bring, as Debian's packages,
and Pyodide, a Python for browsers, from npm: `make programs`.

usage: programs.py install        install those that are missing, with apt-get
programs.py hide FOLDER    fill a new folder with links to the programs of PATH, but for
these: a bare PATH

Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

# each program's names, and the packages of Debian and Ubuntu that bring it
PACKAGES = {
    "bwrap": (("bwrap",), ("bubblewrap",)),
    "chromium": (
        ("chromium", "chromium-browser", "google-chrome"),
        ("chromium", "fonts-dejavu-core"),
    ),
    "g++": (("g++",), ("g++",)),
    "ip": (("ip", "tc"), ("iproute2",)),
    "npm": (("npm",), ("npm",)),
    "slurmctld": (("slurmctld", "slurmd", "munged", "sbatch"), ("slurm-wlm", "munge")),
}
COMPILER = re.compile(
    r"(.+-)?(g\+\+|gcc|c\+\+|cc|c[89]9|cpp|clang(\+\+)?|nvcc|ptxas)(-[\d.]+)?"
)
# of the Python that runs this; what torch.compile builds includes it
HEADERS = "Python.h"
# what the planner's page runs on, of the version that its package.json names
PYODIDE = "pyodide"
ROOT = Path(__file__).parents[1]
PINNED = ROOT / "packages" / "trainplan" / "trainplan" / "page"
NODE_MODULES = ROOT / "build" / "pyodide" / "node_modules"


def path_of(name: str) -> str | None:
    """Where a program of PACKAGES, Python's headers or Pyodide's files are; None where
    they are missing.
    """
    if name == HEADERS:
        header = Path(sysconfig.get_path("include"), HEADERS)
        return str(header) if header.exists() else None
    if name == PYODIDE:
        return _pyodide()
    names = PACKAGES[name][0]
    paths = list(filter(None, map(shutil.which, names)))
    # one of chromium's names is enough
    is_there = name == "chromium" or len(paths) == len(names)
    return paths[0] if paths and is_there else None


def _pyodide() -> str | None:
    """The folder of Pyodide's files, if it is of the version that the page names."""
    pinned = json.loads((PINNED / "package.json").read_text(encoding="utf-8"))
    package = NODE_MODULES / PYODIDE / "package.json"
    if not package.exists():
        return None
    installed = json.loads(package.read_text(encoding="utf-8"))["version"]
    return str(package.parent) if installed == pinned["dependencies"][PYODIDE] else None


def install() -> None:
    """Install what is missing; exits with a sentence where apt-get or the right to use
    it is missing.
    """
    _install_packages()
    if path_of(PYODIDE) is None:
        print("Installing pyodide", flush=True)
        folder = NODE_MODULES.parent
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PINNED / name, folder)
        # the lock has the hash of each package
        subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=folder, check=True)
    print("All programs that the tests use are here.")


def _install_packages() -> None:
    """Install the packages of Debian's that are missing."""
    missing = [
        package
        for name, (_, packages) in PACKAGES.items()
        if not path_of(name)
        for package in packages
    ]
    missing += [] if path_of(HEADERS) else ["python3-dev"]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        sys.exit(
            f"There is no apt-get here. Install what Debian calls {', '.join(missing)}."
        )
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if as_root and shutil.which("sudo") is None:
        sys.exit(f"Run this as root: apt-get install {' '.join(missing)}")
    print(f"Installing {' '.join(missing)}", flush=True)
    get = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    subprocess.run([*get, "update"], check=True)
    subprocess.run(
        [*get, "install", "-y", "--no-install-recommends", *missing],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def hide(folder: Path) -> None:
    """Fill a new folder with links to PATH's programs, those that tests may miss left
    out; python3 is this Python.
    """
    hidden = {name for names, _ in PACKAGES.values() for name in names}
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            unwanted = program.name in hidden or COMPILER.fullmatch(program.name)
            if (
                not unwanted
                and not program.name.startswith(("python", "pip"))
                and not link.is_symlink()
            ):
                link.symlink_to(program)


def main(arguments: list[str]) -> None:
    """Run one of the commands."""
    match arguments:
        case ["install"]:
            install()
        case ["hide", folder]:
            hide(Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
