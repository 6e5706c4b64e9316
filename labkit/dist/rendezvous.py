"""How the machines of a launch find each other, and by how much their clocks differ."""

from __future__ import annotations

import socket
import struct
import sys
import time
from datetime import timedelta

from torch.distributed import DistNetworkError, PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname

from labkit.core.errors import RankFailed

_RUN = "labkit"


class OneNode(RendezvousHandler):
    """The rendezvous of one machine with itself: a store on a free port of the loopback interface, at once."""

    def __init__(self) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=300))

    @property
    def use_agent_store(self) -> bool:
        """Ranks use this store, so its port is never between two owners."""
        return True

    def get_backend(self) -> str:
        """Its name."""
        return "one node"

    def next_rendezvous(self) -> RendezvousInfo:
        """Node 0 of 1."""
        info = RendezvousStoreInfo("127.0.0.1", self._store.port)
        return RendezvousInfo(PrefixStore(_RUN, self._store), 0, 1, info)

    def is_closed(self) -> bool:
        """Never: it is used once."""
        return False

    def set_closed(self) -> None:
        """Nothing to close."""

    def num_nodes_waiting(self) -> int:
        """Nobody else can join."""
        return 0

    def get_run_id(self) -> str:
        """The name of the launch."""
        return _RUN

    def shutdown(self) -> bool:
        """Give the port back."""
        self.__dict__.pop("_store", None)
        return True


class SeveralNodes(RendezvousHandler):
    """torch's own c10d rendezvous at "host:port", joined within `timeout_s`; RankFailed says who was missing."""

    def __init__(self, endpoint: str, nnodes: int, timeout_s: float) -> None:
        self.host, _, port = endpoint.rpartition(":")
        self.port, self.endpoint, self.nnodes, self.timeout_s = int(port), endpoint, nnodes, timeout_s
        self._handler: RendezvousHandler | None = None

    @property
    def use_agent_store(self) -> bool:
        """Ranks use the store of the first node's agent."""
        return True

    def get_backend(self) -> str:
        """Its name."""
        return "c10d"

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the other nodes. A rendezvous that is just being closed belongs to the launch before: try again."""
        end_s = time.monotonic() + self.timeout_s
        is_here = _matches_machine_hostname(self.host)
        while True:
            if not is_here:
                self._await_port(end_s)
            try:
                self._handler = get_rendezvous_handler(self._parameters(end_s, is_here))
                return _at_node_0(self._handler.next_rendezvous(), end_s)
            except RendezvousTimeoutError:
                self.shutdown()
                raise RankFailed(
                    f"Fewer than {self.nnodes} machines came to {self.endpoint} within {self.timeout_s:g} s. Run the "
                    f"same lab.launch(..., nnodes={self.nnodes}, rendezvous={self.endpoint!r}) on each of them."
                ) from None
            except (RendezvousClosedError, RendezvousConnectionError, DistNetworkError) as error:
                self.shutdown()
                if time.monotonic() > end_s:
                    raise RankFailed(f"The rendezvous at {self.endpoint} failed: {error}.") from None
                time.sleep(0.2)

    def _parameters(self, end_s: float, is_here: bool) -> RendezvousParameters:
        left_s = _left_s(end_s)
        return RendezvousParameters(
            backend="c10d",
            endpoint=self.endpoint,
            run_id=_RUN,
            min_nodes=self.nnodes,
            max_nodes=self.nnodes,
            local_addr=self.host if is_here else address_towards(self.host, self.port),
            join_timeout=left_s,
            last_call_timeout=1,
            close_timeout=2,
            read_timeout=left_s,
        )

    def _await_port(self, end_s: float) -> None:
        """Wait until the rendezvous' host answers: in Python, where a Stop gets through."""
        why: object = "it was not asked"
        while time.monotonic() < end_s:
            try:
                socket.create_connection((self.host, self.port), timeout=1.0).close()
                return
            except OSError as error:
                why = error
                time.sleep(0.1)
        raise RankFailed(
            f"Nobody answered at {self.endpoint} within {self.timeout_s:g} s ({why}). Run the same lab.launch on the "
            "machine of that name too, and let its firewall pass the port."
        )

    def is_closed(self) -> bool:
        """Whether nobody can join any more."""
        return self._handler is None or self._handler.is_closed()

    def set_closed(self) -> None:
        """Let nobody join any more."""
        if self._handler is not None:
            self._handler.set_closed()  # type: ignore[no-untyped-call]

    def num_nodes_waiting(self) -> int:
        """Machines beyond `nnodes` are not let in."""
        return 0

    def get_run_id(self) -> str:
        """The name of the launch."""
        return _RUN

    def shutdown(self) -> bool:
        """Give the port back."""
        handler, self._handler = self._handler, None
        return handler is None or handler.shutdown()


def _at_node_0(info: RendezvousInfo, end_s: float) -> RendezvousInfo:
    """The same with a store that goes with node 0, as the ranks' does.

    The rendezvous' own store goes with whichever machine got the port, which may leave before the others have heard.
    """
    where = info.bootstrap_store_info
    assert where is not None  # torch's c10d rendezvous always says where
    timeout = timedelta(seconds=_left_s(end_s))
    store = TCPStore(where.master_addr, where.master_port, is_master=False, wait_for_workers=False, timeout=timeout)
    return RendezvousInfo(PrefixStore(_RUN, store), info.rank, info.world_size, where)


def _left_s(end_s: float) -> int:
    return max(1, round(end_s - time.monotonic()))


def address_towards(host: str, port: int) -> str:
    """The address of this machine under which `host` sees it. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, port))
        return str(sock.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The network interface with this IPv4 address, "eth0"; None where the system doesn't say."""
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:  # SIOCGIFADDR of netdevice(7)
                answer = fcntl.ioctl(sock, 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
