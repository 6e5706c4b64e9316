"""The widgets' scripts on a page without Jupyter or network, loaded as anywidget loads
them, in VS Code too.
"""

import re

import pytest

from labkit.core.paths import ROOT
from labkit.lesson import live

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
