"""Ways to train a language model on the same tokens: Adam, schedules, other optimizers,
each with one rate to tune.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn, optim
from torch.nn.functional import cross_entropy

from labkit.core.errors import NotFinite
from labkit.measure.bench import Ratio
from labkit.train.training import TunedComparison

# times the rate of AdamW, which keeps the embedding and the vectors: torch's defaults
# are 0.02 and 0.001
_MUON = 20


class ScheduleFree(optim.Optimizer):
    """AdamW without a schedule: gradients at a point between its path and the path's
    mean, which is the result.

    `finish()` puts the mean in the weights. Source: A. Defazio et al., The road less
    scheduled (2024), algorithm 1.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.99),
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is called here
        """Move the path by the gradient, which belongs to the weights as they stand."""
        for group in self.param_groups:
            pull, keep = group["betas"]
            for weight in (p for p in group["params"] if p.grad is not None):
                state = self.state[weight]
                if not state:
                    state |= {
                        "n": 0,
                        "path": weight.clone(),
                        "mean": weight.clone(),
                        "squares": weight.new_zeros(()),
                    }
                state["n"] += 1
                state["squares"] = (
                    keep * state["squares"] + (1 - keep) * weight.grad.square()
                )
                size = (state["squares"] / (1 - keep ** state["n"])).sqrt() + 1e-8
                state["path"] -= group["lr"] * weight.grad / size
                state["mean"].lerp_(state["path"], 1 / state["n"])
                weight.copy_(state["path"].lerp(state["mean"], pull))

    @torch.no_grad()
    def finish(self) -> None:
        """Put each weight's mean in its place."""
        for weight, state in self.state.items():
            weight.copy_(state["mean"])


def _optimizers(way: str, model: nn.Module, rate: float) -> list[optim.Optimizer]:
    weights = list(model.parameters())
    if way == "schedule-free":
        return [ScheduleFree(weights, lr=rate)]
    if way != "Muon, decay":
        return [
            optim.AdamW(weights, lr=rate, weight_decay=0.1 if "weight" in way else 0.0)
        ]
    blocks = [
        p
        for name, p in model.named_parameters()
        if name.startswith("blocks") and p.dim() == 2
    ]
    others = [p for p in weights if all(p is not block for block in blocks)]
    muon = optim.Muon(blocks, lr=_MUON * rate, weight_decay=0.0)
    return [optim.AdamW(others, lr=rate, weight_decay=0.0), muon]


WAYS = (
    "Adam",
    "Adam, decay",
    "Adam, decay, weight decay",
    "Muon, decay",
    "schedule-free",
)


_WINDOW = 64  # characters that the model reads


def loss_on(model: nn.Module, starts: Tensor, text: Tensor) -> Tensor:
    """The mean loss of the next characters in the windows of a text that begin at
    `starts`, (B,): 64 characters each.
    """
    device = next(model.parameters()).device
    rows = text.unfold(0, _WINDOW + 1, 1)[starts].to(device)  # (B, 65)
    logits = model(rows[:, :-1])  # (B, 64, characters)
    return cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def train(
    way: str,
    model: nn.Module,
    rate: float,
    batches: Tensor,
    loss_of: Callable[..., Tensor],
) -> None:
    """Take a step for each batch, `loss_of(model, batch)`, at `rate`, which falls to 0
    where the way says decay.

    Raises NotFinite where that leaves weights that are not finite.
    """
    optimizers = _optimizers(way, model, rate)
    for step, batch in enumerate(batches):
        model.zero_grad()
        loss_of(model, batch).backward()
        for each in optimizers:
            for group in each.param_groups:
                group.setdefault("full_rate", group["lr"])
                group["lr"] = group["full_rate"] * (
                    1 - step / len(batches) if "decay" in way else 1.0
                )
            each.step()
    for each in optimizers:
        if isinstance(each, ScheduleFree):
            each.finish()
    if not all(weight.isfinite().all() for weight in model.parameters()):
        raise NotFinite(f"{way} diverged at rate {rate:g}. Take a lower one.")


def times_adam(found: TunedComparison, way: str) -> Ratio:
    """How many times Adam's mean `way` reaches, with the 95 % interval of the paired
    seeds' differences.
    """
    gain = found.gain(way)
    adams = statistics.fmean(found.accuracies["Adam"])
    value, low, high = (1 + end / adams for end in (gain.value, gain.low, gain.high))
    return Ratio(way, "Adam", value, low, high)
