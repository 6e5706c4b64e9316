"""Count the operators that a call runs one by one, and the kernels that torch.compile makes of them."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.core.arguments import check_function
from labkit.core.display import Shown, Table
from labkit.core.errors import CompileError
from labkit.core.units import format_bytes
from labkit.train.graphs.compiling import compiled, quiet

_DEFINED = re.compile(r"^(\w+) = async_compile\.\w+\(.*?'''(.*?)'''", re.MULTILINE | re.DOTALL)
_LIBRARY = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.\w+\.\w+(?:\.\w+)?)\(")
_CALLED_BELOW = "async_compile.wait(globals())"
_ALLOCATING = frozenset({"aten.empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty"})


@dataclass(frozen=True, repr=False)
class Operators(Shown):
    """How often each operator of torch ran in a call, and the bytes of memory that their results took anew.

    What only looks at memory in another way, such as a transposition, runs nothing and is not counted.
    """

    counts: dict[str, int]
    new_bytes: int

    @property
    def total(self) -> int:
        """Operators that ran."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def _table(self) -> Table:
        rows = tuple((name, str(n)) for name, n in sorted(self.counts.items(), key=lambda item: -item[1]))
        total = f"{_several(self.total, 'operator')}, {format_bytes(self.new_bytes)} of new memory"
        return Table(rows, ("operator", "times"), notes=(total,))


def operators(work: Callable[[], object]) -> Operators:
    """Run `work` once and count the operators that torch runs for it, in forward and backward passes alike.

    Raises BadArgument for what can't be called. Source: torch.utils._python_dispatch.TorchDispatchMode.
    """
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    check_function("work", work)
    base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    counts: Counter[str] = Counter()
    memory: dict[int, Any] = {}  # storages are kept until the end, else an address might serve twice
    known: set[int] = set()

    class Counting(base):  # type: ignore[misc]  # torch gives its modes no types
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = [leaf.untyped_storage() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            known.update(storage.data_ptr() for storage in before if storage.data_ptr() not in memory)
            result = func(*args, **(kwargs or {}))
            name = str(func).rsplit(".", 1)[0]
            if func.namespace != "profiler" and not func.is_view and name not in _ALLOCATING:
                counts[name] += 1
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in known:
                    memory[leaf.untyped_storage().data_ptr()] = leaf.untyped_storage()
            return result

    with Counting():
        work()
    return Operators(dict(counts), sum(storage.nbytes() for storage in memory.values()))


@dataclass(frozen=True, repr=False)
class Fusion(Shown):
    """What torch.compile made of a call: `operators` that eager runs, `kernels` it wrote, calls it left to libraries.

    `names` are the written kernels' names, which say what was fused, `code` their text (C++ on a CPU, Triton on a GPU).
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
    """Compile a forward call of `fn` and count the kernels that a call launches.

    What was compiled before is forgotten. Raises CompileError where no compiler is there, and where this version of
    torch gives no generated code to read.
    Source: torch._inductor.utils.run_and_get_code, which torch's own tests use.
    """
    import torch

    eager = operators(lambda: fn(*args))
    function = compiled(fn)
    with quiet():
        import torch._functorch.config as tracing
        import torch._inductor.config as generating
        import torch._inductor.utils as utils

        run_and_get_code = getattr(utils, "run_and_get_code", None)  # private to torch, so it may go
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
    """Kernels and their calls in the text of one or several modules that inductor wrote."""
    defined = dict(_DEFINED.findall(source))
    called = "".join(part.split("def benchmark_compiled_module")[0] for part in source.split(_CALLED_BELOW)[1:])
    calls = sum(len(re.findall(rf"\b{name}(?:\.run)?\(", called)) for name in defined)
    code = "\n".join(text.strip() for text in defined.values())
    return Fusion(eager, calls, len(_LIBRARY.findall(called)), tuple(defined), code)
