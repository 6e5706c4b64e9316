"""The catalogue of GPUs, TPUs and FPGAs: load it, find a device in it, and say which devices fit a job and why."""

from labkit.core.devices import (
    DTYPES as DTYPES,
    Device as Device,
    devices as devices,
    find as find,
    peak as peak,
)
from labkit.measure.catalog.jobs import (
    Candidate as Candidate,
    Job as Job,
    judge as judge,
    shortlist as shortlist,
    shortlist_table as shortlist_table,
    table as table,
)
