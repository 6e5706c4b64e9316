"""The rooms of labkit: imports point down, never in a circle, and the folders themselves are the list of rooms."""

import ast
import functools
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "labkit"

# room -> rooms that it may import from; labkit/README.md shows the same table to people
ROOMS = {
    "core": set(),
    "measure": {"core"},
    "gpu": {"core"},
    "train": {"core", "measure"},
    "dist": {"core", "measure"},
    "plan": {"core", "measure"},
    "plot": {"core", "measure", "gpu", "train", "dist", "plan"},
    "lesson": {"core", "measure", "gpu", "train", "dist", "plan", "plot"},
}


def module_of(path, package=PACKAGE):
    """The dotted name of a file, without the package's own: "core.units", "plan.costs"."""
    return ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE}


@functools.cache
def nodes(source):
    """All nodes of a source's syntax tree."""
    return tuple(ast.walk(ast.parse(source)))


def nodes_of(path):
    return nodes(path.read_text(encoding="utf-8"))


def imported(source, modules=MODULES):
    """Modules of labkit that a source imports at any depth of its code, type checking included."""
    found = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("labkit."):
                inner = name.removeprefix("labkit.")
                found.add(inner if inner in modules else inner.rpartition(".")[0])
    return found


def wrong_imports(room, source):
    return {name for name in imported(source) if name.split(".")[0] not in ROOMS[room] | {room}}


def circle(graph):
    """One circle of a graph (node -> nodes it needs) as a list of nodes, or None."""
    done, path = set(), []

    def walk(node):
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return None
        path.append(node)
        for other in sorted(graph.get(node, ())):
            if found := walk(other):
                return found
        path.pop()
        done.add(node)
        return None

    return next((found for node in sorted(graph) if (found := walk(node))), None)


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name):
    assert wrong_imports(name.split(".")[0], MODULES[name].read_text(encoding="utf-8")) == set()


def test_the_folders_are_the_rooms():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS)
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_the_map_shows_the_table():
    rows = re.findall(r"(?m)^\| `(\w+)/` \|.*\| ([^|]+) \|$", (PACKAGE / "README.md").read_text(encoding="utf-8"))
    assert {room: set(re.findall(r"`(\w+)`", below)) for room, below in rows} == ROOMS


def test_no_circle_of_rooms_or_of_modules():
    assert circle(ROOMS) is None
    graph = {name: imported(path.read_text(encoding="utf-8")) - {name} for name, path in MODULES.items()}
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert circle({name: needs - packages for name, needs in graph.items() if name not in packages}) is None


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("measure", "from labkit.lesson.boards import SpeedBoard", {"lesson.boards"}),
        ("measure", "def late():\n    from labkit import plot", {"plot"}),
        ("plan", "import labkit.train.models", {"train.models"}),
        ("plot", "from labkit.measure.bench import Timing", set()),
        ("measure", "from labkit.measure.ceilings import measure_ceilings", set()),
    ],
)
def test_a_planted_import_that_runs_up_is_found(room, source, wrong):
    assert wrong_imports(room, source) == wrong


def test_a_planted_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_no_module_or_type_name_stands_twice():
    """One name, one meaning: two modules may share a name only where one draws, or exports, what the other is."""
    stems = [path.stem for name, path in MODULES.items() if path.stem != "__init__" and not name.startswith("plot.")]
    assert {stem for stem in stems if stems.count(stem) > 1} == set()
    types = [
        node.name
        for path in MODULES.values()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name for name in types if types.count(name) > 1} == set()


def test_no_file_is_over_300_lines_and_no_function_over_50():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 300, path
        for node in nodes(text):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 50, (path, node.name)


def test_the_package_prints_nothing_but_from_the_command_line():
    for path in PACKAGE.rglob("*.py"):
        calls = [n for n in nodes_of(path) if isinstance(n, ast.Call)]
        prints = [n for n in calls if getattr(n.func, "id", "") == "print"]
        assert not prints or path.name == "__main__.py", path
