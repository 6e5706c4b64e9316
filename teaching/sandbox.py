"""Run a program where it can do no harm: bubblewrap's namespaces, a user of its own,
and limits of memory, processes, files and time.

Inside, a program sees Python, the folders that it is given (read-only) and an empty
folder of its own in memory; no other process, no network, no device, and none of the
environment's secrets. When it is stopped, all that it started is gone.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import psutil

from labkit.core.errors import LabError
from labkit.core.paths import ROOT
from labkit.core.units import GIB, MIB
from teaching.channel import Channel, NoMessage

# the folders that a program finds inside
WORKBOOK = Path("/workbook")
HOME = Path("/home/learner")
# of one process, and of all together: bytes
MEMORY_BYTES = 4 * GIB
ALL_MEMORY_BYTES = 6 * GIB
FILE_BYTES = 256 * MIB
FOLDER_BYTES = 512 * MIB
# processes and threads, and files that one process has open
TASKS = 1024
OPEN_FILES = 1024
# Without a sandbox there is none of these.
THREATS = (
    "a hand-in runs with your rights: it can read your files, change marks and the"
    " gradebook, fill memory and disk, use the network, and leave processes behind"
)
# far from the numbers that systems give to users
_FIRST_USER = 1_000_000_000
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS = ("ld.so.cache", "alternatives", "fonts", "localtime")
# of the environment: what Python and its libraries need
_KEPT = ("LANG", "LC_", "LD_LIBRARY_PATH", "LABKIT_PROFILE", "OMP_", "MKL_", "NUMBA_")


@functools.cache
def refusal() -> str:
    """Why this machine can't keep a program in a sandbox, or nothing where it can."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux"
    if shutil.which("bwrap") is None:
        return "bubblewrap isn't installed (`make programs`, or apt install bubblewrap)"
    tried = subprocess.run(
        command([sys.executable, "-c", ""], {}),
        env=environment(inside=True),
        capture_output=True,
        text=True,
        check=False,
    )
    if not tried.returncode:
        return ""
    why = tried.stderr.strip() or f"exit status {tried.returncode}"
    return (
        f"bubblewrap can't start Python in namespaces of its own ({why}), as in"
        " containers and where users may make no namespaces"
    )


def protection(*, unprotected: bool) -> str:
    """What the first line of grading says. LabError without a sandbox, unless
    `unprotected`.
    """
    if unprotected:
        return f"Graded unprotected: {THREATS}."
    if not refusal():
        return "Hand-ins run in a sandbox, without your files and without a network."
    raise LabError(
        f"Nothing is graded: {refusal()}. Without it {THREATS}. Grade on another"
        " machine, or in a container that you throw away, and export again with"
        " --unprotected."
    )


