"""Keep the rewritten source of a kernel for its next run: rewriting takes longer than a
small launch.
"""

from __future__ import annotations

import types
import weakref
from typing import Any, NamedTuple

from kerneltrace.machine.program import Program

FIELDS = (
    "sites",
    "counted",
    "counted_at",
    "lines",
    "in_memory",
    "files",
    "votes",
    "names_float64",
    "is_typed",
)
"""What rewriting adds to a program, and no run changes."""


class Constant(NamedTuple):
    """An array from the surroundings, which each run places in constant memory."""

    array: Any
    text: str
    """Its name in the source."""


class Called(NamedTuple):
    """A function of the program, by its Python function and types."""

    key: tuple[Any, Any]


class Rewritten(NamedTuple):
    """One function of a program, without what belongs to a run."""

    fn: weakref.ref[types.FunctionType]
    kinds: Any
    code: types.CodeType
    name: str
    names: dict[str, Any]
    """What the source finds in its surroundings."""
    added: dict[str, Any]
    """Names that its rewriting bound: to a Constant, a Called, or a value."""
    can_wait: bool
    """Whether it is a generator."""


class Recipe(NamedTuple):
    """How to make a program's functions."""

    functions: tuple[Rewritten, ...]
    """Each after those that it calls."""
    surroundings: list[Any]
    """What the functions found around them, kept so that no other object gets an id."""
    fields: dict[str, Any]


_recipes: weakref.WeakKeyDictionary[types.FunctionType, dict[Any, Recipe]] = (
    weakref.WeakKeyDictionary()
)


def keep(program: Program, fn: types.FunctionType, kinds: Any) -> Recipe:
    """Keep what was made for a kernel and the functions that it calls."""
    functions = tuple(program.rewritten.values())
    fields = {name: getattr(program, name) for name in FIELDS}
    recipe = Recipe(functions, _surroundings(functions), fields)
    _recipes.setdefault(fn, {})[_key(program, kinds)] = recipe
    return recipe


def kept(program: Program, fn: types.FunctionType, kinds: Any) -> Recipe | None:
    """What was kept of a kernel for such a program; None where its surroundings are not
    what they were.
    """
    recipe = _recipes.get(fn, {}).get(_key(program, kinds))
    if recipe is None:
        return None
    now = _surroundings(recipe.functions)
    is_same = [*map(id, now)] == [*map(id, recipe.surroundings)]
    return recipe if is_same else None


def _key(program: Program, kinds: Any) -> Any:
    return kinds, bool(program.lanes), program.pauses


def _surroundings(functions: tuple[Rewritten, ...]) -> list[Any]:
    """What the names in the functions stand for now, members of modules too."""
    values: list[Any] = []
    for each in functions:
        fn = each.fn()
        if fn is None:
            continue
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        around = fn.__globals__ | {name: cell.cell_contents for name, cell in cells}
        names = (*fn.__code__.co_names, *fn.__code__.co_freevars)
        outer = [around.get(name) for name in names]
        values += outer
        for module in outer:
            if isinstance(module, types.ModuleType):
                values += [vars(module).get(name) for name in names]
    return values
