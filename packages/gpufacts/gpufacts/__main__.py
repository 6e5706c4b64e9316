"""Print a device's row: python -m gpufacts "NVIDIA H100 80GB HBM3"."""

from __future__ import annotations

import argparse
import sys

import gpufacts
from gpufacts.device import Device

_WIDTH = 22  # of the names of facts, in characters


def rows(device: Device) -> list[tuple[str, str]]:
    """A device's facts by name; an asterisk marks what wasn't read from a source."""
    facts = [
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
        facts.append((f"{dtype}, dense", dtype, _in(flop_per_s, 1e12, unit)))
    facts.append(("clocks of the peaks", "clocks", device.clocks))
    facts.append(("notes", "notes", device.notes))
    facts.append(("source", "source", device.source))
    return [
        (label, f"{value}{'*' if field in device.unread else ''}")
        for label, field, value in facts
        if value not in (None, "")
    ]


def _in(value: float | None, unit: float, name: str) -> str:
    return "" if value is None else f"{value / unit:,.4g} {name}"


def _bandwidth(device: Device) -> str:
    return _in(device.bandwidth_bytes_per_s, 1e9, "GB/s")


def _interconnect(device: Device) -> str:
    per_s = _in(device.interconnect_bytes_per_s, 1e9, "GB/s")
    return f"{per_s}, both directions" if per_s else ""


def main(arguments: list[str] | None = None) -> int:
    """Print what was asked for; the exit status, 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="gpufacts", description=__doc__)
    parser.add_argument(
        "name",
        nargs="*",
        help="as a driver or a data sheet says it; all devices without one",
    )
    name = " ".join(parser.parse_args(arguments).name)
    if not name:
        for device in gpufacts.devices():
            print(device)
        return 0
    try:
        device = gpufacts.find(name)
    except gpufacts.UnknownDevice as error:
        print(error, file=sys.stderr)
        return 2
    print(device.name)
    if device.assumed:
        print(device.assumed)
    for label, text in rows(device):
        print(f"  {label:{_WIDTH}}{text}")
    if device.unread:
        print("* recalled or derived, not read from the source")
    return 0


if __name__ == "__main__":
    sys.exit(main())
