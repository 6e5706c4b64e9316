"""The simulation against closed forms, and on random times against what must hold for
any schedule.
"""

import itertools
import math
import random
import types

import pytest
from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble

from trainplan.schedule import (
    dualpipe,
    gpipe,
    interleaved,
    one_f_one_b,
    simulate,
    zb_h1,
    zb_h2,
    zb_v,
)
from trainplan.schedule.timetable import ScheduleSpan

pytestmark = pytest.mark.slow  # imports torch, and plays many random schedules

SIZES = [(1, 1), (1, 3), (3, 1), (4, 2), (4, 8), (8, 24)]
PLAIN = (gpipe, one_f_one_b)
SPLIT = (zb_h1, zb_h2)


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("order", PLAIN)
def test_bubble_of_gpipe_and_1f1b(order, p, m):
    played = simulate(order(p, m), forward_s=0.3, backward_s=0.7)
    assert played.makespan_s == pytest.approx(m + p - 1)
    assert played.bubble == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)
    assert played.bubble_s == pytest.approx(p - 1)
    assert played.idle_s == pytest.approx([p - 1] * p)
    assert played.period_s == pytest.approx(played.makespan_s)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 3), (4, 8, 1), (4, 4, 2), (8, 24, 3)])
def test_bubble_and_memory_of_interleaved(p, m, v):
    played = simulate(interleaved(p, m, v))
    # as Megatron-LM's authors count
    assert sum(played.idle_s) / sum(played.busy_s) == pytest.approx((p - 1) / (v * m))
    # else it is 1F1B, or there are not enough micro-batches to reach it
    if m > p and v > 1:
        assert max(played.peak_activations) == pytest.approx(
            p * (1 + (p - 1) / (p * v))
        )


@pytest.mark.parametrize(("p", "m"), [(2, 3), (8, 24)])
def test_bubble_of_zb_h1_is_a_third_and_of_zb_h2_nothing(p, m):
    plain = simulate(one_f_one_b(p, m), 1.0, 2.0)
    h1 = simulate(zb_h1(p, m), 1.0, 2.0)
    h2 = simulate(zb_h2(p, m), 1.0, 2.0)
    assert h1.bubble_s == pytest.approx(plain.bubble_s / 3)
    assert h1.period_s == pytest.approx(3 * m + p - 1)
    assert h2.period_s == pytest.approx(3 * m)
    assert sum(h2.busy_s) == pytest.approx(p * h2.period_s, rel=1e-12)


def test_zb_h1_with_other_times_as_its_authors_count_it():
    """(p - 1)(F + B - W), Qi et al. 2024, table 2."""
    played = simulate(zb_h1(6, 20), 1.0, 1.1 + 0.8, weight_s=0.8)
    assert played.bubble_s == pytest.approx(5 * (1.0 + 1.1 - 0.8))


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_peak_activations(p, m):
    assert simulate(gpipe(p, m)).peak_activations == (m,) * p
    assert simulate(one_f_one_b(p, m)).peak_activations == tuple(
        min(p - rank, m) for rank in range(p)
    )
    assert max(simulate(zb_h1(p, m)).peak_activations) == min(p, m)
    assert max(simulate(zb_h2(p, m)).peak_activations) == min(2 * p - 1, m)


@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_zb_v_is_torchs(p):
    kinds = {"FORWARD": "F", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}
    for m in (1, 2, 5, 14):
        theirs = types.SimpleNamespace(
            pp_group_size=p, _n_microbatches=m, num_stages=2 * p
        )
        for rank, ours in enumerate(zb_v(p, m)):
            actions = ScheduleZBVZeroBubble._calculate_single_rank_operations(
                theirs, rank
            )
            steps = [action for action in actions if action and action.computation_type]
            assert ours == [
                f"{kinds[a.computation_type.name]}{a.microbatch_index}.{int(a.stage_index != rank)}"
                for a in steps
            ]


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 3), (8, 15)])
def test_zb_v_has_no_bubble_with_the_memory_of_1f1b(p, m):
    played = simulate(zb_v(p, m), placement="v")
    assert sum(played.busy_s) == pytest.approx(p * played.period_s, rel=1e-12)
    assert max(played.peak_activations) == pytest.approx(p)


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 10), (16, 20)])
def test_dualpipe_has_the_published_memory_and_no_more_than_its_bubble(p, m):
    """PP + 1 activations, and (PP/2 - 1)(F&B + B - 3W) idle (DeepSeek-V3 technical
    report, table 2).
    """
    played = simulate(dualpipe(p, m), 1.0, 2.0, placement="both ways")
    assert max(played.peak_activations) == p + 1
    assert played.busy_s == pytest.approx([2 * m * 3.0] * p)
    assert played.bubble_s <= (p / 2 - 1) * (3.0 + 2.0 - 3.0)


