"""The programs that some tests need and Python doesn't bring, as Debian's packages:
`make programs`.

usage: programs.py install        install those that are missing, with apt-get
programs.py hide FOLDER    fill a new folder with links to the programs of PATH, but for
these: a bare PATH

Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

# each program's names, and the packages of Debian and Ubuntu that bring it
PACKAGES = {
    "chromium": (
        ("chromium", "chromium-browser", "google-chrome"),
        ("chromium", "fonts-dejavu-core"),
    ),
    "g++": (("g++",), ("g++",)),
    "ip": (("ip", "tc"), ("iproute2",)),
    "slurmctld": (("slurmctld", "slurmd", "munged", "sbatch"), ("slurm-wlm", "munge")),
}
COMPILER = re.compile(
    r"(.+-)?(g\+\+|gcc|c\+\+|cc|c[89]9|cpp|clang(\+\+)?|nvcc|ptxas)(-[\d.]+)?"
)
# of the Python that runs this; what torch.compile builds includes it
HEADERS = "Python.h"


def path_of(name: str) -> str | None:
    """Where a program of PACKAGES is, or Python's headers; None where it is missing."""
    if name == HEADERS:
        header = Path(sysconfig.get_path("include"), HEADERS)
        return str(header) if header.exists() else None
    names = PACKAGES[name][0]
    paths = list(filter(None, map(shutil.which, names)))
    # one of chromium's names is enough
    is_there = name == "chromium" or len(paths) == len(names)
    return paths[0] if paths and is_there else None


def install() -> None:
    """Install what is missing; exits with a sentence where apt-get or the right to use
    it is missing.
    """
    missing = [
        package
        for name, (_, packages) in PACKAGES.items()
        if not path_of(name)
        for package in packages
    ]
    missing += [] if path_of(HEADERS) else ["python3-dev"]
    if not missing:
        print("All programs that the tests use are here.")
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
