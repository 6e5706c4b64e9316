"""Walk through a Triton kernel, for all programs and lanes at once."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any

from kerneltrace.proof.polynomial import Polynomial, polynomial, symbol
from kerneltrace.proof.symbols import Sharing
from kerneltrace.proof.verdict import Proof, arguments, only_this_run
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
_MASK = {"load": 1, "store": 2, "atomic_cas": 3}
"""The places of masks among arguments; those of other atomics are the store's."""


class ProgramWalker(Walker):
    """A kernel of programs: a pointer is an array with one index, its offset; a tile's
    number depends on the places of its lane along the axes.
    """

    floors = False
    in_turn = True
    counts_from_end = False

    def __init__(self, grid: Sequence[int]) -> None:
        super().__init__()
        for axis in range(3):
            if axis == 0 or grid[axis] > 1:
                self._program(axis)

    def _program(self, axis: int) -> tuple[Polynomial, Polynomial]:
        """A program's place along an axis, and the number of programs."""
        name = f"program_id({axis})"
        programs = self.symbols.add(f"num_programs({axis})", Sharing.GRID, least=1)
        if name not in self.block_names:
            self.block_names.append(name)
        return self.symbols.add(name, Sharing.BLOCK, programs), programs

    def is_range(self, node: ast.expr) -> bool:
        """Whether a function gives the turns of a loop."""
        return super().is_range(node) or self.built_in(node).endswith("range")

    def built_in(self, node: ast.expr) -> str:
        """`load` for `tl.load`, of Triton or as kerneltrace runs it."""
        scope = self._scopes[-1]
        value = scope.resolve(node)
        if str(getattr(value, "__module__", "")).split(".")[0] == "triton":
            return str(getattr(value, "__name__", ""))
        if not isinstance(node, ast.Attribute):
            return ""
        owner = scope.resolve(node.value)
        is_simulated = isinstance(owner, types.SimpleNamespace)
        is_simulated |= type(owner).__name__ == "Language"
        return node.attr if is_simulated else ""

    def called(
        self, name: str, args: list[Any], words: dict[str, Any], node: ast.Call
    ) -> Any:
        """What a function of Triton gives; its accesses are noted."""
        if name in _MASK or name.startswith("atomic_"):
            self._access(name, args, words, node)
            return UNKNOWN
        if name in _UNCHANGED:
            return args[0]
        if name in ("program_id", "num_programs"):
            axis = args[0] if args else words["axis"]
            if not isinstance(axis, Polynomial) or axis.number is None:
                raise self.refusal(node)
            return self._program(axis.number)[name == "num_programs"]
        if len(args) != 2 or not all(isinstance(arg, Polynomial) for arg in args):
            return None
        if name == "arange":
            size = args[1] - args[0]
            return args[0] + self.symbols.add(f"{_LANE} {size}", Sharing.THREAD, size)
        if name == "cdiv":
            return self.divided(args[0] + args[1] - 1, args[1])[0]
        return None

    def converted(self, node: ast.Call, args: list[Any]) -> Any:
        """What a method of a tile gives: an integer stays the same in another type."""
        dtypes = [ast.unparse(arg).split(".")[-1] for arg in node.args]
        if isinstance(node.func, ast.Attribute) and dtypes in (["int32"], ["int64"]):
            return self.value(node.func.value)
        return UNKNOWN

    def _access(
        self, name: str, args: list[Any], words: Mapping[str, Any], node: ast.Call
    ) -> None:
        pointer = args[0] if args else words.get("pointer", UNKNOWN)
        if not isinstance(pointer, ArrayPart):
            raise self.refusal(node, "the array that the pointer is in isn't known")
        place = _MASK.get(name, 2)
        mask = args[place] if len(args) > place else words.get("mask", UNKNOWN)
        with self._where(mask.true if isinstance(mask, Condition) else ()):
            self.access(name.split("_")[0], pointer, node)

    def operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        """What an operator gives; a sum of a pointer and a number is a pointer."""
        if isinstance(right, ArrayPart) and isinstance(op, ast.Add):
            left, right = right, left
        if isinstance(right, ArrayPart):
            return LOST
        if not isinstance(left, ArrayPart):
            return super().operation(op, left, right)
        sign = {ast.Add: 1, ast.Sub: -1}.get(type(op))
        if sign is None:
            return LOST
        return self._pointer(left, left.index[0] + self._whole(right) * sign)

    def _pointer(self, array: ArrayPart, offset: Polynomial) -> ArrayPart:
        return ArrayPart(array.name, False, array.shape, (offset,))

    def subscript(self, node: ast.Subscript) -> Any:
        """A tile with further axes, [:, None], or a part of a tuple."""
        value = self.value(node.value)
        axes = ast.unparse(node.slice)
        match value:
            case Condition():
                facts = (
                    tuple(self._moved(fact, axes) for fact in path)
                    for path in (value.true, value.false)
                )
                return Condition(value.sharing, *facts)
            case tuple():
                return super().subscript(node)
            case Polynomial():
                return self._moved(value, axes)
            case ArrayPart():
                return self._pointer(value, self._moved(value.index[0], axes))
        return UNKNOWN

    def _moved(self, value: Polynomial, axes: str) -> Polynomial:
        """A value of lanes on other axes, whose names say which: lanes that may be
        others count as others.
        """
        moved = {}
        for name in value.names:
            if self.symbols.sharing[name] == Sharing.THREAD:
                least = None if name in self.symbols.signed else 0
                other = f"{name}[{axes}]"
                moved[name] = self.symbols.add(other, Sharing.THREAD, least=least)
                if name.startswith(_LANE):
                    facts = self.symbols.facts[name]
                    self.symbols.facts[other] = tuple(
                        fact.replaced({name: symbol(other)}) for fact in facts
                    )
        return value.replaced(moved)


def program_proof(
    function: types.FunctionType,
    args: Mapping[str, Any],
    arrays: Sequence[str],
    overlapping: Sequence[tuple[str, str]],
    grid: Sequence[int],
) -> Proof:
    """The proof for a Triton kernel called with these arguments, of which some are
    arrays, and some of those share memory.

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
            zero = polynomial(0)
            names[name] = ArrayPart(name, False, (zero,), (zero,))
        elif is_constant or type(value) is not int:
            names[name] = constant(value) if is_constant else UNKNOWN
            constants += [f"{name} = {value}"] if is_constant else []
        else:
            least = None if value < 0 else 0
            names[name] = walker.symbols.add(name, Sharing.GRID, least=least)
            positive += [name] if least == 0 else []
    try:
        walker.walk(function, names)
        reasons = arguments(walker, overlapping)
    except NoArgument as error:
        return only_this_run(error)
    words = "No race between programs, for any data and any grid"
    if constants:
        words += f", with {', '.join(constants)}"
    if positive:
        words += f", and no number below 0 ({', '.join(positive)})"
    return Proof(True, f"{words}.", reasons)
