"""Walk through a Triton kernel, for all programs and lanes at once."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerneltrace.proof.polynomial import Polynomial, polynomial
from kerneltrace.proof.symbols import Sharing
from kerneltrace.proof.verdict import ONLY_THIS_RUN, Proof, Unproven, arguments
from kerneltrace.proof.walker import (
    LOST,
    UNKNOWN,
    ArrayPart,
    Condition,
    NoArgument,
    Walker,
    constant,
)

_LANE = "lane"
_UNCHANGED = ("multiple_of", "max_contiguous", "constexpr", "max_constancy")
_MASK = {"load": 1, "store": 2}
"""The places of masks among arguments; those of atomics are the store's."""


class ProgramWalker(Walker):
    """A kernel of programs: a pointer is an array with one index, its offset; a tile's
    number depends on the places of its lane along the axes, counted from the last.
    """

    floors = False
    in_turn = True
    counts_from_end = False

    def __init__(self, grid: Sequence[int]) -> None:
        super().__init__()
        self.block_names = [
            f"program_id({axis})" for axis in range(3) if grid[axis] > 1
        ]
        self._program(0)

    def _program(self, axis: int) -> tuple[Polynomial, Polynomial]:
        """A program's place along an axis, and the number of programs."""
        name = f"program_id({axis})"
        programs = self.symbols.add(f"num_programs({axis})", Sharing.GRID, least=1)
        place = self.symbols.add(name, Sharing.BLOCK)
        self.symbols.facts[name] = (programs - 1 - place,)
        if name not in self.block_names:
            self.block_names.append(name)
        return place, programs

    def is_range(self, node: ast.expr) -> bool:
        """Whether a function gives the turns of a loop."""
        return super().is_range(node) or self._builtin(node) in (
            "range",
            "static_range",
        )

    def _builtin(self, node: ast.expr) -> str:
        """The name of a function of Triton; "" for any other."""
        scope = self._scopes[-1]
        value = scope.resolve(node)
        if str(getattr(value, "__module__", "")).startswith("triton."):
            name = getattr(value, "__name__", "")
            return (
                name
                if not hasattr(value, "fn") or "language" in value.__module__
                else ""
            )
        if isinstance(node, ast.Attribute):
            owner = scope.resolve(node.value)
            is_module = isinstance(owner, types.ModuleType | types.SimpleNamespace)
            name = getattr(owner, "__name__", "triton")
            if type(owner).__name__ == "Language" or (
                is_module and name.startswith("triton")
            ):
                return node.attr
        return ""

    def attribute(self, node: ast.Attribute) -> Any:
        """The value of a dotted name."""
        if node.attr in ("dtype", "shape", "type") or self._builtin(node):
            return UNKNOWN
        return super().attribute(node)

    def call(self, node: ast.Call) -> Any:
        """What a call gives; its accesses are noted."""
        args = [self.value(arg) for arg in node.args]
        keywords = {str(word.arg): self.value(word.value) for word in node.keywords}
        name = self._builtin(node.func)
        if name in _MASK or name.startswith("atomic_"):
            self._access(name, args, keywords, node)
            return UNKNOWN
        function = None if name else self._scopes[-1].device_function(node.func)
        if function:
            bound = inspect.signature(function).bind(*args, **keywords)
            return self.walk(function, dict(bound.arguments))
        if name in _UNCHANGED:
            return args[0]
        if any(
            isinstance(arg, ArrayPart) or arg is LOST
            for arg in [*args, *keywords.values()]
        ):
            raise self._refuse(node, f"{ast.unparse(node.func)} isn't followed")
        if name:
            return self._of_triton(name, args, keywords)
        if isinstance(node.func, ast.Attribute):
            return self._method(node)
        built_in = self._scopes[-1].resolve(node.func)
        if built_in in (min, max):
            return self._of_triton(f"{built_in.__name__}imum", args, keywords)
        return UNKNOWN

    def _method(self, node: ast.Call) -> Any:
        """What a method of a tile gives: an integer stays the same in another type."""
        assert isinstance(node.func, ast.Attribute)
        owner = self.value(node.func.value)
        to = ast.unparse(node.args[0]).split(".")[-1] if node.args else ""
        if node.func.attr == "to" and to in ("int32", "int64"):
            return owner
        if isinstance(owner, ArrayPart):
            raise self._refuse(node, f"{ast.unparse(node.func)} isn't followed")
        return UNKNOWN

    def _of_triton(
        self, name: str, args: list[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """What a function of numbers gives."""
        if name in ("program_id", "num_programs"):
            axis = args[0] if args else keywords.get("axis", UNKNOWN)
            if not isinstance(axis, Polynomial) or axis.number is None:
                raise NoArgument(f"the axis of {name} isn't known")
            return self._program(axis.number)[name == "num_programs"]
        is_whole = bool(args) and all(isinstance(arg, Polynomial) for arg in args)
        if not is_whole or keywords:
            return UNKNOWN
        if name == "arange" and len(args) == 2:
            return args[0] + self._lane(1, args[1] - args[0])
        if name == "cdiv" and len(args) == 2:
            return self._divided(args[0] + args[1] - 1, args[1])[0]
        if name in ("minimum", "maximum"):
            return self.symbols.extreme(
                "least" if name == "minimum" else "greatest", args
            )
        return UNKNOWN

    def _lane(self, axis: int, size: Polynomial) -> Polynomial:
        """A lane's place along an axis, 1 for the last one. Numbers that meet in an
        expression have axes of one size.
        """
        name = f"{_LANE} {axis} {sorted(size.terms.items())}"
        lane = self.symbols.add(name, Sharing.THREAD)
        self.symbols.facts[name] = (size - 1 - lane,)
        return lane

    def _access(
        self, name: str, args: list[Any], keywords: Mapping[str, Any], node: ast.Call
    ) -> None:
        pointer = args[0] if args else keywords.get("pointer", UNKNOWN)
        if not isinstance(pointer, ArrayPart):
            raise self._refuse(node, "the array that the pointer is in isn't known")
        place = _MASK.get(name, 2)
        mask = args[place] if len(args) > place else keywords.get("mask", UNKNOWN)
        if name == "atomic_cas" or not isinstance(mask, Condition):
            mask = Condition(Sharing.GRID)
        with self._where(mask.true, mask.true_zero):
            self.access(name if name in _MASK else "atomic", pointer, node)

    def _operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(right, ArrayPart) and isinstance(op, ast.Add):
            left, right = right, left
        if not isinstance(left, ArrayPart):
            return super()._operation(op, left, right)
        if not isinstance(op, ast.Add | ast.Sub) or isinstance(right, ArrayPart):
            return LOST
        if not isinstance(right, Polynomial):
            right = self.symbols.fresh("data", Sharing.THREAD, least=None)
        offset = left.index[0] + (right if isinstance(op, ast.Add) else -right)
        return ArrayPart(left.name, False, 1, (), (offset,))

    def _loaded_value(self, node: ast.Subscript) -> Any:
        value = self.value(node.value)
        if isinstance(value, tuple):
            return super()._loaded_value(node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kept = [
            place for place, part in enumerate(parts) if isinstance(part, ast.Slice)
        ]
        # axes count from the last one
        moved = {
            len(kept) - axis: len(parts) - place for axis, place in enumerate(kept)
        }

        def shaped(number: Polynomial) -> Polynomial | None:
            return self._reshaped(number, moved)

        if isinstance(value, Polynomial):
            return shaped(value) or UNKNOWN
        if isinstance(value, ArrayPart):
            data = self.symbols.fresh("data", Sharing.THREAD, least=None)
            return ArrayPart(
                value.name, False, 1, (), (shaped(value.index[0]) or data,)
            )
        return _mapped(value, shaped) if isinstance(value, Condition) else UNKNOWN

    def _reshaped(
        self, value: Polynomial, moved: Mapping[int, int]
    ) -> Polynomial | None:
        """A value of lanes on other axes; None for what can't be moved there."""
        names = {}
        for name in value.names:
            if self.symbols.sharing[name] < Sharing.THREAD:
                continue
            if not name.startswith(f"{_LANE} "):
                return None
            _, axis, size = name.split(" ", 2)
            if int(axis) not in moved:
                return None
            other = f"{_LANE} {moved[int(axis)]} {size}"
            lane = self.symbols.add(other, Sharing.THREAD)
            self.symbols.facts[other] = tuple(
                fact.replaced({name: lane}) for fact in self.symbols.facts[name]
            )
            names[name] = lane
        return value.replaced(names)


def _mapped(
    test: Condition, change: Callable[[Polynomial], Polynomial | None]
) -> Condition:
    """A condition of changed values, without those that can't be changed."""
    facts = (
        tuple(value for value in map(change, values) if value is not None)
        for values in (test.true, test.true_zero, test.false, test.false_zero)
    )
    return Condition(test.sharing, *facts)


def program_proof(
    function: types.FunctionType,
    args: Mapping[str, Any],
    arrays: Sequence[str],
    grid: Sequence[int],
) -> Proof:
    """The proof for a Triton kernel called with these arguments, of which some are
    arrays.

    It is for any value of a number, but for any that is no less than 0 where this one
    is, and for these values of tl.constexpr.
    """
    walker = ProgramWalker(grid)
    parameters = inspect.signature(function).parameters
    names: dict[str, Any] = {}
    constants = []
    positive = []
    for name, value in args.items():
        is_constant = "constexpr" in str(parameters[name].annotation).lower()
        if name in arrays:
            names[name] = ArrayPart(name, False, 1, (), (polynomial(0),))
        elif is_constant or type(value) is not int:
            names[name] = constant(value) if is_constant else UNKNOWN
            constants += [f"{name} = {value}"] if is_constant else []
        else:
            least = None if value < 0 else 0
            names[name] = walker.symbols.add(name, Sharing.GRID, least=least)
            positive += [name] if least == 0 else []
    try:
        walker.walk(function, names)
        walker.together.clear()  # of lanes of one program: only programs are compared
        reasons = arguments(walker, (), walker.block_names)
    except (NoArgument, Unproven) as error:
        return Proof(False, f"{ONLY_THIS_RUN} {error}".rstrip(".") + ".")
    words = "No race between programs, for any data and any grid"
    if constants:
        words += f", with {', '.join(constants)}"
    if positive:
        words += f", and no number below 0 ({', '.join(positive)})"
    return Proof(True, f"{words}.", tuple(reasons))
