"""How fast one GPU does the parts of a training step: matrix products by their sizes,
the rest by its bytes moved.

A matrix product (m, k) @ (k, n) runs at the best rate that anybody published for the
device (data/published/matmul_efficiency.csv: its vendor's peak times the share
reached) times the share of that which training keeps. Two things slow it: a last wave
of tiles that is on average half full, and the start and end of every tile. Everything
else is bound by memory. One set of constants holds for every device and every published
table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpufacts import Device
from trainplan._units import TERA
from trainplan.cluster.constants import (
    A100_WATTS_PER_FLOP_PER_S,
    AMPERE_FLOP_PER_CLOCK,
    CONSTANTS,
    TILE,
    Constants,
)
from trainplan.csv_tables import published
from trainplan.errors import LayoutError


@dataclass(frozen=True)
class Rates:
    """What a device reaches: FLOP/s of large matrix products and of vector work,
    bytes/s of memory.

    `attention_flop_per_s` are those of fused attention's three generations.
    """

    matmul_flop_per_s: float
    attention_flop_per_s: tuple[float, float, float]
    vector_flop_per_s: float
    bytes_per_s: float
    wave: float  # elements of a product that fill every SM once
    fill_k: float  # elements along k that a tile's start and end cost

    def matmul_s(
        self,
        m: float,
        n: float,
        k: float,
        times: float = 1,
        element_bytes: int = 2,
        added_bytes: int = 0,
    ) -> float:
        """Seconds of `times` products (m, k) @ (k, n) in one kernel: arithmetic or
        traffic, whichever is slower.

        `added_bytes` is what an element of the product moves besides being written,
        such as a gradient that is added to the sum so far.
        """
        flop = 2.0 * m * n * k * times
        slowed = (1 + self.wave / (m * n * times)) * (1 + self.fill_k / k)
        elements = (m * n + m * k + n * k) * times
        moved = elements * element_bytes + m * n * added_bytes
        return max(flop * slowed / self.matmul_flop_per_s, moved / self.bytes_per_s)


# of 4 bit none is published: assumed to reach the share that 8 bit does
_PUBLISHED_DTYPES = {
    "bfloat16": "bf16",
    "float16": "bf16",
    "float8": "fp8 (e4m3)",
    "float4": "fp8 (e4m3)",
    "float32": "fp32",
}


@functools.cache
def best_share(device: Device, dtype: str) -> float:
    """Best published matmul rate over the vendor's peak; the median of all devices
    where none is published.

    Source: trainplan/data/published/matmul_efficiency.csv, the rows from
    ml-engineering's maximum achievable matmul FLOP/s. For TPUs the one that was
    published, of v5e: all generations have matrix units of its kind.
    """
    printed_dtype = _PUBLISHED_DTYPES.get(dtype, dtype)
    rows = [
        row for row in published("matmul_efficiency") if row["dtype"] == printed_dtype
    ]
    if device.vendor == "Google":
        tpu_shares = [_share(row) for row in rows if " TPU " in row["gpu"]]
        if tpu_shares:
            return max(tpu_shares)
    rows = [row for row in rows if "MAMF" in row["source"]]
    for row in rows:
        if _is_of(row, device):
            return _share(row)
    shares = sorted(_share(row) for row in rows)
    return shares[len(shares) // 2] if shares else 0.8


def _is_of(row: Mapping[str, str], device: Device) -> bool:
    """Whether a row of matmul_efficiency.csv is of a device: its model and its form."""
    words = device.name.casefold().split()
    form = "sxm"
    for word in words:
        if word.startswith(("sxm", "pci")):
            form = word[:3]
            break
    gpu = row["gpu"].casefold()
    return f" {words[0]} " in f" {gpu} " and form in gpu


def _share(row: Mapping[str, str]) -> float:
    return float(row["achieved_tflops"]) / float(row["peak_tflops"])


def _power_share(device: Device, constants: Constants) -> float:
    """Share of its best rate that a device keeps whose power, for its peak in 16 bit,
    is less than an A100's.
    """
    peak = device.peaks.get("bfloat16") or device.peaks.get("float16")
    if device.tdp_w is None or peak is None:
        return 1.0
    watts_share = min(device.tdp_w / peak / A100_WATTS_PER_FLOP_PER_S, 1.0)
    return float(watts_share**constants.power)


@functools.cache
def rates(device: Device, dtype: str, constants: Constants = CONSTANTS) -> Rates:
    """The Rates of a device for a dtype of gpufacts. Raises LayoutError where its peak
    or bandwidth is unknown.
    """
    peak = device.peaks.get(dtype)
    bandwidth = device.bandwidth_bytes_per_s
    if peak is None or bandwidth is None:
        lacking = f"peak in {dtype}" if peak is None else "memory bandwidth"
        raise LayoutError(
            f"Expected a device with a known {lacking}, got {device.name}. Choose"
            " another device or dtype: known are peaks in"
            f" {', '.join(device.peaks) or 'none'}."
        )
    power = _power_share(device, constants)
    matmul = constants.sustained * best_share(device, dtype) * peak * power
    if device.name.startswith("GB300"):
        matmul *= constants.gb300
    sms = device.sms or 100
    peak_16 = device.peaks.get("bfloat16") or device.peaks.get("float16") or peak
    peak_16 = min(peak_16, peak)  # 32 bit has a lower one
    clock_hz = device.boost_hz or math.inf
    ampere = power * min(peak_16, sms * clock_hz * AMPERE_FLOP_PER_CLOCK)
    flash1 = constants.flash1 * ampere
    flash2 = constants.flash2 * ampere
    flash3 = max(flash2, constants.flash3 * power * peak_16)
    return Rates(
        matmul_flop_per_s=matmul,
        attention_flop_per_s=(flash1, flash2, flash3),
        vector_flop_per_s=device.vector_flop_per_s.get("float32", 10 * TERA),
        bytes_per_s=constants.bandwidth * bandwidth,
        wave=constants.wave * sms * TILE,
        fill_k=constants.fill_s * matmul / sms / (2 * TILE),
    )
