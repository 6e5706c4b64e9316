"""What one notebook alone names stands beside that notebook, in exercises/nbNN, and not
in labkit.
"""

import ast
import functools
import re
from collections import defaultdict

import pytest

from labkit.core.paths import EXERCISES, ROOT, SOURCES
from tests.helpers import code_cells, notebook_paths

# What stays in labkit though one notebook alone names it, and why.
KEPT = {
    "JpegShards": (
        "with JpegFiles and jpeg_shards one set of readers, of which 08, 16 and 20 use"
        " others"
    ),
    "decoded_cache": "the same",
    "fresh_cache": "with compiled and captured one set, of which 06 and 16 use others",
}


def words(text):
    return set(re.findall(r"\w+", text))


@functools.cache
def words_of(path):
    return words(path.read_text(encoding="utf-8"))


def named_by_notebook():
    """By notebook: the words of its code cells and of its own folder of exercises."""
    named = defaultdict(set)
    for path in notebook_paths():
        named[path.name[:2]] = words("\n".join(code_cells(path)))
    for path in EXERCISES.glob("nb*/*.py"):
        named[path.parent.name[2:]] |= words_of(path)
    return named


def definitions(path):
    """The public functions and classes of a module that it doesn't use itself: a
    result's type belongs to its maker.
    """
    text = path.read_text(encoding="utf-8")
    names = [
        node.name
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    return [
        name
        for name in names
        if name[0] != "_" and len(re.findall(rf"\b{name}\b", text)) == 1
    ]


def alone(named, elsewhere, path):
    """The definitions of a module that one notebook names and nothing else does."""
    others = set().union(
        *(words for other, words in elsewhere.items() if other != path)
    )
    return {
        name: users[0]
        for name in definitions(path)
        if name not in others
        and len(users := [n for n, words in named.items() if name in words]) == 1
    }


@pytest.mark.slow  # reads every module
def test_a_definition_of_labkit_that_one_notebook_alone_names_has_a_reason():
    folders = [
        *SOURCES.values(),
        *(ROOT / name for name in ("benchmarks", "book", "scripts", "teaching")),
    ]
    files = [
        *EXERCISES.glob("*.py"),
        *(path for folder in folders for path in folder.rglob("*.py")),
    ]
    elsewhere = {path: words_of(path) for path in files if path.name != "__init__.py"}
    named = named_by_notebook()
    found = {}
    for path in elsewhere:
        if path.is_relative_to(ROOT / "labkit"):
            found |= alone(named, elsewhere, path)
    assert found.keys() == KEPT.keys(), found
