"""The time of a batch in the middle of an epoch, from the times that labkit's loader
notes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from labkit.core.errors import BadArgument
from labkit.core.parameters import Count, Size, checked
from labkit.train.data import BatchTimes


@checked
def steady_batch_s(
    times: Sequence[BatchTimes], *, ahead: Size, stretches: Count = 5
) -> tuple[float, ...]:
    """Return the mean seconds per batch in each of `stretches` equal parts of an
    epoch's middle.

    The first and the last `ahead` batches are left out: the rate differs while queues
    fill, and when nothing is left to load. With workers, `ahead` is the number of
    batches that all of them together may load in advance. Raises BadArgument for an
    epoch that is too short.
    """
    middle = times[ahead : len(times) - ahead]
    n = (len(middle) - 1) // stretches
    if n < 1:
        raise BadArgument(
            f"Expected at least {2 * ahead + stretches + 1} batches for {stretches}"
            f" stretches between the first and the last {ahead}, got {len(times)}. Make"
            " the epoch longer."
        )
    ends = [middle[i * n].taken_s for i in range(stretches + 1)]
    return tuple(
        (after_s - before_s) / n for before_s, after_s in itertools.pairwise(ends)
    )
