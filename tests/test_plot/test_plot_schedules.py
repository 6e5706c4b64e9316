"""The Gantt picture says what the spans say, and its marks need no color."""

import io

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from PIL import Image

from labkit import plot
from labkit.core.errors import BadArgument
from ranks import Span
from trainplan.costs import Link
from trainplan.schedule import gpipe, interleaved, one_f_one_b, overlap, simulate, zb_h2

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


@pytest.mark.slow
@pytest.mark.parametrize("order", [gpipe, zb_h2])
def test_every_step_is_a_bar_with_letter_and_number(order):
    played = simulate(order(4, 8))
    drawn = plot.gantt(played, title="a schedule")
    assert sum(len(c.get_paths()) for c in bars(drawn)) == len(played.spans)
    assert sorted(written(drawn)) == sorted(
        span.kind + span.label for span in played.spans
    )
    assert legend(drawn)[-1] == "white: idle"
    assert [t.get_text() for t in drawn.ax.get_yticklabels()] == [
        f"rank {r}" for r in range(4)
    ]
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
    assert found == sorted(
        (span.rank, span.start_s, span.end_s) for span in played.spans
    )


def test_later_chunks_are_paler_and_the_axis_says_so():
    drawn = plot.gantt(simulate(interleaved(2, 4, 2)))
    colors = {tuple(c.get_facecolor()[0]) for c in bars(drawn)}
    assert len(colors) == 4
    assert "paler" in drawn.ax.get_xlabel()
    assert "B0.1" in written(drawn)
    assert "paler" not in plot.gantt(simulate(gpipe(2, 4))).ax.get_xlabel()


def test_the_sentence_has_time_bubble_and_memory():
    assert (
        plot.gantt(simulate(one_f_one_b(4, 8))).sentence
        == "Simulated: 33.0 s from the first step to the last; the bubble is 27.3% of"
        " the ranks' time. Activations held at once: 4, 3, 2, 1, rank by rank."
    )
    assert (
        "Activations held at once: 8 on each rank."
        in plot.gantt(simulate(gpipe(4, 8))).sentence
    )
    assert (
        "12.0 at most on any rank" in plot.gantt(simulate(one_f_one_b(12, 13))).sentence
    )


def test_measured_spans_start_at_zero_and_are_summed_up():
    drawn = plot.gantt(MEASURED)
    assert drawn.ax.get_xlim() == (0, pytest.approx(1.0))
    assert (
        drawn.sentence == "1.00 s from the first start to the last end. "
        "Of the ranks' time: compute 65.0%, idle 25.0%, communication 5.0%."
    )
    assert legend(drawn) == ["compute", "communication", "idle"]
    assert [t.get_text() for t in drawn.ax.get_yticklabels()] == ["rank 0", "rank 3"]
    assert "simulated" not in drawn.ax.get_xlabel()
    assert (
        plot.gantt(type("Results", (), {"spans": tuple(MEASURED)})()).sentence
        == drawn.sentence
    )
    assert plot.gantt(iter(MEASURED)).sentence == drawn.sentence


def test_communication_beside_compute_gets_a_half_of_the_row():
    drawn = plot.gantt(overlap([0.01] * 4, [2e7] * 4, link=Link(1e-5, 1e10), ranks=8))
    boxes = [path.vertices for c in bars(drawn) for path in c.get_paths()]
    assert {round(float(box[:, 1].mean()), 2) for box in (b[:4] for b in boxes)} == {
        -0.21,
        0.21,
    }
    assert "exposed" in drawn.sentence
    one_after_the_other = plot.gantt(MEASURED)
    assert all(
        abs(p.vertices[0, 1]) % 1 > 0.4
        for c in bars(one_after_the_other)
        for p in c.get_paths()
    )


def test_thousands_of_bars_become_mixed_colors():
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
    steady = np.asarray(
        plot.gantt(simulate(one_f_one_b(8, 400))).ax.images[0].get_array()
    )[0, 300:600].mean(axis=0)
    mixed = (image[0, 0] + 2 * image[0, -1]) / 3
    assert steady == pytest.approx(mixed, abs=0.02)


@pytest.mark.parametrize("nothing", [[], [["F0", "B0"]]])
def test_what_has_no_spans_is_refused(nothing):
    with pytest.raises(BadArgument, match="Expected the spans of ranks to draw"):
        plot.gantt(nothing)
