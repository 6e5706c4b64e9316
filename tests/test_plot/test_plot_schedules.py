"""The Gantt picture says what the spans say, and its marks need no colour."""

import io

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from PIL import Image

from exercises.nb14 import figures, replay
from labkit import plot
from labkit.core.errors import BadArgument
from ranks import Span
from trainplan.costs.collectives import Link
from trainplan.schedule import gpipe, interleaved, one_f_one_b, overlap, simulate, zb_h1, zb_h2

MEASURED = [
    Span(0, 10.0, 10.4, "compute", "layer 0"),
    Span(0, 10.4, 10.5, "communication"),
    Span(0, 10.5, 11.0, "idle"),
    Span(3, 10.1, 11.0, "compute", "layer 0"),
]


def picture(drawn):
    return Image.open(io.BytesIO(plot.to_png(drawn.ax))).convert("RGB")


def bars(drawn):
    return [c for c in drawn.ax.collections if isinstance(c, PolyCollection)]


def written(drawn):
    return [text.get_text() for text in drawn.ax.texts]


def legend(drawn):
    return [text.get_text() for text in drawn.ax.get_legend().get_texts()]


@pytest.mark.parametrize("order", [gpipe, one_f_one_b, zb_h1, zb_h2])
def test_every_step_is_a_bar_with_letter_and_number(order):
    played = simulate(order(4, 8))
    drawn = plot.gantt(played, title="a schedule")
    assert sum(len(c.get_paths()) for c in bars(drawn)) == len(played.spans)
    assert sorted(written(drawn)) == sorted(span.kind + span.label for span in played.spans)
    assert legend(drawn)[-1] == "white: idle"
    assert [t.get_text() for t in drawn.ax.get_yticklabels()] == [f"rank {r}" for r in range(4)]
    image = picture(drawn)
    assert 2 * 850 <= image.width <= 2 * 900
    assert drawn.ax.get_xlim() == (0, played.makespan_s)
    assert "simulated" in drawn.ax.get_xlabel()


def test_bars_stand_where_their_steps_were():
    played = simulate(one_f_one_b(2, 2))
    drawn = plot.gantt(played)
    found = sorted(
        (round(float((box[0, 1] + box[1, 1]) / 2)), box[:, 0].min(), box[:, 0].max())
        for c in bars(drawn)
        for box in (path.vertices for path in c.get_paths())
    )
    assert found == sorted((span.rank, span.start_s, span.end_s) for span in played.spans)


def test_narrow_bars_have_a_letter_or_a_texture():
    letters = plot.gantt(simulate(zb_h2(8, 24), transfer_s=0.1))
    assert set(written(letters)) == {"F", "B", "W"}
    textures = plot.gantt(simulate(zb_h2(8, 48)))
    assert written(textures) == []
    assert {c.get_hatch() or "" for c in bars(textures)} == {"", "///", "..."}


def test_kinds_stay_apart_in_grey():
    shades = []
    for kind, (_, color, _) in plot.schedules._KINDS.items():
        if kind in "FBW":
            red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
            shades.append(0.299 * red + 0.587 * green + 0.114 * blue)
    assert min(np.diff(sorted(shades))) > 25


def test_later_chunks_are_paler_and_the_axis_says_so():
    drawn = plot.gantt(simulate(interleaved(2, 4, 2)))
    colors = {tuple(c.get_facecolor()[0]) for c in bars(drawn)}
    assert len(colors) == 4
    assert "paler" in drawn.ax.get_xlabel()
    assert "B0.1" in written(drawn)
    assert "paler" not in plot.gantt(simulate(gpipe(2, 4))).ax.get_xlabel()


def test_the_sentence_has_time_bubble_and_memory():
    assert plot.gantt(simulate(one_f_one_b(4, 8))).sentence == (
        "Simulated: 33.0 s from the first step to the last; the bubble is 27.3% of the ranks' time. "
        "Activations held at once: 4, 3, 2, 1, rank by rank."
    )
    assert "Activations held at once: 8 on each rank." in plot.gantt(simulate(gpipe(4, 8))).sentence
    assert "12.0 at most on any rank" in plot.gantt(simulate(one_f_one_b(12, 13))).sentence


def test_measured_spans_start_at_zero_and_are_summed_up():
    drawn = plot.gantt(MEASURED)
    assert drawn.ax.get_xlim() == (0, pytest.approx(1.0))
    assert drawn.sentence == (
        "1.00 s from the first start to the last end. "
        "Of the ranks' time: compute 65.0%, idle 25.0%, communication 5.0%."
    )
    assert legend(drawn) == ["compute", "communication", "idle"]
    assert [t.get_text() for t in drawn.ax.get_yticklabels()] == ["rank 0", "rank 3"]
    assert "simulated" not in drawn.ax.get_xlabel()
    assert plot.gantt(type("Results", (), {"spans": tuple(MEASURED)})()).sentence == drawn.sentence
    assert plot.gantt(iter(MEASURED)).sentence == drawn.sentence


