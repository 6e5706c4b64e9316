"""Notebook 16's files: digits in light colors on colored noise, as JPEGs in a folder
that is removed at the end.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, pad

from labkit.train import data

_DIGIT = 24  # pixels
_SIDE = 32
_FILE_SIDE = 224
_QUALITY = 90


def painted(digits: Tensor, seed: int) -> Tensor:
    """Digits (N, 1, 24, 24) in light colors anywhere on colored noise, (N, 3, 32, 32),
    from 0 to 1.
    """
    draw = torch.Generator().manual_seed(seed)
    n = len(digits)
    noise = torch.rand(n, 3, 4, 4, generator=draw)
    inks = torch.rand(n, 3, 1, 1, generator=draw)
    free = _SIDE - _DIGIT
    places = torch.randint(free + 1, (n, 2), generator=draw).tolist()
    moved = [
        pad(digit, (x, free - x, y, free - y))
        for digit, (x, y) in zip(digits, places, strict=True)
    ]
    paper = 0.3 * interpolate(noise, _SIDE, mode="bilinear")
    return paper.lerp(1 - 0.4 * inks, torch.stack(moved))


def jpegs(n: int) -> tuple[list[Path], Tensor, Tensor]:
    """Make n JPEG files of 224 x 224 pixels, in a folder for each digit. Returns them
    with their images (n, 3, 32, 32) and labels (n,).
    """
    digits, labels = data.digits(size=_DIGIT, split="all")
    images = painted(digits[:n], seed=16)
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = []
    for i, image in enumerate(images):
        file = folder / str(int(labels[i])) / f"{i:06d}.jpg"
        file.parent.mkdir(exist_ok=True)
        pixels = (255 * image).byte().permute(1, 2, 0).numpy()  # (32, 32, 3)
        large = Image.fromarray(pixels).resize((_FILE_SIDE, _FILE_SIDE))
        large.save(file, quality=_QUALITY)
        files.append(file)
    return files, images, labels[:n]


def decode(files: Sequence[Path], reduced: bool = False) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels (N,) of JPEG files; `reduced` decodes no more
    than is shown.
    """
    prepare = data.Prepare(size=_SIDE, reduced=reduced)
    images = torch.stack([prepare(file.read_bytes()) for file in files])
    return images, torch.tensor([int(file.parent.name) for file in files])
