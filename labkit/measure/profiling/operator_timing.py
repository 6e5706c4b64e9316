"""Time every operator of a step by itself, and tell what it waited for: memory, arithmetic, or its own launch."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

from labkit.measure.torch_calls import EachOperator

_LOOKS_UP = ("embedding", "gather", "index", "take")  # read what they return, not all that they are given
_EXPLAINED = 0.25  # of an operator's time; a real operator seldom reaches its floor
_MOVES = 0.02  # of the time of an operator without products: only heavy functions are slower than this
_SMALL = 3  # launches: below that an operator is mostly its own overhead


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator: seconds between waits for the device, FLOP of products, bytes read and written."""

    name: str
    seconds: float
    flop: float
    n_bytes: float
    dtype: str = "float32"

    @property
    def group(self) -> str:
        """What it is: work, copies between devices, or communication."""
        if self.name.startswith("c10d"):
            return "communication"
        return "copies" if self.name.startswith("between devices: ") else "work"


@dataclass(frozen=True)
class Pace:
    """FLOP/s of a matmul by dtype, B/s of a copy, and the seconds of an operator on one number."""

    flop_per_s: dict[str, float]
    bytes_per_s: float
    launch_s: float

    def arithmetic_s(self, call: OperatorCall) -> float:
        """The least time in which the call's FLOP can be done. On a GPU, torch lets float32 convolutions use TF32."""
        tf32 = call.dtype == "float32" and "convolution" in call.name and "tf32" in self.flop_per_s
        best = self.flop_per_s.get("tf32" if tf32 else call.dtype) or self.flop_per_s["float32"]
        return call.flop / best

    def memory_s(self, call: OperatorCall) -> float:
        """The time in which a copy would move the call's bytes."""
        return call.n_bytes / self.bytes_per_s


def timed_calls(work: Callable[[], object], sync: Callable[[], None]) -> list[OperatorCall]:
    """Run `work` once, each operator timed by itself, with a wait for the device before and after."""
    calls: list[OperatorCall] = []

    def timed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sync()
        start = perf_counter()
        out = func(*args, **kwargs)
        sync()
        calls.append(described(func, args, kwargs, out, perf_counter() - start))
        return out

    with EachOperator(timed):
        work()
    return calls


def median_calls(runs: Sequence[Sequence[OperatorCall]]) -> list[OperatorCall]:
    """Each call at the median of its seconds in runs that called the same operators; else the shortest run."""
    if any([call.name for call in run] != [call.name for call in runs[0]] for run in runs):
        return list(min(runs, key=lambda run: sum(call.seconds for call in run)))
    medians = (statistics.median(call.seconds for call in same) for same in zip(*runs, strict=True))
    return [dataclasses.replace(call, seconds=s) for call, s in zip(runs[0], medians, strict=True)]


def launch_seconds(device: str, sync: Callable[[], None]) -> float:
    """Seconds of an operator that has one number to work on, timed in the same way."""
    x = torch.ones(1, device=device)
    runs = [timed_calls(lambda: x.add_(1), sync) for _ in range(300)]
    return statistics.median(call.seconds for run in runs[100:] for call in run)


def split_by_wait(
    calls: Sequence[OperatorCall], doubled: Sequence[OperatorCall] | None, pace: Pace
) -> dict[str, float]:
    """Seconds of all calls by what they waited for: memory, arithmetic, launch, communication, copies.

    The overhead of a call on one number is launch. An operator that takes up to four times the higher of its floors
    waits for that one, memory or arithmetic. Of one that takes longer, what grows when the batch doubles (`doubled`
    holds the calls with twice the batch) is work, and the rest is launch. Operators without products wait for memory,
    unless a copy of their bytes takes a fiftieth of their time or less: then they calculate.
    """
    seconds = dict.fromkeys(("memory", "arithmetic", "launch", "communication", "copies"), 0.0)
    if doubled is None or [c.name for c in calls] != [c.name for c in doubled]:
        doubled = calls  # nothing to compare with: nothing is seen to grow
    for call, twice in zip(calls, doubled, strict=True):
        if call.group != "work":
            seconds[call.group] += call.seconds
            continue
        work_s, kind = _work(call, max(call.seconds - pace.launch_s, 0.0), twice.seconds - call.seconds, pace)
        seconds[kind] += work_s
        seconds["launch"] += call.seconds - work_s
    return seconds


def _work(call: OperatorCall, net_s: float, growth_s: float, pace: Pace) -> tuple[float, str]:
    """Seconds of a call that are work, and what it waits for meanwhile."""
    memory_s, arithmetic_s = pace.memory_s(call), pace.arithmetic_s(call)
    if max(memory_s, arithmetic_s) >= _EXPLAINED * net_s:
        return net_s, "arithmetic" if arithmetic_s > memory_s else "memory"
    moves = not call.flop and memory_s >= _MOVES * net_s
    if moves and net_s > _SMALL * pace.launch_s:
        return net_s, "memory"
    return min(max(growth_s, memory_s, arithmetic_s), net_s), "memory" if moves else "arithmetic"


def described(func: Any, args: Any, kwargs: Any, out: Any, seconds: float) -> OperatorCall:
    """The call of an operator that took some seconds, with its FLOP and its bytes."""
    given, made = _tensors((args, kwargs)), _tensors(out)
    name = str(func).removeprefix("aten.").removesuffix(".default")
    base = name.partition(".")[0]
    counts = flop_registry.get(func._overloadpacket)
    flop = float(counts(*args, **kwargs, out_val=out)) if counts is not None else 0.0
    dtype = str(made[0].dtype if made else torch.float32).removeprefix("torch.")
    if len({x.device.type for x in given + made}) > 1 and base.startswith(("_to_copy", "copy")):
        return OperatorCall(f"between devices: {name}", seconds, 0.0, 0.0, dtype)
    if _is_view(func, given, made):
        return OperatorCall(name, seconds, 0.0, 0.0, dtype)
    n_bytes = sum(map(_bytes, made))
    n_bytes += n_bytes if base.startswith(_LOOKS_UP) else sum(map(_bytes, given))
    return OperatorCall(name, seconds, flop, float(n_bytes), dtype)


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree; sparse ones have no single storage and are left out."""
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor) and x.layout == torch.strided]


def _is_view(func: Any, given: Sequence[Any], made: Sequence[Any]) -> bool:
    """Whether the result lies in an input's memory and nothing was written."""
    if func._schema.is_mutable or not made:
        return not made
    storages = {x.untyped_storage().data_ptr() for x in given}
    return all(x.untyped_storage().data_ptr() in storages for x in made)


def _bytes(x: torch.Tensor) -> int:
    """Bytes of a tensor, or of what it is an expansion of."""
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())
