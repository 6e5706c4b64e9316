"""Find where Python waits for a GPU: whatever takes numbers out of a tensor."""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import os
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from steptime._tables import Table
from steptime.arguments import expected, function
from steptime.measure.operator_hooks import EachOperator, replaced

_READING_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_READING_METHODS = (
    "tolist",
    "numpy",
    "__array__",
    "__dlpack__",
    "__repr__",
    "__format__",
    "__bool__",
    "cpu",
    # with functions of Python
    "apply_",
    "map_",
)
_FOLDERS = (Path(torch.__path__[0]), Path(__file__).parents[1])
_LIBRARIES = (
    *(f"{folder}{os.sep}" for folder in _FOLDERS),
    "<",
    contextlib.__file__,
    # on Python 3.14 most of `warnings` is in a module of its own
    inspect.getfile(warnings.catch_warnings),
    warnings.__file__,
)
_WARNED = "called a synchronizing"  # in torch's words


@contextlib.contextmanager
def each_read(on_read: Callable[[], object]) -> Iterator[None]:
    """Within the block, `on_read()` is called whenever this thread takes numbers out of
    a tensor.

    On a GPU Python waits there until all queued work is done. An operator counts whose
    result's size depends on numbers, such as nonzero() or a mask as an index, and so do
    cpu(), numpy(), tolist(), printing and torch.save().
    """
    reads = _Reads(on_read)
    # A TorchFunctionMode would see these methods too, but torch.compile would compile
    # all code anew under it.
    methods = {
        name: reads.once(getattr(torch.Tensor, name)) for name in _READING_METHODS
    }
    saves = {
        "_save": reads.once(torch.serialization._save),
        "_legacy_save": reads.once(torch.serialization._legacy_save),
    }
    with (
        replaced(torch.serialization, **saves),
        replaced(torch.Tensor, **methods),
        EachOperator(reads.operator),
    ):
        yield


class _Reads:
    """Reports what takes numbers out of a tensor in the thread that made this, once
    each.
    """

    def __init__(self, on_read: Callable[[], object]) -> None:
        self._on_read = on_read
        self._thread = threading.get_ident()
        self._n = 0
        self._inside = False

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator, and report it if the size or the value of its result
        depends on numbers.
        """
        if func._schema.name == "aten::index":
            # of the indices, only a mask is read
            reads = any(i is not None and i.dtype == torch.bool for i in args[1])
        else:
            reads = not _READING_TAGS.isdisjoint(func.tags)
        if reads:
            self._report()
        return func(*args, **kwargs)

    def once(self, method: Callable[..., object]) -> Callable[..., object]:
        """`method`, which reads, with a report of its own if it calls no operator that
        reads, or hides it.
        """

        @functools.wraps(method)
        def reading(*args: Any, **kwargs: Any) -> object:
            if self._inside or threading.get_ident() != self._thread:
                return method(*args, **kwargs)
            before = self._n
            self._inside = True
            try:
                result = method(*args, **kwargs)
            finally:
                self._inside = False
            if self._n == before:
                self._report()
            return result

        return reading

    def _report(self) -> None:
        self._n += 1
        self._on_read()


def wait_lines(work: Callable[[], object], *, libraries: Sequence[Path] = ()) -> Table:
    """Run `work` once, and return the lines of your code at which Python waits for the
    GPU, with how often it did.

    On a GPU that is what torch's sync debug mode warns of, which misses some waits, as
    for torch.distributed. Without one it is what would wait there: each line that takes
    numbers out of a tensor. A line of torch, or below one of the folders `libraries`,
    counts for the line that called it. Source: PyTorch documentation,
    torch.cuda.set_sync_debug_mode.
    """
    function("work", work, 0)
    if not isinstance(libraries, list | tuple):
        raise TypeError(expected("libraries", "a list of folders", libraries))
    skipped = (*_LIBRARIES, *(f"{folder}{os.sep}" for folder in libraries))
    lines: Counter[tuple[str, int]] = Counter()

    def note(warning: object = _WARNED, *_: object, **__: object) -> None:
        if _WARNED not in str(warning):
            return
        # of the call that waits; from there outwards to the reader's line
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename.startswith(skipped):
            frame = frame.f_back
        lines[frame.f_code.co_filename, frame.f_lineno] += 1

    on_gpu = torch.cuda.is_available()
    with (
        warnings.catch_warnings() if on_gpu else each_read(note),
        contextlib.ExitStack() as at_end,
    ):
        if on_gpu:
            warnings.simplefilter("always")
            warnings.showwarning = note  # type: ignore[assignment]  # takes any arguments
            at_end.callback(torch.cuda.set_sync_debug_mode, "default")
            torch.cuda.set_sync_debug_mode("warn")
        work()
    rows = tuple(
        (linecache.getline(file, line).strip() or f"{file}:{line}", str(n))
        for (file, line), n in lines.most_common()
    )
    words = "waits for the GPU" if on_gpu else "would wait for a GPU"
    return Table(rows or (("none", ""),), (f"line that {words}", "times"))
