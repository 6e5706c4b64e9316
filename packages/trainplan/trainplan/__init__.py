"""Calculate what a training step costs and how to lay it out on a cluster, held against
published runs.

Names load when first used, so that `import trainplan` costs milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainplan import (
        cluster as cluster,
        costs as costs,
        figures as figures,
        schedule as schedule,
    )
    from trainplan.cluster.gpu_search import which_gpus as which_gpus
    from trainplan.cluster.hardware import Cluster as Cluster
    from trainplan.cluster.layout import Layout as Layout
    from trainplan.cluster.search import best_layout as best_layout
    from trainplan.cluster.step_prediction import step as step
    from trainplan.costs.hugging_face import model_from_config as model_from_config
    from trainplan.costs.transformers import Transformer as Transformer, model as model

_HOME_OF = {
    "Cluster": "cluster.hardware",
    "Layout": "cluster.layout",
    "Transformer": "costs.transformers",
    "best_layout": "cluster.search",
    "model": "costs.transformers",
    "model_from_config": "costs.hugging_face",
    "step": "cluster.step_prediction",
    "which_gpus": "cluster.gpu_search",
}
_PARTS = ("cluster", "costs", "figures", "schedule")
__all__ = sorted([*_HOME_OF, *_PARTS])  # from the tables above


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'trainplan' has no attribute {name!r}")
    module = importlib.import_module(f"trainplan.{_HOME_OF.get(name, name)}")
    value = module if name in _PARTS else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
