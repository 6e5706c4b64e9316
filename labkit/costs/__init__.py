"""Pure arithmetic of training: FLOP, bytes, roofline, memory, energy and money; one formula each, with its source."""

from labkit.costs.break_even import break_even_steps
from labkit.costs.cnns import resnet50, simple_cnn
from labkit.costs.layers import (
    BACKWARD,
    Cost,
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
from labkit.costs.memory import (
    OPTIMIZER_STATES,
    PRECISIONS,
    Precision,
    TrainingMemory,
    block_activation_bytes,
    optimizer_traffic_bytes,
    training_memory,
)
from labkit.costs.money import J_PER_KWH, amortised_usd, electricity_usd, energy_j, run_cost_usd
from labkit.costs.networks import Batch, Layer, Network
from labkit.costs.roofline import attainable_flop_per_s, intensity, ridge_flop_per_byte, roofline_s
from labkit.costs.steps import NETWORKS, TrainingStep, network, training_step
from labkit.costs.transformers import bert_base, gpt2_xl, llama2, llama2_7b, llama2_70b

__all__ = [
    "BACKWARD",
    "J_PER_KWH",
    "NETWORKS",
    "OPTIMIZER_STATES",
    "PRECISIONS",
    "Batch",
    "Cost",
    "Layer",
    "Network",
    "Precision",
    "TrainingMemory",
    "TrainingStep",
    "amortised_usd",
    "attainable_flop_per_s",
    "attention",
    "batch_norm",
    "bert_base",
    "block_activation_bytes",
    "break_even_steps",
    "conv2d",
    "cross_entropy",
    "dropout",
    "electricity_usd",
    "elementwise",
    "embedding",
    "energy_j",
    "gpt2_xl",
    "intensity",
    "layer_norm",
    "linear",
    "llama2",
    "llama2_7b",
    "llama2_70b",
    "matmul",
    "network",
    "optimizer_traffic_bytes",
    "pool",
    "resnet50",
    "ridge_flop_per_byte",
    "roofline_s",
    "run_cost_usd",
    "simple_cnn",
    "training_memory",
    "training_step",
    "window",
]
