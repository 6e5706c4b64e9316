"""Mark the loads in a function's source with what they wait for."""

import ast
from collections.abc import Iterable, Iterator

from kerneltrace.machine.needs import Needs, chained
from kerneltrace.source.kernel_scope import parameters, stored_names

_MOST_TURNS = 255
"""Of a loop that may be unrolled for an array in registers, of which a thread has so
many.
"""


def in_local_memory(tree: ast.FunctionDef) -> set[str]:
    """The local arrays that no compiler keeps in registers: some index of theirs
    follows neither from literals nor from loops of fixed bounds, which are unrolled.

    Source: CUDA C++ Programming Guide, "Local Memory".
    """
    nodes = [*ast.walk(tree)]
    varying = parameters(tree)
    bindings = [*_bindings(tree.body, [])]
    local = _local_arrays(bindings)
    size = -1
    while size != len(varying):  # until nothing new follows from what varies
        size = len(varying)
        for names, sources in bindings:
            if not names <= local and _varies(sources, varying):
                varying |= names
    return {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in local
        and _varies([node.slice], varying)
    }


def _local_arrays(bindings: Iterable[tuple[set[str], list[ast.expr]]]) -> set[str]:
    return {
        name
        for names, sources in bindings
        if any("local.array(" in ast.unparse(source) for source in sources)
        for name in names
    }


def _bindings(
    body: list[ast.stmt], tests: list[ast.expr]
) -> Iterator[tuple[set[str], list[ast.expr]]]:
    """Names that statements bind, and the expressions that their values follow from,
    the `tests` around them among these.
    """
    for statement in body:
        value = getattr(statement, "value", None)
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        names = stored_names(*filter(None, targets))
        if isinstance(statement, ast.For):
            yield names, [statement.iter]
        elif names and value:
            yield names, [value, *tests]
        inner = tests
        if isinstance(statement, ast.While | ast.If):
            inner = [*tests, statement.test]
        for part in ("body", "orelse"):
            yield from _bindings(getattr(statement, part, []), inner)


def _varies(sources: list[ast.expr], varying: set[str]) -> bool:
    """Whether expressions may differ from what a compiler works out."""
    for node in (node for source in sources for node in ast.walk(source)):
        is_number = isinstance(node, ast.Attribute) and "int" in node.attr  # np.int32
        if isinstance(node, ast.Attribute | ast.Subscript) and not is_number:
            return True
        if isinstance(node, ast.Name) and node.id in varying:
            return True
        number = getattr(node, "value", None)  # of a literal
        if isinstance(number, int) and number > _MOST_TURNS:
            return True
    return False


def mark_waits(tree: ast.FunctionDef) -> None:
    """Give each element of an array in the source `waits`, as Waits."""
    flow = _Flow(_local_arrays(_bindings(tree.body, [])))
    flow.follow(tree.body, set(), set())
    for node, level in flow.levels.items():
        node.waits = level, chained(ast.unparse(node), flow.needs)  # type: ignore[attr-defined]


class _Flow:
    """What statements need, in the order of the source: names, and elements of arrays
    in memory by their text.
    """

    def __init__(self, local: set[str]) -> None:
        self.needs = Needs(set)
        self.levels = dict[ast.Subscript, int]()
        self._local = local  # arrays in registers
        # loads, one after another, until what was assigned last is known
        self._depth: dict[str, int] = {}

    def follow(self, body: list[ast.stmt], tests: set[str], ends: set[str]) -> None:
        """`tests` decide whether statements are reached, `ends` whether a loop takes
        another turn.

        A load whose own value is tested can be made again in the next turn before that,
        unless that ends the loop.
        """
        for statement in body:
            inside = [
                *getattr(statement, "body", ()),
                *getattr(statement, "orelse", ()),
            ]
            parts = [
                node for node in ast.iter_child_nodes(statement) if node not in inside
            ]
            if isinstance(statement, ast.AugAssign) and isinstance(
                statement.target, ast.Name
            ):
                parts.append(ast.Name(statement.target.id, ast.Load()))
            needed = self._read(parts)
            depth = self._depth_of(parts, tests)
            for element in self._elements(parts):
                text = ast.unparse(element)
                self.needs[text] |= self._read([element.slice]) | tests - {text} | ends
            for name in _names(parts):
                if isinstance(name.ctx, ast.Store) or name.id in self._local:
                    self.needs[name.id] |= needed | tests | ends
                    self._depth[name.id] = depth
            if isinstance(statement, ast.While | ast.For):
                self._follow_loop(statement, inside, tests, ends)
            elif inside:
                self.follow(inside, tests | needed, ends)

    def _follow_loop(
        self,
        loop: ast.While | ast.For,
        inside: list[ast.stmt],
        tests: set[str],
        ends: set[str],
    ) -> None:
        conditions = [loop.test] if isinstance(loop, ast.While) else []
        leaving = [
            node.test
            for part in inside
            for node in ast.walk(part)
            if isinstance(node, ast.If)
            and any(isinstance(child, ast.Break | ast.Return) for child in node.body)
        ]
        body = [*map(ast.Expr, conditions), *inside]
        self.follow(body, tests, ends | self._read([*leaving, *conditions]))

    def _depth_of(self, parts: Iterable[ast.AST], tests: set[str]) -> int:
        """Loads, one after another, until the values of expressions are known that
        stand under `tests`.
        """
        for node in self._elements(parts):
            under = set() if ast.unparse(node) in tests else tests
            before = max((self._depth.get(text, 0) for text in under), default=0)
            self.levels.setdefault(
                node, max(self._depth_of([node.slice], tests), before)
            )
            self._depth[ast.unparse(node)] = self.levels[node] + 1
        return max((self._depth.get(text, 0) for text in self._read(parts)), default=0)

    def _elements(self, parts: Iterable[ast.AST]) -> list[ast.Subscript]:
        subscripts = (
            node
            for part in parts
            for node in ast.walk(part)
            if isinstance(node, ast.Subscript)
        )
        return [
            node for node in subscripts if ast.unparse(node.value) not in self._local
        ]

    def _read(self, parts: Iterable[ast.AST]) -> set[str]:
        names = {node.id for node in _names(parts) if isinstance(node.ctx, ast.Load)}
        return names | {ast.unparse(node) for node in self._elements(parts)}


def _names(parts: Iterable[ast.AST]) -> list[ast.Name]:
    return [
        node for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)
    ]
