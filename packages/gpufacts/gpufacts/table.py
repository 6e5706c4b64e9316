"""Read the table, data/gpus.csv, into Devices."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

from gpufacts.device import Device

DATA = Path(__file__).parent / "data"

MEGA = 1e6
GIGA = 1e9
TERA = 1e12
MIB = 2**20

_VECTOR = {"float64": "fp64_tflops", "float32": "fp32_tflops"}
_TENSOR = {
    "float64": "fp64_tensor_tflops",
    "tf32": "tf32_tensor_tflops",
    "float16": "fp16_tensor_tflops",
    "bfloat16": "bf16_tensor_tflops",
    "float8": "fp8_tensor_tflops",
    "float4": "fp4_tensor_tflops",
    "int8": "int8_tensor_tops",
}
_FIELD_OF_COLUMN = {
    "boost_mhz": "boost_hz",
    "memory_gb": "memory_bytes",
    "bandwidth_gbs": "bandwidth_bytes_per_s",
    "l2_mb": "l2_bytes",
    "nvlink_or_ici_gbs": "interconnect_bytes_per_s",
    "pcie_gen": "pcie",
    "fp64_tflops": "float64",
    "fp32_tflops": "float32",
    **{column: dtype for dtype, column in _TENSOR.items()},
}
"""Columns that go by another name in a Device."""


@functools.cache
def devices() -> tuple[Device, ...]:
    """All devices, in the table's order. RuntimeError where the table is damaged."""
    return tuple(_device(row) for row in read("gpus.csv"))


def read(file_name: str) -> list[dict[str, str]]:
    """The rows of a table that comes with the package, as text by column."""
    path = DATA / file_name
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise RuntimeError(
            f"{path} can't be read: {error}. Install gpufacts again."
        ) from error
    # DictReader marks a cell too many and a cell too few by None.
    if not rows or any(None in row or None in row.values() for row in rows):
        raise RuntimeError(f"{path} is damaged. Install gpufacts again.")
    return rows


def _device(row: Mapping[str, str]) -> Device:
    return Device(
        name=row["name"],
        source=row["source"],
        reported_as=row["reported_as"],
        vendor=row["vendor"],
        family=row["family"],
        architecture=row["architecture"],
        year=_whole(row["year"]),
        compute_capability=row["compute_capability"] or None,
        sms=_whole(row["sms"]),
        fp32_cores=_whole(row["fp32_cores"]),
        boost_hz=_scaled(row["boost_mhz"], MEGA),
        memory_bytes=_scaled(row["memory_gb"], GIGA),
        memory_type=row["memory_type"] or None,
        bandwidth_bytes_per_s=_scaled(row["bandwidth_gbs"], GIGA),
        l2_bytes=_scaled(row["l2_mb"], MIB),
        interconnect_bytes_per_s=_scaled(row["nvlink_or_ici_gbs"], GIGA),
        pcie=row["pcie_gen"] or None,
        tdp_w=_scaled(row["tdp_w"], 1),
        launch_price_usd=_scaled(row["launch_price_usd"], 1),
        notes=row["notes"],
        unread=_unread(row),
        vector_flop_per_s=_peaks(row, _VECTOR),
        tensor_flop_per_s=_peaks(row, _TENSOR),
    )


def _whole(text: str) -> int | None:
    return int(text) if text else None


def _scaled(text: str, unit: float) -> float | None:
    return float(text) * unit if text else None


def _peaks(row: Mapping[str, str], column_of: Mapping[str, str]) -> dict[str, float]:
    return {
        dtype: float(row[column]) * TERA
        for dtype, column in column_of.items()
        if row[column]
    }


def _unread(row: Mapping[str, str]) -> frozenset[str]:
    """Fields and number formats that the row says were recalled or derived."""
    listed = row["fields_from_memory"].split(";") + row["fields_derived"].split(";")
    columns = {column for column in listed if column}
    if "all" in columns:
        facts = set(row) - {"fields_from_memory", "fields_derived", "provenance"}
        columns = {column for column in facts if row[column]}
    if "sms" in columns and row["fp32_cores"]:
        columns.add("fp32_cores")  # counted as SMs times the cores of one
    return frozenset(_FIELD_OF_COLUMN.get(column, column) for column in columns)
