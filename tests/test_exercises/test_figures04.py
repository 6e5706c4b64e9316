"""The figures of kernels: what they draw is read back from the axes, and their
sentences against counts by hand.
"""

import numpy as np
import pytest
from numba import cuda

import labkit as lab
from exercises.nb04 import figures, request_figures, warp_figures
from kerneltrace.errors import KernelError

pytestmark = pytest.mark.slow  # draws traced kernels


def strided(out, x, stride, offset):
    i = cuda.grid(1)
    out[i] = x[i * stride + offset]


def column(out, x, width):
    tile = cuda.shared.array(0, "f4")
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
    tile[j * width + i] = x[j, i]
    cuda.syncthreads()
    out[j, i] = tile[i * width + j]


def eight_bytes(out, x):
    tile = cuda.shared.array(64, "f8")
    i = cuda.threadIdx.x
    tile[i] = x[i]
    tile[i + 32] = x[i]
    cuda.syncthreads()
    out[i] = tile[i] + tile[2 * i] + tile[5]


def reduction(out, x):
    part = cuda.shared.array(64, "f4")
    i = cuda.threadIdx.x
    part[i] = x[i]
    half = 32
    while half > 0:
        cuda.syncthreads()
        if i < half:
            part[i] += part[i + half]
        half //= 2
    if i == 0:
        out[0] = part[0]


def load(stride, offset=0, dtype="f4", lanes=32):
    x = np.ones((lanes - 1) * stride + offset + 1, dtype)
    return lab.trace(
        strided, 1, lanes, np.zeros(lanes, dtype), x, stride, offset
    ).request("x", kind="load")


def boxes(ax, style):
    """(x, y, width) of the cells drawn in a style."""
    found = []
    for drawn in ax.collections:
        face = drawn.get_facecolor()
        if (
            len(face)
            and np.allclose(face[0][:3], plot_color(style))
            and (drawn.get_hatch() == style.get("hatch"))
        ):
            corners = [path.vertices for path in drawn.get_paths()]
            found += [
                (float(c[0, 0]), float(c[0, 1]), float(c[1, 0] - c[0, 0]))
                for c in corners
            ]
    return sorted(found, key=lambda box: (box[1], box[0]))


def plot_color(style):
    from matplotlib.colors import to_rgb

    return to_rgb(style["facecolor"])


def words(ax):
    return [text.get_text() for text in ax.texts]


# -- lines of memory


def test_stride_1_is_one_full_line_with_every_lane_in_its_place():
    picture = figures.warp_lines(load(1))
    assert boxes(picture.ax, request_figures.ASKED) == [
        (4.0 * lane, 0.0, 4.0) for lane in range(32)
    ]
    assert len(boxes(picture.ax, request_figures.MOVED)) == 4
    assert (
        picture.sentence
        == "32 lanes of the warp ask for 128 bytes of x: 4 sectors in 1 line move. "
        "128 of the 128 bytes moved were asked for (100%)."
    )


@pytest.mark.parametrize(
    ("stride", "offset", "dtype", "sectors", "lines", "share"),
    [
        (2, 0, "f4", 8, 2, "50%"),
        (32, 0, "f4", 32, 32, "12%"),
        (1, 1, "f4", 5, 2, "80%"),
        (1, 0, "f8", 8, 2, "100%"),
        (1, 0, "f2", 2, 1, "100%"),
        (4, 0, "u1", 4, 1, "25%"),
        (64, 0, "f4", 32, 32, "12%"),
    ],
)
def test_sectors_and_lines_equal_those_counted_by_hand(
    stride, offset, dtype, sectors, lines, share
):
    picture = figures.warp_lines(load(stride, offset, dtype))
    assert len(boxes(picture.ax, request_figures.MOVED)) == sectors
    assert len(boxes(picture.ax, request_figures.UNTOUCHED)) == 4 * lines
    assert (
        f"{sectors} sectors in {lines} line{'s' * (lines > 1)} move" in picture.sentence
    )
    assert f"({share})" in picture.sentence


# -- banks


def tile(width):
    x = np.ones((32, 32), "f4")
    trace = lab.trace(
        column, 1, (32, 32), x.copy(), x, width, shared_bytes=4 * 32 * width
    )
    return trace.request("tile", kind="load")


def test_a_column_of_an_unpadded_tile_lies_in_one_bank():
    picture = figures.banks(tile(32))
    assert boxes(picture.ax, request_figures.CONFLICT)[:32] == [
        (0.0, float(row), 4.0) for row in range(32)
    ]
    assert not boxes(picture.ax, request_figures.ASKED)
    assert "32 rounds" in words(picture.ax)
    assert (
        picture.sentence
        == "32 lanes of the warp ask for 32 different words of tile in 1 bank, and a"
        " bank has to give up to 32 at a time: a 32-way conflict, 32 rounds."
    )


