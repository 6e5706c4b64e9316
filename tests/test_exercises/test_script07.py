"""Exercise 07.6: each set of faults is found, whatever the others are, and a right
script of any style passes.
"""

import copy
import itertools
import re

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from exercises.nb07 import slow_script, watched
from exercises.nb07.wrong_answers import planted, variant
from labkit.lesson import checks
from labkit.measure.machine import threads
from labkit.train.models import SimpleCNN
from tests.helpers import code_cells, notebook_paths
from tests.selection import sampled

# what the check says of a fault, and of no other
TRACES = {
    "preparation": "pixels are handled",
    "evaluation": "images go forward without backward",
    "one by one": "backward passes for",
    "anomaly mode": "isnan",
    "float64": "8 bytes",
    "reading back": "the host asked for a value",
}


@pytest.fixture(autouse=True)
def one_thread():
    with threads(1):
        yield


@pytest.fixture
def small_trials(monkeypatch):
    monkeypatch.setattr(watched, "_SIZES", ((11, 3),))


def given(images=13):
    draw = np.random.default_rng(0)
    torch.manual_seed(0)
    pixels = draw.integers(0, 256, (images, 3, 32, 32), dtype=np.uint8)
    return SimpleCNN(), pixels, draw.integers(0, 10, images)


SETS = [f for n in range(7) for f in itertools.combinations(slow_script.FAULTS, n)]
FEW = [faults for faults in SETS if len(faults) in (0, 1, 6)]
MORE = [(faults,) for faults in SETS if len(faults) not in (0, 1, 6)]


@pytest.mark.parametrize("faults", [*FEW, *sampled(MORE, 2)], ids="+".join)
def test_every_set_of_faults_is_found_and_no_other(faults, small_trials):
    outcome = checks.check("07.6", planted(*faults))
    assert outcome.state == ("not yet" if faults else "passed")
    assert {
        fault for fault, words in TRACES.items() if words in outcome.message
    } == set(faults)
    assert outcome.details.get("faults_left", 0) == len(faults)


def test_the_reference_learns_what_a_plain_loop_learns():
    model, pixels, labels = given()
    own = copy.deepcopy(model)
    x = (torch.from_numpy(pixels).float() / 255 - 0.5) / 0.5
    optimizer = torch.optim.SGD(own.parameters(), lr=0.03, momentum=0.9)
    losses = []
    for start in range(0, 13, 4):
        part = cross_entropy(
            own(x[start : start + 4]),
            torch.from_numpy(labels[start : start + 4]),
            reduction="none",
        )
        optimizer.zero_grad()
        part.mean().backward()
        optimizer.step()
        losses += part.tolist()
    result = slow_script.train(model, pixels, labels, "cpu", 4, 0.03)
    assert result["loss"] == pytest.approx(sum(losses) / 13, rel=1e-5)
    assert result["accuracy"] == pytest.approx(
        float((own(x).argmax(1).numpy() == labels).mean())
    )
    for a, b in zip(model.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_the_notebooks_script_has_the_six_faults_and_learns_the_same(small_trials):
    (path,) = [path for path in notebook_paths() if path.name.startswith("07")]
    (source,) = [
        source for source in code_cells(path) if source.startswith("def as_found")
    ]
    names = {"torch": torch, "cross_entropy": cross_entropy}
    exec(source, names)
    message = checks.check("07.6", names["as_found"]).message
    assert "6 of 6 faults remain:" in message
    model, pixels, labels = given()
    expected = slow_script.train(copy.deepcopy(model), pixels, labels, "cpu", 4, 0.05)
    assert names["as_found"](model, pixels, labels, "cpu", 4, 0.05) == pytest.approx(
        expected, rel=1e-5
    )
    assert not torch.is_anomaly_enabled()


def by_data_loader(model, images, labels, device, batch, lr):
    """Another style: a DataLoader, inference_mode, losses kept in a list, a look at the
    loss every fifth step.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, foreach=False)
    data = TensorDataset(
        (torch.tensor(images).float() / 255 - 0.5) / 0.5, torch.tensor(labels)
    )
    losses = []
    for i, (x, y) in enumerate(DataLoader(data, batch_size=batch)):
        loss = cross_entropy(model(x.to(device)), y.to(device), reduction="sum")
        model.zero_grad()
        (loss / len(x)).backward()
        optimizer.step()
        losses.append(loss.detach())
        if i % 5 == 4:
            f"{loss:.2f}"
    with torch.inference_mode():
        right = sum(
            (model(x.to(device)).argmax(1) == y).sum()
            for x, y in DataLoader(data, batch_size=16)
        )
    return {
        "loss": (sum(losses) / len(images)).item(),
        "accuracy": right.item() / len(images),
    }


def looks_back(model, *given):
    """Keeps the logits of all steps without their graphs, and of two steps with them."""
    kept = []

    def keep(module, x, logits):
        kept.append(logits)
        kept[:-2] = [older.detach() for older in kept[:-2]]

    hook = model.register_forward_hook(keep)
    try:
        return planted()(model, *given)
    finally:
        hook.remove()


@pytest.mark.parametrize("answer", [by_data_loader, variant(log=4), looks_back])
def test_a_right_script_of_another_style_passes(answer):
    assert str(checks.check("07.6", answer)).startswith("07.6 passed")


def test_switches_that_a_script_leaves_set_are_undone(small_trials):
    def leaves_all_set(*args):
        torch.autograd.set_detect_anomaly(True)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        return planted()(*args)

    message = checks.check("07.6", leaves_all_set).message
    assert "isnan" in message
    assert not torch.is_anomaly_enabled()
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_num_threads() == 1


WAYS = {
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "bool": bool,
    "compare": lambda x: max(x, 2.0),
    "nonzero": lambda x: x.nonzero(),
}


@pytest.mark.parametrize("way", sampled(list(WAYS), 2))
def test_each_way_of_reading_back_counts(way, small_trials):
    def script(model, images, labels, device, batch, lr):
        forward = SimpleCNN.forward

        def reading(self, x):
            logits = forward(self, x)
            if torch.is_grad_enabled():
                WAYS[way](logits.detach().sum())
            return logits

        model.forward = reading.__get__(model)
        return planted()(model, images, labels, device, batch, lr)

    message = checks.check("07.6", script).message
    assert re.search(
        r"1 of 6 faults remains:.*\(1\) the host asked", message, re.DOTALL
    )
