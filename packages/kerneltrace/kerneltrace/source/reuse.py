"""Keep the rewritten source of a kernel for its next run: rewriting takes longer than a
small launch.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.machine.program import Program

LISTS = ("sites", "counted", "counted_at")
"""Lists of a program that rewriting fills."""


class Rewritten(NamedTuple):
    """One function of a program, without what belongs to the run it was made for."""

    fn: weakref.ref[types.FunctionType]
    kinds: Any
    code: types.CodeType
    name: str
    names: dict[str, Any]
    """What the source finds in its surroundings."""
    constants: dict[str, tuple[Any, str]]
    """Of these the arrays, each with its name in the source."""
    called: dict[str, tuple[Any, Any]]
    """Of these the functions of the program, by function and types."""


@dataclass(frozen=True)
class Recipe:
    """How to make a program's functions again."""

    functions: tuple[Rewritten, ...]
    surroundings: list[Any]
    """What the functions found around them, kept so that no other object gets an id."""
    fields: dict[str, Any]


_recipes: weakref.WeakKeyDictionary[types.FunctionType, dict[Any, Recipe]] = (
    weakref.WeakKeyDictionary()
)


def rewritten(
    program: Program,
    fn: types.FunctionType,
    kinds: Any,
    code: types.CodeType,
    name: str,
    names: dict[str, Any],
    added: Mapping[str, Any],
) -> Rewritten:
    """A function of the program: `added` are those of its `names` that its rewriting
    bound.
    """
    arrays = {id(traced): (array, text) for traced, array, text in program.constants}
    functions = {
        id(function): key for key, function in program.functions.items() if function
    }
    constants = {
        each: arrays[id(value)] for each, value in added.items() if id(value) in arrays
    }
    called = {
        each: functions[id(value)]
        for each, value in added.items()
        if id(value) in functions
    }
    return Rewritten(weakref.ref(fn), kinds, code, name, names, constants, called)


def keep(program: Program, fn: types.FunctionType, kinds: Any) -> None:
    """Keep what was made for a kernel and the functions that it calls.

    In lockstep arrays from the surroundings are bound to the threads, and the program
    isn't kept.
    """
    if program.lanes and program.constants:
        return
    fields: dict[str, Any]
    fields = {name: list(getattr(program, name)) for name in LISTS}
    fields |= {name: getattr(program, name) for name in ("votes", "names_float64")}
    fields["is_typed"] = program.is_typed
    fields["lines"] = {kind: dict(lines) for kind, lines in program.lines.items()}
    fields["in_memory"] = set(program.in_memory)
    fields["files"] = set(program.files)
    recipe = Recipe(tuple(program.rewritten), _surroundings(program.rewritten), fields)
    _recipes.setdefault(fn, {})[_key(program, kinds)] = recipe


def made_again(
    program: Program,
    fn: types.FunctionType,
    kinds: Any,
    helpers: Callable[[Program], dict[str, Any]],
) -> bool:
    """Make the functions of a kernel that was kept for this program; whether there was
    one whose surroundings are what they were.
    """
    recipe = _recipes.get(fn, {}).get(_key(program, kinds))
    if recipe is None:
        return False
    now = _surroundings(recipe.functions)
    if [*map(id, now)] != [*map(id, recipe.surroundings)]:
        return False
    fields = recipe.fields
    for name in LISTS:
        getattr(program, name)[:] = fields[name]
    program.counters += [np.zeros(3, int) for _ in program.counted]
    program.note(fields["lines"])
    program.in_memory |= fields["in_memory"]
    program.files |= fields["files"]
    for name in ("votes", "names_float64", "is_typed"):
        setattr(program, name, fields[name])
    own = helpers(program)
    for each in recipe.functions:
        function = each.fn()
        names = each.names | own
        names |= {
            name: program.placed(*constant) for name, constant in each.constants.items()
        }
        names |= {name: program.functions[key] for name, key in each.called.items()}
        exec(each.code, names)
        made = names[each.name]
        made.__defaults__ = function.__defaults__ if function else None
        program.functions[function, each.kinds] = made
    return True


def _key(program: Program, kinds: Any) -> Any:
    return kinds, bool(program.lanes), program.pauses


def _surroundings(functions: Any) -> list[Any]:
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
                members = vars(module)
                values += [members.get(name) for name in names]
    return values
