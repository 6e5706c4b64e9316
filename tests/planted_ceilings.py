"""The ceilings of steptime's planted loops, as labkit has them."""

from labkit.measure.ceilings import MachineCeilings
from labkit.measure.probe import Ceiling
from test_steptime.virtual_time import BYTES_PER_S, FLOP_PER_S

_COPY, _MATMUL = (
    Ceiling(rate, rate, rate, unit, at="planted", n=1, runs=1)
    for rate, unit in ((BYTES_PER_S, "B/s"), (FLOP_PER_S, "FLOP/s"))
)
MEASURED = MachineCeilings(
    "planted", 1, _COPY, {"float32": _MATMUL}, (), {}, {}, {}, ""
)
