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
    import numpy as np

    loaded = list(sys.modules)
    drawn = np.random
    return [
        State(
            "loaded modules",
            lambda: {name: sys.modules.get(name) for name in loaded},
            sys.modules.update,
        ),
        _attributes(
            "sys",
            sys,
            *_STREAMS,
            "excepthook",
            "displayhook",
            "path",
            "meta_path",
            "path_hooks",
            "argv",
        ),
        State(
            "sys.path",
            lambda: list(sys.path),
            lambda kept: sys.path.__setitem__(slice(None), kept),
        ),
        State("environment", lambda: dict(os.environ), _put_environment),
        State("working directory", os.getcwd, os.chdir),
        State("warnings filters", lambda: list(warnings.filters), _put_warnings),
        _attributes("logging", logging.root, "level", "disabled"),
        _attributes("logging of all", logging.root.manager, "disable"),
        State(
            "garbage collector",
            gc.isenabled,
            lambda on: gc.enable() if on else gc.disable(),
        ),
        State("random", random.getstate, random.setstate),
        State(
            "NumPy's random",
            lambda: pickle.dumps(drawn.get_state()),
            lambda b: drawn.set_state(pickle.loads(b)),
        ),
        State(
            "NumPy's printing",
            np.get_printoptions,
            lambda kept: np.set_printoptions(**kept),
        ),
        State("NumPy's errors", np.geterr, lambda kept: np.seterr(**kept)),
        *_of_torch(),
    ]


def _of_torch() -> list[State]:
    import torch

    b: Any = torch.backends  # torch declares only some of their switches
    modes = [
        b,
        b.cudnn,
        b.cudnn.conv,
        b.cudnn.rnn,
        b.cuda.matmul,
        b.mkldnn,
        b.mkldnn.conv,
        b.mkldnn.rnn,
    ]
    device = torch.get_default_device
    cuda = torch.cuda
    # a state of random numbers, from its list
    tensor = partial(torch.tensor, dtype=torch.uint8, device="cpu")
    cast: list[tuple[Any, Any]] = [
        (torch.is_autocast_enabled, torch.set_autocast_enabled)
    ]
    cast += [(torch.get_autocast_dtype, torch.set_autocast_dtype)]
    return [
        State("default dtype", torch.get_default_dtype, torch.set_default_dtype),
        # None in place of "cpu", which would slow down every call of torch
        State(
            "default device",
            device,
            lambda d: torch.set_default_device(None if d.type == "cpu" else d),
        ),
        State("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        State("anomaly mode", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
        *(
            State("autocast", partial(get, kind), partial(put, kind))
            for kind in ("cpu", "cuda")
            for get, put in cast
        ),
        State(
            "deterministic algorithms",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
        ),
        _attributes("cuDNN", b.cudnn, "benchmark", "deterministic", "enabled"),
        State("threads", torch.get_num_threads, torch.set_num_threads),
        # torch's two older switches of float32's precision first, since they set some
        # of the newer ones
        State(
            "float32 precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        _attributes("cuDNN's TF32", b.cudnn, "allow_tf32"),
        *(
            _attributes("float32 precision", mode, "fp32_precision")
            for mode in [*modes, b.mkldnn.matmul]
        ),
        State(
            "torch's random",
            lambda: torch.get_rng_state().tolist(),
            lambda kept: torch.set_rng_state(tensor(kept)),
        ),
        State(
            "CUDA's random",
            lambda: (
                cuda.is_initialized() and [s.tolist() for s in cuda.get_rng_state_all()]
            ),
            lambda kept: cuda.set_rng_state_all(
                [tensor(values) for values in kept or ()]
            ),
        ),
    ]


def _attributes(name: str, owner: Any, *names: str) -> State:
    def put(kept: list[Any]) -> None:
        for attribute, value in zip(names, kept, strict=True):
            setattr(owner, attribute, value)

    return State(name, lambda: [getattr(owner, attribute) for attribute in names], put)


def _put_environment(kept: dict[str, str]) -> None:
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    os.environ.update(kept)


def _put_warnings(kept: list[Any]) -> None:
    # this also forgets what the answer's filters have shown or hidden
    warnings.resetwarnings()
    warnings.filters[:] = kept  # type: ignore[index]  # declared as a sequence; it is a list


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

    ours = [
        builtins,
        time,
        os,
        math,
        random,
        statistics,
        gc,
        warnings,
        np,
        np.random,
        np.linalg,
        torch,
    ]
    return [
        *ours,
        torch.nn.functional,
        torch.linalg,
        torch.cuda,
        torch.autograd,
        torch.Tensor,
        torch.nn.Module,
    ]


class KeptFunctions:
    """A `with` after which the functions of modules, and all of classes, are as before:
    of `_owners`, or these.
    """

    def __init__(self, owners: Sequence[Any] = ()) -> None:
        self._owners = owners or _owners()

    def __enter__(self) -> Self:
        self._kept = [
            (
                o,
                {
                    k: v
                    for k, v in vars(o).items()
                    if isinstance(o, type) or callable(v)
                },
            )
            for o in self._owners
        ]
        return self

    def __exit__(self, *_: object) -> None:
        _BUILTINS.update(self._kept[0][1])  # first, since what follows calls them
        for owner, kept in self._kept:
            now = vars(owner)
            for name, value in kept.items():
                if now.get(name) is not value:
                    setattr(owner, name, value)
            # a new attribute of a class hides that of a base
            if isinstance(owner, type):
                for name in now.keys() - kept.keys():
                    delattr(owner, name)


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
        self._before = [
            (state, value)
            for state in rows()
            if (value := _value(state)) is not _UNKNOWN
        ]
        grad = torch.is_grad_enabled()
        self._autograd = torch.inference_mode(torch.is_inference_mode_enabled())
        # torch leaves inference mode only so: there is no switch
        self._autograd.__enter__()
        torch.set_grad_enabled(grad)
        for name in _CLOCKS:
            setattr(time, name, getattr(_TIME, name))
        for name in _STREAMS:
            if (stream := getattr(sys, name)) is not None:
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
        self.left = list(
            dict.fromkeys(
                state.name for state, value in self._before if _value(state) != value
            )
        )


def _value(state: State) -> Any:
    try:
        return state.get()
    except Exception:  # such as a working directory that was removed
        return _UNKNOWN
