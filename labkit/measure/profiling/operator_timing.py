"""Time every operator of a step by itself, and tell by its FLOP and bytes what limits it."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

from labkit.core.parameters import checked
from labkit.measure.ceilings import Ceilings
from labkit.measure.contention import own_waits
from labkit.measure.profiling.stack_samples import StackSamples
from labkit.measure.readings import no_sync
from labkit.measure.torch_calls import EachOperator

WORK = ("memory bandwidth", "arithmetic", "unknown", "launch overhead", "communication", "input")
_LOOKS_UP = ("embedding", "gather", "index", "take")  # read as many bytes as they return, not all of their input
# The share of an operator's time that its bytes or FLOP need at the ceilings: new memory makes copies slow. And where
# FLOP need longer: convolutions and small products reach a tenth of a large product's rate.
_EXPLAINED, _PRODUCT = 0.25, 0.1
_RARE_S = 1e-4  # from which mean seconds on, work of the host that some steps only do is no noise
_END = "end of the step"


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator: its synchronised seconds, FLOP of its products, bytes read and written.

    `before_s` are the host's seconds since the operator before, without those in which it waited for a core, and
    `rare_s` what some steps take beyond that, spread over all. `weight` is how often a mean step makes the call.
    """

    name: str
    seconds: float
    flop: float
    n_bytes: float
    dtype: str = "float32"
    before_s: float = 0.0
    rare_s: float = 0.0
    weight: float = 1.0

    @property
    def group(self) -> str:
        """Its kind: "work", "input" (a copy between devices), or "communication"."""
        if self.name.startswith("c10d"):
            return "communication"
        return "input" if self.name.startswith("between devices: ") else "work"


@dataclass(frozen=True)
class Pace:
    """FLOP/s of a matmul by dtype, B/s of a copy, and what operators cost that calculate next to nothing.

    `empty_s` are the seconds of an operator on one number, timed by itself. In a tiny training step, `dearest_s` are
    what the slowest operator takes beyond that, `gap_s` the longest time between two timed operators, `launch_s` the
    seconds per operator of the step as it is, and `timing_s` what timing an operator adds. `on_cpu` says which device.
    """

    flop_per_s: dict[str, float]
    bytes_per_s: float
    empty_s: float
    dearest_s: float
    gap_s: float
    launch_s: float
    timing_s: float
    on_cpu: bool = False

    def arithmetic_s(self, call: OperatorCall) -> float:
        """Seconds of the call's FLOP at the matmul's rate. On a GPU, torch lets float32 convolutions use TF32."""
        tf32 = call.dtype == "float32" and "convolution" in call.name and "tf32" in self.flop_per_s
        best = self.flop_per_s.get("tf32" if tf32 else call.dtype) or self.flop_per_s["float32"]
        return call.flop / best

    def memory_s(self, call: OperatorCall) -> float:
        """Seconds in which a copy would move the call's bytes."""
        return call.n_bytes / self.bytes_per_s

    def limit(self, call: OperatorCall, net_s: float, twice: OperatorCall | None = None) -> tuple[str, float]:
        """What limits a call of `net_s` seconds, and how many of these are launch overhead instead.

        The call's lower bounds are its bytes at the copy's rate and its FLOP at the matmul's. If the higher one
        explains a quarter of its time, the call belongs to it. Otherwise what doesn't grow in the same call with
        `twice` the batch is launch overhead, up to `dearest_s`: all of it on a CPU where the FLOP grow, since the rest
        is then spent on preparing the call (a GPU may have had room for both halves at once). What grows is arithmetic
        if FLOP explain a tenth of it, or unknown.
        """
        memory_s, arithmetic_s = self.memory_s(call), self.arithmetic_s(call)
        most_s = max(memory_s, arithmetic_s)
        if most_s >= _EXPLAINED * net_s:
            return "arithmetic" if arithmetic_s > memory_s else "memory bandwidth", 0.0
        twice = twice or call
        capped_s = math.inf if self.on_cpu and twice.flop > call.flop else self.dearest_s
        fixed_s = min(max(net_s - max(twice.seconds - call.seconds, most_s), 0.0), capped_s)
        product = arithmetic_s > memory_s and arithmetic_s >= _PRODUCT * (net_s - fixed_s)
        return "arithmetic" if product else "unknown", fixed_s


