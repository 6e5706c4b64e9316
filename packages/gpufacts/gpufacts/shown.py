"""A device's facts as text."""

from __future__ import annotations

from gpufacts.device import Device


def facts(device: Device) -> list[tuple[str, str]]:
    """Label and text of each fact that is known of a device; an asterisk marks what
    wasn't read from a source.
    """
    values = [
        ("vendor", "vendor", device.vendor),
        ("architecture", "architecture", device.architecture),
        ("compute capability", "compute_capability", device.compute_capability),
        ("year", "year", device.year),
        ("multiprocessors", "sms", device.sms),
        ("memory", "memory_bytes", _in(device.memory_bytes, 1e9, "GB")),
        ("memory type", "memory_type", device.memory_type),
        ("bandwidth", "bandwidth_bytes_per_s", _bandwidth(device)),
        ("L2 cache", "l2_bytes", _in(device.l2_bytes, 2**20, "MiB")),
        ("interconnect", "interconnect_bytes_per_s", _interconnect(device)),
        ("PCIe", "pcie", device.pcie),
        ("power", "tdp_w", _in(device.tdp_w, 1, "W")),
    ]
    for dtype, flop_per_s in device.peaks.items():
        unit = "TOP/s" if dtype == "int8" else "TFLOP/s"
        values.append((f"{dtype}, dense", dtype, _in(flop_per_s, 1e12, unit)))
    values.append(("clocks of the peaks", "clocks", device.clocks))
    values.append(("notes", "notes", device.notes))
    values.append(("source", "source", device.source))
    return [
        (label, f"{value}{'*' if field in device.unread else ''}")
        for label, field, value in values
        if value not in (None, "")
    ]


def _in(value: float | None, unit: float, name: str) -> str:
    if value is None:
        return ""
    rounded = float(f"{value / unit:.4g}")  # of 4 digits, but never 1e+04
    return f"{rounded:,.10g} {name}"


def _bandwidth(device: Device) -> str:
    return _in(device.bandwidth_bytes_per_s, 1e9, "GB/s")


def _interconnect(device: Device) -> str:
    per_s = _in(device.interconnect_bytes_per_s, 1e9, "GB/s")
    return f"{per_s}, both directions" if per_s else ""
