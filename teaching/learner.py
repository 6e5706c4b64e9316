"""The process that runs a notebook which was handed in, and then its functions. It
imports none of the graders, and no check.

`teaching.judging` starts it and asks. Requests are pickles; a reply holds plain values
only, since whatever a learner wrote may forge it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import numbers
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import EllipsisType
from typing import Any

from teaching import kernel_source
from teaching.channel import Channel, NoMessage

# seconds that a cell, and one call of an answer, may take before they are interrupted
CELL_S = 60.0
CALL_S = 20.0
_LONGEST = 100_000  # items that are taken of an iterator
# kinds of dtype that are sent as bytes: numbers, and text of a fixed length
ARRAY_KINDS = "biufcU"
# types that pickle names by themselves
_PLAIN_TYPES = (complex, dict, float, frozenset, int, list, set, tuple)


class Interrupted(BaseException):
    """A cell or an answer took too long. No Exception, so that an answer's `except
    Exception` doesn't catch it.
    """


class Packer(pickle.Pickler):
    """Writes plain values: arrays and tensors as bytes, a kernel as its source, what
    can be called as its place in `functions`, an iterator as what it yields. With
    `by_source`, what numba compiled for the CPU is sent as its source too.
    """

    def __init__(
        self,
        file: io.BytesIO,
        functions: list[Callable[..., Any]],
        *,
        by_source: bool = False,
    ) -> None:
        super().__init__(file, protocol=4)
        self._functions = functions
        self._by_source = by_source

    def persistent_id(self, value: Any) -> Any:
        """What stands for a value that isn't plain; None for others."""
        import numpy as np
        import torch

        if isinstance(value, torch.Tensor):
            return "tensor", *bytes_of(value)
        if isinstance(value, Iterator):
            return "iterator", list(itertools.islice(value, _LONGEST))
        if hasattr(type(value), "__array__"):
            # a masked array's numbers are those below its mask, as for the checks
            array = np.asarray(value)
            kind = "scalar" if isinstance(value, np.generic) else "array"
            if array.dtype.kind in ARRAY_KINDS:
                return kind, array.dtype.str, array.shape, array.tobytes()
        if kernel_source.is_kernel(value, compiled=self._by_source):
            return "kernel", kernel_source.described(value)
        if callable(value) and not _is_plain_type(value):
            return self._function(value)
        return None

    def _function(self, value: Callable[..., Any]) -> tuple[str, int, str, bool]:
        """The place, the name, and whether it is still a stub."""
        from labkit.lesson.checks import is_open

        self._functions.append(value)
        name = str(getattr(value, "__name__", type(value).__name__))
        return "function", len(self._functions) - 1, name, is_open(value)

    def reducer_override(self, value: Any) -> Any:
        """How to make one of Python's own values that is like this one."""
        if isinstance(value, numbers.Integral):
            return int, (int(value),)
        if isinstance(value, numbers.Real):
            return float, (float(value),)
        if isinstance(value, str):
            return str, (str(value),)
        if isinstance(value, complex | EllipsisType) or _is_plain_type(value):
            return NotImplemented
        if not isinstance(value, Iterable):
            raise pickle.PicklingError(f"{type(value).__name__} is no plain value")
        if isinstance(value, dict):
            return dict, (dict(itertools.islice(value.items(), _LONGEST)),)
        kinds = (tuple, set, frozenset)
        kind = next((kind for kind in kinds if isinstance(value, kind)), list)
        return kind, (kind(itertools.islice(value, _LONGEST)),)


def _is_plain_type(value: Any) -> bool:
    return any(value is kind for kind in _PLAIN_TYPES)


def bytes_of(tensor: Any) -> tuple[str, tuple[int, ...], bytes]:
    """The dtype's name, the shape, and the numbers of a tensor of any dtype."""
    import torch

    dense = tensor.detach().cpu().to_dense() if tensor.is_sparse else tensor.detach()
    plain = dense.cpu().resolve_conj().resolve_neg().contiguous()
    name = str(plain.dtype).removeprefix("torch.")
    if not plain.numel():
        return name, tuple(plain.shape), b""
    content = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return name, tuple(plain.shape), content


def tensor_of(dtype: str, shape: tuple[int, ...], content: bytes) -> Any:
    """The tensor that `bytes_of` took apart; UnpicklingError for no dtype."""
    import torch

    kind = vars(torch).get(dtype)
    if not isinstance(kind, torch.dtype):
        raise pickle.UnpicklingError(f"{dtype} is no kind of number")
    if not content:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(bytearray(content), dtype=kind).reshape(shape)


class Requests(pickle.Unpickler):
    """Reads what the grader asks: a function of its own is one that is called over
    there.
    """

    def __init__(self, request: bytes, call_grader: Callable[..., Any]) -> None:
        super().__init__(io.BytesIO(request))
        self._call_grader = call_grader

    def persistent_load(self, named: Any) -> Any:
        """A tensor, or the grader's function at a place."""
        if named[0] == "tensor":
            *parts, requires_grad = named[1:]
            return tensor_of(*parts).requires_grad_(requires_grad)
        _, place = named

        def called(*arguments: Any) -> Any:
            return self._call_grader(place, arguments)

        return called


class Learner:
    """A notebook's cells, one by one, and then its answers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._functions: list[Callable[..., Any]] = []
        self._answer_of: dict[str, Any] = {}

    def serve(self) -> None:
        """Answer requests until the grader has gone."""
        with contextlib.closing(self._channel), contextlib.suppress(NoMessage):
            while True:
                self._reply_to(self._channel.receive())

    def _reply_to(self, request: bytes) -> None:
        try:
            kind, *arguments = Requests(request, self._call_grader).load()
            value = getattr(self, kind)(*arguments)
            by_source = kind == "source"
            reply = self._packed("returned", value, by_source=by_source)
        except BaseException as error:
            words = str(error)[:300]
            reply = pickle.dumps(("raised", type(error).__name__, words))
        self._channel.send(reply)

    def _packed(self, *message: Any, by_source: bool = False) -> bytes:
        packed = io.BytesIO()
        Packer(packed, self._functions, by_source=by_source).dump(message)
        return packed.getvalue()

    def _call_grader(self, place: int, arguments: tuple[Any, ...]) -> Any:
        """Call a function of the grader's, which may call an answer meanwhile."""
        self._channel.send(self._packed("call", place, arguments))
        while True:
            message = self._channel.receive()
            kind, *content = Requests(message, self._call_grader).load()
            if kind == "returned":
                return content[0]
            if kind == "raised":
                raise type(content[0], (Exception,), {})(content[1])
            self._reply_to(message)

    def begin(self, files: dict[str, bytes]) -> None:
        """Write these files into the folder of results, and start a shell in which
        `lab.check` keeps answers.
        """
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        home = Path(os.environ["LABKIT_HOME"])
        home.mkdir(exist_ok=True)
        for name, content in files.items():
            (home / name).write_bytes(content)

        import labkit as lab

        def check(number: str, answer: object) -> lab.Outcome:
            self._answer_of[number] = answer
            words = "It is judged when the notebook has run."
            return lab.Outcome(number, "todo", words)

        lab.check = check
        settings = Config({"HistoryManager": {"hist_file": ":memory:"}})
        self._shell = InteractiveShell.instance(config=settings)

    def cell(self, source: str) -> None:
        """Run a cell."""
        with _interrupted_after(CELL_S):
            self._shell.run_cell(source)

    def answer(self, number: str, expression: str) -> Any:
        """An exercise's answer: what `lab.check` last got, else the expression."""
        if number in self._answer_of:
            return self._answer_of[number]
        return eval(expression, self._shell.user_ns)

    def source(self, number: str, expression: str) -> Any:
        """An exercise's answer, which is sent as its source."""
        return self.answer(number, expression)

    def call(self, place: int, arguments: tuple[Any, ...], named: Any) -> Any:
        """What an answer returns, and the arguments as it left them, None for those
        that can't change.
        """
        with _interrupted_after(CALL_S):
            returned = self._functions[place](*arguments, **named)
        return returned, [a if self._can_change(a) else None for a in arguments]

    def _can_change(self, argument: Any) -> bool:
        """Whether an answer may have changed an argument, and it can be sent back."""
        import numpy as np
        import torch

        if isinstance(argument, list | dict):
            with contextlib.suppress(Exception):
                return bool(self._packed(argument))
        return isinstance(argument, np.ndarray | torch.Tensor)


@contextlib.contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt what runs in the `with`, again every second while it catches that."""

    def interrupt(*_: object) -> None:
        raise Interrupted(f"It was stopped after {seconds:.0f} seconds.")

    former = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)


def channel_of(descriptor: str) -> Channel:
    """The end of the sockets that the grader handed over."""
    return Channel(socket.socket(fileno=int(descriptor)))


if __name__ == "__main__":
    # whoever takes too much memory is to be ended first
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    Learner(channel_of(sys.argv[1])).serve()
