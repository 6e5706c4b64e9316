"""FLOP, bytes, memory, collectives and break-even in formulas, each with its source."""

from trainplan.costs.break_even import break_even_steps
from trainplan.costs.collectives import (
    Link,
    all_reduce_s,
    fit_link,
    hierarchical_all_reduce_s,
    point_to_point_s,
)
from trainplan.costs.layers import Cost, conv2d, elementwise, matmul
from trainplan.costs.memory_costs import (
    PRECISIONS,
    TrainingMemory,
    optimizer_traffic_bytes,
    training_memory,
)
from trainplan.costs.networks import Network
from trainplan.costs.step_costs import NETWORKS, TrainingStep, network, training_step

__all__ = [
    "NETWORKS",
    "PRECISIONS",
    "Cost",
    "Link",
    "Network",
    "TrainingMemory",
    "TrainingStep",
    "all_reduce_s",
    "break_even_steps",
    "conv2d",
    "elementwise",
    "fit_link",
    "hierarchical_all_reduce_s",
    "matmul",
    "network",
    "optimizer_traffic_bytes",
    "point_to_point_s",
    "training_memory",
    "training_step",
]
