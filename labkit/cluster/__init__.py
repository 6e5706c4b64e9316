"""One training step of a model on a cluster, its time, memory and price; and a search over layouts."""

from labkit.cluster.against import COMPARISONS, published_steps
from labkit.cluster.layout import RECOMPUTE, Layout
from labkit.cluster.machines import HDR, NDR, NVLINK3, NVLINK4, Cluster, network
from labkit.cluster.memory import PURPOSES
from labkit.cluster.rates import CONSTANTS, Constants
from labkit.cluster.search import Best, best_layout, require_fit
from labkit.cluster.steps import Step, step
from labkit.cluster.timing import PARTS
from labkit.cluster.topologies import Topology, fat_tree, rails, ring, torus
from labkit.cluster.transformer import MODELS, Transformer, gpt, model

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
