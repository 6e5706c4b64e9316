"""The simulation against closed forms, and on random times against what must hold for any schedule."""

import itertools
import math
import random
import types

import pytest
from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble

from trainplan.errors import ScheduleError
from trainplan.schedule import dualpipe, gpipe, interleaved, one_f_one_b, simulate, zb_h1, zb_h2, zb_v
from trainplan.schedule.timetable import Span

SIZES = [(1, 1), (1, 3), (2, 2), (3, 1), (4, 2), (4, 8), (5, 5), (7, 30), (8, 24)]
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


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 3), (4, 8, 2), (4, 8, 1), (4, 4, 2), (3, 12, 5), (8, 24, 3)])
def test_bubble_and_memory_of_interleaved(p, m, v):
    played = simulate(interleaved(p, m, v))
    assert sum(played.idle_s) / sum(played.busy_s) == pytest.approx((p - 1) / (v * m))  # as Megatron-LM's authors count
    if m > p and v > 1:  # else it is 1F1B, or there are not enough micro-batches to reach it
        assert max(played.peak_activations) == pytest.approx(p * (1 + (p - 1) / (p * v)))


@pytest.mark.parametrize(("p", "m"), [(2, 3), (4, 8), (8, 24), (16, 64)])
def test_bubble_of_zb_h1_is_a_third_and_of_zb_h2_nothing(p, m):
    one = simulate(one_f_one_b(p, m), 1.0, 2.0)
    h1, h2 = simulate(zb_h1(p, m), 1.0, 2.0), simulate(zb_h2(p, m), 1.0, 2.0)
    assert h1.bubble_s == pytest.approx(one.bubble_s / 3)
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
    assert simulate(one_f_one_b(p, m)).peak_activations == tuple(min(p - rank, m) for rank in range(p))
    assert max(simulate(zb_h1(p, m)).peak_activations) == min(p, m)
    assert max(simulate(zb_h2(p, m)).peak_activations) == min(2 * p - 1, m)


@pytest.mark.parametrize("p", range(1, 7))
def test_zb_v_is_torchs(p):
    kinds = {"FORWARD": "F", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}
    for m in range(1, 15):
        theirs = types.SimpleNamespace(pp_group_size=p, _n_microbatches=m, num_stages=2 * p)
        for rank, ours in enumerate(zb_v(p, m)):
            actions = ScheduleZBVZeroBubble._calculate_single_rank_operations(theirs, rank)
            steps = [action for action in actions if action and action.computation_type]
            assert ours == [
                f"{kinds[a.computation_type.name]}{a.microbatch_index}.{int(a.stage_index != rank)}" for a in steps
            ]


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 3), (4, 8), (8, 15), (16, 64)])
def test_zb_v_has_no_bubble_with_the_memory_of_1f1b(p, m):
    played = simulate(zb_v(p, m), placement="v")
    assert sum(played.busy_s) == pytest.approx(p * played.period_s, rel=1e-12)
    assert max(played.peak_activations) == pytest.approx(p)


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 4), (4, 10), (8, 8), (16, 20)])
def test_dualpipe_has_the_published_memory_and_no_more_than_its_bubble(p, m):
    """PP + 1 activations, and (PP/2 - 1)(F&B + B - 3W) idle (DeepSeek-V3 technical report, table 2)."""
    played = simulate(dualpipe(p, m), 1.0, 2.0, placement="both ways")
    assert max(played.peak_activations) == p + 1
    assert played.busy_s == pytest.approx([2 * m * 3.0] * p)
    assert played.bubble_s <= (p / 2 - 1) * (3.0 + 2.0 - 3.0)


def test_dualpipe_refuses_what_it_cannot_split():
    for p, m in ((3, 6), (4, 3)):
        with pytest.raises(ScheduleError, match="even number of ranks"):
            dualpipe(p, m)


