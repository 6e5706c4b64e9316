"""The figures of kernels: what they draw is read back from the axes, and their sentences against counts by hand."""

import numpy as np
import pytest
from numba import cuda

import labkit as lab
from exercises.nb04 import figures, request_figures
from kerneltrace import Request
from labkit import plot
from labkit.core.errors import KernelError

pytestmark = pytest.mark.slow  # draws traced kernels


def strided(out, x, stride, offset):
    i = cuda.grid(1)
    out[i] = x[i * stride + offset]


def second_field(out, points):
    i = cuda.grid(1)
    out[i] = points[i].y


def histogram(bins, x):
    cuda.atomic.add(bins, x[cuda.grid(1)], 1)


def column(out, x, width):
    tile = cuda.shared.array(0, "f4")
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
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


def countdown(out, n):
    i = cuda.grid(1)
    left = n * (i + 1)
    while left > 0:
        left -= 1
    if i >= 3 and (out.size > 100_000 or out.size > 200_000 or out.size > 300_000):
        out[i] = 1


def no_branch(out):
    out[cuda.grid(1)] = 1


def cube(out):
    i, j, k = cuda.grid(3)
    out[k, j, i] = 1


def load(stride, offset=0, dtype="f4", lanes=32):
    x = np.ones((lanes - 1) * stride + offset + 1, dtype)
    return lab.trace(strided, 1, lanes, np.zeros(lanes, dtype), x, stride, offset).request("x", kind="load")


def boxes(ax, style):
    """(x, y, width) of the cells drawn in a style."""
    found = []
    for drawn in ax.collections:
        face = drawn.get_facecolor()
        if len(face) and np.allclose(face[0][:3], plot_color(style)) and (drawn.get_hatch() == style.get("hatch")):
            corners = [path.vertices for path in drawn.get_paths()]
            found += [(float(c[0, 0]), float(c[0, 1]), float(c[1, 0] - c[0, 0])) for c in corners]
    return sorted(found, key=lambda box: (box[1], box[0]))


def plot_color(style):
    from matplotlib.colors import to_rgb

    return to_rgb(style["facecolor"])


def words(ax):
    return [text.get_text() for text in ax.texts]


def lanes_in_cells(ax):
    return [text for text in words(ax) if text.isdigit()]


# -- lines of memory


