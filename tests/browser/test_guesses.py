"""A guess that is asked for on the page: with the keyboard alone, kept as text, and
answered where it is measured.
"""

import shutil

import pytest

from tests.browser.conftest import DEAD, WIDGET, Notebook

CELLS = [
    "import os, time\nimport labkit as lab",
    'lab.predict("97.3 one thread", ..., "images/s")',
    'lab.predict("97.3 two threads", ..., "images/s", order=(1, 1_000_000))',
    'lab.predict("97.4 never answered", ..., "s")',
    (
        'board = lab.SpeedBoard("97.3", "One thread against two", unit="images/s")\n'
        'os.environ["LABKIT_LOCK"] = "1"\n'
        'for row in ("one thread", "two threads"):\n'
        "    board.time(row, lambda: time.sleep(0.02), items=8, budget_s=0.3)"
    ),
    'lab.predict("16.6 guesses within a factor of 2", 50, "%")',
    (
        "import statistics\ndef calibrated(pairs):\n    ratios = [measured / guess for"
        " guess, measured in pairs]\n    return sum(0.5 <= r <= 2 for r in ratios) /"
        ' len(ratios), statistics.median(ratios)\ndef picture():\n    lab.record("16.6'
        ' guesses within a factor of 2", 40, "%", timed=False)\n    return'
        ' lab.plot.curves({"loss": [3, 2, 1]})\nsolved = lab.check("16.6",'
        " calibrated)\nsolved.draw(picture)"
    ),
]
FIELD = 1
SLIDER = 2
OPEN = 3
BOARD = 4
PASSED = 6


@pytest.fixture(scope="module")
def asked(opened):
    """A notebook whose three guesses are asked for, and whose board waits for two of
    them.
    """
    return opened("guesses", CELLS, viewport={"width": 1280, "height": 1400})


def test_a_guess_is_asked_for_and_answered_with_the_keyboard_alone(asked):
    page = asked.page
    cell = [asked.cell(i) for i in range(len(CELLS))]
    cell[BOARD].get_by_text(
        "Write your guess for 'one thread' and 'two threads' first"
    ).wait_for()

    field = cell[FIELD].get_by_label("Your guess for one thread, in images/s")
    field.focus()
    page.keyboard.type("fast")
    page.keyboard.press("Enter")

    cell[FIELD].get_by_text(
        "Expected a number in images/s, such as 20, got 'fast'"
    ).wait_for()
    field.fill("2,000")
    page.keyboard.press("Enter")
    cell[FIELD].get_by_text("Your guess: 2,000 images/s for one thread.").wait_for()

    cell[SLIDER].locator(".noUi-handle").focus()
    page.keyboard.press("ArrowRight")
    cell[SLIDER].get_by_text("1,100 images/s").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    cell[SLIDER].get_by_text("Your guess: 1,100 images/s for two threads.").wait_for()
    page.locator(".noUi-handle").wait_for(state="detached")

    asked.run_cell(BOARD)
    asked.wait_until_idle()
    cell[BOARD].get_by_text(
        "For 'one thread' you said 2,000 images/s, it was "
    ).wait_for()

    saved = asked.outputs()
    assert saved[FIELD][0][1] == "Your guess: 2,000 images/s for one thread."
    assert [
        i for i, cell in enumerate(saved) if any(WIDGET in data for data, _ in cell)
    ] == [OPEN]
    assert saved[BOARD][-1][1].startswith(
        "For 'one thread' you said 2,000 images/s, it was "
    )


def test_a_pass_is_one_output_with_its_picture_and_the_guess(asked):
    for number in (PASSED - 1, PASSED):  # a run of all cells ended at the board
        asked.run_cell(number)
        asked.wait_until_idle()
    ((data, text),) = asked.outputs()[PASSED]
    assert text.startswith("16.6 passed: ")
    shown = asked.cell(PASSED).locator(".jp-OutputArea-output")
    image = asked.scroll_to(shown.locator("img"))
    assert image.evaluate("e => e.complete && e.naturalWidth > 300")
    assert image.get_attribute("alt").startswith("loss by step")
    (words,) = shown.all_inner_texts()
    order = [
        words.index(part) for part in ("16.6 passed.", "You said 50.0 %, it was 40.0 %")
    ]
    assert order == sorted(order)
    assert set(data) == {"text/html", "text/plain", "image/png"}


def test_opened_again_a_question_that_was_not_answered_is_a_sentence(asked, server):
    asked.save()
    path = server.notebooks / "again.ipynb"
    shutil.copy(asked.path, path)
    page = asked.page.context.new_page()
    again = Notebook(page, server, path, to_run=False)
    words = "todo: put a number in place of the dots (s)."
    again.cell(OPEN).get_by_text(words).locator("visible=true").wait_for()
    page.wait_for_function(DEAD)
    assert (
        not page.get_by_text("Error displaying widget").locator("visible=true").count()
    )
