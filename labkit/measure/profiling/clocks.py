"""Clock every operator of a step by itself, and ask what it was waiting for: memory, arithmetic, or its own launch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

_LOOKS_UP = ("embedding", "gather", "index", "take")  # read what they return, not all that they are given
_EXPLAINED = 0.25  # of an operator's time; a real operator seldom reaches its floor
_MOVES = 0.02  # of the time of an operator without products: only heavy functions are slower than this
_SMALL = 3  # launches: below that an operator is mostly its own overhead


@dataclass(frozen=True)
class Call:
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

    def arithmetic_s(self, call: Call) -> float:
        """The least time in which the call's FLOP can be done. On a GPU, torch lets float32 convolutions use TF32."""
        tf32 = call.dtype == "float32" and "convolution" in call.name and "tf32" in self.flop_per_s
        best = self.flop_per_s.get("tf32" if tf32 else call.dtype) or self.flop_per_s["float32"]
        return call.flop / best

    def memory_s(self, call: Call) -> float:
        """The time in which a copy would move the call's bytes."""
        return call.n_bytes / self.bytes_per_s


class Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside it every operator is timed by itself, the device being waited for before and after."""

    def __init__(self, sync: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sync = sync
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.sync()
        start = time.perf_counter()
        out = func(*args, **kwargs)
        self.sync()
        seconds = time.perf_counter() - start
        self.calls.append(_call(func, args, kwargs, out, seconds))
        return out


def clocked(work: Callable[[], object], sync: Callable[[], None], *, runs: int) -> list[list[Call]]:
    """The calls of each of some runs of `work`."""
    found = []
    for _ in range(runs):
        with Clock(sync) as clock:
            work()
        found.append(clock.calls)
    return found


def middle(runs: Sequence[Sequence[Call]]) -> list[Call]:
    """Of runs that called the same operators, each call at the median of its seconds; else the shortest run."""
    names = [[call.name for call in run] for run in runs]
    if any(other != names[0] for other in names):
        return list(min(runs, key=lambda run: sum(call.seconds for call in run)))
    medians = (statistics.median(run[i].seconds for run in runs) for i in range(len(names[0])))
    return [Call(c.name, s, c.flop, c.n_bytes, c.dtype) for c, s in zip(runs[0], medians, strict=True)]


def launch_seconds(device: str, sync: Callable[[], None]) -> float:
    """Seconds of an operator that has one number to work on, clocked in the same way."""
    x = torch.ones(1, device=device)
    runs = clocked(lambda: x.add_(1), sync, runs=300)
    return statistics.median(call.seconds for run in runs[100:] for call in run)


def split(calls: Sequence[Call], doubled: Sequence[Call] | None, pace: Pace) -> dict[str, float]:
    """Seconds of all calls by what they waited for: memory, arithmetic, launch, communication, copies.

    The overhead of a call on one number is launch. An operator that takes up to four times the higher of its floors
    waits for that one, memory or arithmetic. Of one that takes longer, what grows when the batch doubles (`doubled`
    holds the calls with twice the batch) is work, and the rest is launch. Operators without products wait for memory,
    unless a copy of their bytes takes a fiftieth of their time or less: then they calculate.
    """
    seconds = dict.fromkeys(("memory", "arithmetic", "launch", "communication", "copies"), 0.0)
    same = doubled is not None and [c.name for c in calls] == [c.name for c in doubled]
    for i, call in enumerate(calls):
        if call.group != "work":
            seconds[call.group] += call.seconds
            continue
        net_s = max(call.seconds - pace.launch_s, 0.0)
        growth_s = doubled[i].seconds - call.seconds if same and doubled is not None else 0.0
        work_s, kind = _work(call, net_s, growth_s, pace)
        seconds[kind] += work_s
        seconds["launch"] += call.seconds - work_s
    return seconds


def _work(call: Call, net_s: float, growth_s: float, pace: Pace) -> tuple[float, str]:
    """Seconds of a call that are work, and what it waits for meanwhile."""
    memory_s, arithmetic_s = pace.memory_s(call), pace.arithmetic_s(call)
    if max(memory_s, arithmetic_s) >= _EXPLAINED * net_s:
        return net_s, "arithmetic" if arithmetic_s > memory_s else "memory"
    moves = not call.flop and memory_s >= _MOVES * net_s
    if moves and net_s > _SMALL * pace.launch_s:
        return net_s, "memory"
    return min(max(growth_s, memory_s, arithmetic_s), net_s), "memory" if moves else "arithmetic"


def _call(func: Any, args: Any, kwargs: Any, out: Any, seconds: float) -> Call:
    given, made = _tensors((args, kwargs)), _tensors(out)
    name = str(func).removeprefix("aten.").removesuffix(".default")
    counts = flop_registry.get(func._overloadpacket)
    flop = float(counts(*args, **kwargs, out_val=out)) if counts is not None else 0.0
    dtype = str(made[0].dtype if made else torch.float32).removeprefix("torch.")
    if len({x.device.type for x in given + made}) > 1 and _base(name).startswith(("_to_copy", "copy")):
        return Call(f"between devices: {name}", seconds, 0.0, 0.0, dtype)
    if _is_view(func, given, made):
        return Call(name, seconds, 0.0, 0.0, dtype)
    n_bytes = sum(map(_bytes, made))
    n_bytes += n_bytes if _base(name).startswith(_LOOKS_UP) else sum(map(_bytes, given))
    return Call(name, seconds, flop, float(n_bytes), dtype)


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


def _base(name: str) -> str:
    return name.partition(".")[0].removeprefix("aten::")
