"""How fast one GPU does the parts of a training step: matrix products by their sizes, the rest by its traffic.

A matrix product (m, k) @ (k, n) runs at the best rate that anybody published for the device (data/published/
matmul_efficiency.csv: its vendor's peak times the share reached) times the share of that which training keeps, and is
slowed by two things: a last wave of tiles that is on average half full, and the start and end of every tile. What is
no matrix product is bound by memory. One set of constants holds for every device and every published table.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from labkit.core.errors import LayoutError
from labkit.core.units import TERA
from labkit.measure.catalog import Device, peak
from labkit.plan.published import matmuls

TILE = 128 * 256  # elements of the product that one SM works on at a time: cuBLAS's usual thread block for 16 bit
# FLOP a clock and SM of Ampere's tensor instructions (A100: 312 TFLOP/s = 108 x 1.41 GHz x 2,048). FlashAttention 1 and
# 2 use them on newer devices too, and so miss half of Hopper (Shah et al. 2024, FlashAttention-3, section 1: 35 %).
AMPERE = 2048


@dataclass(frozen=True)
class Constants:
    """What the model doesn't derive.

    Three are fitted by scripts/fit_cluster.py to 149 published steps at once (a test holds its result to these
    numbers), two are not.

    `sustained`: share of the best published matmul rate that training keeps: clocks under the power limit for hours,
    and shapes that aren't the best one. `attention`: share of AMPERE's rate that fused attention reaches.
    `contention`: seconds of compute lost to a second of communication behind it, whose kernels hold SMs and memory
    bandwidth. `bandwidth`: share of a memory's printed bandwidth that kernels reach, the mean of copies on A100
    (77.5 %) and H100 (75.2 %) in data/published/memcpy_bandwidth.csv. `fill_s`: seconds that a tile's start and end
    take, assumed: loads and stores that nothing hides, a few trips to memory of half a microsecond; the published
    steps can't tell 1 from 3 µs.
    """

    sustained: float = 0.866
    attention: float = 0.335
    contention: float = 0.41
    bandwidth: float = 0.764
    fill_s: float = 2.0e-6


CONSTANTS = Constants()


@dataclass(frozen=True)
class Rates:
    """What a device reaches: FLOP/s of large matrix products and of vector work, bytes/s of memory."""

    matmul_flop_per_s: float
    attention_flop_per_s: float
    vector_flop_per_s: float
    bytes_per_s: float
    wave: float  # elements of a product that fill every SM once
    fill_k: float  # elements along k that a tile's start and end cost

    def matmul_s(
        self, m: float, n: float, k: float, times: float = 1, element_bytes: int = 2, added_bytes: int = 0
    ) -> float:
        """Seconds of `times` products (m, k) @ (k, n) in one kernel: arithmetic or traffic, whichever is slower.

        `added_bytes` is what an element of the product moves beyond being written: a gradient added to the sum so far.
        """
        flop = 2.0 * m * n * k * times
        slowed = (1 + 0.5 * self.wave / (m * n * times)) * (1 + self.fill_k / k)
        moved = (m * n + m * k + n * k) * times * element_bytes + m * n * added_bytes
        return max(flop * slowed / self.matmul_flop_per_s, moved / self.bytes_per_s)


_PUBLISHED_DTYPES = {"bfloat16": "bf16", "float16": "bf16", "float8": "fp8 (e4m3)", "tf32": "tf32", "float32": "fp32"}


@functools.cache
def best_share(device: Device, dtype: str) -> float:
    """Best published matmul rate over the vendor's peak; the median of all devices where none is published.

    Source: data/published/matmul_efficiency.csv, the rows from ml-engineering's maximum achievable matmul FLOP/s.
    """
    rows = [row for row in matmuls() if row.dtype == _PUBLISHED_DTYPES.get(dtype, dtype) and "MAMF" in row.source]
    words = device.name.casefold().split()
    model, form = words[0], next((word[:3] for word in words if word[:3] in ("sxm", "pci")), "sxm")
    ours = [r.share for r in rows if f" {model} " in f" {r.device.casefold()} " and form in r.device.casefold()]
    shares = sorted(r.share for r in rows)
    return ours[0] if ours else shares[len(shares) // 2] if shares else 0.8


@functools.cache
def rates(device: Device, dtype: str, constants: Constants = CONSTANTS) -> Rates:
    """The Rates of a device for a compute dtype of the catalogue. Raises LayoutError where a peak isn't known."""
    top, bandwidth = peak(device, dtype), device.bandwidth_bytes_per_s
    if top is None or bandwidth is None:
        lacking = f"peak in {dtype}" if top is None else "memory bandwidth"
        raise LayoutError(
            f"Expected a device with a known {lacking}, got {device.name}. Choose another device or dtype."
        )
    matmul = constants.sustained * best_share(device, dtype) * top
    vector = device.vector_flop_per_s.get("float32", 10 * TERA)
    sms = device.sms or 100
    ampere = min(top, sms * (device.boost_hz or 1e20) * AMPERE)
    return Rates(
        matmul_flop_per_s=matmul,
        attention_flop_per_s=constants.attention * ampere,
        vector_flop_per_s=vector,
        bytes_per_s=constants.bandwidth * bandwidth,
        wave=sms * TILE,
        fill_k=constants.fill_s * matmul / sms / (2 * TILE),
    )
