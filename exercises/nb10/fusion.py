"""Count the kernels that torch.compile makes of a call's operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from labkit.core.display import Shown
from labkit.core.errors import GraphCompileError
from labkit.core.parameters import checked
from labkit.train.graphs import operators
from labkit.train.graphs.compiling import compiled, quiet

# A module that inductor wrote holds definitions of kernels, then _CALLED_BELOW, then
# the function that calls them.
_DEFINED = re.compile(
    r"^(\w+) = async_compile\.\w+\(.*?'''(.*?)'''", re.MULTILINE | re.DOTALL
)
_LIBRARY = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.\w+\.\w+(?:\.\w+)?)\(")
_CALLED_BELOW = "async_compile.wait(globals())"


@dataclass(frozen=True, repr=False)
class Fusion(Shown):
    """What torch.compile made of a call: eager `operators`, launches of written
    `kernels`, and `library_calls`.

    `names` are the written kernels' names, which say what was fused; `code` is their
    text, in C++ or Triton.
    """

    operators: int
    kernels: int
    library_calls: int
    names: tuple[str, ...]
    code: str

    def __str__(self) -> str:
        library = (
            f" and {_several(self.library_calls, 'library call')}"
            if self.library_calls
            else ""
        )
        became = (
            f"{_several(self.operators, 'operator')} became"
            f" {_several(self.kernels, 'kernel')}{library}"
        )
        return f"{became}: {', '.join(self.names) or 'none written'}"


@checked
def fusion(fn: Callable[..., Any], *args: Any) -> Fusion:
    """Compile a forward call of `fn`, and count the kernels that a call launches;
    forgets what was compiled before.

    Raises GraphCompileError where there is no compiler, and where this version of torch
    hides its generated code. Source: torch._inductor.utils.run_and_get_code, which
    torch's own tests use.
    """
    eager = operators(lambda: fn(*args))
    with quiet():
        import torch._functorch.config as tracing
        import torch._inductor.config as generating
        import torch._inductor.utils as utils

        # private to torch, so a version may lack it
        run_and_get_code = getattr(utils, "run_and_get_code", None)
        if run_and_get_code is None:
            raise GraphCompileError(
                "Expected torch._inductor.utils.run_and_get_code in"
                f" {torch.__version__}: set TORCH_LOGS=output_code."
            )
        torch.compiler.reset()
        with (
            generating.patch(fx_graph_cache=False),
            tracing.patch(enable_autograd_cache=False),
        ):
            _, sources = run_and_get_code(compiled(fn), *args)
    if not sources:
        raise GraphCompileError(
            "Expected generated code, got none: does the function run any operator of"
            " torch?"
        )
    return _read(eager.total, "\n".join(sources))


def _read(eager: int, source: str) -> Fusion:
    """Count kernels and their calls in the text of one or several modules that inductor
    wrote.
    """
    defined = dict(_DEFINED.findall(source))
    # benchmark_compiled_module calls the kernels too, but nobody calls it
    called = "".join(
        part.split("def benchmark_compiled_module")[0]
        for part in source.split(_CALLED_BELOW)[1:]
    )
    calls = sum(len(re.findall(rf"\b{name}(?:\.run)?\(", called)) for name in defined)
    code = "\n".join(text.strip() for text in defined.values())
    return Fusion(eager, calls, len(_LIBRARY.findall(called)), tuple(defined), code)


def _several(n: int, thing: str) -> str:
    return f"{n} {thing}{'s' * (n != 1)}"
