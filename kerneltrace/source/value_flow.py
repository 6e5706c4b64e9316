"""Mark the loads in a function's source with what they wait for."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from kerneltrace.log.needs import Needs, Waits


def mark_waits(tree: ast.FunctionDef) -> None:
    """Give each element of an array in the source `waits`, as Waits."""
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    flow = _Flow({ast.unparse(node.targets[0]) for node in made if "local.array" in ast.unparse(node.value)})
    flow.follow(tree.body, set(), set())
    for node, level in flow.levels.items():
        node.waits = Waits(level, flow.needs.chained(ast.unparse(node)))  # type: ignore[attr-defined]


class _Flow:
    """What statements need, in the order of the source: names, and elements of arrays in memory by their text."""

    def __init__(self, local: set[str]) -> None:
        self.needs, self.levels = Needs(), dict[ast.Subscript, int]()
        self._local = local  # arrays in registers
        self._depth: dict[str, int] = {}  # loads, one after another, until what was assigned last is known

    def follow(self, body: list[ast.stmt], tests: set[str], ends: set[str]) -> None:
        """`tests` decide whether statements are reached, `ends` whether a loop takes another turn.

        A load whose own value is tested can be made again in the next turn before that, unless that ends the loop.
        """
        for statement in body:
            inside = [part for name in ("body", "orelse") for part in getattr(statement, name, ())]
            own = [node for node in ast.iter_child_nodes(statement) if node not in inside]
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                own.append(ast.Name(statement.target.id, ast.Load()))
            read = self._read(own)
            known = self._known(own, tests)
            for node in self._elements(own):
                text = ast.unparse(node)
                self.needs.add(text, self._read([node.slice]) | tests - {text} | ends)
            for name in (node for part in own for node in ast.walk(part) if isinstance(node, ast.Name)):
                if isinstance(name.ctx, ast.Store) or name.id in self._local:
                    self.needs.add(name.id, read | tests | ends)
                    self._depth[name.id] = known
            self._depth |= {ast.unparse(node): self.levels[node] + 1 for node in self._elements(own)}
            if isinstance(statement, ast.While | ast.For):
                branches = [node for part in inside for node in ast.walk(part) if isinstance(node, ast.If)]
                last = [node.test for node in branches if any(isinstance(s, ast.Break | ast.Return) for s in node.body)]
                condition = [statement.test] if isinstance(statement, ast.While) else []
                self.follow([*map(ast.Expr, condition), *inside], tests, ends | self._read([*last, *condition]))
            elif inside:
                self.follow(inside, tests | read, ends)

    def _known(self, parts: Iterable[ast.AST], tests: set[str]) -> int:
        """Loads, one after another, until the values of expressions are known that stand under `tests`."""
        parts, under = list(parts), max((self._depth.get(text, 0) for text in tests), default=0)
        known = max((self._depth.get(text, 0) for text in self._read(parts)), default=0)
        for node in self._elements(parts):
            level = self._known([node.slice], tests)
            self.levels.setdefault(node, level if ast.unparse(node) in tests else max(level, under))
            known = max(known, self.levels[node] + 1)
        return known

    def _elements(self, parts: Iterable[ast.AST]) -> list[ast.Subscript]:
        found = (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Subscript))
        return [node for node in found if ast.unparse(node.value) not in self._local]

    def _read(self, parts: Iterable[ast.AST]) -> set[str]:
        parts = list(parts)
        names = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)]
        read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
        return read | {ast.unparse(node) for node in self._elements(parts)}
