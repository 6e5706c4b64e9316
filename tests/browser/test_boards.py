"""What becomes of boards, curves, sliders and figures: live, at the end of a cell, and
in a notebook opened again.
"""

import re
import shutil

import pytest
from nbconvert import HTMLExporter

from tests.browser.conftest import DEAD, IMAGES, WIDGET, Notebook

CELLS = [
    "import os, threading, time\nimport labkit as lab",
    'lab.predict("00.3 one thread", 300, "images/s")',
    (
        'board = lab.SpeedBoard("00.3", "One thread against two", unit="images/s")\n'
        'board.limit("one thread", 900)\n'
        'board.time("one thread", lambda: time.sleep(0.02), items=8, budget_s=1.5);'
    ),
    'board.time("two threads", lambda: time.sleep(0.02), items=8, budget_s=1.5);',
    (
        'curves = lab.Curves("Cut off")\nfor i in range(30):\n    curves.add(loss=3 /'
        " (i + 1))\n    assert i < 20"
    ),
    "lab.Explorer(lab.plot.amdahl.on, share=(0.5, 1.0, 0.01), factor=[1, 2, 5, 10])",
    'lab.plot.amdahl(share=0.9, factor=10, title="Ten times")',
    'lab.check("00.3", 5)',
    'lab.summary("00")',
    "1 / 0  # a run of all cells ends here",
    (
        "threading.Timer(3.5, os.kill, (os.getpid(), 9)).start()\n"
        'killed = lab.SpeedBoard("00.2", "A kernel that is killed", unit="images/s")\n'
        'killed.time("cut off", lambda: time.sleep(0.02), items=8, budget_s=60)'
    ),
]
# cells
BEGUN = 2
ADDED = 3
SLIDERS = 5
KILLED = 10


@pytest.fixture(scope="module")
def ran(opened):
    """A notebook that has been run whole in JupyterLab."""
    screen = {"viewport": {"width": 1280, "height": 3000}, "device_scale_factor": 2}
    return opened("boards", CELLS, **screen)


# Notes every 30 ms which images a cell shows, of which size, and where the cell stands
# on the screen.
WATCH = """cell => {
    window.seen = [];
    const ids = new Map();
    window.watcher = setInterval(() => {
        const images = [...cell.querySelectorAll('.jp-OutputArea-output img')].filter(e => e.checkVisibility());
        window.seen.push({
            top: cell.getBoundingClientRect().top,
            images: images.map(e => {
                const box = e.getBoundingClientRect();
                if (!ids.has(e)) ids.set(e, ids.size);
                return [e.closest('.widget-vbox') ? 'live' : 'kept', ids.get(e), box.width, box.height, e.naturalWidth];
            }),
        });
    }, 30);
}"""


def run_and_watch(notebook, number):
    """Run a cell again, and return what WATCH saw."""
    notebook.scroll_to(notebook.cell(number)).evaluate(WATCH)
    notebook.run_cell(number)
    is_live = "image => image[0] == 'live'"
    seen = f"() => window.seen.some(each => each.images.some({is_live}))"
    notebook.page.wait_for_function(seen)
    notebook.wait_until_idle()
    return notebook.page.evaluate(
        "() => { clearInterval(window.watcher); return window.seen }"
    )


def test_at_the_end_of_a_cell_only_the_picture_and_its_sentence_stay(ran):
    cells = ran.outputs()
    for cell, words in ((cells[3], "two threads: "), (cells[4], "loss by step: ")):
        (picture, _), (_, sentence) = cell
        assert "image/png" in picture
        assert WIDGET not in picture
        assert words in sentence
    with_widgets = [
        i for i, cell in enumerate(cells) if any(WIDGET in data for data, _ in cell)
    ]
    assert with_widgets == [SLIDERS]
    texts = [image.get_attribute("alt") for image in ran.page.locator(IMAGES).all()]
    # the live image of the sliders too
    assert all(texts)


def test_a_board_stands_once_and_leaves_its_sentence_where_it_began(ran):
    (begun, text), (_, nothing), (_, told) = ran.outputs()[BEGUN]
    assert "image/png" not in begun
    assert text.startswith("one thread: ")
    assert text.endswith("The board goes on in the cell that added to it last.")
    assert nothing == ""
    assert told.startswith("You said 300 images/s, it was ")


