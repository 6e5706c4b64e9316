"""Checks of speed, on virtual clocks: what is too fast, too slow, and not judged while
others take the cores.
"""

from types import SimpleNamespace

import pytest
from torch import nn

from exercises.nb08 import pipeline
from exercises.nb08.wrong_answers import built, image_by_image
from exercises.nb11 import time_to_accuracy
from exercises.nb16 import search_budget
from labkit.lesson.checks import NotYet
from labkit.measure.contention import Contention, Watch
from labkit.train.training import Run
from tests.test_exercises import virtual_clock

BUSY = "this machine was busy: 38 % of the time waiting for a core"


CALM_AND_BUSY = pytest.mark.parametrize(
    "lost", [Contention(0.0), Contention(0.38, BUSY)], ids=["calm", "busy"]
)


def share_of_ceiling(answer):
    shards, _, labels = pipeline._digits()
    judge = SimpleNamespace(labels=labels, epoch=lambda _: None, variety=lambda: None)
    return pipeline._share_of_ceiling(answer(shards, pipeline._BATCH), judge)


def test_a_pipeline_s_share_of_the_ceiling_is_that_of_their_times(monkeypatch):
    monkeypatch.setattr(pipeline, "_FEWEST_ROUNDS", 2)
    virtual_clock.of_pipelines(monkeypatch)
    decoding = virtual_clock.DECODED_S / virtual_clock.TRAINED_S
    assert share_of_ceiling(built()) == pytest.approx(1.0)
    assert share_of_ceiling(image_by_image) == pytest.approx(1 / (1 + decoding))


@pytest.mark.complete
def test_a_share_that_leaves_it_open_is_measured_until_the_patience_ends(monkeypatch):
    monkeypatch.setattr(virtual_clock, "DECODED_S", 0.4 * virtual_clock.TRAINED_S)
    monkeypatch.setattr(pipeline, "_PATIENCE_S", 3.0)
    clock = virtual_clock.of_pipelines(monkeypatch)
    assert share_of_ceiling(image_by_image) == pytest.approx(1 / 1.4)
    assert 3.0 <= clock() < 3.6  # a round more, in which both epochs take 0.48 s


@CALM_AND_BUSY
@pytest.mark.parametrize(
    ("gain", "state"),
    [(1.1, "here, from fresh seeds, 1.1 times"), (0.9, "0.90 times as fast")],
)
def test_a_search_is_too_slow_only_on_a_calm_machine(monkeypatch, lost, gain, state):
    virtual_clock.of_searches(monkeypatch, {"cached": gain})
    monkeypatch.setattr(Watch, "so_far", lambda self: lost)

    def judged():
        try:
            return search_budget._judge_real(lambda *_: ["decode once"])
        except NotYet as told:
            return str(told)

    right = (
        f"Right in 12 simulated scripts; its seconds here were not judged, since {BUSY}"
    )
    assert (right if lost.reason and gain < 1 else state) in judged()


class AnyData:
    def __init__(self, *_):
        self.epoch = lambda _: None
        self.variety = lambda: None


@CALM_AND_BUSY
@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1.3, "130% of the ceiling: no pipeline is faster"),
        (0.5, "50% of the ceiling; 90 % are asked for"),
    ],
)
def test_a_pipeline_is_too_slow_only_on_a_calm_machine_and_too_fast_on_any(
    monkeypatch, lost, share, words
):
    monkeypatch.setattr(Watch, "so_far", lambda self: lost)
    monkeypatch.setattr(pipeline, "_digits", lambda: ([], None, None))
    monkeypatch.setattr(pipeline, "_Judge", AnyData)
    monkeypatch.setattr(pipeline, "_share_of_ceiling", lambda *_: share)
    with pytest.raises(
        NotYet,
        match=f"not judged, since {BUSY}" if lost.reason and share < 1 else words,
    ):
        pipeline.pipeline(lambda shards, batch: lambda: iter(()))


@CALM_AND_BUSY
def test_a_training_is_too_slow_only_on_a_calm_machine(lost):
    runs = [
        Run(seed, 32, (0.1,), (0.98,), (1.0,), (1000,), nn.Identity(), lost)
        for seed in range(6)
    ]
    words = (
        f"Not judged, since {BUSY}. Run the check again"
        if lost.reason
        else "Less than a quarter faster"
    )
    with pytest.raises(NotYet, match=words):
        time_to_accuracy._judge(runs, runs)
