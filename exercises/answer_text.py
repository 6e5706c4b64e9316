"""A wrong answer's code as a reader may see it: under the exercise's name, without
words that give the mistake away.

An answer that builds on a helper of its file, or is long, has no such text: it would
not stand alone. SHOWN_AS of that file (name -> expression) says what the notebook has
in place of the file's own numbers.
"""

from __future__ import annotations

import ast
import builtins
import functools
import pprint
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from labkit.core.data_table import read_table
from labkit.core.paths import EXERCISES
from labkit.lesson import exercise_files

_LONGEST = 12
_WIDEST = 96
# exercise -> (answer, words the check must say, misconception)
Wrong = dict[str, list[tuple[Any, str, str]]]
Functions = dict[str, ast.FunctionDef]
# what is imported from there is a helper of the answers' file
_HERE = ("exercises", "tests", "labkit.train")


def texts(notebook: str, wrong: Wrong) -> Iterator[tuple[str, int, str]]:
    """(exercise, place in its list, code) of each wrong answer of a notebook that can
    stand alone.
    """
    source = (EXERCISES / f"nb{notebook}" / "wrong_answers.py").read_text(
        encoding="utf-8"
    )
    tree = ast.parse(source)
    made = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    shown_as = _assigned(tree, "SHOWN_AS")
    in_notebook = {} if shown_as is None else ast.literal_eval(shown_as)
    defined_names = set(dir(builtins)) | set(_imported(tree)) | {"tf"}
    defined_names |= {text.partition(".")[0] for text in in_notebook.values()}
    listed = _assigned(tree, "WRONG")
    assert isinstance(listed, ast.Dict)
    # a helper that is an answer too is out
    own = {node.id for node in ast.walk(listed) if isinstance(node, ast.Name)}
    for number, cases in zip(wrong, listed.values, strict=True):
        name = solution_name(number)
        # a list that is calculated has no code to show
        for i, case in enumerate(getattr(cases, "elts", [])):
            assert isinstance(case, ast.Tuple)
            answer = _Renamed(in_notebook).visit(case.elts[0])
            code = _code(source, answer, made, defined_names, name, wrong[number][i][0])
            if (
                code
                and not own & set(re.findall(r"def (\w+)\(", code)) - {name}
                and _is_short(code)
            ):
                yield number, i, code


def _is_short(code: str) -> bool:
    return (
        len(code.splitlines()) <= _LONGEST
        and max(map(len, code.splitlines())) <= _WIDEST
    )


def task(number: str) -> str:
    """What an exercise asks for, in words that need no notebook."""
    return tasks()[number]


@functools.cache
def tasks() -> dict[str, str]:
    """Exercise -> its task, of those whose answers are shown alone."""
    return dict(
        read_table(EXERCISES / "tasks.csv", lambda row: (row["exercise"], row["task"]))
    )


def solution_name(number: str) -> str:
    """What the answer to an exercise is called: the last name that its solution binds,
    or else "answer".
    """
    last = ast.parse(exercise_files.solutions(number[:2])[number]).body[-1]
    if isinstance(last, ast.FunctionDef | ast.ClassDef):
        return last.name
    target = last.targets[0] if isinstance(last, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else "answer"


def function_text(source: str, node: ast.FunctionDef, name: str = "") -> str:
    """A function's source without its docstring and comments, under another name if one
    is given.
    """
    first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
    hidden = (
        range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        if ast.get_docstring(node)
        else ()
    )
    lines = source.splitlines()
    kept = [
        re.sub(r"\s+#.*$", "", lines[n - 1])
        for n in range(first, (node.end_lineno or 0) + 1)
        if n not in hidden
    ]
    text = "\n".join(line for line in kept if line.strip())
    return text.replace(f"def {node.name}(", f"def {name or node.name}(", 1)


def _code(
    source: str,
    answer: ast.expr,
    made: Functions,
    defined_names: set[str],
    name: str,
    value: object,
) -> str | None:
    """A wrong answer's code, below the functions of its file that it calls; None if it
    needs anything else of it.
    """
    if isinstance(answer, ast.Name) and answer.id in made:
        code = function_text(source, made[answer.id], name)
    elif isinstance(answer, ast.Lambda):
        body = textwrap.dedent(ast.get_source_segment(source, answer.body) or "")
        code = f"def {name}({ast.unparse(answer.args)}):\n    return {body}"
    elif isinstance(value, str):
        return value.strip()
    elif (
        literal := _literal(
            value.get(name, value) if isinstance(value, dict) else value
        )
    ) is not None:
        return f"{name} = {literal}".replace("\n", "\n" + " " * len(f"{name} = "))
    else:
        made_by = ast.unparse(answer)
        return f"{name} = {made_by}" if _free(made_by) <= defined_names else None
    while missing := sorted(_free(code) - defined_names):
        helpers = [
            made[missing_name]
            for missing_name in missing
            if missing_name in made and _is_plain(made[missing_name])
        ]
        if len(helpers) < len(missing):
            return None
        code = "\n\n".join(
            [*(function_text(source, helper) for helper in helpers), code]
        )
    # it calls another of that name
    return None if re.search(rf"(?<!def )(?<![\w.]){name}\(", code) else code


def _is_plain(helper: ast.FunctionDef) -> bool:
    """Whether a function may stand above an answer: it makes no functions, and isn't
    called the right one.
    """
    inner = [
        node
        for node in ast.walk(helper)
        if isinstance(node, ast.FunctionDef | ast.Lambda)
    ]
    return len(inner) == 1 and not helper.name.startswith("right")


def _free(code: str) -> set[str]:
    """The names that code reads and does not bind itself."""
    nodes = list(ast.walk(ast.parse(code)))
    read = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    bound = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return (
        read
        - bound
        - {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and not (
            getattr(node, "module", "") or ""
        ).startswith(_HERE):
            yield from (alias.asname or alias.name for alias in node.names)


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """What a module assigns to a name; None where it doesn't."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id == name:
                return node.value
    return None


class _Renamed(ast.NodeTransformer):
    """Puts expressions of the notebook in place of names of the answers' file."""

    def __init__(self, shown_as: Mapping[str, str]) -> None:
        self._shown_as = shown_as

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The expression that stands for a name, or the name itself."""
        text = self._shown_as.get(node.id)
        return node if text is None else ast.parse(text, mode="eval").body


def _literal(value: object) -> str | None:
    """A dict, list or tuple of plain values as Python would read it again; None for
    anything else.
    """
    text = pprint.pformat(value, width=_WIDEST - 16, sort_dicts=False)
    try:
        return (
            text
            if isinstance(value, dict | list | tuple)
            and ast.literal_eval(text) == value
            else None
        )
    except (ValueError, SyntaxError):
        return None
