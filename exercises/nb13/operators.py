"""The check of notebook 13's two conjugate operators, on two and on three real ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from exercises.several_ranks import is_open, on_ranks
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo

_SHAPE = (3, 4)


def operators(answer: object) -> str:
    """(Copy, Sum), two autograd functions, judged by what goes into them and comes out on every rank."""
    pair = _pair(answer)
    for ranks in (2, 3):
        seen = on_ranks(_observe, ranks, pair)
        for rank in range(ranks):
            _judge(seen[rank], [seen[r] for r in range(ranks)], f"On rank {rank} of {ranks}: ")
    return "On two and on three ranks: each passes one way what the other adds up, and neither changes its input."


def _pair(answer: object) -> tuple[Any, Any]:
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        raise NotYet(f"Expected (Copy, Sum), the two classes, got {brief_repr(answer)}.")
    for name, one in zip(("Copy", "Sum"), answer, strict=True):
        if not isinstance(one, type) or not issubclass(one, torch.autograd.Function):
            raise NotYet(f"Expected {name} to be a class made of torch.autograd.Function, got {brief_repr(one)}.")
        for part in ("forward", "backward"):
            if getattr(one, part) is getattr(torch.autograd.Function, part):
                raise Todo(f"{name} has no {part} yet.")
            if is_open(getattr(one, part)):
                raise Todo(f"{name}.{part} returns nothing yet.")
    return answer[0], answer[1]


def _observe(pair: tuple[Any, Any]) -> dict[str, Tensor]:
    """What both operators give on this rank, beside what went in. Runs on each rank."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    copy, total = pair
    same = torch.Generator().manual_seed(5)
    own = torch.Generator().manual_seed(50 + dist.get_rank())

    def drawn(generator: torch.Generator) -> Tensor:
        return torch.randn(_SHAPE, generator=generator, dtype=torch.float64)

    seen: dict[str, Tensor] = {}
    for name, operator, generator in (("Copy", copy, same), ("Sum", total, own)):
        x = drawn(generator).requires_grad_()
        gradient = drawn(own)
        seen[f"{name} in"], seen[f"{name} gradient in"] = x.detach().clone(), gradient.clone()
        y = operator.apply(x)
        seen[f"{name} out"] = _kept(y, f"{name}'s forward")
        seen[f"{name} in after"] = x.detach().clone()
        y.backward(gradient)
        seen[f"{name} gradient out"] = _kept(x.grad, f"{name}'s backward")
        seen[f"{name} gradient in after"] = gradient.clone()
        if not torch.equal(gradient, seen[f"{name} gradient in"]):
            continue  # what writes to its gradient would hang below
        # a sum hands all elements of its gradient one place in memory, which no collective can write to
        x = drawn(generator).requires_grad_()
        operator.apply(x).sum().backward()
        seen[f"{name} gradient of a sum"] = _kept(x.grad, f"{name}'s backward")
    return seen


def _kept(value: Any, what: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{what} returns {value!r}, and no tensor")
    if tuple(value.shape) != _SHAPE:
        raise ValueError(f"{what} gives a tensor of {tuple(value.shape)} for one of {_SHAPE}")
    return value.detach().clone()


# what goes wrong most often, and why it is wrong: operator and pass -> words for the sum, the own part, the mean
_WRONG = {
    ("Copy", "forward"): {
        "sum": "adds up the inputs, which are the same on all ranks. It passes its input on, no more.",
    },
    ("Copy", "backward"): {
        "own": "passes this rank's gradient only. Every rank used the input for its own columns, so the gradients of "
        "all ranks have to be added up.",
        "mean": "gives the mean over ranks. The ranks hold parts of one sum: nothing is divided.",
    },
    ("Sum", "forward"): {
        "own": "passes this rank's part on. The result is the sum of all ranks' parts.",
        "mean": "gives the mean over ranks. The ranks hold parts of one sum.",
    },
    ("Sum", "backward"): {
        "sum": "adds up gradients. Each rank's part enters the sum with factor 1, so its gradient is the same.",
        "mean": "gives the mean over ranks. Each rank's part enters the sum with factor 1.",
    },
}


def _judge(seen: dict[str, Tensor], everyone: list[dict[str, Tensor]], where: str) -> None:
    ranks = len(everyone)
    for (name, way), words in _WRONG.items():
        what = f"{name} gradient" if way == "backward" else name
        own, total = seen[f"{what} in"], torch.stack([one[f"{what} in"] for one in everyone]).sum(0)
        candidates = {"own": own, "sum": total, "mean": total / ranks}
        right = total if (name, way) in (("Copy", "backward"), ("Sum", "forward")) else own
        wrong = [(candidates[kind], text) for kind, text in words.items()]
        _compare(f"{where}{name}'s {way}", seen[f"{what} out"], right, wrong)
    _untouched(seen, where)
    for name, factor in (("Copy", ranks), ("Sum", 1)):
        found = seen[f"{name} gradient of a sum"]
        _compare(f"{where}{name}'s backward, where all gradients are 1,", found, torch.full_like(found, factor), [])


def _untouched(seen: dict[str, Tensor], where: str) -> None:
    for name, what, why in (
        ("Copy", "in", "input"),
        ("Sum", "in", "input"),
        ("Copy", "gradient in", "gradient that it was given"),
        ("Sum", "gradient in", "gradient that it was given"),
    ):
        if not torch.equal(seen[f"{name} {what}"], seen[f"{name} {what} after"]):
            raise NotYet(
                f"{where}{name} has changed the {why}: dist.all_reduce writes into its tensor, which others still use, "
                "a residual connection for one. Give it a clone."
            )


def _compare(what: str, found: Tensor, right: Tensor, wrong: list[tuple[Tensor, str]]) -> None:
    if torch.allclose(found, right, rtol=1e-9, atol=1e-12):
        return
    for value, words in wrong:
        if torch.allclose(found, value, rtol=1e-9, atol=1e-12):
            raise NotYet(f"{what} {words}")
    error = (found - right).abs().max().item()
    raise NotYet(f"{what} is off by up to {error:.3g}.")
