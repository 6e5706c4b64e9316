"""Another user of the machine who tries to take part in a launch, in a process of its own. Reads Linux's /proc."""

import multiprocessing
import os
import socket
import struct
import sys
import time
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534
HUNDREDS = 200


def ports():
    """Ports of this machine at which anything listens."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def call_to(port, host="127.0.0.1"):
    """A connection. (socket.create_connection needs a codec from Python's folder, which nobody may read.)"""
    call = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    call.connect((host, port))
    return call


def poses_as_a_peer(port, said):
    """Say what gloo's peers say first: their number, of eight bytes. Whatever comes back is kept."""
    calls = [call_to(port) for _ in range(4)]
    for number, call in enumerate(calls):
        call.sendall(struct.pack("=q", number))
        call.setblocking(False)
    said[port] = calls


def poses_by_ipv6(port, said):
    """The same from a socket of IPv6, which /proc/net/tcp doesn't list."""
    calls = [call_to(port, "::ffff:127.0.0.1") for _ in range(4)]
    for number, call in enumerate(calls):
        call.sendall(struct.pack("=q", number))
    said[port] = calls


def calls_in_hundreds(port, said):
    """Connect again and again, and say half of what a peer or a store's client would, or nothing."""
    calls = [call_to(port) for _ in range(HUNDREDS)]
    for call in calls[::2]:
        call.sendall(b"h")
    said[port] = calls


def _goes_on(said, heard):
    """One more byte from each, and what each has heard."""
    for calls in said.values():
        for call in calls:
            try:
                call.setblocking(False)
                call.send(b"x")
                heard.append(call.recv(65536))
            except OSError:  # it has said nothing, or hung up
                continue


def _lurk(attack, pipe):
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    known, said, heard, spoke_s = ports(), {}, [], time.monotonic()
    pipe.send("ready")
    while not pipe.poll(0.001):
        for port in ports() - known:
            known.add(port)
            try:
                attack(port, said)
            except OSError:
                continue
        if time.monotonic() - spoke_s > 4:
            spoke_s = time.monotonic()
            _goes_on(said, heard)
    _goes_on(said, heard)
    pipe.send((sorted(said), b"".join(heard)))
    os._exit(0)


@contextmanager
def lurking(attack):
    """Another user attacks each port that opens inside the block; the list gets the ports, and all bytes it heard."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_lurk, args=(attack, theirs))
    process.start()
    found = []
    try:
        assert ours.recv() == "ready"
        yield found
    finally:
        ours.send("enough")
        found.extend(ours.recv() if ours.poll(20) else ())
        process.kill()
        process.join()


def can_be_another_user():
    return sys.platform == "linux" and os.geteuid() == 0
