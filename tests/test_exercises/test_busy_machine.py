"""Checks of speed don't judge an answer too slow while other programs take the cores."""

import pytest
from torch import nn

from exercises.nb08 import pipeline
from exercises.nb11 import time_to_accuracy
from labkit.lesson.checks import NotYet
from labkit.measure.contention import Contention, Watch
from labkit.train.training import Run

BUSY = "this machine was busy: 38 % of the time waiting for a core"


@pytest.mark.parametrize("lost", [Contention(0.0), Contention(0.38, BUSY)], ids=["calm", "busy"])
def test_a_pipeline_is_too_slow_only_on_a_calm_machine(monkeypatch, lost):
    class AnyData:
        def __init__(self, *_):
            self.epoch, self.variety = lambda _: None, lambda: None

    monkeypatch.setattr(Watch, "so_far", lambda self: lost)
    monkeypatch.setattr(pipeline, "_digits", lambda: ([], None, None))
    monkeypatch.setattr(pipeline, "_Judge", AnyData)
    monkeypatch.setattr(pipeline, "_share_of_ceiling", lambda *_: 0.5)
    words = f"not judged, since {BUSY}" if lost.reason else "50% of the ceiling; 90 % are asked for"
    with pytest.raises(NotYet, match=words):
        pipeline.pipeline(lambda shards, batch: lambda: iter(()))


@pytest.mark.parametrize("lost", [Contention(0.0), Contention(0.38, BUSY)], ids=["calm", "busy"])
def test_a_training_is_too_slow_only_on_a_calm_machine(lost):
    runs = [Run(seed, 32, (0.1,), (0.98,), (1.0,), (1000,), nn.Identity(), lost) for seed in range(3)]
    words = f"Not judged, since {BUSY}. Run the check again" if lost.reason else "Less than a quarter faster"
    with pytest.raises(NotYet, match=words):
        time_to_accuracy._judge(runs, runs)
