"""The memory of a launch as bytes: where an address lies, what is there, and what may
not be touched.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, replace

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.log.address_space import (
    ALIGNMENT,
    CONSTANT,
    DYNAMIC_SHARED,
    GLOBAL,
    SHARED_END,
    Region,
    owner_bounds,
)
from kerneltrace.log.execution import Execution
from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.text import Variable
from kerneltrace.ptx.threads import Threads

LOCAL = 1 << 44
"""Above all addresses that threads share lie those of each thread's own memory."""
UNWRITTEN = 0xCD
"""What each byte of shared and local memory begins with."""


@dataclass(frozen=True)
class Span:
    """The addresses of one array or variable."""

    name: str
    low: int
    high: int
    region: Region


class Memory:
    """Memory of a launch: the arrays that it is given, the module's variables, and
    shared and local memory.
    """

    def __init__(self, execution: Execution, variables: tuple[Variable, ...]) -> None:
        self.execution = execution
        self.spans: dict[str, Span] = {}
        """Arrays and variables by name."""
        # the first byte of its array -> its address, its bytes
        self._owners: dict[int, tuple[int, Array]] = {}
        for region in execution.memory.regions:
            low, high = region.span
            self.spans[region.name] = Span(region.name, low, high, region)
            first, end = owner_bounds(region.array)
            start = region.base - region.array.__array_interface__["data"][0] + first
            if end > first:
                self._owners[first] = (
                    start,
                    np.ctypeslib.as_array(
                        (ctypes.c_ubyte * (end - first)).from_address(first)
                    ),
                )
        top = max((span.high for span in self.spans.values()), default=GLOBAL)
        tops = {
            "global": max(
                top, *(at + len(b) for at, b in self._owners.values()), GLOBAL
            ),
            "const": CONSTANT,
        }
        tops |= {"shared": ALIGNMENT, "local": LOCAL}
        for one in variables:
            self._place(one, tops)
        self.shared_bytes = tops["shared"] + execution.layout.dynamic_bytes
        self._dynamic_at = tops["shared"]
        self.local_bytes = tops["local"] - LOCAL
        execution.memory.local_bytes.update(
            {"local": self.local_bytes} if self.local_bytes else {}
        )
        self._global, self._constant = (
            np.zeros((tops[space] - base) // 32 * 32 + 64, "u1")
            for space, base in (("global", GLOBAL), ("const", CONSTANT))
        )
        for address, bytes_ in self._owners.values():
            self._global[address - GLOBAL : address - GLOBAL + len(bytes_)] = bytes_
        for one in variables:
            if one.initial:
                at = self.spans[one.name].low
                buffer, base = (
                    (self._constant, CONSTANT)
                    if one.space == "const"
                    else (self._global, GLOBAL)
                )
                buffer[at - base : at - base + len(one.initial)] = np.frombuffer(
                    one.initial, "u1"
                )

    def _place(self, one: Variable, tops: dict[str, int]) -> None:
        layout = self.execution.layout
        name = plain_name(one.name)
        if one.space == "shared" and not one.n_bytes:
            if not layout.dynamic_bytes:
                raise KernelError(
                    f"{name} is dynamic shared memory (extern __shared__), but the"
                    " launch gives none: pass shared_bytes."
                )
            low = DYNAMIC_SHARED
            n_bytes = layout.dynamic_bytes
        else:
            align = ALIGNMENT if one.space != "local" else one.align
            low = -(-tops[one.space] // align) * align
            n_bytes = one.n_bytes
            tops[one.space] = -(-(low + n_bytes) // 16) * 16
        space = {"const": "constant", "global": "module"}.get(one.space, one.space)
        region = Region(name, space, low, np.zeros(n_bytes, "u1"))
        if one.space == "shared":
            layout.regions[len(layout.regions)] = region
            layout.static_bytes += one.n_bytes
        elif one.space != "local":
            self.execution.memory.regions.append(region)
        self.spans[one.name] = Span(name, low, low + n_bytes, region)

    def know_items(self, sizes: dict[str, int]) -> None:
        """Take the sizes in bytes of the elements of the module's variables, which PTX
        declares as bytes.
        """
        layout = self.execution.layout.regions
        regions = self.execution.memory.regions
        for name, size in sizes.items():
            span = self.spans[name]
            if span.region.array.dtype != np.uint8 or span.region.space in (
                "global",
                "local",
            ):
                continue
            array = np.zeros((span.high - span.low) // size, f"u{size}")
            new = replace(span.region, array=array)
            self.spans[name] = replace(span, region=new)
            regions[:] = [
                new if region is span.region else region for region in regions
            ]
            layout.update(
                {site: new for site, region in layout.items() if region is span.region}
            )

    def begin(self, threads: Threads) -> None:
        """Begin with some blocks: shared and local memory that nobody has written."""
        self._stride = -(-self.shared_bytes // 32) * 32
        self._shared = np.full(threads.blocks * self._stride + 32, UNWRITTEN, "u1")
        self._local_stride = -(-self.local_bytes // 32) * 32
        self.local = np.full(threads.size * self._local_stride + 32, UNWRITTEN, "u1")
        self.written = np.zeros(len(self.local), bool)
        """Bytes of local memory that their thread has written."""
        self._of_block = threads.block * self._stride
        self._of_thread = np.arange(threads.size) * self._local_stride
        self.arriving = np.zeros(len(self._shared) if threads.blocks else 0, bool)
        """Bytes of shared memory that asynchronous copies have yet to write."""
        self.any_arriving = False

    def finish(self) -> None:
        """Write results to the arrays."""
        for address, bytes_ in self._owners.values():
            new = self._global[address - GLOBAL : address - GLOBAL + len(bytes_)]
            if not np.array_equal(bytes_, new):
                names = [
                    r.name
                    for r in self.execution.memory.regions
                    if not r.array.flags.writeable
                ]
                spans = [self.spans[name] for name in names]
                if any(address <= span.low < address + len(bytes_) for span in spans):
                    raise KernelError(
                        f"The kernel writes to {', '.join(names)}, which NumPy holds as"
                        " read-only."
                    )
                bytes_[:] = new

    def bytes_at(self, threads: Threads, address: Array) -> tuple[Array, Array]:
        """The bytes of the space that addresses lie in, and where in them; of one space
        for all.
        """
        lowest = int(address.min(initial=LOCAL + (1 << 60)))
        if lowest >= LOCAL:
            return self.local, address - LOCAL + threads.those(self._of_thread)
        if lowest >= GLOBAL:
            return self._global, address - GLOBAL
        if lowest >= CONSTANT:
            return self._constant, address - CONSTANT
        if lowest >= DYNAMIC_SHARED:
            address = address - (DYNAMIC_SHARED - self._dynamic_at)
        elif int(address.max()) >= DYNAMIC_SHARED:
            address = np.where(
                address < DYNAMIC_SHARED,
                address,
                address - (DYNAMIC_SHARED - self._dynamic_at),
            )
        return self._shared, address + threads.those(self._of_block)

    def text_at(self, threads: Threads, address: int) -> str:
        """The text that begins at an address, up to its first zero."""
        buffer, place = self.bytes_at(threads, np.array([address]))
        return (
            bytes(buffer[int(place[0]) :][:1000])
            .partition(b"\0")[0]
            .decode(errors="replace")
        )

    def is_logged(self, address: Array) -> bool:
        """Whether accesses at these addresses are logged: those of memory that threads
        share.
        """
        return int(address.max()) < LOCAL

    def is_shared(self, address: Array) -> bool:
        """Whether they go to shared memory."""
        return int(address.min(initial=LOCAL)) < SHARED_END

    def inside(self, address: Array, size: int, names: tuple[str, ...]) -> Array | None:
        """Which accesses lie in arrays of these names, or in any where there are none;
        None where all do.
        """
        spans = [self.spans[name] for name in names] or list(self.spans.values())
        low = int(address.min())
        high = int(address.max()) + size
        if any(span.low <= low and high <= span.high for span in spans):
            return None
        fits = np.zeros(len(address), bool)
        for span in spans:
            fits |= (address >= span.low) & (address + size <= span.high)
        return None if fits.all() else fits

    def outside_words(self, address: int, names: tuple[str, ...]) -> tuple[str, str]:
        """Where an address is that lies in no array: words, and the name of the nearest
        array.
        """
        spans = [self.spans[name] for name in names] or list(self.spans.values())
        if not spans:
            return f"address {address:#x}, but the kernel has no array.", ""
        span = min(
            spans, key=lambda one: max(one.low - address, address - one.high + 1)
        )
        size = span.region.array.itemsize
        shape = span.region.array.shape
        number = (address - span.low) // size
        n = (span.high - span.low) // size
        of_shape = f", which has the shape {tuple(shape)}" if len(shape) > 1 else ""
        elements = f"{n:,} elements, 0 to {n - 1}" if n else "no elements"
        return (
            f"{span.name}[{number}]{of_shape}, but {span.name} has {elements}.",
            span.name,
        )


def plain_name(mangled: str) -> str:
    """A name in its source: `copy` for _Z4copyPfi, `tile` for _ZZ9transposeE4tile,
    numba's too.
    """
    name = rest = mangled.split("$")[0]
    begin = re.match(r"_ZZ.*E(?=\d)|_Z([NL]?)", rest)
    at = begin.end() if begin else len(rest)
    while match := re.compile(r"\d+").match(rest, at):
        at = match.end() + int(match[0])
        name = rest[match.end() : at]
        if not begin or begin[1] != "N":
            break
    return name
