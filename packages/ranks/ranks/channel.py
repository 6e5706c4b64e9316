"""A channel between two processes of one computer: Python objects of any size through a
pair of connected sockets.

Both sockets are made by the notebook, which hands one to the rank as it starts: nobody
else can connect.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Generator
from multiprocessing.connection import wait
from typing import Any

_SIZE = struct.Struct("!Q")


class Channel:
    """Messages over a connected socket. EOFError when the other side is gone; OSError
    when the connection broke.
    """

    # multiprocessing's own Connection makes room for all of a message at each piece
    # that arrives: seconds for 100 MB.

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        # as what a process receives from another is at first
        sock.set_inheritable(False)
        self.sock = sock
        self._messages = self._receive()

    def send(self, message: Any) -> None:
        """Send one object. PickleBuffers in it are sent without a copy, and arrive as
        bytearrays.
        """
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(data), *(buffer.raw() for buffer in buffers)]
        sizes = [part.nbytes for part in parts]
        self.sock.sendall(b"".join(_SIZE.pack(n) for n in (len(parts), *sizes)))
        for part in parts:
            self.sock.sendall(part)

    def recv(self) -> Any:
        """Wait for one object."""
        message = self.recv_now()
        while message is None:
            wait([self.sock])
            message = self.recv_now()
        return message

    def recv_now(self) -> Any:
        """The next object if it has arrived whole, else None: half a message never
        makes its receiver wait.
        """
        return next(self._messages)

    def _receive(self) -> Generator[Any, None, None]:
        while True:
            (count,) = _SIZE.unpack((yield from self._take(_SIZE.size)))
            sizes = yield from self._take(count * _SIZE.size)
            parts = []
            for (size,) in _SIZE.iter_unpack(sizes):
                part = yield from self._take(size)
                parts.append(part)
            data, *buffers = parts
            yield pickle.loads(data, buffers=buffers)

    def _take(self, size: int) -> Generator[None, None, bytearray]:
        """Exactly `size` bytes; yields None while they haven't arrived."""
        data = bytearray(size)
        view = memoryview(data)
        while view:
            if not self.poll():
                yield None
                continue
            n = self.sock.recv_into(view)
            if not n:
                raise EOFError
            view = view[n:]
        return data

    def poll(self) -> bool:
        """Whether a part of a message, or the connection's end, has arrived."""
        return bool(wait([self.sock], 0))  # select() takes no descriptor above 1,024

    def fileno(self) -> int:
        """The socket's file descriptor, so that a selector can wait for a channel."""
        return self.sock.fileno()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()
