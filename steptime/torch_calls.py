"""Intercept each operator that torch runs: to see, time, count or replace it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Around = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class EachOperator(TorchDispatchMode):
    """Within the block, `around(func, args, kwargs)` is called in place of each operator that this thread dispatches.

    It returns the operator's result, usually func(*args, **kwargs). Operators, such as aten.mm.default, are dispatched
    below autograd: those of backward passes are seen, those of compiled code are not. In inference mode torch leaves
    operators such as aten.linear whole: they are taken apart here.
    """

    def __init__(self, around: Around) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives it no types
        self.around = around

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.is_inference_mode_enabled():
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return self.around(func, args, kwargs or {})
