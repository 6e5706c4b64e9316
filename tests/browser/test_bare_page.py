"""What works on a page without Jupyter or network: the widgets' scripts, loaded as
anywidget loads them, in VS Code too, and a saved picture that plays.
"""

import re

import pytest
from matplotlib.figure import Figure

from labkit.core.paths import ROOT
from labkit.lesson import live
from labkit.plot.moving import film
from tests.browser.test_axe import serious_faults

SCRIPTS = sorted((ROOT / "exercises").rglob("*.js"))
STEPS = [
    [0, "F0", 0.0, 0.25, "rank 0: F0"],
    [0, "F1", 0.25, 0.25, "rank 0: F1"],
    [1, "F0", 0.25, 0.25, "rank 1: F0"],
]
# A blob that is imported, as in anywidget's load_esm(), and a model of two values
# (github.com/manzt/anywidget).
RENDER = """async ([script, steps]) => {
    const url = URL.createObjectURL(new Blob([script], {type: 'text/javascript'}));
    const { render } = (await import(url)).default;
    window.sent = [];
    const values = {steps, said: 'Simulated.'};
    const model = {get: name => values[name], on: () => {}, send: message => window.sent.push(message)};
    document.body.innerHTML = '<div class="jupyter-widgets"></div>';
    render({model, el: document.body.firstChild});
}"""


@pytest.fixture
def page(chromium):
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    context.close()


def test_scripts_import_and_fetch_nothing():
    assert SCRIPTS
    for text in (*(path.read_text(encoding="utf-8") for path in SCRIPTS), live._LOOK):
        assert not re.search(
            r"\bimport\b|\brequire|\bfetch\b|https?:|\bsrc=|\burl\(", text
        )


def test_the_editor_draws_its_steps_and_sends_moves(page):
    (script,) = SCRIPTS
    page.evaluate(RENDER, [script.read_text(encoding="utf-8"), STEPS])
    page.locator("[data-step='0 F1']").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("window.sent") == [{"rank": 0, "name": "F1", "by": -1}]
    assert page.get_by_role("status").inner_text() == "Simulated."
    assert [url for url in page.asked if not url.startswith(("blob:", "about:"))] == []


def frame(i):
    figure = Figure(figsize=(2, 1))
    figure.add_subplot().plot([0, i])
    return figure


@pytest.mark.parametrize("styled", [True, False])
def test_a_saved_picture_has_one_label_to_play_and_stop_it(page, styled):
    data, _ = film(map(frame, range(3))).data("Three lines.", "Three frames.")
    html = data["text/html"]
    if not styled:
        html = re.sub(r"<style>.*?</style>", "", html)
    page.set_content(
        f"<html lang='en'><title>Saved</title><main class='jp-OutputArea-output'>{html}"
    )
    assert serious_faults(page) == []
    moving = page.locator("details img")
    label = page.get_by_text("▶ Play or stop")
    assert page.locator("main").inner_text().split("\n")[0] == "▶ Play or stop"
    for plays in (False, True, False):
        assert moving.is_visible() == plays
        assert page.locator("main").inner_text().count("lay") == 1
        label.click()
