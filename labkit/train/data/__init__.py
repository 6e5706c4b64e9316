"""Real images to train on, and what an input pipeline is made of: the digits that ship, JPEGs made from them, a loader.

Nothing here needs a network.
"""

from labkit.train.data.build_cache import forget_cached
from labkit.train.data.bundled import Labelled, digits
from labkit.train.data.datasets import JpegFiles, JpegShards, decoded_cache, jpeg_files
from labkit.train.data.decoding import Prepare
from labkit.train.data.loading import loader
from labkit.train.data.shards import jpeg_shards, read_encoded
from labkit.train.data.timestamps import BatchTimes, steady_batch_s

__all__ = [
    "BatchTimes",
    "JpegFiles",
    "JpegShards",
    "Labelled",
    "Prepare",
    "decoded_cache",
    "digits",
    "forget_cached",
    "jpeg_files",
    "jpeg_shards",
    "loader",
    "read_encoded",
    "steady_batch_s",
]
