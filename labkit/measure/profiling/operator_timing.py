"""Time every operator of a step by itself, and split its time into memory, arithmetic and launch overhead."""

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

_LOOKS_UP = ("embedding", "gather", "index", "take")  # read as many bytes as they return, not all of their input
_EXPLAINED = 0.25  # share of its time that a lower bound must reach to explain an operator, which seldom reaches it
_MOVES = 0.02  # share of its time that copying its bytes takes: below it, an operator without products calculates
_SMALL = 3  # times the launch overhead: below that, an operator is mostly overhead


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator: its synchronised seconds, FLOP of its products, bytes read and written."""

    name: str
    seconds: float
    flop: float
    n_bytes: float
    dtype: str = "float32"

    @property
    def group(self) -> str:
        """Its kind: "work", "copies" between devices, or "communication"."""
        if self.name.startswith("c10d"):
            return "communication"
        return "copies" if self.name.startswith("between devices: ") else "work"


@dataclass(frozen=True)
class Pace:
    """FLOP/s of a matmul by dtype, B/s of a copy, and seconds of an operator on one number."""

    flop_per_s: dict[str, float]
    bytes_per_s: float
    launch_s: float

    def arithmetic_s(self, call: OperatorCall) -> float:
        """Seconds of the call's FLOP at the matmul's rate. On a GPU, torch lets float32 convolutions use TF32."""
        tf32 = call.dtype == "float32" and "convolution" in call.name and "tf32" in self.flop_per_s
        best = self.flop_per_s.get("tf32" if tf32 else call.dtype) or self.flop_per_s["float32"]
        return call.flop / best

    def memory_s(self, call: OperatorCall) -> float:
        """Seconds in which a copy would move the call's bytes."""
        return call.n_bytes / self.bytes_per_s


def timed_calls(work: Callable[[], object], sync: Callable[[], None]) -> list[OperatorCall]:
    """Run `work` once, and time each operator by itself, with a wait for the device before and after."""
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
    """Each call with its median seconds over the runs; if the runs' operators differ, the shortest run."""
    if any([call.name for call in run] != [call.name for call in runs[0]] for run in runs):
        return list(min(runs, key=lambda run: sum(call.seconds for call in run)))
    medians = (statistics.median(call.seconds for call in same) for same in zip(*runs, strict=True))
    return [dataclasses.replace(call, seconds=s) for call, s in zip(runs[0], medians, strict=True)]


def launch_seconds(device: str, sync: Callable[[], None]) -> float:
    """Median seconds of an operator on one number, timed in the same way."""
    x = torch.ones(1, device=device)
    runs = [timed_calls(lambda: x.add_(1), sync) for _ in range(300)]
    return statistics.median(call.seconds for run in runs[100:] for call in run)


def split_by_wait(
    calls: Sequence[OperatorCall], doubled: Sequence[OperatorCall] | None, pace: Pace
) -> dict[str, float]:
    """Seconds of all calls by what limits them: memory, arithmetic, launch, communication, copies.

    A call's lower bounds are its bytes at the copy's rate and its FLOP at the matmul's; its first `pace.launch_s` are
    launch. If the rest is at most four times the higher bound, it belongs to that bound. Otherwise the seconds by which
    the call grows in `doubled`, the calls with twice the batch, are work, and the remainder is launch too. Operators
    without products count as memory, unless copying their bytes would take less than a fiftieth of their time: then
    they count as arithmetic.
    """
    seconds = dict.fromkeys(("memory", "arithmetic", "launch", "communication", "copies"), 0.0)
    if doubled is None or [c.name for c in calls] != [c.name for c in doubled]:
        doubled = calls  # without a comparison, no call grows
    for call, twice in zip(calls, doubled, strict=True):
        if call.group != "work":
            seconds[call.group] += call.seconds
            continue
        work_s, kind = _work(call, max(call.seconds - pace.launch_s, 0.0), twice.seconds - call.seconds, pace)
        seconds[kind] += work_s
        seconds["launch"] += call.seconds - work_s
    return seconds


def _work(call: OperatorCall, net_s: float, growth_s: float, pace: Pace) -> tuple[float, str]:
    """Seconds of a call that are work, and what limits that work."""
    memory_s, arithmetic_s = pace.memory_s(call), pace.arithmetic_s(call)
    if max(memory_s, arithmetic_s) >= _EXPLAINED * net_s:
        return net_s, "arithmetic" if arithmetic_s > memory_s else "memory"
    moves = not call.flop and memory_s >= _MOVES * net_s
    if moves and net_s > _SMALL * pace.launch_s:
        return net_s, "memory"
    return min(max(growth_s, memory_s, arithmetic_s), net_s), "memory" if moves else "arithmetic"


def described(func: Any, args: Any, kwargs: Any, out: Any, seconds: float) -> OperatorCall:
    """The record of an operator's call: its FLOP and bytes, from its arguments and its result."""
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
    """The tensors of a tree, without sparse ones, which have no single storage."""
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor) and x.layout == torch.strided]


def _is_view(func: Any, given: Sequence[Any], made: Sequence[Any]) -> bool:
    """Whether the result shares an input's memory and nothing was written."""
    if func._schema.is_mutable or not made:
        return not made
    storages = {x.untyped_storage().data_ptr() for x in given}
    return all(x.untyped_storage().data_ptr() in storages for x in made)


def _bytes(x: torch.Tensor) -> int:
    """Bytes of a tensor's elements; an expanded tensor's are those of its storage."""
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())
