"""Time every operator of a step by itself, and count its FLOP and bytes."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

from steptime.arguments import function
from steptime.measure.clock import Clock, above_0, faults_and_switches
from steptime.measure.machine import no_sync
from steptime.measure.operator_hooks import (
    EachOperator,
    each_compiled_graph,
    each_wait,
)

# read what they return
_LOOKS_UP = ("embedding", "embedding_bag", "gather", "index", "index_select", "take")
_SCATTERS = ("index_", "scatter", "_index_put")  # write as much as they are given
_OVERWRITES = (
    "copy_",
    "zero_",
    "fill_",
    "random_",
    "normal_",
    "uniform_",
    "bernoulli_",
    "exponential_",
)
# the least that a memory delivers: a cache line, a sector
_LINE_BYTES = {"cpu": 64, "cuda": 32}
_END = "end of the step"
_WAIT = "c10d wait"
COMPILED = "compiled graph"
# what DistributedDataParallel does with a bucket that has arrived, before it waits for
# the next one
_MOVES = ("as_strided", "copy_", "detach", "slice", "view")


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator: its synchronized seconds, FLOP of its products, bytes
    read and written.

    `before_s` are the host's seconds since the operator before. In the call, the
    process met `faults` pages of memory that the system had yet to provide. `weight` is
    how often a mean step makes the call.
    """

    name: str
    seconds: float
    flop: float
    n_bytes: float
    dtype: str = "float32"
    before_s: float = 0.0
    faults: int = 0
    weight: float = 1.0

    @property
    def group(self) -> str:
        """Its kind: "work", "input" (a copy between devices), or "communication"."""
        if self.name.startswith(("c10d", "_c10d")):
            return "communication"
        return "input" if self.name.startswith("between devices: ") else "work"


def timed_calls(
    work: Callable[[], object], sync: Callable[[], None]
) -> list[OperatorCall]:
    """Run `work` once, and time each operator by itself, as within `timing_calls`."""
    with timing_calls(sync) as timer:
        work()
    return timer.calls


@contextlib.contextmanager
def timing_calls(sync: Callable[[], None]) -> Iterator[CallTimer]:
    """Time each operator of the block by itself, with a wait for the device before and
    after; `calls` are theirs.

    A graph that Inductor compiled is one call, with the FLOP of the products in it. The
    last call is no operator: it holds the time after the last one.
    """
    timer = CallTimer(sync)
    with (
        each_wait(timer.wait),
        EachOperator(timer.operator),
        each_compiled_graph(timer.graph),
    ):
        timer.begin()
        yield timer
    timer.end()


