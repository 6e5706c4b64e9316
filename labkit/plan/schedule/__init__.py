"""Who does what when: pipeline schedules and the overlap of communication with backward, as event simulation.

A schedule is a list of steps for each rank: "F0" is the forward of micro-batch 0, "B0" its backward, "W0" the part of
the backward that gives the weights' gradients where a schedule has it apart, "F0.1" a step of the rank's chunk 1.
"""

from labkit.plan.schedule.actions import Order
from labkit.plan.schedule.automatic import zero_bubble
from labkit.plan.schedule.orders import gpipe, interleaved, one_f_one_b, zb_h1, zb_h2
from labkit.plan.schedule.overlapping import Overlap, overlap
from labkit.plan.schedule.replay import Profile, profile, published_errors
from labkit.plan.schedule.simulation import simulate
from labkit.plan.schedule.timetable import Simulated

__all__ = [
    "Order",
    "Overlap",
    "Profile",
    "Simulated",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "overlap",
    "profile",
    "published_errors",
    "simulate",
    "zb_h1",
    "zb_h2",
    "zero_bubble",
]
