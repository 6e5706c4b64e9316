"""The reader's guess: what can be one, the field that asks for it, the sentence at the
end of a cell, and the lock.
"""

import ast
import dataclasses
import json
import os
import re

import nbclient
import nbformat
import pytest

from labkit.core import results
from labkit.core.comparable import recorded
from labkit.core.results import Prediction
from labkit.core.units import is_count
from labkit.lesson import exercise_files, guesses, journal, live, notebook_files
from labkit.lesson.boards import SpeedBoard
from labkit.lesson.guesses import GuessFirst, predict
from labkit.measure.bench import Timing
from tests.helpers import code_cells, notebook_paths

pytestmark = pytest.mark.usefixtures("home")
KEY = "00.3 all threads"


@pytest.fixture
def shown(monkeypatch):
    """A notebook that somebody reads: what is shown in it by name, the last last."""
    seen = []
    monkeypatch.setattr(guesses, "attended", lambda: True)
    for module in (guesses, live):
        monkeypatch.setattr(
            module, "publish", lambda name, data, **how: seen.append((name, data, how))
        )
    monkeypatch.setattr(guesses, "_open", {})
    return seen


@pytest.mark.complete
def test_each_guess_of_a_notebook_is_answered_in_the_cell_that_measures(home):
    path = notebook_paths()[0]
    guessed = json.loads(
        path.read_text(encoding="utf-8").replace("guess = ...", "guess = 3")
    )
    solved = notebook_files.solved(guessed, exercise_files.solutions("00"))
    notebook = nbformat.reads(json.dumps(solved), as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    client = nbclient.NotebookClient(
        notebook, timeout=200, store_widget_state=False, resources=where
    )
    client.execute(
        env={**os.environ, "LABKIT_HOME": str(home), "LABKIT_PROFILE": "smoke"}
    )
    cells = [("".join(c.source), str(c.get("outputs"))) for c in notebook.cells]
    keys = re.findall(
        r'lab\.predict\("(\d\d\.\d) (.*?)"', "".join(source for source, _ in cells)
    )
    assert len(keys) >= 5
    for section, what in keys:
        told = [
            text
            for source, text in cells
            if what in source and "lab.predict" not in source
        ]
        # the second without a GPU
        said = re.compile(r"ou said 3[. ]|; your prediction: 3[. ]")
        assert any(said.search(text) for text in told), f"{section} {what}"


BAD = [
    (150, "%", {}, "Expected at most 100 %, got 150."),
    (500, "threads", {"most": 12}, "Expected at most 12 threads, got 500."),
    (-3, "s", {}, "Expected a number above 0 in s, got -3."),
    (-3, "points", {}, "Expected a number of at least 0 in points, got -3."),
    (0, "x", {}, "Expected a number above 0 in x, got 0."),
    (2.5, "samples", {}, "Expected a whole number of samples, got 2.5."),
    ("2,5", "x", {}, "Expected a number in x, such as 20, got '2,5'."),
    ("2 ms", "s", {}, "Expected a number in s, such as 20, got '2 ms'."),
]


@pytest.mark.parametrize(("guess", "unit", "more", "words"), BAD)
def test_a_guess_that_cannot_be_is_sent_back_typed_or_entered(
    shown, guess, unit, more, words
):
    assert str(predict(KEY, guess, unit, **more)) == f"{words} Nothing was noted."
    asked = predict(KEY, ..., unit, **more)
    asked.field.value = str(guess)
    asked.button.click()
    expected = (
        words
        if isinstance(guess, str)
        else words.replace(f"got {guess}", f"got '{guess}'")
    )
    assert (
        re.sub("<.*?>", "", asked.told.value).replace("&#x27;", "'")
        == f"{expected} Nothing was noted."
    )
    assert asked.field in asked.box.children[0].children
    assert results.results().entries() == shown == []


@pytest.mark.parametrize(
    ("guess", "unit", "more", "told"),
    [
        ("2,000", "images/s", {}, "2,000 images/s"),
        ("2k", "images/s", {}, "2,000 images/s"),
        ("0.5 M images/s", "images/s", {}, "500,000 images/s"),
        ("1 200 000.5", "images/s", {}, "1,200,000 images/s"),
        ("5e3", "images/s", {}, "5,000 images/s"),
        (150, "%", {"most": 1_000}, "150 %"),
        (1, "samples", {}, "1 sample"),
        (0.5, "minutes", {}, "0.500 minutes"),
        (0, "points", {"most": 100}, "0 points"),
        ("0 %", "%", {}, "0 %"),
    ],
)
def test_what_can_be_a_guess_is_kept(guess, unit, more, told):
    assert (
        str(predict(KEY, guess, unit, **more)) == f"Your guess: {told} for all threads."
    )
    assert guesses.predicted(KEY, unit) is not None


def entry():
    (found,) = (e for e in results.results().entries() if isinstance(e, Prediction))
    return found


def test_enter_and_the_button_keep_a_guess_as_if_it_had_been_typed(shown):
    predict(KEY, 2000, "images/s")
    typed = entry()
    for how in ("enter", "button"):
        predict(KEY, 1000, "images/s")
        asked = predict(KEY, ..., "images/s")
        asked.field.value = "2,000"  # with Enter, or when the field is left
        if how == "button":
            asked.button.click()
        assert (entry().value, entry().unit, entry().blind) == (
            typed.value,
            typed.unit,
            typed.blind,
        )
        gone, kept = shown[-2:]
        assert gone[1]["text/html"] == ""
        assert kept[1]["text/plain"] == "Your guess: 2,000 images/s for all threads."
        assert "widget" not in str(kept)


def test_what_the_notebook_keeps_of_an_open_question_is_text_that_its_widget_hides(
    shown,
):
    asked = predict(KEY, ..., "images/s")
    asked._ipython_display_()
    (_, kept, _), (_, live, _) = shown
    assert "todo: put a number" in kept["text/html"]
    assert kept["text/plain"] == str(asked)
    assert (
        live["application/vnd.jupyter.widget-view+json"]["model_id"]
        == asked.box.model_id
    )
    # the label, which screen readers read
    assert asked.field.description == "Your guess for all threads, in images/s"


def test_a_slider_asks_for_an_order_of_magnitude(shown):
    asked = predict(KEY, ..., "images/s", order=(10, 100_000))
    assert asked.field.value == pytest.approx(1000)
    asked.field.value = 23_456.0
    assert asked.box.children[0].children[1].value == "23,000 images/s"
    asked.button.click()
    assert entry().value == 23_000


def test_a_kept_guess_can_be_changed_until_it_is_measured(shown):
    predict(KEY, 2000, "images/s")
    again = predict(KEY, ..., "images/s")
    assert (
        "Your guess: 2,000 images/s for all threads. It can be changed until it is"
        " measured." in again.told.value
    )
    again.field.value = "3000"
    again.button.click()
    late = predict(KEY, ..., "images/s")
    journal.record(KEY, 7320.0, "images/s")
    late.field.value = "7320"
    late.button.click()
    assert (
        "Your guess: 3,000 images/s for all threads. It was measured before"
        in shown[-1][1]["text/plain"]
    )
    assert "can't be changed" in str(predict(KEY, ..., "images/s"))
    assert (entry().value, entry().blind) == (3000, True)


def test_a_later_guess_does_not_take_the_place_of_one_made_before_measuring():
    predict(KEY, 2000, "images/s")
    journal.record(KEY, 7320.0, "images/s")
    reply = str(predict(KEY, 7300, "images/s"))
    assert reply.startswith("Your guess: 2,000 images/s for all threads.")
    assert "can't be changed" in reply
    assert (entry().value, entry().blind) == (2000, True)


def said(key, guess, value, unit, **more):
    predict(key, guess, unit)
    measured = journal.record(key, value, unit, timed=False, **more)
    return guesses.in_words((measured,))


@pytest.mark.parametrize(
    ("guess", "value", "unit", "words"),
    [
        (
            2000,
            7320.0,
            "images/s",
            "You said 2,000 images/s, it was 7,320 images/s: a factor of 3.7 more.",
        ),
        (
            2000,
            500.0,
            "images/s",
            "You said 2,000 images/s, it was 500 images/s: a factor of 4.0 less.",
        ),
        (95, 97.2, "%", "You said 95.0 %, it was 97.2 %: less than a tenth off."),
        (3, 0.0, "points", "You said 3 points, it was 0 points: 3 points less."),
        (0, 16.4, "points", "You said 0 points, it was 16.4 points: 16.4 points more."),
        (0, 12.0, "%", "You said 0 %, it was 12.0 %: 12 points more."),
        (0.01, 0.0123, "s", "You said 10.0 ms, it was 12.3 ms: a factor of 1.2 more."),
    ],
)
def test_the_sentence_holds_guess_number_and_ratio(guess, value, unit, words):
    assert said(KEY, guess, value, unit) == words


def test_a_guess_that_does_not_count_says_so():
    predict(KEY, 2000, "images/s")
    calm = journal.record(KEY, 7320.0, "images/s")
    busy = dataclasses.replace(calm, busy="other programs took 30 % of the time")
    assert "doesn't count, since the machine was busy" in guesses.in_words((busy,))


def test_the_sentence_counts_the_last_ten_guesses():
    for i, value in enumerate((300, 150, 99, 100)):
        last = said(f"00.2 row {i}", 100, float(value), "images/s")
    assert last.endswith("Of your last 4 guesses, 3 were within 2x.")
    for i in range(10):
        last = said(f"00.3 row {i}", 100, 100.0 + 900 * (i > 0), "images/s")
    assert last.endswith("Of your last 10 guesses, 1 was within 2x.")
    # measured again, so it is among the last ten
    again = journal.record("00.2 row 2", 1000.0, "images/s", timed=False)
    assert guesses.in_words((again,)).endswith(
        "Of your last 10 guesses, 0 were within 2x."
    )


def test_a_guess_of_0_stands_in_the_summary_and_counts_in_no_ratio():
    said("22.3 points lost with 8 bits", 0, 0.0, "points")
    said("22.3 points lost with 3 bits", 0, 16.4, "points")
    rows = [row[1:] for row in journal.summary("22").rows]
    assert rows == [
        ("0 points", "0 points", "exactly that"),
        ("0 points", "16.4 points", "16.4 points more"),
    ]
    assert guesses.before_measuring() == []
    picture = guesses._drawn(
        (journal.record("22.3 points lost with 8 bits", 0.0, "points"),)
    )
    assert picture.sentence.endswith("exactly that.")


def asked():
    """(key, unit, most) of each guess that a notebook asks for under a name written
    out.
    """
    for path in notebook_paths():
        for text in code_cells(path):
            calls = (
                node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
            )
            for call in (
                call for call in calls if ast.unparse(call.func) == "lab.predict"
            ):
                if isinstance(call.args[0], ast.Constant):
                    most = [
                        eval(ast.unparse(one.value))
                        for one in call.keywords
                        if one.arg == "most"
                    ]
                    yield call.args[0].value, call.args[2].value, (most or [None])[0]


@pytest.mark.slow
def test_every_recorded_number_could_have_been_guessed():
    seen = 0
    refused = []
    for key, unit, most in asked():
        for m in recorded(key):
            value = float(round(m.value)) if is_count(unit) else m.value
            seen += m.unit == unit
            refused += [
                (key, m.value, why)
                for why in [guesses.refusal(value, unit, most)]
                if why and m.unit == unit
            ]
    assert seen > 150
    assert refused == []


def test_0_is_refused_where_no_quantity_of_the_unit_is_ever_0():
    refused = {unit for _, unit, most in asked() if guesses.refusal(0.0, unit, most)}
    assert refused == {
        "x",
        "times",
        "s",
        "µs",
        "h",
        "images/s",
        "FLOP/s",
        "GB/s",
        "FLOP/B",
    }


def test_a_number_that_no_board_draws_is_drawn_beside_its_guess():
    predict(KEY, 4, "x")
    picture = guesses._drawn((journal.record(KEY, 5.0, "x", origin="calculated"),))
    (diamond,) = [
        line
        for line in picture.ax.lines
        if line.get_marker() == "D" and len(line.get_xdata())
    ]
    (bar,) = picture.ax.patches
    assert (list(diamond.get_xdata()), bar.get_width(), bar.get_hatch()) == (
        [4.0],
        5.0,
        "//",
    )
    assert picture.sentence.startswith("You said 4.00 x, it was 5.00 x (calculated)")
    predict("00.2 one thread", 64, "images/s")
    timing = Timing("one thread", 1.0, (0.5, 0.5))
    assert (
        guesses._drawn(
            (journal.record("00.2 one thread", timing, "images/s", items=64),)
        )
        is None
    )


def measurements(calls):
    board = SpeedBoard("00.3", "Threads", unit="images/s")
    rows = dict.fromkeys(("one thread", "all threads"), lambda: calls.append(1))
    timing = Timing("all threads", 1.0, (0.01, 0.01))
    return {
        "time": lambda: board.time(
            "all threads", rows["all threads"], items=1, budget_s=0.01
        ),
        "compare": lambda: board.compare(rows, items=1, budget_s=0.01),
        "add": lambda: board.add("all threads", timing, items=1),
        "absent": lambda: board.absent("all threads", "a GPU"),
        "record": lambda: journal.record(KEY, 5.0, "images/s"),
    }


@pytest.mark.parametrize("way", ["time", "compare", "add", "absent", "record"])
def test_with_the_lock_nothing_is_measured_before_the_guess(shown, monkeypatch, way):
    calls = []
    measure = measurements(calls)[way]
    predict(KEY, ..., "images/s")
    predict(KEY, 0, "images/s")  # is not kept
    monkeypatch.setenv("LABKIT_LOCK", "1")
    with pytest.raises(
        GuessFirst,
        match="Write your guess for 'all threads' first, then run this cell again",
    ) as told:
        measure()
    assert told.value._render_traceback_() == [str(told.value)]
    assert calls == results.results().entries() == []
    predict(KEY, 2000, "images/s")
    measure()


def test_the_lock_is_off_by_default_in_other_sections_and_where_nobody_answers(
    shown, monkeypatch
):
    predict(KEY, ..., "images/s")
    journal.record(KEY, 5.0, "images/s")
    monkeypatch.setenv("LABKIT_LOCK", "1")
    journal.record("00.2 one thread", 5.0, "images/s")
    monkeypatch.setattr(guesses, "attended", lambda: False)
    journal.record(KEY, 5.0, "images/s")