def test_an_unknown_kind_is_drawn_under_its_own_name():
    drawn = plot.gantt([Span(0, 0, 1, "checkpoint")])
    assert legend(drawn) == ["checkpoint", "white: idle"]
    assert "checkpoint 100.0%" in drawn.sentence


def test_communication_beside_compute_gets_a_half_of_the_row():
    drawn = plot.gantt(overlap([0.01] * 4, [2e7] * 4, link=Link(1e-5, 1e10), ranks=8))
    boxes = [path.vertices for c in bars(drawn) for path in c.get_paths()]
    assert {round(float(box[:, 1].mean()), 2) for box in (b[:4] for b in boxes)} == {-0.21, 0.21}
    assert "exposed" in drawn.sentence
    one_after_the_other = plot.gantt(MEASURED)
    assert all(abs(p.vertices[0, 1]) % 1 > 0.4 for c in bars(one_after_the_other) for p in c.get_paths())


def test_two_pictures_can_share_an_axis():
    drawn = plot.gantt(simulate(gpipe(1, 1)), until_s=10)
    assert drawn.ax.get_xlim() == (0, 10)
    assert "3.00 s" in drawn.sentence
    assert plot.gantt(simulate(gpipe(1, 1)), until_s=1).ax.get_xlim() == (0, 3)  # nothing is cut off
    with pytest.raises(BadArgument, match="until_s to be a finite number of at least 0"):
        plot.gantt(simulate(gpipe(1, 1)), until_s=-1)


def test_pictures_of_few_and_of_many_ranks_can_have_the_same_rows():
    few, many, more = (plot.gantt(simulate(gpipe(ranks, 2)), rows=8).ax for ranks in (2, 8, 9))
    assert few.get_ylim() == many.get_ylim() == (7.5, -0.5)
    assert few.figure.get_figheight() == many.figure.get_figheight()
    assert more.get_ylim() == (8.5, -0.5)


def test_thousands_of_bars_become_mixed_colours():
    played = simulate(gpipe(8, 400))
    drawn = plot.gantt(played)
    assert bars(drawn) == []
    (image,) = (np.asarray(i.get_array()) for i in drawn.ax.images)
    assert image.shape == (8, 800, 3)
    white = np.isclose(image, 1).all(axis=2).mean()
    assert white == pytest.approx(played.bubble, abs=0.01)
    # rank 0 begins with forwards and ends with backwards
    assert image[0, 0] == pytest.approx([0x56 / 255, 0xB4 / 255, 0xE9 / 255])
    assert image[0, -1] == pytest.approx([0xD5 / 255, 0x5E / 255, 0])
    steady = np.asarray(plot.gantt(simulate(one_f_one_b(8, 400))).ax.images[0].get_array())[0, 300:600].mean(axis=0)
    mixed = (image[0, 0] + 2 * image[0, -1]) / 3
    assert steady == pytest.approx(mixed, abs=0.02)


@pytest.mark.parametrize("nothing", [[], None, "F0", 3, [1, 2], [["F0", "B0"]]])
def test_what_has_no_spans_is_refused(nothing):
    with pytest.raises(BadArgument, match="Expected the spans of ranks to draw"):
        plot.gantt(nothing)


def test_steps_of_no_length_are_still_seen():
    drawn = plot.gantt([Span(0, 0.0, 0.0, "compute"), Span(0, 0.0, 1.0, "idle")])
    widths = sorted(float(np.ptp(p.vertices[:, 0])) for c in bars(drawn) for p in c.get_paths())
    assert widths[0] > 0.001
    plot.gantt([Span(0, 1.0, 1.0, "compute")])


def test_replays_show_each_run_once():
    runs = replay.published_errors()
    drawn = figures.replays(runs, title="published")
    shown = np.concatenate([line.get_xdata() for line in drawn.ax.lines if len(line.get_xdata()) > 2])
    assert sorted(shown) == pytest.approx(sorted(100 * row.error for row in runs.rows))
    assert legend(drawn) == ["1.5B", "6.2B"]
    assert len({line.get_marker() for line in drawn.ax.lines}) == 3  # two models and the line at 0
    assert drawn.sentence.startswith("Zero bubble, 24 runs: error")
    assert picture(drawn).width <= 2 * 900
