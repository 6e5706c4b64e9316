"""Decode every image once: a file of uint8 that is mapped into memory, with the labels beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.core.errors import DataError
from labkit.train.data.build_cache import built_once
from labkit.train.data.bundled import cache_folder, check_at_least_one
from labkit.train.data.decoding import Prepare
from labkit.train.data.shards import Encoded, name_of, read_encoded

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IMAGES, _LABELS = "images.npy", "labels.npy"


def decoded_cache(
    shards: Sequence[Path], size: int = 32, *, reduced: bool = False, folder: Path | None = None
) -> tuple[np.memmap[Any, np.dtype[np.uint8]], NDArray[np.int64]]:
    """All images of the shards as uint8 (N, 3, size, size), mapped from a file, and labels int64 (N,), in order.

    Decoded on first use, `reduced` as in `Prepare`; kept in `folder`, by default in the cache folder. The system reads
    pages of the file when they are first looked at, and keeps them while memory is free; what is written to the array
    changes this process's copy only. Raises DataError for a damaged image, with its place, and where the folder can't
    be written.
    """
    prepare = Prepare(size, reduced=reduced, as_float=False)
    home = (folder or cache_folder()) / f"{name_of(shards)}-decoded-{size}px{'-reduced' * reduced}"
    built_once(home, "decoded images", lambda building: _write(building, shards, prepare), _whole)
    images = np.load(home / _IMAGES, mmap_mode="c")
    return images, np.load(home / _LABELS)


def batch_bytes(batch: int, image_bytes: int, *, workers: int = 0, prefetch: int = 2) -> int:
    """Bytes that batches of images hold at once: the one in use, and `prefetch` for each worker.

    `image_bytes` is `Prepare(...).image_bytes`, or 3 * side**2 for uint8 in three colours. While a batch is put
    together, the images lie beside it once more. Raises DataError for a batch or an image below 1.
    """
    check_at_least_one(batch=batch, image_bytes=image_bytes)
    return batch * image_bytes * (2 + workers * prefetch)


def _whole(home: Path) -> bool:
    return (home / _IMAGES).is_file() and (home / _LABELS).is_file()


def _write(building: Path, shards: Sequence[Path], prepare: Prepare) -> None:
    labels = np.array([found.label for found in _every(shards)], dtype=np.int64)
    shape = (len(labels), 3, prepare.size, prepare.size)
    images = np.lib.format.open_memmap(building / _IMAGES, mode="w+", dtype=np.uint8, shape=shape)
    for i, found in enumerate(_every(shards)):
        try:
            images[i] = prepare.decode(found.jpeg)
        except DataError as error:
            raise DataError(f"Damaged: {found.place}: {error} Delete its folder and call jpeg_shards again.") from error
    images.flush()
    np.save(building / _LABELS, labels)


def _every(shards: Sequence[Path]) -> Iterator[Encoded]:
    return (found for shard in shards for found in read_encoded(shard))
