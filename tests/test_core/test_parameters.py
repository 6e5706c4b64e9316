"""The door of public functions: what annotations take, what the refusal says, and what
it costs.
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

from labkit.core.arguments import dtype_name
from labkit.core.errors import BadArgument
from labkit.core.parameters import (
    AnyNumber,
    Array,
    Count,
    Dtype,
    Items,
    Number,
    Positive,
    Share,
    checked,
)
from trainplan.errors import LayoutError

if TYPE_CHECKING:
    from torch import nn


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
    array: Array = (),
    choice: Literal["ring", "tree"] = "ring",
    numbers: Sequence[Positive] = (),
    some: Annotated[Iterable[str], Items(2)] = ("a", "b"),
    pair: tuple[int, float] = (1, 1.0),
    named: Mapping[str, Positive] = {},  # never changed
    fn: Callable[[int], object] | None = None,
    thing: Thing | str = "",
    model: installed_torch.nn.Module | None = None,
    for_type_checkers: nn.Module | None = None,
    anything: Any = None,
) -> dict[str, Any]:
    """Its arguments."""
    return locals()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", np.int32(7)),
        ("n_bytes", np.float32(2)),
        ("n_bytes", 3),
        ("any_number", float("inf")),
        ("any_number", float("nan")),
        ("flag", np.bool_(False)),
        ("path", "a/b"),
        ("dtype", installed_torch.bfloat16),
        ("dtype", np.float32),
        ("dtype", np.dtype("float64")),
        ("dtype", "torch.float32"),
        ("array", [[1, 2], [3, 4]]),
        ("array", installed_torch.ones(2, requires_grad=True)),
        ("numbers", np.array([1.0, 2.0])),
        ("pair", [np.int64(2), 0.5]),
        ("named", {"a": np.float64(2)}),
        ("fn", None),
        ("fn", len),
        ("thing", "its name"),
        ("for_type_checkers", 5),
    ],
)
def test_what_is_taken(name, value):
    assert gets(**{name: value})[name] is value


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (installed_torch.bfloat16, "bfloat16"),
        (np.float32, "float32"),
        (np.dtype("float64"), "float64"),
        ("torch.float32", "float32"),
    ],
)
def test_the_name_of_a_dtype(dtype, name):
    assert dtype_name(dtype) == name


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
        ("n_bytes", None, "finite number above 0, got None. It is in bytes."),
        ("n_bytes", float("inf"), "finite number above 0, got inf."),
        (
            "share",
            97,
            "a finite number from 0 to 1, got 97. It is a share: write 0.97 for 97 %.",
        ),
        ("any_number", "1", "Expected any_number to be a number, got '1'."),
        ("between", 4, "a whole number from 2 to 3, got 4. Two or three."),
        ("text", 5, "Expected text to be text, got 5."),
        ("flag", 1, "True or False, got 1"),
        ("path", 5, "a path or None, got 5"),
        ("array", [[1, 2], [3]], "an array or list of numbers, got [[1, 2], [3]]"),
        ("array", ["a"], "an array or list of numbers, got ['a']"),
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
        ("pair", 1, "a list, got 1"),
        (
            "named",
            {"a": "b"},
            "Expected named['a'] to be a finite number above 0, got 'b'",
        ),
        ("named", [2.0], "Expected named to be a dict, got [2.0]."),
        (
            "fn",
            "name",
            (
                "a function of 1 argument or None, got 'name'. Pass its name without"
                " brackets."
            ),
        ),
        ("thing", Thing, "a Thing or text, got <class"),
        ("model", 5, "a Module or None, got 5"),
    ],
)
def test_what_is_refused(name, value, message):
    with pytest.raises(BadArgument) as caught:
        gets(**{name: value})
    assert message in str(caught.value)


def test_positions_other_names_and_further_arguments():
    @checked
    def f(count: Count, *more: Positive, share: Share = 1.0) -> object:
        return count, more, share

    assert f(np.int8(1), 2, 3, share=0) == (1, (2, 3), 0)
    for args, named in (((0,), {}), ((1,), {"share": 2})):
        with pytest.raises(BadArgument, match=r"Expected (count|share) to be"):
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

    assert Sized(10**6).times(10**6) == 10**12
    with pytest.raises(LayoutError, match="Expected gpus to be"):
        Sized(0)
    with pytest.raises(BadArgument, match="Expected n to be"):
        block(0)  # not only where the block is entered
    with block(2) as n:
        assert n == 2