def test_a_v_turns_round_without_a_transfer():
    both = [["F0.0", "F0.1", "B0.1", "B0.0"]] * 2
    for blocking in (False, True):
        played = simulate(both, transfer_s=0.5, placement="v", blocking=blocking)
        assert played.makespan_s == pytest.approx(2 * (1 + 2) + 4 * 0.5)  # all of it one after another


def test_activations_are_freed_in_two_parts():
    order = [["F0", "B0", "F1", "B1", "W0", "W1"]]
    assert simulate(order).peak_activations == (2,)
    assert simulate(order, kept=0.25).peak_activations == (1.25,)
    assert simulate(order, kept=0).peak_activations == (1,)


def test_the_naive_pipeline_is_busy_on_one_rank_at_a_time():
    assert simulate(gpipe(4, 1)).bubble == pytest.approx(3 / 4)


def test_transfers_take_time_both_ways():
    played = simulate(gpipe(3, 1), 1.0, 2.0, transfer_s=0.3)
    assert played.makespan_s == pytest.approx(3 * 3 + 2 * (0.3 + 0.3))
    assert played.starts_s[2] == pytest.approx((2.6, 3.6))
    assert simulate(gpipe(1, 4), transfer_s=9.0).makespan_s == 12  # one rank sends nothing
    assert simulate(interleaved(1, 4, 2), transfer_s=9.0).makespan_s == 12


@pytest.mark.parametrize("p", [2, 4, 8])
def test_steady_1f1b_pays_for_transfers_that_overlap_with_nothing(p):
    """Rank 0 takes micro-batch i + p when i is back: p (F + B) + 2 (p - 1) c for every p micro-batches."""
    c, few, many = 0.1, 5 * p, 10 * p
    times = [simulate(one_f_one_b(p, m), 1.0, 2.0, transfer_s=c).makespan_s for m in (few, many)]
    assert (times[1] - times[0]) / (many - few) == pytest.approx(3 + 2 * c * (p - 1) / p)


def test_blocking_transfers_take_both_ranks_time():
    played = simulate(gpipe(2, 2), 1.0, 1.0, transfer_s=0.25, blocking=True)
    # rank 0: F 0-1, send -1.25, F -2.25, send -2.5; rank 1 receives 1-1.25 and, after its forward, 2.25-2.5
    assert played.starts_s[0][:2] == (0, 1.25)
    assert played.starts_s[1][:2] == (1.25, 2.5)
    assert played.communication_s == (1.0, 1.0)
    sends = [span for span in played.spans if span.rank == 0 and span.label.startswith("send")]
    assert [span.label for span in sends] == ["send F0", "send F1"]
    assert {span.kind for span in played.communication} == {"communication"}
    assert sum(played.idle_s) == pytest.approx(2 * played.makespan_s - 8 - 2)
    assert simulate(gpipe(2, 2), blocking=True).communication == ()


def test_a_buffered_receive_after_its_rank_was_busy_still_takes_time():
    # rank 1 is busy with F0 (3 s) when F1's input arrives at 2.5
    played = simulate(gpipe(2, 2), [1, 3], 1.0, transfer_s=0.5, blocking=True)
    assert played.starts_s[1][:2] == (1.5, 5.0)


def test_times_of_a_rank_are_divided_among_its_chunks_and_times_of_a_stage_are_not():
    order = interleaved(2, 2, 2)
    assert simulate(order, 1.0, 2.0).starts_s == simulate(order, [1, 1], [2, 2]).starts_s
    assert simulate(order, 1.0, 2.0).starts_s == simulate(order, [0.5] * 4, [1] * 4).starts_s
    uneven = simulate(order, [1, 2, 3, 4], 0.0)
    # stages 0 and 2 are rank 0's
    assert uneven.busy_s == pytest.approx((2 * (1 + 3), 2 * (2 + 4)))


