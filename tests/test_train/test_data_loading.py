import contextlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from exercises.nb08.steady_rate import steady_batch_s
from labkit.core.errors import BadArgument, DataError, WorkerFailed
from labkit.train import data
from labkit.train.data import loading

pytestmark = pytest.mark.slow  # starts and kills worker processes


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


@pytest.fixture(autouse=True)
def no_process_left():
    yield
    assert multiprocessing.active_children() == []


@pytest.fixture
def shards():
    return data.jpeg_shards(size=64, images=20, per_shard=6)


class Faulty(Dataset):
    """Numbers; at number 5 a worker does what it is told to."""

    def __init__(self, fault, n=16):
        self.fault = fault
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i == 5:
            self.fault()
        return torch.tensor(i)


def exits():
    os._exit(3)


def exits_quietly():
    os._exit(0)


def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def hangs():
    time.sleep(60)


def raises():
    raise ZeroDivisionError("no such number")


def damages(shard, number):
    """Write zeros over most of a JPEG; its place."""
    found = list(data.read_encoded(shard))[number]
    content = bytearray(shard.read_bytes())
    content[found.offset + 100 : found.offset + len(found.jpeg)] = bytes(
        len(found.jpeg) - 100
    )
    shard.write_bytes(content)
    return found


def images_of(shards):
    return [
        (found.jpeg, found.label)
        for shard in shards
        for found in data.read_encoded(shard)
    ]


# ---- files and shards ----


# ---- from bytes to images ----


def test_the_stages_make_the_image_that_the_network_takes(shards):
    jpeg, _ = images_of(shards)[0]
    prepare = data.Prepare(32)
    image = prepare(jpeg)
    assert (image.shape, image.dtype, image.is_contiguous()) == (
        (3, 32, 32),
        torch.float32,
        True,
    )
    assert image.element_size() * image.nelement() == prepare.image_bytes
    expected = np.asarray(
        Image.open(io.BytesIO(jpeg)).resize((32, 32), Image.Resampling.BILINEAR)
    )
    np.testing.assert_array_equal(
        (image * 255).round().numpy(), expected.transpose(2, 0, 1)
    )
    whole = data.Prepare(64).decode(jpeg)
    assert (whole.shape, whole.dtype) == ((3, 64, 64), np.uint8)


@pytest.mark.parametrize("size", [1, 9])
def test_a_shift_moves_each_image_by_its_own_amount_with_zeros_behind_it(size):
    prepare = data.Prepare(size, shift=3)
    image = np.arange(1, 3 * size * size + 1).astype(np.uint8).reshape(3, size, size)
    padded = np.pad(image, ((0, 0), (3, 3), (3, 3)))
    allowed = {
        padded[:, y : y + size, x : x + size].tobytes(): (y, x)
        for y in range(7)
        for x in range(7)
    }
    seen = {prepare.augment(image).tobytes() for _ in range(1000)}
    assert seen == set(allowed)


def test_bytes_that_are_no_whole_jpeg_are_one_sentence(shards):
    jpeg, _ = images_of(shards)[0]
    with pytest.raises(DataError, match="got 4 bytes that are not one"):
        data.Prepare(8)(b"text")
    for kept in (2, 20, 300, 700):
        with pytest.raises(DataError, match="Expected a whole JPEG"):
            data.Prepare(32)(jpeg[:kept])


# ---- batches ----


@pytest.mark.parametrize(
    ("kind", "workers"), [("files", 0), ("files", 3), ("shards", 0), ("shards", 6)]
)
def test_every_image_comes_once_an_epoch(shards, kind, workers):
    prepare = data.Prepare(8)
    dataset = (
        data.JpegFiles(data.jpeg_files(shards), prepare)
        if kind == "files"
        else data.JpegShards(shards, prepare)
    )
    expected = sorted(
        (prepare(jpeg).sum().item(), label) for jpeg, label in images_of(shards)
    )
    with data.loader(
        dataset, 3, num_workers=workers, persistent_workers=True
    ) as batches:
        for _ in range(2):
            found = [
                (x.sum().item(), y.item())
                for images, labels in batches
                for x, y in zip(images, labels, strict=True)
            ]
            assert sorted(found) == expected


