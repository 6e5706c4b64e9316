"""Training sets of JPEGs: shards read in order, small files in any order, images
decoded already; and their decoder.

The datasets can be pickled, as a loader's workers need.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from labkit.core.errors import BadArgument, DataError
from labkit.core.parameters import Count, Size, checked
from labkit.train.data.build_cache import build_once
from labkit.train.data.shards import BUILD_AGAIN, name_of, read_all

Sample = tuple[Tensor, int]


@checked
@dataclass(frozen=True)
class Prepare:
    """Turn a JPEG's bytes into an image, float32 (3, size, size) in 0 to 1; each stage
    is a method of its own.

    With `reduced` the decoder makes a smaller image from the start, 1/2, 1/4 or 1/8 of
    the original, as long as it is no smaller than `size`. `shift` moves each image at
    random by up to so many pixels along both axes and fills with zeros.
    """

    size: Count = 32
    reduced: bool = False
    shift: Size = 0

    @property
    def image_bytes(self) -> int:
        """Bytes of one finished image."""
        return 3 * self.size**2 * torch.float32.itemsize

    def __call__(self, jpeg: bytes) -> Tensor:
        """Run all stages. Raises DataError for bytes that are not a whole JPEG."""
        return self.finish(self.augment(self.decode(jpeg)))

    def decode(self, jpeg: bytes) -> NDArray[np.uint8]:
        """Decode and resize to uint8 (3, size, size). Raises DataError for bytes that
        are not a whole JPEG.
        """
        from PIL import Image

        size = (self.size, self.size)
        try:
            with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
                if self.reduced:
                    image.draft("RGB", size)
                pixels = image.convert("RGB")
        except (
            OSError,
            ValueError,
            SyntaxError,
            IndexError,
            Image.DecompressionBombError,
        ) as error:
            # without the decoder's "<_io.BytesIO object at 0x...>", which differs from
            # call to call
            reason = " ".join(str(error).split(" <")[0].split()) or type(error).__name__
            raise DataError(
                f"Expected a whole JPEG, got {len(jpeg):,} bytes that are not one"
                f" ({reason})."
            ) from error
        if pixels.size != size:
            pixels = pixels.resize(size, Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(pixels).transpose(2, 0, 1))

    def augment(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Move the image at random by at most `shift` pixels left or right and up or
        down, with zeros behind it.
        """
        if self.shift == 0:
            return image
        n = self.size
        shift = self.shift
        padded = np.zeros((3, n + 2 * shift, n + 2 * shift), dtype=np.uint8)
        padded[:, shift : shift + n, shift : shift + n] = image
        # torch's generator, not NumPy's: torch seeds it differently in each worker
        y, x = torch.randint(2 * shift + 1, (2,)).tolist()
        return padded[:, y : y + n, x : x + n]

    def finish(self, image: NDArray[np.uint8]) -> Tensor:
        """Convert the image to a float32 tensor in 0 to 1."""
        return torch.from_numpy(image).float().div_(255)


@checked
def jpeg_files(shards: Sequence[Path], folder: Path | None = None) -> list[Path]:
    """Return the images of shards as one small file each, `label/NNNNNN.jpg`, in the
    shards' order.

    That is the layout of torchvision's ImageFolder. The files are written on first use
    and kept in `folder` (the cache folder by default). Raises BadArgument for no
    shards, DataError for damaged ones and where the folder can't be written.
    """

    def build(building: Path) -> Iterator[Path]:
        for image in read_all(shards):
            path = building / str(image.label) / image.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(image.jpeg)
            yield path

    return build_once(folder, f"{name_of(shards)}-files", build)


class JpegFiles(Dataset[Sample]):
    """Image and label of each of the files that `jpeg_files` wrote, by number; the
    label is the folder's name.

    `prepare` turns a file's bytes into the image. A missing or damaged image raises
    DataError with its path.
    """

    @checked
    def __init__(
        self, files: Sequence[Path], prepare: Callable[[bytes], Tensor] | None = None
    ) -> None:
        self.files = list(files)
        self.prepare = prepare or Prepare()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Sample:
        path = Path(self.files[i])
        try:
            jpeg = path.read_bytes()
        except OSError as error:
            raise DataError(
                f"{path} can't be read ({error.strerror}). Call jpeg_files again."
            ) from error
        try:
            return self.prepare(jpeg), int(path.parent.name)
        except DataError as error:
            raise DataError(
                f"{path} is damaged: {error} Delete its folder and call jpeg_files"
                " again."
            ) from error


class JpegShards(IterableDataset[Sample]):
    """Image and label of each image in the shards, in order; each shard is read by one
    worker of one rank.

    Shards are dealt out like cards, to the `ranks`, and each rank's to its workers. So
    ranks differ by a shard at most, and may differ in their number of batches:
    DistributedDataParallel would wait for the missing ones. A damaged JPEG raises
    DataError with shard, image name and byte offset.
    """

    @checked
    def __init__(
        self,
        shards: Sequence[Path],
        prepare: Callable[[bytes], Tensor] | None = None,
        *,
        rank: Size = 0,
        ranks: Count = 1,
    ) -> None:
        if rank >= ranks:
            raise BadArgument(
                f"Expected a rank below ranks={ranks}, as they are counted from 0, got"
                f" rank={rank}."
            )
        name_of(shards)  # raises here, not in a worker, where a shard is missing
        self.rank = rank
        self.ranks = ranks
        self.shards = list(shards)
        self.prepare = prepare or Prepare()

    def __iter__(self) -> Iterator[Sample]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        for encoded in read_all(self.shards[self.rank :: self.ranks][worker::workers]):
            try:
                image = self.prepare(encoded.jpeg)
            except DataError as error:
                raise DataError(f"Damaged: {encoded.place}: {error}") from error
            yield image, encoded.label


@checked
def decoded_cache(
    shards: Sequence[Path],
    size: int = 32,
    *,
    reduced: bool = False,
    folder: Path | None = None,
) -> tuple[np.memmap[Any, np.dtype[np.uint8]], NDArray[np.int64]]:
    """Return all images of the shards as uint8 (N, 3, size, size), mapped from a file,
    and labels int64 (N,), in order.

    Images are decoded on first use, `reduced` as in `Prepare`, and kept in `folder`
    (the cache folder by default). The system reads a page of the file when it is first
    accessed, and keeps it while memory is free. Writing to the array changes this
    process's copy only. Raises DataError for a damaged image, with its place, and where
    the folder can't be written.
    """
    prepare = Prepare(size, reduced=reduced)

    def build(building: Path) -> Iterator[Path]:
        labels = np.array([image.label for image in read_all(shards)], dtype=np.int64)
        images_path = building / "images.npy"
        labels_path = building / "labels.npy"
        shape = (len(labels), 3, size, size)
        images = np.lib.format.open_memmap(
            images_path, mode="w+", dtype=np.uint8, shape=shape
        )
        for i, image in enumerate(read_all(shards)):
            try:
                images[i] = prepare.decode(image.jpeg)
            except DataError as error:
                raise DataError(
                    f"Damaged: {image.place}: {error} {BUILD_AGAIN}"
                ) from error
        images.flush()
        np.save(labels_path, labels)
        yield from (images_path, labels_path)

    name = f"{name_of(shards)}-decoded-{size}px"
    if reduced:
        name += "-reduced"
    images_path, labels_path = build_once(folder, name, build)
    return np.load(images_path, mmap_mode="c"), np.load(labels_path)
