"""Stand between Python and torch: see, time, count or replace each call of an operator or of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Around = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class EachOperator(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives its modes no types
    """Within the block, `around(func, args, kwargs)` takes the place of each operator that this thread dispatches.

    It returns the operator's result, usually func(*args, **kwargs). Operators are what torch runs in the end
    (aten.mm.default, say), below autograd: those of backward passes are among them, those of compiled code are not.
    """

    def __init__(self, around: Around) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.around = around

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.around(func, args, kwargs or {})


class EachFunction(TorchFunctionMode):
    """Within the block, `around(func, args, kwargs)` takes the place of each function or method of torch.

    These are the calls as Python writes them (torch.add, Tensor.item), above autograd: backward passes are not seen.
    """

    def __init__(self, around: Around) -> None:
        super().__init__()
        self.around = around

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.around(func, args, kwargs or {})
