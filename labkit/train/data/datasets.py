"""Datasets for a loader's workers: small JPEG files in any order, and shards read in order. Both can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from labkit.core.display import brief_repr
from labkit.core.errors import DataError
from labkit.train.data.build_cache import built_once
from labkit.train.data.bundled import cache_folder
from labkit.train.data.decoding import Prepare
from labkit.train.data.shards import Encoded, name_of, read_encoded

T = TypeVar("T")
Sample = tuple[Tensor, int]
_DONE = "written.txt"
_MOST_WORKERS = 1024


def jpeg_files(shards: Sequence[Path], folder: Path | None = None) -> list[Path]:
    """The images of shards as one small file each, `label/NNNNNN.jpg`, in the shards' order; written on first use.

    That is the layout of torchvision's ImageFolder. They are kept in `folder`, by default in the cache folder.
    Raises DataError for no or damaged shards, and where the folder can't be written.
    """
    home = (folder or cache_folder()) / f"{name_of(shards)}-files"

    def build(building: Path) -> None:
        names = []
        for found in (found for shard in shards for found in read_encoded(shard)):
            path = building / str(found.label) / found.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(found.jpeg)
            names.append(f"{found.label}/{found.name}")
        (building / _DONE).write_text("\n".join(names))

    built_once(home, "image files", build, lambda home: (home / _DONE).is_file())
    return [home / name for name in (home / _DONE).read_text().splitlines()]


class JpegFiles(Dataset[Sample]):
    """Image and label of each of the files that `jpeg_files` wrote, by number; the label is the folder's name.

    `prepare` makes the image of the bytes. An image that is missing or damaged raises DataError with its path.
    """

    def __init__(self, files: Sequence[Path], prepare: Callable[[bytes], Tensor] | None = None) -> None:
        self.files, self.prepare = list(files), prepare or Prepare()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Sample:
        path = self.files[i]
        try:
            jpeg = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path} can't be read ({error.strerror}). Call jpeg_files again.") from error
        try:
            return self.prepare(jpeg), int(path.parent.name)
        except DataError as error:
            raise DataError(f"{path} is damaged: {error} Delete its folder and call jpeg_files again.") from error


class JpegShards(IterableDataset[Sample]):
    """Image and label of each image in the shards, shard after shard; workers share the shards among them.

    Worker w of n reads shards w, w + n, w + 2n ... With `shuffle` each takes its shards, and the images of a shard, in
    a new random order every epoch. A damaged JPEG raises DataError with shard, image name and byte offset, or with
    on_damage="skip" is left out and counted in `skipped`.
    """

    def __init__(
        self,
        shards: Sequence[Path],
        prepare: Callable[[bytes], Tensor] | None = None,
        *,
        shuffle: bool = False,
        on_damage: Literal["raise", "skip"] = "raise",
    ) -> None:
        if on_damage not in ("raise", "skip"):
            raise DataError(f"Expected on_damage to be 'raise' or 'skip', got {brief_repr(on_damage)}.")
        name_of(shards)  # that they are there
        self.shards, self.prepare, self.shuffle, self.on_damage = list(shards), prepare or Prepare(), shuffle, on_damage
        shared: Any = torch.zeros(_MOST_WORKERS, dtype=torch.int64)  # a place for each worker
        self._skipped = shared.share_memory_()

    @property
    def skipped(self) -> int:
        """Images that the last epoch left out because they are damaged, over all workers."""
        return int(self._skipped.sum())

    def __iter__(self) -> Iterator[Sample]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if worker == 0:
            self._skipped[workers:] = 0  # places of workers that an earlier epoch had
        self._skipped[worker] = 0
        own = self.shards[worker::workers]
        for shard in self._in_order(own):
            for found in self._in_order(list(read_encoded(shard))):
                try:
                    image = self.prepare(found.jpeg)
                except DataError as error:
                    self._damaged(found, worker, error)
                else:
                    yield image, found.label

    def _in_order(self, things: list[T]) -> Iterator[T]:
        order = torch.randperm(len(things)).tolist() if self.shuffle else range(len(things))
        return (things[i] for i in order)

    def _damaged(self, found: Encoded, worker: int, error: DataError) -> None:
        if self.on_damage == "raise":
            raise DataError(f"Damaged: {found.place}: {error} Leave such images out with on_damage='skip'.") from error
        self._skipped[worker] += 1
