"""What becomes of boards, curves, sliders and figures: live, at the end of a cell, and in a notebook opened again."""

import json
import re
import shutil
from pathlib import Path

import pytest
from nbconvert import HTMLExporter

from tests.browser.conftest import Notebook, serving

CELLS = [
    "import os, threading, time\nimport labkit as lab",
    'lab.predict("00.3 one thread", 300, "images/s")',
    'board = lab.SpeedBoard("00.3", "One thread against two", unit="images/s")\n'
    'board.limit("one thread", 900)\n'
    'board.time("one thread", lambda: time.sleep(0.02), items=8, budget_s=1.5);',
    'board.time("two threads", lambda: time.sleep(0.02), items=8, budget_s=1.5);',
    'curves = lab.Curves("Cut off")\nfor i in range(30):\n    curves.add(loss=3 / (i + 1))\n    assert i < 20',
    "lab.Explorer(lab.plot.amdahl.on, share=(0.5, 1.0, 0.01), factor=[1, 2, 5, 10])",
    'lab.plot.amdahl(share=0.9, factor=10, title="Ten times")',
    'lab.check("00.3", 5)',
    'lab.summary("00")',
    "1 / 0  # a run of all cells ends here",
    "threading.Timer(3.5, os.kill, (os.getpid(), 9)).start()\n"
    'killed = lab.SpeedBoard("00.2", "A kernel that is killed", unit="images/s")\n'
    'killed.time("cut off", lambda: time.sleep(0.02), items=8, budget_s=60)',
]
WIDGET = "application/vnd.jupyter.widget-view+json"
DEAD = "model not found"
BEGUN, ADDED, SLIDERS, KILLED = 2, 3, 5, 10  # cells
IMAGES = ".jp-OutputArea-output img:visible"


def write(path, cells):
    made = [
        {"cell_type": "code", "id": f"c{i}", "source": source, "outputs": [], "execution_count": None}
        | {"metadata": {"tags": ["raises-exception"]} if "assert" in source else {}}
        for i, source in enumerate(cells)
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(whole), encoding="utf-8")


@pytest.fixture(scope="module")
def page(chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 3000}, device_scale_factor=2)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def ran(page, lab_server):
    """A notebook that has been run whole in JupyterLab."""
    address, folder = lab_server
    path = folder / "notebooks" / "91_boards.ipynb"
    write(path, CELLS)
    notebook = Notebook(page, address, path)
    notebook.run_all()
    return notebook


def outputs(notebook):
    """Of each cell, the outputs that the saved file holds: (MIME types and data, text)."""
    notebook.save()
    cells = json.loads(notebook.path.read_text(encoding="utf-8"))["cells"]
    return [[(o["data"], "".join(o["data"]["text/plain"])) for o in cell["outputs"] if "data" in o] for cell in cells]


# Notes every 30 ms which images a cell shows, of which size, and where the cell stands on the screen.
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


def assert_reads_without_a_kernel(notebook):
    """The sliders' widget is dead, which nobody sees; every figure is there with its sentence."""
    page = notebook.page
    page.wait_for_function("() => [...document.querySelectorAll('.jupyter-widgets')].some(e => !e.children.length)")
    dead = page.locator(".jupyter-widgets")
    assert dead.inner_text() == "Error displaying widget: model not found"
    assert not dead.is_visible()
    images = page.locator(IMAGES)
    assert images.count() == 4
    assert all(image.evaluate("e => e.complete && e.naturalWidth > 300") for image in images.all())
    assert all(image.get_attribute("alt") for image in images.all())
    text = "\n".join(page.locator(".jp-OutputArea-output:visible").all_inner_texts())
    assert text.count("limit: 2.17x. Run this cell to move the sliders.") == 1


def run_and_watch(notebook, number):
    """Run a cell again, and return what WATCH saw, without double entries."""
    cell = notebook.page.locator(".jp-CodeCell").nth(number)
    notebook.scroll_to(cell).click()
    notebook.page.keyboard.press("Escape")
    cell.evaluate(WATCH)
    notebook.page.keyboard.press("Control+Enter")
    notebook.page.wait_for_function("() => window.seen.some(each => each.images.some(image => image[0] == 'live'))")
    notebook.wait_until_idle()
    return notebook.page.evaluate("() => { clearInterval(window.watcher); return window.seen }")


def test_at_the_end_of_a_cell_only_the_picture_and_its_sentence_stay(ran):
    cells = outputs(ran)
    for cell, words in ((cells[3], "two threads: "), (cells[4], "loss by step: ")):
        (picture, _), (_, sentence) = cell
        assert "image/png" in picture
        assert WIDGET not in picture
        assert words in sentence
    assert [number for number, cell in enumerate(cells) if any(WIDGET in data for data, _ in cell)] == [SLIDERS]


def test_a_board_stands_once_and_leaves_its_sentence_where_it_began(ran):
    (begun, text), (_, nothing), (_, told) = outputs(ran)[BEGUN]
    assert "image/png" not in begun
    assert text.startswith("one thread: ")
    assert text.endswith("The board goes on in the cell that added to it last.")
    assert nothing == ""
    assert told.startswith("You said 300 images/s, it was ")


def test_every_figure_has_a_text_alternative(ran):
    images = ran.page.locator(IMAGES)
    texts = [image.get_attribute("alt") for image in images.all()]
    assert [bool(text) for text in texts] == [True, True, False, True]  # the sliders' live image has a sentence below


