"""Count the operators that a call runs in eager mode, and the kernels that torch.compile makes of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from labkit.core.display import Shown, ShownAsTable, Table
from labkit.core.errors import CompileError
from labkit.core.parameters import checked
from labkit.core.units import format_bytes
from labkit.train.graphs.compiling import compiled, quiet
from steptime.torch_calls import EachOperator

# A module that inductor wrote holds definitions of kernels, then _CALLED_BELOW, then the function that calls them.
_DEFINED = re.compile(r"^(\w+) = async_compile\.\w+\(.*?'''(.*?)'''", re.MULTILINE | re.DOTALL)
_LIBRARY = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.\w+\.\w+(?:\.\w+)?)\(")
_CALLED_BELOW = "async_compile.wait(globals())"
# These reserve memory and compute nothing: their bytes count, they don't.
_ALLOCATING = frozenset({"aten.empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty"})


@dataclass(frozen=True, repr=False)
class Operators(ShownAsTable):
    """How often each operator of torch ran in a call, and the bytes of new memory that their results took.

    A view, such as a transposition, runs nothing and is not counted.
    """

    counts: dict[str, int]
    new_bytes: int

    @property
    def total(self) -> int:
        """Operators that ran."""
        return sum(self.counts.values())

    def table(self) -> Table:
        """Return a row for each operator, the most frequent first."""
        rows = tuple((name, str(n)) for name, n in sorted(self.counts.items(), key=lambda item: -item[1]))
        total = f"{_several(self.total, 'operator')}, {format_bytes(self.new_bytes)} of new memory"
        return Table(rows, ("operator", "times"), notes=(total,))


@checked
def operators(work: Callable[[], object]) -> Operators:
    """Run `work` once and count the operators that torch runs for it, in forward and backward passes alike.

    Raises BadArgument for what can't be called.
    """
    counts: Counter[str] = Counter()
    new: dict[int, torch.UntypedStorage] = {}  # kept until the end, so that no address is used twice
    known: set[int] = set()  # addresses of memory that was there before

    def count(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known.update(_storages((args, kwargs)).keys() - new.keys())
        result = func(*args, **kwargs)
        name = str(func).rsplit(".", 1)[0]
        if func.namespace != "profiler" and not func.is_view and name not in _ALLOCATING:
            counts[name] += 1
        new.update((at, storage) for at, storage in _storages(result).items() if at not in known)
        return result

    with EachOperator(count):
        work()
    return Operators(dict(counts), sum(storage.nbytes() for storage in new.values()))


def _storages(tree: Any) -> dict[int, torch.UntypedStorage]:
    """Return the memory of all tensors in a nested structure, by address."""
    storages = (leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
    return {storage.data_ptr(): storage for storage in storages}


@dataclass(frozen=True, repr=False)
class Fusion(Shown):
    """What torch.compile made of a call: eager `operators`, launches of written `kernels`, and `library_calls`.

    `names` are the written kernels' names, which say what was fused; `code` is their text (C++ on a CPU, Triton on a
    GPU).
    """

    operators: int
    kernels: int
    library_calls: int
    names: tuple[str, ...]
    code: str

    def __str__(self) -> str:
        library = f" and {_several(self.library_calls, 'library call')}" if self.library_calls else ""
        became = f"{_several(self.operators, 'operator')} became {_several(self.kernels, 'kernel')}{library}"
        return f"{became}: {', '.join(self.names) or 'none written'}"


def _several(n: int, thing: str) -> str:
    return f"{n} {thing}{'s' * (n != 1)}"


def fusion(fn: Callable[..., Any], *args: Any) -> Fusion:
    """Compile a forward call of `fn`, and count the kernels that a call launches; forgets what was compiled before.

    Raises CompileError where there is no compiler, and where this version of torch doesn't show its generated code.
    Source: torch._inductor.utils.run_and_get_code, which torch's own tests use.
    """
    eager = operators(lambda: fn(*args))
    function = compiled(fn)
    with quiet():
        import torch._functorch.config as tracing
        import torch._inductor.config as generating
        import torch._inductor.utils as utils

        run_and_get_code = getattr(utils, "run_and_get_code", None)  # private to torch, so a version may lack it
        if run_and_get_code is None:
            raise CompileError(
                f"Expected torch._inductor.utils.run_and_get_code to read the generated code with, and torch "
                f"{torch.__version__} has none: read it with the environment variable TORCH_LOGS=output_code."
            )
        torch.compiler.reset()
        with generating.patch(fx_graph_cache=False), tracing.patch(enable_autograd_cache=False):
            _, sources = run_and_get_code(function, *args)
    if not sources:
        raise CompileError("Expected generated code, got none: does the function run any operator of torch?")
    return _read(eager.total, "\n".join(sources))


def _read(eager: int, source: str) -> Fusion:
    """Count kernels and their calls in the text of one or several modules that inductor wrote."""
    defined = dict(_DEFINED.findall(source))
    # benchmark_compiled_module calls the kernels too, but nobody calls it
    called = "".join(part.split("def benchmark_compiled_module")[0] for part in source.split(_CALLED_BELOW)[1:])
    calls = sum(len(re.findall(rf"\b{name}(?:\.run)?\(", called)) for name in defined)
    code = "\n".join(text.strip() for text in defined.values())
    return Fusion(eager, calls, len(_LIBRARY.findall(called)), tuple(defined), code)
