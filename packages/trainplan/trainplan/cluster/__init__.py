"""One training step of a model on a cluster, its time and memory; and a search over
layouts.
"""

from trainplan.cluster.configurations import configuration
from trainplan.cluster.hardware import NVL72, Cluster, network
from trainplan.cluster.layout import Layout
from trainplan.cluster.rank_memory import PURPOSES
from trainplan.cluster.runs import Bill, Goodput, bill, goodput
from trainplan.cluster.search import best_layout, require_fit
from trainplan.cluster.software import SOFTWARE, Software
from trainplan.cluster.step_prediction import Step, step
from trainplan.cluster.step_time import PARTS
from trainplan.cluster.validation import COMPARISONS, held_against, published_steps
from trainplan.costs.transformers import MODELS, Transformer, model

__all__ = [
    "COMPARISONS",
    "MODELS",
    "NVL72",
    "PARTS",
    "PURPOSES",
    "SOFTWARE",
    "Bill",
    "Cluster",
    "Goodput",
    "Layout",
    "Software",
    "Step",
    "Transformer",
    "best_layout",
    "bill",
    "configuration",
    "goodput",
    "held_against",
    "model",
    "network",
    "published_steps",
    "require_fit",
    "step",
]