def timed_calls(
    work: Callable[[], object],
    sync: Callable[[], None],
    samples: StackSamples | None = None,
    gap_s: float = 0.0,
) -> list[OperatorCall]:
    """Run `work` once, and time each operator by itself, with a wait for the device before and after.

    The last call of the list is no operator: it holds the time after the last one. `samples` are kept where more than
    `gap_s` seconds pass between two operators.
    """
    calls: list[OperatorCall] = []
    samples, last, waited_s = samples or StackSamples(), 0.0, 0.0

    def timed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal last, waited_s
        if func.namespace == "profiler":  # the name of a part, which the next operator's gap includes
            return func(*args, **kwargs)
        sync()
        start = perf_counter()
        before_s = start - last - (waits() - waited_s)
        if before_s > gap_s:
            samples.keep(before_s)
        start = perf_counter()
        out = func(*args, **kwargs)
        sync()
        seconds = perf_counter() - start
        calls.append(described(func, args, kwargs, out, seconds, before_s))
        samples.drop()
        waited_s = waits()
        last = perf_counter()
        return out

    with own_waits() as waits:
        with EachOperator(timed):
            samples.drop()
            waited_s = waits()
            last = perf_counter()
            work()
        end_s = perf_counter() - last - (waits() - waited_s)
    if end_s > gap_s:
        samples.keep(end_s)
    return [*calls, OperatorCall(_END, 0.0, 0.0, 0.0, before_s=end_s)]


@checked
def counted_flop(work: Callable[[], object]) -> float:
    """FLOP of the matrix products, convolutions, attention and LSTMs that `work()` runs, in backward passes too.

    A multiply-add counts 2; other operators count 0, and so does what torch.compile made. The formulas are those of
    torch.utils.flop_counter, which counts all positions of attention, masked or not, and none on a CPU by itself.
    """
    return sum(call.flop for call in timed_calls(work, no_sync))


