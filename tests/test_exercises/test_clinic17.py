"""Notebook 17's broken trainings: every variant is broken, each right mend heals it, and evidence tells them apart.

The ranks are run in turn, so that no time-out depends on this machine. They leave what real ranks leave.
"""

import random
import re
from dataclasses import replace

import pytest

from exercises.nb17 import cases, faults, health
from exercises.nb17.device_memory import MIB, DeviceMemory, OutOfMemory
from exercises.nb17.health import run as on_real_ranks  # before health.run is replaced
from exercises.nb17.settings import ROOMY, Fault, Job
from tests.test_exercises import ranks_in_turn

SEEDS = (1, pytest.param(2, marks=pytest.mark.complete))
COLLECTIVES = ("all_reduce", "barrier", "broadcast")


@pytest.fixture(autouse=True)
def in_turn(monkeypatch):
    ranks_in_turn.use(monkeypatch)


def right_mends(broken):
    """All mends that should mend a broken run."""
    job, fault = broken.job, broken.fault
    drift = {"start_weights": "rank 0"} if fault.stale_rank >= 0 else {"reduced": "every layer"}
    missing = set(Job().on_all_ranks) - set(job.on_all_ranks)
    return {
        "float16 overflows": [{"precision": "bfloat16"}, {"precision": "float32"}],
        "the loss is divided by a wrong count": [{"divide_by": "images of all ranks"}],
        "ranks have different weights": [drift],
        "a rank calls another collective": [{"on_all_ranks": work} for work in missing],
        "memory is in pieces": [{"allocator": "expandable segments"}],
        "the CPU computes": [{"torch_cuda": fault.driver}],
        "one GPU is slow": [{"replace_node": fault.slow_rank}],
        "the loader is too slow": [{"loader_workers": 12}],
    }[broken.cause]


@pytest.mark.complete
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("draw", cases.CASES, ids=lambda draw: draw.args[0])
def test_every_variant_is_broken_and_its_mends_heal_it(draw, seed):
    broken = draw(seed)
    assert health.complaints(broken.launched, broken.job, broken.fault)
    assert len(broken.alarm()) > 20
    for mend in right_mends(broken):
        assert broken.judge(broken.cause, mend).endswith("and is healthy.")


def stack(rank):
    """Where a rank stands, without torch's own calls."""
    names = [line.split()[0] for line in rank.stack]
    return names[:-1] if names and names[-1] in COLLECTIVES else names


def kind_of(error):
    """An error, whether it came while sending or receiving, and however a lost connection shows."""
    error = error.replace("send operation", "recv operation")
    return re.sub("Connection reset by peer|Broken pipe|Read error|Write error", "Connection closed by peer", error)


@pytest.mark.parametrize(
    "draw",
    [None, *(pytest.param(draw, marks=pytest.mark.complete) for draw in cases.CASES)],
    ids=lambda d: d and d.args[0],
)
def test_ranks_in_turn_leave_what_real_ranks_leave(draw):
    one = draw(1) if draw else cases.BrokenRun("", Job(), Fault())
    hangs = one.cause == "a rank calls another collective"
    job = replace(one.job, time_limit_minutes=15 if hangs else 300)  # a busy machine's ranks may be late
    for mine, real in zip(*(health.of(run(job, one.fault)) for run in (ranks_in_turn.run, on_real_ranks)), strict=True):
        for name in ("images", "rows", "gpu_s", "cpu_s", "loader_s", "sent_bytes", "changed", "log", "driver", "mhz"):
            assert getattr(mine, name) == getattr(real, name), name
        for name in ("losses", "own_norms", "norms", "weights", "held_out_loss"):
            assert getattr(mine, name) == pytest.approx(getattr(real, name), rel=1e-3, abs=1e-4, nan_ok=True), name
        assert mine.memory.most_reserved == real.memory.most_reserved
        if not hangs or "Connection closed" not in kind_of(real.error):  # by the rank that gave up first
            assert kind_of(mine.error) == kind_of(real.error)
        assert stack(mine) == stack(real)


def test_the_healthy_run_is_healthy_and_like_that_of_one_rank():
    assert health.complaints(health.healthy(), Job(), Fault()) == []
    alone = health.losses(health.run(Job(), Fault(), 1))
    assert alone == pytest.approx(health.losses(health.healthy()), rel=1e-3)


def test_the_looks_tell_all_eight_apart_and_none_shows_them_all():
    told_by = faults.told_by()
    prices = faults.evidence()
    patterns = {tuple(look in looks for look in prices) for looks in told_by.values()}
    assert len(patterns) == len(told_by) == 8
    assert not any(all(look in looks for looks in told_by.values()) for look in prices)
    for cause, looks in told_by.items():
        shown = {"GPU utilisation", "weights", "stacks", "memory", "activations", "timeline", "one rank"} & set(looks)
        assert shown, f"{cause} shows nowhere"


def test_every_look_can_be_shown_of_every_case():
    for draw in cases.CASES:
        for name, evidence in draw(0).evidence().items():
            assert str(evidence.show()), name


def test_seeds_draw_different_variants():
    for draw in cases.CASES:
        assert len({(p.job, p.fault) for p in map(draw, range(20))}) > 5
    assert len({cases.broken("17.6", seed).cause for seed in range(40)}) == 8


class TestDeviceMemory:
    def test_neighbours_that_are_free_merge(self):
        memory = DeviceMemory(100 * MIB)
        blocks = [memory.allocate(4 * MIB, str(i)) for i in range(5)]  # one segment of 20 MiB
        assert (memory.reserved, memory.used) == (20 * MIB, 20 * MIB)
        for block in (blocks[1], blocks[3], blocks[2]):
            memory.free(block)
        assert [block.size // MIB for block in memory.segments[0]] == [4, 12, 4]

    def test_holes_that_are_large_enough_together_fit_nothing(self):
        memory = DeviceMemory(20 * MIB)
        blocks = [memory.allocate(4 * MIB, str(i)) for i in range(5)]
        for block in blocks[::2]:
            memory.free(block)
        words = "Tried to allocate 8 MiB.*8 MiB is allocated by PyTorch, and 12 MiB is reserved by PyTorch but unalloc"
        with pytest.raises(OutOfMemory, match=words):
            memory.allocate(8 * MIB, "large")

    def test_wholly_free_segments_go_back_before_it_fails(self):
        memory = DeviceMemory(60 * MIB)
        memory.free(memory.allocate(40 * MIB, "small"))
        memory.allocate(50 * MIB, "large")
        assert (memory.reserved, memory.driver_calls) == (50 * MIB, 2)

    @pytest.mark.parametrize("expandable", [False, True])
    def test_blocks_never_overlap_and_never_exceed_the_capacity(self, expandable):
        draw, memory, held = random.Random(17), DeviceMemory(500 * MIB, expandable), []
        for _ in range(2000):
            if held and draw.random() < 0.5:
                memory.free(held.pop(draw.randrange(len(held))))
            else:
                try:
                    held.append(memory.allocate(draw.randrange(2 * MIB, 60 * MIB), "x"))
                except OutOfMemory:
                    assert memory.used + 60 * MIB > 500 * MIB or not expandable
            assert memory.used <= memory.reserved <= 500 * MIB
            for segment in memory.segments:
                ends = [block.start + block.size for block in segment]
                assert [block.start for block in segment] == [0, *ends[:-1]]
        assert sum(block.size for block in held) == memory.used

    def test_a_roomy_gpu_never_runs_out(self):
        assert max(rank.memory.most_reserved for rank in health.of(health.healthy())) < ROOMY
