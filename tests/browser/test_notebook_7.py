"""Stepper, editor, sliders and guesses in Notebook 7: by keyboard alone, by finger on a phone, and without a kernel."""

import os

import pytest

from tests.browser.conftest import Notebook, serving
from tests.browser.test_boards import write
from tests.browser.test_step_and_drag import CELLS as STEP_AND_DRAG

CELLS = [
    *STEP_AND_DRAG,
    "lab.Explorer(lab.plot.amdahl.on, share=(0.5, 1.0, 0.01), factor=[1, 2, 5, 10])",
    'lab.predict("97.3 two threads", ..., "images/s", order=(1, 1_000_000))',
]
STEPPER, EDITOR, EXPLORER, GUESS = 1, 2, 3, 4  # cells


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook-7")
    (folder / "notebooks").mkdir()
    for name in ("wide", "narrow"):
        write(folder / "notebooks" / f"{name}.ipynb", CELLS)
    with serving(folder, "notebook") as address:
        yield address, folder / "notebooks"


def opened(chromium, address, name, **screen):
    context = chromium.new_context(**screen)
    notebook = Notebook(context.new_page(), address[0], address[1] / f"{name}.ipynb")
    notebook.run_all()
    return notebook


@pytest.fixture(scope="module")
def notebook(chromium, address):
    ran = opened(chromium, address, "wide", viewport={"width": 1280, "height": 2400})
    yield ran
    ran.page.context.close()


@pytest.fixture(scope="module")
def phone(chromium, address):
    screen = {"width": 390, "height": 844}
    ran = opened(chromium, address, "narrow", viewport=screen, has_touch=True, is_mobile=True, device_scale_factor=2)
    yield ran
    ran.page.context.close()


def cell(notebook, number):
    found = notebook.page.locator(".jp-CodeCell").nth(number)
    notebook.scroll_to(found)
    return found


def folded_or_added(notebook):
    page = notebook.page
    return page.locator(".jp-mod-collapsed, .jp-Cell.jp-mod-noHidden").count(), page.locator(".jp-Cell").count()


def press(notebook, *keys):
    for key in keys:
        notebook.page.keyboard.press(key)


def test_arrows_space_and_tab_are_the_steppers(notebook):
    before, stepper = folded_or_added(notebook), cell(notebook, STEPPER)
    stepper.locator(".noUi-handle").focus()
    press(notebook, "ArrowRight", "ArrowRight", "ArrowLeft")
    stepper.get_by_text("Step 1 of 4: thread 0 reads 0").locator("visible=true").wait_for()
    press(notebook, "Home", "b", "a", "d", "d")  # letters that add and delete cells
    stepper.get_by_text("No thread has accessed memory yet.").locator("visible=true").wait_for()
    stepper.get_by_role("button", name="back").focus()
    press(notebook, "Tab", "Space")
    stepper.get_by_text("Step 1 of 4").locator("visible=true").wait_for()
    assert folded_or_added(notebook) == before


def test_the_arrow_keys_move_a_step_of_the_schedule(notebook):
    before, editor = folded_or_added(notebook), cell(notebook, EDITOR)
    editor.locator("[data-step='2 B0']").focus()
    press(notebook, *["ArrowLeft"] * 3)
    editor.get_by_text("held at once: 5, 5, 4").locator("visible=true").wait_for()
    assert notebook.page.evaluate("document.activeElement.dataset.step") == "2 B0"
    assert folded_or_added(notebook) == before


def test_the_arrow_keys_move_sliders(notebook):
    before, explorer, guess = folded_or_added(notebook), cell(notebook, EXPLORER), cell(notebook, GUESS)
    explorer.locator(".noUi-handle").first.focus()
    press(notebook, "ArrowRight", "ArrowUp", "ArrowRight")
    explorer.get_by_text("When 53% of the time").locator("visible=true").wait_for()
    guess.locator(".noUi-handle").focus()
    press(notebook, "ArrowRight")
    guess.get_by_text("1,100 images/s").wait_for()
    assert folded_or_added(notebook) == before


def test_escape_and_what_has_ctrl_stay_the_notebooks(notebook):
    explorer = cell(notebook, EXPLORER)
    explorer.locator(".noUi-handle").first.focus()
    press(notebook, "Control+Enter")
    notebook.wait_until_idle()
    explorer.get_by_text("When 50% of the time").locator("visible=true").wait_for()  # it was run again


# Widgets' parts below 24 pixels, and parts that reach over the page's edge.
TOO_SMALL = """() => [...document.querySelectorAll('.jupyter-widgets :is(button, input, select, .noUi-handle)')]
    .filter(e => e.checkVisibility()).map(e => [e.getBoundingClientRect(), e.outerHTML.slice(0, 90)])
    .filter(([box]) => box.width < 24 || box.height < 24).map(([box, html]) => [box.width, box.height, html])"""
CUT = """() => {
    const tables = '.kernel-steps *, [role=group] *'; // these are scrolled sideways
    const beyond = e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1;
    const parts = [...document.querySelectorAll('.jp-OutputArea-output *')].filter(e => !e.matches(tables));
    return parts.filter(beyond).map(e => e.outerHTML.slice(0, 90));
}"""


def test_on_a_phone_nothing_is_cut_and_a_finger_meets_every_part(phone):
    """`LABKIT_SCREENSHOT=FOLDER` keeps pictures of each widget."""
    page = phone.page
    for number in (STEPPER, EDITOR, EXPLORER, GUESS):
        shown = cell(phone, number)
        if folder := os.environ.get("LABKIT_SCREENSHOT"):
            shown.screenshot(path=f"{folder}/phone {number}.png")
        assert shown.locator(".jupyter-widgets:visible").count() > 0
        assert page.evaluate(TOO_SMALL) == []
        assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_finger_lets_a_thread_make_a_step(phone):
    stepper = cell(phone, STEPPER)
    stepper.get_by_role("button", name="step of thread 1").tap()
    stepper.get_by_text("Step 1 of 4: thread 1 reads 0").locator("visible=true").wait_for()


def test_without_a_kernel_the_widgets_give_way_to_what_the_notebook_keeps(notebook):
    """The last test of this notebook: it ends the kernel."""
    notebook.command("kernelmenu:shutdown")
    for number, told in (
        (STEPPER, "Run this cell to go through the steps yourself."),
        (EDITOR, "Run this cell to drag its steps."),
        (EXPLORER, "Run this cell to move the sliders."),
        (GUESS, "todo: put a number in place of the dots"),
    ):
        shown = cell(notebook, number)
        shown.get_by_text(told).locator("visible=true").wait_for()
        assert shown.locator(".jupyter-widgets:visible, .jupyter-widgets button:visible").count() == 0


def test_after_a_restart_too(phone):
    """The last test of this notebook."""
    phone.command("kernelmenu:restart")
    phone.page.locator(".jp-Dialog button.jp-mod-accept").tap()
    shown = cell(phone, EXPLORER)
    shown.get_by_text("Run this cell to move the sliders.").locator("visible=true").wait_for()
    assert shown.locator(".jupyter-widgets:visible").count() == 0
    phone.wait_until_idle()  # a server that is ended while a kernel starts waits for it
