import inspect
import pkgutil
import subprocess
import sys

import pytest

import labkit

HEAVY = (
    "IPython",
    "cupy",
    "ipywidgets",
    "matplotlib",
    "numba",
    "numpy",
    "pandas",
    "torch",
)


def test_all_is_sorted_and_every_name_is_there():
    assert list(labkit.__all__) == sorted(labkit.__all__)
    for name in labkit.__all__:
        assert getattr(labkit, name) is not None
    assert dir(labkit) == labkit.__all__


def test_lab_shows_at_most_40_names_and_rooms():
    rooms = [name for name in labkit.__all__ if inspect.ismodule(getattr(labkit, name))]
    assert len(labkit.__all__) - len(rooms) <= 32


def test_no_function_is_called_like_a_module():
    """Importing a module would put it in the function's place."""
    for module in pkgutil.iter_modules(labkit.__path__):
        assert module.name not in labkit.__all__ or inspect.ismodule(
            getattr(labkit, module.name)
        )


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        labkit.nonsense  # noqa: B018


def modules_after(code):
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    return set(out.stdout.split())


def test_importing_labkit_loads_nothing_heavy():
    assert modules_after("import labkit").isdisjoint(HEAVY)


@pytest.mark.slow
def test_the_test_above_can_fail():
    assert "numpy" in modules_after("import labkit; labkit.data.digits(size=8)")


def test_every_public_function_says_what_it_does():
    for name in labkit.__all__:
        assert inspect.getdoc(getattr(labkit, name)), name
