"""No serious fault of accessibility in what a cell draws: axe, in both applications and
themes.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe

# what labkit shows: a card, tables, a figure, boards, sliders, buttons and fields
CELLS = [
    "import numpy as np, labkit as lab\nfrom numba import cuda\nmachine = lab.start()",
    "machine",
    (
        "@cuda.jit\ndef add_one(counter):\n    counter[0] +="
        " 1\n\n\nlab.Stepper(add_one, 2, np.zeros(1, int))"
    ),
    "lab.Explorer(lab.plot.amdahl.on, share=(0.5, 1.0, 0.01), factor=[1, 2, 5, 10])",
    'lab.predict("97.3 two threads", ..., "images/s", order=(1, 1_000_000))',
    'lab.predict("97.3 one thread", ..., "images/s")',
    (
        'board = lab.SpeedBoard("97.2", "A wait", size="one", dtype="float32")\n'
        'board.time("row", lambda: sum(range(1000)), budget_s=0.1)'
    ),
    "lab.plot.gray_images({'one': np.eye(4), 'two': np.ones((4, 4))})",
    "lab.Moving((lab.plot.gray_images({str(i): np.eye(4)}) for i in range(3)), 'Three.')",
    'lab.check("00.3", lambda one, every, threads: one / every)',
    'lab.hint("00.3")',
    'lab.cards("00")',
    "lab.catalog.table()",
    'lab.summary("97")',
]
THEMES = ("JupyterLab Light", "JupyterLab Dark")
CHANGE = "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})"
# "region" is the page's own: every part of it belongs to a landmark
OPTIONS = {"resultTypes": ["violations"], "rules": {"region": {"enabled": False}}}
DRAWN = {"include": [[".jp-OutputArea-output"]]}


def serious_faults(page):
    violations = Axe().run(page, context=DRAWN, options=OPTIONS).response["violations"]
    return [
        f"{fault['help']}: {[node['html'][:200] for node in fault['nodes'][:3]]}"
        for fault in violations
        if fault["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("application", ["JupyterLab", "Notebook 7"])
def test_what_cells_draw_has_no_serious_fault_of_accessibility(opened, application):
    screen = {"viewport": {"width": 1280, "height": 6000}}
    name = f"axe-{application.split()[0]}"
    notebook = opened(name, CELLS, application=application, **screen)
    page = notebook.page
    for theme in THEMES:
        page.evaluate(CHANGE, theme)
        is_light = str(theme.endswith("Light")).lower()
        page.wait_for_selector(
            f"body[data-jp-theme-light='{is_light}']", state="attached"
        )
        page.wait_for_timeout(1_000)  # the theme's style sheet comes a moment after
        assert serious_faults(page) == [], theme
    names = [
        button.get_attribute("title") or button.inner_text().strip()
        for button in page.locator(".jupyter-widgets button:visible").all()
    ]
    assert {"play", "back", "step", "Keep this guess"} <= set(names)
    assert all(names)
