"""Mark the loads in a function's source with what they wait for."""

import ast
from collections.abc import Iterable

from kerneltrace.machine.needs import Needs, chained


def mark_waits(tree: ast.FunctionDef) -> None:
    """Give each element of an array in the source `waits`, as Waits."""
    local = {
        ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "local.array(" in ast.unparse(node.value)
    }
    flow = _Flow(local)
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
