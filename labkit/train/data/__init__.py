"""Real images and text to train on, and what an input pipeline is made of: digits,
JPEGs made from them, a loader.

Nothing here needs a network.
"""

from labkit.train.data.bundled import (
    Labelled as Labelled,
    digits as digits,
    shakespeare as shakespeare,
)
from labkit.train.data.datasets import (
    JpegFiles as JpegFiles,
    JpegShards as JpegShards,
    Prepare as Prepare,
    decoded_cache as decoded_cache,
    jpeg_files as jpeg_files,
)
from labkit.train.data.loading import loader as loader
from labkit.train.data.shards import (
    jpeg_shards as jpeg_shards,
    read_encoded as read_encoded,
)
from labkit.train.data.timestamps import BatchTimes as BatchTimes