def test_a_live_board_is_one_image_of_one_size_and_so_is_its_picture(ran):
    seen = run_and_watch(ran, BEGUN)
    shown = [each["images"] for each in seen if each["images"]]
    assert max(map(len, shown)) == 1
    live = [image for (image,) in shown if image[0] == "live"]
    assert len(live) > 10
    numbers = {number for _, number, *_ in live}
    assert len(numbers) == 1, "the image was replaced, which flickers"
    loaded = [image[2:] for (image,) in shown if image[4]]
    assert len({(round(width), round(height)) for width, height, _ in loaded}) == 1
    assert all(
        natural == pytest.approx(2 * width, abs=2) for width, _, natural in loaded
    )


def test_a_cell_that_begins_a_board_anew_takes_it_back(ran):
    """After the test above, which ran that cell again."""
    cells = ran.outputs()
    assert "image/png" in cells[BEGUN][0][0]
    assert "image/png" not in cells[ADDED][0][0]
    assert cells[ADDED][0][1].endswith("Run this cell to add to it again.")


def test_the_page_stays_where_it_is_when_a_board_moves_down(ran):
    ran.page.set_viewport_size({"width": 1280, "height": 700})
    seen = run_and_watch(ran, ADDED)
    ran.page.set_viewport_size({"width": 1280, "height": 3000})
    tops = [each["top"] for each in seen]
    assert max(tops) - min(tops) < 300
    assert 0 <= min(tops) <= max(tops) < 700


def test_moved_sliders_change_the_live_picture_and_the_kept_one(ran):
    page = ran.page
    ran.scroll_to(page.locator(".noUi-handle")).focus()
    before = page.locator(".widget-image").get_attribute("src")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('.widget-image').src != before", arg=before
    )
    page.get_by_text("limit: 2.17x.").locator("visible=true").wait_for()
    ran.wait_until_idle()
    (kept, _), (view, _) = ran.outputs()[SLIDERS]
    assert "limit: 2.17x. Run this cell to move the sliders." in "".join(
        kept["text/html"]
    )
    assert WIDGET in view


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_all_text_can_be_read_in_both_themes(ran, theme):
    contrasts = ran.contrasts(theme)
    shown = " ".join(text for _, text in contrasts)
    for words in (
        "one thread: ",
        "loss by step",
        "00.3 not yet.",
        "Your guess: 300 images/s",
    ):
        assert words in shown
    assert [each for each in contrasts if each[0] < 4.5] == []


def test_an_exported_page_shows_every_figure_with_its_text(ran):
    ran.save()
    page, _ = HTMLExporter(template_name="lab").from_filename(str(ran.path))
    images = re.findall(r"<img[^>]*>", page)
    assert len(images) == 4
    assert all(re.search(r'alt="[^"]{20,}"', image) for image in images)
    assert "No description has been provided" not in page
    assert page.count("Run this cell to move the sliders.") == 1


def test_notebook_7_shows_the_saved_pictures_runs_and_survives_a_killed_kernel(
    ran, server
):
    """A copy is as if opened on another day: no kernel knows its widgets."""
    ran.save()
    path = server.notebooks / "tomorrow.ipynb"
    shutil.copy(ran.path, path)
    page = ran.page
    notebook = Notebook(page, server, path, application="Notebook 7")
    page.wait_for_function(DEAD)
    assert page.locator(".jupyter-widgets:visible").count() == 0
    images = page.locator(IMAGES)
    assert images.count() == 4
    for image in images.all():
        assert image.evaluate("e => e.complete && e.naturalWidth > 300")
        assert image.get_attribute("alt")
    slide = page.get_by_text("limit: 2.17x. Run this cell to move the sliders.")
    assert slide.locator("visible=true").count() == 1

    notebook.run_all()
    assert images.count() == 4
    assert page.locator(".widget-image").count() == 1
    assert not page.get_by_text("Run this cell to move the sliders.").is_visible()

    notebook.run_cell(KILLED)
    page.locator(".jp-Dialog").get_by_text("appears to have died").wait_for()
    page.keyboard.press("Enter")
    (picture, _), _ = notebook.outputs()[KILLED]
    assert re.search("cut off: .* images/s", "".join(picture["text/html"]))
