"""For every test and notebook under test: a profile, a state folder of its own, and what may run side by side."""

import os
import re
import tempfile

import pytest

_home = tempfile.TemporaryDirectory(prefix="labkit-test-")
# What must not share its core with other tests: ranks, the browser, and the notebooks and exercises that run on ranks.
_ALONE = re.compile(
    r"tests/(browser|test_dist)/|/1[2-7]_\w+\.ipynb|test_clinic17|test_every_exercise\.py::.*\[1[237]\."
)


def pytest_configure(config):
    os.environ["LABKIT_PROFILE"] = "ci"
    os.environ["LABKIT_HOME"] = _home.name


def pytest_unconfigure(config):
    _home.cleanup()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Notebooks as they are, and shorter paths, run in the smoke profile (does every cell run?); solved, in ci."""
    os.environ["LABKIT_PROFILE"] = "smoke" if item.path.parent.name in ("notebooks", "paths") else "ci"


def pytest_collection_modifyitems(items):
    """Leave what needs a core of its own, and the exercises, out of `make quick`."""
    for item in items:
        if _ALONE.search(item.nodeid) or "/test_exercises/" in item.nodeid:
            item.add_marker("slow")


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist the tests run one after the other
def pytest_xdist_make_scheduler(config, log):
    """Hand tests out file by file, and all that needs a core of its own to one worker (`pytest -n 2`)."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "alone" if _ALONE.search(nodeid) else nodeid.split("::")[0]

    return ByFile(config, log)


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    """A calm machine, whatever else runs: otherwise the tests that run beside a test would take its verdicts away."""
    from labkit.measure import contention

    reading = contention.Reading(0.0, 2, {}, 0.0, 0.0)
    monkeypatch.setattr(contention, "read", lambda: reading)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A state folder for one test."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    return tmp_path
