"""Put back what experiments change: weights, gradients, optimizers, random numbers, and plain values of the loop."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_STATEFUL = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
Undo = Callable[[], object]


@contextlib.contextmanager
def unchanged(*loop: object) -> Iterator[None]:
    """Run the block, then put back what its training has changed.

    Put back are: parameters, buffers and modes of every module that is alive; tensors that require gradients, and their
    gradients; optimizers, schedulers and scalers; the random numbers of torch, Python and NumPy; and, of the functions
    and objects in `loop` (a step, a loader) and of what they refer to by name, numbers, words, lists, dicts and
    tensors. Files, other processes and an iterator that has no beginning stay as the block leaves them.
    """
    undo: list[Undo] = [partial(torch.set_rng_state, torch.get_rng_state())]
    numpy, known = sys.modules.get("numpy"), set[int]()
    undo.append(partial(random.setstate, random.getstate()))
    if torch.cuda.is_available():
        undo.append(partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    if numpy is not None:
        undo.append(partial(numpy.random.set_state, numpy.random.get_state()))
    for one in gc.get_objects():  # a step may use what it has no name for
        undo += _state_of(one)
    for one in loop:
        undo += _names_of(one, known, depth=4)
    try:
        yield
    finally:
        for put_back in reversed(undo):
            put_back()


def _state_of(one: Any) -> Iterator[Undo]:
    """What training changes of a module, a tensor with a gradient, an optimizer, or what belongs to one."""
    kind = type(one)
    if issubclass(kind, torch.nn.Module):
        yield partial(setattr, one, "training", one.training)
        for x in one._buffers.values():
            yield from _values(x)
    elif issubclass(kind, torch.Tensor) and one.requires_grad and one.is_leaf:
        yield from _values(one)
        yield partial(setattr, one, "grad", one.grad)
        yield from _values(one.grad)
    elif issubclass(kind, _STATEFUL):
        yield from _fields(vars(one))
        for group in getattr(one, "param_groups", ()):
            yield from _fields(group)
        if issubclass(kind, torch.optim.Optimizer):
            kept = {p: (dict(state), copy.deepcopy(dict(state))) for p, state in one.state.items()}
            yield partial(_put_back_state, one.state, kept)


def _put_back_state(states: Any, kept: dict[Any, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """An optimizer's state: its tensors stay the same ones."""
    for p in [p for p in states if p not in kept]:
        del states[p]
    for p, (entries, values) in kept.items():
        for name, entry in entries.items():
            if isinstance(entry, torch.Tensor):
                _copy(entry, values[name])
                values[name] = entry
        states[p] = values


def _values(x: Any) -> Iterator[Undo]:
    lazy = torch.nn.parameter.is_lazy(x)
    if isinstance(x, torch.Tensor) and not lazy and not x.is_inference() and x.layout == torch.strided:
        yield partial(_copy, x, x.detach().clone())


def _copy(x: torch.Tensor, kept: torch.Tensor) -> None:
    with torch.no_grad():
        x.copy_(kept)


def _names_of(value: Any, known: set[int], depth: int) -> Iterator[Undo]:
    """What a function or an object refers to: its closure, the globals that it names, its fields."""
    if id(value) in known or depth == 0 or isinstance(value, (type, torch.nn.Module)) or inspect.ismodule(value):
        return
    known.add(id(value))
    fields: dict[str, Any] = getattr(value, "__dict__", {})
    if isinstance(value, torch.Generator):
        yield partial(value.set_state, value.get_state())
    elif inspect.ismethod(value):
        fields = {"function": value.__func__, "self": value.__self__}
    elif inspect.isfunction(value):
        named = value.__globals__
        yield from _fields(named, set(value.__code__.co_names) & set(named))
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        fields = {name: named[name] for name in value.__code__.co_names if name in named}
        for name, cell in cells.items():
            with contextlib.suppress(ValueError):  # it has no value yet
                fields[name] = cell.cell_contents
                yield from _content(cell.cell_contents)
                yield partial(setattr, cell, "cell_contents", cell.cell_contents)
    else:
        yield from _fields(fields)
    for inner in list(fields.values()):
        yield from _names_of(inner, known, depth - 1)


def _fields(fields: dict[str, Any], names: Any = None) -> Iterator[Undo]:
    """Names refer to what they did; lists, dicts, sets and tensors get their content back."""
    chosen = {name: fields[name] for name in (fields if names is None else names)}
    yield partial(fields.update, chosen)
    for value in chosen.values():
        yield from _content(value)


def _content(value: Any) -> Iterator[Undo]:
    if type(value) is list:
        yield partial(value.__setitem__, slice(None), list(value))
    elif type(value) in (dict, set):
        yield from (partial(value.update, value.copy()), value.clear)  # undone in reverse
    if type(value) is torch.Tensor or (type(value) in (list, dict, tuple) and len(value) < 1000):
        for x in tree_leaves(value):
            yield from _values(x)
