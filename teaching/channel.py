"""Messages between a grader and a process that may send anything, or nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import monotonic

LARGEST = 2**28  # bytes of a message
_LENGTH_BYTES = 8
_LOOK_S = 0.2


class NoMessage(Exception):
    """None came in time, or none that can be one; the words say which."""


class Channel:
    """One end of a pair of sockets. A message is its length and its bytes."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._next_look_s = 0.0

    def send(self, message: bytes, seconds: float | None = None) -> None:
        """Send a message; NoMessage where the other end doesn't take it in time."""
        self._end.settimeout(seconds)
        try:
            self._end.sendall(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
        except OSError as error:
            raise NoMessage("its process has ended, or doesn't listen") from error

    def receive(
        self, seconds: float = float("inf"), look: Callable[[], object] = lambda: None
    ) -> bytes:
        """The next message; NoMessage where it isn't whole in time. Meanwhile `look` is
        called five times a second, and may raise.
        """
        end_s = monotonic() + seconds

        def read(size: int) -> bytes:
            parts = bytearray()
            while len(parts) < size:
                if monotonic() > end_s:
                    raise NoMessage("it took too long")
                if monotonic() > self._next_look_s:
                    look()
                    self._next_look_s = monotonic() + _LOOK_S
                try:
                    part = self._end.recv(min(size - len(parts), 2**20))
                except TimeoutError:
                    continue
                except OSError as error:
                    raise NoMessage("its process has ended") from error
                if not part:
                    raise NoMessage("its process has ended")
                parts += part
            return bytes(parts)

        self._end.settimeout(_LOOK_S)
        size = int.from_bytes(read(_LENGTH_BYTES), "big")
        if size > LARGEST:
            raise NoMessage(f"it sent more than {LARGEST / 2**20:.0f} MiB")
        return read(size)

    def close(self) -> None:
        """Close this end."""
        self._end.close()
