"""08.6b: loops that copy ahead in other ways than the solution, and the simulated GPU
that judges them.
"""

import collections
import itertools

import pytest
import torch

from exercises.nb08 import wrong_prefetchers
from exercises.nb08.figures import two_streams
from exercises.nb08.prefetching import Training, ahead, one_after_the_other
from exercises.nb08.simulated_cuda import SimulatedCuda
from tests.helpers import check


def copied(batches, cuda, stream):
    """Each batch on the GPU with the event behind its copy."""
    for batch in batches:
        with cuda.stream(stream):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        yield coming, stream.record_event()
        del coming


def two_ahead_in_a_queue(batches, cuda):
    source = copied(batches, cuda, cuda.Stream())
    queue = collections.deque(itertools.islice(source, 2))
    while queue:
        ready, event = queue.popleft()
        queue.extend(itertools.islice(source, 1))
        event.wait()
        ready.record_stream(cuda.current_stream())
        yield ready


class Prefetcher:
    """As many projects have it: what is next is a member."""

    def __init__(self, batches, cuda):
        self.batches = iter(batches)
        self.cuda = cuda
        self.stream = cuda.Stream()
        self.preload()

    def preload(self):
        self.next = next(self.batches, None)
        if self.next is not None:
            with self.cuda.stream(self.stream):
                self.next = self.next.pin_memory().cuda(non_blocking=True)

    def __iter__(self):
        return self

    def __next__(self):
        self.cuda.current_stream().wait_stream(self.stream)
        ready = self.next
        if ready is None:
            raise StopIteration
        ready.record_stream(self.cuda.current_stream())
        self.preload()
        return ready


class Slot:
    """A buffer on each side, and the events behind the copy and the step."""

    def __init__(self, like, cuda):
        self.pinned = torch.empty_like(like, pin_memory=True)
        self.on_gpu = torch.empty(like.shape, dtype=like.dtype, device="cuda")
        self.copied = cuda.Event()
        self.trained = cuda.Event()


def three_slots(batches, cuda):
    """All memory is got once; events say when it may be written again."""
    stream = cuda.Stream()
    slots = []
    before = None
    for i, batch in enumerate(batches):
        if i < 3:
            slots.append(Slot(batch, cuda))
        slot = slots[i % 3]
        slot.copied.synchronize()  # that of three batches ago
        slot.pinned.copy_(batch)
        stream.wait_event(slot.trained)
        with cuda.stream(stream):
            slot.on_gpu.copy_(slot.pinned, non_blocking=True)
        slot.copied.record(stream)
        if before is not None:
            cuda.current_stream().wait_event(before.copied)
            yield before.on_gpu
            before.trained.record()
        before = slot
    if before is not None:
        cuda.current_stream().wait_event(before.copied)
        yield before.on_gpu


def kept_until_it_is_trained_on(batches, cuda):
    """Keeps each batch until the event behind its step, in place of record_stream."""
    kept = collections.deque()
    before = None
    for pair in itertools.chain(copied(batches, cuda, cuda.Stream()), [None]):
        if before is not None:
            cuda.current_stream().wait_event(before[1])
            yield before[0]
            kept.append((before[0], cuda.current_stream().record_event()))
        if len(kept) > 2:
            kept[0][1].synchronize()
            kept.popleft()
        before = pair


def copies_behind_the_step_before(batches, cuda):
    """Copies wait for the steps that are queued, so memory comes back in time."""
    stream = cuda.Stream()
    before = None
    for batch in batches:
        stream.wait_stream(cuda.current_stream())
        with stream:
            coming = batch.pin_memory().to(device="cuda", non_blocking=True)
        copied_by = stream.record_event()
        if before is not None:
            cuda.current_stream().wait_event(before[1])
            yield before[0]
        before = coming, copied_by
    if before is not None:
        cuda.current_stream().wait_event(before[1])
        yield before[0]


RIGHT = [
    two_ahead_in_a_queue,
    Prefetcher,
    three_slots,
    kept_until_it_is_trained_on,
    copies_behind_the_step_before,
]


@pytest.mark.parametrize("loop", RIGHT, ids=lambda loop: loop.__name__)
def test_another_right_loop_passes(loop):
    outcome = check("08.6b", loop)
    assert outcome.state == "passed", outcome


@pytest.mark.parametrize(("copy_ms", "step_ms"), [(3, 5), (5, 3), (4, 4)])
def test_a_batch_takes_the_sum_of_copy_and_step_or_the_longer_of_the_two(
    copy_ms, step_ms
):
    job = Training.alike(copy_ms / 1e3, step_ms / 1e3, 100)
    in_turn_ms = 1e3 * job.run(one_after_the_other).seconds
    assert in_turn_ms == pytest.approx(100 * (copy_ms + step_ms), rel=0.001)
    fill_ms = min(copy_ms, step_ms)
    longer_ms = 100 * max(copy_ms, step_ms) + fill_ms
    assert 1e3 * job.run(ahead).seconds == pytest.approx(longer_ms, rel=0.001)


def test_events_time_what_lies_between_them_and_refuse_what_torch_refuses():
    cuda = SimulatedCuda([3e-3], [5e-3])
    first = cuda.Event(enable_timing=True)
    last = cuda.Event(enable_timing=True)
    with cuda.running():
        pinned = cuda.on_host(torch.arange(6), 0).pin_memory()
        first.record()
        on_gpu = pinned.to("cuda", non_blocking=True)
        last.record()
        assert not last.query()
        with pytest.raises(RuntimeError, match="synchronize first"):
            first.elapsed_time(last)
        last.synchronize()
        assert last.query()
        assert first.elapsed_time(last) == pytest.approx(3.0)
        with pytest.raises(ValueError, match="enable_timing=True"):
            first.elapsed_time(cuda.Event())
        assert on_gpu.device == torch.device("cuda", 0)
        assert not on_gpu.is_pinned()
        assert pinned.is_pinned()
        assert on_gpu.sum().item() == 15


def test_what_a_wrong_loop_did_is_drawn():
    outcome = check("08.6b", wrong_prefetchers.without_record_stream)
    picture = two_streams(outcome.details["run"])
    assert "a copy and a step ran at the same time" in str(picture)
    outcome = check("08.6b", wrong_prefetchers.host_waits)
    assert str(two_streams(outcome.details["run"], batches=3)).startswith("Simulated:")
