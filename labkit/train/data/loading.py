"""torch's DataLoader with timestamps, whose failures are one sentence each and leave no
process behind.
"""

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
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import numpy.random  # noqa: F401 - torch's workers seed it, and to import it only in a forked one may hang it
from torch.utils.data import DataLoader, Dataset, IterableDataset

from labkit.core.display import signal_name
from labkit.core.errors import DataError, LabError, WorkerFailed
from labkit.core.parameters import Count, Positive, Size, checked
from labkit.core.temp_folder import use_short_socket_paths
from labkit.core.units import format_bytes, format_seconds
from labkit.measure.host import memory_bytes
from labkit.train.data.timestamps import (
    BatchTimes,
    Stamped,
    StampedBatch,
    StampedStream,
    now_s,
    stamped_batch,
)

# torch looks for dead workers only when a wait for a batch ends, so waits are short
_POLL_S = 0.5
_REPORT_S = 2.0
_TIMED_OUT = "DataLoader timed out"
_IN_WORKER = re.compile(r"^Caught \w+ in DataLoader worker process (\d+)")
_EXPECTED_WARNINGS = (
    # more workers than cores: notebook 08 asks for them to see what happens
    "This DataLoader will create",
    # safe here: a forked worker uses one thread and no device
    "This process .*is multi-threaded",
)


class Loader(contextlib.AbstractContextManager["Loader"]):
    """Batches of a dataset, epoch after epoch: `for images, labels in loader`. Made by
    `loader`.

    `times` holds the BatchTimes of the last epoch. `close`, or the end of a with block,
    ends all workers; the next epoch starts new ones.
    """

    def __init__(
        self,
        make: Callable[[], DataLoader[Any]],
        workers: int,
        timeout_s: float,
        persistent: bool,
    ) -> None:
        self._make = make
        self.workers = workers
        self._timeout_s = timeout_s
        self._persistent = persistent
        self._loader: DataLoader[Any] | None = None
        self._processes: list[BaseProcess] = []
        self.times: list[BatchTimes] = []

    def __iter__(self) -> Iterator[Any]:
        batches = self._begin()
        self.times = []
        complete = False
        try:
            while True:
                asked_s = now_s()
                batch = self._next(batches)
                if batch is None:
                    break
                taken_s = now_s()
                self.times.append(
                    BatchTimes(
                        batch.worker, batch.begun_s, batch.ready_s, asked_s, taken_s
                    )
                )
                yield batch.content
            complete = True
        finally:
            # torch ends non-persistent workers when the last reference to the iterator
            # goes
            del batches
            if not (complete and self._persistent):
                self.close()

    def close(self) -> None:
        """End the workers, if there are any."""
        with _workers_of_our_own():
            # the last reference: torch asks its workers to end, and waits
            self._loader = None
            self._kill()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _begin(self) -> Iterator[StampedBatch]:
        """Start the workers, or the next epoch of persistent ones."""
        before = set(multiprocessing.active_children())
        with _workers_of_our_own():
            if self._loader is None:
                self._loader = self._make()
            batches = cast("Iterator[StampedBatch]", iter(self._loader))
        started = [
            child for child in multiprocessing.active_children() if child not in before
        ]
        self._processes = started or self._processes
        return batches

    def _next(self, batches: Iterator[StampedBatch]) -> StampedBatch | None:
        """Return the next batch, None at the end; any failure of a worker is raised as
        one sentence.
        """
        until_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return next(batches, None)
            except Exception as error:
                if self.workers == 0:
                    raise
                # torch found every worker alive, so go on waiting
                if str(error).startswith(_TIMED_OUT) and time.monotonic() < until_s:
                    continue
                failed = self._explained(error)
                self._kill()
                raise failed from error

    def _explained(self, error: Exception) -> LabError:
        if str(error).startswith(_TIMED_OUT):
            workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
            return WorkerFailed(
                f"No batch came within {format_seconds(self._timeout_s)} from"
                f" {workers}: one hangs, or needs longer; all are ended now. Try"
                " num_workers=0 to see where, or a larger timeout_s."
            )
        if raised := _IN_WORKER.match(str(error)):
            # the last line of the worker's traceback
            reason = str(error).strip().splitlines()[-1]
            if isinstance(error, LabError):
                return type(error)(reason.partition(": ")[2])
            return WorkerFailed(
                f"Worker {raised[1]} raised {reason}; all workers are ended now. "
                "Try num_workers=0 for the whole traceback."
            )
        # A connection may break before the system reports the end of the worker that
        # broke it, and a sentinel, which is a pipe that the worker held, may be ready
        # before its exit code is.
        ended = connection.wait(
            [process.sentinel for process in self._processes], timeout=_REPORT_S
        )
        for process in self._processes:
            process.join(_REPORT_S if process.sentinel in ended else 0)
        codes = [process.exitcode for process in self._processes]
        codes = [code for code in codes if code is not None]
        if not codes:
            return WorkerFailed(
                f"No worker can be reached any more ({type(error).__name__}: {error});"
                " all are ended."
            )
        # a worker that had no more shards left with code 0
        code = next((code for code in codes if code), 0)
        if code >= 0:
            end = f"exited with code {code}"
        else:
            end = f"was killed by {signal_name(-code)}"
        return WorkerFailed(
            f"A worker process {end} while it loaded a batch; all workers are ended"
            " now. Was there enough memory for all? Try fewer workers, a smaller"
            " batch, or num_workers=0 to see more."
        )

    def _kill(self) -> None:
        # SIGKILL, as a worker that hangs in C code doesn't answer to anything else
        with _workers_of_our_own():
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.join()
        self._processes = []


