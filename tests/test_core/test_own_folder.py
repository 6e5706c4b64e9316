import concurrent.futures
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import labkit as lab
from exercises.nb07 import nsight
from exercises.nb15 import rank_script
from labkit.core import results
from labkit.core.errors import DataError, StepTimeError
from labkit.core.own_folder import make_private, of_this_user, open_own, writing
from labkit.core.paths import ROOT
from ranks.system import plain_temp_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and permissions of POSIX")
needs_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may give files away")


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


def test_a_folder_in_which_others_may_put_files_is_not_used(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="may write to it"):
        make_private(tmp_path)


@pytest.mark.parametrize("name", ["a b", "a\tb", "x" * 60])
def test_a_folder_for_temporary_files_with_a_long_path_or_a_space_is_not_used(tmp_path, monkeypatch, name):
    monkeypatch.setattr("tempfile.tempdir", "/var/tmp")
    assert plain_temp_folder() == "/var/tmp"
    monkeypatch.setattr("tempfile.tempdir", f"/var/tmp/{name}")
    assert plain_temp_folder() == "/tmp"


@pytest.mark.complete
@pytest.mark.slow
def test_a_long_path_for_temporary_files_launches_ranks_and_workers(tmp_path):
    longest = tmp_path / ("x" * 120)
    longest.mkdir()
    code = (
        "import labkit as lab, torch, os\n"
        "if __name__ == '__main__':\n"
        "    assert list(lab.launch(os.getpid, 1))\n"
        "    data = torch.utils.data.TensorDataset(torch.ones(4, 2))\n"
        "    assert len(list(lab.data.loader(data, 2, num_workers=1))) == 2\n"
    )
    environment = os.environ | {"TMPDIR": str(longest), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "script.py"
    with pytest.raises(DataError) as caught, writing(target):
        target.parent.mkdir(parents=True)
    assert str(caught.value) == f"{target} can't be written (File exists). Choose a folder that you can write to."


def nothing():
    pass


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: nsight.as_script(nothing, folder / "script.py"),
        lambda folder: rank_script.as_script(nothing, folder, nproc=1),
        lambda folder: lab.profiling.profile_step(lambda: torch.ones(2) + 1, path=folder / "a.json"),
        lambda folder: lab.data.jpeg_shards(size=8, images=2, folder=folder),
    ],
)
def test_what_labkit_writes_where_it_cannot_be_written_is_one_sentence(tmp_path, write):
    (tmp_path / "file").write_text("")
    with pytest.raises((DataError, StepTimeError), match=r"can't be written .*(Not a directory|File exists)"):
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


@pytest.mark.parametrize("plant", [pipe, link, loop, os.mkdir], ids=lambda plant: plant.__name__)
def test_what_is_planted_in_place_of_the_results_is_refused_at_once(home, plant):
    path = results.results().path
    plant(path)
    log = results.Results(path)
    assert log.entries() == []
    log.append(results.Prediction("00.3", "all threads", 2.0, "s", results.now()))
    assert f"Results can't be written to {path}" in log.note
    assert [entry.value for entry in log.entries()] == [2.0]
    assert plant is not link or path.with_name("victim").read_text() == "export A=1\n"


@needs_root
@pytest.mark.parametrize("planted", ["folder", "link"])
def test_a_folder_that_another_user_made_first_is_not_opened(tmp_path, monkeypatch, planted):
    """In a shared LABKIT_HOME anyone may make `user-0`, with a pipe in place of the results."""
    home, theirs = tmp_path / "class", tmp_path / "theirs"
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
    assert sorted(path.name for path in place.iterdir()) == ["results.jsonl", "results.jsonl.lock"]


def test_ones_own_link_to_a_folder_is_followed(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "link"))
    results.results().append(results.Prediction("00.3", "all threads", 2.0, "s", results.now()))
    assert results.results().note == ""
    assert (tmp_path / "disk" / "results.jsonl").exists()


SECOND = """
import os, sys
from labkit.core import results
guess = results.Prediction("00.3", "all threads", 2.0, "s", results.now())
results.results().append(guess)  # whatever is imported late is imported now
os.setgid(12346), os.setuid(12346)
os.environ["LABKIT_HOME"] = sys.argv[1]
results.results().append(guess)
print(results.results().note or "written")
"""


@needs_root
def test_a_home_that_the_first_user_made_is_explained_to_the_second():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o1777)
        home = Path(folder, "class")
        home.mkdir(mode=0o700)
        os.chown(home, 12345, 12345)
        command = [sys.executable, "-c", SECOND, str(home)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert f"a folder for several users is made with chmod 1777 {home}" in said
        home.chmod(0o1777)
        assert (
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "written\n"
        )


def test_threads_append_each_line_once(home):
    log = results.Results(results.state_folder() / "results.jsonl")

    def append(n):
        log.append(results.Prediction("00.3", "all threads", 1.0 + n, f"s{n}", results.now()))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(200)))
    assert len(log.path.read_text().splitlines()) == len(log.entries()) == 200
    assert log.note == ""
