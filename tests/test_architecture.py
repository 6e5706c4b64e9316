"""Imports point down, never in a circle: between the rooms of labkit, within each
package, and between packages.
"""

import ast
import functools
import re

import pytest

from labkit.core.paths import PACKAGES, ROOT, SOURCES

PACKAGE = ROOT / "labkit"

# room -> rooms that it may import from; labkit/README.md shows the same table to people
ROOMS = {
    "core": set(),
    "measure": {"core"},
    "train": {"core", "measure"},
    "plot": {"core", "measure", "train"},
    "lesson": {"core", "measure", "train", "plot"},
}


def module_of(path, package=PACKAGE):
    """The dotted name of a file, without the package's own:
    "core.units", "plan.costs".
    """
    return ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(
        ".__init__"
    )


FILES = sorted(path for folder in SOURCES.values() for path in folder.rglob("*.py"))
MODULES = {
    module_of(path): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent != PACKAGE
}


@functools.cache
def nodes(source):
    """All nodes of a source's syntax tree."""
    return tuple(ast.walk(ast.parse(source)))


def nodes_of(path):
    return nodes(path.read_text(encoding="utf-8"))


def imported(source, modules=MODULES, package="labkit"):
    """Modules of a package that a source imports at any depth of its code, type
    checking included.
    """
    found = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith(f"{package}."):
                inner = name.removeprefix(f"{package}.")
                found.add(inner if inner in modules else inner.rpartition(".")[0])
    return found


def wrong_imports(room, source):
    return {
        name
        for name in imported(source)
        if name.split(".")[0] not in ROOMS[room] | {room}
    }


def circle(graph):
    """One circle of a graph (node -> nodes it needs) as a list of nodes, or None."""
    done = set()
    path = []

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


# instrument -> its parts from the lowest floor to the highest, each of which may import
# from those before it
FLOORS: dict[str, list[set[str]]] = {
    "kerneltrace": [
        {"arguments", "errors", "units"},
        {"command_line", "data_table", "log", "tables"},
        {"devices", "source"},
        {"compiler", "judge", "ptx", "run"},
        {"stepper", "tiles", "tracing"},
    ],
    "ranks": [
        {"channel", "errors", "packing", "spans", "system"},
        {"arguments"},
        {"inside"},
        {"launcher"},
    ],
    "trainplan": [
        {"errors", "tables", "units"},
        {"arguments", "csv_tables"},
        {"costs", "facts"},
        {"cluster", "schedule"},
        {"command", "figures"},
    ],
    "steptime": [
        {
            "errors",
            "machine",
            "parts",
            "stack_samples",
            "tables",
            "torch_calls",
            "units",
        },
        {"arguments", "chrome_trace", "stopwatch", "unchanged"},
        {
            "allocations",
            "annotations",
            "budget",
            "ceilings",
            "host_waits",
            "limits",
            "operator_timing",
            "partition",
            "watched_steps",
        },
        {"gains", "memory_by_category", "mfu", "own_loop", "pace", "step"},
        {"bottleneck"},
    ],
}


def packages_imported(source):
    """The top-level packages that a source imports, at any depth of its code."""
    names = [
        alias.name
        for node in nodes(source)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    names += [
        node.module
        for node in nodes(source)
        if isinstance(node, ast.ImportFrom) and not node.level
    ]
    return {name.split(".")[0] for name in names}


def parts_above(package, path):
    """What a file of an instrument imports from a floor above its own: (part, part) for
    each.
    """
    floor_of = {part: i for i, parts in enumerate(FLOORS[package]) for part in parts}
    modules = {
        module_of(one, ROOT / package): one for one in (ROOT / package).rglob("*.py")
    }
    own = module_of(path, ROOT / package).split(".")[0]
    needed = {
        name.split(".")[0]
        for name in imported(path.read_text(encoding="utf-8"), modules, package)
    }
    return {
        (own, part) for part in needed - {own, ""} if floor_of[part] >= floor_of[own]
    }


@pytest.mark.parametrize("package", FLOORS)
def test_an_instrument_imports_neither_labkit_nor_another(package):
    for path in (ROOT / package).rglob("*.py"):
        others = {*PACKAGES, "exercises", "teaching", "tests"} - {package}
        assert not packages_imported(path.read_text(encoding="utf-8")) & others, path


@pytest.mark.parametrize("package", FLOORS)
def test_the_parts_of_an_instrument_import_from_the_floors_below(package):
    assert len(FLOORS[package]) <= 5
    for path in (ROOT / package).rglob("*.py"):
        if path.parent != ROOT / package or path.name not in (
            "__init__.py",
            "__main__.py",
        ):
            assert parts_above(package, path) == set(), path


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name):
    assert (
        wrong_imports(name.split(".")[0], MODULES[name].read_text(encoding="utf-8"))
        == set()
    )


def test_the_folders_are_the_rooms():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS)
    assert {path.name for path in PACKAGE.glob("*.py")} == {
        "__init__.py",
        "__main__.py",
    }


def test_the_map_shows_the_table():
    rows = re.findall(
        r"(?m)^\| `(\w+)/` \|.*\| ([^|]+) \|$",
        (PACKAGE / "README.md").read_text(encoding="utf-8"),
    )
    assert {room: set(re.findall(r"`(\w+)`", below)) for room, below in rows} == ROOMS


def test_no_circle_of_rooms_or_of_modules():
    assert circle(ROOMS) is None
    graph = {
        name: imported(path.read_text(encoding="utf-8")) - {name}
        for name, path in MODULES.items()
    }
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert (
        circle(
            {
                name: needs - packages
                for name, needs in graph.items()
                if name not in packages
            }
        )
        is None
    )


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("measure", "from labkit.lesson.boards import SpeedBoard", {"lesson.boards"}),
        ("measure", "def late():\n    from labkit import plot", {"plot"}),
        ("measure", "import labkit.train.models", {"train.models"}),
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
    """One name, one meaning: two modules may share a name only where one draws, or
    exports, what the other is.
    """
    stems = [
        path.stem
        for name, path in MODULES.items()
        if path.stem != "__init__" and not name.startswith("plot.")
    ]
    assert {stem for stem in stems if stems.count(stem) > 1} == set()
    types = [
        node.name
        for path in MODULES.values()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name for name in types if types.count(name) > 1} == set()


# What the processes of a launch print, the caller's process prints.
PRINTS_FOR_RANKS = {
    ROOT / "ranks" / "inside" / "rank_context.py",
    ROOT / "ranks" / "launcher" / "coordinator.py",
}


def test_no_package_prints_but_from_the_command_line():
    for path in set(FILES) - PRINTS_FOR_RANKS:
        calls = [n for n in nodes_of(path) if isinstance(n, ast.Call)]
        prints = [n for n in calls if getattr(n.func, "id", "") == "print"]
        assert not prints or path.name == "__main__.py", path
