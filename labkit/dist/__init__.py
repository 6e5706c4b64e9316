"""One function on N processes: results and metrics back, failures explained; torch.distributed does the rest.

labkit/README.md follows a call of `lab.launch` through these modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from labkit.dist.launching import Launched as Launched, launch as launch
from labkit.dist.rank_context import Report as Report, report as report, span as span
from labkit.dist.rank_script import as_script as as_script
from labkit.dist.rank_timing import (
    all_reduce_seconds as all_reduce_seconds,
    backend as backend,
    interleaved as interleaved,
)
from labkit.measure.bench import sync_of as sync_of

if TYPE_CHECKING:
    from labkit.dist.standin import StandIn as StandIn


def __getattr__(name: str) -> Any:
    if name != "StandIn":
        raise AttributeError(f"module 'labkit.dist' has no attribute {name!r}")
    return importlib.import_module("labkit.dist.standin").StandIn  # imports torch, and is loaded when first used