class CallTimer:
    """Times operators and compiled graphs, and what passes between them."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self.calls: list[OperatorCall] = []
        self._sync = sync
        self._clock = Clock(sync)
        self._since_s = 0.0
        # of the operators of the compiled graph that runs now
        self._graph_flop: list[float] | None = None
        self._is_paused = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block, operators run untimed, and its time belongs to none."""
        before = self._is_paused
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = before
            self.begin()

    def begin(self) -> None:
        """Begin the time before the next call."""
        self._since_s = self._clock()

    def end(self) -> None:
        """Note the time after the last call."""
        before_s = max(self._clock() - self._since_s, 0.0)
        self.calls.append(OperatorCall(_END, 0.0, 0.0, 0.0, before_s=before_s))

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run and time an operator; one that belongs to a compiled graph is run, and
        its FLOP are counted.
        """
        # or the name of a part, which the next operator's gap includes
        if self._is_paused or func.namespace == "profiler":
            return func(*args, **kwargs)
        if self._graph_flop is None:
            return self._timed(
                lambda: func(*args, **kwargs), partial(described, func, args, kwargs)
            )
        out = func(*args, **kwargs)
        self._graph_flop.append(described(func, args, kwargs, out, 0.0).flop)
        return out

    def graph(self, run: Callable[[], Any], inputs: list[Any]) -> Any:
        """Run and time a compiled graph."""
        if self._is_paused:
            return run()
        flop = list[float]()

        def describe(out: Any, seconds: float) -> OperatorCall:
            return _graph_call(inputs, out, seconds, sum(flop))

        self._graph_flop = flop
        try:
            return self._timed(run, describe)
        finally:
            self._graph_flop = None

    def wait(self, run: Callable[[], Any]) -> Any:
        """Run and time a wait for a collective that was begun before."""
        if self._is_paused:
            return run()
        return self._timed(run, lambda _, s: OperatorCall(_WAIT, s, 0.0, 0.0))

    def _timed(
        self, run: Callable[[], Any], describe: Callable[[Any, float], OperatorCall]
    ) -> Any:
        self._sync()  # what was queued before isn't this operator's
        before_s = max(self._clock() - self._since_s, 0.0)
        faults_before, _ = faults_and_switches()
        start_s = self._clock()
        out = run()
        self._sync()
        seconds = max(self._clock() - start_s, 0.0)
        faults, _ = faults_and_switches()
        call = dataclasses.replace(
            describe(out, seconds), faults=faults - faults_before, before_s=before_s
        )
        self.calls.append(call)
        self.begin()
        return out


def counted_flop(work: Callable[[], object]) -> float:
    """FLOP of the matrix products, convolutions, attention and LSTMs that `work()`
    runs, in backward passes too.

    A multiply-add counts 2; other operators count 0, and so do kernels that
    torch.compile wrote. The formulas are those of torch.utils.flop_counter, which
    counts all positions of attention, masked or not, and none on a CPU by itself.
    """
    function("work", work, 0)
    return sum(call.flop for call in timed_calls(work, no_sync))


def waits_inside_s(calls: Sequence[OperatorCall]) -> float:
    """Seconds of a step's `calls` in which DistributedDataParallel waits at the end of
    a backward pass, where no operator shows it: between the last collective that it
    begins and what comes after the gradients.
    """
    seconds = 0.0
    waits = False
    for call in calls:
        if waits:
            seconds += call.weight * call.before_s
        base, _, _ = call.name.partition(".")
        begins = call.group == "communication" and call.name != _WAIT
        waits = begins or (waits and base in _MOVES)
    return seconds


def low(seconds: Sequence[float]) -> float:
    """The first eighth's end: what other programs disturb, they lengthen."""
    return sorted(seconds)[len(seconds) // 8]


def usual_runs(runs: Sequence[list[OperatorCall]]) -> list[list[OperatorCall]]:
    """Of runs that differ in their operators, those of the kind that is
    most frequent.
    """
    kinds = [tuple(call.name for call in run) for run in runs]
    usual = statistics.mode(kinds)
    return [run for run, kind in zip(runs, kinds, strict=True) if kind == usual]


def typical_calls(runs: Sequence[Sequence[OperatorCall]]) -> list[OperatorCall]:
    """The calls of a mean step: of runs with the same operators each call once,
    weighted by the share of such runs.

    An operator has its shortest time, since other programs make threads wait, and the
    time before it is a low one.
    """
    alike: dict[tuple[str, ...], list[Sequence[OperatorCall]]] = defaultdict(list)
    for run in runs:
        alike[tuple(call.name for call in run)].append(run)
    return [
        dataclasses.replace(
            calls[0],
            seconds=min(above_0(call.seconds for call in calls)),
            before_s=low([call.before_s for call in calls]),
            faults=min(call.faults for call in calls),
            weight=len(same) / len(runs),
        )
        for same in alike.values()
        for calls in zip(*same, strict=True)
    ]


def described(
    func: Any, args: Any, kwargs: Any, out: Any, seconds: float
) -> OperatorCall:
    """The record of an operator's call: its FLOP and bytes, from its arguments and its
    result.
    """
    inputs = _tensors((args, kwargs))
    results = _tensors(out)
    name = str(func).removeprefix("aten.").removesuffix(".default")
    base, _, _ = name.partition(".")
    dtype = _dtype(results)
    devices = {x.device.type for x in inputs + results}
    if len(devices) > 1 and base.startswith(("_to_copy", "copy")):
        return OperatorCall(f"between devices: {name}", seconds, 0.0, 0.0, dtype)
    flop_of = _FLOP_OF.get(func._overloadpacket)
    flop = float(flop_of(*args, **kwargs, out_val=out)) if flop_of is not None else 0.0
    n_bytes = float(_traffic(func, base, args, kwargs, results))
    return OperatorCall(name, seconds, flop, n_bytes, dtype)


def _dtype(results: Sequence[torch.Tensor]) -> str:
    dtype = results[0].dtype if results else torch.float32
    return str(dtype).removeprefix("torch.")


def _traffic(
    func: Any, base: str, args: Any, kwargs: Any, results: Sequence[torch.Tensor]
) -> int:
    """Bytes that an operator reads and writes; its schema says which arguments it
    writes.

    A view moves nothing, and memory without values is not written.
    """
    if base.startswith(("empty", "new_empty")) or torch.Tag.inplace_view in func.tags:
        return 0
    read, written = _read_and_written(func, base, args, kwargs)
    storages = {x.untyped_storage().data_ptr() for x in read + written}
    new = [x for x in results if x.untyped_storage().data_ptr() not in storages]
    if results and not new and not written:
        return 0
    if base in _LOOKS_UP:
        return 2 * sum(map(_bytes, new + written))
    # x * x reads x once
    read = list({(x.data_ptr(), x.numel()): x for x in read}.values())
    n_written = sum(map(_bytes, written))
    if written and base.startswith(_SCATTERS):
        sources = [x for x in read if not any(x is target for target in written)]
        n_source = [_bytes(x) for x in sources]
        return sum(n_source) + 2 * min(n_written, max(n_source, default=0))
    return sum(map(_bytes, read)) + n_written + sum(map(_bytes, new))


def _read_and_written(
    func: Any, base: str, args: Any, kwargs: Any
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The tensors among the arguments whose numbers are read, and those that change."""
    read = list[torch.Tensor]()
    written = list[torch.Tensor]()
    arguments = {argument.name: argument for argument in func._schema.arguments}
    values = dict(zip(arguments, args, strict=False)) | kwargs
    for name, value in values.items():
        argument = arguments[name]
        tensors = _tensors(value)
        writes = argument.alias_info is not None and argument.alias_info.is_write
        if writes:
            written += tensors
        overwrites = writes and (argument.kwarg_only or base in _OVERWRITES)
        if not overwrites and not base.endswith("_like"):
            read += tensors
    return read, written


def _graph_call(
    inputs: list[Any], out: Any, seconds: float, flop: float
) -> OperatorCall:
    """The record of a compiled graph's call: it reads its inputs and writes its outputs
    at least once.
    """
    results = _tensors(out)
    n_bytes = float(sum(map(_bytes, _tensors(inputs) + results)))
    return OperatorCall(COMPILED, seconds, flop, n_bytes, _dtype(results))


def _lstm_flop(
    x: torch.Tensor,
    input_weight: torch.Tensor,
    weight: torch.Tensor,
    *_: Any,
    **__: Any,
) -> float:
    """FLOP of an LSTM layer of oneDNN: each row of x (time steps, batch, width) meets
    all weights.
    """
    return 2 * x.numel() / x.shape[-1] * (input_weight.numel() + weight.numel())


_ATEN = torch.ops.aten
_FLOP_OF: dict[Any, Callable[..., float]] = {
    **flop_registry,
    _ATEN._scaled_dot_product_flash_attention_for_cpu: flop_registry[
        _ATEN._scaled_dot_product_flash_attention
    ],
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        _ATEN._scaled_dot_product_flash_attention_backward
    ],
    _ATEN.mkldnn_rnn_layer: _lstm_flop,
    _ATEN.mkldnn_rnn_layer_backward: lambda *args, **kwargs: (
        2 * _lstm_flop(*args, **kwargs)
    ),
}


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree, without sparse ones, which have no single storage."""
    return [
        x
        for x in tree_flatten(tree)[0]
        if isinstance(x, torch.Tensor) and x.layout == torch.strided
    ]


def _bytes(x: torch.Tensor) -> int:
    """Bytes that a pass over a tensor moves: whole cache lines if it is strided, and no
    more than its storage has.
    """
    strides = zip(x.shape, x.stride(), strict=True)
    steps = [stride for size, stride in strides if size > 1 and stride]
    item_bytes = x.element_size()
    line_bytes = max(_LINE_BYTES.get(x.device.type, item_bytes), item_bytes)
    bytes_per_item = min(min(steps, default=1) * item_bytes, line_bytes)
    return min(x.numel() * bytes_per_item, x.untyped_storage().nbytes())
