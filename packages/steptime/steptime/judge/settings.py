"""What costs time in every step and can be read without an experiment: modes, types,
loaders, gradients that nobody uses.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import logging
import platform
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from steptime._units import format_bytes, format_seconds
from steptime.loop.turns import Turn
from steptime.measure.operator_hooks import replaced
from steptime.measure.operator_timing import OperatorCall

_MUCH = 0.1  # share of a step's time, or of its turns
_GROWN = 1.3  # the last turns' median over the first ones'
_PART = 8  # turns at least at each end that are compared
# /proc/cpuinfo's words for units that multiply matrices of a type (x86, arm64)
_UNITS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "fphp"},
}


def remarks(
    turns: Sequence[Turn],
    calls: Sequence[OperatorCall],
    batches: object,
    device: str,
    busy: str = "",
) -> tuple[str, ...]:
    """Sentences on settings that cost time, each with the edit that changes them.

    `turns` are those that were watched, `calls` the operators of a usual step,
    `batches` the loader, if there is one. Time is that of the calls and turns: nothing
    is run. On a machine that was `busy`, steps may grow that others disturb.
    """
    return (
        *(_threads(device) if busy else ()),
        *_modes(),
        *_types(calls, device),
        *_copies(calls),
        *_compiled_anew(turns),
        *(() if busy else _grown(turns)),
        *_loader(batches, turns, device),
        *_unused_gradients(),
    )


def _threads(device: str) -> Iterator[str]:
    """On a busy machine, which of torch's threads wait for each other."""
    threads = torch.get_num_threads()
    if device == "cpu" and threads > 1:
        # one that has a core waits inside an operator, and its clock goes on
        yield (
            f"Where one of torch's {threads} threads waits for a core, the others wait"
            " for it, and that counts in these shares. Stop other programs, or call"
            " torch.set_num_threads(1), and measure again."
        )


def remarks_on_step(step: Callable[[], object]) -> tuple[str, ...]:
    """As `remarks`, on what a step calls: it is run twice."""
    calls = []
    for _ in range(2):
        names = set[str]()
        with _noting(names):
            step()
        calls.append(names)
    always = calls[0] & calls[1]
    sentences = [
        f"Each step calls {name}: every hundredth is enough to look at."
        for name in ("print", "logging", "torch.save")
        if name in always
    ]
    if "backward" not in calls[0] | calls[1]:
        sentences += _without_backward()
    return tuple(sentences)


@contextlib.contextmanager
def _noting(names: set[str]) -> Iterator[None]:
    """Within the block, note what is called of print, logging, torch.save, backward."""

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            names.add(name)
            return function(*args, **kwargs)

        return call

    autograd: Any = torch.autograd
    with (
        replaced(builtins, print=noted("print", print)),
        replaced(logging.Logger, handle=noted("logging", logging.Logger.handle)),
        replaced(torch, save=noted("torch.save", torch.save)),
        # below backward() and grad(), which a script may have imported by name
        replaced(
            autograd,
            _engine_run_backward=noted("backward", autograd._engine_run_backward),
        ),
    ):
        yield


def _modes() -> Iterator[str]:
    if torch.is_anomaly_enabled():
        yield (
            "Anomaly mode is on (torch.autograd.set_detect_anomaly): each operator"
            " keeps the stack that called it, and each gradient is searched for NaN."
            " Turn it off when nothing is searched for."
        )
    watching = {
        "sys.settrace": sys.gettrace() or threading.gettrace(),
        "sys.setprofile": sys.getprofile() or threading.getprofile(),
    }
    for name, hook in watching.items():
        if hook is not None:
            kind = getattr(hook, "__qualname__", type(hook).__qualname__)
            yield (
                f"{kind} is called at each line or call of Python ({name}): a debugger,"
                " a profiler or a coverage tool. Train without it."
            )


def _types(calls: Sequence[OperatorCall], device: str) -> Iterator[str]:
    whole_s = sum(call.weight * call.seconds for call in calls) or 1.0
    shares = dict.fromkeys(("float64", "bfloat16", "float16", "float32"), 0.0)
    for call in calls:
        if call.dtype in shares:
            shares[call.dtype] += call.weight * call.seconds / whole_s
    if shares["float64"] > _MUCH:
        yield (
            f"{shares['float64']:.0%} of the operators' time is in float64: float32 has"
            " half the bytes, and a processor does at least twice as many operations a"
            " second in it. NumPy's arrays are float64 unless they say otherwise."
        )
    if device != "cpu":
        if shares["float32"] > 1 - _MUCH and _has_tf32():
            yield (
                "Products are in float32 without TF32: torch.autocast, or"
                " torch.set_float32_matmul_precision('high'), uses tensor cores."
            )
        return
    for name, units in _UNITS.items():
        if shares[name] > _MUCH and not units & _processor_flags():
            yield (
                f"{shares[name]:.0%} of the operators' time is in {name}, for which"
                " this processor has no units: float32 is faster here."
            )


