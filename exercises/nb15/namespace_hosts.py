"""Two hosts in one computer: Linux network namespaces, each with its own address,
joined by a cable of a chosen rate.

Each host has its own interfaces, host name and /etc/hosts; processor, memory and files
are shared. What runs in them finds its peer the way it would on two machines, and every
byte between them goes through the kernel's TCP and a token bucket (tc-tbf(8)) that
limits the bits per second in each direction. Needs Linux, root, and the tools of
iproute2. torchrun's store has no password, but only root can enter a host: no other
user reaches its ports.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from exercises.nb15.rank_script import PORT, as_script, returned
from labkit.core.display import cut, signal_name
from labkit.core.errors import LabError
from labkit.core.parameters import Count, Number, Positive, checked
from ranks.errors import RankFailed

NAMES = ("host-a", "host-b")
ADDRESSES = ("10.203.0.1", "10.203.0.2")
_GRACE_S = 10.0  # how long the other host has to notice that its peer is gone
_POLL_S = 0.02
_counter = itertools.count()
# `ip netns exec` gives a command mounts of its own, so that it sees the host's
# /etc/hosts; unshare --uts, its name.
_ENTER = (
    'mount --bind "$1" /etc/hosts; echo "$2" >/proc/sys/kernel/hostname; shift 2; exec'
    ' "$@"'
)
# Waits until its input ends, also because the kernel was killed; then ends what runs in
# the namespaces, and removes them and a folder. A process that can't be killed is not
# waited for.
_TIDY = """cat; for host; do
    for _ in $(seq 50); do
        pids=$(ip netns pids "$host") && test "$pids" || break
        kill -9 $pids
        sleep 0.02
    done
    ip netns delete "$host"
done 2>/dev/null; rm -rf "$0"
"""
_ERROR = re.compile(
    r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?:: .+)?)$",
    re.MULTILINE,
)
# of gloo's messages
_NOISE = re.compile(r"\[/\S+\.cc:\d+\] |This is typically caused by a remote worker .*")
_OF_THE_PEER = re.compile(
    r"by peer|broken pipe|connection (?:refused|reset|closed)|timed out", re.IGNORECASE
)


@dataclass(frozen=True)
class HostCommand:
    """A command that runs in a host; its output and errors go to the file `output`."""

    host: str
    process: subprocess.Popen[bytes]
    output: Path

    def text(self) -> str:
        """What it wrote so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")


class Hosts:
    """Two running hosts, "host-a" and "host-b": run a function in both
    with torchrun.
    """

    def __init__(self, namespaces: tuple[str, str], folder: Path) -> None:
        self.namespaces = namespaces
        self.folder = folder
        self.started: list[HostCommand] = []
        self._etc_hosts = folder / "hosts"
        lines = (
            f"{address} {name}\n"
            for name, address in zip(NAMES, ADDRESSES, strict=True)
        )
        self._etc_hosts.write_text(
            "127.0.0.1 localhost\n" + "".join(lines), encoding="ascii"
        )

    @checked
    def launch(
        self,
        fn: Callable[..., object],
        *args: Any,
        nproc: Count = 1,
        timeout_s: Positive = 60.0,
    ) -> list[Any]:
        """Run a function on `nproc` ranks of each host with torchrun; what each rank
        returned, by rank.

        The files are those that `as_script` writes. The function initializes its
        process group itself, with "gloo", and sees no GPU. Raises RankFailed if a host
        ends with an error or runs longer than `timeout_s` seconds, and BadArgument for
        a function that can't be written to a file. Afterwards nothing runs any more.
        """
        where = f"{NAMES[0]}:{PORT}"
        scripts = as_script(
            fn, self.folder, *args, nproc=nproc, nnodes=2, rendezvous=where
        )
        outputs = self._run(["bash", str(scripts.torchrun)], timeout_s)
        results = dict(pair for output in outputs for pair in returned(output))
        return [results.get(rank) for rank in range(2 * nproc)]

    def _run(self, command: Sequence[str], timeout_s: float) -> tuple[str, ...]:
        """Run a command in both hosts at once; the output of each. Raises RankFailed as
        `launch` does.
        """
        commands = [self._start(host, command) for host in (0, 1)]
        deadline = time.monotonic() + timeout_s
        ended: list[HostCommand] = []
        try:
            while len(ended) < len(commands) and time.monotonic() < deadline:
                running = [started for started in commands if started not in ended]
                for started in running:
                    if started.process.poll() is None:
                        continue
                    ended.append(started)
                    if started.process.returncode:
                        deadline = min(deadline, time.monotonic() + _GRACE_S)
                time.sleep(_POLL_S)
        finally:
            self._stop()
        if failed := [started for started in ended if started.process.returncode]:
            raise RankFailed(_why(failed))
        if late := [started for started in commands if started not in ended]:
            names = " and ".join(started.host for started in late)
            raise RankFailed(
                f"{names} did not end within {timeout_s:g} s and was stopped. Last"
                f" words: {last_words(late[0].text())}"
            )
        return tuple(started.text() for started in commands)

    def _start(self, host: int, command: Sequence[str]) -> HostCommand:
        """Start a command in host 0 or 1."""
        enter = [
            "ip",
            "netns",
            "exec",
            self.namespaces[host],
            "unshare",
            "--uts",
            "sh",
            "-ec",
            _ENTER,
            "enter",
        ]
        output = self.folder / f"output-{len(self.started)}"
        with open(output, "wb") as file:
            process = subprocess.Popen(
                [*enter, str(self._etc_hosts), NAMES[host], *command],
                env=rank_environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                # a notebook's Stop is for the kernel, which ends what it started
                start_new_session=True,
            )
        self.started.append(HostCommand(NAMES[host], process, output))
        return self.started[-1]

    def _stop(self) -> None:
        """Kill all that runs in both hosts, as a power cut would."""
        for command in self.started:
            if command.process.poll() is None:
                # it may not have entered the namespace yet, where the next line looks
                command.process.kill()
        for namespace in self.namespaces:
            end_all(namespace)


