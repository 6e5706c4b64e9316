"""A GPU with a copy engine and a compute engine on a virtual clock, with the names that
torch.cuda has for streams and events.

Numbers are copied and computed on the CPU at once. When a GPU would have done so is
worked out for each copy and each step: in a stream one comes after the other, each
engine does one at a time, and streams wait for each other only where they are told to.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

LAUNCH_S = 10e-6  # the host's time for a launch
_OPERATOR_S = 20e-6  # of any operator besides copies and steps
_HOST_COPY_S = 50e-6  # from main memory to main memory
_QUERY_S = 10e-6  # between two looks at whether work is done
_AT_ONCE_S = 1e-9  # two moments that are no further apart are one


@dataclass(frozen=True)
class Work:
    """What an engine did, and when, in seconds of the virtual clock; `batch` is the
    number of the batch, -1 for work on none. `by_default` says that it was in the
    stream that launches go into outside of every `with`, the trainer's.
    """

    name: str
    engine: Literal["copy", "compute", "host"]
    batch: int
    start_s: float
    end_s: float
    by_default: bool = False


@dataclass(frozen=True)
class Conflict:
    """Work that wrote memory that other work still used, or that used it too early.

    `anew` says that the memory was given up in between and got by another tensor.
    """

    earlier: Work
    later: Work
    memory: Literal["device", "pinned", "pageable"]
    wrote_first: bool
    anew: bool


@dataclass(frozen=True)
class Wait:
    """A call that kept the host until work on a batch was done."""

    call: str
    batch: int
    newest: int  # the newest batch that was fetched by then
    start_s: float
    end_s: float


class Stream:
    """torch.cuda.Stream: a queue of work that runs in order."""

    def __init__(
        self, gpu: SimulatedCuda, device: object = None, priority: int = 0
    ) -> None:
        self._gpu = gpu
        self.priority = priority
        self.end_s = 0.0  # when all work queued so far is done
        self.newest = -1  # the newest batch that such work is on
        self._outer: list[Stream] = []

    def wait_stream(self, stream: Stream) -> None:
        """Work queued from now on waits for the other stream's work queued so far."""
        other = simulated(stream)
        self._wait(other.end_s, other.newest)

    def wait_event(self, event: Event) -> None:
        """Work queued from now on waits for what the event stands behind."""
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """Put an event, a new one if none is passed, behind the work queued so far."""
        event = Event(self._gpu) if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """The host waits for the work queued so far."""
        self._gpu.wait("Stream.synchronize", self.end_s, self.newest)

    def query(self) -> bool:
        """Whether all work queued so far is done."""
        return self._gpu.look("Stream.query", self.end_s, self.newest)

    def _wait(self, until_s: float, newest: int) -> None:
        self.end_s = max(self.end_s, until_s)
        self.newest = max(self.newest, newest)

    def __enter__(self) -> Stream:
        self._outer.append(self._gpu.current)
        self._gpu.current = self
        return self

    def __exit__(self, *_: object) -> None:
        self._gpu.current = self._outer.pop()


def simulated(stream: object) -> Stream:
    """The stream; TypeError for one of torch's own."""
    if not isinstance(stream, Stream):
        raise TypeError(
            f"Expected a stream of the simulated CUDA, got {type(stream).__name__}."
        )
    return stream


