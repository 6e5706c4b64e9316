import concurrent.futures
import os

import pytest
import torch

import labkit as lab
from exercises.nb15 import rank_script
from labkit.core import results
from labkit.core.errors import DataError
from labkit.core.own_folder import make_private, of_this_user, open_own
from labkit.core.temp_folder import plain_temp_folder

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="owners and permissions of POSIX"
)
needs_root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root may give files away"
)


def test_what_is_made_is_private(tmp_path):
    make_private(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert of_this_user(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert of_this_user(tmp_path / "none") == tmp_path / "none"


@needs_root
def test_another_users_folder_is_not_used(tmp_path):
    os.chown(tmp_path, 12345, 12345)
    assert of_this_user(tmp_path) == tmp_path / "user-0"
    with pytest.raises(PermissionError, match="another user owns it"):
        make_private(tmp_path)
    make_private(tmp_path / "user-0")


@pytest.mark.parametrize("name", ["a b", "x" * 60])
def test_a_folder_for_temporary_files_with_a_long_path_or_a_space_is_not_used(
    tmp_path, monkeypatch, name
):
    monkeypatch.setattr("tempfile.tempdir", "/var/tmp")
    assert plain_temp_folder() == "/var/tmp"
    monkeypatch.setattr("tempfile.tempdir", f"/var/tmp/{name}")
    assert plain_temp_folder() == "/tmp"


def nothing():
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "write",
    [
        lambda folder: rank_script.as_script(nothing, folder, nproc=1),
        lambda folder: lab.profiling.profile_step(
            lambda: torch.ones(2) + 1, path=folder / "a.json"
        ),
        lambda folder: lab.data.jpeg_shards(size=8, images=2, folder=folder),
    ],
)
def test_what_labkit_writes_where_it_cannot_be_written_is_one_sentence(tmp_path, write):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        (DataError, OSError),
        match=r"can't be written .*(Not a directory|File exists)",
    ):
        write(tmp_path / "file" / "folder")


def opens(path):
    """Whether a file is opened for reading, and for appending."""
    found = []
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_APPEND | os.O_CREAT):
        try:
            os.close(open_own(path, flags))
            found.append(True)
        except OSError:
            found.append(False)
    return found


def test_only_a_file_of_ones_own_in_a_folder_of_ones_own_is_opened(tmp_path):
    path = tmp_path / "mine" / "results.jsonl"
    make_private(path.parent)
    assert opens(path) == [False, True], "made when it is written"
    assert path.stat().st_mode & 0o777 == 0o600
    assert opens(path) == [True, True]
    for mode in (0o620, 0o602):
        path.chmod(mode)
        assert opens(path) == [False, False]
    path.chmod(0o644)
    assert opens(path) == [True, True]
    for mode in (0o770, 0o707, 0o1777):
        path.parent.chmod(mode)
        assert opens(path) == [False, False]
        assert of_this_user(path.parent) == path.parent / f"user-{os.geteuid()}"


def pipe(path):
    os.mkfifo(path)


def link(path):
    path.with_name("victim").write_text("export A=1\n")
    path.symlink_to("victim")


def loop(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    "plant", [pipe, link, loop, os.mkdir], ids=lambda plant: plant.__name__
)
def test_what_is_planted_in_place_of_the_results_is_refused_at_once(home, plant):
    path = results.results().path
    plant(path)
    log = results.Results(path)
    assert log.entries() == []
    log.append(results.Prediction("00.3", "all threads", 2.0, "s", results.now()))
    assert f"Results can't be written to {path}" in log.note
    assert [entry.value for entry in log.entries()] == [2.0]
    assert plant is not link or path.with_name("victim").read_text() == "export A=1\n"


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("planted", ["folder", "link"])
def test_a_folder_that_another_user_made_first_is_not_opened(
    tmp_path, monkeypatch, planted
):
    """In a shared LABKIT_HOME anyone may make `user-0`, with a pipe in place of the
    results.
    """
    home = tmp_path / "class"
    theirs = tmp_path / "theirs"
    home.mkdir()
    home.chmod(0o1777)
    monkeypatch.setenv("LABKIT_HOME", str(home))
    place = home / "user-0" if planted == "folder" else theirs
    place.mkdir()
    os.mkfifo(place / "results.jsonl")
    os.mkfifo(place / "results.jsonl.lock")
    if planted == "link":
        (home / "user-0").symlink_to(theirs)
        os.chown(home / "user-0", 12345, 12345, follow_symlinks=False)
    else:
        os.chown(place, 12345, 12345)
    log = results.Results(results.state_folder() / "results.jsonl")
    assert log.entries() == []
    log.append(results.Prediction("00.3", "all threads", 2.0, "s", results.now()))
    assert "can't be written" in log.note
    with pytest.raises(DataError, match="can't be written"):
        lab.profiling.profile_step(lambda: torch.ones(2) + 1)
    with pytest.raises(DataError, match="can't be written"):
        lab.data.jpeg_shards(size=8, images=2)
    assert sorted(path.name for path in place.iterdir()) == [
        "results.jsonl",
        "results.jsonl.lock",
    ]


def test_ones_own_link_to_a_folder_is_followed(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "link"))
    results.results().append(
        results.Prediction("00.3", "all threads", 2.0, "s", results.now())
    )
    assert results.results().note == ""
    assert (tmp_path / "disk" / "results.jsonl").exists()


@pytest.mark.slow
def test_threads_append_each_line_once(home):
    log = results.Results(results.state_folder() / "results.jsonl")

    def append(n):
        log.append(
            results.Prediction("00.3", "all threads", 1.0 + n, f"s{n}", results.now())
        )

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(200)))
    assert len(log.path.read_text().splitlines()) == len(log.entries()) == 200
    assert log.note == ""
