"""Walk through a kernel's Python for all threads at once: values are polynomials, and
what depends on data is unknown.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.proof.polynomial import Polynomial, polynomial
from kerneltrace.proof.symbols import Sharing, Symbols
from kerneltrace.source.kernel_scope import MISSING, KernelScope

UNKNOWN = object()
"""A number that depends on data, or that isn't followed."""
PRIVATE = object()
"""An array of each thread's own, or of constants, and its elements."""
LOST = object()
"""One of several arrays; no expression may use it."""
MAX_DEPTH = 10
"""Of functions that call each other."""

Path = tuple[Polynomial, ...]


class NoArgument(Exception):
    """Something in the kernel that the proof can't follow, or two accesses of which it
    isn't proven that they can't conflict; says its line.
    """


@dataclass(frozen=True)
class ArrayPart:
    """An array, or the part of it that some indices leave."""

    name: str
    is_shared: bool
    shape: tuple[Polynomial, ...]
    """Of the whole array."""
    index: tuple[Polynomial, ...] = ()

    @property
    def is_element(self) -> bool:
        """Whether there is an index for each dimension."""
        return len(self.index) >= len(self.shape)


@dataclass(frozen=True)
class Condition:
    """What holds where a condition is true, and where it is false: values that aren't
    negative.
    """

    sharing: Sharing
    true: Path = ()
    false: Path = ()

    def negated(self) -> Condition:
        """The opposite condition."""
        return Condition(self.sharing, self.false, self.true)

    def both(self, other: Condition) -> Condition:
        """That both hold: where that is false, nothing is known."""
        return Condition(max(self.sharing, other.sharing), self.true + other.true)


class PossibleAccess(NamedTuple):
    """A load, store or atomic of any thread that comes to it."""

    kind: str
    memory: ArrayPart
    line: int
    path: Path
    """Values that aren't negative where it happens."""

    def conflicts(self, other: PossibleAccess) -> bool:
        """Whether the two, if they are to one element, depend on their order."""
        is_same = self.memory.name == other.memory.name
        return is_same and conflict(self.kind, other.kind)


class Loop(NamedTuple):
    """A loop of which any turn is looked at."""

    node: ast.For | ast.While
    head: Callable[[Polynomial], Condition]
    """Begins a turn, of which it gets the number, and says what holds in it."""
    sharing: Sharing
    """Who is in the same turn."""
    before: dict[str, Any]
    steps: dict[str, Polynomial]
    """Variables to which each turn adds the same, and how much."""


