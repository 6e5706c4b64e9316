"""What the reader's functions say of his own measurements: how well threads are used,
and which digit his network reads worst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labkit import plot
from labkit.core.results import Measurement
from labkit.lesson.journal import record
from labkit.measure.bench import Comparison
from labkit.plot import Picture

_IMAGES = 10


def efficiency(
    efficiency_percent: Callable[[float, float, int], float],
    race: Comparison,
    threads: int,
) -> Measurement:
    """The efficiency of so many threads by the reader's function, from a race of one
    thread against all, recorded.
    """
    one_thread_s, all_threads_s = (timing.median_s for timing in race.timings)
    percent = efficiency_percent(one_thread_s, all_threads_s, threads)
    return record("00.3 efficiency", percent, "%")


def least_known(
    accuracy_by_digit: Callable[[Any, Any], Sequence[float]],
    images: Any,
    labels: Any,
    logits: Any,
) -> Picture:
    """Images of the digit that the reader's function finds least known, those first
    that were misread, and below each what the network read.

    images: float (n, 3, height, width); labels: int (n,); logits: float (n, 10).
    """
    percents = accuracy_by_digit(logits, labels)
    worst = min(range(10), key=lambda digit: percents[digit])
    read = logits.argmax(dim=1)  # (n,)
    of_worst = (labels == worst).nonzero().flatten()
    is_right = (read[of_worst] == worst).int()
    chosen = of_worst[is_right.argsort(stable=True)][:_IMAGES]
    title = f"Images of {worst}, {percents[worst]:.0f} % of them right"
    return plot.images(images[chosen], read[chosen], title=title, below="read as")
