"""What the table says of one device."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

DTYPES = (
    "float64",
    "float32",
    "tf32",
    "float16",
    "bfloat16",
    "float8",
    "float4",
    "int8",
)
"""The number formats that have a peak, by torch's names where torch has one."""


_AMOUNTS = (
    "year",
    "sms",
    "fp32_cores",
    "boost_hz",
    "memory_bytes",
    "bandwidth_bytes_per_s",
    "l2_bytes",
    "interconnect_bytes_per_s",
    "tdp_w",
    "launch_price_usd",
)
"""The fields of a Device that are numbers."""


class UnknownDtype(ValueError):
    """A number format that the table has no column for."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """Facts of one device; None is what no source gives, never another device's.

    Peaks are dense (without sparsity). They and all sizes are as printed, with
    1 GB = 1e9 bytes; caches are counted in 2**20 bytes. To put a machine of your own
    beside the table, make a Device of its measurements and say so in `source`.
    """

    name: str
    source: str
    reported_as: str = ""  # by drivers and clouds, with semicolons between the names
    vendor: str = ""
    family: str = ""
    architecture: str = ""
    year: int | None = None
    compute_capability: str | None = None  # "9.0"; NVIDIA only
    sms: int | None = None  # multiprocessors, or AMD's compute units
    fp32_cores: int | None = None
    boost_hz: float | None = None
    memory_bytes: float | None = None
    memory_type: str | None = None
    bandwidth_bytes_per_s: float | None = None
    l2_bytes: float | None = None
    interconnect_bytes_per_s: float | None = None  # NVLink, XGMI, ICI; both directions
    pcie: str | None = None  # generation and lanes: "4.0 x16"
    tdp_w: float | None = None
    launch_price_usd: float | None = None
    notes: str = ""
    unread: frozenset[str] = frozenset()
    """Fields and number formats whose value was recalled or derived, not read from the
    source."""
    vector_flop_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Peaks outside the tensor cores, by number format."""
    tensor_flop_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Peaks of tensor cores, matrix cores or an MXU; those of int8 are operations."""
    assumed: str = field(default="", compare=False)
    """What a short name was taken as; empty for a whole one."""
    instance: str = field(default="", compare=False)
    """The name of a cloud's instance that has it, where it was found by that."""

    def __post_init__(self) -> None:
        amounts = {name: getattr(self, name) for name in _AMOUNTS}
        amounts |= self.vector_flop_per_s
        amounts |= self.tensor_flop_per_s
        for name, value in amounts.items():
            if value is not None and not _is_amount(value):
                raise ValueError(
                    f"Expected {name} to be a finite number of at least 0, or None"
                    f" where it is unknown; got {value!r:.60}."
                )

    @property
    def peaks(self) -> Mapping[str, float]:
        """FLOP/s by number format, of the tensor cores where they have the format."""
        return {**self.vector_flop_per_s, **self.tensor_flop_per_s}

    @property
    def clocks(self) -> str:
        """The clocks at which the printed peaks hold, in words; empty if unknown.

        float32's follows from its peak, the cores and two operations a clock. Tensor
        cores do a power of two of operations a clock and SM, so theirs follows from
        float16's peak: the H100's data sheet takes 1,980 MHz for the first and
        1,830 MHz for the second.
        """
        vector_hz = self._vector_hz()
        tensor_hz = self._tensor_hz()
        if vector_hz is None or self.boost_hz is None:
            return ""
        words = f"float32 at {_mhz(vector_hz)}"
        if tensor_hz is not None:
            words += f", tensor cores at {_mhz(tensor_hz)}"
        return f"{words}; boost clock {_mhz(self.boost_hz)}"

    def _vector_hz(self) -> float | None:
        peak_flop_per_s = self.vector_flop_per_s.get("float32")
        if peak_flop_per_s is None or self.fp32_cores is None:
            return None
        return peak_flop_per_s / (2 * self.fp32_cores)

    def _tensor_hz(self) -> float | None:
        peak_flop_per_s = self.tensor_flop_per_s.get("float16")
        if peak_flop_per_s is None or self.sms is None or self.boost_hz is None:
            return None
        flop_per_clock = peak_flop_per_s / (self.sms * self.boost_hz)
        power_of_two = 1
        while power_of_two * 1.25 < flop_per_clock:
            power_of_two *= 2
        return peak_flop_per_s / (self.sms * power_of_two)

    def __str__(self) -> str:
        maker = f"{self.vendor} {self.architecture}".strip()
        return f"{self.name} ({maker})" if maker else self.name


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _mhz(hz: float) -> str:
    return f"{hz / 1e6:,.0f} MHz"


def peak(device: Device, dtype: object) -> float | None:
    """The dense peak of a device in FLOP/s, or None where no source gives it.

    `dtype` is one of DTYPES, or torch's or NumPy's type of that name. UnknownDtype
    for another.
    """
    name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in DTYPES:
        nearest = difflib.get_close_matches(name, DTYPES, n=1, cutoff=0)[0]
        raise UnknownDtype(
            f"Expected dtype to be one of {', '.join(DTYPES)}; got {name!r:.60}. The"
            f" nearest is {nearest!r}."
        )
    return device.peaks.get(name)