def test_activations_are_freed_in_two_parts():
    order = [["F0", "B0", "F1", "B1", "W0", "W1"]]
    assert simulate(order).peak_activations == (2,)
    assert simulate(order, kept=0.25).peak_activations == (1.25,)
    assert simulate(order, kept=0).peak_activations == (1,)


def test_transfers_take_time_both_ways():
    played = simulate(gpipe(3, 1), 1.0, 2.0, transfer_s=0.3)
    assert played.makespan_s == pytest.approx(3 * 3 + 2 * (0.3 + 0.3))
    assert played.starts_s[2] == pytest.approx((2.6, 3.6))
    # one rank sends nothing
    assert simulate(gpipe(1, 4), transfer_s=9.0).makespan_s == 12


@pytest.mark.parametrize("p", [2, 8])
def test_steady_1f1b_pays_for_transfers_that_overlap_with_nothing(p):
    """Rank 0 takes micro-batch i + p when i is back: p (F + B) + 2 (p - 1) c for every
    p micro-batches.
    """
    c = 0.1
    few = 5 * p
    many = 10 * p
    times = [
        simulate(one_f_one_b(p, m), 1.0, 2.0, transfer_s=c).makespan_s
        for m in (few, many)
    ]
    assert (times[1] - times[0]) / (many - few) == pytest.approx(
        3 + 2 * c * (p - 1) / p
    )


def test_blocking_transfers_take_both_ranks_time():
    played = simulate(gpipe(2, 2), 1.0, 1.0, transfer_s=0.25, blocking=True)
    # rank 0: F 0-1, send -1.25, F -2.25, send -2.5; rank 1 receives 1-1.25 and, after
    # its forward, 2.25-2.5
    assert played.starts_s[0][:2] == (0, 1.25)
    assert played.starts_s[1][:2] == (1.25, 2.5)
    assert played.communication_s == (1.0, 1.0)
    sends = [
        span
        for span in played.spans
        if span.rank == 0 and span.label.startswith("send")
    ]
    assert [span.label for span in sends] == ["send F0", "send F1"]
    assert {span.kind for span in played.communication} == {"communication"}
    assert sum(played.idle_s) == pytest.approx(2 * played.makespan_s - 8 - 2)
    assert simulate(gpipe(2, 2), blocking=True).communication == ()


def test_times_of_a_rank_are_divided_among_its_chunks_and_times_of_a_stage_are_not():
    order = interleaved(2, 2, 2)
    assert (
        simulate(order, 1.0, 2.0).starts_s == simulate(order, [1, 1], [2, 2]).starts_s
    )
    assert (
        simulate(order, 1.0, 2.0).starts_s
        == simulate(order, [0.5] * 4, [1] * 4).starts_s
    )
    uneven = simulate(order, [1, 2, 3, 4], 0.0)
    # stages 0 and 2 are rank 0's
    assert uneven.busy_s == pytest.approx((2 * (1 + 3), 2 * (2 + 4)))


def test_spans_carry_kind_micro_batch_and_chunk():
    played = simulate([["F0", "B0", "W0"]], 1.0, 3.0, weight_s=1.0)
    assert played.spans == (
        ScheduleSpan(0, 0, 1, "F", "0"),
        ScheduleSpan(0, 1, 3, "B", "0"),
        ScheduleSpan(0, 3, 4, "W", "0"),
    )
    assert {span.label for span in simulate(interleaved(1, 1, 2)).spans} == {
        "0.0",
        "0.1",
    }


# ---- random schedules and times ----


def pipelines(placement, ranks, chunks):
    """For each pipeline of a placement the rank and the chunk of all its stages."""
    rows = [[(rank, chunk) for rank in range(ranks)] for chunk in range(chunks)]
    if placement != "loop":
        rows[1::2] = [row[::-1] for row in rows[1::2]]
    return rows if placement == "both ways" else [[*itertools.chain(*rows)]]


