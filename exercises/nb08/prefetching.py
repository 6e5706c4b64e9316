"""A training whose batches are copied to a simulated GPU, and the check of the loop
that copies them ahead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from exercises.nb08.simulated_cuda import (
    LAUNCH_S,
    Conflict,
    SimulatedCuda,
    SimulatedTensor,
    Work,
    plain,
)
from labkit.core.display import brief_repr
from labkit.core.units import format_seconds
from labkit.lesson.checks import NotYet, call, function

Loop = Callable[[Iterable[Tensor], Any], Iterable[Tensor]]

MOST_AHEAD = 2  # batches that are fetched before the trainer has asked for them
_LOADING_S = 100e-6  # the host's time for a batch
# of the time that copies ahead need
_SLACK = 1.05
# a wait now and then, as at the end, does no harm
_MANY_WAITS = 0.25  # of the steps
_AT_ONCE_S = 1e-9


@dataclass(frozen=True)
class Training:
    """A step of so many seconds for each batch, whose copy takes `copy_s`.

    With `reads_loss` the trainer waits for each step's loss. The host is at most
    `steps_ahead` steps ahead of the GPU. `timed` says that copies which overlap steps
    take a time that hardly depends on how much memory they are given.
    """

    copy_s: Sequence[float]
    step_s: Sequence[float]
    reads_loss: bool = False
    steps_ahead: int = 2
    timed: bool = True

    @classmethod
    def alike(
        cls, copy_s: float, step_s: float, batches: int, reads_loss: bool = False
    ) -> Training:
        """All batches alike."""
        return cls([copy_s] * batches, [step_s] * batches, reads_loss)

    def run(self, loop: Loop) -> Run:
        """Train on what the loop yields, and note what happened when."""
        gpu = SimulatedCuda(self.copy_s, self.step_s, self.steps_ahead)
        numbers = [torch.randint(0, 256, (4, 3)).byte() for _ in self.copy_s]
        run = Run(gpu, numbers)
        with gpu.running():
            batches = iter(loop(run.loader(), gpu))
            # no loop variable: the trainer gives a batch up as it asks for the next
            while run.trains_on(next(batches, None), self.reads_loss):
                pass
        return run


class Run:
    """What a training on the simulated GPU did."""

    def __init__(self, gpu: SimulatedCuda, numbers: Sequence[Tensor]) -> None:
        self.gpu = gpu
        self.numbers = numbers
        self.trained: list[object] = []  # the numbers of each step
        self.strange: object = None  # what was yielded and is no batch on the GPU
        self.most_ahead = 0  # fetched before the trainer had asked for them
        self.off_stream: int | None = None  # the first step on another stream
        self._batch: object = None

    @property
    def seconds(self) -> float:
        """Until the last step is done."""
        return max((step.end_s for step in self.gpu.steps), default=0.0)

    @property
    def copies(self) -> list[Work]:
        """The copies to the GPU."""
        return [work for work in self.gpu.work if work.engine == "copy"]

    def loader(self) -> Iterator[Tensor]:
        """The batches, in ordinary memory."""
        for number, numbers in enumerate(self.numbers):
            self.gpu.now_s += _LOADING_S
            yield self.gpu.on_host(numbers, number)

    def trains_on(self, batch: object, reads_loss: bool) -> bool:
        """Train on a batch; False once there is none, or it can't be trained on."""
        if batch is None:
            return False
        self._batch = batch
        on_gpu = isinstance(batch, SimulatedTensor) and batch.is_cuda
        if not on_gpu or len(self.trained) == len(self.numbers):
            self.strange = batch
            return False
        assert isinstance(batch, SimulatedTensor)
        number = len(self.trained)
        self.most_ahead = max(self.most_ahead, self.gpu.fetched - number - 1)
        if self.off_stream is None and self.gpu.current is not self.gpu.default:
            self.off_stream = number
        self.gpu.step(batch, reads_loss)
        self.trained.append(plain(batch).clone())
        return True


def ahead(batches: Iterable[Tensor], cuda: Any) -> Iterator[Tensor]:
    """What others are held against: one batch ahead, on a stream of its own."""
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            pinned: Any = batch.pin_memory()
            coming = pinned.to("cuda", non_blocking=True)
        copied = copies.record_event()
        if before is not None:
            yield _after(*before, cuda)
        before = coming, copied
    if before is not None:
        yield _after(*before, cuda)