def test_spans_carry_kind_micro_batch_and_chunk():
    played = simulate([["F0", "B0", "W0"]], 1.0, 3.0, weight_s=1.0)
    assert played.spans == (Span(0, 0, 1, "F", "0"), Span(0, 1, 3, "B", "0"), Span(0, 3, 4, "W", "0"))
    assert {span.label for span in simulate(interleaved(1, 1, 2)).spans} == {"0.0", "0.1"}


def test_the_words_say_what_was_simulated():
    assert str(simulate(one_f_one_b(4, 8))) == (
        "4 ranks, 8 micro-batches: 33.0 s (simulated), bubble 27.3%, at most 4.00 activations on a rank"
    )


# ---- random schedules and times ----


PLACEMENTS = ("loop", "v", "both ways")


def way(placement, p, v):
    """The pipelines of a placement: for each, the rank and the chunk of all its stages."""
    chunks = [[(rank, chunk) for rank in range(p)] for chunk in range(v)]
    if placement != "loop":
        chunks = [chunk[::-1] if i % 2 else chunk for i, chunk in enumerate(chunks)]
    return chunks if placement == "both ways" else [[*itertools.chain(*chunks)]]


def drawn(seed, placement="loop"):
    """A random legal order with random times: the order of a random serial execution of all steps."""
    rng = random.Random(seed)
    p, m, v = rng.randint(1, 5), rng.randint(1, 6), rng.randint(1, 3)
    split = rng.random() < 0.5
    stages = p * v
    pipelines = way(placement, p, v)
    place = dict(enumerate(itertools.chain(*pipelines)))
    ends = {sum(map(len, pipelines[: i + 1])) for i in range(len(pipelines))} | {0}
    done, lists = set(), [[] for _ in range(p)]

    def ready(kind, i, stage):
        if (kind, i, stage) in done:
            return False
        needs = {
            "F": [] if stage in ends else [("F", i, stage - 1)],
            "B": [("F", i, stage)] + ([] if stage + 1 in ends else [("B", i, stage + 1)]),
            "W": [("B", i, stage)],
        }[kind]
        return all(step in done for step in needs)

    kinds = "FBW" if split else "FB"
    while True:
        some = [(k, i, s) for k in kinds for i in range(m) for s in range(stages) if ready(k, i, s)]
        if not some:
            break
        step = rng.choice(some)
        done.add(step)
        kind, i, stage = step
        rank, chunk = place[stage]
        lists[rank].append(f"{kind}{i}.{chunk}")
    draw = lambda n, low=0.0: [rng.uniform(low, 2) for _ in range(n)]  # noqa: E731
    weight = draw(stages)
    times = {
        "forward_s": draw(stages),
        "backward_s": [w + t for w, t in zip(weight, draw(stages), strict=True)],
        "weight_s": weight,
        "transfer_s": rng.uniform(0, 2),
        "placement": placement,
    }
    return lists, times, (p, m, v, split)