def low(seconds: Sequence[float]) -> float:
    """The first eighth's end: what other programs disturb, they lengthen."""
    return sorted(seconds)[len(seconds) // 8]


def typical_calls(runs: Sequence[Sequence[OperatorCall]]) -> list[OperatorCall]:
    """The calls of a mean step: of runs with the same operators each call once, weighted by the share of such runs.

    An operator has its shortest time, since other programs make threads wait, and the time before it is a low one.
    """
    alike: dict[tuple[str, ...], list[Sequence[OperatorCall]]] = defaultdict(list)
    for run in runs:
        alike[tuple(call.name for call in run)].append(run)
    found = []
    for same in alike.values():
        for calls in zip(*same, strict=True):
            before_s = low([call.before_s for call in calls])
            rare_s = statistics.mean(call.before_s for call in calls) - before_s
            found.append(
                dataclasses.replace(
                    calls[0],
                    seconds=min(call.seconds for call in calls),
                    before_s=before_s,
                    rare_s=rare_s if rare_s > _RARE_S + before_s else 0.0,
                    weight=len(same) / len(runs),
                )
            )
    return found


def measure_pace(ceilings: Ceilings, device: str, sync: Callable[[], None]) -> Pace:
    """The pace of this machine: its ceilings, and the cost of operators in a training step on next to nothing."""
    x = torch.ones(1, device=device)
    empty_s = low([timed_calls(lambda: x.add_(1), sync)[0].seconds for _ in range(100)])
    with torch.random.fork_rng(devices=[]):
        layers = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)
    net, image = nn.Sequential(*layers).to(device), torch.ones(1, 1, 3, 3, device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        net(image).sum().backward()
        optimizer.step()

    step_s, runs = [], []
    for _ in range(60):
        sync()
        start = perf_counter()
        step()
        sync()
        step_s.append(perf_counter() - start)
        runs.append(timed_calls(step, sync))
    calls = typical_calls(runs[10:])
    net_s = [max(call.seconds - empty_s, 0.0) for call in calls]
    plain_s, timed_s = low(step_s[10:]), sum(call.before_s + call.seconds for call in calls)
    return Pace(
        flop_per_s=ceilings.matmul_flop_per_s,
        bytes_per_s=ceilings.copy_bytes_per_s,
        empty_s=empty_s,
        dearest_s=max(net_s),
        gap_s=max(call.before_s for call in calls),
        launch_s=max(plain_s - sum(net_s), 0.0) / len(calls),
        timing_s=max(timed_s - plain_s, 0.0) / len(calls),
        on_cpu=device == "cpu",
    )


def split_by_limit(
    calls: Sequence[OperatorCall], doubled: Sequence[OperatorCall] | None, pace: Pace
) -> dict[str, float]:
    """Seconds of a step's calls by what limits them (WORK), each without the `pace.empty_s` that any operator takes.

    `doubled` are the calls with twice the batch, None if there are none.
    """
    seconds = dict.fromkeys(WORK, 0.0)
    if doubled is None or [c.name for c in calls] != [c.name for c in doubled]:
        doubled = calls  # without a comparison, no call grows
    for call, twice in zip(calls, doubled, strict=True):
        net_s = max(call.seconds - pace.empty_s, 0.0)
        if call.group != "work":
            seconds[call.group] += call.weight * net_s
            continue
        kind, fixed_s = pace.limit(call, net_s, twice)
        seconds["launch overhead"] += call.weight * fixed_s
        seconds[kind] += call.weight * (net_s - fixed_s)
    return seconds


def described(func: Any, args: Any, kwargs: Any, out: Any, seconds: float, before_s: float = 0.0) -> OperatorCall:
    """The record of an operator's call: its FLOP and bytes, from its arguments and its result."""
    given, made = _tensors((args, kwargs)), _tensors(out)
    name = str(func).removeprefix("aten.").removesuffix(".default")
    base = name.partition(".")[0]
    counts = _FLOP_OF.get(func._overloadpacket)
    flop = float(counts(*args, **kwargs, out_val=out)) if counts is not None else 0.0
    dtype = str(made[0].dtype if made else torch.float32).removeprefix("torch.")
    if len({x.device.type for x in given + made}) > 1 and base.startswith(("_to_copy", "copy")):
        return OperatorCall(f"between devices: {name}", seconds, 0.0, 0.0, dtype, before_s)
    if _is_view(func, given, made):
        return OperatorCall(name, seconds, 0.0, 0.0, dtype, before_s)
    n_bytes = sum(map(_bytes, made))
    n_bytes += n_bytes if base.startswith(_LOOKS_UP) else sum(map(_bytes, given))
    return OperatorCall(name, seconds, flop, float(n_bytes), dtype, before_s)


def _lstm_flop(x: torch.Tensor, input_weight: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any) -> float:
    """FLOP of an LSTM layer of oneDNN: each row of x (time steps, batch, width) meets all weights."""
    return 2 * x.numel() / x.shape[-1] * (input_weight.numel() + weight.numel())


_ATEN = torch.ops.aten
_FLOP_OF: dict[Any, Callable[..., float]] = {
    **flop_registry,
    _ATEN._scaled_dot_product_flash_attention_for_cpu: flop_registry[_ATEN._scaled_dot_product_flash_attention],
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        _ATEN._scaled_dot_product_flash_attention_backward
    ],
    _ATEN.mkldnn_rnn_layer: _lstm_flop,
    _ATEN.mkldnn_rnn_layer_backward: lambda *args, **kwargs: 2 * _lstm_flop(*args, **kwargs),
}


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
