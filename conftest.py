"""For every test and notebook under test: a profile, and a state folder of its own."""

import contextlib
import os
import tempfile

import pytest

from scripts import copies

# Before labkit is imported; a worker of pytest-xdist has it from the process that
# started it.
if "LABKIT_NOTEBOOKS" not in os.environ and copies.worked_in():
    copies.write_copies()
    os.environ["LABKIT_NOTEBOOKS"] = str(copies.COPIES)

pytest_plugins = ["tests.selection"]
_home = tempfile.TemporaryDirectory(prefix="labkit-test-")


def pytest_configure(config):
    os.environ["LABKIT_PROFILE"] = "ci"
    os.environ["LABKIT_HOME"] = _home.name
    # no turns: tests run side by side
    os.environ["LABKIT_TURNS"] = f"{_home.name}/missing"
    with contextlib.suppress(ImportError):
        from nbval.kernel import RunningKernel

        RunningKernel.stop = _stop


def _stop(kernel):
    """Let a notebook's kernel end by itself, where nbval kills it: TensorFlow removes
    its files in /tmp at its exit.
    """
    kernel.km.shutdown_kernel()
    kernel.kc.stop_channels()
    del kernel.km


def pytest_unconfigure(config):
    _home.cleanup()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Solved notebooks and paths run in the smoke profile: does every cell run? The
    rest takes ci's more readings.
    """
    os.environ["LABKIT_PROFILE"] = (
        "smoke" if item.path.parent.name in ("solved", "paths") else "ci"
    )


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    """A calm machine, whatever else runs: otherwise the tests that run beside a test
    would take its verdicts away.
    """
    from labkit.measure import contention, turns

    reading = contention.Reading(0.0, 2, {}, 0.0, 0.0)
    monkeypatch.setattr(contention, "read", lambda: reading)
    monkeypatch.setattr(turns, "quiet", lambda: True)
    monkeypatch.setattr("psutil.getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.fixture(autouse=True)
def no_attempts():
    """No results from the test before: a hint follows from the answers so far."""
    from labkit.core import results

    results.results().path.unlink(missing_ok=True)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A state folder for one test."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    return tmp_path
