"""Another user of the machine who tries to take part in a launch, in a process of its
own. Reads Linux's /proc.
"""

import multiprocessing
import os
import socket
import struct
import sys
import threading
import time
from contextlib import contextmanager, suppress

from test_ranks.ranks_left import listening, processes_of

NOBODY = 65534
HUNDREDS = 200


def ports():
    """Ports at which a descendant of this process listens: other tests' launches have
    their own strangers.
    """
    return {
        int(address.rpartition(":")[2], 16)
        for address in listening(*processes_of(os.getpid()))
    }


def call_to(port, host="127.0.0.1"):
    """A connection. (socket.create_connection needs a codec from Python's folder, which
    nobody may read.)
    """
    call = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    call.connect((host, port))
    return call


def poses_as_a_peer(port, said):
    """Say what gloo's peers say first: their number, of eight bytes. Whatever comes
    back is kept.
    """
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
    """Connect again and again, and say half of what a peer or a store's client would,
    or nothing.
    """
    calls = [call_to(port) for _ in range(HUNDREDS)]
    for call in calls[::2]:
        call.sendall(b"h")
    said[port] = calls


def calls_once(host, port, pipe):
    """Connect as another user, and stay until told to end."""
    _becomes_nobody()
    with call_to(port, host):
        pipe.recv()
    os._exit(0)


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


def _becomes_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def _lurk(attack, pipe):
    _becomes_nobody()
    said = {}
    heard = []
    spoke_s = time.monotonic()
    pipe.send("ready")
    while True:
        if pipe.poll(0.1):
            if (port := pipe.recv()) == "enough":
                break
            with suppress(OSError):
                attack(port, said)
                pipe.send("said")
        if time.monotonic() - spoke_s > 4:
            spoke_s = time.monotonic()
            _goes_on(said, heard)
    _goes_on(said, heard)
    pipe.send((sorted(said), b"".join(heard)))
    os._exit(0)


def _tell(pipe, over, said):
    """Tell the stranger, who may not look into others' processes, each port that opens;
    a file says that he spoke.
    """
    seen = ports()
    while not over.wait(0.005):
        if pipe.poll() and pipe.recv() == "said":
            said.touch()
        for port in ports() - seen:
            seen.add(port)
            pipe.send(port)


@contextmanager
def lurking(attack, said):
    """Another user attacks each port that opens inside the block; the list gets the
    ports, and all bytes it heard.

    The file `said` appears once he has said something.
    """
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_lurk, args=(attack, theirs)
    )
    process.start()
    overheard = []
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(ours, over, said))
    try:
        assert ours.recv() == "ready"
        teller.start()
        yield overheard
    finally:
        over.set()
        teller.join()
        ours.send("enough")
        while not overheard and ours.poll(20):
            overheard.extend(last if (last := ours.recv()) != "said" else ())
        process.kill()
        process.join()


def can_be_another_user():
    return sys.platform == "linux" and os.geteuid() == 0
