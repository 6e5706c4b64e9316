"""Imports point down, never in a circle, and from one package to another only to public
names; over labkit, the projects in packages/ and what stands beside them.
"""

import ast
import functools
import importlib
import inspect
import itertools
import json
import re

import pytest

from labkit.core.paths import INSTRUMENTS, NOTEBOOKS, PROJECTS, ROOT, SOURCES

# tree -> trees that it may import from
BELOW = {
    "gpufacts": set(),
    "kerneltrace": {"gpufacts"},
    "ranks": set(),
    "steptime": set(),
    "trainplan": {"gpufacts"},
    "labkit": set(INSTRUMENTS),
    "exercises": {*INSTRUMENTS, "labkit"},
    "scripts": {*INSTRUMENTS, "labkit", "exercises"},
    "teaching": {*INSTRUMENTS, "labkit", "exercises", "scripts"},
    "book": {*INSTRUMENTS, "labkit", "exercises", "scripts", "teaching"},
    "benchmarks": {*INSTRUMENTS, "labkit", "exercises", "scripts", "teaching"},
}
FOLDERS = {tree: SOURCES.get(tree, ROOT / tree) for tree in BELOW}

# room of labkit -> rooms that it may import from, which labkit/README.md shows, too
ROOMS = {
    "core": set(),
    "measure": {"core"},
    "train": {"core", "measure"},
    "plot": {"core", "measure", "train"},
    "lesson": {"core", "measure", "train", "plot"},
}
# labkit.core stands on its own, but for the class of what catalog.find raises
BESIDE_CORE = {"gpufacts"}


# -- what a source imports


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def import_nodes(source, *, for_type_checkers=True):
    """Import statements at any depth of a source's code."""
    waiting = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif for_type_checkers or not is_for_type_checkers(node):
            waiting += ast.iter_child_nodes(node)


def imports(source, **options):
    """(module, name) of each import; the name is empty for `import module`."""
    for node in import_nodes(source, **options):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def dotted(path, folder):
    """The dotted name of a file: kerneltrace.judge.waste."""
    inner = path.relative_to(folder).with_suffix("").parts
    return ".".join([folder.name, *inner]).removesuffix(".__init__")


@functools.cache
def modules_of(tree):
    """Dotted name -> source of each module of a tree."""
    return {
        dotted(path, FOLDERS[tree]): path.read_text(encoding="utf-8")
        for path in sorted(FOLDERS[tree].rglob("*.py"))
    }


def graph_of(modules):
    """module -> modules of the same tree that it imports.

    A package's __init__ shows names to type checkers that load when first used: these
    are no imports.
    """
    packages = {name.rpartition(".")[0] for name in modules}
    graph = {}
    for module, source in modules.items():
        needed = set()
        for name, part in imports(source, for_type_checkers=module not in packages):
            whole = f"{name}.{part}"
            needed.add(whole if whole in modules else name)
        graph[module] = needed & modules.keys() - {module}
    return graph


def folders_of(graph):
    """The same graph between the folders, and files, that lie directly in a tree."""

    def part(module):
        return ".".join(module.split(".")[:2])

    parts = {}
    for module, needed in graph.items():
        if "." in module:  # not the tree's own __init__
            others = {part(other) for other in needed if "." in other}
            parts.setdefault(part(module), set()).update(others - {part(module)})
    return parts


def circle(graph):
    """One circle of a graph (node -> nodes it needs) as a list of nodes, or None."""
    finished = set()
    path = []

    def walk(node):
        if node in path:
            return path[path.index(node) :]
        if node in finished:
            return None
        path.append(node)
        for other in sorted(graph.get(node, ())):
            if way := walk(other):
                return way
        path.pop()
        finished.add(node)
        return None

    return next((way for node in sorted(graph) if (way := walk(node))), None)


@pytest.mark.parametrize("tree", BELOW)
def test_no_circle_of_modules(tree):
    assert circle(graph_of(modules_of(tree))) is None


@pytest.mark.parametrize("tree", INSTRUMENTS)
def test_no_circle_of_folders(tree):
    assert circle(folders_of(graph_of(modules_of(tree)))) is None


# -- between trees


def runs_up(tree, source):
    """Modules of other trees that a source may not import."""
    own = {tree, *BELOW[tree]}
    tops = {name.partition(".")[0] for name, _ in imports(source)}
    return tops & (BELOW.keys() | {"tests"}) - own


@pytest.mark.parametrize("tree", BELOW)
def test_imports_between_trees_point_down(tree):
    for module, source in modules_of(tree).items():
        assert runs_up(tree, source) == set(), module


def rooms_above(module, source):
    """Rooms of labkit, or packages beside labkit.core, that a module may not import."""
    room = module.split(".")[1]
    names = {
        f"{name}.{part}" for name, part in imports(source) if name.startswith("labkit")
    }
    others = {name.split(".")[1] for name in names} & ROOMS.keys()
    wrong = others - ROOMS[room] - {room}
    if room == "core":
        tops = {name.partition(".")[0] for name, _ in imports(source)}
        wrong |= tops & set(INSTRUMENTS) - BESIDE_CORE
    return wrong


def test_the_rooms_of_labkit_import_from_those_below():
    for module, source in modules_of("labkit").items():
        if module not in ("labkit", "labkit.__main__"):
            assert rooms_above(module, source) == set(), module


