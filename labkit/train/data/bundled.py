"""The handwritten digits and the text that ship with the workbook."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labkit.core.arguments import nearest
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument, DataError
from labkit.core.parameters import Number, Share, checked
from labkit.core.paths import DATA

Labeled = tuple[Tensor, Tensor]  # images and their labels

_LARGEST = 16 << 20  # bytes: what is larger is not the file that ships
# other words for what "test" is for
_HELD_OUT = ("val", "valid", "validation", "dev", "eval")
_SHA256 = {
    "digits.npz": "9ab2d47cfaa667c5993b68994d2c47b52d068cc4a760dcd2a4bc432486eed5bc",
    "shakespeare.txt.xz": (
        "21b40ccf4999c004256d116655824719001352dbc22636354d9cd0c645d03a4a"
    ),
}


@checked
def digits(
    size: Annotated[int, Number(least=1, most=2048)] = 8,
    channels: Annotated[int, Number(least=1, most=1024)] = 1,
    split: str = "train",
) -> Labeled:
    """Return 1,797 handwritten digits: images float32 (N, channels, size, size) in 0 to
    1, labels int64 (N,).

    `split` is "train" (1,437 images), "test" (360) or "all". A size other than 8 is
    interpolated (bilinear); channels are copies of each other. SimpleCNN takes
    digits(size=32, channels=3), 18 MB as a training set. What ships is the *test part*
    of the UCI set, as in scikit-learn, with no record of who wrote what. The split is
    therefore ours: drawn at random once, each class in proportion. The same 13 writers
    are on both sides, so accuracy on "test" comes out a little higher than on UCI's own
    split by writer. Raises DataError for a missing or damaged file, BadArgument for an
    unknown split. Source: E. Alpaydin and C. Kaynak (1998), UCI
    Machine Learning Repository, doi 10.24432/C50P49, CC BY 4.0.
    """
    pixels, labels = digits_of(split)
    images = torch.from_numpy(pixels).float().div_(16).unsqueeze(1)  # (N, 1, 8, 8)
    if size != 8:
        images = torch.nn.functional.interpolate(
            images, size=(size, size), mode="bilinear", align_corners=False
        )
    return images.repeat(1, channels, 1, 1), torch.from_numpy(labels).long()


def digits_of(split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read the pixels (N, 8, 8), 0 to 16, and labels (N,) of a split, in the file's
    order. Raises DataError, and BadArgument for another split.
    """
    splits = ("train", "test", "all")
    if split not in splits:
        near = "test" if split in _HELD_OUT else nearest(str(split), splits)[0]
        raise BadArgument(
            f"split must be one of {', '.join(splits)}, got {brief_repr(split)}; did"
            f" you mean {near!r}?"
        )
    with np.load(io.BytesIO(_content("digits.npz"))) as file:
        pixels = file["images"]
        labels = file["labels"]
        in_test = file["in_test"]
    rows = slice(None) if split == "all" else in_test == (split == "test")
    return pixels[rows], labels[rows]


@checked
def shakespeare(held_out: Share = 0.1) -> tuple[Tensor, Tensor, str]:
    """Return 40,000 lines of Shakespeare's plays as numbers of characters: a text, a
    held-out text, the characters.

    Both are int64 (N,), together 1,115,394; held out is the last share of the plays.
    Character i of the 65 has number i. Raises DataError for a missing or damaged file.
    Source: data/README.md.
    """
    text = np.frombuffer(lzma.decompress(_content("shakespeare.txt.xz")), np.uint8)
    occurs = np.bincount(text, minlength=256) > 0
    number_of = np.cumsum(occurs) - 1  # (256,): of each byte that occurs
    numbers = torch.from_numpy(number_of[text])  # (N,)
    first = round(len(numbers) * (1 - held_out))
    characters = bytes(np.flatnonzero(occurs).tolist()).decode("ascii")
    return numbers[:first], numbers[first:], characters


def _content(name: str) -> bytes:
    """The bytes of a file that ships. Raises DataError where it is
    missing or damaged.
    """
    path = _data_folder() / name
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
    except OSError as error:
        raise DataError(
            f"Can't read {path} ({error.strerror}). Restore it with `git checkout --"
            f" {path}`."
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    expected = _SHA256[name]
    if digest != expected:
        raise DataError(
            f"{path} is damaged: expected sha256 {expected[:12]}…, got {digest[:12]}…."
            f" Restore it with `git checkout -- {path}`."
        )
    return content


def _data_folder() -> Path:
    """Return the workbook's data folder, or LABKIT_DATA where that is set. Raises
    DataError when it isn't there.
    """
    folder = Path(os.environ.get("LABKIT_DATA") or DATA).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"Expected the workbook's data folder at {folder}, found none. "
            "Work in a clone of the repository, or set LABKIT_DATA to its data folder."
        )
    return folder
