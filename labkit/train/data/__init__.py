"""Real images to train on: handwritten digits that ship, JPEGs made from them, and two sets that are downloaded.

`digits` needs no network and always works. `cifar10` and `fashion_mnist` are fetched once, checked, and kept.
What an input pipeline is made of, from JPEG files to batches, loads torch when first used.
"""

from typing import TYPE_CHECKING, Any

from labkit.train.data.build_cache import forget_cached
from labkit.train.data.bundled import cache_folder, data_folder, digits
from labkit.train.data.downloads import cifar10, fashion_mnist
from labkit.train.data.shards import jpeg_shards, read_encoded, read_shard

if TYPE_CHECKING:
    from labkit.train.data.cache import batch_bytes, decoded_cache
    from labkit.train.data.datasets import JpegFiles, JpegShards, jpeg_files
    from labkit.train.data.decoding import Prepare
    from labkit.train.data.loading import Loader, loader
    from labkit.train.data.stamps import BatchTimes, steady_batch_s

__all__ = [
    "BatchTimes",
    "JpegFiles",
    "JpegShards",
    "Loader",
    "Prepare",
    "batch_bytes",
    "cache_folder",
    "cifar10",
    "data_folder",
    "decoded_cache",
    "digits",
    "fashion_mnist",
    "forget_cached",
    "jpeg_files",
    "jpeg_shards",
    "loader",
    "read_encoded",
    "read_shard",
    "steady_batch_s",
]

_HOMES = {
    "cache": ("batch_bytes", "decoded_cache"),
    "datasets": ("JpegFiles", "JpegShards", "jpeg_files"),
    "decoding": ("Prepare",),
    "loading": ("Loader", "loader"),
    "stamps": ("BatchTimes", "steady_batch_s"),
}


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"labkit.train.data.{module}"), name)
    raise AttributeError(f"module 'labkit.train.data' has no attribute {name!r}")
