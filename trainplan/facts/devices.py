"""Devices: the facts that the calculations ask for, and those in data/gpus.csv.

Peaks are dense (no sparsity), and peaks and sizes are as printed, with 1 GB = 1e9
bytes. An unknown fact is None, never another device's.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from trainplan.arguments import checked
from trainplan.csv_tables import rows
from trainplan.errors import LayoutError, UnknownDevice, brief_repr, nearest
from trainplan.units import GIGA, MEGA, TERA


@checked
@dataclass(frozen=True, kw_only=True)
class Device:
    """What the calculations ask of a device: a row of data/gpus.csv, or one of your
    own. None is what isn't known.

    `vendor` is "NVIDIA", "AMD" or "Google", `architecture` its generation, such as
    "Hopper GH100", `pcie` generation and lanes, "4.0 x16". `interconnect_bytes_per_s`
    is NVLink's, XGMI's or ICI's, both directions together. `peaks` are FLOP/s by dtype,
    of its matrix units or, for dtypes that those don't have, its vector units.
    `reported_as` are the names by which drivers report it, with semicolons between
    them.
    """

    name: str
    vendor: str = ""
    architecture: str = ""
    year: int | None = None
    sms: int | None = None  # multiprocessors, or compute units
    boost_hz: float | None = None
    memory_bytes: float | None = None  # the smaller one where the row covers two builds
    bandwidth_bytes_per_s: float | None = None
    interconnect_bytes_per_s: float | None = None
    pcie: str | None = None
    tdp_w: float | None = None
    vector_flop_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    peaks: Mapping[str, float] = field(default_factory=dict, hash=False)
    reported_as: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.vendor} {self.architecture})"


def as_device(value: Any) -> Device:
    """A Device with the facts of an object, such as another catalogue's. Raises
    LayoutError where it lacks one.
    """
    if type(value) is Device:
        return value
    try:
        return Device(
            **{
                fact.name: getattr(value, fact.name)
                for fact in fields(Device)
                if fact.name != "reported_as"
            }
        )
    except Exception as error:  # an object may refuse all questions
        raise LayoutError(
            f"Expected device to be a Device or text, got {brief_repr(value)}."
        ) from error


def _times(size: float) -> Callable[[str], float]:
    # "16/32": the smaller of two builds
    return lambda text: float(text.split("/")[0]) * size


# field -> column, and how its text is read; an empty text leaves the default
_FACTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", str),
    "vendor": ("vendor", str),
    "architecture": ("architecture", str),
    "year": ("year", int),
    "sms": ("sms", int),
    "boost_hz": ("boost_mhz", _times(MEGA)),
    "memory_bytes": ("memory_gb", _times(GIGA)),
    "bandwidth_bytes_per_s": ("bandwidth_gbs", _times(GIGA)),
    "interconnect_bytes_per_s": ("nvlink_or_ici_gbs", _times(GIGA)),
    "pcie": ("pcie_gen", str),
    "tdp_w": ("tdp_w", float),
    "reported_as": ("reported_as", str),
}
_VECTOR = {"float64": "fp64_tflops", "float32": "fp32_tflops"}
_MATRIX = {
    "float64": "fp64_tensor_tflops",
    "tf32": "tf32_tensor_tflops",
    "float16": "fp16_tensor_tflops",
    "bfloat16": "bf16_tensor_tflops",
    "float8": "fp8_tensor_tflops",
    "float4": "fp4_tensor_tflops",
    "int8": "int8_tensor_tops",
}
# no two rows differ only in these
_BRANDS = {"nvidia", "tesla", "geforce", "amd", "instinct"}


def _device(row: Mapping[str, str]) -> Device:
    facts = {
        name: read(row[column])
        for name, (column, read) in _FACTS.items()
        if row[column]
    }
    vector = {
        dtype: float(row[column]) * TERA
        for dtype, column in _VECTOR.items()
        if row[column]
    }
    matrix = {
        dtype: float(row[column]) * TERA
        for dtype, column in _MATRIX.items()
        if row[column]
    }
    return Device(**facts, vector_flop_per_s=vector, peaks=vector | matrix)


@functools.cache
def devices() -> tuple[Device, ...]:
    """All devices of data/gpus.csv, in the file's order. Raises DataError for a missing
    or damaged file.
    """
    return tuple(map(_device, rows("gpus")))


def _key(name: str) -> str:
    """Without case, spaces, punctuation and brands: 'NVIDIA A100-SXM4-80GB' and 'a100
    sxm4 80gb' have the same key.
    """
    return "".join(
        word
        for word in re.findall(r"[a-z0-9]+", name.casefold())
        if word not in _BRANDS
    )


@functools.cache
def _index() -> dict[str, Device]:
    by_key = {
        _key(name): one
        for one in devices()
        for name in (one.name, *one.reported_as.split(";"))
        if name
    }
    v100 = by_key[_key("V100 SXM2 16/32GB")]
    return by_key | {
        _key("V100 SXM2 32GB"): replace(
            v100, name="Tesla V100 SXM2 32GB", memory_bytes=32 * GIGA
        )
    }


def matching(name: str) -> list[Device]:
    """The devices whose name holds `name`, its numbers whole, in the file's order; the
    one whose whole name it is.
    """
    key = _key(name)
    exact = _index().get(key)
    return (
        [exact]
        if exact
        else [device for device in devices() if key and _holds(device.name, key)]
    )


def _holds(name: str, key: str) -> bool:
    """Whether a name's key holds another, which neither begins nor ends inside a
    number: "H200" doesn't hold "h20".
    """
    parts = [
        part
        for part in re.findall(r"\d+|[a-z]+", name.casefold())
        if part not in _BRANDS
    ]
    letters = [one for part in parts for one in ([part] if part.isdigit() else part)]
    ends = set(itertools.accumulate(map(len, letters), initial=0))
    return any(
        "".join(letters).startswith(key, i) and i + len(key) in ends for i in ends
    )


@checked(error=UnknownDevice)
def find(name: str) -> Device:
    """Find a device by its name in data/gpus.csv or by the name that its driver
    reports.

    Case, spaces, hyphens and brands don't matter. Raises UnknownDevice, with the
    nearest names, for an unknown name and for one that fits several devices ("H100"),
    since a similar card's peaks would be wrong.
    """
    device = _index().get(_key(name))
    if device is not None:
        return device
    names = [one.name for one in devices()]
    near = ([one.name for one in matching(name)] or nearest(name, names))[:4]
    raise UnknownDevice(
        f"Expected a device of data/gpus.csv, got {brief_repr(name)}; its peaks are"
        f" unknown. Nearest names: {', '.join(near)}. trainplan.devices() lists all"
        f" {len(names)}."
    )
