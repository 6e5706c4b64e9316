"""What a profile alone says of training loops whose limit was planted, and whether that
is what was planted: claim C09.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from labkit.measure import profiling

if TYPE_CHECKING:
    from steptime import StepProfile

Loop = tuple[Callable[[Any], object], Any]  # a step, and its input

# planted limit -> the part of a step in which a profile then shows most of the time
_EXPECTED = {
    "input": "input",
    "launch overhead": "gaps",
    "memory bandwidth": "forward",
    "arithmetic": "forward",
}


def largest_parts(loops: Mapping[str, Loop], *, steps: int) -> dict[str, str]:
    """Planted limit -> the part that takes longest in a profile of so many steps."""
    parts = {
        limit: profiling.profile_step(step, source, steps=steps).parts
        for limit, (step, source) in loops.items()
    }
    return {
        limit: max(seconds, key=seconds.__getitem__) for limit, seconds in parts.items()
    }


def named_by_profile(largest: Mapping[str, str], profile: StepProfile) -> bool | None:
    """Whether the profile shows each loop's planted limit; None where the profiler saw
    no GPU, about which the claim is.
    """
    if not any(span.lane == "device" for span in profile.spans):
        return None
    return largest == _EXPECTED


def in_words(largest: Mapping[str, str]) -> dict[str, str]:
    """What a verdict on C09 rests on, when it holds, and what it needs."""
    seen = [f"{limit} planted: most time in {part}" for limit, part in largest.items()]
    return {
        "because": "; ".join(seen),
        "when": (
            "it says where the time went; memory or arithmetic, only counters or"
            " experiments tell"
        ),
        "needs": "a CUDA GPU that torch's profiler sees",
    }
