"""The cells that a solved notebook ends with under test: its exercises are open again,
and each has to say so.
"""

from __future__ import annotations

import ast
import copy
import symtable
from typing import Any

from labkit.lesson import notebook_files


def open_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Code cells to run after a solved notebook's last one: each open exercise, its
    check, and the cells that use them.

    A cell that also uses a name which gets another value further down is left out: it
    would meet the wrong one.
    """
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    names = [names_of(source) for source in sources]
    taken: list[dict[str, Any]] = []
    open_names: set[str] = set()
    for i, (source, (used, assigned)) in enumerate(zip(sources, names, strict=True)):
        is_check = i > 0 and notebook_files.stub_number(sources[i - 1]) is not None
        assigned_later = set().union(*(later for _, later in names[i + 1 :]))
        if is_check or notebook_files.stub_number(source):
            open_names |= assigned
        elif not used & open_names:
            open_names -= assigned
            continue
        elif (used - open_names - assigned) & assigned_later:
            continue
        cell = copy.deepcopy(cells[i]) | {
            "id": f"open-{i}",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        taken.append(
            cell
            | {
                "source": (
                    source + _says_open(sources[i - 1], source) if is_check else source
                )
            }
        )
    return taken


def _says_open(stub: str, check: str) -> str:
    """A line below a check that fails unless it says todo, or "not yet" where given
    code is to be mended.
    """
    blank = any(
        isinstance(node, ast.Constant) and node.value is ...
        for node in ast.walk(ast.parse(stub))
    )
    call = next(
        n
        for n in ast.walk(ast.parse(check))
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "lab.check"
    )
    states = ["todo"] if blank else ["todo", "not yet"]
    return f"\nassert (said := {ast.unparse(call)}).state in {states}, said"


def names_of(source: str) -> tuple[set[str], set[str]]:
    """The notebook's names that a cell uses, in its functions too, and those that it
    gives a value.
    """
    table = symtable.symtable(source, "cell", "exec")
    used = {
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()
    }
    inside = table.get_children()
    for scope in inside:
        used |= {
            symbol.get_name()
            for symbol in scope.get_symbols()
            if symbol.is_global() and symbol.is_referenced()
        }
        inside += scope.get_children()
    return used, {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
