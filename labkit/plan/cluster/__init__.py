"""One training step of a model on a cluster, its time, memory and price; and a search over layouts."""

from labkit.plan.cluster.hardware import HDR, NDR, NVLINK3, NVLINK4, Cluster, network
from labkit.plan.cluster.layout import RECOMPUTE, Layout
from labkit.plan.cluster.rank_memory import PURPOSES
from labkit.plan.cluster.rates import CONSTANTS, Constants
from labkit.plan.cluster.search import Best, best_layout, require_fit
from labkit.plan.cluster.step_parts import PARTS
from labkit.plan.cluster.step_prediction import Step, step
from labkit.plan.cluster.topologies import Topology, fat_tree, rails, ring, torus
from labkit.plan.cluster.transformer import MODELS, Transformer, gpt, model
from labkit.plan.cluster.validation import COMPARISONS, published_steps

__all__ = [
    "COMPARISONS",
    "CONSTANTS",
    "HDR",
    "MODELS",
    "NDR",
    "NVLINK3",
    "NVLINK4",
    "PARTS",
    "PURPOSES",
    "RECOMPUTE",
    "Best",
    "Cluster",
    "Constants",
    "Layout",
    "Step",
    "Topology",
    "Transformer",
    "best_layout",
    "fat_tree",
    "gpt",
    "model",
    "network",
    "published_steps",
    "rails",
    "require_fit",
    "ring",
    "step",
    "torus",
]
