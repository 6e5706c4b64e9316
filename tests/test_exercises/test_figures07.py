from pathlib import Path

import pytest

from exercises.nb07 import figures
from exercises.nb07.figures import _merged
from steptime import PARTS, Limit, MemoryTimeline, PartSpan, Phase, StepProfile
from trainplan import costs


def profile(spans, *, steps=5, device="NVIDIA Fake 9000", **parts):
    return StepProfile(
        device=device,
        steps=steps,
        step_s=(sum(parts.values()),) * steps,
        parts={**dict.fromkeys(PARTS, 0.0), **parts},
        spans=tuple(spans),
        operators=(),
        waits={},
        trace_path=Path("step.json"),
    )


SPANS = [
    PartSpan("host", "input", 0.0, 0.01),
    PartSpan("host", "forward", 0.01, 0.012),
    PartSpan("device", "gaps", 0.0, 0.01),
    PartSpan("device", "copies", 0.01, 0.010001),
    PartSpan("device", "forward", 0.0101, 0.02),
    PartSpan("device", "backward", 0.02, 0.04),
]
STEP = profile(SPANS, gaps=0.01, copies=0.000001, forward=0.0099, backward=0.02)
TIMELINE = MemoryTimeline(
    device="cpu",
    times_s=(0.0, 0.1, 0.2, 0.3, 0.4),
    n_bytes={
        "parameters": (2**20,) * 5,
        "optimizer state": (0,) * 5,
        "gradients": (0, 0, 0, 2**20, 2**20),
        "activations": (0, 2**22, 2**23, 2**22, 0),
        "temporary and other": (0, 0, 2**20, 0, 0),
    },
    phases=(
        Phase("forward", 0.0, 0.15),
        Phase("backward", 0.15, 0.35),
        Phase("optimizer", 0.35, 0.4),
    ),
    peak_operator="ReluBackward0",
)
LIMIT = Limit(
    {
        "input": 0.6,
        "launch overhead": 0.1,
        "memory bandwidth": 0.2,
        "arithmetic": 0.1,
        "communication": 0.0,
    },
    (),
    0.02,
)
EVEN = Limit({**LIMIT.shares, "input": 0.3, "arithmetic": 0.4}, (), 0.02)
ALONE = Limit({**dict.fromkeys(LIMIT.shares, 0.0), "arithmetic": 1.0}, (), 0.02)


def words(ax):
    legend = ax.get_legend()
    entries = [] if legend is None else legend.get_texts()
    return [text.get_text() for text in [*ax.texts, *ax.get_yticklabels(), *entries]]


def legend(picture):
    return [text.get_text() for text in picture.ax.get_legend().get_texts()]


def test_the_strip_names_the_three_largest_parts_and_only_what_is_there():
    picture = figures.step_strip(STEP)
    assert (
        picture.sentence
        == "A step takes 39.9 ms, the mean of 5. Its largest parts: backward 50% (20.0"
        " ms), gaps 25% (10.0 ms), forward 25% (9.90 ms)."
    )
    assert legend(picture) == ["input", "copies", "forward", "backward", "gaps"]
    assert [label.get_text() for label in picture.ax.get_yticklabels()] == [
        "host",
        "device",
        "all 5: shares",
    ]
    assert "backward 50%" in words(picture.ax)


def test_gaps_that_are_too_short_to_see_are_said():
    spans = [
        PartSpan("device", "forward", 0.0, 0.5),
        PartSpan("device", "gaps", 0.5, 0.5001),
        PartSpan("device", "forward", 0.5001, 1),
    ]
    assert (
        "Gaps shorter than a pixel"
        in figures.step_strip(profile(spans, forward=0.9999, gaps=0.0001)).sentence
    )
    assert "Gaps shorter" not in figures.step_strip(STEP).sentence


def test_neighbors_that_touch_are_one_bar_and_short_ones_are_widened():
    spans = [
        PartSpan("host", "input", a, b)
        for a, b in ((0.0, 0.1), (0.1, 0.2), (0.15, 0.18), (0.5, 0.5), (0.505, 0.51))
    ]
    spans += [
        PartSpan("host", "other", 0.2, 0.4),
        PartSpan("device", "input", 0.3, 0.4),
    ]
    assert _merged(spans, "host", "input", 0.01) == [
        (0.0, 0.2),
        (0.5, pytest.approx(0.515)),
    ]
    assert _merged(spans, "device", "input", 0.01) == [(0.3, 0.4)]
    assert _merged(spans, "device", "other", 0.01) == []


def test_memory_is_stacked_to_its_peak_which_is_named():
    picture = figures.memory_timeline(TIMELINE)
    assert legend(picture) == [
        "temporary and other",
        "activations",
        "gradients",
        "parameters",
    ]
    top = max(
        path.vertices[:, 1].max()
        for c in picture.ax.collections
        for path in c.get_paths()
    )
    assert top == TIMELINE.peak_bytes == 10 * 2**20
    assert "peak 10.0 MiB" in words(picture.ax)
    assert {"forward", "backward"} <= set(words(picture.ax))
    assert (
        picture.sentence
        == "Most memory in the backward pass: 10.0 MiB, of which activations 8.00 MiB,"
        " temporary and other 1.00 MiB, parameters 1.00 MiB."
    )


def test_the_prediction_is_a_line_that_the_legend_and_the_sentence_name():
    step = costs.training_step("SimpleCNN", batch=128)
    picture = figures.memory_timeline(TIMELINE, predicted=step)
    (line,) = [line for line in picture.ax.lines if line.get_linestyle() == "--"]
    assert line.get_ydata()[0] == step.memory.total_bytes
    assert legend(picture)[0] == "predicted"
    assert "(dashed): 7.94 MiB; measured 1.26x of it." in picture.sentence


def test_bars_of_limits_are_in_order_with_the_bound_of_each():
    picture = figures.shares(LIMIT)
    assert words(picture.ax)[:3] == [
        "60%, without it at most 2.50x, dominates",
        "20%, only fewer operations help",
        "10%, without it at most 1.43x",
    ]
    assert (
        picture.sentence
        == "Input dominates with 60% of the loop's time: without it the loop would be"
        " at most 2.50x as fast."
    )


def test_no_limit_is_made_dominant_and_a_single_one_has_no_bound():
    assert (
        figures.shares(EVEN).sentence
        == "Nothing dominates; the largest is arithmetic with 40%: only fewer"
        " operations help."
    )
    assert "dominates" not in " ".join(words(figures.shares(EVEN).ax))
    assert figures.shares(ALONE).sentence.endswith(
        "with 100% of the loop's time: nothing else takes time."
    )
