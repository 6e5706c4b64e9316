"""What can't run is refused in one sentence that says which rank, which step, and what to do."""

import pytest

from trainplan.costs.collectives import Link
from trainplan.errors import ScheduleError
from trainplan.schedule import gpipe, interleaved, overlap, simulate, zb_h1

LINK = Link(1e-5, 1e10)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        # the cycle
        (
            [["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]],
            "The schedule deadlocks: rank 0 waits at B0 for rank 1, which waits at F1 for rank 0. Put what",
        ),
        (
            [["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]],
            "deadlocks: rank 0 waits at B0 for rank 1, which waits at F1 for rank 0",
        ),
        (
            [["F0", "B0", "F1", "B1"], ["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]],
            "deadlocks: rank 1 waits at B0 for rank 2, which waits at F1 for rank 1. ",  # rank 0 is in no circle
        ),
        ([["F0.1", "F0.0", "B0.1", "B0.0"]], "deadlocks: rank 0 waits at F0.1 for itself. Put"),
        # order, count, names
        ([["B0", "F0"]], "Rank 0 does B0 before F0. Put F0 in front of B0."),
        ([["F0", "B0"], ["B0"]], "Rank 1 does B0 and never F0."),
        ([["F0", "W0", "B0"]], "Rank 0 does W0 before B0."),
        ([["F0", "B0", "F0"]], "Rank 0 does F0 twice."),
        ([["F0", "F0.0", "B0"]], "Rank 0 does F0 twice."),
        ([["F0", "B0"], ["F0"]], "Rank 1 never does B0. Add it to that rank's list."),
        ([["F0", "B0", "F1", "B1"], ["F0", "B0"]], "Rank 1 never does F1."),
        ([["F0", "B0", "W0"], ["F0", "B0"]], "Rank 1 never does W0.*each B needs one"),
        ([["F0", "B0", "F0.1", "B0.1"], ["F0", "B0"]], "Rank 0 has a chunk 1 and rank 1 has none."),
        ([["F0", "B0"], []], "Rank 0 has a chunk 0 and rank 1 has none"),
        ([["F0", "B0", "F2", "B2"]], "has micro-batch 2 and no micro-batch 1"),
        ([["F999999999", "B999999999"]], "has micro-batch 999999999 and no micro-batch 0"),
        ([["F0.1", "B0.1"]], "has chunk 1 and no chunk 0"),
        ([["F0", "X0"]], "Rank 0 has an unknown step 'X0'"),
        ([["F0", "b0"]], "unknown step 'b0'"),
        ([["F-1"]], "unknown step"),
        ([["F0 "]], "unknown step"),
        ([["F٣"]], "unknown step"),  # an Arabic digit
        # not lists of steps at all
        (["F0", "B0"], "Expected a list of steps for rank 0, got 'F0'"),
        ("F0", "Expected a schedule with a list of steps for each rank"),
        ([], "Expected a schedule with a list of steps for each rank"),
        ([[], []], "Expected steps such as 'F0' in the schedule, got none"),
        ([["F0", 3]], "Expected steps such as 'F0' on rank 0, got 3"),
        ([["F0", None]], "got None"),
        ([["F0", ["B0"]]], r"got \['B0'\]"),
        (None, "Expected a schedule"),
        ({0: ["F0"]}, "Expected a schedule"),
    ],
)
def test_orders(order, words):
    with pytest.raises(ScheduleError, match=words) as caught:
        simulate(order)
    assert len(str(caught.value)) < 260


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"forward_s": -1}, "forward_s to be a finite number of at least 0 or a list, got -1"),
        ({"forward_s": "fast"}, "forward_s to be a finite number"),
        ({"backward_s": float("nan")}, "backward_s to be a finite number"),
        ({"forward_s": [1, 2, 3]}, "forward_s to be one number or 2 of them, got 3"),
        ({"forward_s": [1, None]}, "forward_s\\[1\\]"),
        ({"backward_s": 1, "weight_s": 2}, "weight_s to be a part of backward_s, got 2 of 1 s on stage 0"),
        ({"transfer_s": -0.1}, "transfer_s to be a finite number of at least 0"),
        ({"kept": 1.5}, "kept to be a finite number from 0 to 1"),
    ],
)
def test_times(given, words):
    with pytest.raises(ScheduleError, match=words):
        simulate(zb_h1(2, 4), **given)


def test_times_of_chunks_can_be_by_rank_or_by_stage():
    with pytest.raises(ScheduleError, match=r"2 \(one a rank\) or 4 \(one a stage\) of them, got 3"):
        simulate(interleaved(2, 2, 2), [1, 2, 3])


@pytest.mark.parametrize(("m", "near"), [(6, "4 or 8"), (3, "is 4"), (9, "8 or 12")])
def test_interleaved_needs_groups_of_micro_batches(m, near):
    with pytest.raises(ScheduleError, match=f"divides by the 4 ranks.*got {m}.*{near}"):
        interleaved(4, m, 2)


def test_interleaved_needs_chunks():
    with pytest.raises(ScheduleError, match="chunks to be a whole number of at least 1"):
        interleaved(4, 8, 0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n_bytes": [1, 2]}, "as many numbers in n_bytes as in backward_s, got 2 and 1"),
        ({"backward_s": [], "n_bytes": []}, "backward_s to be a list of at least 1 item"),
        ({"backward_s": 3}, "backward_s to be a list"),
        ({"backward_s": [-1]}, "backward_s\\[0\\]"),
        ({"bucket_bytes": 0}, "bucket_bytes to be a finite number above 0"),
        ({"ranks": None}, "ranks to be a whole number"),
        ({"link": 1e9}, "link to be a Link, got"),
    ],
)
def test_overlap(given, words):
    with pytest.raises(ScheduleError, match=words):
        overlap(**{"backward_s": [1], "n_bytes": [4], "link": LINK, "ranks": 2, **given})


def test_a_refusal_is_a_value_error_too():
    with pytest.raises(ValueError, match="twice"):
        simulate([*gpipe(1, 1), ["F0", "F0"]])
