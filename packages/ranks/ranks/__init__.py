"""Run a function on N ranks of torch.distributed on one machine; results, a timeline,
and why a rank failed come back.

Names load when first used, so that `import ranks` costs milliseconds and no torch.
README.md of the project shows a launch, and how data flows through these modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranks.errors import RankFailed as RankFailed
    from ranks.inside.rank_context import (
        Report as Report,
        now_s as now_s,
        report as report,
        span as span,
    )
    from ranks.launcher.agent import preload as preload
    from ranks.launcher.launching import (
        MOST_RANKS as MOST_RANKS,
        Launched as Launched,
        launch as launch,
    )
    from ranks.launcher.rank_failures import hide_frames as hide_frames
    from ranks.spans import Span as Span, SpanKind as SpanKind

_HOME_OF = {
    "Launched": "launcher.launching",
    "MOST_RANKS": "launcher.launching",
    "RankFailed": "errors",
    "Report": "inside.rank_context",
    "Span": "spans",
    "SpanKind": "spans",
    "hide_frames": "launcher.rank_failures",
    "launch": "launcher.launching",
    "now_s": "inside.rank_context",
    "preload": "launcher.agent",
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