def _copies(calls: Sequence[OperatorCall]) -> Iterator[str]:
    whole_s = sum(call.weight * call.seconds for call in calls) or 1.0
    copies_s = sum(
        call.weight * call.seconds for call in calls if call.group == "input"
    )
    if copies_s > _MUCH * whole_s:
        yield (
            f"{copies_s / whole_s:.0%} of the operators' time is copies between main"
            " memory and the GPU: keep what is used again there, and copy the rest from"
            " pinned memory with non_blocking=True, for which the host doesn't wait."
        )


def _has_tf32() -> bool:
    if torch.cuda.get_device_capability() < (8, 0):
        return False
    return torch.get_float32_matmul_precision() == "highest"


def _processor_flags() -> set[str]:
    """The features of the processor; where the system doesn't tell, all that are asked
    for.
    """
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return set().union(*_UNITS.values())
    lines = path.read_text(errors="replace").splitlines()
    name = "Features" if platform.machine() == "aarch64" else "flags"
    flags = [line.partition(":")[2] for line in lines if line.startswith(name)]
    return set(flags[0].split()) if flags else set().union(*_UNITS.values())


def _compiled_anew(turns: Sequence[Turn]) -> Iterator[str]:
    compiling = [turn for turn in turns if turn.graphs]
    if 2 * len(compiling) > len(turns):
        yield (
            f"torch.compile compiles in {len(compiling)} of {len(turns)} steps: what it"
            " compiled for one step doesn't fit the next. Give it the same shapes, or"
            " dynamic=True, and compile outside of the loop."
        )


def _grown(turns: Sequence[Turn]) -> Iterator[str]:
    part = len(turns) // 4
    if part < _PART:
        return
    seconds = [turn.seconds for turn in turns]
    quarters = [statistics.median(seconds[i * part : (i + 1) * part]) for i in range(4)]
    if quarters == sorted(quarters) and quarters[-1] > _GROWN * quarters[0]:
        yield (
            f"Steps grow: {format_seconds(quarters[0])} in the first quarter,"
            f" {format_seconds(quarters[-1])} in the last. Something is kept from each"
            " step and gone through in the next: a metric over all predictions, a list"
            " of losses with their graphs."
        )


def _loader(batches: object, turns: Sequence[Turn], device: str) -> Iterator[str]:
    if not isinstance(batches, DataLoader):
        return
    whole_s = sum(turn.seconds for turn in turns)
    input_s = sum(turn.input_s for turn in turns)
    if input_s <= _MUCH * whole_s:
        return
    workers = batches.num_workers
    if not workers:
        yield (
            "The loader has num_workers=0: batches are made by the training's own"
            " process, one after the other."
        )
    elif not batches.persistent_workers:
        yield (
            f"The loader starts its {workers} workers anew in each epoch:"
            " persistent_workers=True keeps them."
        )
    if device != "cpu" and not batches.pin_memory:
        yield (
            "The loader has pin_memory=False: pinned batches are copied to the GPU"
            " faster, and with non_blocking=True beside its work."
        )
    opencv = sys.modules.get("cv2")
    if workers > 1 and opencv is not None and opencv.getNumThreads() > 1:
        yield (
            f"Each of {workers} workers may use {opencv.getNumThreads()} threads of"
            " OpenCV: call cv2.setNumThreads(0) in the dataset."
        )


def _unused_gradients() -> Iterator[str]:
    alive = gc.get_objects()
    trained = {
        id(parameter)
        for optimizer in _of_kind(alive, torch.optim.Optimizer)
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    unused = [
        parameter
        for parameter in _of_kind(alive, torch.nn.Parameter)
        if parameter.grad is not None and id(parameter) not in trained
    ]
    if trained and unused:
        n_bytes = sum(parameter.grad.nbytes for parameter in unused)
        yield (
            f"{len(unused):,} parameters get gradients"
            f" ({format_bytes(n_bytes)}) that no optimizer uses: set their"
            " requires_grad to False if they are frozen."
        )


def _without_backward() -> Iterator[str]:
    yield (
        "The step has no backward pass: it trains nothing. Pass one that calls"
        " backward(), unless an evaluation is meant."
    )
    random = (
        torch.nn.modules.dropout._DropoutNd,
        torch.nn.modules.batchnorm._BatchNorm,
    )
    if any(module.training for module in _of_kind(gc.get_objects(), random)):
        yield (
            "It runs modules in training mode: call model.eval() for an evaluation, and"
            " torch.inference_mode() to keep nothing for gradients."
        )


def _of_kind(alive: Sequence[Any], kinds: Any) -> Iterator[Any]:
    # isinstance would ask the object, which may be a proxy
    return (value for value in alive if issubclass(type(value), kinds))
