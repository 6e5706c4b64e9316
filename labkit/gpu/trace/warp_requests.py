"""Group the accesses of a run into the requests of warps, and count what each asks of memory."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.gpu.trace.event_log import SITES
from labkit.gpu.trace.events import BANK_BYTES, BANKS, LINE_BYTES, SECTOR_BYTES, Events, in_order, starts
from labkit.gpu.trace.traced_memory import Array
from labkit.gpu.trace.traced_thread import WARP


@dataclass(frozen=True)
class Requests:
    """What warps ask of memory: a request is one instruction of one warp, for all its lanes that execute it together.

    Each column has a value for each request: the site, the warp, the number of lanes that take part, the bytes that
    they ask for (a byte counts once) and the sectors of memory that these touch, the wavefronts (passes that shared
    memory needs), the most words that one bank has to give (`ways`), the rounds, and the collisions.
    """

    site: Array
    warp: Array
    first: Array
    lanes: Array
    asked: Array
    sectors: Array
    wavefronts: Array
    ways: Array
    rounds: Array
    """Wavefronts of shared memory; of atomics on global memory the most lanes at one address, of constant memory the
    distinct addresses, of other requests 1."""
    collisions: Array
    """Atomics at an address that another lane of the request changes, too: all but one at each address."""
    order: Array
    """Access numbers, request by request; those of request r start at first[r]."""

    @classmethod
    def of(cls, accesses: Events) -> Requests:
        """Group accesses of the same warp with the same key."""
        order = in_order(accesses.warp, accesses.key)
        accesses = accesses.only(order)
        key, warp = accesses.key, accesses.warp
        first = starts(key, warp)
        key, warp = key[first], warp[first]
        lanes = np.diff(np.append(first, len(order)))
        request = np.repeat(np.arange(len(first), dtype="i4"), lanes)
        shared, constant, atomic = accesses.shared, accesses.constant, accesses.atomic
        asked, sectors = _bytes_and_sectors(request[~shared], accesses.only(~shared), len(first))
        wavefronts, ways = _banks(request[shared], accesses.only(shared), len(first))
        most, distinct = _same_address(request[atomic], accesses.only(atomic), len(first))
        separate = _same_address(request[constant], accesses.only(constant), len(first))[1]
        rounds = np.maximum.reduce([wavefronts, most, separate, (sectors > 0).astype("i4")])
        collisions = np.where(most, lanes - distinct, 0)
        return cls(
            (key % SITES).astype("i2"), warp, first, lanes, asked, sectors, wavefronts, ways, rounds, collisions, order
        )


def _bytes_and_sectors(request: Array, accesses: Events, count: int) -> tuple[Array, Array]:
    """Distinct bytes and distinct sectors of each request to global or constant memory."""
    places = accesses.place
    places -= int(places.min()) // (8 * LINE_BYTES) * (8 * LINE_BYTES) if len(places) else 0
    bits = (int(places.max(initial=8 * SECTOR_BYTES)) + 8 * LINE_BYTES).bit_length() - 3  # of an address
    places |= request.astype("i8") << bits + 3
    places.sort()  # in the order of requests and addresses
    places, size = places >> 3, 1 << (places & 7)
    # An access reaches up to the next one, which is further off where it belongs to another request.
    asked = np.minimum(size, np.diff(places, append=places[-1:] + size[-1:]))
    found = np.bincount(places >> bits, asked, count).astype("i8")
    last = (places + size - 1) // SECTOR_BYTES
    places //= SECTOR_BYTES
    over = last != places  # a misaligned access may touch two sectors
    if over.any():
        places = _unique(np.concatenate([places, last[over]]))
    sectors = places[starts(places)] if len(places) else places
    return found, np.bincount(sectors >> bits - SECTOR_BYTES.bit_length() + 1, minlength=count)


def _same_address(request: Array, accesses: Events, count: int) -> tuple[Array, Array]:
    """The most lanes at one address of each request, and the distinct addresses."""
    most, distinct = np.zeros(count, "i4"), np.zeros(count, "i4")
    if len(request):
        order = in_order(request, accesses.address - int(accesses.address.min()))
        request, address = request[order], accesses.address[order]
        first = starts(request, address)
        np.maximum.at(most, request[first], np.diff(np.append(first, len(request))))
        np.add.at(distinct, request[first], 1)
    return most, distinct


def _banks(request: Array, accesses: Events, count: int) -> tuple[Array, Array]:
    """Wavefronts and the worst bank's words of each request to shared memory.

    A request of 8-byte accesses is served half a warp at a time, of 16-byte ones a quarter at a time: each such part
    takes as many wavefronts as the bank with most distinct words has words. A word serves all lanes that load or store
    it, and the atomics of several lanes on it one after another.
    """
    words = np.maximum(accesses.size // BANK_BYTES, 1)  # of 4 bytes, an access
    pair = (request.astype("i8") * 4 + accesses.lane * words // WARP) << 28 | (accesses.address // BANK_BYTES)
    wide, atomic = int(words.max(initial=1)), accesses.atomic
    one_by_one = pair[atomic]
    pair, words = pair[~atomic], words[~atomic]
    pair = _unique(pair if wide == 1 else np.concatenate([(pair + k)[words > k] for k in range(wide)]))
    pair = np.concatenate([pair, one_by_one]) if len(one_by_one) else pair
    # Words of each bank, by part of a request.
    part, counts = np.unique((pair >> 28) * BANKS + pair % BANKS, return_counts=True)
    full = np.zeros(count * 4, "i4")
    np.maximum.at(full, part // BANKS, counts)
    parts = full.reshape(count, 4)
    return parts.sum(axis=1), parts.max(axis=1, initial=0)


def _unique(values: Array) -> Array:
    """Sorted distinct values of an array, which is sorted in place: like np.unique, without its copies."""
    values.sort()
    return values[starts(values)]
