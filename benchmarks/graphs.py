"""What recording a training step brings where launches are the limit: eager, compiled
and as a CUDA graph, in one run.

The network is notebook 10's thin one: 16 layers, 64 numbers wide, batch 64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import labkit as lab
from benchmarks.gpu_timing import Share, seconds

LAYERS = 16
WIDTH = 64
BATCH = 64
TARGET = 3.0
CHECKED_STEPS = 20


def thin() -> nn.Sequential:
    """The same weights at each call, on the GPU."""
    torch.manual_seed(0)
    inner = [
        part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())
    ]
    return nn.Sequential(*inner, nn.Linear(WIDTH, 10)).cuda()


def training(
    model: Callable[[Tensor], Tensor],
    parameters: list[nn.Parameter],
    x: Tensor,
    y: Tensor,
) -> Callable[[], object]:
    """One step of SGD on one batch that stays in place."""
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def launch_bound() -> Iterator[Share]:
    """Steps of the thin network as one CUDA graph against eager; torch.compile beside
    it, without a target of ours.
    """
    x = torch.randn(BATCH, WIDTH, device="cuda")
    y = torch.randint(0, 10, (BATCH,), device="cuda")
    models = {
        way: thin() for way in ("eager", "CUDA graph", "compiled", "reduce-overhead")
    }
    steps = {
        way: training(model, list(model.parameters()), x, y)
        for way, model in models.items()
    }
    steps["CUDA graph"] = lab.graphs.captured(steps["CUDA graph"])
    _check_same(
        models["eager"], steps["eager"], models["CUDA graph"], steps["CUDA graph"]
    )
    if not lab.graphs.missing():
        for way, options in (
            ("compiled", {}),
            ("reduce-overhead", {"mode": "reduce-overhead"}),
        ):
            compiled = lab.graphs.compiled(models[way], **options)
            steps[way] = training(compiled, list(models[way].parameters()), x, y)
    else:
        del steps["compiled"], steps["reduce-overhead"]
    took = seconds(steps)
    detail = ", ".join(f"{way} {1e6 * each_s:.0f} µs" for way, each_s in took.items())
    yield Share(
        "thin network's step, CUDA graph against eager",
        TARGET,
        took["eager"] / took["CUDA graph"],
        detail,
    )


def _check_same(
    eager: nn.Module,
    eager_step: Callable[[], object],
    recorded: nn.Module,
    replay: Callable[[], object],
) -> None:
    """AssertionError unless both have the same weights after as many steps; recording
    has taken three of its own.
    """
    for _ in range(3 + CHECKED_STEPS):
        eager_step()
    for _ in range(CHECKED_STEPS):
        replay()
    for weight, other in zip(eager.parameters(), recorded.parameters(), strict=True):
        assert torch.allclose(weight, other, rtol=1e-3, atol=1e-5), (
            "the CUDA graph trains to other weights"
        )
