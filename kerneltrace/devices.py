"""Load the table of devices and find one by name.

Peaks are dense (no sparsity), and peaks and sizes are as printed, with 1 GB = 1e9
bytes. Facts that were not read from a source are named in `Device.unread` and shown
with an asterisk. An unknown fact is None, never another device's.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kerneltrace.arguments import brief_repr, nearest, positive, text, whole
from kerneltrace.data_table import DATA, read_table
from kerneltrace.errors import BadArgument, UnknownDevice

GPUS = DATA / "gpus.csv"
KINDS = DATA / "gpu_kinds.csv"
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
MIB = 2**20
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

_VECTOR = {"fp64_tflops": "float64", "fp32_tflops": "float32"}
_TENSOR = {
    "fp64_tensor_tflops": "float64",
    "tf32_tensor_tflops": "tf32",
    "fp16_tensor_tflops": "float16",
    "bf16_tensor_tflops": "bfloat16",
    "fp8_tensor_tflops": "float8",
    "fp4_tensor_tflops": "float4",
    "int8_tensor_tops": "int8",
}
_TEXTS = ("name", "reported_as", "vendor", "family", "source", "notes")


def _times(size: float) -> Callable[[str], float]:
    return lambda text: float(text) * size


# column -> field of Device, and how its text is read; an empty text leaves the default
_FACTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    **{
        name: (name, str)
        for name in ("architecture", "memory_type", "compute_capability")
    },
    **{name: (name, int) for name in ("year", "sms", "fp32_cores")},
    "pcie_gen": ("pcie", str),
    "boost_mhz": ("boost_hz", _times(MEGA)),
    # "16/32": the smaller of two builds
    "memory_gb": ("memory_bytes", lambda text: float(text.split("/")[0]) * GIGA),
    "bandwidth_gbs": ("bandwidth_bytes_per_s", _times(GIGA)),
    "l2_mb": ("l2_bytes", _times(MIB)),  # caches are sized in powers of two
    "nvlink_or_ici_gbs": ("interconnect_bytes_per_s", _times(GIGA)),
    "tdp_w": ("tdp_w", float),
    "launch_price_usd": ("launch_price_usd", float),
}
_FIELD_OF = {column: name for column, (name, _) in _FACTS.items()} | _VECTOR | _TENSOR

# no two rows differ only in these (a test checks)
_BRANDS = re.compile(r"nvidia|tesla|geforce|amd|instinct|\d+x")


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device; a fact that no source gives is None.

    `vector_flop_per_s` and `tensor_flop_per_s` map dtypes to the dense peaks outside
    and inside the tensor cores (matrix cores, MXU); int8's are operations per second.
    `unread` names the fields and dtypes that were recalled or derived, not read from a
    source; `reported_as` has the names that drivers report, where they are others, with
    semicolons between them. `interconnect_bytes_per_s` is NVLink, XGMI or ICI, both
    directions together; `boost_hz` is in Hz, `tdp_w` in watts, `launch_price_usd` in US
    dollars. To compare this machine with the catalogue, make a Device of its
    measurements and say so in `source`.
    """

    name: str
    source: str
    reported_as: str = ""
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
    vector_flop_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    tensor_flop_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        judged: dict[str, Any] = {}
        for name in (*_TEXTS, "architecture"):
            judged[name] = text(name, getattr(self, name), BadArgument)
        for names, judge in _JUDGES:
            given = {name: getattr(self, name) for name in names}
            judged |= {
                name: judge(name, value)
                for name, value in given.items()
                if value is not None
            }
        if type(self.unread) is not frozenset:
            raise BadArgument(
                "Expected unread to be a frozenset of text, got"
                f" {brief_repr(self.unread)}."
            )
        judged["unread"] = frozenset(
            text("unread", name, BadArgument) for name in self.unread
        )
        for name in ("vector_flop_per_s", "tensor_flop_per_s"):
            judged[name] = _judged_peaks(name, getattr(self, name))
        for name, value in judged.items():
            object.__setattr__(self, name, value)

    @property
    def peaks(self) -> Mapping[str, float]:
        """Dense peak by dtype, in FLOP/s: the tensor cores', or the vector units' for
        dtypes that those don't have.
        """
        return {**self.vector_flop_per_s, **self.tensor_flop_per_s}

    def __str__(self) -> str:
        maker = f"{self.vendor} {self.architecture}".strip()
        return f"{self.name} ({maker})" if maker else self.name


_UNKNOWN = "None where it is unknown."
_JUDGES: tuple[tuple[tuple[str, ...], Callable[[str, Any], Any]], ...] = (
    (
        ("compute_capability", "memory_type", "pcie"),
        functools.partial(text, error=BadArgument, advice=_UNKNOWN),
    ),
    (
        ("year", "sms", "fp32_cores"),
        functools.partial(whole, error=BadArgument, least=1, advice=_UNKNOWN),
    ),
    (
        (
            "boost_hz",
            "memory_bytes",
            "bandwidth_bytes_per_s",
            "interconnect_bytes_per_s",
            "tdp_w",
        ),
        functools.partial(positive, error=BadArgument, advice=_UNKNOWN),
    ),
    (
        ("l2_bytes", "launch_price_usd"),
        functools.partial(positive, error=BadArgument, or_zero=True, advice=_UNKNOWN),
    ),
)
"""Fields that may be None, and what judges and converts their values."""


def _judged_peaks(name: str, peaks: Any) -> dict[str, float]:
    if not issubclass(type(peaks), Mapping):
        raise BadArgument(
            f"Expected {name} to be a dict of FLOP/s by dtype, got {brief_repr(peaks)}."
        )
    keys = [text(f"each key of {name}", key, BadArgument) for key in peaks]
    return {
        key: positive(f"{name}[{key!r:.20}]", peaks[key], BadArgument) for key in keys
    }


