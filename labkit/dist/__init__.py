"""One function on N processes: results and metrics back, failures explained; torch.distributed does the rest.

labkit/README.md follows a call of `lab.launch` through these modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from labkit.dist.launching import Launched as Launched, launch as launch
from labkit.dist.namespace_hosts import Hosts as Hosts, hosts_missing as hosts_missing, two_hosts as two_hosts
from labkit.dist.rank_context import Report as Report, report as report, span as span
from labkit.dist.rank_script import as_script as as_script
from labkit.dist.rank_timing import (
    all_reduce_seconds as all_reduce_seconds,
    backend as backend,
    interleaved as interleaved,
)
from labkit.measure.bench import sync_of as sync_of

if TYPE_CHECKING:
    from labkit.dist import pipelines as pipelines
    from labkit.dist.collective_traffic import Traffic as Traffic
    from labkit.dist.parallel_training import backward_by_buckets as backward_by_buckets
    from labkit.dist.standin import StandIn as StandIn


# These modules import torch, and are loaded when first used.
_LATE = {"StandIn": "standin", "Traffic": "collective_traffic", "backward_by_buckets": "parallel_training"}


def __getattr__(name: str) -> Any:
    if name != "pipelines" and name not in _LATE:
        raise AttributeError(f"module 'labkit.dist' has no attribute {name!r}")
    module = importlib.import_module(f"labkit.dist.{_LATE.get(name, name)}")
    return getattr(module, name, module)