class Walker:
    """The statements of Python and the arithmetic of whole numbers; the functions of
    CUDA and Triton are its subclasses'.
    """

    floors = True
    """Whether a division of negative numbers rounds down."""
    in_turn = False
    """Whether loops take their turns for a whole block at once."""
    counts_from_end = True
    """Whether an index below 0 counts from the end."""

    def __init__(self) -> None:
        self.symbols = Symbols()
        self.thread_names: list[str] = []
        """The names that tell a thread within its block."""
        self.block_names: list[str] = []
        self.accesses: list[PossibleAccess] = []
        """Each place of the source, in any turn of its loops."""
        self.together: list[tuple[PossibleAccess, PossibleAccess]] = []
        """Pairs that two threads of a block may do without a barrier in between."""
        self._target_names: dict[ast.expr, str] = {}
        """What an assignment's value is called in the source."""
        self._open: dict[PossibleAccess, None] = {}
        """Accesses since the last barrier, on any way to here."""
        self._path: Path = ()
        self._divergent = 0
        """The line of the branch around, in which only some threads of a block are."""
        self._names: dict[str, Any] = {}
        self._scopes: list[KernelScope] = []
        self._first_line = 1

    # -- functions

    def walk(self, function: types.FunctionType, names: dict[str, Any]) -> Any:
        """Walk through a function whose parameters have these values; what its last
        statement returns.
        """
        if len(self._scopes) >= MAX_DEPTH:
            raise NoArgument(f"{function.__name__} calls itself")
        tree, first = parsed(function)
        before = self._names, self._first_line
        self._names = dict(names)
        self._first_line = first
        self._scopes.append(KernelScope(function, tree))
        *body, last = tree.body
        with self._where():
            self._block(body)
            if isinstance(last, ast.Return) and last.value:
                result = self.value(last.value)
            else:
                result = UNKNOWN
                self._statement(last)
        self._scopes.pop()
        self._names, self._first_line = before
        return result

    def _line(self, node: ast.AST) -> int:
        return self._first_line + getattr(node, "lineno", 1) - 1

    def refusal(self, node: ast.AST, words: str = "") -> NoArgument:
        """The error for a part of the kernel, by default that it isn't followed."""
        words = words or f"{ast.unparse(node).splitlines()[0]} isn't followed"
        return NoArgument(f"line {self._line(node)}: {words}")

    @contextmanager
    def _where(self, facts: Path = (), divergent: int = 0) -> Iterator[None]:
        """Take some facts to hold inside of the block."""
        before = self._path, self._divergent
        self._path += facts
        self._divergent = self._divergent or divergent
        yield
        self._path, self._divergent = before

    def _holds(self, value: Polynomial) -> bool:
        """Whether a value is at least 0 here."""
        return self.symbols.is_nonnegative(value, self._path)

    # -- accesses

    def access(self, kind: str, memory: ArrayPart, node: ast.AST) -> None:
        """Note an access to an element of an array."""
        access = PossibleAccess(kind, memory, self._line(node), self._path)
        self._open[access] = None
        self.together += [
            (other, access) for other in self._open if access.conflicts(other)
        ]
        self.accesses.append(access)

    def barrier(self, node: ast.AST) -> None:
        """All threads of a block meet."""
        if self._divergent:
            words = "only some threads may come to this barrier, by line"
            raise self.refusal(node, f"{words} {self._divergent}")
        self._open = {}

    def is_barrier(self, node: ast.AST | None) -> bool:
        """Whether an expression is one."""
        return False

    # -- statements

    def _block(self, statements: Sequence[ast.stmt]) -> bool:
        """Walk through statements; whether no thread comes to their end."""
        return any(self._statement(statement) for statement in statements)

    def _statement(self, node: ast.stmt) -> bool:
        """Walk through a statement; whether no thread comes to its end."""
        match node:
            case ast.If():
                return self._if(node)
            case ast.For(orelse=[]):
                self._for(node)
            case ast.While(orelse=[]):
                self._loop(node, lambda turn: self.test(node.test))
            case ast.Return(None) if len(self._scopes) == 1:
                return True
            case _:
                self._simple(node)
        return False

    def _simple(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                self._target_names[node.value] = ast.unparse(node.targets[0])
                value = self.value(node.value)
                for target in node.targets:
                    self._assign(target, value)
            case ast.AugAssign():
                old = self.value(node.target)
                value = self.operation(node.op, old, self.value(node.value))
                self._assign(node.target, value)
            case ast.Expr():
                self.value(node.value)
            case ast.Pass():
                pass
            case _:
                raise self.refusal(node)

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name():
                self._names[target.id] = value
            case ast.Tuple():
                unknown = (UNKNOWN,) * len(target.elts)
                parts = value if isinstance(value, tuple) else unknown
                for part, element in zip(target.elts, parts, strict=True):
                    self._assign(part, element)
            case ast.Subscript():
                memory = self._element(target)
                if isinstance(memory, ArrayPart) and memory.is_element:
                    self.access("store", memory, target)
                elif memory is not PRIVATE:
                    raise self.refusal(target)
            case _:
                raise self.refusal(target)

    def _if(self, node: ast.If) -> bool:
        test = self.test(node.test)
        if any((fact.number or 0) < 0 for fact in test.true):
            return self._block(node.orelse)
        if any((fact.number or 0) < 0 for fact in test.false):
            return self._block(node.body)
        divergent = self._line(node) if test.sharing > Sharing.BLOCK else 0
        names = dict(self._names)
        before = self._open
        self._open = dict(before)
        with self._where(test.true, divergent):
            ended = self._block(node.body)
            self._names, names = names, self._names
        after = self._open
        self._open = before | after
        with self._where(test.false, divergent):
            ended_else = self._block(node.orelse)
        self._open = after | self._open
        if ended != ended_else:
            self._path += test.false if ended else test.true
            self._names = self._names if ended else names
        else:
            self._names = {
                name: _either(names.get(name, UNKNOWN), self._names.get(name, UNKNOWN))
                for name in names | self._names
            }
        return ended and ended_else

    # -- loops

    def _for(self, node: ast.For) -> None:
        calls = node.iter
        if not isinstance(calls, ast.Call) or not self.is_range(calls.func):
            raise self.refusal(node, "a loop over something else than range")
        numbers = [self._whole(self.value(arg)) for arg in calls.args]
        if len(numbers) == 1:
            numbers = [polynomial(0), *numbers]
        start, stop, step = (*numbers, polynomial(1))[:3]

        def head(turn: Polynomial) -> Condition:
            value = start + step * turn
            self._assign(node.target, value)
            facts: Path = ()
            if self._holds(step - 1):
                facts = (stop - 1 - value,)
            elif self._holds(-step - 1):
                facts = (value - stop - 1,)
            return Condition(self.symbols.shared_by(start, stop, step), facts)

        self._loop(node, head)
        self._assign(node.target, UNKNOWN)

    def _whole(self, value: Any) -> Polynomial:
        """A value as a whole number, which may depend on data."""
        if isinstance(value, Polynomial):
            return value
        return self.symbols.fresh("data", Sharing.THREAD, least=None)

    def is_range(self, node: ast.expr) -> bool:
        """Whether a function gives the turns of a loop."""
        return self._scopes[-1].resolve(node) is range

    def _loop(
        self, node: ast.For | ast.While, head: Callable[[Polynomial], Condition]
    ) -> None:
        """Any number of turns: what is taken to hold at the beginning of one is
        weakened until it holds at its end.
        """
        # all threads of a block are in the same turn, if each turn has a barrier
        syncs = any(self.is_barrier(getattr(part, "value", None)) for part in node.body)
        sharing = Sharing.BLOCK if syncs or self.in_turn else Sharing.THREAD
        changed = _assigned([node]) & set(self._names)
        steps = self._steps(node.body, changed)
        loop = Loop(node, head, sharing, dict(self._names), steps)
        least = dict.fromkeys(changed - steps.keys(), 1)
        least = self._least(loop, least)
        opened = dict(self._open)
        before = len(self.accesses), len(self.together)
        while True:
            turn = self.symbols.fresh("turn", sharing)
            weaker = self._turn(loop, least, turn)
            if weaker == least:
                break
            least = weaker
            del self.accesses[before[0] :], self.together[before[1] :]
            self._open = dict(opened)
        if syncs:  # from the last barrier of a turn to the first one of the next
            self._turn(loop, least, turn + 1)
        self._open = opened | self._open
        self._begin(loop, least, self.symbols.fresh("turns", sharing))

    def _steps(
        self, body: Sequence[ast.stmt], changed: set[str]
    ) -> dict[str, Polynomial]:
        """Variables to which each turn adds the same, and how much."""

        def varies(part: ast.AST) -> bool:
            is_changed = isinstance(part, ast.Name) and part.id in changed
            is_read = isinstance(part, ast.Subscript)
            return is_changed or is_read or self.is_barrier(part)

        steps = {}
        for statement in body:
            match statement:
                case ast.AugAssign(ast.Name(name), ast.Add() | ast.Sub() as op, added):
                    pass
                case _:
                    continue
            others = _assigned([other for other in body if other is not statement])
            if name in changed - others and not any(map(varies, ast.walk(added))):
                value = self.value(added)
                if isinstance(value, Polynomial):
                    steps[name] = value if isinstance(op, ast.Add) else -value
        return steps

    def _least(self, loop: Loop, most: dict[str, int]) -> dict[str, int]:
        """The least values of variables, 1 or 0; -1 for one that isn't followed."""
        least = {}
        for name, start in most.items():
            value = self._names[name]
            is_whole = isinstance(value, Polynomial)
            if not is_whole or self.symbols.shared_by(value) > loop.sharing:
                start = -1
            bounds = (n for n in range(start, -1, -1) if self._holds(value - n))
            least[name] = next(bounds, -1)
        return least

    def _begin(self, loop: Loop, least: dict[str, int], turn: Polynomial) -> None:
        """Give variables their values at the beginning of a turn."""
        self._names = dict(loop.before)
        for name, step in loop.steps.items():
            value = self.operation(ast.Add(), loop.before[name], step * turn)
            self._names[name] = value
        for name in sorted(least):
            self._names[name] = LOST if _has_array(loop.before[name]) else UNKNOWN
            if least[name] >= 0:
                number = self.symbols.fresh(name, loop.sharing, least=least[name])
                self._names[name] = number

    def _turn(
        self, loop: Loop, least: dict[str, int], turn: Polynomial
    ) -> dict[str, int]:
        """Walk through one turn; the least values after it."""
        self._begin(loop, least, turn)
        with self._where():
            test = loop.head(turn)
            is_divergent = max(test.sharing, loop.sharing) > Sharing.BLOCK
            with self._where(test.true, self._line(loop.node) if is_divergent else 0):
                self._block(loop.node.body)
                return self._least(loop, least)

    # -- expressions

    def value(self, node: ast.expr) -> Any:
        """The value of an expression; its accesses are noted."""
        is_test = isinstance(node, ast.Compare | ast.BoolOp)
        is_test |= isinstance(getattr(node, "op", None), ast.Not)
        value = self.test(node) if is_test else self._value(node)
        if value is LOST:
            words = f"which memory {ast.unparse(node)} is can't be followed"
            raise self.refusal(node, words)
        return value

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return constant(value)
            case ast.Name(name):
                value = constant(self._scopes[-1].resolve(node))
                return self._names.get(name, value)
            case ast.Tuple():
                return tuple(map(self.value, node.elts))
            case ast.BinOp():
                left = self.value(node.left)
                return self.operation(node.op, left, self.value(node.right))
            case ast.UnaryOp(ast.USub()):
                zero = polynomial(0)
                return self.operation(ast.Sub(), zero, self.value(node.operand))
            case ast.Subscript():
                return self.subscript(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self._call(node)
            case ast.IfExp():
                return self._choice(node)
        raise self.refusal(node)

    def _choice(self, node: ast.IfExp) -> Any:
        """One of two values."""
        test = self.test(node.test)
        with self._where(test.true):
            left = self.value(node.body)
        with self._where(test.false):
            right = self.value(node.orelse)
        return _either(left, right)

    def attribute(self, node: ast.Attribute) -> Any:
        """The value of a dotted name."""
        value = self._scopes[-1].resolve(node)
        if value is not MISSING:
            return constant(value)
        owner = self.value(node.value)
        if not isinstance(owner, ArrayPart) or node.attr in ("dtype", "type"):
            return UNKNOWN
        shape = owner.shape[len(owner.index) :]
        size = math.prod(shape, start=polynomial(1))
        values = {"shape": shape, "size": size, "ndim": polynomial(len(shape))}
        if node.attr not in values:
            raise self.refusal(node)
        return values[node.attr]

    def _call(self, node: ast.Call) -> Any:
        """What a call gives."""
        scope = self._scopes[-1]
        args = [self.value(arg) for arg in node.args]
        words = {str(word.arg): self.value(word.value) for word in node.keywords}
        name = self.built_in(node.func)
        function = None if name else scope.device_function(node.func)
        if function:
            bound = inspect.signature(function).bind(*args, **words)
            return self.walk(function, dict(bound.arguments))
        if name and (result := self.called(name, args, words, node)) is not None:
            return result
        target = scope.resolve(node.func)
        if target is len and isinstance(args[0], ArrayPart):
            return args[0].shape[len(args[0].index)]
        if any(isinstance(arg, ArrayPart) for arg in [*args, *words.values()]):
            raise self.refusal(node)
        if not name and target is MISSING:
            self.value(node.func)
        return self.converted(node, args)

    def built_in(self, node: ast.expr) -> str:
        """The name of a function of CUDA or Triton; "" for any other."""
        raise NotImplementedError

    def called(
        self, name: str, args: list[Any], words: dict[str, Any], node: ast.Call
    ) -> Any:
        """What a function of CUDA or Triton gives; None for one that isn't known to
        give a whole number, or to access memory.
        """
        raise NotImplementedError

    def converted(self, node: ast.Call, args: list[Any]) -> Any:
        """A whole number in another type; UNKNOWN for what any other call gives."""
        raise NotImplementedError

    def subscript(self, node: ast.Subscript) -> Any:
        """An element that is loaded, or a part of an array or a tuple."""
        memory = self._element(node)
        if isinstance(memory, ArrayPart) and memory.is_element:
            self.access("load", memory, node)
            return UNKNOWN
        return memory

    def _element(self, node: ast.Subscript) -> Any:
        """The part of an array or a tuple that a subscript names."""
        owner = self.value(node.value)
        index = self.value(node.slice)
        if isinstance(owner, tuple):
            number = index.number if isinstance(index, Polynomial) else None
            if number is None or not -len(owner) <= number < len(owner):
                return LOST
            return owner[number]
        if isinstance(owner, ArrayPart):
            return self.indexed(owner, index)
        return PRIVATE if owner is PRIVATE else LOST

    def indexed(self, owner: ArrayPart, index: Any) -> ArrayPart:
        """An array with one or more further indices."""
        parts = index if isinstance(index, tuple) else (index,)
        indices = (*owner.index, *map(self._whole, parts))
        return ArrayPart(owner.name, owner.is_shared, owner.shape, indices)

    def operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        """What an operator gives."""
        are_tests = isinstance(left, Condition) and isinstance(right, Condition)
        if are_tests and isinstance(op, ast.BitAnd):
            return left.both(right)
        if not isinstance(left, Polynomial) or not isinstance(right, Polynomial):
            return UNKNOWN
        number = right.number
        match op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.FloorDiv():
                return self.divided(left, right)[0]
            case ast.Mod():
                return self.divided(left, right)[1]
            case ast.RShift() if number is not None:
                return self.divided(left, polynomial(1 << number))[0]
            case ast.BitAnd() if number and number & (number + 1) == 0:
                return self.divided(left, right + 1)[1]
        return UNKNOWN

    def divided(self, left: Polynomial, right: Polynomial) -> tuple[Any, Any]:
        """The quotient and the remainder."""
        rounds_down = self.floors or self._holds(left)
        if not rounds_down or not self._holds(right) or right.number == 0:
            return UNKNOWN, UNKNOWN
        return self.symbols.divided(left, right)

    # -- conditions

    def test(self, node: ast.expr) -> Condition:
        """What a condition says; its accesses are noted."""
        match node:
            case ast.UnaryOp(ast.Not()):
                return self.test(node.operand).negated()
            case ast.BoolOp(ast.And()):
                return self._all_of(node.values, lambda test: test)
            case ast.BoolOp():
                return self._all_of(node.values, Condition.negated).negated()
            case ast.Compare():
                values = [self.value(part) for part in (node.left, *node.comparators)]
                tests = map(self._compared, node.ops, values, values[1:])
                return functools.reduce(Condition.both, tests, Condition(Sharing.GRID))
        value = self.value(node)
        if isinstance(value, Polynomial):
            return _is_zero(value, self.symbols.shared_by(value)).negated()
        return value if isinstance(value, Condition) else Condition(Sharing.THREAD)

    def _all_of(
        self, nodes: Sequence[ast.expr], see: Callable[[Condition], Condition]
    ) -> Condition:
        """That conditions hold, each as `see` shows it; later ones are looked at where
        the first ones hold.
        """
        total = Condition(Sharing.GRID)
        for node in nodes:
            with self._where(total.true):
                total = total.both(see(self.test(node)))
        return total

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> Condition:
        if not isinstance(left, Polynomial) or not isinstance(right, Polynomial):
            return Condition(Sharing.THREAD)
        sharing = self.symbols.shared_by(left, right)
        if isinstance(op, ast.Gt | ast.LtE):
            left, right = right, left
        is_less = Condition(sharing, (right - left - 1,), (left - right,))
        match op:
            case ast.Lt() | ast.Gt():
                return is_less
            case ast.LtE() | ast.GtE():
                return is_less.negated()
            case ast.Eq():
                return _is_zero(left - right, sharing)
            case ast.NotEq():
                return _is_zero(left - right, sharing).negated()
        return Condition(sharing)


def conflict(left: str, right: str) -> bool:
    """Whether two kinds of access to one element depend on their order."""
    return left != right or left == "store"


def constant(value: Any) -> Any:
    """A value from around a kernel."""
    value = getattr(value, "value", value)  # a tl.constexpr
    if isinstance(value, tuple):
        return tuple(map(constant, value))
    if isinstance(value, np.ndarray):
        return PRIVATE
    return polynomial(int(value)) if isinstance(value, Integral) else UNKNOWN


def parsed(function: types.FunctionType) -> tuple[ast.FunctionDef, int]:
    """A function's source, and the number of its first line."""
    try:
        lines, first = inspect.getsourcelines(function)
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, SyntaxError, ValueError) as error:
        raise NoArgument(f"the source of {function.__name__} can't be read") from error
    if not isinstance(tree, ast.FunctionDef):
        raise NoArgument(f"{function.__name__} is not defined with def")
    return tree, first


def _has_array(value: Any) -> bool:
    """Whether a value is memory or may have some in it."""
    return isinstance(value, ArrayPart | tuple) or value in (LOST, PRIVATE)


def _either(left: Any, right: Any) -> Any:
    """One of two values."""
    if left is right or left == right:
        return left
    return LOST if _has_array(left) or _has_array(right) else UNKNOWN


def _is_zero(value: Polynomial, sharing: Sharing) -> Condition:
    return Condition(sharing, (value, -value), (value * value - 1,))


def _assigned(nodes: Sequence[ast.AST]) -> set[str]:
    return {
        node.id
        for part in nodes
        for node in ast.walk(part)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
