"""What can't run is refused in one sentence that says which rank, which step, and what
to do.
"""

import pytest

from trainplan.costs.collectives import Link
from trainplan.errors import ScheduleError
from trainplan.schedule import dualpipe, gpipe, interleaved, overlap, simulate, zb_h1

LINK = Link(1e-5, 1e10)
IN_TURN = ["F0", "B0", "F1", "B1"]
FORWARD_FIRST = ["F0", "F1", "B0", "B1"]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        # the circle
        (
            [IN_TURN, FORWARD_FIRST],
            (
                "The schedule deadlocks: rank 0 waits at B0 for rank 1, which waits at"
                " F1 for rank 0. Put what"
            ),
        ),
        (  # rank 0 is in no circle
            [IN_TURN, IN_TURN, FORWARD_FIRST],
            "deadlocks: rank 1 waits at B0 for rank 2, which waits at F1 for rank 1. ",
        ),
        (
            [["F0.1", "F0.0", "B0.1", "B0.0"]],
            "deadlocks: rank 0 waits at F0.1 for itself. Put",
        ),
        # order, count, names
        ([["B0", "F0"]], "Rank 0 does B0 before F0. Put F0 in front of B0."),
        ([["F0", "B0"], ["B0"]], "Rank 1 does B0 and never F0."),
        ([["F0", "F0.0", "B0"]], "Rank 0 does F0 twice."),
        ([["F0", "B0"], ["F0"]], "Rank 1 never does B0. Add it to that rank's list."),
        ([["F0", "B0", "W0"], ["F0", "B0"]], "Rank 1 never does W0.*each B needs one"),
        (
            [["F0", "B0", "F0.1", "B0.1"], ["F0", "B0"]],
            "Rank 0 has a chunk 1 and rank 1 has none.",
        ),
        (
            [["F999999999", "B999999999"]],
            "has micro-batch 999999999 and no micro-batch 0",
        ),
        ([["F0", "X0"]], "Rank 0 has an unknown step 'X0'"),
        ([["F٣"]], "unknown step"),  # an Arabic digit
        # no lists of steps
        (["F0", "B0"], "Expected a list of steps for rank 0, got 'F0'"),
        (None, "Expected a schedule with a list of steps for each rank"),
        ([[], []], "Expected steps such as 'F0' in the schedule, got none"),
        ([["F0", 3]], "Expected steps such as 'F0' on rank 0, got 3"),
    ],
)
def test_an_order_that_cannot_run_is_explained(order, words):
    with pytest.raises(ScheduleError, match=words) as caught:
        simulate(order)
    assert len(str(caught.value)) < 260


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (
            {"forward_s": -1},
            "forward_s to be a finite number of at least 0 or a list, got -1",
        ),
        ({"forward_s": [1, 2, 3]}, "forward_s to be one number or 2 of them, got 3"),
        ({"forward_s": [1, None]}, "forward_s\\[1\\]"),
        (
            {"backward_s": 1, "weight_s": 2},
            "weight_s to be a part of backward_s, got 2 of 1 s on stage 0",
        ),
        ({"transfer_s": -0.1}, "transfer_s to be a finite number of at least 0"),
        ({"kept": 1.5}, "kept to be a finite number from 0 to 1"),
    ],
)
def test_times_that_cannot_be_are_named(times, words):
    with pytest.raises((TypeError, ValueError), match=words):
        simulate(zb_h1(2, 4), **times)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gpipe(0, 4), "to be a whole number of at least 1"),
        (lambda: zb_h1(4, 2.5), "to be a whole number of at least 1"),
        (lambda: interleaved(4, 6, 2), "divides by the 4 ranks.*got 6.*4 or 8"),
        (lambda: interleaved(4, 8, 0), "chunks to be a whole number of at least 1"),
        (lambda: dualpipe(3, 6), "even number of ranks"),
        (
            lambda: simulate(interleaved(2, 2, 2), [1, 2, 3]),
            r"2 \(one a rank\) or 4 \(one a stage\) of them, got 3",
        ),
    ],
)
def test_sizes_that_cannot_be_are_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (
            {"n_bytes": [1, 2]},
            "as many numbers in n_bytes as in backward_s, got 2 and 1",
        ),
        (
            {"backward_s": [], "n_bytes": []},
            "backward_s to be a list of at least 1 item",
        ),
        ({"bucket_bytes": 0}, "bucket_bytes to be a finite number above 0"),
        ({"link": 1e9}, "link to be a Link, got"),
    ],
)
def test_an_overlap_that_cannot_be_is_refused(inputs, words):
    with pytest.raises((TypeError, ValueError), match=words):
        overlap(
            **{"backward_s": [1], "n_bytes": [4], "link": LINK, "ranks": 2, **inputs}
        )


def test_a_refusal_is_a_value_error_too():
    with pytest.raises(ValueError, match="twice"):
        simulate([*gpipe(1, 1), ["F0", "F0"]])
