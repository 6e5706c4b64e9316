"""Kernels as text: what a learner wrote below @cuda.jit, @triton.jit or @numba.njit is
judged by its source, in a process in which nothing else of the learner's runs.

A kernel's language is small: arithmetic, arrays and the names of `WORDS`. What else
stands in a source is refused, so that making the kernel again runs nothing but a
kernel.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import math
import textwrap
from collections.abc import Mapping
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TYPES = _words("""
    int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bool_
    boolean intp
""")
# the names that a kernel may take from a module, and the parts of those
WORDS: Mapping[str, frozenset[str]] = {
    "numba.cuda": _words("""
        threadIdx blockIdx blockDim gridDim x y z grid gridsize laneid warpsize
        syncthreads syncthreads_count syncthreads_and syncthreads_or syncwarp
        threadfence threadfence_block threadfence_system shared local array atomic
        add sub max min nanmax nanmin exch inc dec cas and_ or_ xor compare_and_swap
        shfl_sync shfl_up_sync shfl_down_sync shfl_xor_sync all_sync any_sync eq_sync
        ballot_sync match_any_sync match_all_sync activemask popc brev clz ffs fma
        cbrt selp
    """),
    "numba": _TYPES | _words("prange get_thread_id get_num_threads"),
    "numpy": _TYPES
    | _words("""
        pi inf nan newaxis empty zeros ones full empty_like zeros_like ones_like arange
        exp log sqrt abs maximum minimum sum max min argmax dot where
    """),
    "math": frozenset(name for name in vars(math) if not name.startswith("_")),
    "triton.language": _words("""
        program_id num_programs arange load store zeros zeros_like full where dot exp
        exp2 log log2 sqrt rsqrt sqrt_rn sin cos sigmoid softmax floor ceil erf fma
        max min sum maximum minimum abs argmax argmin xor_sum cumsum cumprod trans
        permute reshape view ravel broadcast broadcast_to expand_dims cast clamp
        constexpr cdiv fdiv div_rn range static_range multiple_of max_contiguous
        static_assert math atomic_add atomic_max atomic_min atomic_cas atomic_xchg
        flip join split interleave cat sort int1 int8 int16 int32 int64 uint8 uint16
        uint32 uint64 float16 bfloat16 float32 float64
    """),
}
# of an array, a tile or a position: what a kernel may ask it for
_PARTS = _words("""
    shape size ndim dtype element_ty T x y z to ravel flatten reshape copy sum max min
    argmax fill
