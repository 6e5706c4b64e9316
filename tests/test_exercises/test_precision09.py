"""Notebook 09's ways to train, on a machine whose hardware has bfloat16 and on one where it is simulated."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy

import labkit as lab
from labkit.train import formats
from tests.helpers import code_cells, notebook_paths

(PATH,) = [path for path in notebook_paths() if path.name.startswith("09")]
WAYS = ["float32", "bfloat16, mixed", "float16, mixed", "float16, mixed, scaled", "bfloat16 only"]


@pytest.fixture
def ways(monkeypatch, request):
    """What the notebook's cells define between the ceilings and the rows to be timed."""
    monkeypatch.setenv("LABKIT_PROFILE", "ci")
    rates = {"float32": 1e9, **request.param}
    monkeypatch.setattr(lab, "measure_ceilings", lambda: SimpleNamespace(matmul_flop_per_s=rates, remarks={}))
    names = {
        "lab": lab, "torch": torch, "cross_entropy": cross_entropy, "machine": SimpleNamespace(device="cpu", gpus=()),
        "autocast_forward": formats.autocast_forward, "round_weights": formats.round_weights,
    }  # fmt: skip
    cells = code_cells(PATH)
    first, last = (next(i for i, c in enumerate(cells) if w in c) for w in ("native = {", "timed = {"))
    for source in cells[first : last + 1]:
        if "lab.predict(" not in source:
            exec(source, names)  # the notebook's own code is what is tested
    return SimpleNamespace(**names)


@pytest.mark.parametrize(
    ("ways", "timed"),
    [
        ({}, ["float32"]),
        ({"bfloat16": 0.9e9}, ["float32"]),  # emulated: it was timed, and is no faster
        ({"bfloat16": 2e9}, ["float32", "bfloat16, mixed", "bfloat16 only"]),
    ],
    indirect=["ways"],
)
def test_only_what_the_hardware_has_is_timed(ways, timed):
    assert list(ways.ways) == WAYS
    assert list(ways.timed) == timed


@pytest.mark.parametrize(
    ("ways", "kept"), [({}, torch.float32), ({"bfloat16": 2e9}, torch.bfloat16)], indirect=["ways"]
)
def test_every_way_takes_a_step_and_weights_are_what_its_name_says(ways, kept):
    images, labels = (part[:4] for part in lab.data.digits(size=32, channels=3))
    for name, setup in ways.ways.items():
        torch.manual_seed(0)
        model, step = setup()
        before = [weight.detach().clone() for weight in model.parameters()]
        loss = step(images, labels)
        assert loss.shape == ()
        assert torch.isfinite(loss)
        after = list(model.parameters())
        assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True)) or "scaled" in name
        assert {weight.dtype for weight in after} == {kept if name == "bfloat16 only" else torch.float32}
        if name == "bfloat16 only":
            assert all(torch.equal(weight, weight.bfloat16().to(weight.dtype)) for weight in after)
        assert model(images.to(torch.float32)).shape == (4, 10), "it can be evaluated on float32 images"
