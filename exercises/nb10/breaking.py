"""Find where torch.compile's tracer ends a graph and starts another one, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from labkit.core.display import ShownAsTable, Table, brief_repr, cut
from labkit.core.errors import GraphCompileError
from labkit.core.parameters import checked
from labkit.train.graphs.compiling import quiet

_LONGEST_REASON = 150

# What the tracer's messages mean; the first pattern that matches decides. Several
# versions of torch have to match.
_MEANINGS = (
    (
        r"generic_jump|data-dependent (branch|jump|control)",
        "which way to go depends on the numbers in a tensor",
    ),
    (
        r"Tensor\.item|\.item\(\)|aten\._local_scalar_dense",
        "a number is taken out of a tensor, as item() does",
    ),
    (r"builtin:? \W*print", "print is called"),
    (
        r"dynamic shape operator|aten\.nonzero",
        "the shape of a result depends on the numbers in a tensor",
    ),
)


class Break(NamedTuple):
    """One place where a graph ends before the function does: the reason, and source
    line and number where known.
    """

    reason: str
    line: str = ""
    number: int | None = None

    def __str__(self) -> str:
        where = f", in `{self.line}`" if self.line else ""
        return f"{self.reason}{where}"


@dataclass(frozen=True, repr=False)
class Breaks(ShownAsTable):
    """The number of graphs that a call was split into, the number of operators in each,
    and the breaks between them.
    """

    graphs: int
    operators: tuple[int, ...]
    breaks: tuple[Break, ...]

    def table(self) -> Table:
        """Return a row for each break: line, source, reason."""
        sizes = ", ".join(map(str, self.operators))
        graphs = f"{self.graphs} graph{'s' * (self.graphs != 1)}"
        cut_into = (
            f"{graphs} of {sizes} operators" if self.graphs else "no graph at all"
        )
        if not self.breaks:
            return Table(((f"{cut_into}, no break",),))
        rows = tuple(
            (str(b.number or "?"), b.line or "not known", b.reason) for b in self.breaks
        )
        return Table(
            rows, ("line", "source", "why the graph ends there"), notes=(cut_into,)
        )


@checked
def breaks(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Breaks:
    """Trace and run a call of `fn`, and return where its graph breaks; forgets what was
    compiled before.

    The function runs, with its side effects; no code is generated, so no compiler is
    needed. Only breaks on the path that these arguments take are found. Raises
    BadArgument for what can't be called, and GraphCompileError where the function
    itself fails. Source: torch._dynamo.explain, PyTorch documentation "torch.compile
    Troubleshooting".
    """
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    before = Counter(counters["graph_break"])
    try:
        with quiet():
            explanation = dynamo.explain(fn)(*args, **kwargs)
    except Exception as error:
        arguments = ", ".join(map(brief_repr, args))
        raise GraphCompileError(
            f"{getattr(fn, '__name__', 'The function')}({arguments}) raised"
            f" {type(error).__name__}: {cut(str(error), 200)} Call it without tracing"
            " first, and fix it."
        ) from error
    translated = [
        _translated(reason)
        for reason in explanation.break_reasons
        if reason.graph_break
    ]
    counted = Counter(counters["graph_break"]) - before
    # A break before the first operator or after the last one ends no graph, so only the
    # counter knows of it.
    extra = Counter(_meaning(text) for text in counted.elements()) - Counter(
        b.reason for b in translated
    )
    silent = [Break(reason) for reason in extra.elements()]
    sizes = tuple(
        sum(node.op.startswith("call_") for node in g.graph.nodes)
        for g in explanation.graphs
    )
    return Breaks(len(sizes), sizes, tuple(translated + silent))


def _translated(reason: Any) -> Break:
    """Translate a break of the tracer's, and locate it: the innermost source line that
    is not torch's own.
    """
    import torch

    torch_home = str(Path(torch.__path__[0]))
    own = [
        frame
        for frame in reason.user_stack
        if not frame.filename.startswith(torch_home)
    ]
    frame = own[-1] if own else None
    return Break(
        _meaning(reason.reason),
        (frame.line or "").strip() if frame else "",
        frame.lineno if frame else None,
    )


def _meaning(text: str) -> str:
    """Return the reason in one sentence: in plain words where it is known, else the
    tracer's own explanation.
    """
    for pattern, words in _MEANINGS:
        if re.search(pattern, text, re.IGNORECASE):
            return words
    explained = re.search(r"Explanation: (.+)", text)
    return cut(explained[1] if explained else text.splitlines()[0], _LONGEST_REASON)