@pytest.mark.parametrize(("ranks", "workers"), [(5, 0), (2, 2)])
def test_over_ranks_and_workers_every_image_comes_once(shards, ranks, workers):
    prepare = data.Prepare(8)
    found = []
    batches = []
    for rank in range(ranks):
        part = list(
            data.loader(
                data.JpegShards(shards, prepare, rank=rank, ranks=ranks),
                3,
                num_workers=workers,
            )
        )
        found += [
            (x.sum().item(), y.item())
            for images, labels in part
            for x, y in zip(images, labels, strict=True)
        ]
        batches.append(len(part))
    assert sorted(found) == sorted(
        (prepare(jpeg).sum().item(), label) for jpeg, label in images_of(shards)
    )
    assert max(batches) - min(batches) <= 2  # a shard's images


def test_augmentation_is_fresh_in_every_epoch_and_worker(shards):
    same = [data.jpeg_files(shards)[3]] * 8
    torch.manual_seed(0)  # of 81 shifts, sixteen draws by chance may hold fewer than 13
    with data.loader(
        data.JpegFiles(same, data.Prepare(32, shift=4)),
        4,
        num_workers=2,
        persistent_workers=True,
    ) as batches:
        images = torch.cat([images for _ in range(2) for images, _ in batches])
    assert len({image.numpy().tobytes() for image in images}) > 12


def test_a_seed_repeats_order_and_augmentation(shards):
    dataset = data.JpegFiles(data.jpeg_files(shards), data.Prepare(8, shift=1))

    def epoch(seed):
        torch.manual_seed(seed)
        with data.loader(dataset, 4, num_workers=2, shuffle=True) as batches:
            return torch.cat([images for images, _ in batches])

    assert torch.equal(epoch(7), epoch(7))
    assert not torch.equal(epoch(7), epoch(8))


def test_the_steady_rate_leaves_out_the_beginning_and_the_end():
    # from taking each batch to taking the next
    seconds = [9, 5, 5, 1, 1, 2, 2, 3, 3, 0.1, 0.1]
    taken = [sum(seconds[:i]) for i in range(len(seconds) + 1)]
    times = [data.BatchTimes(0, 0.0, 0.0, 0.0, taken_s) for taken_s in taken]
    assert steady_batch_s(times, ahead=0, stretches=1) == (
        pytest.approx(sum(seconds) / len(seconds)),
    )
    # 1, 1, 2, 2, and a 3 that is over
    assert steady_batch_s(times, ahead=3, stretches=2) == (1, 2)
    assert steady_batch_s(times[:11], ahead=3, stretches=4) == (1, 1, 2, 2)
    with pytest.raises(BadArgument, match="at least 11 batches for 4 stretches"):
        steady_batch_s(times[:10], ahead=3, stretches=4)


def test_a_loop_that_is_left_leaves_no_worker_and_can_be_run_again(shards):
    batches = data.loader(data.JpegShards(shards, data.Prepare(8)), 2, num_workers=2)
    for _ in batches:
        break
    assert multiprocessing.active_children() == []
    assert sum(len(labels) for _, labels in batches) == 20


def test_persistent_workers_stay_until_closed(shards):
    batches = data.loader(
        data.JpegShards(shards, data.Prepare(8)),
        4,
        num_workers=2,
        persistent_workers=True,
    )
    list(batches)
    first = {child.pid for child in multiprocessing.active_children()}
    list(batches)
    assert {child.pid for child in multiprocessing.active_children()} == first
    assert len(first) == 2
    batches.close()
    assert multiprocessing.active_children() == []


# ---- what goes wrong ----


@pytest.fixture(autouse=True)
def no_handler_of_torchs():
    """torch's own loader leaves its SIGCHLD handler behind, whichever test used one
    before.
    """
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGCHLD, before)


