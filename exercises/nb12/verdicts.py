"""What notebook 12 says of a claim on two ranks."""

from __future__ import annotations

from labkit.core.display import Note
from labkit.core.parameters import checked
from labkit.lesson.journal import verdict
from labkit.measure.bench import Ratio
from labkit.measure.machine import Machine

_NEEDS = "two cores or two GPUs"


def at_once(machine: Machine) -> bool:
    """Whether two ranks can compute at the same time."""
    return machine.cores > 1 or len(machine.gpus) > 1


@checked
def judged(
    claim: str, gain: Ratio, machine: Machine, *, when: str, section: str = "12.5"
) -> Note:
    """Judge a claim by `gain`, or by nothing where two ranks would share one core."""
    evidence = gain if at_once(machine) else None
    return verdict(claim, evidence, section=section, when=when, needs=_NEEDS)
