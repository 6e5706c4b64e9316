"""A picture that plays: what its buttons show, and what a notebook keeps of it."""

import asyncio
import base64
import io
import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import labkit as lab
from labkit.plot.moving import film

TEXT = "A square goes from left to right in four steps."


def square(i):
    """A frame whose ink isn't where the others' is, in a color of its own."""
    figure = Figure(figsize=(4, 1))
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(0, 4)
    colors = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
    axes.fill([i, i + 1, i + 1, i], [0, 0, 1, 1], colors[i])
    return figure


@pytest.fixture(scope="module")
def moving():
    return lab.Moving(map(square, range(4)), TEXT)


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))


def test_the_animation_ends_with_each_frame_as_it_stands_alone():
    made = film(map(square, range(4)), frame_s=0.5)
    animation = Image.open(io.BytesIO(made.animated))
    assert animation.n_frames == 5, "four, and the one for who knows no animations"
    durations_ms = []
    for shown, alone in enumerate([3, 0, 1, 2, 3]):
        animation.seek(shown)
        durations_ms.append(animation.info.get("duration"))
        shown_pixels = np.asarray(animation.convert("RGBA"))
        assert np.array_equal(shown_pixels, pixels(made.frames[alone]))
    assert durations_ms[1:] == [500, 500, 500, 1500]
    (size,) = {Image.open(io.BytesIO(each)).size for each in made.frames}
    assert made.size == (size[0] // 2, size[1] // 2)


def test_frames_of_many_colors_and_two_equal_ones_stay_what_they_are():
    def gradient(i):
        figure = Figure(figsize=(2, 1))
        axes = figure.add_subplot()
        axes.imshow(np.linspace(0, 1 + (i == 2), 64).reshape(8, 8), vmin=0, vmax=2)
        return figure

    made = film(map(gradient, range(3)))
    assert made.frames[0] == made.frames[1] != made.frames[2]
    animation = Image.open(io.BytesIO(made.animated))
    animation.seek(animation.n_frames - 1)
    last = np.asarray(animation.convert("RGBA"))
    assert np.array_equal(last, pixels(made.frames[2]))
    assert (last[0, 0] == 255).all()


def test_the_notebook_keeps_a_still_picture_that_plays_when_it_is_asked_to(moving):
    data, metadata = moving.data("", "", "kept")
    page = data["text/html"]
    assert "<script" not in page
    inside = re.search(r"<details class=\"labkit-moving\">(.*)</details>(<img.*)", page)
    for part, is_animated in zip(inside.groups(), (True, False), strict=True):
        png = base64.b64decode(re.search(r"png;base64,([^\"]+)", part)[1])
        assert Image.open(io.BytesIO(png)).is_animated == is_animated
        assert f'alt="{TEXT}"' in part
    assert f"{TEXT} Run this cell to go through it step by step." in page
    still = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert not still.is_animated, "without HTML nobody can be asked"
    assert metadata["image/png"]["alt"] == TEXT


def test_buttons_and_slider_step_and_stop_at_both_ends(moving):
    moving.slider.value = 0
    moving.back.click()
    assert moving.sentence == f"Step 0 of 3: {TEXT}"
    first = moving._image.value
    for _ in range(5):
        moving.forth.click()
    assert moving.sentence.startswith("Step 3 of 3")
    assert moving._image.value != first
    moving.play.click()
    assert moving.play.description == "play", "no event loop: nothing plays"


def test_it_plays_to_the_end_pauses_and_begins_anew(monkeypatch):
    waits = []

    class Loop:
        def call_later(self, seconds, call):
            waits.append((seconds, call))
            return Handle()

    class Handle:
        def cancel(self):
            waits.clear()

    monkeypatch.setattr(asyncio, "get_running_loop", Loop)
    moving = lab.Moving(map(square, range(3)), TEXT, frame_s=0.7)
    assert waits == [], "nothing moves unasked"
    moving.play.click()
    assert moving.play.description == "pause"
    ((seconds, advance),) = waits
    assert seconds == 0.7
    advance()
    assert moving.slider.value == 1
    moving.play.click()
    assert (waits, moving.play.description) == ([], "play")
    moving.play.click()
    waits.pop()[1]()
    assert (moving.slider.value, moving.play.description) == (2, "play")
    moving.play.click()
    assert moving.slider.value == 0, "from the end it begins anew"


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (5, "got 5"),
        ([], "got none"),
        (["a.png"], "got 'a.png' among them"),
        ([Figure(figsize=(1, 1))], "figure 0 is blank"),
    ],
)
def test_what_is_no_figure_is_refused(frames, words):
    with pytest.raises(lab.errors.BadArgument, match=words):
        lab.Moving(frames, TEXT)
