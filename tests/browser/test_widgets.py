"""Stepper, schedule editor, sliders and guesses in Notebook 7: mouse, keyboard, finger,
and without a kernel.
"""

import pytest

CELLS = [
    "import numpy as np, labkit as lab\nfrom numba import cuda",
    (
        "@cuda.jit\ndef add_one(counter):\n    counter[0] +="
        " 1\n\n\nlab.Stepper(add_one, 2, np.zeros(1, int))"
    ),
    (
        "from exercises.nb14.schedule_editor import ScheduleEditor\n"
        "ScheduleEditor(lab.schedule.gpipe(3, 5), forward_s=0.1, backward_s=0.2)"
    ),
    "lab.Explorer(lab.plot.amdahl.on, share=(0.5, 1.0, 0.01), factor=[1, 2, 5, 10])",
    'lab.predict("97.3 two threads", ..., "images/s", order=(1, 1_000_000))',
    (
        "from exercises.nb12 import ring_picture\n"
        "ring_picture.all_reduce_ring(ranks=3, megabytes=100)"
    ),
]
# cells
STEPPER = 1
EDITOR = 2
EXPLORER = 3
GUESS = 4
MOVING = 5
LOST = "thread 1 writes 1 to counter[0]: thread 0's 1 is lost"


@pytest.fixture(scope="module")
def notebook(opened):
    screen = {"viewport": {"width": 1280, "height": 2400}}
    return opened("widgets", CELLS, application="Notebook 7", **screen)


def wait_for(cell, words):
    cell.get_by_text(words).locator("visible=true").wait_for()


def press(notebook, *keys):
    for key in keys:
        notebook.page.keyboard.press(key)


def folded_or_added(notebook):
    page = notebook.page
    folded = page.locator(".jp-mod-collapsed, .jp-Cell.jp-mod-noHidden").count()
    return folded, page.locator(".jp-Cell").count()


def drag(page, block, to):
    """Drag the middle of one block to the left edge of another."""
    block.scroll_into_view_if_needed()
    box = block.bounding_box()
    goal = to.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(goal["x"], goal["y"] + 5, steps=5)
    page.mouse.up()


def test_the_stepper_plays_goes_back_and_lets_the_reader_choose(notebook):
    stepper = notebook.cell(STEPPER)
    before = folded_or_added(notebook)
    wait_for(stepper, "No thread has accessed memory yet.")
    stepper.get_by_role("button", name="play").click()
    wait_for(stepper, f"Step 4 of 4: {LOST}")
    stepper.locator(".noUi-handle").focus()
    press(notebook, "ArrowLeft")
    wait_for(stepper, "Step 3 of 4: thread 0 writes 1")
    press(notebook, "Home", "b", "a", "d", "d")  # letters that add and delete cells
    wait_for(stepper, "No thread has accessed memory yet.")
    for _ in range(2):
        stepper.get_by_role("button", name="step of thread 1").click()
    wait_for(stepper, "Step 2 of 4: thread 1 writes 1")
    assert stepper.get_by_role("button", name="step of thread 1").is_disabled()
    stepper.get_by_role("button", name="step", exact=True).focus()
    press(notebook, "Enter", "Enter")
    wait_for(stepper, "memory ends the same")
    assert folded_or_added(notebook) == before


def test_a_picture_plays_when_it_is_asked_to_and_can_be_stopped(notebook):
    moving = notebook.cell(MOVING)
    wait_for(moving, "Step 0 of 4: ")
    moving.get_by_role("button", name="play").click()
    moving.get_by_role("button", name="pause").wait_for()
    wait_for(moving, "Step 1 of 4: ")
    moving.get_by_role("button", name="forth").click()
    moving.get_by_role("button", name="play").wait_for()
    moving.locator(".noUi-handle").focus()
    press(notebook, "End")
    wait_for(moving, "has sent 133 MB in 4 of 4 messages.")


