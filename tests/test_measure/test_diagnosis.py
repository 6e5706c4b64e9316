"""lab.diagnose: every limit has sections, and they exist; a loop and a whole training
are judged and read on.
"""

import re

import pytest
import torch

import labkit as lab
from labkit.core.paths import ROOT
from labkit.measure.diagnosis import SECTIONS
from steptime import LIMITS
from test_steptime.planted_loops import small_batch, small_step
from tests.planted_ceilings import MEASURED


def test_every_limit_has_sections_that_exist():
    assert set(SECTIONS) == set(LIMITS)
    for name in re.findall(r"\d\d\.\d", " ".join(SECTIONS.values())):
        (notebook,) = (ROOT / "notebooks").glob(f"{name[:2]}_*.ipynb")
        assert f'"## {name[3]} ' in notebook.read_text(encoding="utf-8"), name


@pytest.mark.complete
@pytest.mark.slow
def test_a_page_ends_with_the_sections_of_the_largest_limit(home):
    step = small_step()
    batch = small_batch()

    def train():
        for _ in range(100):
            torch.utils.data.default_collate([1])
            step(batch)

    found = [
        lab.diagnose(step, batch, budget_s=0.2, ceilings=MEASURED),
        lab.diagnose(train, steps=4, ceilings=MEASURED),
    ]
    watched = lab.diagnose.watch([batch] * 40, steps=4, say=found.append)
    for one in watched:
        step(one)
    assert len(found) == 3
    for limit in found:
        assert limit.evidence[-1] == f"Read on in sections {SECTIONS[limit.largest]}."
