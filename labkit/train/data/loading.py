"""torch's DataLoader with a clock in it, whose failures are one sentence and leave no process behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from labkit.core.arguments import check_number
from labkit.core.errors import DataError, LabError, WorkerFailed
from labkit.core.units import format_bytes, format_seconds
from labkit.measure.host import memory_bytes
from labkit.train.data.bundled import check_at_least_one
from labkit.train.data.cache import batch_bytes
from labkit.train.data.stamps import Batch, BatchTimes, Stamped, StampedStream, now_s, stamped_batch

_POLL_S = 0.5  # how soon a dead worker is found
_IN_WORKER = re.compile(r"^Caught \w+ in DataLoader worker process (\d+)")
_QUIET = ("This DataLoader will create", "This process .*is multi-threaded")  # asked for here, and safe: see _begin


class Loader:
    """Batches of a dataset, epoch after epoch: `for images, labels in loader`. Made by `loader`.

    `times` are the BatchTimes of the last epoch. After `close`, or at the end of a with block, no worker is left; the
    next epoch starts new ones.
    """

    def __init__(self, make: Callable[[], DataLoader[Any]], workers: int, timeout_s: float, persistent: bool) -> None:
        self._make, self.workers, self._timeout_s, self._persistent = make, workers, timeout_s, persistent
        self._loader: DataLoader[Any] | None = None
        self._processes: list[BaseProcess] = []
        self.times: list[BatchTimes] = []

    def __iter__(self) -> Iterator[Any]:
        batches, self.times, done = self._begin(), [], False
        try:
            while True:
                asked_s = now_s()
                if (batch := self._next(batches)) is None:
                    break
                self.times.append(BatchTimes(*batch[1:], asked_s, now_s()))
                yield batch.content
            done = True
        finally:
            del batches  # torch ends workers that are not persistent with the last reference
            if not (done and self._persistent):
                self.close()

    def __len__(self) -> int:
        """Batches of an epoch; TypeError where the dataset doesn't know its length."""
        return len(self._make() if self._loader is None else self._loader)

    def close(self) -> None:
        """End the workers, if there are any."""
        with _calm():
            self._loader = None  # torch asks them to end, and waits
            self._kill()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> Iterator[Batch]:
        """Start the workers, or the next epoch of those that persist.

        Forking beside torch's threads is safe here since a worker uses one thread and no device.
        """
        before = set(multiprocessing.active_children())
        with _calm():
            if self._loader is None:
                self._loader = self._make()
            batches = cast("Iterator[Batch]", iter(self._loader))
        started = [child for child in multiprocessing.active_children() if child not in before]
        self._processes = started or self._processes
        return batches

    def _next(self, batches: Iterator[Batch]) -> Batch | None:
        """The next batch, None at the end; whatever a worker does becomes one sentence."""
        until_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return next(batches, None)
            except Exception as error:
                if self.workers == 0:
                    raise
                if str(error).startswith("DataLoader timed out"):  # and torch found no worker dead
                    if time.monotonic() < until_s:
                        continue
                    failed: LabError = WorkerFailed(
                        f"No batch came within {format_seconds(self._timeout_s)} from {self.workers} "
                        f"worker{'s' * (self.workers > 1)}: one hangs, or needs longer; all are ended now. "
                        "Try workers=0 to see where, or a larger timeout_s."
                    )
                else:
                    failed = self._explained(error)
                self._kill()
                raise failed from error

    def _explained(self, error: Exception) -> LabError:
        if raised := _IN_WORKER.match(str(error)):
            said = str(error).strip().splitlines()[-1]  # of the worker's traceback
            if isinstance(error, LabError):
                return type(error)(said.partition(": ")[2])
            return WorkerFailed(
                f"Worker {raised[1]} raised {said}; all workers are ended now. Try workers=0 for the whole traceback."
            )
        for process in self._processes:
            process.join(timeout=0)
        codes = [process.exitcode for process in self._processes if process.exitcode is not None]
        if not codes:
            return WorkerFailed(
                f"The workers can't be reached any more ({type(error).__name__}: {error}); all are ended."
            )
        worst = next((code for code in codes if code != 0), 0)  # one whose shards are at their end has left with 0
        return WorkerFailed(
            f"A worker process {_ended(worst)} while it loaded a batch; all workers are ended now. "
            "Was there memory enough for so many? Try fewer workers, a smaller batch, or workers=0 to see more."
        )

    def _kill(self) -> None:
        with _calm():
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.join()
        self._processes = []


