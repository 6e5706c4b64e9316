"""One function on N processes: results and metrics back, failures explained; torch.distributed does the rest.

labkit/README.md follows a call of `lab.launch` through these modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from labkit.measure.bench import sync_of as sync_of
from ranks.launching import Launched as Launched, launch as launch
from ranks.rank_context import Report as Report, report as report, span as span
from ranks.rank_script import as_script as as_script
from ranks.rank_timing import (
    all_reduce_seconds as all_reduce_seconds,
    backend as backend,
    interleaved as interleaved,
)

if TYPE_CHECKING:
    from ranks.standin import StandIn as StandIn


def __getattr__(name: str) -> Any:
    if name != "StandIn":
        raise AttributeError(f"module 'ranks' has no attribute {name!r}")
    return importlib.import_module("ranks.standin").StandIn  # imports torch, and is loaded when first used
