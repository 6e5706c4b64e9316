import contextlib
import gzip
import hashlib
import http.server
import io
import pickle
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from labkit.core.errors import DataError
from labkit.train import data
from labkit.train.data import downloads

ROOT = Path(__file__).parents[2]
FASHION = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
CIFAR = "cifar-10-python.tar.gz"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_DATA", raising=False)


# ---- digits ----


@pytest.mark.parametrize(("split", "n"), [("train", 1437), ("test", 360), ("all", 1797)])
def test_digits_have_the_documented_shape_type_and_range(split, n):
    images, labels = data.digits(split=split)
    assert (images.shape, images.dtype) == ((n, 1, 8, 8), torch.float32)
    assert (labels.shape, labels.dtype) == ((n,), torch.int64)
    assert (images.min().item(), images.max().item()) == (0.0, 1.0)
    assert labels.unique().tolist() == list(range(10))


def test_digits_are_scikit_learns():
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    pixels, labels = load_digits(return_X_y=True)
    images, ours = data.digits(split="all")
    np.testing.assert_array_equal(images[:, 0].numpy() * 16, pixels.reshape(-1, 8, 8))
    np.testing.assert_array_equal(ours.numpy(), labels)


def test_the_script_writes_the_same_bytes_again():
    pytest.importorskip("sklearn")
    code = "import sys, make_digits; sys.stdout.buffer.write(make_digits.build())"
    again = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "scripts", check=True, capture_output=True).stdout
    assert again == (ROOT / "data" / "digits.npz").read_bytes()


def test_the_file_carries_its_source_and_licence():
    with np.load(ROOT / "data" / "digits.npz") as file:
        assert "Alpaydin" in str(file["source"])
        assert str(file["licence"]).startswith("CC BY 4.0")


def test_train_and_test_are_disjoint_and_in_proportion():
    with np.load(ROOT / "data" / "digits.npz") as file:
        counts = np.bincount(file["labels"][file["in_test"]])
        expected = np.bincount(file["labels"]) * 360 / 1797
    assert (np.abs(counts - expected) < 1).all()
    both = torch.cat([data.digits(split=s)[1] for s in ("train", "test")])
    assert torch.equal(both.bincount(), data.digits(split="all")[1].bincount())


def test_larger_digits_are_interpolated_and_channels_are_copies():
    small, _ = data.digits(split="test")
    large, _ = data.digits(size=32, channels=3, split="test")
    assert large.shape == (360, 3, 32, 32)
    assert torch.equal(large[:, 0], large[:, 2])
    # each 4 x 4 block averages to its pixel and the neighbours' share: the mean of an image stays, but for its border
    torch.testing.assert_close(large.mean(dim=(1, 2, 3)), small.mean(dim=(1, 2, 3)), atol=0.02, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "split must be one of train, test, all, got 'tset'; did you mean 'test'?"),
        ({"size": 0}, "size must be at least 1, got 0."),
        ({"split": "val"}, "got 'val'; did you mean 'test'?"),
        ({"split": None}, "split must be one of train, test, all, got None"),
        ({"size": "32"}, "size must be a whole number, got '32'."),
        ({"size": 32.5}, "size must be a whole number, got 32.5."),
        ({"channels": True}, "channels must be a whole number, got True."),
        ({"channels": -1}, "channels must be at least 1, got -1."),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(DataError, match=re.escape(message)):
        data.digits(**arguments)


def test_a_damaged_file_is_one_sentence_and_what_to_do(tmp_path, monkeypatch):
    content = bytearray((ROOT / "data" / "digits.npz").read_bytes())
    content[60_000] ^= 1
    (tmp_path / "digits.npz").write_bytes(content)
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"digits\.npz is damaged: expected sha256 .*, got .*\. Restore it with `git"):
        data.digits()


def test_a_missing_folder_and_a_missing_file_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"found none\. Work in a clone of the repository, or set LABKIT_DATA"):
        data.digits()
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"Can't read .*digits\.npz \(No such file or directory\)\. Restore it"):
        data.digits()


