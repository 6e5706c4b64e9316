"""Pure arithmetic of training: FLOP, bytes, roofline, memory, collectives, failures and money, each with its source."""

from labkit.plan.costs.cnns import resnet50, simple_cnn
from labkit.plan.costs.collectives import Link, all_reduce_s, fit_link, hierarchical_all_reduce_s, point_to_point_s
from labkit.plan.costs.failures import checkpoint_interval_s
from labkit.plan.costs.layers import (
    attention,
    batch_norm,
    conv2d,
    cross_entropy,
    dropout,
    elementwise,
    embedding,
    layer_norm,
    linear,
    matmul,
    pool,
    window,
)
from labkit.plan.costs.memory_costs import PRECISIONS, TrainingMemory, block_activation_bytes, training_memory
from labkit.plan.costs.money import amortised_usd, break_even_steps, electricity_usd, run_cost_usd
from labkit.plan.costs.roofline import attainable_flop_per_s, intensity, ridge_flop_per_byte
from labkit.plan.costs.step_costs import NETWORKS, TrainingStep, network, training_step
from labkit.plan.costs.transformer_layers import decoder

__all__ = [
    "NETWORKS",
    "PRECISIONS",
    "Link",
    "TrainingMemory",
    "TrainingStep",
    "all_reduce_s",
    "amortised_usd",
    "attainable_flop_per_s",
    "attention",
    "batch_norm",
    "block_activation_bytes",
    "break_even_steps",
    "checkpoint_interval_s",
    "conv2d",
    "cross_entropy",
    "decoder",
    "dropout",
    "electricity_usd",
    "elementwise",
    "embedding",
    "fit_link",
    "hierarchical_all_reduce_s",
    "intensity",
    "layer_norm",
    "linear",
    "matmul",
    "network",
    "point_to_point_s",
    "pool",
    "resnet50",
    "ridge_flop_per_byte",
    "run_cost_usd",
    "simple_cnn",
    "training_memory",
    "training_step",
    "window",
]
