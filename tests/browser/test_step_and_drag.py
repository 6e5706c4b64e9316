"""Threads that are stepped through and schedules that are dragged: by mouse, by keyboard, and when opened again."""

import os
import shutil

import pytest

from tests.browser.conftest import Notebook, serving
from tests.browser.test_boards import CONTRAST, outputs, write

CELLS = [
    "import numpy as np, labkit as lab\nfrom numba import cuda",
    "@cuda.jit\ndef add_one(counter):\n    counter[0] += 1\n\n\nlab.Stepper(add_one, 2, np.zeros(1, int))",
    "from exercises.nb14.schedule_editor import ScheduleEditor\n"
    "puzzle = ScheduleEditor(lab.schedule.gpipe(3, 5), forward_s=0.1, backward_s=0.2)\npuzzle",
]
LOST = "thread 1 writes 1 to counter[0]: thread 0's 1 is lost"


@pytest.fixture(scope="module")
def page(chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 1600})
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def ran(page, lab_server):
    address, folder = lab_server
    path = folder / "notebooks" / "92_step_and_drag.ipynb"
    write(path, CELLS)
    notebook = Notebook(page, address, path)
    notebook.run_all()
    return notebook


@pytest.fixture(scope="module")
def stepper(ran):
    return ran.page.locator(".jp-CodeCell", has_text="add_one").first


@pytest.fixture(scope="module")
def editor(ran):
    return ran.page.locator(".jp-CodeCell", has_text="ScheduleEditor").first


def drag(page, block, to):
    """Drag the middle of one block to the left edge of another."""
    block.scroll_into_view_if_needed()
    box, goal = block.bounding_box(), to.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(goal["x"], goal["y"] + 5, steps=5)
    page.mouse.up()


def test_play_shows_one_step_after_another_until_an_addition_is_lost(stepper):
    stepper.get_by_text("No thread has accessed memory yet.").locator("visible=true").wait_for()
    assert stepper.get_by_text("reads 0 from counter[0]").locator("visible=true").count() == 0
    stepper.locator(".widget-play button").first.click()
    stepper.get_by_text("Step 2 of 4").locator("visible=true").wait_for()
    stepper.get_by_text(f"Step 4 of 4: {LOST}").locator("visible=true").wait_for()


def test_the_arrow_keys_go_back_and_forth(stepper):
    """After the test above, at the last step."""
    stepper.locator(".noUi-handle").focus()
    stepper.page.keyboard.press("ArrowLeft")
    stepper.get_by_text("Step 3 of 4: thread 0 writes 1").locator("visible=true").wait_for()
    stepper.page.keyboard.press("Home")
    stepper.get_by_text("No thread has accessed memory yet.").locator("visible=true").wait_for()


def test_the_reader_chooses_who_goes_on(stepper):
    """After the test above, at the start."""
    for _ in range(2):
        stepper.get_by_role("button", name="step of thread 1").click()
    stepper.get_by_text("Step 2 of 4: thread 1 writes 1").locator("visible=true").wait_for()
    assert stepper.get_by_role("button", name="step of thread 1").is_disabled()
    stepper.get_by_role("button", name="step", exact=True).focus()
    for _ in range(2):
        stepper.page.keyboard.press("Enter")
    stepper.get_by_text("memory ends the same").locator("visible=true").wait_for()


def test_a_step_is_dragged_to_where_its_input_is_ready(editor):
    said = editor.get_by_role("status")
    assert "5 on each rank" in said.inner_text()
    drag(editor.page, editor.locator("[data-step='2 B0']"), editor.locator("[data-step='2 F1']"))
    editor.get_by_text("held at once: 5, 5, 4").locator("visible=true").wait_for()


def test_a_step_that_lacks_its_input_goes_back_and_the_reason_is_said(editor):
    before = editor.locator("[data-step='1 B0']").bounding_box()
    drag(editor.page, editor.locator("[data-step='1 B0']"), editor.locator("[data-step='1 F0']"))
    editor.get_by_text("Put F0 in front of B0.").locator("visible=true").wait_for()
    assert editor.locator("[data-step='1 B0']").bounding_box() == before


def test_the_arrow_keys_move_a_step_and_it_stays_in_focus(editor):
    editor.locator("[data-step='1 B0']").focus()
    for _ in range(4):
        editor.page.keyboard.press("ArrowLeft")
    editor.page.wait_for_function("""() => {
        const [f0, b0] = ['1 F0', '1 B0'].map(name => document.querySelector(`[data-step='${name}']`));
        return f0.nextElementSibling === b0;
    }""")
    assert editor.page.evaluate("document.activeElement.dataset.step") == "1 B0"
    assert "rank 1: B0, " in editor.locator("[data-step='1 B0']").get_attribute("aria-label")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_both_can_be_read_in_both_themes(ran, stepper, editor, theme):
    """`LABKIT_SCREENSHOT=FOLDER` keeps pictures of both."""
    page = ran.page
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_timeout(1_500)  # the theme's style sheet comes a moment after
    found = page.evaluate(CONTRAST)
    if folder := os.environ.get("LABKIT_SCREENSHOT"):
        for name, cell in (("stepper", stepper), ("editor", editor)):
            cell.scroll_into_view_if_needed()
            cell.screenshot(path=f"{folder}/{name} {theme}.png")
    assert "counter[0] += 1" in " ".join(text for _, text in found)
    assert [each for each in found if each[0] < 4.5] == []


def test_a_notebook_that_is_opened_again_shows_the_table_and_the_picture(ran, page, tmp_path):
    cells = outputs(ran)
    (kept, text), _ = cells[1]
    assert "thread 1" in "".join(kept["text/html"])
    assert "With one thread after another, memory ends the same." in text
    assert "image/png" in cells[2][0][0]
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / "tomorrow.ipynb"
    shutil.copy(ran.path, path)
    with serving(tmp_path) as address:
        again = Notebook(page, address, path, to_run=False)
        page.wait_for_function("() => [...document.querySelectorAll('.jupyter-widgets')].some(e => !e.children.length)")
        assert page.locator(".jupyter-widgets:visible").count() == 0
        assert page.locator(".jp-OutputArea-output table:visible").count() == 2
        assert page.locator(".jp-OutputArea-output img:visible").get_attribute("alt").startswith("Simulated: ")
        page.get_by_text("Run this cell to go through the steps yourself.").locator("visible=true").wait_for()
        assert again.path == path
