"""Facts of GPUs and other accelerators, one row a device, each with its source.

    >>> import gpufacts
    >>> h100 = gpufacts.find("NVIDIA H100 80GB HBM3")  # as its driver reports it
    >>> h100.memory_bytes, h100.peaks["bfloat16"]
    (80000000000.0, 989400000000000.0)

Errors: UnknownDevice for a name without a row and UnknownDtype for a number format
that the table doesn't have, both ValueErrors; TypeError for an argument of another
type.
"""

from gpufacts.device import DTYPES, Device, UnknownDtype, peak
from gpufacts.names import UnknownDevice, find, matching
from gpufacts.shown import facts
from gpufacts.table import devices

__all__ = [
    "DTYPES",
    "Device",
    "UnknownDevice",
    "UnknownDtype",
    "devices",
    "facts",
    "find",
    "matching",
    "peak",
]
