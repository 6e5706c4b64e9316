"""Decode every image once: a file of uint8 that is mapped into memory, with the labels beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.core.errors import DataError
from labkit.train.data.build_cache import build_once
from labkit.train.data.decoding import Prepare
from labkit.train.data.shards import BUILD_AGAIN, name_of, read_all

if TYPE_CHECKING:
    from numpy.typing import NDArray


def decoded_cache(
    shards: Sequence[Path], size: int = 32, *, reduced: bool = False, folder: Path | None = None
) -> tuple[np.memmap[Any, np.dtype[np.uint8]], NDArray[np.int64]]:
    """Return all images of the shards as uint8 (N, 3, size, size), mapped from a file, and labels int64 (N,), in order.

    Images are decoded on first use, `reduced` as in `Prepare`, and kept in `folder` (the cache folder by default). The
    system reads a page of the file when it is first accessed, and keeps it while memory is free. Writing to the array
    changes this process's copy only.
    Raises DataError for a damaged image, with its place, and where the folder can't be written.
    """
    prepare = Prepare(size, reduced=reduced)

    def build(building: Path) -> Iterator[Path]:
        labels = np.array([found.label for found in read_all(shards)], dtype=np.int64)
        images_path, labels_path = building / "images.npy", building / "labels.npy"
        shape = (len(labels), 3, size, size)
        images = np.lib.format.open_memmap(images_path, mode="w+", dtype=np.uint8, shape=shape)
        for i, found in enumerate(read_all(shards)):
            try:
                images[i] = prepare.decode(found.jpeg)
            except DataError as error:
                raise DataError(f"Damaged: {found.place}: {error} {BUILD_AGAIN}") from error
        images.flush()
        np.save(labels_path, labels)
        yield from (images_path, labels_path)

    name = f"{name_of(shards)}-decoded-{size}px{'-reduced' * reduced}"
    images_path, labels_path = build_once(folder, name, build)
    return np.load(images_path, mmap_mode="c"), np.load(labels_path)
