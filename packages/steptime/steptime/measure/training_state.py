"""Put back what experiments change: weights, gradients, optimizers, random numbers, and
plain values of the loop.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import random
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

_TRAINED = (
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    torch.amp.GradScaler,
)
# from an object to its fields, to a list in one of them, to that list's tensors, and so
# on: so far to all, and further to what a framework for training may keep its counters
# in
_DEPTH = 6
_MOST = 1000  # entries of a container that are looked into
_MOST_VALUES = 100_000  # looked into in all
_CONTAINERS = (list, deque, set, tuple, dict, defaultdict)
# whose objects keep caches and locks, and no counters of a training
_SYSTEM = {*sys.stdlib_module_names, "torch", "numpy"}


@contextlib.contextmanager
def unchanged(*loop: object) -> Iterator[tuple[str, ...]]:
    """Run the block, then put back what its training has changed.

    Put back are: buffers and modes of every module that is alive; tensors that require
    gradients, and their gradients; optimizers, schedulers and scalers; the random
    numbers of torch, Python and NumPy; and, of the functions and objects in `loop` (a
    step, a loader) and of what they refer to, variables, fields, lists, dicts, sets and
    tensors. Files, other processes, generators and a DataLoader's workers stay as the
    block leaves them. The block gets sentences on what else isn't put back.
    """
    with contextlib.ExitStack() as undo:
        # A step may use what it has no name for.
        values: list[Any] = [*loop, *filter(_is_trained, gc.get_objects())]
        visited = {id(undo), id(values)}
        depth = 0
        while values and len(visited) < _MOST_VALUES:
            if depth >= _DEPTH:
                values = list(filter(_may_count, values))
            inner: list[Any] = []
            for value in values:
                if id(value) not in visited:
                    visited.add(id(value))
                    inner += _kept(value, undo)
            values = inner
            depth += 1
        left: tuple[str, ...] = ()
        if values:
            left = (
                f"Values {depth} levels below the loop's variables aren't put back:"
                f" {_MOST_VALUES:,} above them are.",
            )
        with same_random_numbers():
            yield left


@contextlib.contextmanager
def same_random_numbers(*generators: torch.Generator) -> Iterator[None]:
    """Run the block, then put back the random numbers of torch, Python and NumPy, and
    those of `generators`.
    """
    with contextlib.ExitStack() as undo:
        for generator in (torch.default_generator, *generators):
            undo.callback(generator.set_state, generator.get_state())
        undo.callback(random.setstate, random.getstate())
        if torch.cuda.is_available():
            undo.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        if (numpy := sys.modules.get("numpy")) is not None:
            undo.callback(numpy.random.set_state, numpy.random.get_state())
        yield


def _is_trained(value: Any) -> bool:
    kind = type(value)  # isinstance would ask the object, which may be a proxy
    if issubclass(kind, _TRAINED):
        return True
    return issubclass(kind, torch.Tensor) and value.requires_grad and value.is_leaf


def _may_count(value: Any) -> bool:
    """Whether a value far below a loop's own may hold counters of its training."""
    kind = type(value)
    if kind in _CONTAINERS or issubclass(kind, torch.Tensor):
        return True
    package, _, _ = kind.__module__.partition(".")
    return package not in _SYSTEM and not inspect.isroutine(value)


def _kept(value: Any, undo: contextlib.ExitStack) -> Iterable[Any]:
    """Add to `undo` what puts a value back; return what the value refers to."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        return _kept_tensor(value, undo)
    if issubclass(kind, torch.Generator):
        undo.callback(value.set_state, value.get_state())
    if kind in (list, deque, set, dict, defaultdict):
        fill = value.extend if kind in (list, deque) else value.update
        undo.callback(fill, value.copy())
        undo.callback(value.clear)  # undone in reverse
    if kind in (list, deque, tuple, dict, defaultdict):
        if len(value) >= _MOST:
            return ()
        return list(value.values() if issubclass(kind, dict) else value)
    if issubclass(kind, torch.nn.Module):
        undo.callback(setattr, value, "training", value.training)
        return list(value._buffers.values())
    if inspect.ismethod(value):
        return value.__func__, value.__self__
    if inspect.isfunction(value):
        return _kept_variables(value, undo)
    fields = getattr(value, "__dict__", None)
    if (
        type(fields) is not dict
        or inspect.ismodule(value)
        or issubclass(kind, _BaseDataLoaderIter)
    ):
        return ()
    undo.callback(fields.update, dict(fields))
    return list(fields.values())


def _kept_tensor(x: torch.Tensor, undo: contextlib.ExitStack) -> Iterable[Any]:
    # what torch.compile traces with has no numbers
    traces = type(x).__module__.startswith("torch._subclasses")
    if (
        traces
        or torch.nn.parameter.is_lazy(x)
        or x.is_inference()
        or x.layout != torch.strided
    ):
        return ()
    undo.callback(_copy, x, x.detach().clone())
    if not (x.requires_grad and x.is_leaf):
        return ()
    undo.callback(setattr, x, "grad", x.grad)
    return (x.grad,)


def _copy(x: torch.Tensor, kept: torch.Tensor) -> None:
    with torch.no_grad():
        x.copy_(kept)


def _kept_variables(function: Any, undo: contextlib.ExitStack) -> Iterable[Any]:
    """What a function refers to: the globals that it names, and its closure."""
    named = {
        name: function.__globals__[name]
        for name in function.__code__.co_names
        if name in function.__globals__
    }
    undo.callback(function.__globals__.update, named)
    values = list(named.values())
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it has no value yet
            values.append(cell.cell_contents)
            undo.callback(setattr, cell, "cell_contents", cell.cell_contents)
    return values
