"""Each puzzle of a page of puzzles is on one screen of JupyterLab: its statement, its
code, its picture and the verdict, before and after it is solved.
"""

import json

import pytest

from labkit.lesson import exercise_files, notebook_files
from tests.browser.conftest import Notebook

# The heights of a puzzle's cells and of what the window shows of a notebook, with the
# first of these cells at its top; and what stands in the last one.
HEIGHTS = """async first => {
    const notebook = jupyterapp.shell.currentWidget.content;
    const panel = document.querySelector('.jp-WindowedPanel-outer');
    await notebook.scrollToItem(first, 'start');
    await new Promise(resolve => setTimeout(resolve, 400));
    const cells = [0, 1, 2].map(i => notebook.widgets[first + i].node);
    return [
        cells[2].getBoundingClientRect().bottom - cells[0].getBoundingClientRect().top,
        panel.clientHeight,
        cells[2].innerText,
    ];
}"""


def opened_notebook(chromium, server, contents, name):
    """A notebook (nbformat 4 JSON) that has run whole in JupyterLab's usual layout."""
    path = server.notebooks / f"{name}.ipynb"
    path.write_text(json.dumps(contents), encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    notebook = Notebook(context.new_page(), server, path)
    notebook.run_all(timeout_s=600)
    return notebook


VERDICTS = {"open": "todo", "solved": "passed"}


@pytest.mark.parametrize("state", VERDICTS)
def test_a_puzzle_is_on_one_screen(chromium, server, state):
    for file in notebook_files.paths():
        number = file.name[:2]
        if number not in notebook_files.PUZZLES:
            continue
        contents = notebook_files.read(file)
        if state == "solved":
            solutions = exercise_files.solutions(number)
            contents = notebook_files.solved(contents, solutions)
        notebook = opened_notebook(chromium, server, contents, f"{number}_{state}")
        too_high = {}
        for i, cell in enumerate(contents["cells"]):
            puzzle = notebook_files.stub_of(cell)
            if puzzle is None:
                continue
            height, screen, text = notebook.page.evaluate(HEIGHTS, i - 1)
            assert f"{puzzle} {VERDICTS[state]}." in text, "its check has run"
            if height > screen:
                too_high[puzzle] = f"{height:.0f} of {screen:.0f} px"
        notebook.page.context.close()
        assert too_high == {}
