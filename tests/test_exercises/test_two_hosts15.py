"""Two network namespaces as two hosts: needs root and iproute2."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from exercises.nb15 import namespace_hosts
from exercises.nb15.namespace_hosts import NAMES, hosts_missing, two_hosts
from labkit.core.errors import BadArgument, LabError
from ranks.errors import RankFailed
from tests.needs import needs

RATE = 200e6


def needs_hosts(test):
    """Two hosts take Linux, iproute2, and the right to make a network namespace, which
    root has on most machines.
    """
    command = shutil.which("unshare")
    possible = (
        command is not None
        and subprocess.run([command, "-n", "true"], capture_output=True).returncode == 0
    )
    reason = "needs the right to make network namespaces: Linux, and root"
    skipped = pytest.mark.skipif(not possible, reason=reason)
    return pytest.mark.complete(needs("ip")(skipped(test)))


def namespaces():
    listed = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout
    return [line.split()[0] for line in listed.splitlines()]


def ours():
    return [name for name in namespaces() if name.startswith(f"labkit-{os.getpid()}-")]


def three_steps(ranks, rank):
    """Weights after three steps of a small network, on `rank`'s part of the batch, or
    on all of it with one rank.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    images = torch.randn(12, 5).double()
    labels = torch.randint(3, (12,))
    wrapped = DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.2, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            wrapped(images[rank::ranks]), labels[rank::ranks]
        ).backward()
        optimizer.step()
    return torch.cat([weight.detach().ravel() for weight in model.parameters()])


def on_both():
    import socket
    import time

    import torch.distributed as dist

    from tests.test_exercises.test_two_hosts15 import three_steps

    dist.init_process_group("gloo")
    weights = three_steps(dist.get_world_size(), dist.get_rank()).tolist()
    sent = torch.ones(2_000_000)
    dist.all_reduce(sent)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(4):
        dist.all_reduce(sent)
    rate = 4 * 4 * sent.numel() / (time.perf_counter() - start)
    return socket.gethostname(), weights, rate


def without_end():
    import time

    import torch.distributed as dist

    dist.init_process_group("gloo")
    for step in range(100_000):
        dist.all_reduce(torch.ones(1000))
        if step == 10:
            print("it runs", flush=True)
        time.sleep(0.01)


@pytest.fixture
def tests_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@needs_hosts
def test_ddp_across_two_hosts_is_the_single_process_run_and_the_cable_sets_the_pace(
    tests_importable,
):
    with two_hosts(RATE) as hosts:
        found = hosts.launch(on_both, timeout_s=100)
    assert sorted(name for name, _, _ in found) == sorted(NAMES)
    alone = three_steps(1, 0)
    for _, weights, rate in found:
        torch.testing.assert_close(
            torch.tensor(weights, dtype=torch.float64), alone, rtol=1e-12, atol=1e-12
        )
        assert rate < RATE / 8  # a busy machine only lowers it
    assert found[0][1] == found[1][1]
    assert ours() == []


@needs_hosts
def test_when_a_host_dies_the_other_says_so():
    with two_hosts() as hosts:

        def cut_the_power():
            while len(hosts.started) < 2 or not all(
                "it runs" in command.text() for command in hosts.started
            ):
                time.sleep(0.05)
            hosts.started[1].process.kill()
            namespace_hosts.end_all(hosts.namespaces[1])

        threading.Thread(target=cut_the_power, daemon=True).start()
        with pytest.raises(RankFailed) as told:
            hosts.launch(without_end, timeout_s=150)
        words = (
            r"host-b was killed by SIGKILL.*then host-a"
            r" failed.*RuntimeError.*(reset|closed) by peer.*Nothing is left"
        )
        assert re.search(words, str(told.value)), f"{told.value}"
        assert [c.process.poll() is None for c in hosts.started] == [False, False]
    assert ours() == []


@needs_hosts
def test_a_command_that_hangs_ends_at_its_time_and_one_that_fails_says_why():
    with two_hosts() as hosts:
        with pytest.raises(
            RankFailed,
            match=r"host-a and host-b did not end within 10 s.*Last words: waiting",
        ):
            hosts._run(["sh", "-c", "echo waiting; sleep 600"], timeout_s=10)
        with pytest.raises(
            RankFailed, match="host-a failed with exit status 3: no such thing"
        ):
            hosts._run(["sh", "-c", "echo no such thing; exit 3"], timeout_s=20)
        with pytest.raises(RankFailed, match=r"exit status 127"):
            hosts._run(["no-such-command-here"], timeout_s=20)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), "fast", 1000])
def test_a_rate_below_a_megabit_is_refused(rate):
    with pytest.raises(BadArgument, match="Expected rate_bits_per_s"), two_hosts(rate):
        pass


@needs_hosts
def test_a_killed_process_leaves_no_host(tmp_path):
    # here, since hosts import this file and don't find the tests of ranks
    from test_ranks.ranks_left import running

    program = """
import os, time
from exercises.nb15.namespace_hosts import two_hosts
with two_hosts() as hosts:
    there = hosts._start(1, ["sh", "-c", "echo there $$; exec sleep 600"])
    while not there.text():  # it may be about to enter the namespace
        time.sleep(0.01)
    print(there.text().split()[1], *hosts.namespaces, flush=True)
    os.kill(os.getpid(), 9)
"""
    killed = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    pid, *left = killed.stdout.split()
    assert len(left) == 2
    while set(left) & set(namespaces()) or running(pid) or list(tmp_path.iterdir()):
        time.sleep(0.05)


@needs_hosts
def test_a_command_that_has_hardly_begun_is_ended_too():
    for _ in range(5):
        with two_hosts() as hosts:
            sleeper = hosts._start(0, ["sleep", "60"])
        assert sleeper.process.returncode not in (None, 0)


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("sys.platform", "darwin", "need Linux's network namespaces; this is darwin"),
        ("os.geteuid", lambda: 1000, "need root, which this process doesn't have"),
        (
            "shutil.which",
            lambda name: None if name == "tc" else name,
            r"missing: tc\. Install the packages iproute2",
        ),
    ],
)
def test_a_computer_that_can_not_says_why(monkeypatch, attribute, value, words):
    for name, good in (
        ("sys.platform", "linux"),
        ("os.geteuid", lambda: 0),
        ("shutil.which", lambda name: name),
    ):
        monkeypatch.setattr(
            f"exercises.nb15.namespace_hosts.{name}",
            value if name == attribute else good,
        )
    assert re.search(words, hosts_missing())
    with pytest.raises(LabError, match=words), two_hosts():
        pass
