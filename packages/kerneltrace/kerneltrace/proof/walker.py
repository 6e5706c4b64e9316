"""Walk through a kernel's Python for all threads at once: values are polynomials, and
what depends on data is unknown.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

from kerneltrace.proof.polynomial import Polynomial, polynomial
from kerneltrace.proof.symbols import Sharing, Symbols
from kerneltrace.source.kernel_scope import MISSING, KernelScope

UNKNOWN = object()
"""A number that depends on data, or that isn't followed."""
PRIVATE = object()
"""An array of each thread's own."""
LOST = object()
"""One of several arrays."""
MAX_DEPTH = 10
"""Of functions that call each other."""

Path = tuple[Polynomial, ...]


class NoArgument(Exception):
    """Something in the kernel that the proof can't follow; says its line."""


@dataclass(frozen=True)
class ArrayPart:
    """An array, or the part of it that some indices leave."""

    name: str
    is_shared: bool
    dimensions: int
    shape: tuple[Polynomial, ...]
    index: tuple[Polynomial, ...] = ()


@dataclass(frozen=True)
class Condition:
    """What holds where a condition is true, and where it is false: values that aren't
    negative, and values that are 0.
    """

    sharing: Sharing
    true: Path = ()
    true_zero: Path = ()
    false: Path = ()
    false_zero: Path = ()

    def negated(self) -> Condition:
        """The opposite condition."""
        return Condition(
            self.sharing, self.false, self.false_zero, self.true, self.true_zero
        )

    def both(self, other: Condition) -> Condition:
        """That both hold: where that is false, nothing is known."""
        return Condition(
            max(self.sharing, other.sharing),
            self.true + other.true,
            self.true_zero + other.true_zero,
        )


NO_TEST = Condition(Sharing.THREAD)


class PossibleAccess(NamedTuple):
    """A load, store or atomic of any thread that comes to it."""

    kind: str
    memory: ArrayPart
    line: int
    path: Path
    """Values that aren't negative where it happens."""
    zero: Path
    """Values that are 0 there."""


