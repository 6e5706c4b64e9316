"""Run a function on N ranks of torch.distributed on one machine; results, a timeline,
and why a rank failed come back.

Names load when first used, so that `import ranks` costs milliseconds and no torch.
README.md beside this file shows a launch, and how data flows through these modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranks.errors import (
        BadArgument as BadArgument,
        RankFailed as RankFailed,
        RanksError as RanksError,
    )
    from ranks.inside.rank_context import (
        Report as Report,
        report as report,
        span as span,
    )
    from ranks.launcher.launching import Launched as Launched, launch as launch
    from ranks.spans import Span as Span

_HOME_OF = {
    "BadArgument": "errors",
    "Launched": "launcher.launching",
    "RankFailed": "errors",
    "RanksError": "errors",
    "Report": "inside.rank_context",
    "Span": "spans",
    "launch": "launcher.launching",
    "report": "inside.rank_context",
    "span": "inside.rank_context",
}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ranks' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ranks.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