""")
_BUILTINS = _words(
    "range len min max abs float int bool round tuple zip enumerate pow print"
)
_SYNTAX = (
    *(ast.arguments, ast.arg, ast.keyword, ast.Load, ast.Store, ast.operator),
    *(ast.unaryop, ast.boolop, ast.cmpop, ast.Assign, ast.AugAssign, ast.AnnAssign),
    *(ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Pass, ast.Return),
    *(ast.Expr, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp),
    *(ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.Attribute),
    *(ast.Call, ast.NamedExpr, ast.Assert),
)
_NUMBER = itertools.count()


class NoKernel(ValueError):
    """A source holds what no kernel needs; the message says what."""


def is_kernel(value: Any, *, compiled: bool = True) -> bool:
    """Whether a value was made by @cuda.jit or @triton.jit, or with `compiled` by
    @numba.njit.
    """
    language = _language(value)
    return language != "" and (compiled or language != "numba")


def _language(value: Any) -> str:
    module = type(value).__module__
    if module.startswith("numba.cuda") and hasattr(value, "py_func"):
        return "cuda"
    if module.startswith("numba.core") and hasattr(value, "py_func"):
        return "numba"
    is_tiles = module.startswith(("triton.", "kerneltrace."))
    if is_tiles and inspect.isfunction(getattr(value, "fn", None)):
        return "triton"
    return ""


def described(kernel: Any) -> dict[str, Any]:
    """A kernel as plain values: its language, its source, and what the names in it
    stand for.

    A name stands for a number, for a module or a part of one, for another kernel, or
    for what none needs, which is left out.
    """
    language = _language(kernel)
    fn = kernel.fn if language == "triton" else kernel.py_func
    options = getattr(kernel, "targetoptions", {})
    source = textwrap.dedent(inspect.getsource(fn))
    # annotations and defaults too, which aren't among the function's own names
    used = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}
    values = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
    meanings = {name: _meaning(values[name]) for name in used & values.keys()}
    return {
        "language": language,
        "is_device": bool(options.get("device")),
        "is_parallel": bool(options.get("parallel")),
        "fastmath": _fastmath(options.get("fastmath", False)),
        "name": fn.__name__,
        "source": source,
        "names": {name: meaning for name, meaning in meanings.items() if meaning},
    }


def _fastmath(option: Any) -> bool | list[str]:
    """Numba's option `fastmath`: all or nothing, or LLVM's names of what is allowed."""
    allowed = getattr(option, "flags", option)
    return allowed if isinstance(allowed, bool) else sorted(map(str, allowed))


def _meaning(value: Any) -> tuple[str, Any] | None:
    if is_kernel(value):
        return "kernel", described(value)
    if isinstance(value, bool | int | float):
        return "number", value
    if isinstance(value, tuple) and all(isinstance(n, int | float) for n in value):
        return "number", value
    for module in WORDS:
        owner = _module(module)
        if value is owner:
            return "module", module
        for word in WORDS[module]:
            if value is getattr(owner, word, _MISSING):
                return "word", (module, word)
    if type(value).__name__ == "constexpr":
        return "constexpr", value.value
    return None


_MISSING = object()


def _module(name: str) -> Any:
    """A module of WORDS, by name."""
    import numba.cuda
    import numpy as np

    from kerneltrace.tiles import tl

    return {
        "numba.cuda": numba.cuda,
        "numba": numba,
        "numpy": np,
        "math": math,
        "triton.language": tl,
    }[name]


def rebuilt(kernel: Mapping[str, Any]) -> Any:
    """The kernel that `described` describes, made from its source; NoKernel for what no
    kernel needs.
    """
    names = {
        str(name): _named(*meaning) for name, meaning in dict(kernel["names"]).items()
    }
    modules = {
        name: meaning[1]
        for name, meaning in kernel["names"].items()
        if meaning[0] == "module"
    }
    source = str(kernel["source"])
    tree = _checked(source, modules, {*names, *_BUILTINS})
    lines = source.splitlines(True)[tree.lineno - 1 :]
    file = f"<kernel {next(_NUMBER)}>"
    linecache.cache[file] = len(source), None, lines, file
    text = "".join(lines)
    exec(compile(text, file, "exec", dont_inherit=True), names)
    return _jitted(names[tree.name], kernel)


def _jitted(fn: Any, kernel: Mapping[str, Any]) -> Any:
    """A function as a kernel of its language."""
    if kernel["language"] == "cuda":
        from numba import cuda

        return cuda.jit(device=True)(fn) if kernel["is_device"] else cuda.jit(fn)
    if kernel["language"] == "numba":
        import numba

        fastmath = kernel["fastmath"]
        allowed = fastmath if isinstance(fastmath, bool) else set(fastmath)
        return numba.njit(parallel=bool(kernel["is_parallel"]), fastmath=allowed)(fn)
    from kerneltrace.tiles import triton

    return triton.jit(fn)


def _named(kind: str, value: Any) -> Any:
    """What a name stands for, here."""
    match kind:
        case "kernel":
            return rebuilt(value)
        case "number" if isinstance(value, bool | int | float | tuple):
            return value
        case "constexpr" if isinstance(value, bool | int | float):
            return _module("triton.language").constexpr(value)
        case "module" if value in WORDS:
            return _module(value)
        case "word" if value[1] in WORDS[value[0]]:
            return getattr(_module(value[0]), value[1])
    raise NoKernel(f"{kind} is nothing that a kernel's name stands for")


def _checked(
    source: str, modules: Mapping[str, str], names: set[str]
) -> ast.FunctionDef:
    """The function of a source, which holds nothing but a kernel."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise NoKernel(f"its source can't be read: {error}") from error
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        raise NoKernel("its source is no single function")
    tree = body[0]
    tree.decorator_list = []
    stored = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own_modules = {
        name: module for name, module in modules.items() if name not in stored
    }
    for node in ast.walk(tree):
        _check(node, tree, own_modules, names | stored)
    return tree


def _check(
    node: ast.AST, tree: ast.AST, modules: Mapping[str, str], names: set[str]
) -> None:
    """NoKernel for a part of a source that no kernel needs."""
    where = f"line {getattr(node, 'lineno', 1)} of its source"
    if node is not tree and not isinstance(node, _SYNTAX):
        raise NoKernel(f"{where} has a {type(node).__name__}, which no kernel needs")
    if isinstance(node, ast.Name) and (
        node.id not in names or node.id.startswith("__")
    ):
        raise NoKernel(f"{where} uses {node.id}, which no kernel needs")
    if isinstance(node, ast.Attribute):
        root = _root(node)
        words = WORDS[modules[root]] if root in modules else _PARTS
        if node.attr not in words:
            raise NoKernel(f"{where} uses .{node.attr}, which no kernel needs")
    elif isinstance(node, ast.Call) and not isinstance(
        node.func, ast.Name | ast.Attribute
    ):
        raise NoKernel(f"{where} calls what has no name")


def _root(node: ast.expr) -> str:
    """The name that a chain of attributes begins with, or nothing."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