@contextlib.contextmanager
def one_sentence(error, *words):
    with pytest.raises(error) as caught:
        yield
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            exits,
            (
                "A worker process exited with code 3 while it loaded a batch; all"
                " workers are ended"
            ),
        ),
        (exits_quietly, "A worker process exited with code 0"),
        (is_killed, "A worker process was killed by SIGKILL while"),
        (
            hangs,
            "No batch came within 1.00 s from 2 workers: one hangs, or needs longer",
        ),
        (
            raises,
            (
                "raised ZeroDivisionError: no such number; all workers are ended now."
                " Try num_workers=0"
            ),
        ),
    ],
)
def test_a_worker_that_fails_is_one_sentence_and_no_worker_is_left(fault, words):
    # only what hangs may be found by waiting
    timeout_s = 1.0 if fault is hangs else 300.0
    batches = data.loader(Faulty(fault), 2, num_workers=2, timeout_s=timeout_s)
    with one_sentence(WorkerFailed, words):
        list(batches)
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    # the next cell works
    assert len(list(data.loader(Faulty(list), 2, num_workers=2))) == 8


def test_without_workers_an_error_is_itself():
    with pytest.raises(ZeroDivisionError):
        list(data.loader(Faulty(raises), 2))


def test_a_damaged_jpeg_is_named_with_its_place(shards):
    bad = damages(shards[1], 2)
    dataset = data.JpegShards(shards, data.Prepare(32))
    words = (
        f"Damaged: image 000008.jpg at byte {bad.offset:,} of {shards[1]}: Expected a"
        " whole JPEG"
    )
    with one_sentence(DataError, words):
        list(data.loader(dataset, 4, num_workers=2))


def test_a_damaged_small_file_and_a_missing_one_are_named(shards):
    files = data.jpeg_files(shards)
    files[4].write_bytes(files[4].read_bytes()[:200])
    files[5].unlink()
    dataset = data.JpegFiles(files)
    with one_sentence(DataError, f"{files[4]} is damaged: Expected a whole JPEG"):
        dataset[4]
    with one_sentence(
        DataError,
        f"{files[5]} can't be read (No such file or directory). Call jpeg_files again.",
    ):
        dataset[5]


def test_batches_that_do_not_fit_are_refused_before_anything_is_loaded(
    shards, monkeypatch
):
    monkeypatch.setattr(loading, "memory_bytes", lambda: 2**30)
    # 12 MiB an image, and six batches at once
    dataset = data.JpegShards(shards, data.Prepare(1024))
    with one_sentence(
        DataError,
        "Batches of 64 images need 4.50 GiB",
        "there is room for 1.00 GiB. Try batch_size=14",
    ):
        data.loader(dataset, 64, num_workers=2)
    data.loader(dataset, 14)
    with one_sentence(DataError, "Try batch_size="):
        data.loader(dataset, 10**9)


# ---- the decoded cache ----


def test_the_decoded_cache_holds_what_decoding_gives(shards):
    images, labels = data.decoded_cache(shards, 32)
    assert isinstance(images, np.memmap)
    assert (images.shape, images.dtype, labels.dtype) == (
        (20, 3, 32, 32),
        np.uint8,
        np.int64,
    )
    prepare = data.Prepare(32)
    expected = [(prepare.decode(jpeg), label) for jpeg, label in images_of(shards)]
    np.testing.assert_array_equal(images, np.stack([image for image, _ in expected]))
    assert labels.tolist() == [label for _, label in expected]


def test_the_decoded_cache_is_written_once_and_what_a_reader_does_to_it_is_lost(shards):
    images, _ = data.decoded_cache(shards, 16)
    kept = images.copy()
    images[:] = 0
    torch.from_numpy(images[:4])  # and no warning of an array that can't be written
    again, _ = data.decoded_cache(shards, 16)
    np.testing.assert_array_equal(again, kept)


_WHAT_A_WORKER_IMPORTS = """
import sys
import torch
from labkit.train import data

class Imported(torch.utils.data.Dataset):
    before = set()
    def __len__(self):
        return 1
    def __getitem__(self, i):
        return " ".join(sys.modules.keys() - self.before)

imported = Imported()
batches = data.loader(imported, 1, num_workers=1)
imported.before = set(sys.modules)
print(*[name for names, in batches for name in names.split() if name.startswith("numpy")])
"""


@pytest.mark.skipif(
    multiprocessing.get_all_start_methods()[0] != "fork",
    reason="workers are forked on Linux and before Python 3.14 only",
)
def test_a_forked_worker_imports_no_part_of_numpy():
    """An import in a process that was forked may wait for ever for a lock that another
    thread held.
    """
    done = subprocess.run(
        [sys.executable, "-c", _WHAT_A_WORKER_IMPORTS],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""
