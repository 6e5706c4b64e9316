import asyncio
import time

import pytest

from labkit import journal, live, records
from labkit.bench import Timing
from labkit.explorer import Explorer
from labkit.live import Curves, SpeedBoard
from tests.test_bench import FakeDevice

pytestmark = pytest.mark.usefixtures("home")
PNG = b"\x89PNG"


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A recorded run that holds one number."""
    entry = records.Measurement("00.2", "one thread", 9000.0, "images/s", "measured", "big machine", "2026-01-01")
    (tmp_path / "big.jsonl").write_text(records.to_line(entry) + "\n")
    monkeypatch.setattr(records.recorded, "__defaults__", (tmp_path,))


def board(**kwargs):
    return SpeedBoard("00.2", "Training", unit="images/s", **kwargs)


def test_a_row_fills_and_is_recorded():
    journal.predict("00.2 one thread", 5000, "images/s")
    device, speed = FakeDevice(kernel_s=1e-2), board()
    timing = speed.time(
        "one thread", device.launch, items=64, sync=device.synchronize, clock=device.clock, budget_s=0.2, claims=["C02"]
    )
    assert timing.rate(64) == pytest.approx(6400, rel=0.01)
    assert speed.sentence.startswith("one thread: 6,400 images/s, 1.3x your guess")
    (measured,) = [e for e in records.results().entries() if isinstance(e, records.Measurement)]
    assert (measured.key, measured.claims, measured.predicted) == ("00.2 one thread", ("C02",), 5000)
    assert bytes(speed._image.value).startswith(PNG)


def test_the_picture_changes_while_the_loop_runs():
    device, speed, frames = FakeDevice(kernel_s=1e-2), board(), set()

    def launch():
        time.sleep(0.08)
        device.kernel_s *= 1.1
        device.launch()
        frames.add(bytes(speed._image.value))

    speed.time("one thread", launch, items=64, sync=device.synchronize, clock=device.clock, budget_s=0.1)
    assert len(frames) >= 3


def test_at_most_five_frames_a_second_are_drawn():
    speed = board()
    start = time.monotonic()
    speed.time("one thread", lambda: time.sleep(1e-3), items=64, budget_s=0.5)
    assert speed.frames <= 5 * (time.monotonic() - start) + 3


def test_stop_keeps_what_was_measured_and_records_nothing():
    device, speed = FakeDevice(kernel_s=1e-2), board()

    def stopped():
        if device.launches == 20:
            raise KeyboardInterrupt
        device.launch()

    with pytest.raises(KeyboardInterrupt):
        speed.time("one thread", stopped, items=64, sync=device.synchronize, clock=device.clock, budget_s=10)
    assert "6,400 images/s" in speed.sentence
    assert bytes(speed._image.value).startswith(PNG)
    assert records.results().entries() == []


def test_stop_before_the_first_reading_says_so():
    speed = board()
    with pytest.raises(KeyboardInterrupt):
        speed.time("one thread", lambda: (_ for _ in ()).throw(KeyboardInterrupt), items=64)
    assert "stopped before it was measured" in speed.sentence


def test_compare_fills_all_rows():
    speed = board()
    rows = {"one thread": lambda: time.sleep(2e-3), "all threads": lambda: time.sleep(1e-3)}
    ratio = speed.compare(rows, items=64, budget_s=0.05).ratio("all threads")
    assert ratio.verdict == "faster"
    assert "one thread" in speed.sentence
    assert "all threads" in speed.sentence
    assert len(records.results().entries()) == 2


@pytest.mark.usefixtures("recorded")
def test_recorded_values_carry_their_machine():
    speed = board()
    speed.absent("one thread", needs="a GPU")
    assert "needs a GPU; recorded runs are shown" in speed.sentence
    assert speed._bars["one thread"].others == [("recorded on big machine", 9000.0)]


def test_without_a_recorded_run_it_says_so():
    speed = board()
    speed.absent("GPU", needs="a GPU")
    assert "no recorded run has it yet" in speed.sentence


def test_a_limit_and_a_simulated_row_say_what_they_are():
    speed = board()
    speed.add("one thread", Timing("one thread", 1.0, (0.01, 0.01)), items=64, simulated=True)
    speed.limit("one thread", 64000)
    assert "6,400 images/s (simulated), 10% of the limit" in speed.sentence
    assert records.results().entries() == []


def test_curves_grow():
    curves = Curves("Loss")
    for value in (3.0, 2.0, 1.0):
        curves.add(train_loss=value)
    curves.finish()
    assert curves.sentence == "loss by step: train loss 1.00 after 3."


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


def test_moves_that_come_fast_are_drawn_once_and_the_last_is_not_lost():
    async def move():
        explored = explorer(n=(1, 100))
        for n in range(2, 60):
            explored.controls["n"].value = n
        early = explored.frames
        await asyncio.sleep(0.5)
        return early, explored

    early, explored = asyncio.run(move())
    assert early <= 2
    assert explored.frames <= 3
    assert explored.sentence.startswith("n is 59")


def test_floats_lists_and_widgets_are_controls():
    assert type(explorer(n=(0.0, 1.0, 0.1)).controls["n"]).__name__ == "FloatSlider"
    assert explorer(n=[1, 10, 100]).controls["n"].value == 1


def test_the_text_of_a_board_is_constant_so_that_a_notebook_test_can_compare_it():
    assert repr(board()) == "<SpeedBoard>"


def test_outside_a_notebook_nothing_is_published():
    speed = board()
    speed.show()
    assert speed._shown_in is None
    assert live.shell() is None
