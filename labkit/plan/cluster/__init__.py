"""One training step of a model on a cluster, its time and memory; and a search over layouts."""

from labkit.plan.cluster.hardware import Cluster, network
from labkit.plan.cluster.layout import Layout
from labkit.plan.cluster.rank_memory import PURPOSES
from labkit.plan.cluster.search import best_layout, require_fit
from labkit.plan.cluster.software import SOFTWARE, Software
from labkit.plan.cluster.step_prediction import Step, step
from labkit.plan.cluster.step_time import PARTS
from labkit.plan.cluster.validation import COMPARISONS, held_against, published_steps
from labkit.plan.costs.transformers import MODELS, Transformer, model

__all__ = [
    "COMPARISONS",
    "MODELS",
    "PARTS",
    "PURPOSES",
    "SOFTWARE",
    "Cluster",
    "Layout",
    "Software",
    "Step",
    "Transformer",
    "best_layout",
    "held_against",
    "model",
    "network",
    "published_steps",
    "require_fit",
    "step",
]
