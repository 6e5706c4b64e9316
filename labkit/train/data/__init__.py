"""Real images and text to train on, and what an input pipeline is made of: digits,
JPEGs made from them, a loader.

Nothing here needs a network.
"""

from labkit.train.data.bundled import Labeled, digits, shakespeare
from labkit.train.data.datasets import (
    JpegFiles,
    JpegShards,
    Prepare,
    decoded_cache,
    jpeg_files,
)
from labkit.train.data.loading import loader
from labkit.train.data.shards import jpeg_shards, read_encoded
from labkit.train.data.timestamps import BatchTimes

__all__ = [
    "BatchTimes",
    "JpegFiles",
    "JpegShards",
    "Labeled",
    "Prepare",
    "decoded_cache",
    "digits",
    "jpeg_files",
    "jpeg_shards",
    "loader",
    "read_encoded",
    "shakespeare",
]
