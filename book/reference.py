"""The pages of the reference: the names that notebooks use, labkit's rooms, and the
packages beside it.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

import labkit
from book import docstrings
from labkit.core.paths import INSTRUMENTS


def pages() -> Iterator[tuple[str, str]]:
    """(name, Markdown) of each page."""
    rooms = {name: getattr(labkit, name) for name in labkit.__all__}
    rooms = {
        name: room
        for name, room in sorted(rooms.items())
        if isinstance(room, ModuleType)
    }
    names = [name for name in labkit.__all__ if name not in rooms]
    classes: set[str] = set()
    about = (
        "What notebooks write as `lab.name`, the rooms that they write as"
        " `lab.room.name`, and the packages beside labkit."
    )
    yield (
        "index",
        f"# Reference\n\n{about}\n{toctree('', ['names', *rooms, *INSTRUMENTS])}",
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
    for name in INSTRUMENTS:
        yield name, _page(name, importlib.import_module(name), classes)


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
    return f"# {title}\n\n" + _rst(head + _documented(module, offered(module), classes))


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