class Event:
    """torch.cuda.Event: a mark in a stream."""

    def __init__(
        self,
        gpu: SimulatedCuda,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self._gpu = gpu
        self._timed = enable_timing
        self._at_s: float | None = None  # None: not recorded yet
        self._newest = -1

    def record(self, stream: Stream | None = None) -> None:
        """Stand behind the work that the stream has so far."""
        stream = stream or self._gpu.current
        self._at_s = max(stream.end_s, self._gpu.now_s)
        self._newest = stream.newest

    def wait(self, stream: Stream | None = None) -> None:
        """The stream's work queued from now on waits; for nothing before a record."""
        if self._at_s is not None:
            (stream or self._gpu.current)._wait(self._at_s, self._newest)

    def synchronize(self) -> None:
        """The host waits."""
        self._gpu.wait("Event.synchronize", self._at_s or 0.0, self._newest)

    def query(self) -> bool:
        """Whether the work in front of it is done."""
        return self._gpu.look("Event.query", self._at_s or 0.0, self._newest)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; ValueError as torch has it."""
        events = (self, end_event)
        if not all(event._timed and event._at_s is not None for event in events):
            raise ValueError(
                "Both events must be recorded, and created with argument"
                " 'enable_timing=True'."
            )
        first_s, last_s = (event._at_s or 0.0 for event in events)
        if self._gpu.now_s < max(first_s, last_s):
            raise RuntimeError("Both events must be completed: synchronize first.")
        return 1e3 * (last_s - first_s)


class Memory:
    """What tensors that share memory have in common; given up with the last of them."""

    def __init__(
        self,
        kind: Literal["device", "pinned", "pageable"],
        number: int,
        life: int,
        stream: Stream,
    ) -> None:
        self.kind = kind
        self.number = number
        self.life = life  # how often the same bytes were got before
        self.stream = stream
        self.users: list[Stream] = []  # by record_stream


class SimulatedTensor(Tensor):
    """A tensor in the simulated GPU's memory, or in main memory beside it."""

    gpu: SimulatedCuda
    memory: Memory
    batch: int

    @property  # torch's is an attribute
    def device(self) -> Any:  # type: ignore[override]
        """cuda:0 or cpu."""
        return torch.device("cuda", 0) if self.is_cuda else torch.device("cpu")

    @property
    def is_cuda(self) -> Any:  # type: ignore[override]
        """Whether it is in the GPU's memory."""
        return self.memory.kind == "device"

    def is_pinned(self, device: object = None) -> bool:
        """Whether the GPU can fetch it by itself."""
        return self.memory.kind == "pinned"

    def pin_memory(self, device: object = None) -> Tensor:
        """Itself if it is pinned, or else a pinned copy."""
        if self.is_pinned():
            return self
        pinned = self.gpu.empty(plain(self), "pinned")
        pinned.copy_(self)
        return pinned

    def record_stream(self, stream: Any) -> None:
        """Others don't get its memory before the work that the stream has when it is
        given up is done; the stream that it was made on changes nothing.
        """
        if simulated(stream) is not self.memory.stream:
            self.memory.users.append(stream)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """A copy on the device that is named, or itself."""
        kwargs.pop("copy", None)
        with torch._C.DisableTorchFunction():
            parsed = torch._C._nn._parse_to(*args, **kwargs)
        device, dtype, non_blocking, _ = parsed
        moved: Any = self
        if device is not None and device.type != self.device.type:
            kind: Literal["device", "pageable"] = (
                "device" if device.type == "cuda" else "pageable"
            )
            moved = self.gpu.empty(plain(self), kind)
            moved.copy_(self, non_blocking=non_blocking)
        if dtype is not None and dtype != self.dtype:
            moved = moved.type(dtype)
        return moved

    def cuda(
        self,
        device: object = None,
        non_blocking: bool = False,
        memory_format: object = None,
    ) -> Any:
        """A copy on the GPU, or itself."""
        return self.to("cuda", non_blocking=non_blocking)

    def cpu(self, memory_format: object = None) -> Any:
        """A copy in main memory, which the host waits for."""
        return self.to("cpu")

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        """Copy another tensor's numbers into this one."""
        self.gpu.copy(src, self, non_blocking)
        return self

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Any other operator: it runs on the GPU if a tensor of its is there."""
        leaves = tree_leaves((args, kwargs))
        gpu = next(leaf.gpu for leaf in leaves if isinstance(leaf, cls))
        return gpu.operator(func, args, kwargs or {})


class _NewTensors(TorchFunctionMode):
    """torch.empty and its like, where they ask for memory of the simulated GPU."""

    def __init__(self, gpu: SimulatedCuda) -> None:
        super().__init__()
        self._gpu = gpu

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        leaves = tree_leaves((args, kwargs))
        if any(isinstance(leaf, SimulatedTensor) for leaf in leaves):
            return func(*args, **kwargs)
        kind = kind_asked_for(kwargs)
        made = func(*args, **kwargs)
        if kind is None or not isinstance(made, Tensor):
            return made
        return self._gpu.empty(made, kind)


def kind_asked_for(kwargs: dict[str, Any]) -> Literal["device", "pinned"] | None:
    """The simulated memory that new tensors ask for; those arguments are taken out."""
    device = kwargs.get("device")
    pinned = kwargs.pop("pin_memory", False)
    if device is not None and torch.device(device).type == "cuda":
        del kwargs["device"]
        return "device"
    return "pinned" if pinned else None


def plain(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, whatever device it is said to be on."""
    return tensor.as_subclass(Tensor)


class SimulatedCuda:
    """What stands for torch.cuda: Stream, Event, stream(), current_stream(),
    default_stream() and synchronize().

    copy_s and step_s are the seconds of each batch's copy to the GPU and of the step on
    it. The queue holds `steps_ahead` steps; the host waits while it is full. One thread
    of Python is simulated.
    """

    def __init__(
        self, copy_s: Sequence[float], step_s: Sequence[float], steps_ahead: int = 2
    ) -> None:
        self.copy_s = copy_s
        self.step_s = step_s
        self.steps_ahead = steps_ahead
        self.Stream = partial(Stream, self)
        self.Event = partial(Event, self)
        self.now_s = 0.0  # the host's
        self.default = Stream(self)
        self.current = self.default
        self.work: list[Work] = []
        self.steps: list[Work] = []
        self.conflicts: list[Conflict] = []
        self.waits: list[Wait] = []
        self.fetched = 0  # batches that were asked for
        self._engine_s = {"copy": 0.0, "compute": 0.0}  # when each is free
        # by number of memory: its life, who used it, and whether it was written
        self._uses: dict[int, list[tuple[int, Work, bool]]] = {}
        self._lives: list[int] = []
        # of one stream: from when on which memory can be got again
        self._free: list[tuple[Stream, float, int]] = []
        self.device_memories: set[int] = set()

    def stream(self, stream: Stream | None) -> contextlib.AbstractContextManager[Any]:
        """In `with cuda.stream(s)`, what is launched goes into s."""
        return contextlib.nullcontext() if stream is None else simulated(stream)

    def current_stream(self, device: object = None) -> Stream:
        """The stream that launches go into now."""
        return self.current

    def default_stream(self, device: object = None) -> Stream:
        """The stream that launches go into outside of every `with`."""
        return self.default

    def synchronize(self, device: object = None) -> None:
        """The host waits for all streams."""
        last_s = max([work.end_s for work in self.work if work.engine != "host"] + [0])
        self.wait("synchronize", last_s, max((w.batch for w in self.work), default=-1))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """In such a block, torch.empty(..., device="cuda") gives simulated tensors."""
        with _NewTensors(self):
            yield

    def on_host(self, numbers: Tensor, batch: int) -> Tensor:
        """A batch as the loader hands it out: in ordinary, pageable memory."""
        self.fetched += 1
        return self._tensor(numbers, self._new_memory("pageable"), batch)

    def step(self, batch: Any, read: bool) -> None:
        """Train on a batch: queue a step that reads it. With `read` the host then waits
        for its loss.
        """
        if len(self.steps) >= self.steps_ahead:  # the queue is full
            self.now_s = max(self.now_s, self.steps[-self.steps_ahead].end_s)
        number = len(self.steps)
        step_s = self.step_s[number]
        step = self._launch(f"step {number}", "compute", step_s, number, [batch], [])
        self.steps.append(step)
        if read:
            self.now_s = max(self.now_s, step.end_s)

    def empty(
        self, like: Tensor, kind: Literal["device", "pinned", "pageable"]
    ) -> SimulatedTensor:
        """A new tensor of this kind of memory, of the same shape and dtype."""
        memory = self._got_again() if kind == "device" else None
        return self._tensor(
            torch.zeros_like(plain(like)), memory or self._new_memory(kind), -1
        )

    def copy(self, source: Any, target: SimulatedTensor, non_blocking: bool) -> None:
        """Copy numbers, on the engine that their places ask for."""
        plain(target).copy_(plain(source))
        batch = target.batch = getattr(source, "batch", -1)
        source_kind = source.memory.kind if hasattr(source, "memory") else "pageable"
        kinds = {source_kind, target.memory.kind}
        name = f"copy {batch}"
        if "device" not in kinds:
            start_s = self.now_s
            self.now_s += _HOST_COPY_S
            work = Work(name, "host", batch, start_s, self.now_s)
            self._use(work, [source], [target])
            return
        if kinds == {"device"}:
            self._launch(name, "compute", _OPERATOR_S, batch, [source], [target])
            return
        to_gpu = target.memory.kind == "device"
        copy_s = self.copy_s[batch] if to_gpu and batch >= 0 else _OPERATOR_S
        copied = self._launch(name, "copy", copy_s, batch, [source], [target])
        if "pageable" in kinds:
            self.wait("copy from pageable memory", copied.end_s, batch)
        elif not non_blocking:
            self.wait("copy without non_blocking", copied.end_s, batch)

    def operator(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run any other operator of torch, and let the GPU's clock know of it."""
        leaves = tree_leaves((args, kwargs))
        inputs = [leaf for leaf in leaves if isinstance(leaf, SimulatedTensor)]
        kind = kind_asked_for(kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            bare_args, bare = tree_map_only(SimulatedTensor, plain, (args, kwargs))
            result = func(*bare_args, **bare)
        first = inputs[0]
        if kind is not None:  # empty_like and its like
            return self.empty(result, kind)
        on_gpu = any(tensor.is_cuda for tensor in inputs)
        if not isinstance(result, Tensor):
            described = func.__name__ in ("__get__", "size", "dim", "numel", "__len__")
            if on_gpu and not described:
                self.wait(func.__name__, self.current.end_s, self.current.newest)
            return result
        place = result.untyped_storage().data_ptr()
        for tensor in inputs:
            if plain(tensor).untyped_storage().data_ptr() == place:
                view = self._tensor(result, tensor.memory, tensor.batch)
                if on_gpu and func.__name__.endswith("_"):
                    self._operate(func.__name__, inputs, view)
                return view
        if not on_gpu:
            return self._tensor(result, self._new_memory("pageable"), first.batch)
        made = self._tensor(
            result, self._got_again() or self._new_memory("device"), first.batch
        )
        self._operate(func.__name__, inputs, made)
        return made

    def wait(self, call: str, until_s: float, batch: int) -> None:
        """The host waits until a moment."""
        if until_s > self.now_s + _AT_ONCE_S:
            newest = self.fetched - 1
            self.waits.append(Wait(call, batch, newest, self.now_s, until_s))
            self.now_s = until_s

    def look(self, call: str, until_s: float, batch: int) -> bool:
        """Whether a moment has come; if not, the host has waited a little."""
        if until_s <= self.now_s + _AT_ONCE_S:
            return True
        self.wait(call, min(self.now_s + _QUERY_S, until_s), batch)
        return False

    def _operate(
        self, name: str, inputs: Sequence[SimulatedTensor], result: SimulatedTensor
    ) -> None:
        batch = result.batch
        self._launch(name, "compute", _OPERATOR_S, batch, inputs, [result])

    def _launch(
        self,
        name: str,
        engine: Literal["copy", "compute"],
        seconds: float,
        batch: int,
        reads: Sequence[Any],
        writes: Sequence[Any],
    ) -> Work:
        """Queue work on the current stream."""
        stream = self.current
        start_s = max(self.now_s, stream.end_s, self._engine_s[engine])
        by_default = stream is self.default
        work = Work(name, engine, batch, start_s, start_s + seconds, by_default)
        self.now_s += LAUNCH_S
        self._engine_s[engine] = stream.end_s = work.end_s
        stream.newest = max(stream.newest, batch)
        self._use(work, reads, writes)
        return work

    def _use(self, work: Work, reads: Sequence[Any], writes: Sequence[Any]) -> None:
        """Note what work reads and writes, and where it conflicts with work that the
        program has before it.
        """
        self.work.append(work)
        for tensors, writing in ((reads, False), (writes, True)):
            for tensor in tensors:
                if not isinstance(tensor, SimulatedTensor):
                    continue
                memory = tensor.memory
                uses = self._uses.setdefault(memory.number, [])
                for life, earlier, wrote in uses:
                    early = work.start_s < earlier.end_s - _AT_ONCE_S
                    if early and (wrote or writing) and earlier is not work:
                        anew = life != memory.life
                        self.conflicts.append(
                            Conflict(earlier, work, memory.kind, wrote, anew)
                        )
                uses.append((memory.life, work, writing))

    def _new_memory(self, kind: Literal["device", "pinned", "pageable"]) -> Memory:
        self._lives.append(0)
        return self._owned(kind, len(self._lives) - 1)

    def _got_again(self) -> Memory | None:
        """Memory of the device that the current stream may have again, as torch's
        allocator has it: without any wait for the work that still uses it, but for
        that of streams in record_stream.
        """
        for row in self._free:
            stream, from_s, number = row
            if stream is self.current and from_s <= self.now_s:
                self._free.remove(row)
                self._lives[number] += 1
                return self._owned("device", number)
        return None

    def _owned(
        self, kind: Literal["device", "pinned", "pageable"], number: int
    ) -> Memory:
        memory = Memory(kind, number, self._lives[number], self.current)
        if kind == "device":
            self.device_memories.add(number)
            # pinned memory needs no such care: torch waits for copies from it
            weakref.finalize(
                memory, self._give_up, number, memory.stream, memory.users
            ).atexit = False
        return memory

    def _give_up(self, number: int, stream: Stream, users: Sequence[Stream]) -> None:
        from_s = max((user.end_s for user in users), default=-math.inf)
        self._free.append((stream, from_s, number))

    def _tensor(self, numbers: Tensor, memory: Memory, batch: int) -> SimulatedTensor:
        tensor = numbers.as_subclass(SimulatedTensor)
        tensor.gpu = self
        tensor.memory = memory
        tensor.batch = batch
        return tensor