@checked
def loader(
    dataset: Dataset[Any],
    batch_size: Count,
    *,
    num_workers: Size = 0,
    shuffle: bool = False,
    prefetch_factor: Count = 2,
    persistent_workers: bool = False,
    timeout_s: Positive = 60.0,
) -> Loader:
    """Load batches with torch's DataLoader, whose arguments these are, note their times
    and explain its failures.

    Each of `num_workers` processes loads `prefetch_factor` batches in advance (0: the
    trainer loads for itself); `persistent_workers` keeps them from one epoch to the
    next. An IterableDataset ignores `shuffle`. torch.manual_seed makes order and
    augmentation repeatable. A worker that dies, raises, or sends nothing for
    `timeout_s` seconds raises WorkerFailed in the trainer, a damaged image DataError;
    by then all workers are gone. Raises DataError beforehand when the batches would not
    fit into this machine's memory, if the dataset's `prepare` has `image_bytes`.
    """
    _check_fits(dataset, batch_size, num_workers, prefetch_factor)
    streams = isinstance(dataset, IterableDataset)
    if num_workers:  # they send tensors through sockets
        use_short_socket_paths()

    def make() -> DataLoader[Any]:
        return DataLoader(
            StampedStream(dataset) if streams else Stamped(dataset),
            batch_size,
            shuffle=None if streams else shuffle,
            num_workers=num_workers,
            collate_fn=stamped_batch,
            timeout=min(_POLL_S, timeout_s) if num_workers else 0,
            prefetch_factor=prefetch_factor if num_workers else None,
            persistent_workers=persistent_workers and num_workers > 0,
        )

    return Loader(make, num_workers, timeout_s, persistent_workers)


def _check_fits(dataset: Dataset[Any], batch: int, workers: int, prefetch: int) -> None:
    image_bytes = getattr(getattr(dataset, "prepare", None), "image_bytes", None)
    if image_bytes is None:
        return
    # The batch in use, those in the workers' queues, and once more the images while a
    # batch is collated from them.
    needed = batch * image_bytes * (2 + workers * prefetch)
    room = memory_bytes()
    # where torch's workers on Linux put their batches; small in containers
    if workers and Path("/dev/shm").is_dir():
        room = min(room, shutil.disk_usage("/dev/shm").free + 2 * batch * image_bytes)
    if needed > room:
        fits = batch * room // needed
        advice = f"Try batch_size={fits}" if fits else "Try smaller images"
        raise DataError(
            f"Batches of {batch:,} images need {format_bytes(needed)} at once"
            f" ({workers} workers, each {prefetch} batches ahead), and there is room"
            f" for {format_bytes(room)}. {advice}, or fewer workers."
        )


@contextlib.contextmanager
def _workers_of_our_own() -> Iterator[None]:
    """Look after workers without torch's SIGCHLD handler and without warnings about
    what is done here on purpose.

    torch's handler raises when a worker ends, in whatever line of the trainer runs at
    that moment.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    with contextlib.ExitStack() as undo, warnings.catch_warnings():
        if in_main_thread and hasattr(signal, "SIGCHLD"):
            handler = signal.getsignal(signal.SIGCHLD)
            former = signal.SIG_DFL if handler is None else handler
            undo.callback(signal.signal, signal.SIGCHLD, former)
            if callable(handler):
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for words in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", words)
        yield
