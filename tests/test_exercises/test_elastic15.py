"""A training under torchrun whose ranks die: it goes on from its last save, and nothing
stays behind.
"""

import importlib
import os
import signal
import subprocess

import pytest

from exercises.nb15 import diloco, elastic
from exercises.nb15.rank_script import as_script
from ranks.errors import RankFailed
from tests.helpers import code_cells, notebook_paths

(NOTEBOOK,) = [path for path in notebook_paths() if path.name.startswith("15")]
(TRAIN,) = [
    source for source in code_cells(NOTEBOOK) if source.startswith("def train(")
]


@pytest.fixture
def train(tmp_path, monkeypatch):
    """The notebook's function, from a file, so that its source is known."""
    imports = (
        "import os\nimport signal\nimport time\nimport torch\nimport torch.distributed"
        " as dist\n"
    )
    imports += "from torch import nn\n"
    imports += "from torch.nn.functional import cross_entropy\n"
    imports += "from torch.nn.parallel import DistributedDataParallel as DDP\n\n\n"
    (tmp_path / "of_the_notebook15.py").write_text(imports + TRAIN)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("of_the_notebook15").train


@pytest.mark.complete
def test_after_each_death_the_training_goes_on_from_its_last_save_with_the_same_losses(
    train, tmp_path
):
    folder = tmp_path / "job"
    scripts = as_script(
        train, folder, str(folder), 30, 10, [14, 23], nproc=2, restarts=2, gpus=False
    )
    log, took_s = elastic.run(scripts)
    assert [(one.restart, one.step) for one in log] == [
        *((0, step) for step in range(14)),
        *((1, step) for step in range(10, 23)),
        *((2, step) for step in range(20, 30)),
    ]
    losses = {}
    for one in log:
        losses.setdefault(one.step, set()).add(one.loss)
    assert {step: len(found) for step, found in losses.items()} == dict.fromkeys(
        range(30), 1
    )
    assert 0 < log[0].at_s < log[-1].at_s < took_s


@pytest.mark.complete
def test_a_rank_that_dies_too_often_is_told_and_nothing_stays(train, tmp_path):
    folder = tmp_path / "job"
    scripts = as_script(train, folder, str(folder), 30, 10, [2], nproc=2, gpus=False)
    with pytest.raises(RankFailed, match="torchrun failed with exit status 1: "):
        elastic.run(scripts)
    listed = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    assert "of_the_notebook15" not in listed
    assert str(folder) not in listed


def test_a_training_that_hangs_is_ended(tmp_path):
    def waits():
        import time

        time.sleep(600)

    scripts = as_script(waits, tmp_path, nproc=1, gpus=False)
    scripts.torchrun.write_text(f"echo $$ >{tmp_path}/pid\nexec sleep 600\n")
    with pytest.raises(RankFailed, match="did not end within 3 s and was stopped"):
        elastic.run(scripts, timeout_s=3)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIG_DFL)


def test_without_bash_a_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(elastic.shutil, "which", lambda name: None)
    with pytest.raises(RankFailed, match="needs bash, which isn't here"):
        elastic.run(
            as_script(
                test_without_bash_a_sentence_says_so, tmp_path, None, None, nproc=1
            )
        )


def test_what_a_process_writes_is_counted_by_linux_and_nowhere_else(
    tmp_path, monkeypatch
):
    counts = tmp_path / "io"
    counts.write_text("rchar: 7\nwchar: 4096\nsyscr: 1\n")
    monkeypatch.setattr(diloco, "_IO", counts)
    assert diloco.written_bytes() == 4096
    monkeypatch.setattr(diloco, "_IO", tmp_path / "absent")
    assert diloco.written_bytes() is None
