"""Intercept each operator that torch runs: to see, time, count or replace it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Around = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


@contextlib.contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Within the block, attributes of a module or of a class have other values."""
    own = {name: vars(owner)[name] for name in values if name in vars(owner)}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name in values:
            if name in own:
                setattr(owner, name, own[name])
            else:
                delattr(owner, name)  # from then on, it is inherited again


class EachOperator(TorchDispatchMode):
    """Within the block, `around(func, args, kwargs)` is called in place of each
    operator that this thread dispatches.

    It returns the operator's result, usually func(*args, **kwargs). Operators, such as
    aten.mm.default, are dispatched below autograd: those of backward passes are seen.
    Code of torch.compile runs compiled and stays so; of it, only the operators are seen
    that it calls, such as products. In inference mode torch leaves operators such as
    aten.linear whole: they are taken apart here.
    """

    def __init__(self, around: Around) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives it no types
        self.around = around

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: else torch.compile would give up each function that it meets within the
        block, for good.
        """
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if torch.is_inference_mode_enabled():
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return self.around(func, args, kwargs or {})


@contextlib.contextmanager
def each_compiled_graph(
    around: Callable[[Callable[[], Any], list[Any]], Any],
) -> Iterator[None]:
    """Within the block, `around(run, inputs)` is called in place of each graph of
    Inductor that this thread runs.

    It returns the outputs, usually run(). Other backends' graphs, such as those of
    "aot_eager", consist of operators.
    """
    output_code = sys.modules.get("torch._inductor.output_code")
    thread = threading.get_ident()
    if output_code is None:  # nothing has been compiled
        yield
        return
    call = output_code.CompiledFxGraph.__call__

    def call_within_around(graph: Any, inputs: list[Any]) -> Any:
        if threading.get_ident() != thread:
            return call(graph, inputs)
        # a copy: the graph empties its list
        return around(lambda: call(graph, inputs), [*inputs])

    with replaced(output_code.CompiledFxGraph, __call__=call_within_around):
        yield


@contextlib.contextmanager
def each_wait(around: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """Within the block, `around(run)` is called in place of each wait of this thread
    for a collective; it returns what run() does.
    """
    distributed: Any = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        yield
        return
    wait = distributed.Work.wait
    thread = threading.get_ident()

    def wait_within_around(work: Any, *timeout: Any) -> Any:
        if threading.get_ident() != thread:
            return wait(work, *timeout)
        return around(lambda: wait(work, *timeout))

    with replaced(distributed.Work, wait=wait_within_around):
        yield


def compiled_graphs() -> int:
    """How many graphs torch.compile has compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters["stats"]["unique_graphs"] if dynamo is not None else 0


def compiling_s() -> float:
    """Seconds that torch.compile has compiled for in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return 0.0
    return float(sum(dynamo.compilation_time_metrics.get("_compile.compile_inner", ())))


@contextlib.contextmanager
def kept_as_compiled() -> Iterator[None]:
    """Within the block, what torch.compile has compiled raises RuntimeError where it
    would have to be compiled anew.
    """
    with contextlib.ExitStack() as stack:
        if compiled_graphs():
            stack.enter_context(torch.compiler.set_stance("fail_on_recompile"))
        yield