def _unread(row: Mapping[str, str]) -> frozenset[str]:
    listed = {
        name
        for key in ("fields_from_memory", "fields_derived")
        for name in row[key].split(";")
        if name
    }
    if "all" in listed:
        listed = {column for column in _FIELD_OF if row[column]}
    if "sms" in listed and row["fp32_cores"]:
        listed.add("fp32_cores")  # cores are counted as SMs times cores per SM
    return frozenset(_FIELD_OF[column] for column in listed)


def _device(row: Mapping[str, str]) -> Device:
    def peaks(columns: Mapping[str, str]) -> Mapping[str, float]:
        return {
            dtype: float(row[column]) * TERA
            for column, dtype in columns.items()
            if row[column]
        }

    fields: dict[str, Any] = {name: row[name] for name in _TEXTS}
    fields |= {
        name: read(row[column])
        for column, (name, read) in _FACTS.items()
        if row[column]
    }
    return Device(
        **fields,
        unread=_unread(row),
        vector_flop_per_s=peaks(_VECTOR),
        tensor_flop_per_s=peaks(_TENSOR),
    )


@functools.cache
def devices() -> tuple[Device, ...]:
    """All devices of data/gpus.csv, in the file's order. Raises DamagedTable for a
    missing or damaged file.
    """
    return tuple(read_table(GPUS, _device))


def _key(name: str) -> str:
    """Strip case, spaces, punctuation and brands: 'NVIDIA A100-SXM4-80GB' and 'a100
    sxm4 80gb' have the same key.
    """
    return "".join(
        word
        for word in re.findall(r"[a-z0-9]+", name.casefold())
        if not _BRANDS.fullmatch(word)
    )


@functools.cache
def _index() -> dict[str, Device]:
    names = (
        (name, device)
        for device in devices()
        for name in (device.name, *device.reported_as.split(";"))
        if name
    )
    found = {_key(name): device for name, device in names}
    v100 = found[_key("V100 SXM2 16/32GB")]
    found[_key("V100 SXM2 32GB")] = dataclasses.replace(
        v100, name="Tesla V100 SXM2 32GB", memory_bytes=32 * GIGA
    )
    return found


def find(name: str, memory_bytes: float | None = None) -> Device:
    """Find a device by its name in the table or by the name that its driver reports.

    Case, spaces, hyphens, brands and a number of cards ("2x Tesla T4") don't matter.
    `memory_bytes` tells cards of one name apart ("RTX 3060"). Raises UnknownDevice,
    with what is missing and the nearest names, for an unknown name and for one that
    fits several devices ("H100"), since a similar card's peaks would be wrong.
    """
    name = text(
        "name",
        name,
        UnknownDevice,
        advice="Write it as its data sheet does, such as 'A100 SXM4 80GB'.",
    )
    if memory_bytes is not None:
        memory_bytes = positive(
            "memory_bytes", memory_bytes, UnknownDevice, advice="It is in bytes."
        )
    with_memory = f"{name} {memory_bytes / 2**30:.0f}GB" if memory_bytes else name
    device = _index().get(_key(name)) or _index().get(_key(with_memory))
    if device is not None:
        return device
    names = [candidate.name for candidate in devices()]
    holding = [
        candidate for candidate in names if _key(name) and _key(name) in _key(candidate)
    ]
    near = (holding or nearest(name, names))[:4]
    why = next(missing for words, missing in _kinds() if words.search(name))
    raise UnknownDevice(
        f"Expected a device of the catalogue, got {brief_repr(name)}; its peaks are"
        f" unknown. {why}. Nearest names: {', '.join(near)}."
        " kerneltrace.devices.devices() lists all."
    )


def _kinds() -> list[tuple[re.Pattern[str], str]]:
    """For the first pattern that is in the name of a device without a row: what is
    missing.
    """
    return read_table(
        KINDS, lambda row: (re.compile(row["words"], re.IGNORECASE), row["missing"])
    )


def named(device: Device | str) -> Device:
    """The device itself, or the one that `find` returns for its name."""
    if issubclass(type(device), Device):
        return device  # type: ignore[return-value]  # mypy does not narrow by issubclass
    if not issubclass(type(device), str):
        raise UnknownDevice(
            "Expected device to be a Device or the name of one, got"
            f" {brief_repr(device)}."
        )
    return find(device)  # type: ignore[arg-type]


def peak(device: Device | str, dtype: Any) -> float | None:
    """Dense peak of a device, or of the device of that name, in FLOP/s; None if no
    source gives it.

    `dtype` is one of DTYPES or torch's dtype of that name. BadArgument for another,
    UnknownDevice as `find` does.
    """
    name = _dtype_name(dtype)
    if name not in DTYPES:
        near = nearest(name, DTYPES, n=1)[0]
        raise BadArgument(
            f"Expected dtype to be one of {', '.join(DTYPES)}; got {brief_repr(name)}."
            f" The nearest is {near!r}."
        )
    return named(device).peaks.get(name)


def _dtype_name(value: Any) -> str:
    """The name of a dtype that is given as text, or as torch's or NumPy's."""
    kind = type(value)
    if kind is type and value.__module__ == "numpy":
        return str(value.__name__)
    if (
        kind.__module__.partition(".")[0] in ("torch", "numpy")
        and "dtype" in kind.__name__.lower()
    ):
        return str(value).removeprefix("torch.")
    if not issubclass(kind, str):
        raise BadArgument(
            "Expected dtype to be a dtype such as 'float32' or torch.float32, got"
            f" {brief_repr(value)}."
        )
    return text("dtype", value, BadArgument).removeprefix("torch.")
