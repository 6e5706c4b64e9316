"""Figures of notebook 01: what they show is read back from the axes."""

import pytest

from exercises.nb01 import device_jobs, figures, published_matmuls
from labkit import plot
from labkit.core.errors import BadArgument
from labkit.lesson.explorer import Explorer
from labkit.measure import catalog
from trainplan import costs

ROOF = {"flop_per_s": 1e11, "bytes_per_s": 2e10}
SETTING = {"model": "BERT-base", "batch": 32, "sequence": 128, "dtype": "mixed float16", "optimizer": "adamw"}


def judged(network="BERT-base", *, among=("T4", "H100 SXM5 80GB", "TPU v5e (chip)"), **settings):
    step = costs.training_step(network, **{"batch": 32, "seq": 128, "dtype": "mixed float16"} | settings)
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
    assert picture.sentence == (
        "The ridge is at 5.00 FLOP per byte; add reaches 80% of the roof; matmul reaches 90% of the roof."
    )
    roof = picture.ax.lines[0]
    assert max(roof.get_ydata()) == 1e11
    assert roof.get_ydata()[0] == pytest.approx(roof.get_xdata()[0] * 2e10)


def test_a_point_above_the_roof_is_called_a_mistake():
    sentence = figures.roofline({"cached": (0.2, 2e10), "slow": (0.2, 1e9)}, **ROOF).sentence
    assert "cached above the roof: a wrong count, a wrong clock" in sentence
    assert "slow above" not in sentence


def test_a_rate_of_zero_has_no_place_on_a_roofline():
    with pytest.raises(BadArgument, match="'nothing'"):
        figures.roofline({"nothing": (1.0, 0.0)}, **ROOF)


def test_published_rates_are_hatched_with_their_source_and_measured_ones_solid():
    rows = [row for row in published_matmuls.matmuls() if row.dtype == "bf16" and "torch" in row.library]
    picture = figures.reached(rows, here={"mine": (50e12, 100e12)})
    assert [patch.get_hatch() for patch in picture.ax.patches] == [None] + ["//"] * len(rows)
    legend = " ".join(text.get_text() for text in picture.ax.get_legend().get_texts())
    assert "published: stas00/ml-engineering" in legend
    assert picture.sentence.startswith("mine: 50% of the peak, measured here; best bf16 matmuls that others published")
    assert "measured" not in figures.reached(rows).sentence
    assert figures.reached([]).sentence == "Nothing to show: no rate has a known peak."


def test_a_shortlist_shows_numbers_of_what_is_in_and_reasons_of_the_rest():
    picture = figures.shortlist(judged())
    shown = words(picture.ax)
    assert "4.04 ms   4%        2.82 J" in shown
    assert "undecided: float16 peak unknown" in shown
    assert picture.sentence == (
        "Of 3 devices 2 are in, the fastest H100 SXM5 80GB (4.04 ms, energy 2.82 J at full board power); "
        "1 undecided, such as TPU v5e (chip): float16 peak unknown, so no step time."
    )


def test_of_the_whole_catalogue_some_of_each_verdict_are_shown():
    candidates = judged("Llama-2-7B", among=None, batch=1, seq=4096)
    picture = figures.shortlist(candidates, most=12)
    shown = [tick.get_text() for tick in picture.ax.get_yticklabels()]
    fits = {one.device.name: one.fits for one in candidates}
    assert len(shown) == 12
    assert {fits[name] for name in shown} == {True, False, None}
    assert "Of 56 devices" in picture.sentence
    assert "12 of them are shown" in picture.sentence


def test_a_setting_that_a_model_does_not_allow_is_said_and_the_next_one_draws():
    explorer = Explorer(figures.shortlist_of.on, **{name: [value] for name, value in SETTING.items()})
    explorer.controls["sequence"].options = [128, 1024]
    explorer.controls["sequence"].value = 1024
    explorer.redraw()
    assert explorer.sentence.startswith("Expected at most 512 tokens")
    explorer.controls["sequence"].value = 128
    explorer.redraw()
    assert explorer.sentence.startswith("Of 56 devices 41 are in")
    assert explorer._axes.axison


def test_jobs_have_a_marker_each_filled_where_the_device_is_in():
    six = ("T4", "H100 SXM5 80GB")
    llama = judged("Llama-2-7B", among=six, batch=1, seq=4096, dtype="mixed bfloat16")
    picture = figures.jobs_by_device({"BERT": judged(among=six), "Llama": llama})
    drawn = [(line.get_marker(), line.get_fillstyle()) for line in picture.ax.lines if len(line.get_xdata())]
    assert sorted(drawn) == [("o", "full"), ("o", "full"), ("s", "none")]  # Llama on a T4 has no bfloat16 peak
    assert picture.sentence == "BERT: H100 SXM5 80GB, T4 in; Llama: no device in."


@pytest.mark.parametrize(
    "picture",
    [
        lambda: figures.roofline({}, **ROOF),
        lambda: figures.shortlist([]),
        lambda: figures.jobs_by_device({}),
        lambda: figures.shortlist_of(**SETTING),
    ],
)
def test_every_figure_draws_and_has_a_sentence(picture):
    drawn = picture()
    assert plot.to_png(drawn.ax).startswith(b"\x89PNG")
    assert drawn.sentence.endswith(".")
