import asyncio
import functools
import re
import time
from types import SimpleNamespace

import pytest

from labkit.core import comparable, results
from labkit.core.errors import BadArgument, LabError
from labkit.lesson import explorer as explorer_module, guesses, live
from labkit.lesson.boards import Curves, SpeedBoard
from labkit.lesson.explorer import Explorer
from labkit.measure.bench import Timing
from labkit.measure.contention import Contention, Watch
from tests.test_measure.test_bench import FakeDevice

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]  # draws boards
PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    """The folder of the recorded runs, in place of those that ship."""
    monkeypatch.setattr(
        comparable, "recorded", functools.partial(comparable.recorded, folder=tmp_path)
    )
    return tmp_path


@pytest.fixture
def recorded(runs):
    """A recorded run that holds one number, and a function that lets it hold others."""

    def hold(*changes):
        fields = {
            "unit": "images/s",
            "size": "batch 64",
            "dtype": "float32",
            "items": 64.0,
            "profile": "ci",
        }
        fields |= {
            "section": "00.2",
            "what": "one thread",
            "value": 9000.0,
            "origin": "measured",
        }
        fields |= {"machine": "big machine", "when": "2026-01-01"}
        entries = [results.Measurement(**fields | change) for change in changes]
        (runs / "big.jsonl").write_text(
            "".join(results.to_line(entry) + "\n" for entry in entries)
        )

    hold({})
    return hold


def board(**kwargs):
    return SpeedBoard(
        "00.2",
        "Training",
        **{"unit": "images/s", "size": "batch 64", "dtype": "float32"} | kwargs,
    )


def test_at_most_five_frames_a_second_are_drawn():
    now_s = [100.0]
    speed = board()

    def work():
        now_s[0] += 1e-2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live.time, "monotonic", lambda: now_s[0])
        speed.time("one thread", work, items=64, clock=lambda: now_s[0], budget_s=2.0)
    assert 5 < speed.frames <= 5 * (now_s[0] - 100.0) + 3


def test_a_row_fills_and_is_recorded():
    guesses.predict("00.2 one thread", 5000, "images/s")
    device = FakeDevice(kernel_s=1e-2)
    speed = board()
    timing = speed.time(
        "one thread",
        device.launch,
        items=64,
        sync=device.synchronize,
        clock=device.clock,
        budget_s=0.2,
        claims=["C02"],
    )
    assert timing.rate(64) == pytest.approx(6400, rel=0.01)
    assert speed.sentence.startswith("one thread: 6,400 images/s")
    (measured,) = [
        e for e in results.results().entries() if isinstance(e, results.Measurement)
    ]
    assert (measured.key, measured.claims, measured.predicted) == (
        "00.2 one thread",
        ("C02",),
        5000,
    )
    assert bytes(speed._image.value).startswith(PNG)


@pytest.fixture
def now_s(monkeypatch):
    """The present moment of pictures, which a test moves."""
    moment = [100.0]
    for module in (live, explorer_module):
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=lambda: moment[0])
        )
    return moment


def test_the_picture_changes_while_the_loop_runs(now_s):
    device = FakeDevice(kernel_s=1e-2)
    speed = board()
    frames = set()

    def launch():
        now_s[0] += 0.08
        device.kernel_s *= 1.1
        device.launch()
        frames.add(bytes(speed._image.value))

    speed.time(
        "one thread",
        launch,
        items=64,
        sync=device.synchronize,
        clock=device.clock,
        budget_s=0.1,
    )
    assert len(frames) >= 3


def test_stop_keeps_what_was_measured_and_records_nothing():
    device = FakeDevice(kernel_s=1e-2)
    speed = board()

    def stopped():
        if device.launches == 20:
            raise KeyboardInterrupt
        device.launch()

    with pytest.raises(KeyboardInterrupt):
        speed.time(
            "one thread",
            stopped,
            items=64,
            sync=device.synchronize,
            clock=device.clock,
            budget_s=10,
        )
    assert "6,400 images/s" in speed.sentence
    assert re.search(r"one thread: stopped after 1[5-8] readings\.$", speed.sentence)
    assert bytes(speed._image.value).startswith(PNG)
    assert results.results().entries() == []


