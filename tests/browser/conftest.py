"""A real JupyterLab, driven in a real Chromium."""

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from labkit.lesson import notebook_files
from scripts import programs
from tests.needs import needs

SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SWITCHES += ["--disable-sync", "--no-first-run"]


def pytest_collection_modifyitems(items):
    for item in items:  # of the whole run, not of this folder alone
        if item.path.parent == Path(__file__).parent:
            item.add_marker(needs("chromium"))
            item.add_marker(pytest.mark.complete)


@pytest.fixture(scope="package")  # while it runs, Playwright holds an event loop that other tests must not meet
def chromium():
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=programs.path_of("chromium"), args=SWITCHES)
        yield browser
        browser.close()


@contextmanager
def serving(folder, application="jupyterlab"):
    """The address of a new server of "jupyterlab" or "notebook" (version 7) over a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", application, "--no-browser", "--allow-root", f"--port={port}"]
    command += ["--IdentityProvider.token=test", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"]
    command += [f"--LabApp.workspaces_dir={folder}/workspaces", f"--LabApp.user_settings_dir={folder}/settings"]
    log = folder / f"log of {application}"
    with open(log, "w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        _wait_for(f"http://127.0.0.1:{port}/api?token=test", server, log)
        page = "lab/tree" if application == "jupyterlab" else "notebooks"
        yield f"http://127.0.0.1:{port}/{page}/notebooks"
    finally:
        server.terminate()
        server.wait(timeout=60)


@pytest.fixture(scope="package")
def lab_server(tmp_path_factory):
    """(address, folder) of a JupyterLab over copies of the notebooks."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "notebooks").mkdir()
    for path in notebook_files.paths():
        shutil.copy(path, folder / "notebooks")
    with serving(folder) as address:
        yield address, folder


def _wait_for(url, server, log):
    for _ in range(240):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            time.sleep(0.25)
        else:
            return
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


class Notebook:
    """A notebook open in JupyterLab."""

    INDICATOR = ".jp-Notebook-ExecutionIndicator"

    def __init__(self, page, address, path, *, to_run=True):
        self.page, self.path = page, path
        page.set_default_timeout(60_000)
        page.goto(f"{address}/{path.name}?token=test&reset")
        page.wait_for_selector(f'{self.INDICATOR}[data-status="idle"]', state="attached")  # hidden on a phone
        if to_run:
            page.wait_for_timeout(5_000)  # cells run earlier may lose their widgets

    def command(self, name):
        self.page.evaluate(f"() => {{ window.jupyterapp.commands.execute('{name}') }}")

    def run_all(self, timeout_s=120):
        self.command("notebook:run-all-cells")
        self.page.wait_for_timeout(1_500)
        self.wait_until_idle(timeout_s)

    def wait_until_idle(self, timeout_s=120):
        """Idle for a second and a half without a break: between two cells the kernel looks idle too."""
        end = time.monotonic() + timeout_s
        calm = 0
        while calm < 6:
            assert time.monotonic() < end, "the notebook did not finish"
            status = self.page.locator(self.INDICATOR).get_attribute("data-status")
            calm = calm + 1 if status == "idle" else 0
            self.page.wait_for_timeout(250)

    def scroll_to(self, locator):
        """Bring a cell's part on the page; JupyterLab keeps only the cells near the view in the document."""
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
        before, end = self.path.stat().st_mtime_ns, time.monotonic() + 30
        self.command("docmanager:save")
        while self.path.stat().st_mtime_ns == before:
            assert time.monotonic() < end, "the notebook was not saved"
            self.page.wait_for_timeout(100)
        self.page.wait_for_timeout(1_000)  # it is written whole, or in pieces


@pytest.fixture(scope="package")
def open_notebook(chromium, lab_server):
    address, folder = lab_server
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})

    def opened(name):
        (path,) = (folder / "notebooks").glob(f"{name}_*.ipynb")
        return Notebook(context.new_page(), address, path)

    yield opened
    context.close()
