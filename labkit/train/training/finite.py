"""Find where a NaN came from: train again from the seed up to the step that went wrong, and watch that step.

Watching every step would make the device wait after each. Losses are therefore read once an epoch, and only when one of
them is not finite is the training repeated, with the same seed and the same batches. A GPU may add numbers in another
order the second time; the message says so where everything stays finite then.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from labkit.core.errors import NotFinite
from labkit.train.training.batches import Batches, Step


def bad_parameter(model: nn.Module) -> str:
    """Return the name of the first parameter that holds NaN or an infinity, "" where all are finite.

    All parameters are judged with one wait for the device.
    """
    named = [(name, part) for name, part in model.named_parameters() if part.is_floating_point()]
    if not named:
        return ""
    finite = torch.stack([part.detach().isfinite().all() for _, part in named]).tolist()
    return next((name for (name, _), good in zip(named, finite, strict=True) if not good), "")


def explain(
    begin: Callable[[], tuple[nn.Module, Step]], batches: Batches, losses: Sequence[float], at: int
) -> NotFinite:
    """Return the error for step number `at` (from 0), whose loss, or a weight after it, is not finite.

    `begin` seeds, and returns a new model and its step.
    """
    model, step = begin()
    rows = itertools.chain.from_iterable(batches.epochs())
    for now in itertools.islice(rows, at):
        step(batches.images[now], batches.labels[now])
    now = next(rows)
    images, labels = batches.images[now], batches.labels[now]
    where = f"step {at + 1} (seed {batches.seed}, batch {batches.batch})"
    loss = losses[at]
    what = f"The loss of {where} is {loss}" if not math.isfinite(loss) else f"Weights are not finite after {where}"
    return NotFinite(f"{what}: {_cause(model, step, images, labels, losses, at)}")


def _cause(model: nn.Module, step: Step, images: Tensor, labels: Tensor, losses: Sequence[float], at: int) -> str:
    if words := _word(images):
        return f"the batch itself holds {words}. Check the data and what prepares them."
    if name := bad_parameter(model):
        return (
            f"the parameter {name} was not finite even before that step, so step {at} made it so; "
            f"{_history(losses, at)}."
        )
    # Compiled models have to run as they were written, as their hooks do then. Where nothing was compiled, even asking
    # torch.compiler for that would load the compiler, which takes seconds.
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with _first_bad_output(model) as found, eager:
        again = step(images, labels)
    if found:
        return f"{found[0]}; {_history(losses, at)}."
    if _word(again):
        return "every layer's output is finite, so it arose after the last layer, in the loss: log of 0, or 0 / 0?"
    if name := bad_parameter(model):
        gradient = model.get_parameter(name).grad
        size = "not kept" if gradient is None else _word(gradient) or f"finite, up to {_largest([gradient])}"
        return (
            f"the loss and every layer's output are finite, but the update made {name} NaN or infinite: "
            f"its gradient was {size}; {_history(losses, at)}."
        )
    return (
        "repeated from the same seed, all was finite. Did the GPU add in another order, or does the step depend on "
        "something outside of setup()? Train from other seeds and with a lower learning rate."
    )


@contextmanager
def _first_bad_output(model: nn.Module) -> Iterator[list[str]]:
    """Within the block, put a sentence about the first module whose output is not finite into the list."""
    found: list[str] = []

    def hook_of(name: str) -> Any:
        def hook(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            word = "" if found or not isinstance(output, Tensor) else _word(output)
            if word:
                of = f"layer {name} ({type(module).__name__})" if name else f"the model ({type(module).__name__})"
                sizes = f"its largest input was {_largest(given)}, its largest weight {_largest(module.parameters())}"
                found.append(f"the output of {of} is the first that holds {word}; {sizes}")

        return hook

    hooks = [module.register_forward_hook(hook_of(name)) for name, module in model.named_modules()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _largest(parts: Iterable[Any]) -> str:
    """Return the largest absolute value in all floating-point tensors among the parts, "none" where there are none."""
    floats = (part for part in parts if isinstance(part, Tensor) and part.is_floating_point() and part.numel())
    found = [float(part.detach().abs().max()) for part in floats]
    return f"{max(found):.3g}" if found else "none"


def _word(tensor: Tensor) -> str:
    """Return "NaN" or "infinity" where a tensor holds it, else ""."""
    if not tensor.is_floating_point():
        return ""
    return "NaN" if bool(tensor.isnan().any()) else "infinity" if bool(tensor.isinf().any()) else ""


def _history(losses: Sequence[float], at: int) -> str:
    """Describe the loss before step `at`; growth points to the learning rate."""
    if at == 0:
        return "it is the first step"
    first, last = losses[0], losses[at - 1]
    words = f"the loss was {first:.3g} in step 1" + (f" and {last:.3g} in step {at}" if at > 1 else "")
    return f"{words}, so the learning rate may be too high" if max(losses[:at]) > 10 * first else words
