"""A real JupyterLab, driven in a real Chromium."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import sync_playwright

from scripts import programs
from tests.needs import needs

# Contrast of each text of the outputs with what is behind it, by WCAG 2.2's formula;
# tracebacks are JupyterLab's own.
CONTRAST = """() => {
    const rgb = text => text.match(/[\\d.]+/g).map(Number);
    const channel = c => c <= 0.04045 * 255 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const behind = e => {
        for (; e; e = e.parentElement) {
            const color = rgb(getComputedStyle(e).backgroundColor);
            if (color.length < 4 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const texts = [];
    for (const output of document.querySelectorAll(".jp-OutputArea-output:not([data-mime-type$='stderr'])")) {
        for (const e of output.querySelectorAll('*')) {
            const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('').trim();
            if (!text || e.tagName === 'STYLE' || !e.checkVisibility()) continue;
            const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
            texts.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text.slice(0, 60)]);
        }
    }
    return texts;
}"""
DEAD = (
    "() => [...document.querySelectorAll('.jupyter-widgets')].some(e =>"
    " !e.children.length)"
)
WIDGET = "application/vnd.jupyter.widget-view+json"
IMAGES = ".jp-OutputArea-output img:visible"
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
]
SWITCHES += ["--disable-sync", "--no-first-run"]


def pytest_collection_modifyitems(items):
    for item in items:  # of the whole run, not of this folder alone
        if item.path.parent == Path(__file__).parent:
            item.add_marker(needs("chromium"))
            item.add_marker(pytest.mark.complete)


# while it runs, Playwright holds an event loop that other tests must not meet
@pytest.fixture(scope="package")
def chromium():
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=programs.path_of("chromium"), args=SWITCHES
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """One server of JupyterLab and Notebook 7 for all tests: its `url`, and its
    `notebooks`.
    """
    folder = tmp_path_factory.mktemp("served")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--port={port}", "--IdentityProvider.token=test"]
    command += [f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    command += ["--JupyterNotebookApp.expose_app_in_browser=True"]
    command += [f"--LabApp.workspaces_dir={folder}/workspaces"]
    command += [f"--LabApp.user_settings_dir={folder}/settings"]
    log = folder / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        _wait_for(f"{url}/api?token=test", process, log)
        yield SimpleNamespace(url=url, notebooks=notebooks)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _wait_for(url, process, log):
    for _ in range(240):
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            time.sleep(0.25)
        else:
            return
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


PAGES = {"JupyterLab": "lab/tree/notebooks", "Notebook 7": "notebooks/notebooks"}


class Notebook:
    """A notebook open in JupyterLab, or in Notebook 7."""

    INDICATOR = ".jp-Notebook-ExecutionIndicator"

    def __init__(self, page, server, path, *, application="JupyterLab", to_run=True):
        self.page = page
        self.path = path
        page.set_default_timeout(60_000)
        page.goto(f"{server.url}/{PAGES[application]}/{path.name}?token=test&reset")
        # hidden on a phone
        page.wait_for_selector(
            f'{self.INDICATOR}[data-status="idle"]', state="attached"
        )
        if to_run:
            page.wait_for_timeout(5_000)  # cells run earlier may lose their widgets

    def command(self, name):
        self.page.evaluate(f"() => {{ window.jupyterapp.commands.execute('{name}') }}")

    def run_all(self, timeout_s=120):
        self.command("notebook:run-all-cells")
        self.page.wait_for_timeout(1_500)
        self.wait_until_idle(timeout_s)

    def wait_until_idle(self, timeout_s=120):
        """Idle for a second and a half without a break: between two cells the kernel
        looks idle too.
        """
        end = time.monotonic() + timeout_s
        calm = 0
        while calm < 6:
            assert time.monotonic() < end, "the notebook did not finish"
            status = self.page.locator(self.INDICATOR).get_attribute("data-status")
            calm = calm + 1 if status == "idle" else 0
            self.page.wait_for_timeout(250)

    def run_cell(self, number):
        """Select a code cell and run it again."""
        self.scroll_to(self.cell(number)).click()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+Enter")

    def cell(self, number):
        return self.page.locator(".jp-CodeCell").nth(number)

    def scroll_to(self, locator):
        """Bring a cell's part on the page; JupyterLab keeps only the cells near the
        view in the document.
        """
        panel = self.page.locator(".jp-WindowedPanel-outer").first
        height = panel.evaluate("e => e.scrollHeight")
        for top in range(0, height + 600, 300):
            if locator.count():
                locator.first.scroll_into_view_if_needed()
                return locator.first
            panel.evaluate("(e, top) => { e.scrollTop = top }", top)
            self.page.wait_for_timeout(150)
        raise AssertionError(f"{locator} is nowhere in the notebook")

    def save(self):
        before = self.path.stat().st_mtime_ns
        end = time.monotonic() + 30
        self.command("docmanager:save")
        while self.path.stat().st_mtime_ns == before:
            assert time.monotonic() < end, "the notebook was not saved"
            self.page.wait_for_timeout(100)
        self.page.wait_for_timeout(1_000)  # it is written whole, or in pieces

    def outputs(self):
        """Of each cell, the outputs that the saved file holds: (MIME types and data,
        text).
        """
        self.save()
        cells = json.loads(self.path.read_text(encoding="utf-8"))["cells"]
        shown = [[o["data"] for o in cell["outputs"] if "data" in o] for cell in cells]
        return [
            [(data, "".join(data["text/plain"])) for data in cell] for cell in shown
        ]

    def contrasts(self, theme):
        """(contrast, text) of each text of the outputs in one of
        JupyterLab's themes.
        """
        page = self.page
        change = (
            "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})"
        )
        page.evaluate(change, theme)
        is_light = str(theme.endswith("Light")).lower()
        page.wait_for_selector(
            f"body[data-jp-theme-light='{is_light}']", state="attached"
        )
        page.wait_for_timeout(1_000)  # the theme's style sheet comes a moment after
        return page.evaluate(CONTRAST)


def write(path, sources):
    """A notebook of these cells."""
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": source, "outputs": []}
        | {"metadata": {"tags": ["raises-exception"] * ("assert" in source)}}
        | {"execution_count": None}
        for i, source in enumerate(sources)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}}
    path.write_text(
        json.dumps(whole | {"nbformat": 4, "nbformat_minor": 5}), encoding="utf-8"
    )


@pytest.fixture(scope="module")
def opened(chromium, server):
    """Write a notebook of these cells, open it, and run it whole."""
    contexts = []

    def open_and_run(name, sources, *, application="JupyterLab", **screen):
        contexts.append(chromium.new_context(**screen))
        path = server.notebooks / f"{name}.ipynb"
        write(path, sources)
        page = contexts[-1].new_page()
        notebook = Notebook(page, server, path, application=application)
        notebook.run_all()
        return notebook

    yield open_and_run
    for context in contexts:
        context.close()
