"""Trace a rank's communication: each call of torch.distributed as a span, and which
call the rank is in now.

In a rank's process, and only there, the functions of torch.distributed are replaced by
ones that note start and end. What C++ does by itself is not seen:
DistributedDataParallel's own all-reduces, and DTensor's functional collectives.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ranks.inside.gpu_clock import GpuClock
from ranks.inside.rank_context import RankContext
from ranks.spans import Key

# Those whose tensor has as many numbers, of one type, on all ranks of the group.
_ALIKE = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
)
_COLLECTIVES = (
    *_ALIKE,
    "all_gather_object",
    "all_to_all",
    "barrier",
    "broadcast_object_list",
    "gather_object",
    "monitored_barrier",
    "scatter_object_list",
)
_UNEVEN_ON_NCCL = ("all_gather", "reduce_scatter")
_MOST_SIZES = 50_000  # calls of a group
# Function -> its argument that names the peer. send_object_list is missing: it sends
# several messages, with no one key.
_MESSAGES = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}


@dataclass(frozen=True)
class CommCall:
    """One call of torch.distributed: its function, its tensor, and the key that its
    peers' calls have too.
    """

    name: str
    what: str = ""
    key: Key | None = None
    start_s: float = 0.0
    peer: int | None = None
    root: str = ""  # of a collective in which one rank sends or receives, as words
    group: Any = None  # of a collective; None is that of all ranks

    @property
    def label(self) -> str:
        """What a picture writes on it: "send to 1"."""
        if self.peer is None:
            return self.name
        direction = "to" if "send" in self.name else "from"
        return f"{self.name} {direction} {self.peer}"

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks of a collective's group; none of a message."""
        if self.key is None or self.peer is not None:
            return ()
        return tuple(dist.get_process_group_ranks(self.group))


