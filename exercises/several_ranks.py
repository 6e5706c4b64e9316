"""What checks on real ranks share: an answer that fails there, or hangs, becomes a sentence."""

from __future__ import annotations

import dis
import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from labkit.core.display import brief_repr, cut
from labkit.core.errors import LabError, RankFailed
from labkit.lesson.checks import NotYet, Todo

if TYPE_CHECKING:
    from torch import Tensor, nn

TIMEOUT_S = 12.0  # some thirty times what a right answer takes
_LONGEST = 400


def body(answer: object) -> Callable[..., Any]:
    """The answer as a function that has something in it; Todo for an open one, which then needs no launch."""
    if not callable(answer):
        raise NotYet(f"Expected a function, got {brief_repr(answer)}. Pass its name without brackets.")
    if is_open(answer):
        raise Todo(f"{getattr(answer, '__name__', 'It')} returns nothing yet: write its body.")
    return answer


def is_open(fn: object) -> bool:
    """Whether a function calls nothing, and each of its returns gives None: a stub with dots, pass or a docstring."""
    code = getattr(fn, "__code__", None)
    if code is None or code.co_names:
        return False
    steps = list(dis.get_instructions(code))
    returned = [
        step.argval if step.opname == "RETURN_CONST" else before.argval if before.opname == "LOAD_CONST" else fn
        for before, step in itertools.pairwise(steps)
        if step.opname in ("RETURN_VALUE", "RETURN_CONST")
    ]
    return bool(returned) and all(value is None for value in returned)


@contextmanager
def rows_read(model: nn.Module, x: Tensor) -> Iterator[list[list[int]]]:
    """For each batch that the model's first layer takes inside the `with`: the places in x, (n, features), of its rows.

    The first layer's, since a hook of the model itself misses model.forward(x).
    """
    batches: list[list[int]] = []

    def saw(_: Any, inputs: tuple[Any, ...]) -> None:
        batches.append((inputs[0][:, None] == x[None]).all(2).nonzero()[:, 1].tolist())

    with next(model.children()).register_forward_pre_hook(saw):
        yield batches


@functools.cache
def _warm_up() -> None:
    """A kernel's first launch loads torch, which must not count as the answer's time."""
    from labkit.dist import launch

    launch(int, 1)


def on_ranks(observe: Callable[..., Any], ranks: int, *args: Any) -> Any:
    """What `observe(*args)` returns on each of `ranks` gloo ranks of one CPU thread; NotYet where they fail or hang."""
    from labkit.dist import launch

    _warm_up()
    try:
        return launch(observe, ranks, *args, timeout_s=TIMEOUT_S)
    except RankFailed as error:
        lines = str(error).splitlines()
        if "not done after" not in lines[0]:
            raise NotYet(f"On {ranks} ranks: {cut(lines[0], _LONGEST)}") from error
        standing = [line.strip() for line in lines[1:] if line.startswith("  rank")]
        raise NotYet(
            f"On {ranks} ranks it was not done after {TIMEOUT_S:g} s, and was ended. {'; '.join(standing)}. Ranks that "
            "wait for each other never go on: is each message that is awaited sent, each collective called by all?"
        ) from error
    except LabError as error:
        raise NotYet(f"On {ranks} ranks: {error}") from error
