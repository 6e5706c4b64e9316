"""What a kernel prints.

Source: CUDA C++ Programming Guide, "Formatted Output"; PTX Writer's Guide to Interoperability, "System Calls".
"""

from __future__ import annotations

import re

import numpy as np

from kerneltrace.ptx.memory import Memory
from kerneltrace.ptx.threads import Threads

_PLACE = re.compile(r"%([-+ #0]*)(\*|\d*)(\.(?:\*|\d+))?(hh|h|ll|l|z|j|t)?([diouxXcsfFeEgGaAp%])")


def printed(memory: Memory, t: Threads, text: int, arguments: int) -> str:
    """What printf makes of the text at an address and the arguments at another, for the one thread that takes part."""
    at = arguments

    def next_one(kind: str) -> int | float:
        nonlocal at
        dtype = np.dtype(kind)
        at = -(-at // dtype.itemsize) * dtype.itemsize + dtype.itemsize
        buffer, place = memory.bytes_at(t, np.array([at - dtype.itemsize]))
        number: int | float = buffer[int(place[0]) :][: dtype.itemsize].view(dtype)[0].item()
        return number

    def shown(match: re.Match[str]) -> str:
        flags, width, digits, size, what = match.groups("")
        if what == "%":
            return "%"
        width, digits = (part.replace("*", str(next_one("i4"))) if "*" in part else part for part in (width, digits))
        if what in "sp":
            address = int(next_one("u8"))
            return f"%{flags}{width}{digits}s" % (memory.text_at(t, address) if what == "s" else hex(address))
        if what in "fFeEgGaA":
            number = next_one("f8")
            return float(number).hex() if what in "aA" else f"%{flags}{width}{digits}{what}" % number
        whole = next_one(f"{'i' if what in 'dic' else 'u'}{8 if size in ('l', 'll', 'z', 'j', 't') else 4}")
        return f"%{flags}{width}{digits}{what}" % whole

    return _PLACE.sub(shown, memory.text_at(t, text))
