"""Wrong answers to 08.6b, the loop that copies batches ahead on a stream of its own."""

# mypy: ignore-errors
# as readers write them, without types

import torch


def without_wait(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        coming.record_stream(cuda.current_stream())
        if before is not None:
            yield before
        before = coming
    if before is not None:
        yield before


def waits_the_other_way(batches, cuda):
    copies = cuda.Stream()
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        copies.wait_stream(cuda.current_stream())
        coming.record_stream(cuda.current_stream())
        yield coming


def without_record_stream(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        if before is not None:
            yield before
        cuda.current_stream().wait_stream(copies)
        before = coming
    if before is not None:
        yield before


def records_its_own_stream(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        coming.record_stream(copies)
        if before is not None:
            yield before
        cuda.current_stream().wait_stream(copies)
        before = coming
    if before is not None:
        yield before


def memory_of_the_trainers_stream(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        coming = torch.empty_like(batch, device="cuda")
        with cuda.stream(copies):
            coming.copy_(batch.pin_memory(), non_blocking=True)
        coming.record_stream(copies)
        copied = copies.record_event()
        if before is not None:
            cuda.current_stream().wait_event(before[1])
            yield before[0]
        before = coming, copied
    if before is not None:
        cuda.current_stream().wait_event(before[1])
        yield before[0]


def one_pinned_buffer(batches, cuda):
    copies = cuda.Stream()
    pinned = None
    before = None
    for batch in batches:
        if pinned is None:
            pinned = torch.empty_like(batch, pin_memory=True)
        pinned.copy_(batch)
        with cuda.stream(copies):
            coming = pinned.to("cuda", non_blocking=True)
        if before is not None:
            yield before
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        before = coming
    if before is not None:
        yield before


def two_unguarded_buffers(batches, cuda):
    copies = cuda.Stream()
    buffers = []
    for i, batch in enumerate(batches):
        if i < 2:
            buffers.append(torch.empty_like(batch, device="cuda"))
        with cuda.stream(copies):
            buffers[i % 2].copy_(batch.pin_memory(), non_blocking=True)
        cuda.current_stream().wait_stream(copies)
        yield buffers[i % 2]


def on_the_trainers_stream(batches, cuda):
    before = None
    for batch in batches:
        coming = batch.pin_memory().to("cuda", non_blocking=True)
        if before is not None:
            yield before
        before = coming
    if before is not None:
        yield before


def behind_the_step(batches, cuda):
    copies = cuda.Stream()
    for batch in batches:
        copies.wait_stream(cuda.current_stream())
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        yield coming


def not_ahead(batches, cuda):
    copies = cuda.Stream()
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        yield coming


def waits_for_the_next_copy(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        if before is not None:
            yield before
        before = coming
    if before is not None:
        yield before


def host_waits(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        if before is not None:
            yield before
        copies.synchronize()
        coming.record_stream(cuda.current_stream())
        before = coming
    if before is not None:
        yield before


def all_wait(batches, cuda):
    copies = cuda.Stream()
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        cuda.synchronize()
        coming.record_stream(cuda.current_stream())
        yield coming


def asks_until_it_is_there(batches, cuda):
    copies = cuda.Stream()
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        while not copies.query():
            pass
        coming.record_stream(cuda.current_stream())
        yield coming


def from_ordinary_memory(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.to("cuda", non_blocking=True)
        if before is not None:
            yield before
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        before = coming
    if before is not None:
        yield before


def blocking(batches, cuda):
    copies = cuda.Stream()
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda")
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        yield coming


def all_at_first(batches, cuda):
    copies = cuda.Stream()
    with cuda.stream(copies):
        on_gpu = [batch.pin_memory().to("cuda", non_blocking=True) for batch in batches]
    cuda.current_stream().wait_stream(copies)
    yield from on_gpu


def open_while_it_yields(batches, cuda):
    with cuda.stream(cuda.Stream()):
        for batch in batches:
            yield batch.pin_memory().to("cuda", non_blocking=True)


def without_the_last(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        if before is not None:
            yield before
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        before = coming


def last_even_if_there_is_none(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        if before is not None:
            yield before
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        before = coming
    before.record_stream(copies)
    yield before


def never_copied(batches, cuda):
    yield from batches


def of_torch_itself(batches, cuda):
    copies = torch.cuda.Stream()
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        yield coming


WRONG_PREFETCHERS = [
    (without_wait, "used a batch whose copy ended", "streams-wait-by-themselves"),
    (waits_the_other_way, "used a batch whose copy ended", "streams-wait-by-themselves"),
    (without_record_stream, "record_stream tells it", "streams-wait-by-themselves"),
    (records_its_own_stream, "record_stream tells it", "streams-wait-by-themselves"),
    (memory_of_the_trainers_stream, "the other", "streams-wait-by-themselves"),
    (one_pinned_buffer, "was written into the pinned buffer", "scratch-shared"),
    (two_unguarded_buffers, "wait for an event behind that step", "scratch-shared"),
    (on_the_trainers_stream, "in a stream of their own", "works-in-turns"),
    (behind_the_step, "behind no event of that step", "works-in-turns"),
    (not_ahead, "before you yield batch", "works-in-turns"),
    (waits_for_the_next_copy, "which it doesn't need", "works-in-turns"),
    (host_waits, "(Stream.synchronize)", "reading-is-free"),
    (all_wait, "(synchronize)", "reading-is-free"),
    (asks_until_it_is_there, "(Stream.query)", "reading-is-free"),
    (from_ordinary_memory, "pin_memory() first", "works-in-turns"),
    (blocking, "pass non_blocking=True", "works-in-turns"),
    (all_at_first, "at most 2 ahead", "it-will-fit"),
    (open_while_it_yields, "still open at the yield", "streams-wait-by-themselves"),
    (without_the_last, "11 of 12 batches", "rest-left-out"),
    (last_even_if_there_is_none, "'NoneType' object has no", "zero-never-happens"),
    (never_copied, "still in main memory", "does-less-work"),
    (of_torch_itself, "Take Stream, Event and the rest", "result-of-another-kind"),
    (lambda batches, cuda: None, "'NoneType' object is not iterable", "other-formula"),
]
