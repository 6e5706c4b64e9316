"""The memory of a launch as bytes: where an address lies, what is there, and what may
not be touched.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.address_space import (
    ALIGNMENT,
    CONSTANT,
    DYNAMIC_SHARED,
    GLOBAL,
    Region,
    owner_bounds,
)
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.text import Variable
from kerneltrace.ptx.threads import Threads

LOCAL = 1 << 44
"""Above all addresses that threads share lie those of each thread's own memory."""
GRID_BARRIER = "grid_barrier"
"""The memory of a cooperative launch in which its blocks wait for each other, whose
address is in %envreg1 and %envreg2 (cooperative_groups/details/driver_abi.h).
"""
UNWRITTEN = 0xCD
"""What each byte of shared and local memory begins with."""


class Memory:
    """Memory of a launch: the arrays that it is given, the module's variables, and
    shared and local memory.
    """

    def __init__(self, execution: Execution, variables: tuple[Variable, ...]) -> None:
        self.execution = execution
        self.regions: dict[str, Region] = {}
        """Arrays and variables by name."""
        # the first byte of its array -> its address, its bytes
        self._owners: dict[int, tuple[int, Array]] = {}
        for region in execution.memory.regions:
            self._place_array(region)
        ends = [region.span[1] for region in self.regions.values()]
        ends += [address + len(bytes_) for address, bytes_ in self._owners.values()]
        # the end of each space
        tops = {
            "global": max(ends, default=GLOBAL),
            "const": CONSTANT,
            "shared": ALIGNMENT,
            "local": LOCAL,
        }
        for variable in variables:
            self._place(variable, tops)
        self.shared_bytes = tops["shared"] + execution.layout.dynamic_bytes
        self._dynamic_at = tops["shared"]
        self.local_bytes = tops["local"] - LOCAL
        if self.local_bytes:
            execution.memory.local_bytes["local"] = self.local_bytes
            execution.program.in_memory.add("local")
        self._global = _padded(tops["global"] - GLOBAL)
        self._constant = _padded(tops["const"] - CONSTANT)
        for address, bytes_ in self._owners.values():
            self._part(address, len(bytes_))[:] = bytes_
        for variable in variables:
            initial = np.frombuffer(variable.initial, "u1")
            begin = self.regions[variable.name].base
            self._part(begin, len(initial))[:] = initial

    def _place_array(self, region: Region) -> None:
        self.regions[region.name] = region
        first, end = owner_bounds(region.array)
        start = region.base - region.array.__array_interface__["data"][0] + first
        if end > first:
            memory = (ctypes.c_ubyte * (end - first)).from_address(first)
            self._owners[first] = start, np.ctypeslib.as_array(memory)

    def _part(self, address: int, n_bytes: int) -> Array:
        """So many bytes of global or constant memory."""
        if address >= GLOBAL:
            return self._global[address - GLOBAL :][:n_bytes]
        return self._constant[address - CONSTANT :][:n_bytes]

    def _place(self, variable: Variable, tops: dict[str, int]) -> None:
        layout = self.execution.layout
        name = plain_name(variable.name)
        if variable.space == "shared" and not variable.n_bytes:
            if not layout.dynamic_bytes:
                raise KernelError(
                    f"{name} is dynamic shared memory (extern __shared__), but the"
                    " launch gives none: pass shared_bytes."
                )
            low = DYNAMIC_SHARED
            n_bytes = layout.dynamic_bytes
        else:
            align = ALIGNMENT if variable.space != "local" else variable.align
            low = -(-tops[variable.space] // align) * align
            n_bytes = variable.n_bytes
            tops[variable.space] = -(-(low + n_bytes) // 16) * 16
        space = variable.space
        shown_space = {"const": "constant", "global": "module"}.get(space, space)
        region = Region(name, shown_space, low, np.zeros(n_bytes, "u1"))
        if variable.space == "shared":
            layout.regions[len(layout.regions)] = region
            layout.static_bytes += variable.n_bytes
        elif variable.space != "local":
            self.execution.memory.regions.append(region)
        self.regions[variable.name] = region

    def know_items(self, sizes: dict[str, int]) -> None:
        """Take the sizes in bytes of the elements of the module's variables, which PTX
        declares as bytes.
        """
        layout = self.execution.layout.regions
        regions = self.execution.memory.regions
        for name, size in sizes.items():
            old = self.regions[name]
            if old.array.dtype != np.uint8 or old.space in ("global", "local"):
                continue
            array = np.zeros(old.array.size // size, f"u{size}")
            new = replace(old, array=array)
            self.regions[name] = new
            regions[:] = [new if region is old else region for region in regions]
            for site, region in layout.items():
                if region is old:
                    layout[site] = new

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
            results = self._part(address, len(bytes_))
            if np.array_equal(bytes_, results):
                continue
            names = [
                region.name
                for region in self.execution.memory.regions
                if not region.array.flags.writeable
                and address <= region.span[0] < address + len(bytes_)
            ]
            if names:
                raise KernelError(
                    f"The kernel writes to {', '.join(names)}, which NumPy holds as"
                    " read-only."
                )
            bytes_[:] = results

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
        ahead = DYNAMIC_SHARED - self._dynamic_at  # of where it lies in these bytes
        if lowest >= DYNAMIC_SHARED:
            address = address - ahead
        elif int(address.max()) >= DYNAMIC_SHARED:
            address = np.where(address < DYNAMIC_SHARED, address, address - ahead)
        return self._shared, address + threads.those(self._of_block)

    def text_at(self, threads: Threads, address: int) -> str:
        """The text that begins at an address, up to its first zero."""
        buffer, places = self.bytes_at(threads, np.array([address]))
        begin = int(places[0])
        text = bytes(buffer[begin : begin + 1000]).partition(b"\0")[0]
        return text.decode(errors="replace")

    def inside(self, address: Array, size: int, names: tuple[str, ...]) -> Array | None:
        """Which accesses lie in arrays of these names, or in any where there are none;
        None where all do.
        """
        spans = [region.span for region in self._meant(names)]
        low = int(address.min())
        high = int(address.max()) + size
        if any(begin <= low and high <= end for begin, end in spans):
            return None
        fits = np.zeros(len(address), bool)
        for begin, end in spans:
            fits |= (address >= begin) & (address + size <= end)
        return None if fits.all() else fits

    def _meant(self, names: tuple[str, ...]) -> list[Region]:
        return [self.regions[name] for name in names] or list(self.regions.values())

    def outside_words(self, address: int, names: tuple[str, ...]) -> tuple[str, str]:
        """Where an address is that lies in no array: words, and the name of the nearest
        array.
        """
        regions = self._meant(names)
        if not regions:
            return f"address {address:#x}, but the kernel has no array.", ""

        def distance(region: Region) -> int:
            low, high = region.span
            return max(low - address, address - high + 1)

        nearest = min(regions, key=distance)
        low, high = nearest.span
        array = nearest.array
        number = (address - low) // array.itemsize
        n = (high - low) // array.itemsize
        name = nearest.name
        if nearest.space == "local":  # PTX has no name for each of them
            words = f"byte {number} of its local arrays, which have {n:,} bytes."
            return words, ""
        size = f"{n:,} elements, 0 to {n - 1}" if n else "no elements"
        if array.ndim > 1:
            size = f"the shape {array.shape}: {size}"
        return f"{name}[{number}], but {name} has {size}.", name


def plain_name(mangled: str) -> str:
    """A name in its source: `copy` for _Z4copyPfi, `tile` for _ZZ9transposeE4tile,
    numba's too.
    """
    symbol = mangled.split("$")[0]
    prefix = re.match(r"_ZZ.*E(?=\d)|_Z([NL]?)", symbol)
    if prefix is None:
        return symbol
    name = symbol
    begin = prefix.end()
    # each part of a name has its length before it
    while length := re.compile(r"\d+").match(symbol, begin):
        begin = length.end() + int(length[0])
        name = symbol[length.end() : begin]
        if prefix[1] != "N":
            break
    return name


def _padded(n_bytes: int) -> Array:
    """Memory of so many bytes, and room for the widest access at its end."""
    return np.zeros(n_bytes // 32 * 32 + 64, "u1")
