"""The pages of the reference: the names that notebooks use, labkit's rooms, and the
packages beside it.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

import labkit
from book import docstrings
from labkit.core.paths import INSTRUMENTS, SOURCES

# Tables whose columns are public, as their package's CHANGELOG.md says.
_TABLES = {"gpufacts": ("gpus.csv",)}


def pages() -> Iterator[tuple[str, str]]:
    """(name, Markdown) of each page."""
    rooms = {name: getattr(labkit, name) for name in labkit.__all__}
    rooms = {
        name: room
        for name, room in sorted(rooms.items())
        if isinstance(room, ModuleType)
    }
    names = [name for name in labkit.__all__ if name not in rooms]
    room_of = {module.__name__: name for name, module in rooms.items()}
    # a module that labkit has as a room has its page there
    parts = [name for name in package_modules() if name not in room_of]
    classes: set[str] = set()
    about = (
        "What notebooks write as `lab.name`, the rooms that they write as"
        " `lab.room.name`, and the packages beside labkit."
    )
    yield (
        "index",
        f"# Reference\n\n{about}\n{toctree('', ['names', *rooms, *parts])}",
    )
    about = (
        "The names that notebooks write as `lab.name`, after `import labkit as lab`."
    )
    yield (
        "names",
        f"# Functions and classes\n\n{about}\n\n"
        + _rst(_documented(labkit, names, classes)),
    )
    for name, room in rooms.items():
        yield name, _page(f"lab.{name}", room, classes)
    for name in parts:
        page = _page(name, importlib.import_module(name), classes)
        modules = [part for part in package_modules() if part.startswith(f"{name}.")]
        links = [f"[{part}]({room_of.get(part, part)}.md)" for part in modules]
        line = f"\nModules: {', '.join(links)}\n" if links else ""
        yield name, page + line + _command(name) + _columns(name)


def package_modules() -> list[str]:
    """The packages beside labkit, each with its public modules behind it."""
    names = []
    for package in INSTRUMENTS:
        root = importlib.import_module(package)
        parts = {name for name in root.__all__ if inspect.ismodule(getattr(root, name))}
        if importlib.util.find_spec(f"{package}.errors"):
            parts.add("errors")
        names += [package, *(f"{package}.{part}" for part in sorted(parts))]
    return names


def toctree(caption: str, names: Iterable[str]) -> str:
    """A table of contents, hidden where it has a caption: the page's side shows it."""
    options = f":hidden:\n:caption: {caption}\n" if caption else ""
    return (
        "\n```{toctree}\n" + options + ":maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"
    )


def offered(module: ModuleType) -> list[str]:
    """The names that a module offers, sorted: those in its `__all__`, without one its
    functions and classes, and no modules.
    """
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
        and not name.startswith("_")
    ]
    names = vars(module).get("__all__", own)
    return sorted(
        (name for name in names if not isinstance(getattr(module, name), ModuleType)),
        key=str.lower,
    )


def _page(title: str, module: ModuleType, classes: set[str]) -> str:
    head = f".. automodule:: {module.__name__}\n\n"
    if module.__name__.endswith(".errors"):
        head = ""  # a tree of classes, which are all below
    return f"# {title}\n\n" + _rst(head + _documented(module, offered(module), classes))


def _command(name: str) -> str:
    """The options of a package's command line, as it prints them; "" without one."""
    if name not in INSTRUMENTS or not importlib.util.find_spec(f"{name}.__main__"):
        return ""
    printed = subprocess.run(
        [sys.executable, "-m", name, "--help"],
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return f"\n## Command line\n\n```text\n{printed}```\n"


def _columns(name: str) -> str:
    """The columns of a package's tables that are public; "" without such a table."""
    text = ""
    for table in _TABLES.get(name, ()):
        with open(SOURCES[name] / "data" / table, encoding="utf-8", newline="") as file:
            columns = next(csv.reader(file))
        names = ", ".join(f"`{column}`" for column in columns)
        text += f"\n## Columns of {name}/data/{table}\n\n{names}\n"
    return text


def _rst(text: str) -> str:
    return f"```{{eval-rst}}\n{text}\n```\n"


def _documented(module: ModuleType, names: Iterable[str], classes: set[str]) -> str:
    """Directives for names of a module. A class whose name is in `classes` is no target
    of links; the others are added.
    """
    parts = [f".. py:currentmodule:: {module.__name__}"]
    for name in names:
        value = getattr(module, name)
        if isinstance(value, type):
            parts.append(
                f".. autoclass:: {name}\n   :members:"
                + "\n   :no-index:" * (name in classes)
            )
            classes.add(name)
        elif inspect.isroutine(value):
            parts.append(f".. autofunction:: {name}")
        elif hasattr(value, "__signature__"):
            # one of lab.plot's, which autodoc can't read
            about = textwrap.indent(docstrings.rst(inspect.getdoc(value) or ""), "   ")
            parts.append(f".. py:function:: {name}{_arguments(value)}\n\n{about}")
        else:
            parts.append(f".. py:data:: {name}\n   :value: {_brief(value)}")
    return "\n\n".join(parts)


def _arguments(value: Callable[..., object]) -> inspect.Signature:
    """A signature without types, as it is for functions."""
    own = inspect.signature(value)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in own.parameters.values()
    ]
    return own.replace(parameters=bare, return_annotation=inspect.Signature.empty)


def _brief(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else f"{text[:117]}..."
