"""The catalogue of GPUs, TPUs and FPGAs: load it, find a device in it, and say which devices fit a job and why."""

from labkit.measure.catalog.device import DTYPES, Device, devices, find, peak
from labkit.measure.catalog.jobs import Candidate, Job, judge, shortlist
from labkit.measure.catalog.tables import shortlist_table, table

__all__ = [
    "DTYPES",
    "Candidate",
    "Device",
    "Job",
    "devices",
    "find",
    "judge",
    "peak",
    "shortlist",
    "shortlist_table",
    "table",
]
