"""Cards in a notebook with the keyboard alone, and a quiz page that is open without a
network.
"""

from exercises import bank
from teaching.__main__ import main
from tests.browser.conftest import WIDGET

CELLS = ["import labkit as lab", 'lab.cards("01", count=2)']


def test_cards_are_answered_with_the_keyboard_alone_and_kept_as_text(opened):
    notebook = opened("cards", CELLS, viewport={"width": 1280, "height": 1000})
    first, last = bank.cards("01")[:2]
    press = notebook.page.keyboard.press
    cell = notebook.cell(1)
    wrong = first.options[(first.right + 1) % 4]
    cell.get_by_role("button", name=wrong).focus()
    press("Enter")
    cell.get_by_text(f"No: {first.misconception.title}.").wait_for()
    cell.get_by_text("The check says: ").wait_for()
    assert (
        cell.locator(".labkit-option i.fa-times, .labkit-option i.fa-check").count()
        == 2
    )
    cell.get_by_role("button", name="Next card").focus()
    press("Enter")
    cell.get_by_text("Card 2 of 2.").locator("visible=true").wait_for()
    cell.get_by_role("button", name=last.options[last.right]).focus()
    press("Space")
    cell.get_by_text("1 of 2 right.").wait_for()

    saved = notebook.outputs()[1]
    assert sum(WIDGET in data for data, _ in saved) == 1
    assert "What is wrong in this answer to exercise 01." in saved[0][1]
    assert first.misconception.true not in str(saved)


def test_a_quiz_page_works_without_a_network_on_a_phone(chromium, tmp_path):
    assert (
        main(["quiz", "03", "-o", str(tmp_path / "quiz.html"), "--questions", "3"]) == 0
    )
    context = chromium.new_context(offline=True, viewport={"width": 360, "height": 740})
    page = context.new_page()
    loaded = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto((tmp_path / "quiz.html").as_uri())
    assert page.locator("summary").count() == 12
    card = bank.cards("03")[0]
    page.locator("summary").nth(card.right).focus()
    page.keyboard.press("Enter")
    page.locator("details").nth(card.right).get_by_text("Right.").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert [url for url in loaded if not url.startswith("file:")] == []
    context.close()