class CommTracer:
    """Adds the communication of one rank to its trace."""

    def __init__(self, context: RankContext, folder: str) -> None:
        self.context = context
        self._sizes = os.open(
            f"{folder}/sizes-{context.rank}",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            0o600,
        )
        # by thread: a function may communicate from several
        self.open: dict[int, CommCall] = {}
        self.last: CommCall | None = None
        # by id: a later Work of the same id replaces an earlier one
        self._works: dict[int, CommCall] = {}
        self._counts: Counter[Key] = Counter()

    def install(self) -> None:
        """Replace the functions, before the notebook's function is unpickled, which
        looks them up by name.
        """
        for name in (*_COLLECTIVES, *_MESSAGES):
            self._replace(name)
        self._replace_init()
        wait = dist.Work.wait  # of what async_op=True, isend and irecv return

        def traced_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            call = self._works.pop(id(work), None) or CommCall("wait")
            return self._timed(call, lambda: wait(work, *args, **kwargs), arrives=False)

        dist.Work.wait = traced_wait  # type: ignore[assignment, method-assign]

    def _replace(self, name: str) -> None:
        original = getattr(c10d, name, None)
        if original is None:  # an older torch lacks some
            return
        names = list(inspect.signature(original).parameters)

        @functools.wraps(original)
        def traced(*args: Any, **kwargs: Any) -> Any:
            # a part of a call that is traced as a whole
            if threading.get_ident() in self.open:
                return original(*args, **kwargs)
            arguments = dict(zip(names, args, strict=False)) | kwargs
            key, peer = self._key(name, arguments)
            what = _what(arguments)
            root = _root(name, arguments)
            group = arguments.get("group")
            start_s = self.context.now_s()
            call = CommCall(name, what, key, start_s, peer, root, group)
            self._note_size(name, arguments, key)
            return self._timed(call, lambda: original(*args, **kwargs), arrives=True)

        _set(name, original, traced)

    def _note_size(self, name: str, arguments: dict[str, Any], key: Key | None) -> None:
        """Write down what this rank passes to a call, at once: gloo ends a process
        whose tensor is too small.
        """
        if key is None or key[-1] > _MOST_SIZES or name not in (*_ALIKE, *_MESSAGES):
            return
        if arguments.get("input_split_sizes") or arguments.get("output_split_sizes"):
            return
        if (
            name in _UNEVEN_ON_NCCL
            and dist.get_backend(arguments.get("group")) == "nccl"
        ):
            return
        inputs = (arguments.get("input_tensor"), arguments.get("input"))
        for value in (*inputs, *arguments.values()):
            if isinstance(value, torch.Tensor):
                size = value.numel()
                n_bytes = size * value.element_size()
                line = json.dumps([name, size, _dtype(value), n_bytes, *key])
                os.write(self._sizes, line.encode() + b"\n")
                return

    def _timed(self, call: CommCall, run: Callable[[], Any], *, arrives: bool) -> Any:
        thread = threading.get_ident()
        if thread in self.open:
            return run()
        self.open[thread] = self.last = call
        start = self.context.stamp()
        if arrives:
            self.context.add_arrival(call.key, start)
        try:
            result = run()
        finally:
            del self.open[thread]
        # it goes on in the background, and is waited for later
        if isinstance(result, dist.Work):
            self._works[id(result)] = call
        else:
            self.context.add_span(
                start, self.context.stamp(), "communication", call.label, call.key
            )
        return result

    def _key(
        self, name: str, arguments: dict[str, Any]
    ) -> tuple[Key | None, int | None]:
        """What the peers' calls have in common with this one, and a message's peer;
        None where they aren't known.
        """
        group = arguments.get("group")
        if group is None and dist.is_initialized():
            group = dist.group.WORLD
        if not isinstance(group, dist.ProcessGroup):
            return None, None
        side = _MESSAGES.get(name)
        if side is None:
            first_rank = dist.get_process_group_ranks(group)[0]
            return self._numbered((group.group_name, first_rank)), None
        peer = arguments.get(side)
        rank_in_group = arguments.get(f"group_{side}")
        if peer is None and rank_in_group is not None:
            peer = dist.get_global_rank(group, rank_in_group)
        if peer is None:
            # recv from any rank: the peer is not known before it has sent
            return None, None
        source = self.context.rank
        target = int(peer)
        if side == "src":
            source, target = target, source
        tag = arguments.get("tag", 0)
        return self._numbered(("message", source, target, tag)), peer

    @property
    def collectives(self) -> dict[Key, int]:
        """How many collectives this rank has entered, by the series of each group."""
        counts = self._counts.items()
        return {series: n for series, n in counts if series[0] != "message"}

    def _numbered(self, series: Key) -> Key:
        """The key of the next call of a series."""
        self._counts[series] += 1
        return (*series, self._counts[series])

    def _replace_init(self) -> None:
        """Replace init_process_group: no span, but a rank that hangs in it is seen
        there.
        """
        original = c10d.init_process_group

        @functools.wraps(original)
        def traced(*args: Any, **kwargs: Any) -> None:
            thread = threading.get_ident()
            self.open[thread] = CommCall(
                "init_process_group", start_s=self.context.now_s()
            )
            backend = kwargs.get("backend", args[0] if args else None) or "nccl"
            try:
                # Over gloo a rank has no use for a GPU, whose context would take time
                # and memory.
                if "nccl" in backend and torch.cuda.device_count() > self.context.rank:
                    torch.cuda.set_device(self.context.rank)
                    # the device that it means is the one that was just set
                    warnings.filterwarnings(
                        "ignore", r"barrier\(\): using the device", UserWarning
                    )
                original(*args, **kwargs)
            finally:
                self.open.pop(thread, None)
            if self.context.gpu is None and dist.get_backend() == "nccl":
                self.context.gpu = GpuClock(self.context.now_s)

        _set("init_process_group", original, traced)


def _set(name: str, original: Any, replacement: Any) -> None:
    setattr(c10d, name, replacement)
    if getattr(dist, name, None) is original:
        setattr(dist, name, replacement)


def _root(name: str, arguments: dict[str, Any]) -> str:
    """The rank from which or to which a collective goes, " with src=0"; "" without."""
    side = {"broadcast": "src", "reduce": "dst"}.get(name, "")
    root = arguments.get(side)
    return f" with {side}={root}" if root is not None else ""


def _what(arguments: dict[str, Any]) -> str:
    """The first tensor among the arguments, as text that differs where the tensors of
    two ranks don't fit.
    """
    for value in arguments.values():
        if isinstance(value, torch.Tensor):
            return f"{_dtype(value)} of shape {tuple(value.shape)}"
    return ""


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
