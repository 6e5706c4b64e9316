"""Pure arithmetic: FLOP, bytes, memory, collectives, break-even; each
has its source.
"""

from trainplan.costs.break_even import break_even_steps
from trainplan.costs.collectives import (
    Link,
    all_reduce_s,
    fit_link,
    hierarchical_all_reduce_s,
    point_to_point_s,
)
from trainplan.costs.layers import conv2d, elementwise, matmul
from trainplan.costs.memory_costs import PRECISIONS, TrainingMemory, training_memory
from trainplan.costs.step_costs import NETWORKS, TrainingStep, network, training_step

__all__ = [
    "NETWORKS",
    "PRECISIONS",
    "Link",
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
    "point_to_point_s",
    "training_memory",
    "training_step",
]