def test_an_error_of_the_function_leaves_a_row_that_says_it_is_not_finished():
    device = FakeDevice(kernel_s=1e-2)
    speed = board()

    def fails():
        if device.launches == 20:
            raise RuntimeError("boom")
        device.launch()

    kwargs = {"items": 64, "sync": device.synchronize, "clock": device.clock}
    with pytest.raises(RuntimeError, match="boom"):
        speed.compare({"a": fails, "b": device.launch}, budget_s=10, **kwargs)
    assert re.search(
        r"a: stopped after \d+ readings\. b: stopped after \d+ readings\.$",
        speed.sentence,
    )
    assert "stopped" in speed._caption.value
    speed.time("a", device.launch, budget_s=0.1, **kwargs)
    assert "a: stopped" not in speed.sentence


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda fn: board().time("a", fn),
            "The board is in images/s: pass items=, the images that one call handles.",
        ),
        (
            lambda fn: SpeedBoard("00.2", "x").time("a", fn, items=64),
            "The board is in s: leave items= out",
        ),
        (
            lambda fn: board().time("a", fn, items=64, claims="C02"),
            "Expected claims to be a list, got 'C02'. For one",
        ),
        (
            lambda fn: board().time(" ", fn, items=64),
            "Expected a name for the row, got ' '",
        ),
        (
            lambda fn: board().time("a", 1, items=64),
            "Expected fn to be a function of no arguments, got 1.",
        ),
        (
            lambda fn: SpeedBoard("2", "x").time("a", fn),
            "Expected section to be text such as '00.3', got '2'",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused_before_it_is_measured(call, words):
    calls = []
    with pytest.raises(BadArgument, match=re.escape(words)):
        call(lambda: calls.append(1))
    assert calls == []


def test_compare_fills_all_rows():
    speed = board()
    device = FakeDevice(kernel_s=0.0)
    rows = {
        "one thread": lambda: device.wait(20e-3),
        "all threads": lambda: device.wait(1e-3),
    }
    ratio = speed.compare(rows, items=64, clock=device.clock, budget_s=0.05).ratio(
        "all threads"
    )
    assert ratio.verdict == "faster"
    assert "one thread" in speed.sentence
    assert "all threads" in speed.sentence
    assert len(results.results().entries()) == 2


def shown_beside(row="one thread", items=64, **kwargs):
    """A board with one timing, taken of `items`."""
    speed = board(**kwargs)
    speed.add(row, Timing(row, 1.0, (0.01, 0.01)), items=items)
    return speed


@pytest.mark.usefixtures("recorded")
def test_a_recorded_value_of_the_same_work_stands_beside_the_own_bar():
    speed = shown_beside()
    assert speed._bars["one thread"].others == [("recorded on big machine", 9000.0)]
    assert speed.title == "Training, batch 64, float32"
    assert speed.sentence == "one thread: 6,400 images/s."


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": "batch 256", "items": 256.0}, "batch 256, here batch 64"),
        ({"dtype": ""}, "unknown, here float32"),
        ({"items": 128.0}, "128 items a call, here 64 items a call"),
        ({"unit": "steps/s"}, "in steps/s, here in images/s"),
        (
            {"dtype": "bfloat16", "profile": "full"},
            "bfloat16, here float32; profile full, here profile ci",
        ),
        (
            {"busy": "this machine was busy: 40 % of the time waiting"},
            "its machine was busy",
        ),
        (
            {"size": "", "dtype": "", "items": None, "profile": "full"},
            "its size was not recorded",
        ),
    ],
)
def test_a_recorded_value_of_other_work_is_left_out_and_what_differs_is_said(
    recorded, change, words
):
    recorded(change)
    for speed in (shown_beside(), board()):
        if not speed._bars:
            speed.time("one thread", lambda: time.sleep(1e-4), items=64, budget_s=0.0)
        assert speed._bars["one thread"].others == []
        assert speed.sentence.endswith(f" Recorded on big machine, not shown: {words}.")


def test_the_guess_is_written_beside_a_row_that_cannot_be_measured():
    guesses.predict("00.2 GPU", 100_000, "images/s")
    speed = board()
    speed.absent("GPU", needs="a GPU")
    assert speed._bars["GPU"].note.endswith("your prediction: 100,000 images/s")


def explorer(**kwargs):
    def draw(axes, n, kind="a", on=True):
        axes.plot([0, n])
        return f"n is {n}, {kind}, {on}"

    return Explorer(draw, **kwargs)


def test_an_explorer_redraws_when_a_slider_moves():
    explored = explorer(n=(1, 9), kind=["a", "b"], on=True)
    assert explored.sentence == "n is 1, a, True"
    before = bytes(explored._image.value)
    explored.controls["n"].value = 7
    explored.controls["kind"].value = "b"
    assert explored.sentence == "n is 7, b, True"
    assert bytes(explored._image.value) != before
    assert "n is 7" in explored._caption.value


def test_moves_that_come_fast_are_drawn_once_and_the_last_is_not_lost(now_s):
    async def move():
        explored = explorer(n=(1, 100))
        for n in range(2, 60):
            explored.controls["n"].value = n
        early = explored.frames
        while explored._waiting:
            await asyncio.sleep(0.01)
        return early, explored

    early, explored = asyncio.run(move())
    assert explored.frames == early + 1
    assert early <= 2
    assert explored.sentence.startswith("n is 59")


@pytest.mark.parametrize("spec", [(1, 0), (0, 9, 0), (0, float("nan")), []])
def test_an_odd_control_is_told_what_a_control_can_be(spec):
    with pytest.raises(
        LabError, match=r"Expected \(low, high\) or \(low, high, step\).* for 'n', got"
    ):
        explorer(n=spec)


