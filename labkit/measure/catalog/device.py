"""Load the table of devices and find one by name.

Peaks are dense (no sparsity) and as printed; sizes as printed too, with 1 GB = 1e9 bytes. What no source was read for
is named in `Device.unread` and shown with an asterisk; what is unknown is None, and never another device's number.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from labkit.core.arguments import lookup
from labkit.core.display import brief_repr
from labkit.core.errors import DataError, LabError, UnknownDevice, nearest
from labkit.core.paths import DATA
from labkit.core.units import GIGA, MEGA, MIB, TERA

GPUS = DATA / "gpus.csv"
DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8", "int8")

_VECTOR = {"fp64_tflops": "float64", "fp32_tflops": "float32"}
_TENSOR = {
    "fp64_tensor_tflops": "float64",
    "tf32_tensor_tflops": "tf32",
    "fp16_tensor_tflops": "float16",
    "bf16_tensor_tflops": "bfloat16",
    "fp8_tensor_tflops": "float8",
    "int8_tensor_tops": "int8",
}
# column -> (field of Device, size of the column's unit)
_NUMBERS = {
    "boost_mhz": ("boost_hz", MEGA),
    "bandwidth_gbs": ("bandwidth_bytes_per_s", GIGA),
    "l2_mb": ("l2_bytes", float(MIB)),  # caches are sized in powers of two
    "nvlink_or_ici_gbs": ("interconnect_bytes_per_s", GIGA),
    "tdp_w": ("tdp_w", 1.0),
    "launch_price_usd": ("launch_price_usd", 1.0),
}
_COUNTS = ("year", "sms", "fp32_cores")
_WORDS = {"pcie_gen": "pcie", "compute_capability": "compute_capability", "memory_type": "memory_type"}  # may be empty
_TEXTS = ("name", "vendor", "family", "architecture", "source", "notes")
_FIELDS = {
    "memory_gb": "memory_bytes",
    "architecture": "architecture",
    **_VECTOR,
    **_TENSOR,
    **_WORDS,
    **{column: name for column, (name, _) in _NUMBERS.items()},
    **{name: name for name in _COUNTS},
}

# What drivers print, where it isn't the row's own name. A driver's name that fits two rows (or a row and a device that
# isn't here, as "NVIDIA GeForce RTX 3060": 8 or 12 GB) is left out on purpose.
_REPORTED = {
    "AMD Instinct MI250X": "AMD Instinct MI250X (one of its two GCDs)",
    "Tesla K80": "Tesla K80 (one of its two GPUs)",
    "Tesla V100-SXM2-16GB": "Tesla V100 SXM2 16/32GB",
    "Tesla V100-SXM2-32GB": "Tesla V100 SXM2 16/32GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "NVIDIA H100 PCIe": "H100 PCIe 80GB",
    "NVIDIA H100 80GB HBM3": "H100 SXM5 80GB",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA GH200 480GB": "GH200 (Hopper part), 96GB",  # 480 GB is the CPU's memory
    "NVIDIA B200": "B200 SXM",
    "NVIDIA GB200": "GB200 (per Blackwell GPU)",
    "NVIDIA GeForce RTX 2080 Ti": "GeForce RTX 2080 Ti (FE)",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Blackwell",
}
_BRANDS = {"nvidia", "tesla", "geforce", "amd", "instinct"}  # words that never tell two rows apart (a test holds it)


def _no_peaks() -> Mapping[str, float]:
    return MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device; None where no source says. Rates a second, sizes in bytes, power in watts, prices in US dollars.

    `vector_flop_per_s` and `tensor_flop_per_s` map a dtype to a dense peak (int8: operations) outside and inside the
    tensor cores (matrix cores, MXU). `unread` names the fields and dtypes that are recalled or derived, not read.
    `interconnect_bytes_per_s` is NVLink, XGMI or ICI, both directions together. To compare this machine with the
    catalogue, make a Device of what was measured and say so in `source`.
    """

    name: str
    source: str
    vendor: str = ""
    family: str = ""
    architecture: str = ""
    year: int | None = None
    compute_capability: str | None = None
    sms: int | None = None
    fp32_cores: int | None = None
    boost_hz: float | None = None
    memory_bytes: float | None = None  # the smaller one where the row covers two builds
    memory_type: str | None = None
    bandwidth_bytes_per_s: float | None = None
    l2_bytes: float | None = None
    interconnect_bytes_per_s: float | None = None
    pcie: str | None = None
    tdp_w: float | None = None
    launch_price_usd: float | None = None
    notes: str = ""
    unread: frozenset[str] = frozenset()
    vector_flop_per_s: Mapping[str, float] = field(default_factory=_no_peaks, hash=False)
    tensor_flop_per_s: Mapping[str, float] = field(default_factory=_no_peaks, hash=False)

    @property
    def peaks(self) -> Mapping[str, float]:
        """Dense peak by dtype, in FLOP/s: the tensor cores' where the device has them, else the vector units'."""
        return {**self.vector_flop_per_s, **self.tensor_flop_per_s}

    def __str__(self) -> str:
        maker = f"{self.vendor} {self.architecture}".strip()
        return f"{self.name} ({maker})" if maker else self.name


