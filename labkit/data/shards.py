"""The digits as JPEG files in tar shards, for measuring how fast images can be read and decoded."""

from __future__ import annotations

import io
import json
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labkit.data.bundled import cache_folder, check_at_least_one, digits_file
from labkit.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def jpeg_shards(size: int = 224, images: int = 1797, per_shard: int = 256, folder: Path | None = None) -> list[Path]:
    """The digits as `images` JPEG files of size x size pixels, RGB, in tar shards of `per_shard`; built on first use.

    Each image is NNNNNN.jpg beside NNNNNN.cls (the digit in ASCII), as WebDataset names them. From the 1,798th on, the
    digits come again, each moved by up to size/8 pixels. They are smoother than photographs, so files are smaller
    (5 kB on average at 224 pixels) and leave a decoder less to do.
    Shards are kept in `folder`, by default in the cache folder. They appear whole or not at all: another kernel that
    asks meanwhile waits, and what was interrupted is built again.
    Raises DataError for a size below 1, and where the folder can't be written.
    """
    check_at_least_one(size=size, images=images, per_shard=per_shard)
    import filelock

    home = (folder or cache_folder()) / f"digits-{size}px-{images}-by-{per_shard}"
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{home}.lock"):
            if not (kept := _kept_shards(home)):
                building = home.with_name(f"{home.name}.building")
                for leftover in (building, home):
                    shutil.rmtree(leftover, ignore_errors=True)
                building.mkdir()
                _write_shards(building, size, images, per_shard)
                building.replace(home)
                kept = _kept_shards(home)
    except OSError as error:
        raise DataError(
            f"The shards can't be written to {home} ({error.strerror or error}). "
            "Pass folder= or set LABKIT_HOME to a folder with space that you can write to."
        ) from error
    return kept


def read_shard(path: Path) -> Iterator[tuple[bytes, int]]:
    """JPEG bytes and label of each image of a shard, in order. DataError when it is missing, cut short or no shard."""
    pending: dict[str, dict[str, bytes]] = {}
    try:
        with tarfile.open(path, "r:") as shard:
            for member in shard:
                if (file := shard.extractfile(member)) is None:  # a folder, in a shard made by another tool
                    continue
                stem, _, suffix = member.name.rpartition(".")
                parts = pending.setdefault(stem, {})
                parts[suffix] = file.read()
                if parts.keys() >= {"jpg", "cls"}:
                    del pending[stem]
                    yield parts["jpg"], int(parts["cls"])
    except (OSError, ValueError, tarfile.TarError) as error:
        raise DataError(
            f"{path} is not a whole shard ({error}). Delete its folder and call jpeg_shards again."
        ) from error
    if pending:
        raise DataError(f"{path} ends inside image {min(pending)}. Delete its folder and call jpeg_shards again.")


def _kept_shards(home: Path) -> list[Path]:
    """The shards of a finished folder, in order; empty when it isn't finished, or a shard lost bytes since."""
    try:
        sizes: dict[str, int] = json.loads((home / "shards.json").read_text())
        whole = all((home / name).stat().st_size == n_bytes for name, n_bytes in sizes.items())
    except (OSError, ValueError):
        return []
    return [home / name for name in sizes] if whole else []


def _write_shards(building: Path, size: int, images: int, per_shard: int) -> None:
    from tqdm.auto import tqdm

    pixels, labels, _ = digits_file()
    sizes = {}
    with tqdm(total=images, desc=f"JPEG shards, {size} px", unit="image") as bar:
        for number, start in enumerate(range(0, images, per_shard)):
            path = building / f"digits-{number:06d}.tar"
            with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
                for i in range(start, min(start + per_shard, images)):
                    _add(shard, f"{i:06d}.jpg", _jpeg(pixels[i % len(pixels)], size, moved_by=i // len(pixels) and i))
                    _add(shard, f"{i:06d}.cls", str(labels[i % len(labels)]).encode())
                    bar.update()
            sizes[path.name] = path.stat().st_size
    (building / "shards.json").write_text(json.dumps(sizes))


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # no date and no owner, so equal arguments give equal bytes
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))


def _jpeg(pixels: NDArray[np.uint8], size: int, moved_by: int) -> bytes:
    """An 8 x 8 digit as a JPEG of quality 90; `moved_by` seeds how far it is moved, 0 leaves it where it is."""
    from PIL import Image

    grey = Image.fromarray((pixels.astype(np.float32) * (255 / 16)).round().astype(np.uint8))
    image = grey.resize((size, size), Image.Resampling.BILINEAR)
    if moved_by:
        generator = random.Random(moved_by)
        right, down = (generator.randint(-(size // 8), size // 8) for _ in range(2))
        image = image.transform(image.size, Image.Transform.AFFINE, (1, 0, -right, 0, 1, -down))
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=90)
    return file.getvalue()