def test_the_data_folder_may_be_elsewhere(tmp_path, monkeypatch):
    shutil.copy(ROOT / "data" / "digits.npz", tmp_path)
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    assert data.data_folder() == tmp_path
    assert len(data.digits()[1]) == 1437


def test_the_cache_folder_follows_labkit_home(tmp_path, monkeypatch):
    assert data.cache_folder() == tmp_path / "home" / "cache"
    monkeypatch.delenv("LABKIT_HOME")
    assert data.cache_folder().name == "labkit"


# ---- shards ----


def contents(shards):
    return [image for shard in shards for image in data.read_shard(shard)]


def test_shards_hold_every_image_as_webdataset_names_it(tmp_path):
    shards = data.jpeg_shards(size=16, images=10, per_shard=4, folder=tmp_path)
    assert [s.name for s in shards] == ["digits-000000.tar", "digits-000001.tar", "digits-000002.tar"]
    with tarfile.open(shards[2]) as shard:
        assert shard.getnames() == ["000008.jpg", "000008.cls", "000009.jpg", "000009.cls"]
    images, labels = data.digits(size=16, split="all")
    for (jpeg, label), image, expected in zip(contents(shards), images[:10], labels[:10], strict=True):
        picture = Image.open(io.BytesIO(jpeg))
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (16, 16))
        assert label == expected
        assert np.abs(np.asarray(picture)[..., 0] / 255 - image[0].numpy()).mean() < 0.02


def test_more_images_than_there_are_come_again_moved(tmp_path):
    last, again = contents(data.jpeg_shards(size=16, images=1799, per_shard=1797, folder=tmp_path))[-2:]
    first, second = contents(data.jpeg_shards(size=16, images=2, folder=tmp_path))
    assert (last[1], again[1]) == (first[1], second[1])
    assert (last[0], again[0]) != (first[0], second[0])


def test_shards_are_built_once_and_equal_arguments_give_equal_bytes(tmp_path):
    first = data.jpeg_shards(size=8, images=5, folder=tmp_path / "a")
    stamp = first[0].stat().st_mtime_ns
    assert data.jpeg_shards(size=8, images=5, folder=tmp_path / "a") == first
    assert first[0].stat().st_mtime_ns == stamp
    assert data.jpeg_shards(size=8, images=5, folder=tmp_path / "b")[0].read_bytes() == first[0].read_bytes()


def test_shards_go_into_the_cache_folder_unless_told(tmp_path):
    assert (tmp_path / "home" / "cache") in data.jpeg_shards(size=8, images=1)[0].parents


def test_an_interrupted_build_leaves_nothing_and_is_done_again(tmp_path, monkeypatch):
    calls = iter(range(5))

    def interrupted(*_, **__):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return b"jpeg"

    with monkeypatch.context() as patch:
        patch.setattr("labkit.train.data.shards._jpeg", interrupted)
        with pytest.raises(KeyboardInterrupt):
            data.jpeg_shards(size=8, images=5, folder=tmp_path)
    assert list(tmp_path.glob("digits-8px-5-by-256")) == []
    assert len(contents(data.jpeg_shards(size=8, images=5, folder=tmp_path))) == 5
    assert list(tmp_path.glob("*.building")) == []


def test_a_shard_that_lost_bytes_is_built_again(tmp_path):
    (shard,) = data.jpeg_shards(size=8, images=5, folder=tmp_path)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:1000])
    assert data.jpeg_shards(size=8, images=5, folder=tmp_path)[0].read_bytes() == whole


def test_of_two_kernels_that_ask_at_once_one_builds_and_one_waits(tmp_path, monkeypatch):
    built = []

    def slow_jpeg(*_, **__):
        time.sleep(5e-3)
        built.append(threading.get_ident())
        return b"jpeg"

    monkeypatch.setattr("labkit.train.data.shards._jpeg", slow_jpeg)
    with ThreadPoolExecutor(2) as pool:  # a lock on a file holds between threads as between processes
        ask = [pool.submit(data.jpeg_shards, size=8, images=20, folder=tmp_path) for _ in range(2)]
        first, second = (asked.result() for asked in ask)
    assert first == second
    assert (len(built), len(set(built)), len(contents(first))) == (20, 1, 20)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"can't be written to .*Pass folder= or set LABKIT_HOME"):
        data.jpeg_shards(size=8, images=1, folder=tmp_path / "file")