def test_an_error_after_a_move_is_told_below_the_picture_which_stays():
    def draw(axes, a):
        if a == 4:
            raise ValueError("boom")
        return f"a is {a}" if a < 5 else None

    explored = Explorer(draw, a=(1, 9))
    before = bytes(explored._image.value)
    explored.controls["a"].value = 4
    assert "For a=4 the function raised ValueError: boom" in explored._caption.value
    assert bytes(explored._image.value) == before
    explored.controls["a"].value = 5
    assert (
        "For a=5: The function must return a sentence, got None."
        in explored._caption.value
    )
    explored.controls["a"].value = 2
    assert explored.sentence == "a is 2"


def test_a_board_says_that_the_machine_was_busy(monkeypatch):
    busy = "this machine was busy: 38 % of the time waiting for a core"
    monkeypatch.setattr(Watch, "so_far", lambda self: Contention(0.38, busy))
    speed = board()
    rows = {"one": lambda: time.sleep(1e-3), "two": lambda: time.sleep(1e-3)}
    race = speed.compare(rows, items=64, budget_s=0.0)
    assert (
        "This machine was busy: 38 % of the time waiting for a core. When it is calm,"
        " rerun the cell that measured." in speed.sentence
    )
    assert speed.sentence.count("busy") == 1, "once for all rows"
    assert {e.busy for e in results.results().entries()} == {busy}
    monkeypatch.setattr(Watch, "so_far", lambda self: Contention(0.0))
    speed.time("one", rows["one"], items=64, budget_s=0.0)
    assert "waiting for a core while it measured 'two'. When" in speed.sentence
    speed.time("two", rows["two"], items=64, budget_s=0.0)
    assert "waiting for a core" not in speed.sentence
    speed.add("one", race.timings[0], items=64)
    assert "waiting for a core while it measured 'one'. When" in speed.sentence


class Page:
    """A notebook's kernel and its outputs: `run(cell, code)` runs code as that cell,
    `parts` is what stands there.
    """

    def __init__(self):
        self.events = self
        self.execution_count = 0
        self.cell = ""
        self.callbacks = []
        self.parts = {}

    def get_parent(self):
        return {"metadata": {"cellId": self.cell}}

    def register(self, event, callback):
        assert event == "post_run_cell"
        self.callbacks.append(callback)

    def unregister(self, _event, callback):
        self.callbacks = [one for one in self.callbacks if one is not callback]

    def publish(self, data, metadata, *, transient, update):
        place = transient["display_id"]
        if not update:
            self.parts[place] = [self.cell]
        # front ends ignore what would change an output that is no longer there
        if place in self.parts:
            self.parts[place][1:] = [data, metadata]

    def run(self, cell, code):
        self.execution_count += 1
        self.cell = cell
        self.parts = {
            place: part for place, part in self.parts.items() if part[0] != cell
        }
        try:
            return code()
        finally:
            for callback in list(self.callbacks):
                callback(None)

    def outputs(self, cell):
        return [data for where, data, _ in self.parts.values() if where == cell]


WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def page(monkeypatch):
    shown = Page()
    monkeypatch.setattr(live, "shell", lambda: shown)
    monkeypatch.setattr("IPython.display.publish_display_data", shown.publish)
    return shown


def measured(row="one thread", seconds=0.01):
    return row, Timing(row, 1.0, (seconds, seconds))


def test_while_a_cell_runs_there_is_a_widget_and_at_its_end_a_picture_with_its_sentence(
    page,
):
    def code():
        speed = board()
        speed.add(*measured(), items=64)
        seen.extend(page.outputs("a"))

    seen = []
    page.run("a", code)
    assert [WIDGET in data for data in seen] == [False, True]
    picture, sentence = page.outputs("a")
    assert {"image/png", "text/html", "text/plain"} == set(picture)
    assert sentence["text/plain"].startswith("one thread: 6,400 images/s.")
    assert page.callbacks == []


def test_a_board_whose_cell_fails_ends_as_a_picture_too(page):
    def code():
        curves = Curves("Loss")
        curves.add(loss=1.0)
        curves.add(loss=0.5)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        page.run("a", code)
    picture, sentence = page.outputs("a")
    assert WIDGET not in picture
    assert sentence["text/plain"] == "loss by step: loss 0.500 after 2.", (
        "the last frame, not the first"
    )


def test_a_board_stands_in_the_cell_that_added_to_it_last(page):
    speed = page.run("a", board)
    for cell, other in (("b", "c"), ("c", "b"), ("b", "c")):
        page.run(cell, lambda: speed.add(*measured(), items=64))
        assert "image/png" in page.outputs(cell)[0]
        assert not any("image/png" in data for data in page.outputs(other))
    left = page.outputs("c")[0]["text/plain"]
    assert left.startswith("one thread: 6,400 images/s.")
    assert left.endswith("The board goes on in the cell that added to it last.")


def test_sliders_keep_their_widget_and_leave_their_last_picture_for_readers_without_a_kernel(
    page,
):
    explored = page.run("a", lambda: explorer(n=(1, 9)))
    page.run("b", explored._ipython_display_)
    explored.controls["n"].value = 7
    explored.redraw()
    kept, view = page.outputs("b")
    assert WIDGET in view
    assert "n is 7, a, True Run this cell to move the sliders." in kept["text/html"]
