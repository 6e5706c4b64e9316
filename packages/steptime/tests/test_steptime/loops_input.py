"""Loops that wait for their batches."""

import re
import threading

import torch
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset, IterableDataset

from test_steptime.loop_parts import labels, small_batch, small_step
from test_steptime.virtual_time import WORK_S, RealTime


def slow_source(time):
    batch = small_batch()

    def fetch():
        time.wait(0.05)
        return batch

    return small_step(), fetch


def source_in_memory(time):
    """`slow_source`, mended."""
    return small_step(), small_batch()


class Decoded(Dataset):
    """Images that take a moment each."""

    def __init__(self, time, each_s=2e-3):
        self.time = time
        self.each_s = each_s

    def __getitem__(self, i):
        self.time.wait(self.each_s)
        return torch.full((64,), 0.1 * i), i % 10

    def __len__(self):
        return 64


def slow_decoding(time):
    return small_step(), DataLoader(Decoded(time), batch_size=16)


def slow_collate(time):
    def collate(rows):
        time.wait(0.03)
        return torch.utils.data.default_collate(rows)

    return small_step(), DataLoader(
        Decoded(time, 0.0), batch_size=16, collate_fn=collate
    )


def decoded_before(time):
    """`slow_decoding` and `slow_collate`, mended."""
    return small_step(), DataLoader(Decoded(time, 0.0), batch_size=16)


class Waited(DataLoader):
    """A loader that takes 80 ms for a batch; its worker has a clock of its own."""

    time = RealTime()

    def __iter__(self):
        for batch in super().__iter__():
            self.time.work(0.08)
            yield batch


def slow_workers(time):
    loader = Waited(Decoded(RealTime(), 5e-3), batch_size=16, num_workers=1)
    loader.time = time
    return small_step(), loader


class Buffered(IterableDataset):
    """A stream with a buffer for shuffling, which is filled after each 12 batches."""

    def __init__(self, time):
        self.time = time

    def fill_buffer(self):
        self.time.wait(0.7)
        return [*range(12 * 16)]

    def __iter__(self):
        while True:
            for i in self.fill_buffer():
                yield torch.full((64,), 1.0 * i), i % 10


def shuffle_buffer(time):
    return small_step(), DataLoader(Buffered(time), batch_size=16)


def loaded_by_a_thread(time):
    """A thread prepares the next batch only once it is asked for."""

    def prepare(batches):
        time.work(0.03)
        batches.append(small_batch())

    def next_batch():
        batches = []
        thread = threading.Thread(target=prepare, args=[batches])
        thread.start()
        thread.join()
        return batches[0]

    return small_step(), next_batch


def heatmaps_by_joint(time, joint_s=4e-4):
    """Targets of a pose estimator, joint by joint."""

    def draw_joints(i):
        target = torch.zeros(17, 64)
        for joint in range(17):
            time.work(joint_s)
            target[joint, i % 64] = 1.0
        return target.sum(0)

    return small_step(), DataLoader(
        [*range(2_000)],
        batch_size=8,
        collate_fn=(
            lambda rows: (torch.stack([*map(draw_joints, rows)]), labels(len(rows)))
        ),
    )


def heatmaps_drawn_faster(time):
    """`heatmaps_by_joint`, mended, as far as that goes: input is still most of it."""
    return heatmaps_by_joint(time, joint_s=2e-5)


class Resized(Dataset):
    """Images that torch's operators make smaller."""

    def __init__(self, resize):
        self.resize = resize

    def __getitem__(self, i):
        return self.resize(i), i % 10

    def __len__(self):
        return 1_000


def resized_by_torch(time):
    image = torch.randn(1, 3, 128, 128)

    def resize(i):
        return interpolate(image * (1 + i % 2), (8, 8)).flatten()[:64]

    return small_step(), DataLoader(Resized(resize), batch_size=8)


def resized_before(time):
    """`resized_by_torch`, mended."""
    return small_step(), DataLoader(Resized(lambda i: torch.ones(64)), batch_size=8)


# Python that lets no other thread run for some milliseconds


def cleaned_by_expressions(time):
    page = "<p class=x>some   text &amp; more</p>\n" * 2_400
    tag = re.compile(r"<[^>]*>")
    spaces = re.compile(r"\s+")

    def clean_page():
        time.work(WORK_S)
        return len(spaces.sub(" ", tag.sub("", page)).replace("&amp;", "&"))

    def next_batch():
        clean_page()
        return small_batch()

    return small_step(), next_batch


def grouped_by_length(time):
    lengths = [(i * 7919) % 511 for i in range(6_000)]

    class ByLength:
        def group(self):
            time.work(WORK_S)
            return sorted(range(len(lengths)), key=lambda i: (lengths[i] // 16, -i))

        def __iter__(self):
            for first in range(200):
                yield self.group()[first : first + 16]

        def __len__(self):
            return 200

    rows = [(torch.ones(64), i % 10) for i in range(6_000)]
    return small_step(), DataLoader(rows, batch_sampler=ByLength())


# a whole training, and scripts that call watch


def loader_made_anew(time):
    """Each epoch makes its DataLoader, which reads an index first."""

    class Files(IterableDataset):
        def read_index(self):
            time.wait(0.5)

        def __iter__(self):
            self.read_index()
            yield from ((torch.ones(64), i % 10) for i in range(80))

    train = small_step()
    for _epoch in range(60):
        for x, y in DataLoader(Files(), batch_size=16):
            train((x, y))


def memory_mapped(time, watch):
    """A function for a batch, from a memory map, which the system reads
    page by page.
    """
    train = small_step()

    def get_batch():
        rows = []
        for i in torch.randint(10**6, (16,)).tolist():
            time.wait(2e-3)
            rows.append(torch.full((64,), 1e-6 * i))
        return torch.stack(rows), labels(16)

    get_batch = watch(get_batch)
    for _ in range(300):
        train(get_batch())
