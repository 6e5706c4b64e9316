"""CIFAR-10 and Fashion-MNIST: fetched once where there is a network, checked, and kept."""

from __future__ import annotations

import gzip
import pickle
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.core.errors import DataError
from labkit.train.data.bundled import cache_folder, check_split, data_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from labkit.train.data.bundled import Labelled

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz"
CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
FASHION_MNIST_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
FASHION_MNIST_MD5: Mapping[str, str] = MappingProxyType(
    {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    }
)
_DAMAGED = (tarfile.TarError, pickle.UnpicklingError, EOFError, ImportError, KeyError, ValueError, TypeError, OSError)


def cifar10(
    split: str = "train", *, folder: Path | None = None, base_url: str = CIFAR10_URL, md5: str = CIFAR10_MD5
) -> Labelled:
    """CIFAR-10: images float32 (N, 3, 32, 32) in 0 to 1, labels int64 (N,).

    50,000 images to train on (614 MB as float32), 10,000 to test. A 170 MB archive is fetched once into `folder` (by
    default the cache folder), unless the data folder has it.
    Raises DataError when it can't be fetched or isn't what its checksum says.
    Source: A. Krizhevsky, Learning multiple layers of features from tiny images (2009).
    """
    check_split(split, ("train", "test"))
    path = _fetched("cifar-10-python.tar.gz", base_url, md5, folder)
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    try:
        with tarfile.open(path) as archive:
            batches = [_Py2Arrays(archive.extractfile(f"cifar-10-batches-py/{name}")).load() for name in names]
        pixels = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32)
        return _as_tensors(pixels, np.concatenate([batch[b"labels"] for batch in batches]))
    except _DAMAGED as error:
        raise _not_the_format(path, "the CIFAR-10 archive for Python", error) from error


def fashion_mnist(
    split: str = "train",
    *,
    folder: Path | None = None,
    base_url: str = FASHION_MNIST_URL,
    md5: Mapping[str, str] = FASHION_MNIST_MD5,
) -> Labelled:
    """Fashion-MNIST: images float32 (N, 1, 28, 28) in 0 to 1, labels int64 (N,).

    60,000 images to train on, 10,000 to test. Two files (27 MB or less) are fetched once into `folder` (by default
    the cache folder), unless the data folder has them.
    Raises DataError when they can't be fetched or aren't what their checksums say.
    Source: H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST (2017), arXiv:1708.07747; MIT licence.
    """
    check_split(split, ("train", "test"))
    part = "train" if split == "train" else "t10k"
    names = (f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz")
    images, labels = (_idx(_fetched(name, base_url, md5[name], folder)) for name in names)
    return _as_tensors(images[:, None], labels)


def _fetched(name: str, base_url: str, md5: str, folder: Path | None) -> Path:
    """The file in the data folder, or in `folder`, fetched if need be; DataError says in one sentence why not."""
    import pooch
    import requests

    shipped = data_folder() / name
    if shipped.is_file() and pooch.file_hash(str(shipped), alg="md5") == md5:
        return shipped
    target = folder or cache_folder() / "downloads"
    instead = f"put {name} from elsewhere into {target}; lab.data.digits() needs no network"
    try:
        return Path(pooch.retrieve(f"{base_url}/{name}", f"md5:{md5}", name, target, downloader=_download))
    except requests.exceptions.ChunkedEncodingError as error:
        raise DataError(
            f"The download of {name} from {base_url} broke off half-way. Try again, or {instead}."
        ) from error
    except requests.exceptions.RequestException as error:
        answer = f"HTTP {error.response.status_code}" if error.response is not None else type(error).__name__
        raise DataError(
            f"Can't fetch {name} from {base_url} ({answer}). Connect to a network, or {instead}."
        ) from error
    except OSError as error:
        reason = f"{name} can't be written to {target} ({error.strerror or error})"
        raise DataError(f"{reason}. Pass folder= or set LABKIT_HOME to a folder you can write to.") from error
    except ValueError as error:  # pooch's word for a wrong checksum
        got = re.search(r"got ([0-9a-f]{32})", str(error))
        found = got[1] if got else "another"
        raise DataError(
            f"{name} from {base_url} was cut short or changed (expected md5 {md5}, got {found}). "
            f"Try again, or {instead}."
        ) from error


def _download(url: str, output_file: str, _: object) -> None:
    """Fetch for pooch, with a bar of its own: pooch sets the total late, which tqdm's notebook bar misses."""
    import requests
    from tqdm.auto import tqdm

    with requests.get(url, stream=True, timeout=30) as response:
        response.raise_for_status()
        n_bytes = int(response.headers.get("content-length", 0)) or None
        name = url.rpartition("/")[2]
        with open(output_file, "wb") as file, tqdm(total=n_bytes, desc=name, unit="B", unit_scale=True, delay=1) as bar:
            for chunk in response.iter_content(2**16):
                file.write(chunk)
                bar.update(len(chunk))


class _Py2Arrays(pickle.Unpickler):
    """Reads pickles of NumPy arrays made by Python 2, and refuses to look up anything else."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="bytes")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "dtype"):
            # Python 2 wrote 0 and 1 for the flags, which NumPy 2.4.0 to 2.4.4 warn of
            return lambda kind, *flags: np.dtype(kind, *map(bool, flags))
        known = {("numpy", "ndarray"), ("numpy.core.multiarray", "_reconstruct"), ("_codecs", "encode")}
        if (module, name) in known:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which no image set needs")


def _idx(path: Path) -> NDArray[np.uint8]:
    """An array of an IDX file: 0, 0, 8 for uint8, the number of axes, each length as big-endian int32, then the data.

    Source: the format note on http://yann.lecun.com/exdb/mnist/.
    """
    try:
        content = gzip.decompress(path.read_bytes())
        if content[:3] != b"\0\0\x08":
            raise ValueError(f"it starts with {content[:4].hex()}")
        shape = np.frombuffer(content, dtype=">i4", count=content[3], offset=4)
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except _DAMAGED as error:
        raise _not_the_format(path, "a gzipped IDX file of uint8", error) from error


def _as_tensors(pixels: NDArray[np.uint8], labels: NDArray[Any]) -> Labelled:
    import torch

    if len(pixels) != len(labels):
        raise DataError(f"Expected a label for each image, got {len(pixels)} images and {len(labels)} labels.")
    # a copy: arrays over bytes are read-only, which torch.from_numpy warns of
    return torch.from_numpy(pixels.astype(np.float32)).div_(255), torch.from_numpy(labels.astype(np.int64))


def _not_the_format(path: Path, expected: str, error: Exception) -> DataError:
    return DataError(f"{path} is not {expected} ({type(error).__name__}: {error}). Delete it and try again.")
