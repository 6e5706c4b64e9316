"""Cards in a notebook, with the keyboard alone and in both themes; and a quiz page that is open without a network."""

import os

import pytest

from exercises import bank
from teaching.__main__ import main
from tests.browser.conftest import Notebook
from tests.browser.test_boards import WIDGET, outputs, write

CELLS = ["import labkit as lab", 'lab.cards("01", count=2)']


@pytest.fixture(scope="module")
def cards(chromium, lab_server):
    address, folder = lab_server
    path = folder / "notebooks" / "94_cards.ipynb"
    write(path, CELLS)
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    notebook = Notebook(context.new_page(), address, path)
    notebook.run_all()
    yield notebook
    context.close()


def test_cards_are_answered_with_the_keyboard_alone(cards):
    page, (first, last) = cards.page, bank.cards("01")[:2]
    cell = page.locator(".jp-CodeCell").nth(1)
    cell.get_by_role("button", name=first.options[(first.right + 1) % 4]).focus()
    page.keyboard.press("Enter")
    cell.get_by_text(f"No: {first.misconception.title}.").wait_for()
    cell.get_by_text("The check says: ").wait_for()
    assert cell.locator(".labkit-option i.fa-times, .labkit-option i.fa-check").count() == 2
    cell.get_by_role("button", name="Next card").focus()
    page.keyboard.press("Enter")
    cell.get_by_text("Card 2 of 2.").locator("visible=true").wait_for()
    cell.get_by_role("button", name=last.options[last.right]).focus()
    page.keyboard.press("Space")
    cell.get_by_text("1 of 2 right.").wait_for()
    if picture := os.environ.get("LABKIT_SCREENSHOT"):
        page.screenshot(path=picture)
        page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
        page.wait_for_timeout(1_500)
        page.screenshot(path=f"{picture}.dark.png")


def test_the_notebook_keeps_the_questions_as_text(cards):
    saved = outputs(cards)[1]
    assert sum(WIDGET in data for data, _ in saved) == 1
    assert "What is wrong in this answer to exercise 01." in saved[0][1]
    assert bank.cards("01")[0].misconception.true not in str(saved)


def test_a_quiz_page_works_without_a_network_on_a_phone(chromium, tmp_path):
    assert main(["quiz", "03", "-o", str(tmp_path / "quiz.html"), "--questions", "3"]) == 0
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
    if picture := os.environ.get("LABKIT_SCREENSHOT"):
        page.screenshot(path=f"{picture}.quiz.png")
    assert [url for url in loaded if not url.startswith("file:")] == []
    context.close()
