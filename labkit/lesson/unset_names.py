"""What to do about a name that no cell has set: an extension of IPython, which a
notebook's kernel loads when it starts, before any cell has run.

scripts/setup.py writes the kernel's configuration that names it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

_RUN_ABOVE = (
    "If a cell above sets it, run that cell first, or all of them: menu Run, Run All"
    " Above Selected Cell."
)


def load_ipython_extension(shell: Any) -> None:
    """Let a NameError say so, from the first cell on."""
    shell.set_custom_exc((NameError,), explain)


def explain(
    self: Any,
    kind: type,
    error: BaseException,
    trace: TracebackType,
    tb_offset: Any = None,
) -> None:
    """IPython's handler of a NameError. A local name that is unset, which is one too,
    has no cell above that sets it.
    """
    if kind is NameError:
        error.args = (f"{error}\n{_RUN_ABOVE}",)
    self.showtraceback((kind, error, trace), tb_offset=tb_offset)