def test_stride_1_is_one_full_line_with_every_lane_in_its_place():
    picture = figures.warp_lines(load(1))
    assert boxes(picture.ax, request_figures.ASKED) == [(4.0 * lane, 0.0, 4.0) for lane in range(32)]
    assert len(boxes(picture.ax, request_figures.MOVED)) == 4
    assert picture.sentence == (
        "32 lanes of the warp ask for 128 bytes of x: 4 sectors in 1 line move. "
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
def test_sectors_and_lines_equal_those_counted_by_hand(stride, offset, dtype, sectors, lines, share):
    picture = figures.warp_lines(load(stride, offset, dtype))
    assert len(boxes(picture.ax, request_figures.MOVED)) == sectors
    assert len(boxes(picture.ax, request_figures.UNTOUCHED)) == 4 * lines
    assert f"{sectors} sectors in {lines} line{'s' * (lines > 1)} move" in picture.sentence
    assert f"({share})" in picture.sentence


def test_a_misaligned_warp_reaches_into_the_next_line():
    picture = figures.warp_lines(load(1, 1))
    assert boxes(picture.ax, request_figures.ASKED)[0] == (4.0, 0.0, 4.0)
    assert boxes(picture.ax, request_figures.ASKED)[-1] == (0.0, 1.0, 4.0)  # lane 31
    assert {"byte 0", "byte 128"} <= set(words(picture.ax))


def test_lines_left_out_are_a_break_and_said_once():
    picture = figures.warp_lines(load(64))
    assert words(picture.ax).count("⋮ 1 line left out") == 1
    assert len(picture.ax.lines) == 31
    rows = [y for _, y, _ in boxes(picture.ax, request_figures.ASKED)]
    assert (np.diff(rows) > 1).all()
    assert [y for _, y, _ in boxes(picture.ax, request_figures.MOVED)] == rows
    assert "byte 256" in words(picture.ax)
    assert "byte 128" not in words(picture.ax)


def test_adjacent_lines_have_no_break():
    assert not figures.warp_lines(load(32)).ax.lines


def test_an_array_of_records_leaves_two_thirds_unasked():
    points = np.zeros(32, [("x", "f4"), ("y", "f4"), ("z", "f4")])
    trace = lab.trace(second_field, 1, 32, np.zeros(32, "f4"), points)
    picture = figures.warp_lines(trace.request("points", kind="load"))
    assert "12 sectors in 3 lines move. 128 of the 384 bytes moved were asked for (33%)" in picture.sentence
    assert boxes(picture.ax, request_figures.ASKED)[:2] == [(4.0, 0.0, 4.0), (16.0, 0.0, 4.0)]


def test_lanes_that_share_bytes_are_counted_in_the_cell_and_the_sentence():
    picture = figures.warp_lines(load(0, 3))
    assert boxes(picture.ax, request_figures.ASKED) == [(12.0, 0.0, 4.0)]
    assert {"32×", "lanes 0-31"} <= set(words(picture.ax))
    assert picture.sentence == (
        "32 lanes of the warp ask for 128 bytes of x, 4 of them different: 1 sector in 1 line moves. "
        "4 of the 32 bytes moved were asked for (12%)."
    )


def test_the_ratio_in_the_sentence_is_that_of_the_counts():
    trace = lab.trace(strided, 1, 32, np.zeros(32), np.ones(200), 3, 1)
    assert f"({trace.count('x').efficiency:.0%})" in figures.warp_lines(trace.request("x")).sentence


def test_atomics_of_a_scattered_warp_name_the_lanes_of_a_line():
    bins = lab.trace(histogram, 1, 32, np.zeros(64, "i4"), np.repeat([0, 40], 16))
    picture = figures.warp_lines(bins.request("bins", kind="atomic"))
    assert words(picture.ax).count("16×") == 2
    assert {"lanes 0-15", "lanes 16-31"} <= set(words(picture.ax))


def test_a_part_of_a_warp_is_told():
    assert figures.warp_lines(load(1, lanes=1)).sentence.startswith(
        "1 lane of the warp asks for 4 bytes of x: 1 sector"
    )


def test_an_access_across_two_lines_is_drawn_in_both():
    request = Request(np.array([0]), np.array([126]), 4, 0, "x", "global", 1, "x[i]")
    assert boxes(figures.warp_lines(request).ax, request_figures.ASKED) == [(126.0, 0.0, 2.0), (0.0, 1.0, 2.0)]


def test_a_view_starts_before_its_line():
    trace = lab.trace(strided, 1, 4, np.zeros(4, "f4"), np.ones(40, "f4")[8:], 1, 0)
    assert "byte -32" in words(figures.warp_lines(trace.request("x")).ax)


# -- banks


def tile(width):
    x = np.ones((32, 32), "f4")
    trace = lab.trace(column, 1, (32, 32), x.copy(), x, width, shared_bytes=4 * 32 * width)
    return trace.request("tile", kind="load")


def test_a_column_of_an_unpadded_tile_lies_in_one_bank():
    picture = figures.banks(tile(32))
    assert boxes(picture.ax, request_figures.CONFLICT)[:32] == [(0.0, float(row), 4.0) for row in range(32)]
    assert not boxes(picture.ax, request_figures.ASKED)
    assert "32 rounds" in words(picture.ax)
    assert picture.sentence == (
        "32 lanes of the warp ask for 32 different words of tile in 1 bank, and a bank has to give up to 32 at a time: "
        "a 32-way conflict, 32 rounds."
    )


def test_a_column_of_a_padded_tile_is_a_diagonal():
    picture = figures.banks(tile(33))
    assert boxes(picture.ax, request_figures.ASKED) == [(4.0 * lane, float(lane), 4.0) for lane in range(32)]
    assert not boxes(picture.ax, request_figures.CONFLICT)
    assert picture.sentence.endswith(
        "in 32 banks, and no bank has to give more than one at a time: no conflict, 1 round."
    )


def test_half_the_padding_is_a_two_way_conflict():
    picture = figures.banks(tile(34))
    assert "in 16 banks, and a bank has to give up to 2 at a time: a 2-way conflict" in picture.sentence
    assert len(boxes(picture.ax, request_figures.CONFLICT)) == 32 + 16  # the lanes, and the banks below
    assert not boxes(picture.ax, request_figures.ASKED)


@pytest.fixture(scope="module")
def wide():
    return lab.trace(eight_bytes, 1, 32, np.zeros(32), np.zeros(32))


def test_8_byte_accesses_are_judged_by_half_warps(wide):
    picture = figures.banks(wide.request("tile", kind="load"))
    assert {"lanes 0-15", "lanes 16-31"} <= set(words(picture.ax))
    assert "64 different words of tile in 32 banks" in picture.sentence
    assert "no conflict, 2 rounds. 8-byte accesses are served by half-warps" in picture.sentence


def test_a_stride_of_two_8_byte_elements_conflicts_within_the_half(wide):
    picture = figures.banks(wide.request("tile", kind="load", number=1))
    assert "a 2-way conflict, 4 rounds" in picture.sentence  # lanes 0 and 8 of a half, 128 bytes apart
    assert words(picture.ax).count("2 rounds") == 2


def test_a_broadcast_is_no_conflict(wide):
    picture = figures.banks(wide.request("tile", kind="load", number=2))
    assert boxes(picture.ax, request_figures.ASKED) == [(40.0, 0.0, 8.0)]
    assert "no conflict" in picture.sentence
    assert picture.sentence.endswith("Lanes that ask for the same word share it, which is no conflict.")


def test_pictures_of_one_memory_refuse_the_other_and_name_the_right_one(wide):
    with pytest.raises(KernelError, match=r"tile lies in shared memory. Draw this one with figures.banks"):
        figures.warp_lines(wide.request("tile"))
    with pytest.raises(KernelError, match=r"x lies in global memory. Draw this one with figures.warp_lines"):
        figures.banks(wide.request("x"))


@pytest.mark.parametrize("draw", [figures.warp_lines, figures.banks])
def test_a_whole_trace_is_no_request(draw, wide):
    with pytest.raises(KernelError, match=r'got <?.*Take one with trace.request\("x", kind="load"\)'):
        draw(wide)


# -- divergence


@pytest.fixture(scope="module")
def reduced():
    return lab.trace(reduction, 1, 64, np.zeros(1, "f4"), np.ones(64, "f4"))


def test_the_lanes_of_a_reduction_part_six_times(reduced):
    picture = figures.divergence(reduced)
    assert picture.sentence == "Warp 0 comes 14 times to an if or a turn of a while; its lanes part at 6."
    assert words(picture.ax).count("lanes part ▸") == 6
    taken = [row for _, row, _ in boxes(picture.ax, figures._TAKEN)]
    halves = [32, 16, 8, 4, 2, 1]
    assert [taken.count(row) for row in range(14)] == [32] * 6 + [0, *halves, 1]  # 7 turns, 6 times the if, the last if


def test_rows_follow_the_source_and_turns_are_numbered(reduced):
    told = [text for text in words(figures.divergence(reduced).ax) if text.startswith(("line", "    "))]
    first = reduction.__code__.co_firstlineno
    assert told[0] == f"line {first + 5}: half > 0"
    assert told[1:7] == [f"    turn {turn}" for turn in range(2, 8)]
    assert told[7] == f"line {first + 7}: i < half"
    assert told[-1] == f"line {first + 10}: i == 0"


def test_the_other_warp_of_the_reduction_stays_together(reduced):
    assert figures.divergence(reduced, warp=1).sentence.endswith("its lanes part at 0.")


def test_lanes_that_do_not_exist_are_neither_taken_nor_not():
    trace = lab.trace(countdown, 1, 5, np.zeros(5), 0)
    picture = figures.divergence(trace)
    assert len(boxes(picture.ax, figures._ABSENT)) == 2 * 27
    assert len(boxes(picture.ax, figures._TAKEN)) + len(boxes(picture.ax, figures._NOT_TAKEN)) == 2 * 5


def test_long_labels_are_cut_and_long_loops_shortened():
    picture = figures.divergence(lab.trace(countdown, 1, 32, np.zeros(32), 5))
    labels = [text for text in words(picture.ax) if text.startswith("line")]
    assert max(map(len, labels)) <= 60
    assert labels[-1].endswith("...")
    assert "    turn 47" in words(picture.ax)
    assert "    turn 48" not in words(picture.ax)
    assert picture.sentence.endswith("Drawn are 48 of them.")  # 161 turns and the branch after the loop


def test_a_kernel_without_a_branch_says_so():
    trace = lab.trace(no_branch, 1, 32, np.zeros(32))
    assert figures.divergence(trace).sentence == "Warp 0 comes to no if and no while: its lanes can't part there."


@pytest.mark.parametrize("warp", [-1, 2, 0.5, None])
def test_a_warp_that_is_not_there_is_refused(reduced, warp):
    with pytest.raises(KernelError, match="Expected a warp from 0 to 1, got"):
        figures.divergence(reduced, warp=warp)


def test_what_is_no_trace_is_refused():
    with pytest.raises(KernelError, match=r"Expected a trace, got 'copy'\. Make one with lab.trace"):
        figures.divergence("copy")


def keys(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def guarded(out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i, 0] = 1


# -- on axes that are there already


def test_every_picture_can_follow_every_other_on_the_same_axes(reduced, wide):
    axes = plot.new_axes()
    figures.divergence.on(axes, reduced)
    figures.banks.on(axes, wide.request("tile", kind="load"))
    figures.warp_lines.on(axes, load(1))
    assert not axes.images
    assert not axes.axison
    assert len(boxes(axes, request_figures.ASKED)) == 32
    assert plot.to_png(axes).startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_explorer_slides_over_a_kernel():
    x, out = np.ones(2048, "f4"), np.zeros(64, "f4")

    def draw(axes, block, stride, offset):
        trace = lab.trace(strided, 1, block, out, x, stride, offset)
        return figures.warp_lines.on(axes, trace.request("x", kind="load"))

    explorer = lab.Explorer(draw, block=[32, 64, 16], stride=(1, 32), offset=(0, 31))
    assert "4 sectors in 1 line" in explorer.sentence
    for name, value in (("stride", 32), ("offset", 1), ("block", 16)):
        explorer.controls[name].value = value
    explorer.redraw()
    assert explorer.sentence.startswith("16 lanes of the warp ask for 64 bytes of x: 16 sectors in 16 lines move.")
