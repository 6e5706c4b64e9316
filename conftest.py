"""For every test and every notebook under test: the smallest sizes, and a state folder of their own."""

import os
import tempfile

import pytest

_home = tempfile.TemporaryDirectory(prefix="labkit-test-")


def pytest_configure(config):
    os.environ["LABKIT_PROFILE"] = "ci"
    os.environ["LABKIT_HOME"] = _home.name


def pytest_unconfigure(config):
    _home.cleanup()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A state folder for one test."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    return tmp_path
