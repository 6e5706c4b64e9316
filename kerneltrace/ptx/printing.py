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
    at = arguments
    values = list[int | float | str]()

    def next_one(kind: str) -> Any:
        nonlocal at
        dtype = np.dtype(kind)
        at = -(-at // dtype.itemsize) * dtype.itemsize + dtype.itemsize
        buffer, place = memory.bytes_at(t, np.array([at - dtype.itemsize]))
        return buffer[int(place[0]) :][: dtype.itemsize].view(dtype)[0].item()

    def shown(match: re.Match[str]) -> str:
        form, size, what = match.groups("")
        if what == "%":
            return "%%"
        values.extend(next_one("i4") for _ in range(form.count("*")))
        bits = 4 if size in ("", "h", "hh") else 8
        if what in "sp":
            number = "u8"
        else:
            sign = "i" if what in "dic" else "u"
            number = f"{sign}{bits}"
        value = next_one("f8" if what in "fFeEgGaA" else number)
        if what not in "spaA":
            values.append(value)
            return f"%{form}{what}"
        if what == "s":
            values.append(memory.text_at(t, value))
        elif what == "p":
            values.append(hex(value))
        else:
            values.append(value.hex())
        return f"%{form}s"

    return _PLACE.sub(shown, memory.text_at(t, text)) % tuple(values)
