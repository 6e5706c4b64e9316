"""Real images to train on: handwritten digits that ship, JPEG shards made from them, and two sets that are downloaded.

`digits` needs no network and always works. `cifar10` and `fashion_mnist` are fetched once, checked, and kept.
"""

from labkit.data.bundled import cache_folder, data_folder, digits
from labkit.data.downloads import cifar10, fashion_mnist
from labkit.data.shards import jpeg_shards, read_shard

__all__ = ["cache_folder", "cifar10", "data_folder", "digits", "fashion_mnist", "jpeg_shards", "read_shard"]
