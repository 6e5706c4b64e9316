"""A channel between two processes of one computer: Python objects of any size through a TCP connection."""

from __future__ import annotations

import pickle
import select
import socket
import struct
from typing import Any

_SIZE = struct.Struct("!Q")


class Channel:
    """Messages over a connected socket. EOFError when the other side is gone; OSError when the connection broke.

    multiprocessing's own Connection makes room for the whole of a message at each piece of it that arrives, which
    takes seconds for a result of 100 MB.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages are short, and shall leave at once
        sock.setblocking(True)
        self.sock = sock

    def send(self, message: Any) -> None:
        """Send one object. PickleBuffers in it are sent without a copy, and arrive as bytearrays."""
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(data), *(buffer.raw() for buffer in buffers)]
        self.sock.sendall(b"".join(_SIZE.pack(n) for n in (len(parts), *(part.nbytes for part in parts))))
        for part in parts:
            self.sock.sendall(part)

    def recv(self) -> Any:
        """Wait for one object."""
        (count,) = _SIZE.unpack(self.recv_bytes(_SIZE.size))
        sizes = [_SIZE.unpack(self.recv_bytes(_SIZE.size))[0] for _ in range(count)]
        data, *buffers = [self.recv_bytes(size) for size in sizes]
        return pickle.loads(data, buffers=buffers)

    def recv_bytes(self, size: int) -> bytearray:
        """Wait for exactly `size` bytes."""
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self.sock.recv_into(view)
            if not got:
                raise EOFError
            view = view[got:]
        return data

    def poll(self) -> bool:
        """Whether a message, or the connection's end, has arrived."""
        return bool(select.select([self.sock], [], [], 0)[0])

    def fileno(self) -> int:
        """The socket's file descriptor, so that a selector can wait for a channel."""
        return self.sock.fileno()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()