class SerialRun:
    """All steps of a pipeline one after another in a random order that their inputs
    allow.

    Each rank's part of this order is its schedule. When its steps start is found on the
    way.
    """

    def __init__(self, seed, placement, blocking):
        draw = random.Random(seed)
        ranks = draw.randint(1, 5)
        chains = pipelines(placement, ranks, chunks=draw.randint(1, 3))
        self.blocking = blocking
        self.places = [*itertools.chain(*chains)]  # by stage
        # of each pipeline
        self.first = set(itertools.accumulate(map(len, chains[:-1]), initial=0))
        self.kinds = draw.choice(("FB", "FBW"))
        self.took_s = {
            kind: [draw.uniform(0, 2) for _ in self.places] for kind in "FBW"
        }
        self.transfer_s = draw.uniform(0, 2)
        self.ended_s = {}
        self.free_s = [0.0] * ranks
        self.lists = [[] for _ in range(ranks)]
        self.starts_s = [[] for _ in range(ranks)]
        left = [
            *itertools.product(
                self.kinds, range(draw.randint(1, 6)), range(len(self.places))
            )
        ]
        while left:
            step = draw.choice(
                [step for step in left if self.ended_s.keys() >= self.needed(*step)]
            )
            left.remove(step)
            self.play(*step)

    def source(self, kind, stage):
        """The stage that a step's input comes from, over a transfer."""
        if kind == "F" and stage not in self.first:
            return stage - 1
        if kind == "B" and stage + 1 not in {*self.first, len(self.places)}:
            return stage + 1
        return None

    def needed(self, kind, microbatch, stage):
        own = {
            "F": set(),
            "B": {("F", microbatch, stage)},
            "W": {("B", microbatch, stage)},
        }[kind]
        source = self.source(kind, stage)
        return own if source is None else {*own, (kind, microbatch, source)}

    def apart(self, one, other):
        return self.places[one][0] != self.places[other][0]

    def play(self, kind, microbatch, stage):
        rank, chunk = self.places[stage]
        source = self.source(kind, stage)
        start_s = self.free_s[rank]
        if source is not None:
            sent_s = self.ended_s[kind, microbatch, source]
            transfer_s = self.transfer_s if self.apart(source, stage) else 0.0
            # a blocking receive takes the rank's time
            start_s = (
                max(start_s, sent_s) + transfer_s
                if self.blocking
                else max(start_s, sent_s + transfer_s)
            )
        end_s = start_s + self.took_s[kind][stage]
        self.lists[rank].append(f"{kind}{microbatch}.{chunk}")
        self.starts_s[rank].append(start_s)
        self.ended_s[kind, microbatch, stage] = end_s
        takers = [
            taker for taker in (stage - 1, stage + 1) if 0 <= taker < len(self.places)
        ]
        sends = any(
            self.source(kind, taker) == stage and self.apart(taker, stage)
            for taker in takers
        )
        self.free_s[rank] = end_s + (
            self.transfer_s if self.blocking and sends else 0.0
        )


@pytest.mark.parametrize("placement", ["loop", "v", "both ways"])
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_steps_of_a_random_schedule_start_as_soon_as_rank_and_input_are_there(
    seed, blocking, placement
):
    run = SerialRun(seed, placement, blocking)
    weight_s = run.took_s["W"]
    backward_s = run.took_s["B"]
    if "W" in run.kinds:
        backward_s = [b + w for b, w in zip(backward_s, weight_s, strict=True)]
    played = simulate(
        run.lists,
        run.took_s["F"],
        backward_s,
        weight_s if "W" in run.kinds else None,
        run.transfer_s,
        placement=placement,
        blocking=blocking,
    )
    for starts_s, expected_s in zip(played.starts_s, run.starts_s, strict=True):
        assert starts_s == pytest.approx(expected_s)
    assert played.makespan_s == pytest.approx(max(run.ended_s.values()))


# ---- size ----


@pytest.mark.complete
def test_a_large_schedule_is_simulated():
    played = simulate(interleaved(64, 512, 4), transfer_s=0.001)
    assert math.isclose(
        sum(played.idle_s) / sum(played.busy_s), 63 / (4 * 512), rel_tol=0.2
    )
    assert len(played.spans) == 2 * 64 * 512 * 4
