"""The check of notebook 13's plan for parallelize_module, which is carried out on two real ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from exercises.several_ranks import on_ranks
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, mapping

_WIDTH, _HEADS, _SHAPE = 24, 4, (2, 5)
_MOST = 0.55  # of the parameters on a rank of two: half of the matrices, norms and some biases whole
_MATRICES = {
    "query": ("Colwise", "Split by its inputs it would give parts of sums, and attention needs whole numbers."),
    "key": ("Colwise", "Split by its inputs it would give parts of sums, and attention needs whole numbers."),
    "value": ("Colwise", "Split by its inputs it would give parts of sums: one all-reduce more than needed."),
    "out": ("Rowwise", "Its input lies split by heads already, so it is split by its inputs."),
    "up": ("Colwise", "Split by its inputs it would give parts of sums, and GELU of parts is no part of GELU."),
    "down": ("Rowwise", "Its input lies split already, so it is split by its inputs."),
}


class Block(nn.Module):
    """A transformer block as the notebook's: attention and MLP behind a LayerNorm each, (B, T, width) in and out.

    How many heads it has, its query's width says, so that a rank with a part of them needs no other code.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.per_head = width // heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Of (B, T, width), the same shape."""
        normed = self.norm_1(x)
        q, k, v = (
            layer(normed).unflatten(-1, (-1, self.per_head)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )  # (B, heads, T, per_head)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        total: Tensor = x + self.down(functional.gelu(self.up(self.norm_2(x))))
        return total


def plan(answer: object) -> str:
    """Each matrix's style, told apart by kind first; then the block itself, split that way on two ranks."""
    from torch.distributed.tensor.parallel import ParallelStyle

    given = mapping(answer, dict.fromkeys(_MATRICES, "a style of torch.distributed.tensor.parallel"))
    for name, (kind, why) in _MATRICES.items():
        style = given[name]
        if isinstance(style, type) and issubclass(style, ParallelStyle):
            raise NotYet(f"{name}: {style.__name__} is the class. Call it: {style.__name__}().")
        if not isinstance(style, ParallelStyle):
            raise NotYet(f"{name}: expected ColwiseParallel() or RowwiseParallel(), got {brief_repr(style)}.")
        if not type(style).__name__.startswith(kind):
            raise NotYet(f"{name} is {type(style).__name__}. {why}")
    try:
        seen = on_ranks(_carried_out, 2, given)
    except NotYet as error:
        raise NotYet(f"A block split this way does not run. {error}") from error
    return _judge([seen[0], seen[1]])


def _carried_out(styles: dict[str, Any]) -> dict[str, Any]:
    """Outputs and gradients of a block, whole and split, and what the split one sends. Runs on each rank."""
    import logging

    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    from labkit.dist.collective_traffic import Traffic

    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # a wrong plan is no news to torch
    dist.init_process_group("gloo")
    results = []
    for split in (False, True):
        torch.manual_seed(13)
        block = Block(_WIDTH, _HEADS).double()
        if split:
            parallelize_module(block, init_device_mesh("cpu", (dist.get_world_size(),)), dict(styles))
        x = torch.randn(*_SHAPE, _WIDTH, dtype=torch.float64, requires_grad=True)
        with Traffic() as traffic:
            y = block(x)
            y.square().sum().backward()
        results.append((y.detach(), x.grad))
    numbers = [getattr(weight, "_local_tensor", weight).numel() for weight in block.parameters()]
    whole, parts = results
    return {
        "same": all(torch.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(whole, parts, strict=True)),
        "numbers": sum(numbers),
        "of": sum(weight.numel() for weight in block.parameters()),
        "counts": traffic.counts,
    }


def _judge(seen: list[dict[str, Any]]) -> str:
    for rank, found in enumerate(seen):
        if not found["same"]:
            raise NotYet(
                f"Rank {rank} computes something else than one process does. Leave the styles' options as they are: "
                "inputs whole for the first of a pair, split in between, whole behind the second."
            )
    counts = {name: n for name, n in seen[0]["counts"].items() if n}
    if set(counts) - {"all_reduce"} or counts.get("all_reduce", 0) > 6:
        raise NotYet(f"Right, but it sends {counts}; six all-reduces will do. Which option makes it send more?")
    share = max(found["numbers"] / found["of"] for found in seen)
    if share > _MOST:
        raise NotYet(
            f"Equal to one process, but a rank holds {share:.0%} of the block's parameters. Is each one split?"
        )
    return f"Equal to one process on two ranks; each holds {share:.0%} of the block's parameters."
