"""Put back what an answer, or the check that judges it, changed in this process: `rows`
lists what that can be.

Not put back: threads and processes that still run, files, what a module or class that
`_owners` doesn't name was given, what these exercises have nothing to do with (a
locale, tracing functions, signals, matplotlib's settings), and torch's number of
threads between operators, which can be set only once.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib.util
import logging
import math
import os
import pickle
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import BuiltinImporter
from typing import Any, NamedTuple, Self

_CLOCKS = (
    "perf_counter",
    "perf_counter_ns",
    "monotonic",
    "monotonic_ns",
    "time",
    "time_ns",
    "process_time",
    "sleep",
)
_STREAMS = ("stdin", "stdout", "stderr")
_BUILTINS = vars(builtins)
_TIME_SPEC = BuiltinImporter.find_spec("time")
assert _TIME_SPEC is not None
# a second `time`, which no cell can reach
_TIME = importlib.util.module_from_spec(_TIME_SPEC)
_UNKNOWN = object()


class State(NamedTuple):
    """One state: `get` returns a value that can be compared, and `put` makes such a
    value the present one.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


def rows() -> list[State]:
    """Every state that is put back besides the functions of `_owners`,
    in this order.
    """
    return [*_of_python(), *_of_numpy(), *_of_torch()]


def _of_python() -> list[State]:
    loaded = list(sys.modules)
    hooks = ("excepthook", "displayhook", "path", "meta_path", "path_hooks", "argv")

    def modules() -> dict[str, Any]:
        return {name: sys.modules.get(name) for name in loaded}

    return [
        State("loaded modules", modules, sys.modules.update),
        _attributes("sys", sys, *_STREAMS, *hooks),
        State("sys.path", lambda: list(sys.path), _put_path),
        State("environment", lambda: dict(os.environ), _put_environment),
        State("working directory", os.getcwd, os.chdir),
        State("warnings filters", lambda: list(warnings.filters), _put_warnings),
        _attributes("logging", logging.root, "level", "disabled"),
        _attributes("logging of all", logging.root.manager, "disable"),
        State("garbage collector", gc.isenabled, _put_collecting),
        State("random", random.getstate, random.setstate),
    ]


def _of_numpy() -> list[State]:
    import numpy as np

    # kept outside, since an answer can replace the module's functions
    generator = np.random

    def random_state() -> bytes:
        return pickle.dumps(generator.get_state())

    def put_random_state(pickled: bytes) -> None:
        generator.set_state(pickle.loads(pickled))

    def put_printing(options: Any) -> None:
        np.set_printoptions(**options)

    def put_errors(options: Any) -> None:
        np.seterr(**options)

    return [
        State("NumPy's random", random_state, put_random_state),
        State("NumPy's printing", np.get_printoptions, put_printing),
        State("NumPy's errors", np.geterr, put_errors),
    ]


