"""The appendix without what `make appendix` installs: each notebook says so, runs
through, and its exercises wait.
"""

import os

import nbclient
import nbformat
import pytest

from labkit.core.paths import NOTEBOOKS

NEEDED = {"20": ("tensorflow", "cv2")}


@pytest.mark.complete
@pytest.mark.slow
@pytest.mark.parametrize("number", NEEDED)
def test_a_notebook_without_its_package_says_so_and_runs_through(number, home):
    for package in NEEDED[number]:  # found first, so that the installed one isn't
        (home / f"{package}.py").write_text(f"raise ModuleNotFoundError({package!r})\n")
    notebook = nbformat.read(next(NOTEBOOKS.glob(f"{number}_*.ipynb")), as_version=4)
    path = os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])
    client = nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3")
    client.execute(
        cwd=str(NOTEBOOKS),
        env=os.environ | {"PYTHONPATH": path, "LABKIT_PROFILE": "smoke"},
    )
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [output.get("data", {}).get("text/plain", "") for output in outputs]
    assert sum("make appendix" in text for text in texts) > 3