def test_a_step_is_dragged_or_moved_by_keys_to_where_its_input_is_ready(notebook):
    editor = notebook.cell(EDITOR)
    page = notebook.page
    assert "5 on each rank" in editor.get_by_role("status").inner_text()
    backward = editor.locator("[data-step='2 B0']")
    drag(page, backward, editor.locator("[data-step='2 F1']"))
    wait_for(editor, "held at once: 5, 5, 4")

    too_early = editor.locator("[data-step='1 B0']")
    place = too_early.bounding_box()
    drag(page, too_early, editor.locator("[data-step='1 F0']"))
    wait_for(editor, "Put F0 in front of B0.")
    assert too_early.bounding_box() == place, "it goes back"

    before = folded_or_added(notebook)
    too_early.focus()
    press(notebook, *["ArrowLeft"] * 4)
    page.wait_for_function("""() => {
        const [f0, b0] = ['1 F0', '1 B0'].map(name => document.querySelector(`[data-step='${name}']`));
        return f0.nextElementSibling === b0;
    }""")
    assert page.evaluate("document.activeElement.dataset.step") == "1 B0"
    assert "rank 1: B0, " in too_early.get_attribute("aria-label")
    assert folded_or_added(notebook) == before


def test_the_arrow_keys_move_sliders_and_what_has_ctrl_stays_the_notebooks(notebook):
    before = folded_or_added(notebook)
    explorer = notebook.cell(EXPLORER)
    guess = notebook.cell(GUESS)
    guess.locator(".noUi-handle").focus()
    press(notebook, "ArrowRight")
    guess.get_by_text("1,100 images/s").wait_for()
    explorer.locator(".noUi-handle").first.focus()
    press(notebook, "ArrowRight", "ArrowUp", "ArrowRight")
    wait_for(explorer, "When 53% of the time")
    press(notebook, "Control+Enter")
    notebook.wait_until_idle()
    wait_for(explorer, "When 50% of the time")  # it was run again
    assert folded_or_added(notebook) == before


def test_all_can_be_read_in_the_dark_theme(notebook):
    contrasts = notebook.contrasts("JupyterLab Dark")
    assert "counter[0] += 1" in " ".join(text for _, text in contrasts)
    assert [each for each in contrasts if each[0] < 4.5] == []


def test_without_a_kernel_the_widgets_give_way_to_what_the_notebook_keeps(notebook):
    """The last test of this notebook: it ends the kernel."""
    notebook.command("kernelmenu:shutdown")
    for number, words in {
        STEPPER: "Run this cell to go through the steps yourself.",
        EDITOR: "Run this cell to drag its steps.",
        EXPLORER: "Run this cell to move the sliders.",
        MOVING: "Run this cell to go through it step by step.",
        GUESS: "todo: put a number in place of the dots",
    }.items():
        cell = notebook.cell(number)
        wait_for(cell, words)
        live = ".jupyter-widgets:visible, .jupyter-widgets button:visible"
        assert cell.locator(live).count() == 0
    moving = notebook.cell(MOVING)
    still, plays = (
        moving.locator(f"figure {part}") for part in ("> img", "details img")
    )
    assert (still.is_visible(), plays.is_visible()) == (True, False)
    label = moving.get_by_text("▶ Play or stop")
    label.click()
    assert (still.is_visible(), plays.is_visible()) == (False, True)
    label.click()
    assert (still.is_visible(), plays.is_visible()) == (True, False)


# Widgets' parts below 24 pixels, and parts that reach over the page's edge.
TOO_SMALL = """() => {
    const parts = '.jupyter-widgets :is(button, input, select, .noUi-handle)';
    return [...document.querySelectorAll(parts)].filter(e => {
        const box = e.getBoundingClientRect();
        return e.checkVisibility() && (box.width < 24 || box.height < 24);
    }).map(e => e.outerHTML.slice(0, 90));
}"""
CUT = """() => {
    const tables = '.kernel-steps *, [role=group] *'; // these are scrolled sideways
    const beyond = e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1;
    const parts = [...document.querySelectorAll('.jp-OutputArea-output *')];
    return parts.filter(e => !e.matches(tables) && beyond(e)).map(e => e.outerHTML.slice(0, 90));
}"""


def test_on_a_phone_nothing_is_cut_and_a_finger_meets_every_part(opened):
    screen = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
    touch = {"has_touch": True, "is_mobile": True}
    phone = opened("phone", CELLS, application="Notebook 7", **screen, **touch)
    for number in (STEPPER, EDITOR, EXPLORER, GUESS, MOVING):
        cell = phone.scroll_to(phone.cell(number))
        assert cell.locator(".jupyter-widgets:visible").count() > 0
        assert phone.page.evaluate(TOO_SMALL) == []
        assert phone.page.evaluate(CUT) == []
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    stepper = phone.scroll_to(phone.cell(STEPPER))
    stepper.get_by_role("button", name="step of thread 1").tap()
    wait_for(stepper, "Step 1 of 4: thread 1 reads 0")
