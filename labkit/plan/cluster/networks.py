"""A step of a Network of labkit.plan.costs, such as a CNN, on a cluster: data parallel, with ZeRO-1 to 3 or without."""

from __future__ import annotations

from labkit.core.errors import LayoutError
from labkit.plan.cluster.hardware import Cluster
from labkit.plan.cluster.layout import Layout
from labkit.plan.cluster.rates import Constants, rates
from labkit.plan.cluster.traffic import exchange_s
from labkit.plan.costs.layers import BACKWARD
from labkit.plan.costs.memory_of_training import optimizer_traffic_bytes, precision, training_memory
from labkit.plan.costs.networks import Network


def why_not(network: Network, cluster: Cluster, layout: Layout, batch: int) -> str:
    """The sentence that says why a layout can't be; empty where it can."""
    if layout.tensor * layout.pipeline > 1 or layout.recompute != "none":
        return (
            f"Expected a network of layers ({network.name}) in data parallel, tensor = pipeline = 1 and recompute "
            f"'none', got {layout}. A cluster.Transformer can be split further."
        )
    if layout.data != cluster.gpus:
        return f"Expected data = {cluster.gpus:,}, one rank a GPU, got {layout.data:,}."
    per_step = layout.data * layout.micro_batch
    if batch % per_step:
        down = batch // per_step * per_step
        near = f"{down:,} or {down + per_step:,}" if down else f"{per_step:,}"
        return (
            f"Expected a batch that {layout.data:,} data ranks x micro-batch {layout.micro_batch} = {per_step:,} "
            f"divide, got {batch:,}. The nearest: {near}."
        )
    return ""


def network_parts(
    network: Network, cluster: Cluster, layout: Layout, batch: int, constants: Constants
) -> dict[str, float]:
    """Seconds of a step: each layer's matrix FLOP or its traffic, whichever is slower; exchange; update.

    Convolutions are counted as matrix products at the rate of large ones. Raises LayoutError like step.
    """
    said = why_not(network, cluster, layout, batch)
    if said:
        raise LayoutError(said)
    kind = precision(layout.dtype)
    rate = rates(cluster.gpu, kind.compute_dtype, constants)
    sizes = network.batch(layout.micro_batch, element_bytes=kind.activation_bytes)
    forward = sum(
        max(cost.matmul_flop / rate.matmul_flop_per_s, cost.n_bytes / rate.bytes_per_s)
        for _, cost in network.layer_costs(sizes)
    )
    m = layout.microbatches(batch)
    layers = sum(layer.times for layer in network.layers)
    data = exchange_s(
        cluster,
        layout,
        params=network.params,
        layers=layers,
        compute=(forward, BACKWARD * forward),
        microbatches=m,
        contention=constants.contention,
    )
    shared = layout.data if layout.zero else 1
    update = optimizer_traffic_bytes(network.params, dtype=layout.dtype, optimizer=layout.optimizer)
    return {
        "compute": m * (1 + BACKWARD) * forward,
        "data communication": data,
        "optimizer": update / shared / rate.bytes_per_s,
    }


def network_memory(network: Network, layout: Layout) -> dict[str, float]:
    """Bytes by purpose on each GPU (lab.costs.training_memory, shared as ZeRO does)."""
    kept = network.cost(network.batch(layout.micro_batch, element_bytes=precision(layout.dtype).activation_bytes))
    held = training_memory(
        network.params,
        kept.saved_elements,
        dtype=layout.dtype,
        optimizer=layout.optimizer,
        fixed_bytes=kept.saved_fixed_bytes,
    )
    levels = {"parameters": 3, "gradients": 2, "float32 master weights": 1, "optimizer state": 1}
    return {
        purpose: n_bytes / (layout.data if layout.zero >= levels.get(purpose, 4) else 1)
        for purpose, n_bytes in held.rows()
    }
