"""Figures of notebook 01: what they show is read back from the axes."""

import pytest

from exercises.nb01 import device_jobs, figures
from labkit.core.errors import BadArgument
from labkit.lesson.explorer import Explorer
from labkit.measure import catalog
from trainplan import costs

ROOF = {"flop_per_s": 1e11, "bytes_per_s": 2e10}
SETTING = {
    "model": "BERT-base",
    "batch": 32,
    "sequence": 128,
    "dtype": "mixed float16",
    "optimizer": "adamw",
}


def judged(
    network="BERT-base", *, among=("T4", "H100 SXM5 80GB", "TPU v5e (chip)"), **settings
):
    step = costs.training_step(
        network, **{"batch": 32, "seq": 128, "dtype": "mixed float16"} | settings
    )
    job = device_jobs.Job(
        memory_bytes=step.memory.total_bytes,
        flop=step.flop,
        n_bytes=step.n_bytes,
        dtype=step.compute_dtype,
    )
    return device_jobs.shortlist(job, map(catalog.find, among) if among else None)


def words(ax):
    return [text.get_text().replace("\\$", "$") for text in ax.texts]


def test_points_stand_at_their_share_of_the_roof():
    picture = figures.roofline({"add": (0.125, 2e9), "matmul": (100.0, 9e10)}, **ROOF)
    assert (
        picture.sentence
        == "The ridge is at 5.00 FLOP per byte; add reaches 80% of the roof; matmul"
        " reaches 90% of the roof."
    )
    roof = picture.ax.lines[0]
    assert max(roof.get_ydata()) == 1e11
    assert roof.get_ydata()[0] == pytest.approx(roof.get_xdata()[0] * 2e10)


def test_a_point_above_the_roof_is_called_a_mistake():
    sentence = figures.roofline(
        {"cached": (0.2, 2e10), "slow": (0.2, 1e9)}, **ROOF
    ).sentence
    assert "cached above the roof: a wrong count, a wrong clock" in sentence
    assert "slow above" not in sentence


def test_a_rate_of_zero_has_no_place_on_a_roofline():
    with pytest.raises(BadArgument, match="'nothing'"):
        figures.roofline({"nothing": (1.0, 0.0)}, **ROOF)


def test_a_shortlist_shows_numbers_of_what_is_in_and_reasons_of_the_rest():
    picture = figures.shortlist(judged())
    shown = words(picture.ax)
    assert "4.04 ms   4%        2.82 J" in shown
    assert "undecided: float16 peak unknown" in shown
    assert (
        picture.sentence
        == "Of 3 devices 2 are in, the fastest H100 SXM5 80GB (4.04 ms, energy 2.82 J"
        " at full board power); 1 undecided, such as TPU v5e (chip): float16 peak"
        " unknown, so no step time."
    )


def test_a_setting_that_a_model_does_not_allow_is_said_and_the_next_one_draws():
    explorer = Explorer(
        figures.shortlist_of.on, **{name: [value] for name, value in SETTING.items()}
    )
    explorer.controls["sequence"].options = [128, 1024]
    explorer.controls["sequence"].value = 1024
    explorer.redraw()
    assert explorer.sentence.startswith("Expected at most 512 tokens")
    explorer.controls["sequence"].value = 128
    explorer.redraw()
    assert explorer.sentence.startswith(f"Of {len(catalog.devices())} devices ")
    assert explorer._axes.axison