def rank_environment() -> dict[str, str]:
    """The environment of ranks on this machine: its torchrun, a thread for each, no
    GPU.
    """
    path = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    )
    return {
        "OMP_NUM_THREADS": "1",
        **os.environ,
        "PATH": path,
        "CUDA_VISIBLE_DEVICES": "",
    }


@checked
@contextmanager
def two_hosts(
    rate_bits_per_s: Annotated[
        float, Number(least=10**6, most=10**12, advice="A megabit per second is 1e6.")
    ] = 1e9,
) -> Iterator[Hosts]:
    """Two hosts and a cable of `rate_bits_per_s` in each direction; both are gone at
    the end, whatever happens.

    Raises LabError if this computer can't have them (no Linux, no root, no iproute2, or
    a container that forbids it), and BadArgument for a rate below 1e6.
    """
    # The rate includes the headers of TCP and IP.
    _check_possible()
    stem = f"labkit-{os.getpid()}-{next(_counter)}"
    namespaces = (f"{stem}-a", f"{stem}-b")
    folder = tempfile.mkdtemp(prefix="labkit-hosts-")
    tidy = subprocess.Popen(
        ["sh", "-c", _TIDY, folder, *namespaces],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    hosts = Hosts(namespaces, Path(folder))
    try:
        _connect(namespaces, int(rate_bits_per_s))
        yield hosts
    finally:
        hosts._stop()
        tidy.communicate()
        for command in hosts.started:
            command.process.wait()


def hosts_missing() -> str:
    """Why this computer can't have two hosts, in a sentence; empty if it can."""
    try:
        with two_hosts():
            return ""
    except LabError as error:
        return str(error)


def _check_possible() -> None:
    if sys.platform != "linux":
        raise LabError(
            "Two hosts in one computer need Linux's network namespaces; this is"
            f" {sys.platform}."
        )
    if os.geteuid() != 0:
        raise LabError(
            "Two hosts in one computer need root, which this process doesn't have."
            " Start Jupyter as root."
        )
    if missing := [
        name for name in ("ip", "tc", "unshare") if shutil.which(name) is None
    ]:
        raise LabError(
            "Two hosts in one computer need the commands ip, tc and unshare; missing:"
            f" {', '.join(missing)}. Install the packages iproute2 and util-linux."
        )


def _connect(namespaces: tuple[str, str], bits_per_s: int) -> None:
    """Make both namespaces and the cable between them."""
    # bytes: a millisecond, or one piece as TCP hands it over
    burst = max(65536, bits_per_s // 8 // 1000)
    for namespace in namespaces:
        _tool(f"ip netns add {namespace}")
    first, second = namespaces
    _tool(f"ip link add cable netns {first} type veth peer name cable netns {second}")
    for namespace, address in zip(namespaces, ADDRESSES, strict=True):
        _tool(f"ip -n {namespace} address add {address}/24 dev cable")
        for device in ("lo", "cable"):
            _tool(f"ip -n {namespace} link set {device} up")
        _tool(
            f"tc -n {namespace} qdisc add dev cable root tbf rate {bits_per_s}bit burst"
            f" {burst} latency 100ms"
        )


def _tool(command: str) -> str:
    """Run one of iproute2's commands; its output. LabError quotes its error."""
    completed = subprocess.run(
        command.split(), capture_output=True, text=True, check=False, timeout=20
    )
    if completed.returncode:
        error = (
            " ".join((completed.stderr or completed.stdout).split())
            or f"exit status {completed.returncode}"
        )
        raise LabError(
            f"This computer can't have two hosts: {command!r} failed: {cut(error, 200)}"
        )
    return completed.stdout


def end_all(namespace: str) -> None:
    """Kill every process of a namespace, and those that they start meanwhile."""
    # a second in all; a process that can't be killed must not hang the notebook
    for _ in range(50):
        try:
            running = [int(pid) for pid in _tool(f"ip netns pids {namespace}").split()]
        except LabError:  # there is none of that name
            return
        if not running:
            return
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _why(failed: Sequence[HostCommand]) -> str:
    """What went wrong: a host that failed for its own reason comes before one that lost
    its peer.
    """
    first, *others = sorted(
        failed,
        key=lambda command: bool(_OF_THE_PEER.search(last_words(command.text()))),
    )
    parts = [
        f"{first.host} {_how(first)}",
        *(f"then {other.host} {_how(other)}" for other in others),
    ]
    return "; ".join(parts) + ". Nothing is left running in either host."


def _how(command: HostCommand) -> str:
    status = command.process.returncode
    if status < 0:
        return (
            f"was killed by {signal_name(-status)} (last words:"
            f" {last_words(command.text())})"
        )
    return f"failed with exit status {status}: {last_words(command.text())}"


@checked
def last_words(text: str) -> str:
    """The first error in an output, or else its last line."""
    match = _ERROR.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if match:
        words = _NOISE.sub("", match[1])
    elif lines:
        words = lines[-1]
    else:
        words = "none"
    return cut(words.strip().rstrip("."), 300)
