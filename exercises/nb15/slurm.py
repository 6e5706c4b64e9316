"""A Slurm cluster of two hosts: munged, slurmctld and a slurmd on each, which end when
the hosts do.

Debian's packages slurm-wlm and munge bring them. Jobs aren't confined (no cgroups);
nobody but root can enter a host.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from exercises.nb15.namespace_hosts import NAMES, Hosts, end_all, hosts_missing
from exercises.nb15.rank_script import filled
from labkit.core.display import cut
from labkit.core.errors import LabError

T = TypeVar("T")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
_POLL_S = 0.2


def slurm_missing() -> str:
    """Why this computer can't have the cluster, in a sentence; empty if it can."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return (
            f"Slurm isn't installed here: {', '.join(missing)} missing. On Debian and"
            " Ubuntu, `make programs` adds it."
        )
    return hosts_missing()


class SlurmCluster:
    """Slurm on two running hosts; both nodes are idle. Raises LabError if they don't
    become so.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._start_s = time.monotonic()
        # what jobs were waited for, and each state that they were in, with seconds
        self.seen: list[str] = []
        marks = {"folder": hosts.folder, "cores": os.cpu_count()}
        for name in ("slurm.conf", "slurm_host.sh"):
            (hosts.folder / name).write_text(
                filled(name, True, marks), encoding="utf-8"
            )
        for host in NAMES:
            self.power_on(host)
        self.wait(
            lambda: self.ask("sinfo", "--noheader", "--format=%D %t") == "2 idle\n",
            "two idle nodes",
        )

    def power_on(self, host: str) -> None:
        """Start the daemons of a host."""
        self._hosts._start(
            NAMES.index(host), ["sh", str(self._hosts.folder / "slurm_host.sh")]
        )

    def power_off(self, host: str) -> None:
        """Kill all that runs on a host, as a power cut would."""
        end_all(self._hosts.namespaces[NAMES.index(host)])

    def ask(self, *command: str, folder: Path | None = None) -> str:
        """What one of Slurm's commands says on host-a, run in `folder`; LabError if it
        fails.
        """
        where = [
            "env",
            "-C",
            str(folder or self._hosts.folder),
            f"SLURM_CONF={self._hosts.folder / 'slurm.conf'}",
        ]
        run = self._hosts._start(0, [*where, *command])
        if status := run.process.wait(timeout=60):
            raise LabError(
                f"{' '.join(command)} ended with exit status {status}:"
                f" {cut(run.text().strip(), 300)}"
            )
        return run.text()

    def submit(self, job: Path) -> str:
        """The number that Slurm gives a job; its output goes into the job's folder."""
        return self.ask("sbatch", "--parsable", job.name, folder=job.parent).strip()

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job: JobState, Restarts, NodeList and more."""
        return dict(
            re.findall(
                r"(\S+?)=(\S*)",
                self.ask("scontrol", "--oneliner", "show", "job", number),
            )
        )

    def wait_for(self, number: str, state: str) -> dict[str, str]:
        """Wait until a job is RUNNING, COMPLETED, PENDING or the like; what Slurm then
        knows of it.
        """

        def reached() -> dict[str, str] | None:
            job = self.job(number)
            line = (
                f"{job['JobState']} on {job['NodeList'] or 'no node'}, restarts:"
                f" {job['Restarts']}"
            )
            if not self.seen or not self.seen[-1].endswith(line):
                self.seen.append(f"{time.monotonic() - self._start_s:.0f} s: {line}")
            return job if job["JobState"] == state else None

        return self.wait(reached, state)

    def wait(
        self, met: Callable[[], T | None], what: str, timeout_s: float = 120.0
    ) -> T:
        """Wait until `met` returns something; LabError with Slurm's own log if that
        takes longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            # a daemon that has hardly begun doesn't answer yet
            with suppress(LabError):
                if result := met():
                    return result
            time.sleep(_POLL_S)
        log = "\n".join(
            run.text()
            for run in self._hosts.started
            if "slurm_host.sh" in str(run.process.args)
        )
        raise LabError(
            f"Slurm's cluster waited {timeout_s:g} s for {what}, in vain. Its log ends:"
            f" {log[-600:]}"
        )
