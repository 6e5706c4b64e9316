import os
import subprocess
import sys

import pytest
import torch

import labkit as lab
from exercises.nb07 import nsight
from exercises.nb15 import rank_script
from labkit.core.errors import DataError, StepTimeError
from labkit.core.own_folder import make_private, of_this_user, plain_temp_folder, writing
from labkit.core.paths import ROOT

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