def _of_torch() -> list[State]:
    import torch

    backends: Any = torch.backends  # torch declares only some of their switches

    def put_default_device(device: torch.device) -> None:
        # None in place of "cpu", which would slow down every call of torch
        torch.set_default_device(None if device.type == "cpu" else device)

    return [
        State("default dtype", torch.get_default_dtype, torch.set_default_dtype),
        State("default device", torch.get_default_device, put_default_device),
        State("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        State("anomaly mode", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
        *_autocast("cpu"),
        *_autocast("cuda"),
        State(
            "deterministic algorithms",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
        ),
        _attributes("cuDNN", backends.cudnn, "benchmark", "deterministic", "enabled"),
        State("threads", torch.get_num_threads, torch.set_num_threads),
        *_float32_precision(backends),
        *_torch_random(),
    ]


def _autocast(device: str) -> list[State]:
    import torch

    switches: list[tuple[Any, Any]] = [
        (torch.is_autocast_enabled, torch.set_autocast_enabled),
        (torch.get_autocast_dtype, torch.set_autocast_dtype),
    ]
    return [
        State("autocast", partial(get, device), partial(put, device))
        for get, put in switches
    ]


def _float32_precision(backends: Any) -> list[State]:
    """Torch's two older switches first, since they set some of the newer ones."""
    import torch

    cudnn = backends.cudnn
    mkldnn = backends.mkldnn
    modes = [
        *(backends, cudnn, cudnn.conv, cudnn.rnn, backends.cuda.matmul),
        *(mkldnn, mkldnn.conv, mkldnn.rnn, mkldnn.matmul),
    ]
    return [
        State(
            "float32 precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        _attributes("cuDNN's TF32", cudnn, "allow_tf32"),
        *(_attributes("float32 precision", mode, "fp32_precision") for mode in modes),
    ]


def _torch_random() -> list[State]:
    import torch

    cuda = torch.cuda
    as_state = partial(torch.tensor, dtype=torch.uint8, device="cpu")

    def state() -> list[int]:
        return torch.get_rng_state().tolist()

    def put_state(numbers: list[int]) -> None:
        torch.set_rng_state(as_state(numbers))

    def cuda_states() -> list[list[int]]:
        if not cuda.is_initialized():
            return []
        return [tensor.tolist() for tensor in cuda.get_rng_state_all()]

    def put_cuda_states(states: list[list[int]]) -> None:
        cuda.set_rng_state_all([as_state(numbers) for numbers in states])

    return [
        State("torch's random", state, put_state),
        State("CUDA's random", cuda_states, put_cuda_states),
    ]


def _attributes(name: str, owner: Any, *names: str) -> State:
    def get() -> list[Any]:
        return [getattr(owner, attribute) for attribute in names]

    def put(values: list[Any]) -> None:
        for attribute, value in zip(names, values, strict=True):
            setattr(owner, attribute, value)

    return State(name, get, put)


def _put_path(folders: list[str]) -> None:
    sys.path[:] = folders


def _put_environment(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def _put_warnings(filters: list[Any]) -> None:
    # this also forgets what the answer's filters have shown or hidden
    warnings.resetwarnings()
    warnings.filters[:] = filters  # type: ignore[index]  # declared as a sequence; it is a list


def _put_collecting(on: bool) -> None:
    if on:
        gc.enable()
    else:
        gc.disable()


class _Open:
    """A stream that can't be closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Do nothing: the notebook still needs the stream."""


def _owners() -> list[Any]:
    """Modules and classes whose functions the checks rely on."""
    import numpy as np
    import torch

    return [
        *(builtins, time, os, math, random, statistics, gc, warnings),
        *(np, np.random, np.linalg),
        *(torch, torch.nn.functional, torch.linalg, torch.cuda, torch.autograd),
        *(torch.Tensor, torch.nn.Module),
    ]


class KeptFunctions:
    """A `with` after which the functions of modules, and all of classes, are as before:
    of `_owners`, or these.
    """

    def __init__(self, owners: Sequence[Any] = ()) -> None:
        self._owners = owners or _owners()

    def __enter__(self) -> Self:
        self._former = [_functions(owner) for owner in self._owners]
        return self

    def __exit__(self, *_: object) -> None:
        _BUILTINS.update(self._former[0])  # first, since what follows calls them
        for owner, former in zip(self._owners, self._former, strict=True):
            present = vars(owner)
            for name, value in former.items():
                if present.get(name) is not value:
                    setattr(owner, name, value)
            # a new attribute of a class hides that of a base
            if isinstance(owner, type):
                for name in present.keys() - former.keys():
                    delattr(owner, name)


def _functions(owner: Any) -> dict[str, Any]:
    """The functions of a module by name; all attributes of a class."""
    if isinstance(owner, type):
        return dict(vars(owner))
    return {name: value for name, value in vars(owner).items() if callable(value)}


class KeptState(KeptFunctions):
    """A `with` after which all of `rows` is as before too, also after Ctrl-C; `left`
    names what could not be put back.

    Inside it the clocks are Python's own, whatever a cell has put in their place, and
    the streams can't be closed.
    """

    def __enter__(self) -> Self:
        import torch

        super().__enter__()
        self.left: list[str] = []
        states = [(state, _value(state)) for state in rows()]
        self._before = [pair for pair in states if pair[1] is not _UNKNOWN]
        grad = torch.is_grad_enabled()
        # torch leaves inference mode only so: there is no switch
        self._autograd = torch.inference_mode(torch.is_inference_mode_enabled())
        self._autograd.__enter__()
        torch.set_grad_enabled(grad)
        for name in _CLOCKS:
            setattr(time, name, getattr(_TIME, name))
        for name in _STREAMS:
            stream = getattr(sys, name)
            if stream is not None:
                setattr(sys, name, _Open(stream))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._put_back()
        except KeyboardInterrupt:
            self._put_back()
            raise

    def _put_back(self) -> None:
        super().__exit__()
        self._autograd.__exit__(None, None, None)
        for state, value in self._before:
            if _value(state) != value:
                with contextlib.suppress(Exception):
                    state.put(value)
        changed = [
            state.name for state, value in self._before if _value(state) != value
        ]
        self.left = list(dict.fromkeys(changed))


def _value(state: State) -> Any:
    """What a state's `get` returns, or _UNKNOWN where it raises."""
    try:
        return state.get()
    except Exception:  # such as a working directory that was removed
        return _UNKNOWN