def test_impossible_shards_are_refused(tmp_path):
    with pytest.raises(DataError, match="per_shard must be at least 1, got 0"):
        data.jpeg_shards(per_shard=0, folder=tmp_path)


@pytest.mark.parametrize("keep", [100, 700, 1300])
def test_a_shard_cut_short_says_what_to_do(tmp_path, keep):
    (shard,) = data.jpeg_shards(size=8, images=5, folder=tmp_path)
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"Delete its folder and call jpeg_shards again\."):
        contents([shard])


# ---- downloads ----


@contextlib.contextmanager
def served(files, promised=0):
    """A web server on this machine with the files {name: bytes}; it promises `promised` bytes more than it sends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = files.get(self.path[1:])
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"") + promised))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def md5(content):
    return hashlib.md5(content).hexdigest()


def tar_gz(files):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def as_python_2_wrote_it(batch):
    """Protocol 2, NumPy's old module name, and 0 and 1 where Python 3 writes False and True."""
    content = pickle.dumps(batch, protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    old, n = re.subn(rb"X\x02\0\0\0u1(q.)\x89\x88", lambda m: b"U\x02u1" + m[1] + b"K\0K\1", content)
    assert n == 1
    return old


def cifar_archive(per_batch=2):
    pixels = np.random.default_rng(0).integers(0, 256, (6 * per_batch, 3072), dtype=np.uint8)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    rows = np.split(pixels, 6)
    batches = {n: {b"data": r, b"labels": [i] * per_batch} for i, (n, r) in enumerate(zip(names, rows, strict=True))}
    return tar_gz({name: as_python_2_wrote_it(batch) for name, batch in batches.items()}), pixels


def fashion_files(n=3):
    pixels = np.random.default_rng(1).integers(0, 256, (n, 28, 28), dtype=np.uint8)
    images = bytes([0, 0, 8, 3]) + np.array(pixels.shape, dtype=">i4").tobytes() + pixels.tobytes()
    labels = bytes([0, 0, 8, 1]) + np.array([n], dtype=">i4").tobytes() + bytes(range(n))
    return dict(zip(FASHION, (gzip.compress(images), gzip.compress(labels)), strict=True)), pixels


def test_cifar10_is_fetched_once_and_read_in_order():
    archive, pixels = cifar_archive()
    with served({CIFAR: archive}) as url:
        images, labels = data.cifar10(base_url=url, md5=md5(archive))
    # the server is gone: what was fetched is kept
    test_images, test_labels = data.cifar10("test", base_url=url, md5=md5(archive))
    assert (images.shape, images.dtype, labels.dtype) == ((10, 3, 32, 32), torch.float32, torch.int64)
    np.testing.assert_array_equal((images * 255).round().numpy().reshape(10, -1), pixels[:10])
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert (test_images.shape, test_labels.tolist()) == ((2, 3, 32, 32), [5, 5])


def test_the_flags_of_a_python_2_dtype_arrive_as_bools(monkeypatch):
    # only NumPy 2.4.0 to 2.4.4 warn of 0 and 1, so the archive above shows it there alone
    monkeypatch.setattr(downloads, "np", SimpleNamespace(dtype=lambda *arguments: arguments))
    dtype = downloads._Py2Arrays(io.BytesIO()).find_class("numpy", "dtype")
    kind, align, copy = dtype("u1", 0, 1)
    assert (kind, align is False, copy is True) == ("u1", True, True)


def test_fashion_mnist_is_fetched_and_read():
    files, pixels = fashion_files()
    with served(files) as url:
        images, labels = data.fashion_mnist(base_url=url, md5={name: md5(c) for name, c in files.items()})
    assert (images.shape, images.dtype, labels.dtype) == ((3, 1, 28, 28), torch.float32, torch.int64)
    np.testing.assert_array_equal((images[:, 0] * 255).round().numpy(), pixels)
    assert labels.tolist() == [0, 1, 2]


def test_a_file_in_the_data_folder_needs_no_network(tmp_path, monkeypatch):
    archive, _ = cifar_archive()
    (tmp_path / CIFAR).write_bytes(archive)
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    assert len(data.cifar10(base_url="http://127.0.0.1:9", md5=md5(archive))[1]) == 10


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def one_sentence_and_the_digits_work(error, *words):
    text = str(error.value)
    assert all(word in text for word in words), text
    assert text.endswith("lab.data.digits() needs no network.")
    assert "\n" not in text
    assert len(data.digits()[1]) == 1437


def test_a_wrong_checksum_shows_both_and_leaves_nothing_behind(tmp_path):
    archive, _ = cifar_archive()
    with served({CIFAR: archive}) as url, pytest.raises(DataError) as error:
        data.cifar10(base_url=url, folder=tmp_path)
    one_sentence_and_the_digits_work(error, "expected md5 c58f30108f718f92721af3b95e74349a", f"got {md5(archive)}")
    assert list(tmp_path.iterdir()) == []


def test_half_a_download_says_so(tmp_path):
    archive, _ = cifar_archive()
    with served({CIFAR: archive}, promised=1000) as url, pytest.raises(DataError) as error:
        data.cifar10(base_url=url, md5=md5(archive), folder=tmp_path)
    one_sentence_and_the_digits_work(error, "broke off half-way", "Try again", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_half_a_file_on_the_server_is_a_wrong_checksum():
    archive, _ = cifar_archive()
    with served({CIFAR: archive[:500]}) as url, pytest.raises(DataError) as error:
        data.cifar10(base_url=url, md5=md5(archive))
    one_sentence_and_the_digits_work(error, "was cut short or changed")


def test_no_network_says_so():
    with pytest.raises(DataError) as error:
        data.fashion_mnist(base_url=closed_port())
    one_sentence_and_the_digits_work(error, "Can't fetch train-images", "(ConnectionError)", "Connect to a network")


def test_a_missing_page_gives_its_status():
    with served({}) as url, pytest.raises(DataError) as error:
        data.cifar10(base_url=url)
    one_sentence_and_the_digits_work(error, "(HTTP 404)")


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    archive, _ = cifar_archive()
    with served({CIFAR: archive}) as url, pytest.raises(DataError, match=r"can't be written to .*Pass folder="):
        data.cifar10(base_url=url, md5=md5(archive), folder=tmp_path / "file")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no archive", "ReadError"),
        (tar_gz({}), "KeyError"),
        (tar_gz({"test_batch": pickle.dumps({b"labels": []})}), "KeyError"),
        (tar_gz({"test_batch": pickle.dumps(shutil.rmtree)}), "it holds shutil.rmtree, which no image set needs"),
    ],
    ids=["no archive", "no batch", "no pixels", "a function"],
)
def test_another_format_is_named_and_no_foreign_name_is_looked_up(content, reason):
    with served({CIFAR: content}) as url, pytest.raises(DataError, match="is not the CIFAR-10 archive") as error:
        data.cifar10("test", base_url=url, md5=md5(content))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"no IDX"), gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9]))],
    ids=["no gzip", "no IDX", "cut short"],
)
def test_another_format_than_idx_is_named(content):
    files = dict.fromkeys(FASHION, content)
    with served(files) as url, pytest.raises(DataError, match="is not a gzipped IDX file"):
        data.fashion_mnist(base_url=url, md5=dict.fromkeys(FASHION, md5(content)))


def test_images_without_labels_are_refused():
    files, _ = fashion_files(n=3)
    files[FASHION[1]] = fashion_files(n=2)[0][FASHION[1]]
    with served(files) as url, pytest.raises(DataError, match="got 3 images and 2 labels"):
        data.fashion_mnist(base_url=url, md5={name: md5(c) for name, c in files.items()})


def test_downloads_have_no_split_all():
    with pytest.raises(DataError, match="split must be one of train, test, got 'all'"):
        data.cifar10("all")


def test_the_cache_folder_knows_the_home_sign(monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", "~/x")
    assert data.cache_folder() == Path.home() / "x" / "cache"