def test_a_live_board_is_one_image_of_one_size_and_so_is_its_picture(ran):
    seen = run_and_watch(ran, BEGUN)
    images = [each["images"] for each in seen if each["images"]]
    assert max(map(len, images)) == 1
    live = [image for (image,) in images if image[0] == "live"]
    assert len(live) > 10
    assert len({number for _, number, *_ in live}) == 1, "the image was replaced, which flickers"
    sizes = {(round(width), round(height)) for (_, _, width, height, wide) in (one for (one,) in images) if wide}
    assert len(sizes) == 1, sizes
    assert all(wide == pytest.approx(2 * width, abs=2) for (_, _, width, _, wide) in (i for (i,) in images) if wide)


def test_a_cell_that_begins_a_board_anew_takes_it_back(ran):
    """After the test above, which ran that cell again."""
    cells = outputs(ran)
    assert "image/png" in cells[BEGUN][0][0]
    assert "image/png" not in cells[ADDED][0][0]
    assert cells[ADDED][0][1].endswith("Run this cell to add to it again.")


def test_the_page_stays_where_it_is_when_a_board_moves_down(ran):
    ran.page.set_viewport_size({"width": 1280, "height": 700})
    seen = run_and_watch(ran, ADDED)
    ran.page.set_viewport_size({"width": 1280, "height": 3000})
    print([round(each["top"]) for each in seen][:60])
    tops = [each["top"] for each in seen]
    assert max(tops) - min(tops) < 300
    assert 0 <= min(tops) <= max(tops) < 700


def test_moved_sliders_change_the_live_picture_and_the_kept_one(ran):
    page = ran.page
    ran.scroll_to(page.locator(".noUi-handle")).focus()
    before = page.locator(".widget-image").get_attribute("src")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('.widget-image').src != before", arg=before)
    page.get_by_text("limit: 2.17x.").locator("visible=true").wait_for()
    ran.wait_until_idle()
    (kept, _), (view, _) = outputs(ran)[SLIDERS]
    assert "limit: 2.17x. Run this cell to move the sliders." in "".join(kept["text/html"])
    assert WIDGET in view


# Contrast of each text of the outputs with what is behind it, by WCAG 2.2's formula; tracebacks are JupyterLab's own.
CONTRAST = """() => {
    const rgb = text => text.match(/[\\d.]+/g).map(Number);
    const channel = c => c <= 0.04045 * 255 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const behind = e => {
        for (; e; e = e.parentElement) {
            const found = rgb(getComputedStyle(e).backgroundColor);
            if (found.length < 4 || found[3] === 1) return found;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const output of document.querySelectorAll(".jp-OutputArea-output:not([data-mime-type$='stderr'])")) {
        for (const e of output.querySelectorAll('*')) {
            const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('').trim();
            if (!text || e.tagName === 'STYLE' || !e.checkVisibility()) continue;
            const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
            found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text.slice(0, 60)]);
        }
    }
    return found;
}"""


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_all_text_can_be_read_in_both_themes(ran, theme):
    page, dark = ran.page, str(theme.endswith("Light")).lower()
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_selector(f"body[data-jp-theme-light='{dark}']", state="attached")
    page.wait_for_timeout(500)  # the theme's style sheet comes a moment after
    found = page.evaluate(CONTRAST)
    page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    told = " ".join(text for _, text in found)
    for words in ("one thread: ", "loss by step", "00.3 not yet.", "measured / guess", "Your guess: 300 images/s"):
        assert words in told
    assert [each for each in found if each[0] < 4.5] == []


@pytest.mark.parametrize("template", ["lab", "classic"])
def test_exported_pages_show_every_figure_with_its_text(ran, template):
    outputs(ran)
    page, _ = HTMLExporter(template_name=template).from_filename(str(ran.path))
    images = re.findall(r"<img[^>]*>", page)
    assert len(images) == 4
    assert all(re.search(r'alt="[^"]{20,}"', image) for image in images)
    assert "No description has been provided" not in page
    assert page.count("Run this cell to move the sliders.") == 1


@pytest.fixture(scope="module")
def saved(ran, tmp_path_factory):
    """A folder with the notebook as it was saved, as if on another day: no server or kernel knows it."""
    outputs(ran)
    folder = tmp_path_factory.mktemp("tomorrow")
    (folder / "notebooks").mkdir()
    return Path(shutil.copy(ran.path, folder / "notebooks"))


def test_jupyterlab_shows_the_pictures_of_a_notebook_that_is_opened_again(page, saved):
    with serving(saved.parent.parent) as address:
        assert_reads_without_a_kernel(Notebook(page, address, saved, to_run=False))


def test_notebook_7_shows_them_too_and_runs_them_and_a_killed_kernel_leaves_its_last_picture(page, saved):
    with serving(saved.parent.parent, "notebook") as address:
        notebook = Notebook(page, address, saved)
        assert_reads_without_a_kernel(notebook)
        notebook.run_all()
        assert page.locator(IMAGES).count() == 4
        assert page.locator(".widget-image").count() == 1
        assert not page.get_by_text("Run this cell to move the sliders.").is_visible()

        page.locator(".jp-CodeCell").nth(KILLED).click()
        page.keyboard.press("Escape")
        page.keyboard.press("Control+Enter")
        page.locator(".jp-Dialog").get_by_text("appears to have died").wait_for()
        page.keyboard.press("Enter")
        (picture, _), _ = outputs(notebook)[KILLED]
        assert re.search("cut off: .* images/s", "".join(picture["text/html"]))
        page.reload()
        page.wait_for_function(
            "() => [...document.querySelectorAll('.jupyter-widgets')].filter(e => !e.children.length).length == 2"
        )
        assert page.locator(IMAGES).count() == 5
        assert page.locator(".jupyter-widgets:visible").count() == 0
