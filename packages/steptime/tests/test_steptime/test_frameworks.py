"""Trainings whose loop a framework has, watched by its own callback; `make frameworks`
installs all of them.
"""

import contextlib
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import optimizer
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import steptime
from steptime.errors import TooLittleSeen

STEPS = 40
BATCH = 8
WHY = "make frameworks installs it"


class Rows(Dataset):
    """Pieces of a text."""

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        tokens = torch.arange(i, i + 9) % 100
        return {"input_ids": tokens[:-1], "labels": tokens[1:]}


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.head = nn.Linear(16, 100)

    def forward(self, input_ids, labels):
        scores = self.head(self.embedding(input_ids)).flatten(0, 1)
        return {"loss": cross_entropy(scores, labels.flatten())}


def plain_loop(say, _):
    model = Tokens()
    adam = torch.optim.Adam(model.parameters())
    with steptime.watching(say=say):
        for batch in DataLoader(Rows(), batch_size=BATCH):
            adam.zero_grad()
            model(**batch)["loss"].backward()
            adam.step()


def loader_alone(say, _):
    with steptime.watching(say=say):
        for _batch in DataLoader(Rows(), batch_size=BATCH):
            pass


def hugging_face(say, folder):
    transformers = pytest.importorskip("transformers", reason=WHY)
    settings = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        Tokens(),
        settings,
        train_dataset=Rows(),
        callbacks=[steptime.hf.Diagnose(say=say)],
    )
    trainer.train()
    assert trainer.state.global_step == STEPS


def accelerated(say, _):
    accelerate = pytest.importorskip("accelerate", reason=WHY)
    accelerator = accelerate.Accelerator(cpu=True)
    model = Tokens()
    adam = torch.optim.Adam(model.parameters())
    loader = DataLoader(Rows(), batch_size=BATCH)
    model, adam, loader = accelerator.prepare(model, adam, loader)
    with steptime.watching(say=say):
        for batch in loader:
            adam.zero_grad()
            accelerator.backward(model(**batch)["loss"])
            adam.step()


def lightning(say, _):
    lightning = pytest.importorskip("lightning", reason=WHY)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Tokens()

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[steptime.lightning.Diagnose(say=say)],
    )
    trainer.fit(Module(), DataLoader(Rows(), batch_size=BATCH))
    assert trainer.global_step == STEPS


TRAININGS = (plain_loop, loader_alone, hugging_face, accelerated, lightning)


@pytest.mark.complete
@pytest.mark.parametrize("train", TRAININGS, ids=lambda train: train.__name__)
def test_one_line_gives_a_page_and_leaves_torch_as_it_was(train, tmp_path):
    pages = []
    before = (DataLoader.__iter__, _BaseDataLoaderIter.__next__)
    train(pages.append, tmp_path)
    (page,) = pages
    # no shares: they are those of a real clock
    assert page.evidence[0].startswith("Watched: ")
    assert page.shares["input"] > 0
    assert (DataLoader.__iter__, _BaseDataLoaderIter.__next__) == before
    assert not optimizer._global_optimizer_post_hooks


@pytest.mark.complete
def test_keras_on_torch_has_a_page(tmp_path):
    script = """
import keras, numpy, steptime
model = keras.Sequential([keras.layers.Dense(32), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = numpy.random.rand(640, 16)
model.fit(x, x[:, :1], batch_size=16, verbose=0, callbacks=[steptime.keras.Diagnose()])
"""
    pytest.importorskip("keras", reason=WHY)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "torch", "KERAS_HOME": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stderr
    assert "Watched: " in ran.stdout


def test_a_short_or_a_failed_training_leaves_nothing_behind():
    before = (DataLoader.__iter__, _BaseDataLoaderIter.__next__)
    with pytest.raises(TooLittleSeen, match="and 31 are needed"), steptime.watching():
        pass
    failed = contextlib.suppress(ZeroDivisionError)
    with failed, steptime.watching(say=pytest.fail):
        for _batch in DataLoader([1, 2]):
            1 / 0  # noqa: B018
    assert (DataLoader.__iter__, _BaseDataLoaderIter.__next__) == before
    assert not optimizer._global_optimizer_post_hooks