def _unread(row: Mapping[str, str]) -> frozenset[str]:
    listed = {name for key in ("fields_from_memory", "fields_derived") for name in row[key].split(";") if name}
    if "all" in listed:
        listed = {column for column in _FIELDS if row[column]}
    if "sms" in listed and row["fp32_cores"]:
        listed.add("fp32_cores")  # cores are counted as SMs times cores per SM
    return frozenset(_FIELDS[column] for column in listed)


def _device(row: Mapping[str, str]) -> Device:
    def peaks(columns: Mapping[str, str]) -> Mapping[str, float]:
        return MappingProxyType({t: float(row[column]) * TERA for column, t in columns.items() if row[column]})

    fields: dict[str, Any] = {name: row[name] for name in _TEXTS}
    fields |= {name: row[column] or None for column, name in _WORDS.items()}
    fields |= {name: int(row[name]) if row[name] else None for name in _COUNTS}
    fields |= {name: float(row[c]) * size if row[c] else None for c, (name, size) in _NUMBERS.items()}
    memory = row["memory_gb"].split("/")[0]  # "16/32" is two builds: the smaller one, which is what is certain
    return Device(
        **fields,
        memory_bytes=float(memory) * GIGA if memory else None,
        unread=_unread(row),
        vector_flop_per_s=peaks(_VECTOR),
        tensor_flop_per_s=peaks(_TENSOR),
    )


@functools.cache
def devices() -> tuple[Device, ...]:
    """Every device of data/gpus.csv, in the file's order. Raises DataError for a missing or damaged file."""
    try:
        with GPUS.open(newline="", encoding="utf-8") as lines:
            return tuple(_device(row) for row in csv.DictReader(lines))
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise DataError(
            f"Expected the catalogue of devices at {GPUS}, got {error!r}. "
            "Fetch data/gpus.csv from the repository again."
        ) from error


def _key(name: str) -> str:
    """`name` without case, spaces, punctuation and brands: 'NVIDIA A100-SXM4-80GB' and 'a100 sxm4 80gb' agree."""
    words = re.findall(r"[a-z0-9]+", name.casefold())
    return "".join(word for word in words if word not in _BRANDS)


@functools.cache
def _index() -> dict[str, Device]:
    by_name = {device.name: device for device in devices()}
    found = {_key(name): device for name, device in by_name.items()}
    found |= {_key(reported): by_name[name] for reported, name in _REPORTED.items()}
    v100 = by_name["Tesla V100 SXM2 16/32GB"]
    found[_key("V100 SXM2 32GB")] = dataclasses.replace(v100, name="Tesla V100 SXM2 32GB", memory_bytes=32 * GIGA)
    return found


def find(name: str) -> Device:
    """Find a device by its name in the catalogue or by the name that its driver reports.

    Case, spaces, hyphens and brands don't matter. Raises UnknownDevice with the nearest names, also for a name that
    fits several devices ("H100"): a similar card's peaks are never given.
    """
    if not isinstance(name, str):
        raise UnknownDevice(
            f"Expected a device's name as text, got {brief_repr(name)}. catalog.table() lists the names."
        )
    device = _index().get(_key(name))
    if device is not None:
        return device
    names = [candidate.name for candidate in devices()]
    holding = [candidate for candidate in names if _key(name) and _key(name) in _key(candidate)]
    near = (holding or nearest(name, names))[:4]
    raise UnknownDevice(
        f"Expected a device of the catalogue, got {name!r}; its peaks are unknown. "
        f"Nearest names: {', '.join(near)}. catalog.table() lists all {len(names)}."
    )


def named(device: Device | str) -> Device:
    """A Device as it is, or the one that `find` gives for a name."""
    return device if isinstance(device, Device) else find(device)


def peak(device: Device | str, dtype: object) -> float | None:
    """Dense peak of a device (or its name) in FLOP/s for a dtype of DTYPES, or None where no source says.

    torch's dtypes count by their name. Raises LabError for another dtype, UnknownDevice for another device.
    """
    name = lookup(str(dtype).removeprefix("torch."), {known: known for known in DTYPES}, "dtype", LabError)
    return named(device).peaks.get(name)
