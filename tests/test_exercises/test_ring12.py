"""The ring of notebook 12 that plays: nothing is added twice, and bytes are counted."""

import itertools

import pytest

from exercises.nb12 import ring_picture


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_parts_are_added_once_and_then_go_round(ranks):
    moments = ring_picture.moments(ranks)
    assert len(moments) == 2 * (ranks - 1) + 1
    for before, after in itertools.pairwise(moments):
        for rank, part in enumerate(after.sent):
            right = (rank + 1) % ranks
            sent = before.added[rank][part]
            had = before.added[right][part]
            if after.step < ranks:
                assert not sent & had, "a rank's numbers would be added twice"
            else:
                assert len(sent) == ranks, "only complete parts go round"
            assert after.added[right][part] == sent | had
    halfway = moments[ranks - 1]
    complete = [[len(added) == ranks for added in parts] for parts in halfway.added]
    assert [sum(row) for row in complete] == [1] * ranks
    assert {len(added) for parts in moments[-1].added for added in parts} == {ranks}


def test_it_says_what_each_rank_has_sent():
    moving = ring_picture.all_reduce_ring(ranks=4, megabytes=100)
    assert "Nothing is sent yet." in moving.sentence
    moving.slider.value = 3
    assert "1 complete part of 4, and has sent 75.0 MB in 3 of 6" in moving.sentence
    moving.slider.value = 6
    assert "4 complete parts of 4, and has sent 150 MB in 6 of 6" in moving.sentence
    assert sum(map(len, moving.data("")[0].values())) < 300_000