def loader(
    dataset: Dataset[Any],
    batch: int,
    *,
    workers: int = 0,
    shuffle: bool = False,
    prefetch: int = 2,
    persistent: bool = False,
    pin: bool = False,
    drop_last: bool = False,
    timeout_s: float = 60.0,
    seed: int | None = None,
    most_bytes: int | None = None,
) -> Loader:
    """Batches of `batch` samples by torch's DataLoader, which here says what happened when it fails.

    `workers` processes load `prefetch` batches each ahead (0: the trainer loads for itself); `persistent` keeps them
    from one epoch to the next; `pin` copies batches into pinned memory where there is a CUDA GPU. An IterableDataset
    shuffles itself. `seed` makes order and random changes repeatable.
    A worker that dies, raises, or sends nothing for `timeout_s` seconds raises WorkerFailed in the trainer, a damaged
    image DataError; by then all workers are gone. Raises DataError beforehand when the batches would not fit into
    `most_bytes`, by default this machine's memory, provided that the dataset's `prepare` knows its `image_bytes`.
    """
    check_at_least_one(batch=batch, prefetch=prefetch)
    check_number("workers", workers, least=0, whole=True, error=DataError)
    check_number("timeout_s", timeout_s, above=0, error=DataError)
    _check_fits(dataset, batch, workers, prefetch, most_bytes)
    streams = isinstance(dataset, IterableDataset)
    generator = None if seed is None else torch.Generator().manual_seed(seed)

    def make() -> DataLoader[Any]:
        return DataLoader(
            StampedStream(dataset) if streams else Stamped(dataset),
            batch,
            shuffle=None if streams else shuffle,
            num_workers=workers,
            collate_fn=stamped_batch,
            pin_memory=pin and torch.cuda.is_available(),
            drop_last=drop_last,
            timeout=min(_POLL_S, timeout_s) if workers else 0,
            generator=generator,
            prefetch_factor=prefetch if workers else None,
            persistent_workers=persistent and workers > 0,
        )

    return Loader(make, workers, timeout_s, persistent)


def _check_fits(dataset: Dataset[Any], batch: int, workers: int, prefetch: int, most_bytes: int | None) -> None:
    image_bytes = getattr(getattr(dataset, "prepare", None), "image_bytes", None)
    if image_bytes is None:
        return
    needed = batch_bytes(batch, image_bytes, workers=workers, prefetch=prefetch)
    rooms = [(most_bytes or memory_bytes(), "there are")]
    if workers and Path("/dev/shm").is_dir():  # where torch's workers on Linux put their batches
        rooms.append((shutil.disk_usage("/dev/shm").free + 2 * batch * image_bytes, "/dev/shm has room for"))
    for room, words in rooms:
        if needed > room:
            fits = batch * room // needed
            advice = f"Try batch={fits}" if fits else "Try smaller images"
            raise DataError(
                f"Batches of {batch:,} images need {format_bytes(needed)} at once ({workers} workers, each {prefetch} "
                f"batches ahead), and {words} {format_bytes(room)}. {advice}, or fewer workers."
            )


def _ended(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@contextlib.contextmanager
def _calm() -> Iterator[None]:
    """Without torch's handler for ended children, which would raise in whatever line runs at that moment.

    This module looks after its workers itself. Nor are its warnings wanted of more workers than cores, which are asked
    for on purpose, and Python's of forking beside threads.
    """
    swap = hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if swap else None
    try:
        if swap and callable(before):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with warnings.catch_warnings():
            for words in _QUIET:
                warnings.filterwarnings("ignore", words)
            yield
    finally:
        if swap:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None else before)
