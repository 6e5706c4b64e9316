"""What a kernel prints.

Source: CUDA C++ Programming Guide, "Formatted Output"; PTX Writer's Guide to
Interoperability, "System Calls".
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from kerneltrace.ptx.memory import Memory
from kerneltrace.ptx.threads import Threads

_PLACE = re.compile(
    r"%([-+ #0]*(?:\*|\d*)(?:\.(?:\*|\d+))?)(hh|h|ll|l|z|j|t)?([diouxXcsfFeEgGaAp%])"
)


def printed(memory: Memory, t: Threads, text: int, arguments: int) -> str:
    """What printf makes of the text at an address and the arguments at another, for the
    one thread that takes part.
    """
    end = arguments  # of those that were read
    values = list[int | float | str]()

    def next_argument(kind: str) -> Any:
        nonlocal end
        size = np.dtype(kind).itemsize
        begin = -(-end // size) * size
        end = begin + size
        buffer, places = memory.bytes_at(t, np.array([begin]))
        place = int(places[0])
        return buffer[place : place + size].view(kind)[0].item()

    def replaced(match: re.Match[str]) -> str:
        flags, size, conversion = match.groups("")
        if conversion == "%":
            return "%%"
        values.extend(next_argument("i4") for _ in range(flags.count("*")))
        n_bytes = 4 if size in ("", "h", "hh") else 8
        if conversion in "sp":
            kind = "u8"
        elif conversion in "fFeEgGaA":
            kind = "f8"
        else:
            kind = f"i{n_bytes}" if conversion in "dic" else f"u{n_bytes}"
        value = next_argument(kind)
        if conversion == "s":
            values.append(memory.text_at(t, value))
        elif conversion == "p":
            values.append(hex(value))
        elif conversion in "aA":
            values.append(value.hex())
        else:
            values.append(value)
            return f"%{flags}{conversion}"
        return f"%{flags}s"

    return _PLACE.sub(replaced, memory.text_at(t, text)) % tuple(values)
