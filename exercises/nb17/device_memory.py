"""A model of the caching allocator that PyTorch puts between a program and a GPU's
memory.

Sizes and rules are those of requests above 1 MiB in c10/cuda/CUDACachingAllocator.cpp
(PyTorch 2.13): blocks are multiples of 512 bytes, requests below 10 MiB share segments
of 20 MiB, larger ones get a segment of their own, a multiple of 2 MiB. A request takes
the smallest free block that is large enough and splits it; neighbors that are free
merge again. Before it gives up, the allocator returns all segments that are wholly free
to the driver. With expandable segments, all blocks lie in one that grows at its end,
and free pages in it (of 20 MiB, here of 2) can be returned:
https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20
_PAGE = 2 * MIB
_SHARED = 20 * MIB
_OWN_SEGMENT = 10 * MIB


class OutOfMemory(MemoryError):
    """No block and no room for a new segment; the message has the numbers that
    PyTorch's has.
    """


@dataclass(eq=False)
class Block:
    """`size` bytes of a segment from `start` on; in use for `owner`, or free where that
    is empty.
    """

    start: int
    size: int
    owner: str = ""


@dataclass
class DeviceMemory:
    """Segments of blocks within `capacity` bytes."""

    capacity: int
    expandable: bool = False
    segments: list[list[Block]] = field(default_factory=list)
    most_used: int = 0
    most_reserved: int = 0
    driver_calls: int = 0  # segments that were taken from the driver
    # (size, owner) at the most used, or at the end
    fullest: list[list[tuple[int, str]]] = field(default_factory=list)

    @property
    def used(self) -> int:
        """Bytes of blocks in use."""
        return sum(
            block.size for segment in self.segments for block in segment if block.owner
        )

    @property
    def reserved(self) -> int:
        """Bytes that were taken from the driver: of an expandable segment, the pages
        that are in use.
        """
        return (
            self.used
            if self.expandable
            else sum(block.size for segment in self.segments for block in segment)
        )

    def allocate(self, wanted: int, owner: str) -> Block:
        """A block of `wanted` bytes or a little more for `owner`; OutOfMemory where
        there is none.
        """
        size = _multiple(wanted, _PAGE if self.expandable else 512)
        block = self._free_block(size) or self._new_block(size)
        if block is None and not self.expandable:
            self.release()
            block = self._new_block(size)
        if block is None:
            self.fullest = self._picture()
            raise OutOfMemory(self._words(wanted))
        self._split(block, size)
        block.owner = owner
        if self.used > self.most_used:
            self.most_used = self.used
            self.fullest = self._picture()
        self.most_reserved = max(self.most_reserved, self.reserved)
        return block

    def _picture(self) -> list[list[tuple[int, str]]]:
        return [
            [(block.size, block.owner) for block in segment]
            for segment in self.segments
        ]

    def free(self, block: Block) -> None:
        """Make a block free, and one with its free neighbors."""
        block.owner = ""
        segment = next(s for s in self.segments if block in s)
        at = segment.index(block)
        for left in (at, at - 1):
            if (
                0 <= left < len(segment) - 1
                and not segment[left].owner
                and not segment[left + 1].owner
            ):
                segment[left].size += segment.pop(left + 1).size

    def release(self) -> None:
        """Give segments that are wholly free back to the driver, as
        torch.cuda.empty_cache() does.
        """
        self.segments = [
            segment
            for segment in self.segments
            if any(block.owner for block in segment)
        ]

    def _free_block(self, size: int) -> Block | None:
        fits = [
            b
            for segment in self.segments
            for b in segment
            if not b.owner and b.size >= size
        ]
        if self.expandable and self.used + size > self.capacity:
            return None
        return min(fits, key=lambda block: block.size, default=None)

    def _new_block(self, size: int) -> Block | None:
        if self.expandable:
            if self.used + size > self.capacity:
                return None
            (segment,) = self.segments = self.segments or [[]]
            start = segment[-1].start + segment[-1].size if segment else 0
            segment.append(Block(start, size))
            return segment[-1]
        room = _SHARED if size < _OWN_SEGMENT else _multiple(size, _PAGE)
        if self.reserved + room > self.capacity:
            return None
        self.driver_calls += 1
        self.segments.append([Block(0, room)])
        return self.segments[-1][0]

    def _split(self, block: Block, size: int) -> None:
        segment = next(s for s in self.segments if block in s)
        if block.size - size > MIB:  # what is left is worth a block of its own
            segment.insert(
                segment.index(block) + 1, Block(block.start + size, block.size - size)
            )
            block.size = size

    def _words(self, wanted: int) -> str:
        numbers = (
            wanted,
            self.capacity,
            self.capacity - self.reserved,
            self.used,
            self.reserved - self.used,
        )
        asked, capacity, free, used, holes = (
            f"{number / MIB:,.0f} MiB" for number in numbers
        )
        return (
            f"CUDA out of memory. Tried to allocate {asked}. The GPU has a total"
            f" capacity of {capacity} of which {free} is free. {used} is allocated by"
            f" PyTorch, and {holes} is reserved by PyTorch but unallocated."
        )


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of
