"""Make the virtual environment .venv with everything the workbook needs, once.

usage: setup.py [--switch]    --switch: use the Python that runs this, even if .venv has
another

Standard library only. The file also has to load in a Python that is too old, to be able
to say so.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEWEST = (3, 14)
# What decides what is installed: ranges, versions, and hashes of what is fetched.
INPUTS = ("pyproject.toml", "constraints.txt", "requirements.lock")
# In requirements.lock, but for other drivers: two CuPys would share one folder.
FOR_OTHERS = {
    "cpu": ("cupy-cuda12x", "nvidia-ml-py"),
    "cuda12": ("cupy-cuda13x",),
    "cuda13": ("cupy-cuda12x",),
}
# torch with CUDA takes about 5 GB installed, and pip unpacks before it moves
NEEDED_BYTES = 8 * 2**30
# pip in an empty environment takes less
PIP_NEEDS_BYTES = 64 * 2**20

NO_NETWORK = (
    "There is no connection to the package index: check the network (or the proxy),"
    " then run the same command."
)
NO_ANSWER = (
    "The package index gave no usable answer: it has an error, it has nothing for this"
    " system, or the network answers in its place (a login page, a proxy). Open"
    " https://pypi.org in a browser to see which, then run the same command."
)
CUT_SHORT = (
    "A package came damaged or cut short: the connection broke off, or the network"
    " answered in the index's place (a login page, a proxy). Check the network, then"
    " run the same command; if it stays so, with PIP_NO_CACHE_DIR=1."
)
OTHER_HASH = (
    "A package isn't the file whose hash requirements.lock has: the connection broke"
    " off, the network answered in the index's place (a login page, a proxy), or the"
    " index has another file under that name. Check the network and"
    " PIP_EXTRA_INDEX_URL, then run the same command; if it stays so, with"
    " PIP_NO_CACHE_DIR=1."
)
CANT_WRITE = (
    "This folder, or .venv in it, can't be written: it is read-only, another user's, or"
    " an earlier setup ran with sudo. `sudo chown -R $USER .` makes it yours; or copy"
    " it to a folder of yours, and run the same command there."
)
NO_SPACE = (
    "The disk is full: free about 8 GB for .venv and pip's temporary files, then run"
    " the same command."
)
INTERRUPTED = (
    "Interrupted before .venv was complete: run the same command and it starts again,"
    " downloads are kept."
)
NO_VENV = (
    "This Python can't make a virtual environment: `sudo apt-get install python3-venv`"
    " (Debian, Ubuntu), or name another with `make PYTHON=...`."
)
_SIGNS = (  # what pip and the system print, and what to do: the first that fits
    (r"No space left on device|Errno 28\b|Disk quota exceeded", NO_SPACE),
    (r"Permission denied|Operation not permitted|Read-only file system", CANT_WRITE),
    (r"DO NOT MATCH THE HASHES", OTHER_HASH),
    (
        r"Wheel .* is invalid|invalid wheel|BadZipFile|Incomplete(Read|Download)",
        CUT_SHORT,
    ),
    (
        (
            r"too many \d+ error responses|SSLError|CERTIFICATE_VERIFY_FAILED|ERROR:"
            r" HTTP error \d+"
        ),
        NO_ANSWER,
    ),
    (
        (
            r"NewConnection|NameResolution|ConnectTimeout|ReadTimeout|ProxyError|Max"
            r" retries|name resolution"
        ),
        NO_NETWORK,
    ),
    (r"Network is unreachable|Connection(ResetError| aborted)", NO_NETWORK),
    # also follows where the index can't be reached at all
    (r"from versions: none", NO_ANSWER),
    (r"ensurepip", NO_VENV),
)


INTEL_MAC = (
    "This Mac has an Intel processor, for which PyTorch has no packages since its"
    " version 2.3 (2024). Use Binder or Colab, which need nothing here, or a container:"
    " docker/Dockerfile."
)


class SetupFailed(Exception):
    """Ends the setup; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Choice:
    """Which of pyproject.toml's extras brings CuPy, and a sentence that says why."""

    extra: str
    why: str


