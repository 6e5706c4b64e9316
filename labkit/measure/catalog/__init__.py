"""The catalogue of GPUs, TPUs and FPGAs: load it, find a device in it, and show it as a table."""

from kerneltrace.devices import (
    DTYPES as DTYPES,
    Device as Device,
    devices as devices,
    find as find,
    peak as peak,
)
from labkit.measure.catalog.table import table as table
