"""The digits as JPEG files in tar shards, for measuring how fast images can be read and
decoded.
"""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labkit.core.errors import BadArgument, DataError
from labkit.core.parameters import Count, checked
from labkit.train.data.build_cache import build_once
from labkit.train.data.bundled import digits_of

BUILD_AGAIN = "Delete its folder and call jpeg_shards again."


@dataclass(frozen=True)
class EncodedImage:
    """A JPEG as it lies in a shard: its name there, the byte offset of its first byte,
    its bytes, and its label.
    """

    shard: Path
    name: str
    offset: int
    jpeg: bytes = field(repr=False)
    label: int

    @property
    def place(self) -> str:
        """Where it is, for a message: image, byte offset and shard file."""
        return f"image {self.name} at byte {self.offset:,} of {self.shard}"


@checked
def jpeg_shards(
    size: Count = 224,
    images: Count | None = None,
    per_shard: Count = 256,
    folder: Path | None = None,
    split: str = "all",
) -> list[Path]:
    """Return the digits as `images` RGB JPEG files of size x size pixels, in tar shards
    of `per_shard` images.

    `split` is "all", "train" or "test", as in `digits`; `images` is by default as many
    as the split has (1,797, 1,437 or 360). Each image is NNNNNN.jpg beside NNNNNN.cls
    (the digit in ASCII), as WebDataset names them. Where more are asked for than there
    are, the digits come again, each moved by up to size/8 pixels. They are smoother
    than photographs, so files are smaller (5 kB on average at 224 pixels) and leave a
    decoder less to do. Shards are built on first use and kept in `folder` (the cache
    folder by default). Raises BadArgument for an unknown split, DataError where
    the folder can't be written.
    """
    pixels, labels = digits_of(split)
    total = len(labels) if images is None else images

    def build(building: Path) -> Iterator[Path]:
        for number, start in enumerate(range(0, total, per_shard)):
            path = building / f"digits-{number:06d}.tar"
            with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
                for i in range(start, min(start + per_shard, total)):
                    again, row = divmod(i, len(labels))
                    _add(
                        shard,
                        f"{i:06d}.jpg",
                        _jpeg(pixels[row], size, moved_by=i if again else 0),
                    )
                    _add(shard, f"{i:06d}.cls", str(labels[row]).encode())
            yield path

    name = f"digits-{size}px-{total}-by-{per_shard}"
    if split != "all":
        name += f"-{split}"
    return build_once(folder, name, build)


@checked
def read_encoded(path: Path) -> Iterator[EncodedImage]:
    """Yield each image of a shard with its label and place, in order; the file is read
    in one piece.

    Raises DataError when it is missing, cut short or not a shard, with the last byte
    that could be read.
    """
    pending: dict[str, dict[str, tuple[int, bytes]]] = {}
    at = 0
    try:
        raw = Path(path).read_bytes()
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as shard:
            for member in shard:
                if not member.isfile():  # a folder, in a shard made by another tool
                    continue
                at = member.offset_data
                stem, _, suffix = member.name.rpartition(".")
                parts = pending.setdefault(stem, {})
                parts[suffix] = at, raw[at : at + member.size]
                if len(parts[suffix][1]) < member.size:
                    raise tarfile.ReadError(f"unexpected end of data in {member.name}")
                if parts.keys() >= {"jpg", "cls"}:
                    offset, jpeg = pending.pop(stem)["jpg"]
                    yield EncodedImage(
                        Path(path), f"{stem}.jpg", offset, jpeg, int(parts["cls"][1])
                    )
    except (OSError, ValueError, tarfile.TarError) as error:
        raise DataError(
            f"{path} is not a whole shard ({error}; readable up to byte {at:,})."
            f" {BUILD_AGAIN}"
        ) from error
    if pending:
        raise DataError(
            f"{path} ends inside image {min(pending)}, after byte {at:,}. {BUILD_AGAIN}"
        )


def read_all(shards: Sequence[Path]) -> Iterator[EncodedImage]:
    """Yield the images of several shards, shard after shard; raises as
    `read_encoded`.
    """
    return (image for shard in shards for image in read_encoded(shard))


def name_of(shards: Sequence[Path]) -> str:
    """Return a short name for what is made from these shards, which changes with their
    names and sizes.

    Raises BadArgument where there are none, DataError where one can't be read.
    """
    if not shards:
        raise BadArgument(
            "Expected at least one shard, got none. Pass what jpeg_shards returns."
        )
    paths = [Path(shard) for shard in shards]
    try:
        listing = "\n".join(f"{path.name} {path.stat().st_size}" for path in paths)
    except OSError as error:
        raise DataError(
            f"{error.filename} can't be read ({error.strerror}). Call jpeg_shards"
            " again."
        ) from error
    digest = hashlib.sha256(listing.encode()).hexdigest()
    return f"{paths[0].parent.name}-{digest[:8]}"


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    # no date and no owner, so equal arguments give equal bytes
    member = tarfile.TarInfo(name)
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))


def _jpeg(pixels: NDArray[np.uint8], size: int, moved_by: int) -> bytes:
    """Return an 8 x 8 digit as a JPEG of quality 90; `moved_by` seeds how far it is
    moved, 0 leaves it where it is.
    """
    from PIL import Image

    gray = Image.fromarray(
        (pixels.astype(np.float32) * (255 / 16)).round().astype(np.uint8)
    )
    image = gray.resize((size, size), Image.Resampling.BILINEAR)
    if moved_by:
        generator = random.Random(moved_by)
        right, down = (generator.randint(-(size // 8), size // 8) for _ in range(2))
        image = image.transform(
            image.size, Image.Transform.AFFINE, (1, 0, -right, 0, 1, -down)
        )
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=90)
    return file.getvalue()
