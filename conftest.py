"""For every test and every notebook under test: a profile, a state folder of their own, and what may run side by side."""

import os
import tempfile

import pytest

_home = tempfile.TemporaryDirectory(prefix="labkit-test-")
ON_RANKS = ("12", "13", "14", "15")  # notebooks whose cells, and exercises whose answers, run on several processes


def pytest_configure(config):
    os.environ["LABKIT_PROFILE"] = "ci"
    os.environ["LABKIT_HOME"] = _home.name


def pytest_unconfigure(config):
    _home.cleanup()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A notebook as it is runs in the smoke profile (does every cell run?), with its solutions in the ci profile."""
    os.environ["LABKIT_PROFILE"] = "smoke" if item.path.parent.name == "notebooks" else "ci"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what must not share its core (ranks, the browser, timed tests) as alone, and leave it out of `make quick`.

    With `pytest -n 2 --dist loadgroup` one worker runs all of these, first, and everything else is handed out by file.
    """
    for item in items:
        if alone := _is_alone(item):
            item.add_marker("alone")
        if alone or item.path.parent.name == "test_exercises":
            item.add_marker("slow")
        item.add_marker(pytest.mark.xdist_group("alone" if alone else str(item.path)))
    items.sort(key=lambda item: item.get_closest_marker("alone") is None)


def _is_alone(item):
    if item.path.suffix == ".ipynb":
        return item.path.name.startswith(ON_RANKS)
    number = str(item.callspec.params.get("number")) if hasattr(item, "callspec") else ""
    return (
        item.get_closest_marker("alone") is not None
        or item.path.parent.name in ("browser", "test_dist")
        or (item.path.parent.name == "test_exercises" and number.startswith(ON_RANKS))
    )


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A state folder for one test."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    return tmp_path
