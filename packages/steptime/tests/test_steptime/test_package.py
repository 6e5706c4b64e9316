"""The package as a whole: its page's example, its public names, and its layers."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import steptime

PACKAGE = Path(steptime.__file__).parent
# from the lowest: each imports from its own and from those before it, but the two of one
# layer don't know each other
LAYERS = (
    {"_page", "_tables", "_units", "arguments", "errors"},
    {"limits"},
    {"comparison", "measure"},
    {"loop", "profile"},
    {"judge"},
    {"frameworks", "__main__"},
)
LAYER_OF = {name: i for i, names in enumerate(LAYERS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def layer(module):
    """The folder of a module, or the module itself if it is in none."""
    return module.split(".")[1]


def module_of(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def imported(path):
    """The package's modules that a file imports, at any depth of its code."""
    modules = {module_of(file) for file in FILES}
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
            names.add(node.module)
    return names & modules


@pytest.mark.slow
def test_the_example_of_the_page_runs(capsys):
    text = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## On your own code\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", section)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "own time a step" in printed
    assert "share of the time" in printed


def test_a_public_name_hides_no_module_and_is_hidden_by_none():
    for path in FILES:
        # each of these imports a framework, which may be missing
        if path.parent.name != "frameworks":
            importlib.import_module(module_of(path).removesuffix(".__init__"))
    for name in steptime.__all__:
        assert not isinstance(getattr(steptime, name), type(steptime)), name


def test_layers_import_from_those_below():
    for path in FILES:
        if path.parent == PACKAGE and path.name == "__init__.py":
            continue
        own = layer(module_of(path))
        for name in {layer(module) for module in imported(path)} - {own}:
            assert LAYER_OF[name] <= LAYER_OF[own], f"{path} imports {name}"
            assert LAYER_OF[name] < LAYER_OF[own] or LAYER_OF[own] == 0, path


def test_no_modules_import_each_other_in_a_circle():
    needs = {module_of(path): imported(path) for path in FILES if path.stem[0] != "_"}
    while needs:
        free = {module for module in needs if not needs[module] & needs.keys()}
        assert free, f"a circle among {sorted(needs)}"
        for module in free:
            del needs[module]
