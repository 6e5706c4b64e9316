"""What checks on real ranks share: an answer that fails there, or hangs, becomes a
sentence.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch._C._distributed_c10d import Store

from labkit.core.display import cut
from labkit.core.paths import PACKAGES
from labkit.lesson.checks import NotYet
from labkit.lesson.time_limit import other_limit
from labkit.measure.dist import launch
from ranks.errors import RankFailed

# some thirty times what a right answer takes; more by as many programs as wait for each
# core
TIMEOUT_S = 12.0


@contextmanager
def rows_read(
    model: nn.Module, x: Tensor, *, learning: bool = False
) -> Iterator[list[list[int]]]:
    """For each batch that the model's first layer is given inside the `with`: which
    rows of x, (n, features), it has.

    With `learning`, only batches that record gradients. A hook on the model would miss
    a call of model.forward(x).
    """
    batches: list[list[int]] = []

    def note(_: Any, inputs: tuple[Any, ...]) -> None:
        batch = inputs[0]
        # inside torch.func.vmap or grad
        while functorch.is_functorch_wrapped_tensor(batch):
            batch = functorch.get_unwrapped(batch)
        if torch.is_grad_enabled() or not learning:
            batches.append(
                (batch.reshape(-1, 1, x.shape[1]) == x[None])
                .all(2)
                .nonzero()[:, 1]
                .tolist()
            )

    with next(model.children()).register_forward_pre_hook(note):
        yield batches


def on_ranks(
    answer: Any,
    observe: Callable[[Any, int, int], Any],
    cases: Sequence[int],
    ranks: Sequence[int],
) -> Iterator[tuple[int, list[Any]]]:
    """For each number of ranks and each case: the case, and what observe(answer, case,
    seed) returned on each rank.

    The ranks use gloo on one CPU thread each, and are launched once for all cases. The
    seed is the same on every rank and differs from case to case and from call to call.
    NotYet says where the answer failed or hung.
    """
    for n in ranks:
        results = _launched(
            n, _observe_cases, answer, observe, tuple(cases), time_ns() % 2**31
        )
        for i, case in enumerate(cases):
            yield case, [results[rank][i] for rank in range(n)]


def _observe_cases(
    answer: Any,
    observe: Callable[[Any, int, int], Any],
    cases: Sequence[int],
    seed: int,
) -> list[Any]:
    """Runs on each rank."""
    dist.init_process_group("gloo")
    _close_store()
    dist.all_reduce = functools.partial(_all_reduce, dist.all_reduce)
    results = []
    for case in cases:
        results.append(observe(answer, case, seed + case))
        dist.barrier()  # no message of this case may be taken for one of the next
    return results


def _all_reduce(
    real: Callable[..., Any], *args: Any, async_op: bool = False, **kwargs: Any
) -> Any:
    return (
        _Later(functools.partial(real, *args, async_op=True, **kwargs))
        if async_op
        else real(*args, **kwargs)
    )


class _Later:
    """An asynchronous all-reduce that starts when it is first asked for anything, such
    as wait().

    So an answer that never waits is always wrong, not only where the others are slow.
    """

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start

    @functools.cached_property
    def _work(self) -> Any:
        return self._start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _close_store() -> None:
    """Make an answer's own calls of a store raise: numbers are to go by messages, which
    checks count.
    """
    for name, method in list(vars(Store).items()):
        if callable(method) and not name.startswith("_"):
            setattr(Store, name, _only_for_torch(name, method))


def _only_for_torch(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"].partition(".")[0] not in (
            "torch",
            *PACKAGES,
        ):
            raise RuntimeError(
                f"store.{name}: here ranks exchange numbers through torch.distributed's"
                " messages only"
            )
        return method(*args, **kwargs)

    return called


@functools.cache
def _warm_up() -> None:
    """Launch once for nothing: a kernel's first launch loads torch, which must not
    count as the answer's time.
    """
    with other_limit():
        launch(int, 1)


def _launched(ranks: int, fn: Callable[..., Any], *args: Any) -> Any:
    """What `fn(*args)` returns on each rank; NotYet where one fails, or hangs for
    TIMEOUT_S (longer if busy).
    """
    _warm_up()
    limit_s = TIMEOUT_S * min(
        max(psutil.getloadavg()[0] / (psutil.cpu_count() or 1), 1), 10
    )
    try:
        with other_limit():
            return launch(fn, ranks, *args, timeout_s=limit_s)
    except RankFailed as error:
        lines = str(error).splitlines()
        if "not done after" not in lines[0]:
            raise NotYet(f"On {ranks} ranks: {cut(lines[0], 400)}") from error
        waiting = [line.strip() for line in lines[1:] if line.startswith("  rank")]
        raise NotYet(
            f"On {ranks} ranks it was not done after {limit_s:.0f} s, and was stopped."
            f" {'; '.join(waiting)}. Ranks that wait for each other never go on: is"
            " every message that a rank waits for sent, and does every rank call each"
            " collective?"
        ) from error
    except (TypeError, ValueError) as error:
        raise NotYet(f"On {ranks} ranks: {error}") from error