def by_name(played, lists, placement="loop"):
    chunks = 1 + max(int(step.split(".")[1]) for steps in lists for step in steps)
    stage = {place: i for i, place in enumerate(itertools.chain(*way(placement, len(lists), chunks)))}
    return {
        (step[0], int(step[1:].split(".")[0]), stage[rank, int(step.split(".")[1])]): (start, end)
        for rank, steps in enumerate(lists)
        for step, start, end in zip(steps, played.starts_s[rank], played.ends_s[rank], strict=True)
    }


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_every_dependency_is_respected_and_nobody_idles_without_reason(seed, blocking, placement):
    lists, times, (p, m, v, split) = drawn(seed, placement)
    played = simulate(lists, **times, blocking=blocking)
    at = by_name(played, lists, placement)
    place = [*itertools.chain(*way(placement, p, v))]
    ends = {0, p * v} if placement != "both ways" else set(range(0, p * v + 1, p))
    assert len(at) == m * p * v * (3 if split else 2)

    def moved_s(one, other):
        return times["transfer_s"] if place[one][0] != place[other][0] else 0.0

    reasons = {}
    for (kind, i, stage), (start_s, end_s) in at.items():
        part_s = times["weight_s"][stage] if split else 0.0
        took = {"F": times["forward_s"][stage], "B": times["backward_s"][stage] - part_s, "W": part_s}[kind]
        assert end_s - start_s == pytest.approx(took, abs=1e-9)
        needed = [0.0]
        if kind == "F" and stage not in ends:
            needed.append(at["F", i, stage - 1][1] + moved_s(stage - 1, stage))
        if kind == "B" and stage + 1 not in ends:
            needed.append(at["B", i, stage + 1][1] + moved_s(stage + 1, stage))
        if kind != "F":
            needed.append(at["FB"["BW".index(kind)], i, stage][1])
        assert start_s >= max(needed) - 1e-9
        reasons[kind, i, place[stage]] = max(needed)
    for rank, steps in enumerate(lists):
        free_s = 0.0
        for step, start_s, end_s in zip(steps, played.starts_s[rank], played.ends_s[rank], strict=True):
            assert start_s >= free_s - 1e-9  # one step at a time
            key = (step[0], int(step[1:].split(".")[0]), (rank, int(step.split(".")[1])))
            if not blocking:
                assert start_s == pytest.approx(max(free_s, reasons[key]))
            free_s = end_s


@pytest.mark.parametrize("seed", range(60))
def test_the_makespan_is_no_less_than_any_bound(seed):
    lists, times, (p, m, v, _) = drawn(seed)
    played = simulate(lists, **times)
    chain = (
        sum(times["forward_s"]) + sum(times["backward_s"]) + 2 * (p * v - 1) * (times["transfer_s"] if p > 1 else 0.0)
    )
    if any("W" in step for steps in lists for step in steps):
        chain -= sum(times["weight_s"])  # nothing waits for them
    assert played.makespan_s >= chain - 1e-9
    work = [m * sum(times["forward_s"][s] + times["backward_s"][s] for s in range(r, p * v, p)) for r in range(p)]
    assert played.busy_s == pytest.approx(work)
    assert played.makespan_s >= max(work) - 1e-9
    assert max(work) - 1e-9 <= played.period_s <= played.makespan_s + 1e-9
    assert 0 <= played.bubble < 1
    assert sum(played.idle_s) == pytest.approx(p * played.makespan_s - sum(work))
    slower = simulate(lists, **{**times, "transfer_s": 2 * times["transfer_s"]})
    assert slower.makespan_s >= played.makespan_s - 1e-9
    assert simulate(lists, **times, blocking=True).makespan_s >= played.makespan_s - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_peak_activations_are_those_of_the_spans(seed):
    lists, times, (_, _, v, split) = drawn(seed)
    played = simulate(lists, **times)
    for rank, steps in enumerate(lists):
        now, most = 0.0, 0.0
        for step in steps:
            now += 1 / v if step[0] == "F" else -1 / v if step[0] == ("W" if split else "B") else 0.0
            most = max(most, now)
        assert played.peak_activations[rank] == pytest.approx(most)
        assert now == pytest.approx(0)


# ---- size ----


@pytest.mark.slow
def test_a_large_schedule_is_simulated():
    played = simulate(interleaved(64, 512, 4), transfer_s=0.001)
    assert math.isclose(sum(played.idle_s) / sum(played.busy_s), 63 / (4 * 512), rel_tol=0.2)
    assert len(played.spans) == 2 * 64 * 512 * 4


@pytest.mark.parametrize("order", [*PLAIN, *SPLIT])
@pytest.mark.parametrize(("p", "m"), [(0, 4), (4, 0), (-1, 2), (2.5, 4), ("4", 2), (True, 1)])
def test_impossible_sizes_are_refused(order, p, m):
    with pytest.raises(ScheduleError, match="to be a whole number of at least 1"):
        order(p, m)
