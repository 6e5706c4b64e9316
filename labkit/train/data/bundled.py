"""The handwritten digits that ship with the workbook, and the folders where data is read and kept."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr
from labkit.core.errors import DataError, nearest
from labkit.core.paths import DATA

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Labelled = tuple[torch.Tensor, torch.Tensor]

_HELD_OUT = ("val", "valid", "validation", "dev", "eval")  # other words for what "test" is for
DIGITS_SHA256 = "9ab2d47cfaa667c5993b68994d2c47b52d068cc4a760dcd2a4bc432486eed5bc"


def data_folder() -> Path:
    """The folder that ships with the workbook, or LABKIT_DATA where that is set. DataError when it isn't there."""
    folder = Path(os.environ.get("LABKIT_DATA") or DATA).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"Expected the workbook's data folder at {folder}, found none. "
            "Work in a clone of the repository, or set LABKIT_DATA to its data folder."
        )
    return folder


def cache_folder() -> Path:
    """Where downloads and shards are kept: LABKIT_HOME/cache, or the user's cache folder. It may not exist yet."""
    if home := os.environ.get("LABKIT_HOME"):
        return Path(home).expanduser() / "cache"
    import platformdirs  # loaded when first needed: `import labkit` stays light

    return platformdirs.user_cache_path("labkit", appauthor=False)


def digits(size: int = 8, channels: int = 1, split: str = "train") -> Labelled:
    """1,797 handwritten digits: images float32 (N, channels, size, size) in 0 to 1, and labels int64 (N,).

    `split` is "train" (1,437 images), "test" (360) or "all". A size other than 8 is interpolated (bilinear); channels
    are copies of each other. SimpleCNN takes digits(size=32, channels=3), 18 MB as a training set.
    What ships is the *test part* of the UCI set, as in scikit-learn, with no record of who wrote what. So the split is
    ours: drawn at random once, each class in proportion. The same 13 writers are on both sides, and accuracy on "test"
    flatters a network a little compared with UCI's own split by writer.
    Raises DataError for a missing or damaged file and for an unknown split.
    Source: E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository, doi 10.24432/C50P49, CC BY 4.0.
    """
    import torch

    check_split(split, ("train", "test", "all"))
    check_at_least_one(size=size, channels=channels)
    pixels, labels, in_test = digits_file()
    rows = slice(None) if split == "all" else in_test == (split == "test")
    images = torch.from_numpy(pixels[rows]).float().div_(16).unsqueeze(1)  # (N, 1, 8, 8)
    if size != 8:
        images = torch.nn.functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
    return images.repeat(1, channels, 1, 1), torch.from_numpy(labels[rows]).long()


def digits_file() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.bool_]]:
    """Pixels (1797, 8, 8) in 0 to 16, labels and membership of the test split (1797,), in the file's order."""
    path = data_folder() / "digits.npz"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"Can't read {path} ({error.strerror}). Restore it with `git checkout -- {path}`.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != DIGITS_SHA256:
        raise DataError(
            f"{path} is damaged: expected sha256 {DIGITS_SHA256[:12]}…, got {found[:12]}…. "
            f"Restore it with `git checkout -- {path}`."
        )
    with np.load(io.BytesIO(content)) as file:
        return file["images"], file["labels"], file["in_test"]


def check_split(split: str, known: tuple[str, ...]) -> None:
    """Raise DataError unless `split` is one of `known`."""
    if split not in known:
        near = "test" if split in _HELD_OUT else nearest(str(split), known)[0]
        raise DataError(f"split must be one of {', '.join(known)}, got {brief_repr(split)}; did you mean {near!r}?")


def check_at_least_one(**values: int) -> None:
    """Raise DataError for the first of the named values that is no whole number, or below 1."""
    for name, value in values.items():
        if not is_whole(value):
            raise DataError(f"{name} must be a whole number, got {brief_repr(value)}.")
        if value < 1:
            raise DataError(f"{name} must be at least 1, got {value}.")
