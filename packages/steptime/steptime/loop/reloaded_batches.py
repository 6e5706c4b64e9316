"""Time a few batches of a loader the second time that they are loaded."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from steptime.measure.clock import mean_s
from steptime.measure.machine import no_sync
from steptime.measure.training_state import same_random_numbers

BATCHES = 3


def again_s(batches: Any, sync: Callable[[], None] = no_sync) -> float | None:
    """Seconds of a batch the second time, from a DataLoader or an iterator of one;
    `sync` waits for what a dataset has queued on a GPU.

    None where workers load, whose memory ends with the epoch, and where the data are a
    stream.
    """
    sampler = getattr(batches, "_index_sampler", None)
    inner_sampler = getattr(sampler, "sampler", sampler)  # of a BatchSampler
    generators = [
        getattr(batches, "generator", None),
        getattr(inner_sampler, "generator", None),
    ]
    drawn = [g for g in generators if isinstance(g, torch.Generator)]
    with same_random_numbers(*drawn):
        if isinstance(batches, DataLoader) and not batches.num_workers:
            batches = iter(batches)
        fetcher = getattr(batches, "_dataset_fetcher", None)
        if sampler is None or not isinstance(fetcher, _MapDatasetFetcher):
            return None
        indices = iter(sampler)
        first = itertools.islice(indices, BATCHES)
        fetches = [partial(fetcher.fetch, index) for index in first]
        for fetch in fetches:
            fetch()
        second_s = [mean_s(fetch, sync) for fetch in fetches]
        next_index_s = mean_s(partial(next, indices, None), sync)
        return next_index_s + statistics.median(second_s)
