"""A launch among strangers: nothing listens beyond loopback, and other users can't
join, read, write or hold it up.
"""

import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import time
from multiprocessing import util
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ranks import RankFailed, launch, report
from ranks.inside import rank_groups
from test_ranks.ranks_left import listening, processes_of
from test_ranks.strangers import (
    NOBODY,
    calls_in_hundreds,
    calls_once,
    can_be_another_user,
    lurking,
    poses_as_a_peer,
    poses_by_ipv6,
)

pytestmark = pytest.mark.complete
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
as_another_user = pytest.mark.skipif(
    not can_be_another_user(), reason="needs root, to become another user"
)


def joins_and_waits(seen):
    """All that a reader's ranks may set up: groups, meshes, a second world; then wait
    to be looked at.
    """
    dist.init_process_group(init_method="env://", backend="gloo")
    dist.barrier()  # gloo's connecting fails for a rank whose peer has already left
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    for group in (dist.new_group([0, 1]), mesh.get_group(), None):
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
    dist.monitored_barrier()
    report(port=int(os.environ["MASTER_PORT"]))
    while not seen.exists():
        time.sleep(0.01)
    return x.item()


def answers_as_a_store(port, within_s=0.5):
    """Whether a TCPStore tells whoever connects how many keys it has
    (torch/csrc/distributed/c10d, TCPStoreBackend).
    """
    with socket.socket() as call:
        call.settimeout(within_s)
        try:
            call.connect(("127.0.0.1", port))
            call.sendall(b"\x00" + struct.pack("=I", 0x3C85F7CE) + b"\x07")
            return len(call.recv(8)) == 8
        except OSError:
            return False


def test_a_store_with_a_port_answers_anybody():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert answers_as_a_store(store.port, within_s=100)


@linux_only
def test_what_listens_is_gloos_and_on_loopback(tmp_path, monkeypatch):
    # a cluster's, perhaps
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    before = listening()
    of_ranks = []
    of_kernel = []
    folders = []

    def look(report):
        of_ranks.append(listening(*processes_of(os.getpid())))
        of_kernel.append(listening() - before)
        folders.extend(
            [util.get_temp_dir(), *Path(util.get_temp_dir()).glob("launch-*")]
        )
        ports = {int(address.partition(":")[2], 16) for address in of_ranks[-1]}
        assert not any(map(answers_as_a_store, {int(report.metrics["port"]), *ports}))
        if can_be_another_user():
            another = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            for folder in folders:
                assert (
                    subprocess.run(
                        ["ls", folder], **another, capture_output=True, check=False
                    ).returncode
                    != 0
                )
        (tmp_path / "seen").touch()

    assert launch(joins_and_waits, 2, tmp_path / "seen", on_report=look) == [2.0, 2.0]
    assert of_kernel == [set(), set()]
    assert len(folders) >= 2
    # 127.0.0.1
    assert {address.partition(":")[0] for address in set.union(*of_ranks)} == {
        "0100007F"
    }


def sums():
    dist.init_process_group("gloo")
    x = torch.full((4,), 1234.5)
    dist.all_reduce(x)
    return x.tolist()


def sums_behind_the_stranger(said):
    """Rank 1 begins once the stranger has spoken."""
    while os.environ["RANK"] == "1" and not said.exists():
        time.sleep(0.01)
    return sums()


@as_another_user
@pytest.mark.parametrize(
    "attack", [poses_as_a_peer, poses_by_ipv6], ids=lambda attack: attack.__name__
)
def test_who_poses_as_a_peer_gets_nothing_and_falsifies_nothing(attack, tmp_path):
    """Whom gloo takes for the peer, if both have called when it looks, is open: it is
    right, or it says who called.
    """
    said = tmp_path / "said"
    accusation = f"A process of another user of this machine (user id {NOBODY})"
    with lurking(attack, said) as overheard:
        try:
            right = (
                launch(sums_behind_the_stranger, 2, said, timeout_s=200)
                == [[2469.0] * 4] * 2
            )
        except RankFailed as error:
            right = accusation in str(error)
    assert right
    ports, heard = overheard
    assert ports
    assert struct.pack("=f", 1234.5) not in heard


@as_another_user
@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_peer_of_another_user_is_named(host):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ours, theirs = multiprocessing.Pipe()
        stranger = multiprocessing.get_context("fork").Process(
            target=calls_once, args=(host, port, theirs)
        )
        stranger.start()
        peer, _ = server.accept()
        with peer:
            peer.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 5, 0)
            )
            with pytest.raises(
                RuntimeError,
                match=rf"another user of this machine \(user id {NOBODY}\)",
            ):
                rank_groups.check_peers()
        ours.send("enough")
        stranger.join()


@as_another_user
def test_hundreds_of_calls_hold_nothing_up(tmp_path):
    launch(sums, 2)
    said = tmp_path / "said"
    with lurking(calls_in_hundreds, said) as overheard:
        # Half a greeting used to cost five seconds or more each: hundreds of them would
        # take longer than this.
        assert (
            launch(sums_behind_the_stranger, 2, said, timeout_s=200)
            == [[2469.0] * 4] * 2
        )
    assert overheard[0]


@linux_only
def test_a_connection_of_ones_own_passes():
    """And so does one with no timeout, which isn't gloo's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        call = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        with call, peer:
            rank_groups.check_peers()
            call.settimeout(None)
            call.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 5, 0)
            )
            rank_groups.check_peers()
