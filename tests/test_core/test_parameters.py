"""The door of public functions: what annotations take, what becomes of it, and what the
refusal says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest
import torch as installed_torch

from labkit.core.errors import BadArgument, LayoutError
from labkit.core.kinds import Items, Number
from labkit.core.parameters import AnyNumber, Count, Dtype, Positive, Share, checked

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Thing:
    """An instance to ask for."""

    size: int = 1


@checked
def gets(
    count: Count = 1,
    n_bytes: Positive = 1.0,
    *,
    share: Share = 0.5,
    any_number: AnyNumber = 0.0,
    between: Annotated[int, Number(least=2, most=3, advice="Two or three.")] = 2,
    text: str = "",
    flag: bool = True,
    path: Path | None = None,
    dtype: Dtype = "float32",
    choice: Literal["ring", "tree"] = "ring",
    numbers: Sequence[Positive] = (),
    some: Annotated[Iterable[str], Items(2)] = ("a", "b"),
    pair: tuple[int, float] = (1, 1.0),
    named: Mapping[str, Positive] = {},  # never changed
    fn: Callable[[int], object] | None = None,
    thing: Thing | str = "",
    tensor: Tensor | None = None,
    model: nn.Module | None = None,
    anything: Any = None,
) -> dict[str, Any]:
    """Its arguments."""
    return locals()


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("count", np.int32(7), 7),
        ("count", installed_torch.tensor(7), 7),
        ("n_bytes", np.float32(2), 2.0),
        ("n_bytes", 3, 3),
        ("any_number", float("inf"), float("inf")),
        ("flag", np.bool_(False), False),
        ("path", "a/b", Path("a/b")),
        ("dtype", installed_torch.bfloat16, "bfloat16"),
        ("dtype", np.float32, "float32"),
        ("dtype", np.dtype("float64"), "float64"),
        ("dtype", "torch.float32", "float32"),
        ("numbers", np.array([1.0, 2.0]), (1.0, 2.0)),
        ("numbers", (n for n in (1, 2)), (1, 2)),
        ("pair", [np.int64(2), 0.5], (2, 0.5)),
        ("named", {"a": np.float64(2)}, {"a": 2.0}),
        ("fn", None, None),
        ("thing", "its name", "its name"),
    ],
)
def test_what_is_taken(name, value, taken):
    found = gets(**{name: value})[name]
    assert found == taken
    assert type(found) is type(taken)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", 0, "Expected count to be a whole number of at least 1, got 0."),
        ("count", True, "Expected count to be a whole number of at least 1, got True."),
        (
            "n_bytes",
            float("nan"),
            "Expected n_bytes to be a finite number above 0, got nan. It is in bytes.",
        ),
        ("n_bytes", 10**400, "within 1e-30 and 1e30"),
        ("n_bytes", 5e-324, "within 1e-30 and 1e30"),
        ("n_bytes", np.ma.masked, "finite number above 0, got masked"),
        (
            "share",
            97,
            "a finite number from 0 to 1, got 97. It is a share: write 0.97 for 97 %.",
        ),
        ("any_number", "1", "Expected any_number to be a number, got '1'."),
        ("between", 4, "a whole number from 2 to 3, got 4. Two or three."),
        ("text", "\ud800", r"text that UTF-8 can hold, got '\ud800'"),
        ("flag", 1, "True or False, got 1"),
        ("path", "a\0b", "a path without NUL"),
        ("dtype", 32, "got 32"),
        (
            "choice",
            "rings",
            "one of 'ring', 'tree', got 'rings'. The nearest is 'ring'.",
        ),
        ("numbers", "12", "a list, got '12'. For one of them, write it in brackets."),
        (
            "numbers",
            [1.0, -1.0],
            "Expected numbers[1] to be a finite number above 0, got -1.0.",
        ),
        ("some", ["a"], "a list of at least 2 items, got ['a']"),
        ("pair", [1], "(a whole number, a finite number), got [1]"),
        (
            "named",
            {"a": "b"},
            "Expected named['a'] to be a finite number above 0, got 'b'",
        ),
        ("named", {1: 2.0}, "a dict whose keys are text, got 1"),
        (
            "fn",
            "name",
            (
                "a function of 1 argument or None, got 'name'. Pass its name without"
                " brackets."
            ),
        ),
        ("fn", lambda: None, "This one has none."),
        ("thing", Thing, "a Thing or text, got <class"),
        (
            "tensor",
            installed_torch.ones(2, device="meta"),
            "a dense tensor with values or None, got Tensor of shape",
        ),
        ("model", 5, "a Module or None, got 5"),
    ],
)
def test_what_is_refused(name, value, message):
    with pytest.raises(BadArgument) as caught:
        gets(**{name: value})
    assert message in str(caught.value)


def test_positions_other_names_and_further_arguments():
    @checked
    def f(count: Count, *more: Positive, **named: Share) -> object:
        return count, more, named

    assert f(np.int8(1), np.float32(2), a=1) == (1, (2.0,), {"a": 1})
    for args, named in (((0,), {}), ((1, -1), {}), ((1,), {"a": 2})):
        with pytest.raises(BadArgument, match=r"Expected (count|more|a) to be"):
            f(*args, **named)
    with pytest.raises(
        TypeError, match="missing 1 required positional argument: 'count'"
    ):
        f()


def test_a_class_a_method_a_block_and_another_error():
    @checked(error=LayoutError)
    @dataclass(frozen=True)
    class Sized:
        gpus: Count

        @checked
        def times(self, n: Count) -> int:
            return self.gpus * n

    @checked
    @contextlib.contextmanager
    def block(n: Count) -> Iterator[int]:
        yield n

    assert Sized(np.int32(10**6)).times(np.int32(10**6)) == 10**12
    with pytest.raises(LayoutError, match="Expected gpus to be"):
        Sized(0)
    with pytest.raises(BadArgument, match="Expected n to be"):
        block(0)  # not only where the block is entered
    with block(2) as n:
        assert n == 2
