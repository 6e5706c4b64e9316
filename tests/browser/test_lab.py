"""Notebook 00 as a reader sees it."""

import json

import pytest

from labkit.core.paths import NOTEBOOKS
from tests.browser.conftest import Notebook


@pytest.fixture(scope="module")
def notebook_00(chromium, server):
    """Notebook 00 with guesses written down, run whole."""
    text = next(NOTEBOOKS.glob("00_*.ipynb")).read_text(encoding="utf-8")
    for guess in ("2", "3000", "6000", "20000", "90", "50"):
        text = text.replace("guess = ...", f"guess = {guess}", 1)
    path = server.notebooks / "00_guessed.ipynb"
    path.write_text(text, encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    notebook = Notebook(context.new_page(), server, path)
    notebook.run_all()
    yield notebook
    context.close()


def saved_cells(notebook):
    notebook.save()
    saved = json.loads(notebook.path.read_text(encoding="utf-8"))
    assert "widgets" not in saved["metadata"]
    return [cell for cell in saved["cells"] if cell["cell_type"] == "code"]


def test_notebook_00_runs_whole_and_its_boards_stay_as_pictures(notebook_00):
    notebook = notebook_00
    notebook.scroll_to(notebook.page.locator("img.labkit-picture"))
    cells = saved_cells(notebook)
    assert all(cell["execution_count"] for cell in cells)
    errors = [
        o for cell in cells for o in cell["outputs"] if o["output_type"] == "error"
    ]
    assert errors == []
    shown = [output for cell in cells for output in cell["outputs"]]
    boards = [
        o
        for o in shown
        if "<SpeedBoard>" in "".join(o.get("data", {}).get("text/plain", ""))
    ]
    assert len(boards) >= 4
    assert not [
        o for o in boards if "application/vnd.jupyter.widget-view+json" in o["data"]
    ]
    assert all("image/png" in output["data"] for output in boards)
    sentences = [output["metadata"]["image/png"]["alt"] for output in boards]
    assert sentences[0].startswith("one thread: ")
    unfinished = [sentence for sentence in sentences if "not measured yet" in sentence]
    assert unfinished == [], "the first frame was stored, not the last"
    board = notebook.page.locator(".jp-Cell", has_text='SpeedBoard("00.3"')
    notebook.scroll_to(board)
    board.first.locator(".jp-OutputArea").get_by_text("You said ").wait_for()


def test_stop_in_the_middle_of_a_board_keeps_what_was_measured(notebook_00):
    notebook = notebook_00
    page = notebook_00.page
    notebook.scroll_to(
        page.locator(".jp-CodeCell", has_text='lab.summary("00")')
    ).click()
    page.keyboard.press("Escape")
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    page.keyboard.insert_text(
        'stopped = board.time("one thread", lambda: cpu_step(), items=64, budget_s=600)'
    )
    page.keyboard.press("Control+Enter")
    page.wait_for_timeout(4_000)
    assert page.locator(notebook.INDICATOR).get_attribute("data-status") == "busy"
    notebook.command("notebook:interrupt-kernel")
    notebook.wait_until_idle(20)
    (cell,) = [
        c for c in saved_cells(notebook) if "stopped = board" in "".join(c["source"])
    ]
    assert [o["ename"] for o in cell["outputs"] if o["output_type"] == "error"] == [
        "KeyboardInterrupt"
    ]
    (shown,) = [o for o in cell["outputs"] if "image/png" in o.get("data", {})]
    assert "images/s" in shown["metadata"]["image/png"]["alt"]
