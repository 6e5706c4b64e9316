"""Put back what an answer, or the check that judges it, changed in this process by the
way: seeds, threads, modes of NumPy and torch, and the folder. `rows` lists them.

Nothing here protects a check from an answer that sets out to deceive it: graders judge
apart from the learner's process (teaching/judging.py).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

_UNKNOWN = object()


class State(NamedTuple):
    """One state: `get` returns a value that can be compared, and `put` makes such a
    value the present one.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


def rows() -> list[State]:
    """Every state that is put back, in this order."""
    return [
        State("working directory", os.getcwd, os.chdir),
        State("random", random.getstate, random.setstate),
        *_of_numpy(),
        *_of_torch(),
    ]


def _of_numpy() -> list[State]:
    import numpy as np

    def random_state() -> bytes:
        return pickle.dumps(np.random.get_state())

    def put_random_state(pickled: bytes) -> None:
        np.random.set_state(pickle.loads(pickled))

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


class KeptState:
    """A `with` after which all of `rows` is as before, also after Ctrl-C; `left` names
    what could not be put back.
    """

    def __enter__(self) -> Self:
        import torch

        self.left: list[str] = []
        states = [(state, _value(state)) for state in rows()]
        self._before = [pair for pair in states if pair[1] is not _UNKNOWN]
        grad = torch.is_grad_enabled()
        # torch leaves inference mode only so: there is no switch
        self._autograd = torch.inference_mode(torch.is_inference_mode_enabled())
        self._autograd.__enter__()
        torch.set_grad_enabled(grad)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._put_back()
        except KeyboardInterrupt:
            self._put_back()
            raise

    def _put_back(self) -> None:
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
