import io
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labkit.core.errors import DataError
from labkit.train import data

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.slow  # reads and writes images


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_DATA", raising=False)


# ---- digits ----


@pytest.mark.parametrize(
    ("split", "n"), [("train", 1437), ("test", 360), ("all", 1797)]
)
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


@pytest.mark.complete
def test_the_script_writes_the_same_bytes_again():
    pytest.importorskip("sklearn")
    code = "import sys; from data.make import digits; sys.stdout.buffer.write(digits.build())"
    again = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    assert again == (ROOT / "data" / "digits.npz").read_bytes()


def test_larger_digits_are_interpolated_and_channels_are_copies():
    small, _ = data.digits(split="test")
    large, _ = data.digits(size=32, channels=3, split="test")
    assert large.shape == (360, 3, 32, 32)
    assert torch.equal(large[:, 0], large[:, 2])
    # each 4 x 4 block averages to its pixel and the neighbors' share: the mean of an
    # image stays, but for its border
    torch.testing.assert_close(
        large.mean(dim=(1, 2, 3)), small.mean(dim=(1, 2, 3)), atol=0.02, rtol=0
    )


def test_a_damaged_file_is_one_sentence_and_what_to_do(tmp_path, monkeypatch):
    content = bytearray((ROOT / "data" / "digits.npz").read_bytes())
    content[60_000] ^= 1
    (tmp_path / "digits.npz").write_bytes(content)
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    with pytest.raises(
        DataError,
        match=(
            r"digits\.npz is damaged: expected sha256 .*, got .*\. Restore it with `git"
        ),
    ):
        data.digits()


def test_a_missing_folder_and_a_missing_file_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "none"))
    with pytest.raises(
        DataError,
        match=r"found none\. Work in a clone of the repository, or set LABKIT_DATA",
    ):
        data.digits()
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    with pytest.raises(
        DataError,
        match=r"Can't read .*digits\.npz \(No such file or directory\)\. Restore it",
    ):
        data.digits()


# ---- shards ----


def contents(shards):
    return [
        (found.jpeg, found.label)
        for shard in shards
        for found in data.read_encoded(shard)
    ]


def test_shards_hold_every_image_as_webdataset_names_it(tmp_path):
    shards = data.jpeg_shards(size=16, images=10, per_shard=4, folder=tmp_path)
    assert [s.name for s in shards] == [
        "digits-000000.tar",
        "digits-000001.tar",
        "digits-000002.tar",
    ]
    with tarfile.open(shards[2]) as shard:
        assert shard.getnames() == [
            "000008.jpg",
            "000008.cls",
            "000009.jpg",
            "000009.cls",
        ]
    images, labels = data.digits(size=16, split="all")
    for (jpeg, label), image, expected in zip(
        contents(shards), images[:10], labels[:10], strict=True
    ):
        picture = Image.open(io.BytesIO(jpeg))
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (16, 16))
        assert label == expected
        assert (
            np.abs(np.asarray(picture)[..., 0] / 255 - image[0].numpy()).mean() < 0.02
        )


def test_shards_are_built_once_and_equal_arguments_give_equal_bytes(tmp_path):
    first = data.jpeg_shards(size=8, images=5, folder=tmp_path / "a")
    stamp = first[0].stat().st_mtime_ns
    assert data.jpeg_shards(size=8, images=5, folder=tmp_path / "a") == first
    assert first[0].stat().st_mtime_ns == stamp
    assert (
        data.jpeg_shards(size=8, images=5, folder=tmp_path / "b")[0].read_bytes()
        == first[0].read_bytes()
    )


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


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        DataError, match=r"can't be written to .*Pass folder= or set LABKIT_HOME"
    ):
        data.jpeg_shards(size=8, images=1, folder=tmp_path / "file")


def test_a_shard_cut_short_says_what_to_do(tmp_path):
    (shard,) = data.jpeg_shards(size=8, images=5, folder=tmp_path)
    shard.write_bytes(shard.read_bytes()[:700])
    with pytest.raises(
        DataError, match=r"Delete its folder and call jpeg_shards again\."
    ):
        contents([shard])


def test_the_text_is_whole_and_its_numbers_give_the_characters_back():
    text, held_out, characters = data.shakespeare(held_out=0.25)
    assert len(text) + len(held_out) == 1_115_394
    assert len(held_out) == round(0.25 * 1_115_394)
    assert len(characters) == 65 == int(text.max()) + 1
    assert (
        "".join(characters[number] for number in text[:14].tolist()) == "First Citizen:"
    )
    text.zero_()  # a reader's copy
    assert data.shakespeare(held_out=0.25)[0].any()
