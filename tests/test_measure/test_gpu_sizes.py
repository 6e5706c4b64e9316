"""The sizes that notebooks take on a GPU fit into the memory that `lab.pick` asks of
it, so that 8 GB are enough.
"""

import json
import re

import pytest
import torch
from torch.nn.functional import cross_entropy

import labkit as lab
from exercises.nb09.resnet9 import ResNet9
from labkit.core.paths import NOTEBOOKS
from labkit.core.units import GIB
from labkit.measure.machine import _ROOM_BYTES

pytestmark = pytest.mark.slow  # trains a step of a ResNet-9 on the CPU
# An 8 GB card: what CUDA reports of it, less what a desktop on the same card keeps.
EIGHT_GB = 8188 * 2**20
DESKTOP = 1.25 * GIB
# What libraries take beside the tensors that a step counts: workspaces of convolutions,
# gaps between blocks.
BESIDE = 1.25


def on_gpu(number, text):
    """The largest size for a GPU of the `pick`s that follow `text` on a line of a
    notebook's code.
    """
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
    )
    found = re.findall(
        rf"(?m)^ *{re.escape(text)}lab\.pick\(.*gpu=\(?([\d_*, ]+)\)", code
    )
    assert found, f"{number} has no {text!r} any more"
    # digits, _ and * alone
    return max(eval(each) for one in found for each in one.split(","))


def step_bytes(model, batch):
    images = torch.randn(batch, 3, 32, 32)
    labels = torch.randint(10, (batch,))
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()
    return lab.peak_memory(step, device="cpu").peak_bytes


def test_an_8_gb_card_has_the_room_that_pick_asks_for():
    assert EIGHT_GB - DESKTOP > _ROOM_BYTES


@pytest.mark.complete
def test_the_largest_training_fits():
    small, large = (step_bytes(ResNet9(), batch) for batch in (8, 16))
    an_image = (large - small) / 8
    whole = small + (on_gpu("09", "batch = ") - 8) * an_image
    weights = 4 * sum(weight.numel() for weight in ResNet9().parameters())
    others = 6 * 3 * weights  # the networks of the other rows, each with Adam's state
    assert 3 * GIB < BESIDE * (whole + others) < _ROOM_BYTES


def test_the_step_with_gpt2_s_rows_fits():
    """Logits, their softmax and its gradient, float32; beside them the rows themselves
    with gradient and Adam's state, of three networks.
    """
    rows, width, context = 50_257, 384, 256
    logits = 3 * on_gpu("19", 'shared = {"batch": ') * context * rows
    states = 3 * 4 * rows * width
    assert 3 * GIB < 4 * (logits + states) * BESIDE < _ROOM_BYTES


def test_the_largest_arrays_fit():
    numbers = {
        "04.2, a copy of every eighth number": 9 * 2**26,
        "04.5": on_gpu("04", "n = "),
        "04.3, two matrices": 2 * 8192**2,
        "05.1, two arrays and a new one": 3 * on_gpu("05", "n = "),
        "07.4, two long ones and two matrices": (
            2 * on_gpu("07", "length = ") + 2 * on_gpu("07", "n = ") ** 2
        ),
    }
    assert {
        what: count
        for what, count in numbers.items()
        if 4 * BESIDE * count > _ROOM_BYTES
    } == {}