def test_a_column_of_a_padded_tile_is_a_diagonal():
    picture = figures.banks(tile(33))
    assert boxes(picture.ax, request_figures.ASKED) == [
        (4.0 * lane, float(lane), 4.0) for lane in range(32)
    ]
    assert not boxes(picture.ax, request_figures.CONFLICT)
    assert picture.sentence.endswith(
        "in 32 banks, and no bank has to give more than one at a time: no conflict, 1"
        " round."
    )


@pytest.fixture(scope="module")
def wide():
    return lab.trace(eight_bytes, 1, 32, np.zeros(32), np.zeros(32))


def test_8_byte_accesses_are_judged_by_half_warps(wide):
    picture = figures.banks(wide.request("tile", kind="load"))
    assert {"lanes 0-15", "lanes 16-31"} <= set(words(picture.ax))
    assert "64 different words of tile in 32 banks" in picture.sentence
    assert (
        "no conflict, 2 rounds. 8-byte accesses are served by half-warps"
        in picture.sentence
    )


def test_a_broadcast_is_no_conflict(wide):
    picture = figures.banks(wide.request("tile", kind="load", number=2))
    assert boxes(picture.ax, request_figures.ASKED) == [(40.0, 0.0, 8.0)]
    assert "no conflict" in picture.sentence
    assert picture.sentence.endswith(
        "Lanes that ask for the same word share it, which is no conflict."
    )


def test_pictures_of_one_memory_refuse_the_other_and_name_the_right_one(wide):
    with pytest.raises(
        KernelError,
        match=r"tile lies in shared memory. Draw this one with figures.banks",
    ):
        figures.warp_lines(wide.request("tile"))
    with pytest.raises(
        KernelError,
        match=r"x lies in global memory. Draw this one with figures.warp_lines",
    ):
        figures.banks(wide.request("x"))


# -- divergence


@pytest.fixture(scope="module")
def reduced():
    return lab.trace(reduction, 1, 64, np.zeros(1, "f4"), np.ones(64, "f4"))


def test_the_lanes_of_a_reduction_part_six_times(reduced):
    picture = figures.divergence(reduced)
    assert (
        picture.sentence
        == "Warp 0 comes 14 times to an if or a turn of a while; its lanes part at 6."
    )
    assert words(picture.ax).count("lanes part ▸") == 6
    taken = [row for _, row, _ in boxes(picture.ax, figures._TAKEN)]
    halves = [32, 16, 8, 4, 2, 1]
    # 7 turns, 6 times the if, the last if
    assert [taken.count(row) for row in range(14)] == [32] * 6 + [0, *halves, 1]


@pytest.mark.parametrize("warp", [-1, 2, 0.5, None])
def test_a_warp_that_is_not_there_is_refused(reduced, warp):
    with pytest.raises(KernelError, match="Expected a warp from 0 to 1, got"):
        figures.divergence(reduced, warp=warp)


# -- a warp at work


def test_a_warp_at_work_has_a_frame_for_each_branch_and_request(reduced):
    playing = figures.warp_at_work(reduction, reduced, most=12)
    steps = reduced.warp_steps()[:12]
    assert playing.slider.max == len(steps) - 1
    requests = sum(step.request is not None for step in steps)
    assert f"{requests} requests, and 1 branch at which lanes part." in playing.text
    assert playing.text.endswith("These are its first 12 steps.")
    data, _ = playing.data("")
    assert "data:image/png;base64," in data["text/html"]
    assert len(data["text/html"]) < 300_000
    # the second turn's if
    second_if = [step for step in steps if step.text == "i < half"][1]
    playing.slider.value = steps.index(second_if)
    assert "16 lanes take the branch, 16 do not" in playing.sentence


def test_a_frame_has_the_lanes_and_the_sectors_or_banks_of_its_line(reduced):
    scene = warp_figures._scene(reduction, reduced.warp_steps())
    read, *_ = reduced.warp_steps()
    picture = warp_figures.warp_step(read, scene)
    assert "32 lanes read x, and 4 sectors of 32 bytes move" in picture.sentence
    traced = lab.trace(
        column,
        1,
        (32, 32),
        np.zeros((32, 32), "f4"),
        np.ones((32, 32), "f4"),
        32,
        shared_bytes=4096,
    )
    collides = [
        step
        for step in traced.warp_steps()
        if step.kind == "load" and step.request.space == "shared"
    ]
    picture = warp_figures.warp_step(collides[0], warp_figures._scene(column, collides))
    assert "in 1 bank of 32: 32 rounds" in picture.sentence
    assert len(boxes(picture.ax, warp_figures.CONFLICT)) == 1


def test_what_is_no_trace_does_not_play():
    with pytest.raises(KernelError, match="Expected a trace"):
        figures.warp_at_work(reduction, 5)


# -- on axes that are there already
