"""Pure arithmetic: FLOP, bytes, roofline, memory, collectives, failures, break-even; each has its source."""

from trainplan.costs.break_even import break_even_steps
from trainplan.costs.collectives import Link, all_reduce_s, fit_link, hierarchical_all_reduce_s, point_to_point_s
from trainplan.costs.failures import checkpoint_interval_s
from trainplan.costs.layers import conv2d, elementwise, matmul
from trainplan.costs.memory_costs import PRECISIONS, TrainingMemory, training_memory
from trainplan.costs.roofline import attainable_flop_per_s, intensity, ridge_flop_per_byte
from trainplan.costs.step_costs import NETWORKS, TrainingStep, network, training_step

__all__ = [
    "NETWORKS", "PRECISIONS", "Link", "TrainingMemory", "TrainingStep", "all_reduce_s", "attainable_flop_per_s",
    "break_even_steps", "checkpoint_interval_s", "conv2d", "elementwise", "fit_link", "hierarchical_all_reduce_s",
    "intensity", "matmul", "network", "point_to_point_s", "ridge_flop_per_byte", "training_memory", "training_step",
]  # fmt: skip
