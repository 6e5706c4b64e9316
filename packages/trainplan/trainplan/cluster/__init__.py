"""One training step of a model on a cluster, its time and memory; and a search over
layouts.
"""

from trainplan.cluster.agreement import Agreement, Compared
from trainplan.cluster.comparison import Difference, Differences
from trainplan.cluster.configurations import configuration
from trainplan.cluster.gpu_search import which_gpus
from trainplan.cluster.hardware import NVL72, Cluster, group_link, network
from trainplan.cluster.layout import Layout
from trainplan.cluster.offers import RENTS, Offer, Offers, Rent
from trainplan.cluster.preference import preferred
from trainplan.cluster.rank_memory import PURPOSES
from trainplan.cluster.runs import Bill, Goodput, bill, goodput
from trainplan.cluster.search import (
    BestLayout,
    best_layout,
    even_batch,
    require_fit,
)
from trainplan.cluster.software import SOFTWARE, Software
from trainplan.cluster.step_prediction import Step, step
from trainplan.cluster.step_time import PARTS
from trainplan.cluster.validation import (
    COMPARISONS,
    HeldAgainst,
    held_against,
    published_steps,
)
from trainplan.costs.transformers import MODELS, Transformer, model

__all__ = [
    "COMPARISONS",
    "MODELS",
    "NVL72",
    "PARTS",
    "PURPOSES",
    "RENTS",
    "SOFTWARE",
    "Agreement",
    "BestLayout",
    "Bill",
    "Cluster",
    "Compared",
    "Difference",
    "Differences",
    "Goodput",
    "HeldAgainst",
    "Layout",
    "Offer",
    "Offers",
    "Rent",
    "Software",
    "Step",
    "Transformer",
    "best_layout",
    "bill",
    "configuration",
    "even_batch",
    "goodput",
    "group_link",
    "held_against",
    "model",
    "network",
    "preferred",
    "published_steps",
    "require_fit",
    "step",
    "which_gpus",
]