class Held(NamedTuple):
    """What is taken to hold for a variable in each turn of a loop."""

    is_whole: bool = True
    sharing: Sharing = Sharing.BLOCK
    least: int | None = 1


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
        self.accesses: list[PossibleAccess] = []
        """Each place of the source once, in any turn of its loops."""
        self.together: list[tuple[PossibleAccess, PossibleAccess]] = []
        """Pairs that two threads of a block may do without a barrier in between."""
        self._open: list[PossibleAccess] = []
        """Accesses since the last barrier, on any way to here."""
        self._is_repeated = False
        self._path: Path = ()
        self._zero: Path = ()
        self._divergent = 0
        """The line of the branch around, in which only some threads of a block are."""
        self._left = 0
        """The line of the branch in which some threads returned from a function."""
        self._names: dict[str, Any] = {}
        self._scopes: list[KernelScope] = []
        self._first_line = 1
        self._returned: list[Any] = []

    # -- functions

    def walk(self, function: types.FunctionType, names: dict[str, Any]) -> Any:
        """Walk through a function whose parameters have these values; what it
        returns.
        """
        if len(self._scopes) >= MAX_DEPTH:
            raise NoArgument(f"{function.__name__} calls itself")
        tree, first = parsed(function)
        before = self._names, self._first_line, self._returned, self._left
        self._names = dict(names)
        self._first_line = first
        self._returned = []
        self._scopes.append(KernelScope(function, tree))
        with self._where():
            ended = self._block(tree.body)
        returned = self._returned
        self._scopes.pop()
        self._names, self._first_line, self._returned, self._left = before
        if ended and len(returned) == 1:
            return returned[0]
        return LOST if any(map(_has_array, returned)) else UNKNOWN

    def _line(self, node: ast.AST) -> int:
        return self._first_line + getattr(node, "lineno", 1) - 1

    def _refuse(self, node: ast.AST, words: str) -> NoArgument:
        return NoArgument(f"line {self._line(node)}: {words}")

    @contextmanager
    def _where(
        self, facts: Path = (), zero: Path = (), divergent: int = 0
    ) -> Iterator[None]:
        """Take some facts to hold inside of the block."""
        before = self._path, self._zero, self._divergent
        self._path += facts
        self._zero += zero
        self._divergent = self._divergent or divergent
        yield
        self._path, self._zero, self._divergent = before

    def _holds(self, value: Polynomial) -> bool:
        """Whether a value is at least 0 here."""
        zero = [
            sign * each
            for each in self._zero
            for sign in (polynomial(1), polynomial(-1))
        ]
        return self.symbols.is_nonnegative(value, (*self._path, *zero))

    # -- accesses

    def access(self, kind: str, memory: ArrayPart, node: ast.AST) -> None:
        """Note an access to an element of an array."""
        access = PossibleAccess(kind, memory, self._line(node), self._path, self._zero)
        self._open.append(access)
        self.together += [
            (other, access)
            for other in self._open
            if other.memory.name == memory.name and conflict(other.kind, kind)
        ]
        if not self._is_repeated:
            self.accesses.append(access)

    def barrier(self, node: ast.AST) -> None:
        """All threads of a block meet."""
        branch = self._divergent or self._left
        if branch:
            words = f"only some threads may come to this barrier, by line {branch}"
            raise self._refuse(node, words)
        self._open = []

    def has_barrier(self, nodes: Sequence[ast.AST]) -> bool:
        """Whether statements may come to a barrier."""
        return False

    def is_barrier(self, node: ast.AST) -> bool:
        """Whether a statement is one."""
        return False

    # -- statements

    def _block(self, statements: Sequence[ast.stmt]) -> bool:
        """Walk through statements; whether no thread comes to their end."""
        return any(self._statement(statement) for statement in statements)

    def _statement(self, node: ast.stmt) -> bool:
        """Walk through a statement; whether no thread comes to its end."""
        if getattr(node, "orelse", None) and not isinstance(node, ast.If):
            raise self._refuse(node, "the else of a loop isn't followed")
        match node:
            case ast.If():
                return self._if(node)
            case ast.For():
                self._for(node)
            case ast.While():
                self._loop(node, [], lambda turn: self.test(node.test))
            case ast.Return():
                self._returned.append(self.value(node.value) if node.value else None)
                if len(self._scopes) > 1:  # the thread goes on outside
                    self._left = self._left or self._divergent
                return True
            case ast.Break() | ast.Continue():
                return True
            case _:
                self._simple(node)
        return False

    def _simple(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self._assign(target, value)
            case ast.AugAssign():
                old = self.value(_loaded(node.target))
                self._assign(
                    node.target, self._operation(node.op, old, self.value(node.value))
                )
            case ast.AnnAssign():
                if node.value:
                    self._assign(node.target, self.value(node.value))
            case ast.Expr():
                self.value(node.value)
            case ast.Pass() | ast.Assert():
                pass
            case _:
                raise self._refuse(node, f"{type(node).__name__} isn't followed")

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name():
                self._names[target.id] = value
            case ast.Tuple() | ast.List():
                parts = value if isinstance(value, tuple) else ()
                if len(parts) != len(target.elts):
                    parts = (UNKNOWN,) * len(target.elts)
                for part, element in zip(target.elts, parts, strict=True):
                    self._assign(part, element)
            case ast.Subscript():
                memory = self._element(target)
                if memory is PRIVATE:
                    return
                if not _is_element(memory):
                    raise self._refuse(
                        target, "the array that is stored to isn't known"
                    )
                self.access("store", memory, target)
            case _:
                raise self._refuse(target, "such a store isn't followed")

    def _if(self, node: ast.If) -> bool:
        test = self.test(node.test)
        truth = self._decided(test)
        if truth is not None:
            return self._block(node.body if truth else node.orelse)
        syncs = self.has_barrier([*node.body, *node.orelse])
        divergent = self._line(node) if test.sharing > Sharing.BLOCK else 0
        names = dict(self._names)
        before = list(self._open)
        with self._where(test.true, test.true_zero, divergent):
            ended = self._block(node.body)
            self._names, names = names, self._names
        after = self._open
        if syncs:
            self._open = before
        with self._where(test.false, test.false_zero, divergent):
            ended_else = self._block(node.orelse)
        if syncs:
            self._open = list(
                {id(access): access for access in after + self._open}.values()
            )
        if ended != ended_else:
            self._path += test.false if ended else test.true
            self._zero += test.false_zero if ended else test.true_zero
            self._names = self._names if ended else names
        else:
            self._names = self._merged(names, self._names, test.sharing)
        return ended and ended_else

    def _decided(self, test: Condition) -> bool | None:
        """Whether a condition holds for all threads, or for none."""
        if any(
            _is_false(fact, zero)
            for facts, zero in ((test.true, False), (test.true_zero, True))
            for fact in facts
        ):
            return False
        if any(
            _is_false(fact, zero)
            for facts, zero in ((test.false, False), (test.false_zero, True))
            for fact in facts
        ):
            return True
        return None

    def _merged(
        self, left: dict[str, Any], right: dict[str, Any], sharing: Sharing
    ) -> dict[str, Any]:
        return {
            name: self._either(
                left.get(name, UNKNOWN), right.get(name, UNKNOWN), sharing
            )
            for name in {**left, **right}
        }

    def _either(self, left: Any, right: Any, sharing: Sharing) -> Any:
        """One of two values."""
        if left is right or left == right:
            return left
        if (
            isinstance(left, tuple)
            and isinstance(right, tuple)
            and len(left) == len(right)
        ):
            return tuple(
                self._either(*parts, sharing) for parts in zip(left, right, strict=True)
            )
        if _has_array(left) or _has_array(right):
            return LOST
        if not isinstance(left, Polynomial) or not isinstance(right, Polynomial):
            return UNKNOWN
        sharing = max(sharing, self.symbols.shared_by(left, right))
        least = 0 if self._holds(left) and self._holds(right) else None
        return self.symbols.fresh("either", sharing, least=least)

    # -- loops

    def _for(self, node: ast.For) -> None:
        bounds = self.range(node.iter)
        if bounds is None:
            items = self.value(node.iter)
            if not isinstance(items, tuple) or _leaves(node.body):
                raise self._refuse(node, "a loop over something else than range")
            for item in items:
                self._assign(node.target, item)
                self._block(node.body)
            return
        start, stop, step = bounds

        def head(turn: Polynomial) -> Condition:
            if not all(isinstance(value, Polynomial) for value in (start, step)):
                self._assign(node.target, UNKNOWN)
                return NO_TEST
            value = start + step * turn
            self._assign(node.target, value)
            sharing = self.symbols.shared_by(start, step)
            if not isinstance(stop, Polynomial):
                return NO_TEST
            sharing = max(sharing, self.symbols.shared_by(stop))
            facts: Path = ()
            if self._holds(step - 1):
                facts = (stop - 1 - value,)
            elif self._holds(-step - 1):
                facts = (value - stop - 1,)
            return Condition(sharing, facts)

        self._loop(node, [node.target], head)

    def range(self, node: ast.expr) -> tuple[Any, Any, Any] | None:
        """Start, stop and step of a range; None for anything else."""
        if not isinstance(node, ast.Call) or not self.is_range(node.func):
            return None
        if not node.args:
            return UNKNOWN, UNKNOWN, UNKNOWN
        values = [self.value(arg) for arg in node.args]
        one = polynomial(1)
        if len(values) == 1:
            return polynomial(0), values[0], one
        return values[0], values[1], values[2] if len(values) > 2 else one

    def is_range(self, node: ast.expr) -> bool:
        """Whether a function gives the turns of a loop."""
        return self._scopes[-1].resolve(node) is range

    def _loop(
        self,
        node: ast.For | ast.While,
        targets: list[ast.expr],
        head: Callable[[Polynomial], Condition],
    ) -> None:
        """Any number of turns. `head` begins a turn, of which it gets the number, and
        says what holds in it.
        """
        syncs = self.has_barrier(node.body)
        # all threads of a block are in the same turn, if each turn has a barrier
        in_step = self.in_turn or (syncs and any(map(self.is_barrier, node.body)))
        leaves = _leaves(node.body)
        if syncs and leaves:
            raise self._refuse(node, "a loop with barriers that is left early")
        changed = _assigned([*node.body, *targets]) & set(self._names)
        before = dict(self._names)
        steps = {} if leaves else self._steps(node.body, changed)
        sharing = Sharing.BLOCK if in_step else Sharing.THREAD
        held = {
            name: self._first_held(before[name], sharing, leaves) for name in changed
        }
        opened = list(self._open)
        state = len(self.accesses), len(self.together)
        while True:
            turn = self.symbols.fresh("turn", sharing)
            self._names = self._turned(before, held, steps, turn)
            weaker = self._turn(node, head, turn, held, steps, syncs)
            if weaker == held:
                break
            held = weaker
            del self.accesses[state[0] :], self.together[state[1] :]
            self._open = list(opened)
        if syncs:
            repeated, self._is_repeated = self._is_repeated, True
            turn = turn + 1 if in_step else self.symbols.fresh("turn", sharing)
            if not in_step:
                self._names = self._turned(before, held, steps, turn)
            self._turn(node, head, turn, held, steps, syncs)
            self._is_repeated = repeated
        self._open = list(
            {id(access): access for access in opened + self._open}.values()
        )
        turns = self.symbols.fresh("turns", sharing)
        self._names = self._turned(before, held, steps, turns)
        for target in targets:
            for name in _assigned([target]):
                self._names[name] = UNKNOWN

    def _first_held(self, value: Any, sharing: Sharing, leaves: bool) -> Held:
        """What is tried for a variable that a loop changes."""
        if not isinstance(value, Polynomial) or leaves:
            return Held(is_whole=False)
        least = next((n for n in (1, 0) if self._holds(value - n)), None)
        return Held(True, max(sharing, self.symbols.shared_by(value)), least)

    def _steps(
        self, body: Sequence[ast.stmt], changed: set[str]
    ) -> dict[str, Polynomial]:
        """Variables to which each turn adds the same, and how much."""
        steps = {}
        for statement in body:
            match statement:
                case ast.AugAssign(ast.Name(name), ast.Add() | ast.Sub() as op, added):
                    pass
                case _:
                    continue
            others = [other for other in body if other is not statement]
            uses = {n.id for n in ast.walk(added) if isinstance(n, ast.Name)}
            calls = any(isinstance(n, ast.Subscript) for n in ast.walk(added))
            if name in _assigned(others) or uses & changed or calls:
                continue
            if not isinstance(self._names.get(name), Polynomial | ArrayPart):
                continue
            value = self.value(added)
            if isinstance(value, Polynomial):
                steps[name] = value if isinstance(op, ast.Add) else -value
        return steps

    def _turned(
        self,
        before: dict[str, Any],
        held: dict[str, Held],
        steps: dict[str, Polynomial],
        turn: Polynomial,
    ) -> dict[str, Any]:
        """The variables at the beginning of a turn."""
        names = dict(before)
        for name, hold in sorted(held.items()):
            if name in steps:
                added = steps[name] * turn
                names[name] = self._operation(ast.Add(), before[name], added)
            elif _has_array(before[name]):
                names[name] = LOST
            elif hold.is_whole:
                names[name] = self.symbols.fresh(name, hold.sharing, least=hold.least)
            else:
                names[name] = UNKNOWN
        return names

    def _turn(
        self,
        node: ast.For | ast.While,
        head: Callable[[Polynomial], Condition],
        turn: Polynomial,
        held: dict[str, Held],
        steps: dict[str, Polynomial],
        syncs: bool,
    ) -> dict[str, Held]:
        """Walk through one turn; what holds after it of what was taken to hold."""
        with self._where():
            test = head(turn)
            divergent = self._line(node) if test.sharing > Sharing.BLOCK else 0
            if syncs and divergent:
                raise self._refuse(node, "threads may take different numbers of turns")
            with self._where(test.true, test.true_zero, divergent):
                self._block(node.body)
                weaker = {
                    name: hold
                    if name in steps
                    else self._weaker(self._names[name], hold)
                    for name, hold in held.items()
                }
        return weaker

    def _weaker(self, value: Any, held: Held) -> Held:
        """What holds of a variable's value after a turn."""
        if not held.is_whole or not isinstance(value, Polynomial):
            return Held(is_whole=False)
        sharing = max(held.sharing, self.symbols.shared_by(value))
        least = held.least
        while least is not None and not self._holds(value - least):
            least = least - 1 if least else None
        return Held(True, sharing, least)

    # -- expressions

    def value(self, node: ast.expr) -> Any:
        """The value of an expression; its accesses are noted."""
        match node:
            case ast.Constant(value):
                return polynomial(int(value)) if isinstance(value, int) else UNKNOWN
            case ast.Name():
                return self._name(node)
            case ast.Tuple():
                return tuple(map(self.value, node.elts))
            case ast.BinOp():
                left = self.value(node.left)
                right = self.value(node.right)
                return self._operation(node.op, left, right)
            case ast.UnaryOp(ast.USub()):
                value = self.value(node.operand)
                return -value if isinstance(value, Polynomial) else UNKNOWN
            case ast.Subscript():
                return self._loaded_value(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.call(node)
        return self._choice(node)

    def _choice(self, node: ast.expr) -> Any:
        """The value of a condition, or of one of two expressions."""
        match node:
            case ast.UnaryOp(ast.Not()):
                return self.test(node.operand).negated()
            case ast.UnaryOp():
                self.value(node.operand)
                return UNKNOWN
            case ast.Compare() | ast.BoolOp():
                return self.test(node)
            case ast.IfExp():
                return self._conditional(node)
        raise self._refuse(node, f"{type(node).__name__} isn't followed")

    def _name(self, node: ast.Name) -> Any:
        if self._names.get(node.id) is LOST:
            raise self._refuse(node, f"which memory {node.id} is can't be followed")
        if node.id in self._names:
            return self._names[node.id]
        return constant(self._scopes[-1].resolve(node))

    def attribute(self, node: ast.Attribute) -> Any:
        """The value of a dotted name."""
        value = self._scopes[-1].resolve(node)
        if value is not MISSING:
            return constant(value)
        owner = self.value(node.value)
        if isinstance(owner, ArrayPart):
            raise self._refuse(node, f"{ast.unparse(node)} isn't followed")
        return UNKNOWN

    def call(self, node: ast.Call) -> Any:
        """What a call gives."""
        raise NotImplementedError

    def _conditional(self, node: ast.IfExp) -> Any:
        test = self.test(node.test)
        with self._where(test.true, test.true_zero):
            left = self.value(node.body)
        with self._where(test.false, test.false_zero):
            right = self.value(node.orelse)
        return self._either(left, right, test.sharing)

    def _loaded_value(self, node: ast.Subscript) -> Any:
        memory = self._element(node)
        if isinstance(memory, tuple):
            index = self.value(node.slice)
            number = index.number if isinstance(index, Polynomial) else None
            if number is not None and -len(memory) <= number < len(memory):
                return memory[number]
            return LOST if _has_array(memory) else UNKNOWN
        if _is_element(memory):
            self.access("load", memory, node)
            return UNKNOWN
        if memory is PRIVATE:
            return UNKNOWN
        return memory

    def _element(self, node: ast.Subscript) -> Any:
        """The part of an array that a subscript names, or the value that isn't an
        array.
        """
        owner = self.value(node.value)
        if not isinstance(owner, ArrayPart):
            if not isinstance(owner, tuple):
                self.value(node.slice)
            return owner
        index = self.value(node.slice)
        return self.indexed(owner, index, node)

    def indexed(self, owner: ArrayPart, index: Any, node: ast.AST) -> ArrayPart:
        """An array with one or more further indices."""
        parts = index if isinstance(index, tuple) else (index,)
        index = tuple(
            part
            if isinstance(part, Polynomial)
            else self.symbols.fresh("data", Sharing.THREAD, least=None)
            for part in parts
        )
        if len(owner.index) + len(index) > owner.dimensions:
            raise self._refuse(node, "more indices than dimensions")
        return ArrayPart(
            owner.name,
            owner.is_shared,
            owner.dimensions,
            owner.shape,
            owner.index + index,
        )

    def _operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        are_tests = isinstance(left, Condition) and isinstance(right, Condition)
        if are_tests and isinstance(op, ast.BitAnd):
            return left.both(right)
        if not isinstance(left, Polynomial) or not isinstance(right, Polynomial):
            return UNKNOWN
        match op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
        return self._parted(op, left, right)

    def _parted(self, op: ast.operator, left: Polynomial, right: Polynomial) -> Any:
        """A part of a number: what a division, or its bits, give."""
        match op:
            case ast.FloorDiv():
                return self._divided(left, right)[0]
            case ast.Mod():
                return self._divided(left, right)[1]
            case ast.LShift():
                return left * self._power(right)
            case ast.RShift():
                return self._divided(left, self._power(right))[0]
            case ast.BitAnd():
                mask = right.number if right.number is not None else left.number
                value = left if right.number is not None else right
                if mask is not None and mask > 0 and mask & (mask + 1) == 0:
                    divisor = polynomial(mask + 1)
                    return self.symbols.divided(value, divisor, self._path)[1]
        return UNKNOWN

    def _power(self, exponent: Polynomial) -> Polynomial:
        """2 to some power, which is taken to be no less than 0."""
        if exponent.number is not None and 0 <= exponent.number < 64:
            return polynomial(1 << exponent.number)
        name = f"2**({sorted(exponent.terms.items())})"
        return self.symbols.add(name, self.symbols.shared_by(exponent), least=1)

    def _divided(self, left: Polynomial, right: Polynomial) -> tuple[Any, Any]:
        rounds_down = self.floors or self._holds(left)
        if not rounds_down or not self._holds(right) or right.number == 0:
            return UNKNOWN, UNKNOWN
        return self.symbols.divided(left, right, self._path)

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
                return self._comparison(node)
        value = self.value(node)
        if isinstance(value, Condition):
            return value
        if not isinstance(value, Polynomial):
            return NO_TEST
        if value.number is not None:
            is_zero = value.number == 0
            where_true = (polynomial(is_zero),)  # no number is 0 and 1
            where_false = (polynomial(not is_zero),)
            return Condition(Sharing.GRID, true_zero=where_true, false_zero=where_false)
        return Condition(self.symbols.shared_by(value), false_zero=(value,))

    def _all_of(
        self, nodes: Sequence[ast.expr], see: Callable[[Condition], Condition]
    ) -> Condition:
        """That conditions hold, each as `see` shows it; later ones are looked at where
        the first ones hold.
        """
        total = see(self.test(nodes[0]))
        for node in nodes[1:]:
            with self._where(total.true, total.true_zero):
                total = total.both(see(self.test(node)))
        return total

    def _comparison(self, node: ast.Compare) -> Condition:
        values = [self.value(part) for part in (node.left, *node.comparators)]
        tests = [
            self._compared(op, left, right)
            for op, left, right in zip(node.ops, values, values[1:], strict=False)
        ]
        total = tests[0]
        for test in tests[1:]:
            total = total.both(test)
        return total

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> Condition:
        if not isinstance(left, Polynomial) or not isinstance(right, Polynomial):
            return NO_TEST
        sharing = self.symbols.shared_by(left, right)
        match op:
            case ast.Lt():
                return Condition(
                    sharing, true=(right - left - 1,), false=(left - right,)
                )
            case ast.GtE():
                return Condition(
                    sharing, true=(left - right,), false=(right - left - 1,)
                )
            case ast.Gt():
                return Condition(
                    sharing, true=(left - right - 1,), false=(right - left,)
                )
            case ast.LtE():
                return Condition(
                    sharing, true=(right - left,), false=(left - right - 1,)
                )
            case ast.Eq():
                return Condition(sharing, true_zero=(left - right,))
            case ast.NotEq():
                return Condition(sharing, false_zero=(left - right,))
        return Condition(sharing)


def conflict(left: str, right: str) -> bool:
    """Whether two kinds of access to one element depend on their order."""
    return left != right or left == "store"


def constant(value: Any) -> Any:
    """A value from around a kernel."""
    value = getattr(value, "value", value)  # a tl.constexpr
    if isinstance(value, tuple):
        return tuple(map(constant, value))
    return polynomial(int(value)) if isinstance(value, Integral) else UNKNOWN


def parsed(function: types.FunctionType) -> tuple[ast.FunctionDef, int]:
    """A function's source, and the number of its first line."""
    try:
        lines, first = inspect.getsourcelines(function)
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, SyntaxError, ValueError, TypeError) as error:
        raise NoArgument(f"the source of {function.__name__} can't be read") from error
    if not isinstance(tree, ast.FunctionDef):
        raise NoArgument(f"{function.__name__} is not defined with def")
    return tree, first


def _has_array(value: Any) -> bool:
    """Whether a value is an array or has one in it."""
    if isinstance(value, tuple):
        return any(map(_has_array, value))
    return isinstance(value, ArrayPart) or value is LOST


def _is_element(value: Any) -> bool:
    return isinstance(value, ArrayPart) and len(value.index) == value.dimensions


def _is_false(fact: Polynomial, is_zero: bool) -> bool:
    number = fact.number
    if number is None:
        return False
    return number != 0 if is_zero else number < 0


def _loaded(target: ast.expr) -> ast.expr:
    """A target as an expression."""
    if isinstance(target, ast.Subscript):
        loaded: ast.expr = ast.Subscript(target.value, target.slice, ast.Load())
    elif isinstance(target, ast.Name):
        loaded = ast.Name(target.id, ast.Load())
    else:
        return target
    return ast.copy_location(loaded, target)


def _assigned(nodes: Sequence[ast.AST]) -> set[str]:
    return {
        node.id
        for part in nodes
        for node in ast.walk(part)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop's turn may end before its end."""
    return any(
        isinstance(node, ast.Break | ast.Continue)
        for part in body
        for node in ast.walk(part)
    )
