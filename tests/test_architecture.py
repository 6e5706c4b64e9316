"""The table of rooms: a module imports from lower layers, or along a listed exception, and never in a circle."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "labkit"

# room -> (layer, rooms of the same layer that it may use)
ROOMS = {
    "arguments": (0, {"errors"}),
    "errors": (0, set()),
    "shown": (0, set()),
    "spans": (0, set()),
    "units": (0, set()),
    "bench": (1, {"bootstrap"}),
    "bootstrap": (1, set()),
    "catalog": (1, set()),
    "chrome_trace": (1, set()),
    "compiler": (1, set()),
    "costs": (1, set()),
    "data": (1, {"host"}),
    "formats": (1, set()),
    "host": (1, set()),
    "kernels": (1, set()),
    "models": (1, set()),
    "published": (1, set()),
    "ranks": (1, {"bench", "host", "source_text"}),
    "records": (1, set()),
    "residency": (1, set()),
    "simt": (1, set()),
    "simulated": (1, set()),
    "source_text": (1, set()),
    "ceilings": (2, {"machine", "probe"}),
    "cluster": (2, {"schedule"}),
    "graphs": (2, {"machine"}),
    "machine": (2, set()),
    "memory": (2, {"machine"}),
    "probe": (2, {"machine"}),
    "profiling": (2, {"ceilings", "machine", "memory"}),
    "schedule": (2, set()),
    "training": (2, {"machine"}),
    "checks": (3, set()),
    "exercises": (3, {"checks"}),
    "journal": (3, set()),
    "notebook": (3, set()),
    "plot": (3, set()),
    "bands": (4, {"live"}),
    "explorer": (4, {"live"}),
    "gpu_race": (4, {"live"}),
    "live": (4, set()),
    "recorder": (4, set()),
    "__main__": (5, {"doctor"}),
    "doctor": (5, set()),
}


def rooms_imported(source):
    """Names of labkit's modules that a source imports at any depth of its code, type checking included."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("labkit.")}
        elif isinstance(node, ast.ImportFrom) and node.module == "labkit":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit."):
            found.add(node.module.split(".")[1])
    return found


def wrong_imports(room, source, rooms=ROOMS):
    layer, allowed = rooms[room]
    return {name for name in rooms_imported(source) - {room} - allowed if rooms[name][0] >= layer}


def files():
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != PACKAGE / "__init__.py":
            yield path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path


@pytest.mark.parametrize(("room", "path"), list(files()), ids=str)
def test_imports_point_down(room, path):
    assert wrong_imports(room, path.read_text(encoding="utf-8")) == set()


def test_every_module_has_a_row_and_every_row_a_module():
    assert {room for room, _ in files()} == set(ROOMS)


def test_the_exceptions_make_no_circle():
    def below(room, seen):
        assert room not in seen, f"circle through {room}"
        for other in ROOMS[room][1]:
            below(other, seen | {room})

    for room in ROOMS:
        below(room, set())


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("bench", "from labkit.live import SpeedBoard", {"live"}),
        ("bench", "def late():\n    from labkit import plot", {"plot"}),
        ("costs", "import labkit.catalog", {"catalog"}),
        ("plot", "from labkit.bench import Timing", set()),
        ("machine", "from labkit.ceilings import measure_ceilings", {"ceilings"}),
    ],
)
def test_a_planted_import_that_runs_up_is_found(room, source, wrong):
    assert wrong_imports(room, source) == wrong


def test_no_file_is_over_300_lines_and_no_function_over_50():
    for _, path in files():
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 300, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 50, (path, node.name)


def test_the_package_prints_nothing_but_from_the_command_line():
    for room, path in files():
        calls = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
        prints = [n for n in calls if getattr(n.func, "id", "") == "print"]
        assert not prints or room == "__main__", path
