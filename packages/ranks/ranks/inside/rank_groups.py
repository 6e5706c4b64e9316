"""How the ranks of a launch meet: by a file that no other user can open, over
connections that no other user holds.

`init_process_group()` finds a FileStore in the launch's private folder, in place of
torchrun's TCPStore, which has no password. gloo, which listens on the loopback
interface, takes whoever connects and says a peer's small number for that peer: so what
it accepted is looked through once a group stands, before anything is sent, and a
connection of another user's process ends the rank (on Linux, which tells whose it is).
NCCL asks for a random number that travels through the store. What another user can
still do is to make a launch fail.
"""

from __future__ import annotations

import itertools
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlparse

from torch._C._distributed_c10d import FileStore, Store
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import _rendezvous_handlers

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_MAPPED = "0000000000000000FFFF0000"  # begins an IPv4 address written as IPv6
# one that a slow peer hasn't accepted yet, or is just closing, looks like another
# user's
_LOOKS = 21
_PAUSE_S = 0.1
# a group that is made after another was destroyed meets at a file of its own
_numbers = itertools.count()


def install(folder: str) -> None:
    """Make `env://`, which init_process_group uses unless told otherwise, lead to a
    FileStore in `folder`.
    """

    def meet(
        url: str, timeout: timedelta | None = None, **_: Any
    ) -> Iterator[tuple[Store, int, int]]:
        query = dict(parse_qsl(urlparse(url).query))
        rank = int(query.get("rank") or os.environ["RANK"])
        size = int(query.get("world_size") or os.environ["WORLD_SIZE"])
        # -1: it stays until the launch's end
        store = FileStore(f"{folder}/store-{next(_numbers)}", -1)
        if timeout is not None:
            store.set_timeout(timeout)
        yield store, rank, size

    _rendezvous_handlers["env"] = meet
    # The class itself, since torch makes its objects in several places.
    group = getattr(c10d, "ProcessGroupGloo", None)
    if group is not None:
        connect = group.__init__

        def connect_and_check(self: Any, *args: Any, **kwargs: Any) -> None:
            connect(self, *args, **kwargs)
            check_peers()

        group.__init__ = connect_and_check


def check_peers() -> None:
    """Raise RuntimeError if gloo has taken a process of another user for a rank."""
    strangers = _strangers()
    for _ in range(_LOOKS - 1):
        if not strangers:
            return
        time.sleep(_PAUSE_S)
        strangers = {
            inode: user for inode, user in _strangers().items() if inode in strangers
        }
    if strangers:
        users = ", ".join(sorted(set(strangers.values())))
        raise RuntimeError(
            f"A process of another user of this machine (user id {users}) connected to"
            " this rank as if it were one of its peers. Nothing was sent to it. Launch"
            " again; if it happens again, tell the machine's administrator."
        )


def _strangers() -> dict[str, str]:
    """The user at the other end of each connection to a peer that isn't this user's, by
    the connection's inode.
    """
    peer_inodes = _inodes_of_peers()
    if not peer_inodes:
        return {}
    ends: dict[str, tuple[str, str]] = {}  # of own connections, by inode
    users: dict[tuple[str, str], str] = {}  # by the ends, that user's own first
    for table in _TABLES:
        with suppress(OSError):
            text = Path(table).read_text(encoding="ascii").replace(_MAPPED, "")
            for line in text.splitlines()[1:]:
                _, local, remote, state, _, _, _, user, _, inode, *_ = line.split()
                if state == "01" and inode != "0":  # established, and held by a process
                    users[local, remote] = user
                    if inode in peer_inodes:
                        ends[inode] = local, remote
    strangers = {}
    for inode, (local, remote) in ends.items():
        user = users.get((remote, local), "unknown")
        if user != str(os.geteuid()):
            strangers[inode] = user
    return strangers


def _inodes_of_peers() -> set[str]:
    """Inodes of this process's sockets that gloo uses for peers: on no others does it
    set a timeout (tcp/pair.cc).
    """
    inodes = set()
    with suppress(FileNotFoundError):
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                descriptor = int(entry.name)
                status = os.fstat(descriptor)
                if stat.S_ISSOCK(status.st_mode) and _is_of_a_peer(descriptor):
                    inodes.add(str(status.st_ino))
    return inodes


def _is_of_a_peer(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        timeout = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
        return sock.family in (socket.AF_INET, socket.AF_INET6) and any(timeout)