def _after(batch: Any, copied: Any, cuda: Any) -> Any:
    """The batch, for the current stream, which waits for its copy."""
    cuda.current_stream().wait_event(copied)
    batch.record_stream(cuda.current_stream())
    return batch


def one_after_the_other(batches: Iterable[Tensor], cuda: Any) -> Iterator[Tensor]:
    """Each batch copied on the trainer's own stream."""
    for batch in batches:
        pinned: Any = batch.pin_memory()
        yield pinned.to("cuda", non_blocking=True)


def cases() -> dict[str, Training]:
    """What is special about a training -> the training."""
    draw = random.Random(2806)
    uneven_copies_s = [1e-3 * draw.choice([1, 2, 6, 9]) for _ in range(24)]
    uneven_steps_s = [1e-3 * draw.choice([1, 2, 6, 9]) for _ in range(24)]
    return {
        "copies of 3 ms, steps of 5 ms": Training.alike(3e-3, 5e-3, 12),
        "copies of 5 ms, steps of 3 ms": Training.alike(5e-3, 3e-3, 12),
        "copies of 3 ms, steps of 5 ms whose losses are read": Training.alike(
            3e-3, 5e-3, 12, reads_loss=True
        ),
        "copies and steps of 1 to 9 ms": Training(
            uneven_copies_s, uneven_steps_s, steps_ahead=6, timed=False
        ),
        "copies of 0.05 ms, steps of 5 ms": Training(
            [5e-5] * 12, [5e-3] * 12, steps_ahead=6
        ),
        "two batches": Training.alike(3e-3, 5e-3, 2),
        "one batch": Training.alike(3e-3, 5e-3, 1),
        "no batch": Training.alike(3e-3, 5e-3, 0),
    }


def prefetched(answer: object) -> str:
    """The loop that copies ahead, judged by what the simulated GPU did when."""
    fn = function(answer)
    runs: dict[str, Run] = {}
    for name, training in cases().items():
        run = runs[name] = _run(fn, training, name)
        try:
            _judge(run, training, f"With {name}: ")
        except NotYet as wrong:
            raise NotYet(str(wrong), run=run) from None
    run = next(iter(runs.values()))
    in_turn_s = Training.alike(3e-3, 5e-3, 12).run(one_after_the_other).seconds
    return (
        "Each batch was copied before its step began, and no memory was written while"
        f" it was read. Twelve batches took {format_seconds(run.seconds)}, and"
        f" {format_seconds(in_turn_s)} one after the other; the GPU's memory held"
        f" {len(run.gpu.device_memories)} of them at most."
    )


def _run(fn: Callable[..., Any], training: Training, name: str) -> Run:
    def training_on(_: str) -> Run:
        return training.run(fn)

    training_on.__name__ = getattr(fn, "__name__", "prefetched")
    try:
        return cast("Run", call(training_on, name))
    except NotYet as error:
        if "CUDA" in str(error):
            words = str(error).rstrip(".")
            raise NotYet(
                f"{words}. Take Stream, Event and the rest from the `cuda` that is"
                " passed: here it is simulated, on a GPU it is torch.cuda."
            ) from error
        raise


def _judge(run: Run, training: Training, where: str) -> None:
    """NotYet where the training was wrong, or slower than it need be."""
    _judge_batches(run, where)
    _judge_memory(run, where)
    _judge_ahead(run, where)
    _judge_waits(run, where)
    if training.timed:
        _judge_seconds(run, training, where)


def _judge_batches(run: Run, where: str) -> None:
    """NotYet unless the trainer got each batch once, in order, on its own stream."""
    number = len(run.trained)
    if isinstance(run.strange, SimulatedTensor) and not run.strange.is_cuda:
        raise NotYet(
            f"{where}batch {number} is still in main memory as its step begins. Yield"
            ' the copy that .to("cuda", non_blocking=True) gives.'
        )
    if run.strange is not None and number == len(run.numbers):
        raise NotYet(f"{where}a batch too many was yielded.")
    if run.strange is not None:
        raise NotYet(
            f"{where}expected batch {number} as a tensor on the GPU, got"
            f" {brief_repr(run.strange)}."
        )
    if number < len(run.numbers):
        raise NotYet(
            f"{where}{number} of {len(run.numbers)} batches were yielded. Is the last"
            " one still waiting when the loader has no more?"
        )
    for i, (got, right) in enumerate(zip(run.trained, run.numbers, strict=True)):
        if not (isinstance(got, Tensor) and got.dtype == right.dtype):
            raise NotYet(f"{where}batch {i} came in another number format.")
        if not torch.equal(got, right):
            raise NotYet(f"{where}step {i} got other numbers than batch {i} has.")
    if run.off_stream is not None:
        raise NotYet(
            f"{where}step {run.off_stream} ran on the stream of the copies. The `with`"
            " block was still open at the yield: close it before."
        )