def command(program: Sequence[str], folders: Mapping[Path, Path]) -> list[str]:
    """The command line that runs a program in a sandbox, with `folders` (here -> there)
    read-only.
    """
    # the environment inside has a PATH of its own
    bwrap = shutil.which("bwrap") or "bwrap"
    arguments = [bwrap, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for namespace in ("pid", "net", "ipc", "uts"):
        arguments.append(f"--unshare-{namespace}")
    limits = [
        "prlimit",
        "--core=0",
        f"--data={MEMORY_BYTES}",
        f"--fsize={FILE_BYTES}",
        f"--nofile={OPEN_FILES}",
        f"--nproc={TASKS}",
    ]
    if os.geteuid():
        arguments.append("--unshare-user")
    else:
        # root needs no namespace of users: the program gets a user that nobody is
        for right in ("SETUID", "SETGID", "SETPCAP"):
            arguments += ["--cap-add", f"CAP_{right}"]
        user = str(_FIRST_USER + os.getpid())
        limits += ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
        limits += ["--bounding-set=-all", "--inh-caps=-all"]
    arguments += [*_mounts(), *_python(), *_bound(folders)]
    arguments += ["--remount-ro", "/", "--remount-ro", "/dev", "--chdir", str(HOME)]
    return [*arguments, "--", *limits, *program]


def _mounts() -> list[str]:
    """The system's programs, new /proc and /dev, and folders in memory."""
    arguments = ["--ro-bind", "/usr", "/usr", "--ro-bind", "/sys", "/sys"]
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for name in _SETTINGS:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/dev/shm", "/tmp", str(HOME)):
        arguments += ["--perms", "1777", "--size", str(FOLDER_BYTES), "--tmpfs", folder]
    return arguments


def _python() -> list[str]:
    """Where Python and its packages are, at the same places."""
    packages = [*site.getsitepackages(), site.getusersitepackages()]
    packages += [path for path in sys.path if path.endswith("-packages")]
    folders = [Path(sys.base_prefix), Path(sys.prefix), *map(Path, packages)]
    shown = {Path("/usr")}
    for folder in folders:
        is_shown = any(folder.is_relative_to(other) for other in shown)
        if folder.is_dir() and not is_shown:
            shown.add(folder)
    # no clone with its solutions among Python's packages
    hidden = any(ROOT.is_relative_to(folder) for folder in shown)
    outside = [folder for folder in shown if not folder.is_relative_to(ROOT)]
    return [
        *_bound({folder: folder for folder in outside if folder != Path("/usr")}),
        *(["--tmpfs", str(ROOT)] if hidden else []),
        *_bound({folder: folder for folder in shown - {*outside}}),
        *_links(shown),
    ]


def _links(shown: Collection[Path]) -> list[str]:
    """The links from this Python to the one behind it, as far as they stand in no
    folder that is shown.
    """
    arguments: list[str] = []
    link = Path(sys.executable)
    while link.is_symlink():
        if not any(link.is_relative_to(folder) for folder in shown):
            arguments += [*_above(link), "--symlink", str(link.readlink()), str(link)]
        link = link.parent / link.readlink()
    return arguments


def _bound(folders: Mapping[Path, Path]) -> list[str]:
    """Folders (here -> there), read-only, and those above them."""
    arguments: list[str] = []
    for here, there in folders.items():
        arguments += [*_above(there), "--ro-bind", str(here), str(there)]
    return arguments


def _above(path: Path) -> list[str]:
    """The folders above a path, which anybody may pass through."""
    arguments: list[str] = []
    for folder in reversed(path.parents[:-1]):
        arguments += ["--perms", "0755", "--dir", str(folder)]
    return arguments


def environment(*, inside: bool) -> dict[str, str]:
    """The variables of a program in a sandbox, or without one."""
    if not inside:
        return os.environ | {"MPLBACKEND": "agg"}
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    return kept | {
        "HOME": str(HOME),
        "LABKIT_HOME": str(HOME / "labkit"),
        "LOGNAME": "learner",
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(HOME / "matplotlib"),
        "NUMBA_CACHE_DIR": str(HOME / "numba"),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": "/tmp",
    }


class Program:
    """A Python module that runs in a sandbox, or without one, and answers."""

    def __init__(
        self,
        module: str,
        folders: Mapping[Path, Path],
        import_folders: Sequence[Path],
        *,
        unprotected: bool,
    ) -> None:
        """Run `python -m module FD`, with `folders` (here -> there) to be seen and
        `import_folders` (there) on its path.
        """
        if unprotected:
            there_to_here = {there: here for here, there in folders.items()}
            import_folders = [_outside(path, there_to_here) for path in import_folders]
        # of an unprotected program; in a sandbox it has one in memory
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        own, theirs = socket.socketpair()
        program = [sys.executable, "-P", "-m", module, str(theirs.fileno())]
        variables = environment(inside=not unprotected)
        variables["PYTHONPATH"] = os.pathsep.join(map(str, import_folders))
        if unprotected:
            variables["LABKIT_HOME"] = self._home.name
        self._process = subprocess.Popen(
            program if unprotected else command(program, folders),
            cwd=self._home.name,
            env=variables,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._channel = Channel(own)

    def send(self, message: bytes, seconds: float) -> None:
        """Send a message; NoMessage where it isn't read in time."""
        self._channel.send(message, seconds)

    def receive(self, seconds: float) -> bytes:
        """The next message; NoMessage where none comes in time, or the program takes
        too much memory.
        """
        return self._channel.receive(seconds, self._check_memory)

    def _check_memory(self) -> None:
        """NoMessage where the program and all that it started take too much."""
        total = 0
        for process in self._family():
            with contextlib.suppress(psutil.Error):  # it has just ended
                total += process.memory_info().rss
        if total > ALL_MEMORY_BYTES:
            raise NoMessage(f"it took more than {ALL_MEMORY_BYTES / GIB:.0f} GiB")

    def _family(self) -> list[psutil.Process]:
        """The program's processes, and all that they started."""
        try:
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.Error:
            return []

    def stop(self) -> None:
        """End the program and all that it started."""
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._home.cleanup()


def _outside(path: Path, there_to_here: Mapping[Path, Path]) -> Path:
    """The folder here that a program in a sandbox would see as `path`."""
    for there, here in there_to_here.items():
        if path.is_relative_to(there):
            return here / path.relative_to(there)
    return path