def test_the_folders_of_labkit_are_the_rooms_that_its_map_shows():
    rooms = {path.parent.name for path in FOLDERS["labkit"].glob("*/__init__.py")}
    assert rooms == set(ROOMS)
    text = (FOLDERS["labkit"] / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)/` \|.*\| ([^|]+) \|$", text)
    assert {room: set(re.findall(r"`(\w+)`", below)) for room, below in rows} == ROOMS


# -- public names


@functools.cache
def public(package):
    """What others may import: the package's own names, and those of its public
    modules, each with the module that offers it. `errors` is public as a whole.
    """
    root = importlib.import_module(package)
    offered = {(package, name) for name in root.__all__} | {(package, "")}
    parts = {
        f"{package}.{name}"
        for name in root.__all__
        if inspect.ismodule(getattr(root, name))
    }
    if f"{package}.errors" in modules_of(package):
        offered.add((package, "errors"))
        parts.add(f"{package}.errors")
    for part in parts:
        module = importlib.import_module(part)
        names = getattr(module, "__all__", None) or vars(module)
        offered |= {(part, name) for name in names if not name.startswith("_")}
        offered.add((part, ""))
    return offered


def inner_names(own, source):
    """(module, name) of what a source imports of a package beside its own, and that is
    not public there.
    """
    return {
        (name, part)
        for name, part in imports(source)
        if (top := name.partition(".")[0]) in INSTRUMENTS
        and top != own
        and (name, part) not in public(top)
    }


def notebook_sources():
    """The code of each notebook, without what only IPython reads."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
        lines = "\n".join(code).split("\n")
        yield path.name, "\n".join("pass" if is_magic(line) else line for line in lines)


def is_magic(line):
    return line.lstrip().startswith(("%", "!"))


def test_packages_are_used_by_their_public_names():
    sources = itertools.chain(
        *(modules_of(tree).items() for tree in BELOW), notebook_sources()
    )
    wrong = {}
    for module, source in sources:
        if names := inner_names(module.partition(".")[0], source):
            wrong[module] = names
    assert wrong == {}


def test_a_project_and_its_tests_import_nothing_of_the_workbook():
    beside = BELOW.keys() - set(INSTRUMENTS) | {"tests"}
    for path in PROJECTS.rglob("*.py"):
        tops = {
            name.partition(".")[0]
            for name, _ in imports(path.read_text(encoding="utf-8"))
        }
        assert not tops & beside, path


def public_classes(tree):
    """Names of classes, in modules without an underscore, that begin without one."""
    return {
        node.name
        for module, source in modules_of(tree).items()
        if not any(part.startswith("_") for part in module.split("."))
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


@pytest.mark.parametrize(
    ("one", "other"), [*itertools.combinations([*INSTRUMENTS, "labkit"], 2)]
)
def test_a_public_class_has_a_name_of_its_own(one, other):
    assert public_classes(one) & public_classes(other) == set()


def test_no_module_or_class_of_labkit_stands_twice():
    """Two modules share a name only where one draws what the other is."""
    modules = modules_of("labkit")
    packages = {name.rpartition(".")[0] for name in modules}
    stems = [
        name.rpartition(".")[2]
        for name in modules
        if name not in packages and not name.startswith("labkit.plot.")
    ]
    assert {stem for stem in stems if stems.count(stem) > 1} == set()
    classes = [
        node.name
        for source in modules.values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name for name in classes if classes.count(name) > 1} == set()


# -- planted faults are found


def test_a_planted_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
    judge = modules_of("kerneltrace")
    waste = "kerneltrace.judge.waste"
    review = "kerneltrace.judge.review"
    assert waste in graph_of(judge)[review]
    planted = {**judge, waste: f"def late():\n    import {review}\n{judge[waste]}"}
    assert {waste, review} <= set(circle(graph_of(planted)))


@pytest.mark.parametrize(
    ("tree", "source", "wrong"),
    [
        ("labkit", "from exercises.nb03 import check", {"exercises"}),
        ("labkit", "def late():\n    import teaching.docs", {"teaching"}),
        ("scripts", "from book.glossary import of_page", {"book"}),
        ("kerneltrace", "import labkit as lab", {"labkit"}),
        ("trainplan", "from gpufacts import find", set()),
        ("exercises", "from tests import helpers", {"tests"}),
    ],
)
def test_a_planted_import_of_a_tree_above_is_found(tree, source, wrong):
    assert runs_up(tree, source) == wrong


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("labkit.measure.bench", "from labkit.lesson.boards import Curves", {"lesson"}),
        ("labkit.measure.bench", "def late():\n    from labkit import plot", {"plot"}),
        ("labkit.plot.core", "from labkit.measure.bench import Timing", set()),
        ("labkit.core.units", "from trainplan import cluster", {"trainplan"}),
        ("labkit.measure.catalog", "from trainplan import cluster", set()),
    ],
)
def test_a_planted_import_of_a_room_above_is_found(module, source, wrong):
    assert rooms_above(module, source) == wrong


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("from kerneltrace.tracing import trace", {("kerneltrace.tracing", "trace")}),
        ("import trainplan.cluster.layout", {("trainplan.cluster.layout", "")}),
        ("from ranks import inside", {("ranks", "inside")}),
        ("from kerneltrace import trace", set()),
        ("from trainplan.cluster import Layout", set()),
        ("from kerneltrace.errors import KernelError", set()),
    ],
)
def test_a_planted_import_of_an_inner_name_is_found(source, wrong):
    assert inner_names("labkit", source) == wrong


# -- who prints

# What the processes of a launch print, the caller's process prints.
PRINTS_FOR_RANKS = {"ranks.inside.rank_context", "ranks.launcher.coordinator"}


def test_no_package_prints_but_from_the_command_line():
    for tree in SOURCES:
        for module, source in modules_of(tree).items():
            calls = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call))
            prints = [n for n in calls if getattr(n.func, "id", "") == "print"]
            may_print = module.endswith("__main__") or module in PRINTS_FOR_RANKS
            assert not prints or may_print, module