def _judge_memory(run: Run, where: str) -> None:
    """NotYet where memory was used too early, or written while it was still used."""
    if run.gpu.conflicts:
        conflict = run.gpu.conflicts[0]
        raise NotYet(f"{where}{_in_words(conflict)}")


def _in_words(conflict: Conflict) -> str:
    earlier = conflict.earlier
    later = conflict.later
    late = format_seconds(earlier.end_s - later.start_s)
    if conflict.wrote_first and later.name.startswith("step"):
        return (
            f"{later.name} used a batch whose copy ended {late} later. Let the"
            " trainer's stream wait for the copy: wait_event, or wait_stream."
        )
    if conflict.memory == "pinned":
        return (
            f"batch {later.batch} was written into the pinned buffer {late} before the"
            f" copy of batch {earlier.batch} out of it ended. Before you fill a buffer"
            " again, wait for the event behind its copy; or take new pinned memory."
        )
    if conflict.anew:
        return (
            f"{later.name} wrote into the memory of batch {earlier.batch}, {late}"
            f" before {earlier.name} ended. The tensor was given up, and the allocator"
            " knows only the stream that it was made on: record_stream tells it of the"
            " other."
        )
    if conflict.wrote_first:
        return f"{later.name} used memory {late} before {earlier.name} ended."
    return (
        f"{later.name} wrote into the memory of batch {earlier.batch}, {late} before"
        f" {earlier.name} ended. Let the copies wait for an event behind that step."
    )


def _judge_ahead(run: Run, where: str) -> None:
    if run.most_ahead > MOST_AHEAD:
        raise NotYet(
            f"{where}{run.most_ahead} batches were fetched before the trainer asked"
            f" for them. Each takes memory: at most {MOST_AHEAD} ahead."
        )


def _judge_waits(run: Run, where: str) -> None:
    """NotYet where the host waits in many steps for a copy or step of the newest
    batches, instead of a stream.
    """
    waits = [wait for wait in run.gpu.waits if wait.batch >= wait.newest - 1]
    if len(waits) <= max(_MANY_WAITS * len(run.numbers), 1):
        return
    calls = [wait.call for wait in waits]
    often = max(set(calls), key=calls.count)
    times = calls.count(often)
    if often == "copy from pageable memory":
        reason = (
            "the GPU can't fetch from ordinary memory by itself, so each copy keeps the"
            " host: pin_memory() first"
        )
    elif often == "copy without non_blocking":
        reason = "each copy keeps the host: pass non_blocking=True"
    else:
        reason = (
            "it could queue the next work meanwhile: let a stream wait instead, by"
            " wait_event or wait_stream"
        )
    raise NotYet(f"{where}the host waited {times} times ({often}); {reason}.")


def _judge_seconds(run: Run, training: Training, where: str) -> None:
    enough_s = training.run(ahead).seconds + 2 * LAUNCH_S * len(run.numbers)
    if run.seconds <= _SLACK * enough_s:
        return
    took = (
        f"{where}it took {format_seconds(run.seconds)}, and"
        f" {format_seconds(enough_s)} are enough."
    )
    raise NotYet(f"{took} {_what_waits(run)}")


def _what_waits(run: Run) -> str:
    """Why copies and steps didn't overlap."""
    steps = run.gpu.steps
    copies = {copy.batch: copy for copy in run.copies}
    if any(copy.by_default for copy in run.copies):
        return (
            "Copies are in the trainer's stream, where each waits for the step before"
            " it: queue them in a stream of their own."
        )
    for step in steps[1:]:
        following = copies.get(step.batch + 1)
        if following and abs(step.start_s - following.end_s) < _AT_ONCE_S:
            return (
                f"{step.name} waits for the copy of batch {following.batch}, which it"
                " doesn't need: put the wait, or the event, in front of that copy."
            )
    for copy in run.copies:
        for step in steps:
            if step.end_s <= copy.start_s < step.end_s + 2 * _LOADING_S:
                return (
                    f"The copy of batch {copy.batch} waits for {step.name}: queue it"
                    f" before you yield batch {step.batch}, and behind no event of that"
                    " step."
                )
    return "Copies and steps should overlap: which of them waits, and for what?"
