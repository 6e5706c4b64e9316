"""Pipeline schedules and the overlap of communication with the backward pass, simulated
event by event.

A schedule is a list of steps for each rank: "F0" is the forward of micro-batch 0, "B0"
its backward, "W0" the part of the backward that computes the weights' gradients where a
schedule separates it, "F0.1" a step of the rank's chunk 1.
"""

from trainplan.schedule.gradient_overlap import Overlap, overlap
from trainplan.schedule.parsing import Schedule
from trainplan.schedule.schedules import (
    dualpipe,
    gpipe,
    interleaved,
    one_f_one_b,
    zb_h1,
    zb_h2,
    zb_v,
)
from trainplan.schedule.simulation import simulate
from trainplan.schedule.timetable import ScheduleSpan, Timetable

__all__ = [
    "Overlap",
    "Schedule",
    "ScheduleSpan",
    "Timetable",
    "dualpipe",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "overlap",
    "simulate",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