@dataclass(frozen=True)
class Stamp:
    """What .venv was made from; kept inside it when it is complete."""

    python: str  # "3.12"
    root: str  # a virtual environment can't be moved
    inputs: str  # a hash
    extra: str


def check_python(version: tuple[int, ...]) -> None:
    """Raise unless the workbook runs on this version of Python."""
    if not OLDEST <= version[:2] <= NEWEST:
        have = ".".join(map(str, version[:2]))
        raise SetupFailed(
            f"Python 3.11 to 3.14 is needed and this is {have}: install one of them and"
            " run the same command; `make lab PYTHON=/where/python3.13` names one that"
            " isn't on the PATH."
        )


def check_system(system: str, processor: str) -> None:
    """Raise where there is no PyTorch, for what `platform` calls system and machine."""
    if (system, processor) == ("Darwin", "x86_64"):
        raise SetupFailed(INTEL_MAC)


def cuda_of_smi(text: str) -> tuple[int, int] | None:
    """The newest CUDA version a driver supports, from what nvidia-smi prints; None if
    it doesn't say.
    """
    match = re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def cuda_of_code(code: int) -> tuple[int, int] | None:
    """The CUDA version in cuDriverGetVersion's coding, 1000 x major + 10 x minor: 12040
    -> (12, 4).
    """
    return (code // 1000, code % 1000 // 10) if code > 0 else None


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version that this machine's driver supports; None without a
    driver.
    """
    smi = shutil.which("nvidia-smi")
    if smi:
        try:
            completed = subprocess.run(
                [smi],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return cuda_of_smi(completed.stdout.decode(errors="replace"))
    try:
        code = ctypes.c_int(0)
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(code))
    except (OSError, AttributeError):
        return None
    return None if failed else cuda_of_code(code.value)


def oldest_capability() -> tuple[int, int] | None:
    """The lowest compute capability of this machine's GPUs; None if nvidia-smi is
    missing or too old to say.
    """
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        completed = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    capabilities = re.findall(
        r"^(\d+)\.(\d+)\s*$", completed.stdout.decode(errors="replace"), re.MULTILINE
    )
    return min(
        ((int(major), int(minor)) for major, minor in capabilities), default=None
    )


def choose(
    cuda: tuple[int, int] | None, system: str, capability: tuple[int, int] | None = None
) -> Choice:
    """Pick the extra that brings CuPy for a driver's CUDA version, on a
    `platform.system()` with GPUs of a capability.

    CUDA 13 has no code for GPUs below compute capability 7.5, such as V100 and P100
    (CUDA 13.0 release notes).
    """
    if system == "Darwin":
        return Choice(
            "cpu", "macOS: CuPy has no wheel here, everything else is installed."
        )
    if cuda is None:
        return Choice(
            "cpu",
            "No NVIDIA driver: CuPy is installed without CUDA (it imports, but finds no"
            " GPU).",
        )
    has = f"The NVIDIA driver supports CUDA {cuda[0]}.{cuda[1]}"
    if cuda >= (13, 0) and capability and capability < (7, 5):
        old = (
            f"the GPU's compute capability is {capability[0]}.{capability[1]}, which"
            " CUDA 13 no longer supports"
        )
        return Choice("cuda12", f"{has}, but {old}: CuPy for CUDA 12.")
    if cuda >= (13, 0):
        return Choice("cuda13", f"{has}: CuPy for CUDA 13.")
    if cuda >= (12, 0):
        return Choice("cuda12", f"{has}: CuPy for CUDA 12.")
    return Choice(
        "cpu",
        f"{has}, too old for CuPy and torch, so the notebooks will use the CPU: update"
        " the driver to 580 or newer.",
    )


def has_cuda12_torch(index_versions: str, pinned: str) -> bool:
    """Whether `pip index versions torch`, of which this is the text, offers the pinned
    version built for CUDA 12.
    """
    return re.search(rf"\b{re.escape(pinned)}\+cu12\d", index_versions) is not None


def without_cuda12_torch(choice: Choice) -> Choice:
    """What is left of a choice of CUDA 12 where pip finds no torch for it; one for CUDA
    13 needs a newer driver.
    """
    return Choice(
        "cpu",
        f"{choice.why.split(':')[0]}, but the torch that pip finds here isn't built for"
        " CUDA 12, so the notebooks will use the CPU: update the driver to 580 or"
        " newer, or put the address of PyTorch's package index for CUDA 12 (PyTorch's"
        " installation page shows it) into PIP_EXTRA_INDEX_URL, then `make clean` and"
        " the same command.",
    )


def pinned_torch(constraints: str) -> str:
    """The version of torch that constraints.txt pins."""
    match = re.search(r"^torch==(\S+)$", constraints, re.MULTILINE)
    if match is None:
        raise SetupFailed(
            "constraints.txt doesn't pin torch: fetch the file anew with `git checkout"
            " constraints.txt`."
        )
    return match[1]


def known(output: str) -> str:
    """One sentence on what to do about an error that is known by what was printed; ""
    for another.
    """
    return next(
        (sentence for signs, sentence in _SIGNS if re.search(signs, output)), ""
    )


def explain(output: str) -> str:
    """One sentence on what to do about a pip that failed, from what it printed."""
    if sentence := known(output):
        return sentence
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if line.startswith("ERROR:") and "ResolutionImpossible" not in line
    ]
    last = (errors or lines or ["nothing"])[-1]
    return (
        f'pip failed, the whole text is in build/setup.log: "{last}"; mend that, then'
        " run the same command."
    )


def inputs_hash(root: Path) -> str:
    """A hash of the files that decide what is installed."""
    texts = [(root / name).read_bytes() for name in INPUTS]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def locked(lock: str, extra: str) -> str:
    """Of the text of requirements.lock, what is installed with an extra."""
    entries = re.split(r"(?m)^(?=[a-z0-9])", lock)
    others = tuple(f"{name}==" for name in FOR_OTHERS[extra])
    return "".join(entry for entry in entries if not entry.startswith(others))


def contents(venv: Path) -> list[str]:
    """What makes a virtual environment usable: the Python that it stands on, and the
    names of what is installed.
    """
    installed = {path.name for path in venv.glob("lib/python*/site-packages/*")} - {
        "__pycache__"
    }
    return [os.path.realpath(venv / "bin" / "python"), *sorted(installed)]


def read_stamp(venv: Path) -> Stamp | None:
    """The stamp of a complete virtual environment; None if there is none, it is
    damaged, or its Python is gone.

    Where something that was installed is gone, it has no extra, so that no setup takes
    it for what is wanted.
    """
    try:
        fields = json.loads((venv / "workbook-stamp.json").read_text())
        # an older stamp has none
        python, *installed = fields.pop("contents", None) or contents(venv)
        stamp = Stamp(**fields)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None
    python_now, *installed_now = contents(venv)
    if not (venv / "bin" / "python").exists() or python != python_now:
        return None
    return replace(stamp, extra="") if set(installed) - set(installed_now) else stamp


def write_stamp(venv: Path, stamp: Stamp) -> None:
    """Mark a virtual environment as complete."""
    (venv / "workbook-stamp.json").write_text(
        json.dumps({**asdict(stamp), "contents": contents(venv)})
    )


def say(text: str) -> None:
    """Show a line at once, also when the output is a pipe."""
    print(text, flush=True)


def shown(line: str) -> str | None:
    """What to show of a line that pip prints: large downloads and the last, long step;
    None for the rest.
    """
    match = re.match(r"\s*Downloading (\S+?)-\d\S* \((\d+[\d.]*) ([MG]B)\)", line)
    if match and (match[3] == "GB" or float(match[2]) >= 20):
        return f"  downloading {match[1]}, {match[2]} {match[3]} ..."
    if line.startswith("Installing collected packages:"):
        return f"  installing {line.count(',') + 1} packages ..."
    return None


def run_pip(python: Path, arguments: list[str], log: Path) -> None:
    """Run pip, add all it prints to `log`, show the long steps; raise with a sentence
    when it fails.
    """
    begin = log.stat().st_size if log.exists() else 0
    command = [str(python), "-m", "pip", *arguments]
    pip = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        close_fds=False,
    )  # close_fds=False: it keeps the lock of `alone`, should it outlive this process
    assert pip.stdout is not None
    with pip, open(log, "a", encoding="utf-8") as kept:
        for raw in pip.stdout:
            line = raw.decode(errors="replace")
            kept.write(line)
            step = shown(line)
            if step:
                say(step)
    if pip.returncode:
        raise SetupFailed(explain(log.read_bytes()[begin:].decode()))


def make_venv(venv: Path) -> None:
    """Make an empty virtual environment with pip, in place of whatever is there."""
    if (
        importlib.util.find_spec("venv") is None
        or importlib.util.find_spec("ensurepip") is None
    ):
        raise SetupFailed(NO_VENV)
    command = [sys.executable, "-m", "venv", "--clear", str(venv)]
    completed = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        close_fds=False,
        check=False,
    )
    output = completed.stdout.decode(errors="replace")
    if not completed.returncode:
        return
    # a full disk ends ensurepip, of whose output venv shows nothing
    if shutil.disk_usage(venv.parent).free < PIP_NEEDS_BYTES:
        raise SetupFailed(NO_SPACE)
    words = " ".join(output.split())[-200:] or "nothing"
    generic = (
        f'.venv can\'t be made, Python says "{words}"; mend that, then run the same'
        " command."
    )
    raise SetupFailed(known(output) or generic)


def settle(choice: Choice, python: Path) -> Choice:
    """The choice that can be installed: CUDA 12 needs a torch built for it, which pip
    may not find.
    """
    if choice.extra != "cuda12" or platform.system() != "Linux":
        return choice
    command = [str(python), "-m", "pip", "index", "versions", "torch"]
    completed = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    pinned = pinned_torch((ROOT / "constraints.txt").read_text())
    return (
        choice
        if has_cuda12_torch(completed.stdout.decode(errors="replace"), pinned)
        else without_cuda12_torch(choice)
    )


def quieten(venv: Path) -> None:
    """Switch off JupyterLab's question whether it may fetch news, which would lie over
    the first notebook.
    """
    config = venv / "etc" / "jupyter" / "labconfig" / "page_config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    # on Binder the folder is the reader's home, and environment.yml names it for conda
    shutil.copyfile(ROOT / ".jupyter" / "labconfig" / "page_config.json", config)


def configure_kernel(venv: Path) -> None:
    """Let every notebook's kernel say, from its first cell on, what to do about a name
    that no cell has set: a reader who comes back meets one before `lab.start()` ran.
    """
    config = venv / "etc" / "ipython" / "ipython_kernel_config.py"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        'get_config().InteractiveShellApp.extensions = ["labkit.lesson.unset_names"]\n',
        encoding="utf-8",
    )


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other setup of this folder runs, and hold others off until this
    process and its pip have ended.
    """
    import fcntl  # not on Windows, where `main` ends before

    (ROOT / "build").mkdir(parents=True, exist_ok=True)
    with open(ROOT / "build" / "setup.lock", "a") as lock:
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another setup of this folder is running: waiting until it is done ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield


def set_up(venv: Path, *, switch: bool) -> None:
    """Make or update `venv`; nothing is done when its stamp says that
    it is complete.
    """
    check_system(platform.system(), platform.machine())
    choice = choose(driver_cuda(), platform.system(), oldest_capability())
    if is_done(venv, choice, switch=switch):
        return
    with alone():
        # another setup may have done it meanwhile
        if not is_done(venv, choice, switch=switch):
            install(venv, choice, switch=switch)


def wanted(old: Stamp | None, choice: Choice, *, switch: bool) -> Stamp:
    """The stamp of the environment that is asked for: with this Python, unless `old`
    has another and may keep it.
    """
    own = ".".join(map(str, sys.version_info[:2]))
    return Stamp(
        own if switch or old is None else old.python,
        str(ROOT),
        inputs_hash(ROOT),
        choice.extra,
    )


def is_done(venv: Path, choice: Choice, *, switch: bool) -> bool:
    """Whether `venv` is what is asked for; says so."""
    old = read_stamp(venv)
    up_to_date = old is not None and old == wanted(old, choice, switch=switch)
    if up_to_date and old:
        say(f".venv is up to date (Python {old.python}).")
    return up_to_date


def install(venv: Path, choice: Choice, *, switch: bool) -> None:
    """Make `venv`, or update it where its Python and place are right."""
    start = time.monotonic()
    old = read_stamp(venv)
    new = wanted(old, choice, switch=switch)
    if old is None or (old.python, old.root) != (new.python, new.root):
        check_python(sys.version_info[:2])
        if shutil.disk_usage(ROOT).free < NEEDED_BYTES:
            say(
                f"Less than {NEEDED_BYTES / 2**30:.0f} GB are free on this disk: the"
                " setup may fail."
            )
        say(
            "Setting up .venv. With a fast network that takes 2 to 5 minutes; PyTorch"
            " is most of it."
        )
        make_venv(venv)
    else:
        say(
            "Updating .venv, since pyproject.toml, a list of versions, the driver or"
            " .venv changed: a minute, or more."
        )
    # an interrupted install must not pass for a complete one
    (venv / "workbook-stamp.json").unlink(missing_ok=True)
    choice = settle(choice, venv / "bin" / "python")
    say(choice.why)
    install_packages(venv / "bin" / "python", choice.extra)
    quieten(venv)
    configure_kernel(venv)
    write_stamp(venv, new)
    say(f".venv is ready after {time.monotonic() - start:.0f} s.")


def install_packages(python: Path, extra: str) -> None:
    """Install what requirements.lock has, each file compared with its hash; then torch,
    what follows its CUDA, and the workbook in place.
    """
    build = ROOT / "build"
    build.mkdir(parents=True, exist_ok=True)
    log = build / "setup.log"
    log.unlink(missing_ok=True)
    requirements = build / "requirements.txt"
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    requirements.write_text(locked(lock, extra), encoding="utf-8")
    hashed = ["install", "--require-hashes", "--no-deps", "-r", str(requirements)]
    run_pip(python, hashed, log)
    # The lock's setuptools builds it: an isolated build would fetch one without a hash.
    in_place = ["--no-build-isolation", "-e", f".[lab,test,{extra}]"]
    run_pip(python, ["install", "-c", "constraints.txt", *in_place], log)


def fail(sentence: str) -> NoReturn:
    """End with one sentence and exit status 1."""
    sys.stdout.flush()
    sys.exit(f"\nSetup failed. {sentence}")


def main() -> None:
    """Set up ROOT/.venv as the command line says."""
    if os.name == "nt":
        fail("On Windows use conda: `conda env create -f environment.yml`.")
    options = sys.argv[1:]
    if options not in ([], ["--switch"]):
        sys.exit(__doc__)
    try:
        set_up(ROOT / ".venv", switch="--switch" in options)
    except SetupFailed as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail(INTERRUPTED)
    except OSError as error:
        fail(known(str(error)) or f"{error}: mend that, then run the same command.")


if __name__ == "__main__":
    main()
