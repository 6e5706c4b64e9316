"""Versions agree: pyproject.toml, constraints.txt, conda's environment.yml and the
image for a hub.
"""

import importlib.metadata
import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from labkit.core.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = (ROOT / "docker" / "requirements.txt").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))[
    "dependencies"
]
CONDA_NAMES = {
    "torch": "pytorch",
    "matplotlib": "matplotlib-base",
    "cupy-cuda12x": "cupy-core",
    "cupy-cuda13x": "cupy-core",
}
# conda-forge has none: pip brings it.
WITHOUT_CONDA = ["amaranth"]
# The tests, the appendix, the book and the graders are for a clone with make.
WITH_MAKE = [*EXTRAS["test"], *EXTRAS["appendix"], *EXTRAS["book"], *EXTRAS["teaching"]]
# constraints.txt leaves CUDA's own packages to torch, and says why.
CHOSEN_BY_TORCH = re.compile(r"cuda-(toolkit|bindings)|nvidia-.+")


def name_of(text):
    return canonicalize_name(Requirement(text).name)


def requirements():
    texts = [
        *PROJECT["dependencies"],
        *(text for extra in EXTRAS.values() for text in extra),
    ]
    return {name_of(text): Requirement(text) for text in texts}


def pins():
    """{package: version} of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    versions = {canonicalize_name(name): version for name, version in pairs}
    assert len(versions) == len(pairs)
    return versions


def test_constraints_pin_each_dependency_inside_its_range():
    versions = pins()
    for name, requirement in requirements().items():
        assert requirement.specifier.contains(versions[name]), name


@pytest.mark.slow
def test_the_pins_install_on_the_oldest_python():
    oldest = PROJECT["requires-python"].partition(",")[0].removeprefix(">=") + ".0"
    versions = pins()
    for package in importlib.metadata.distributions():
        pythons = package.metadata.get("Requires-Python")
        if pythons and versions.get(canonicalize_name(package.name)) == package.version:
            assert SpecifierSet(pythons).contains(oldest), package.name


def test_conda_has_the_same_dependencies_in_the_same_ranges():
    named = [
        re.match(r"([a-z0-9-]+)(.*)", entry)
        for entry in CONDA
        if isinstance(entry, str)
    ]
    ranges = {match[1]: match[2] for match in named}
    python = ranges.pop("python").removeprefix("=")
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)
    assert f"FROM python:{python}-" in DOCKERFILE
    assert ranges.pop("pip") == ""
    (pip,) = [entry["pip"] for entry in CONDA if isinstance(entry, dict)]
    assert pip.pop() == "-e ."
    assert list(map(Requirement, pip)) == [requirements()[n] for n in WITHOUT_CONDA]

    left_out = {name_of(text) for text in (*WITH_MAKE, *WITHOUT_CONDA)}
    expected = {
        CONDA_NAMES.get(name, name): requirement.specifier
        for name, requirement in requirements().items()
        if name not in left_out
    }
    assert {name: SpecifierSet(text) for name, text in ranges.items()} == expected


def test_the_image_has_the_versions_of_constraints_each_with_a_hash():
    code = re.sub(r"(?m)^\s*#.*\n", "", LOCK).replace("\\\n", "")
    lines = [line for line in code.splitlines() if line.strip()]
    package = r"([a-z0-9.-]+)==(\S+)(\s+--hash=sha256:[0-9a-f]{64})+\s*"
    matches = [re.fullmatch(package, line) for line in lines]
    assert all(matches)
    locked = {canonicalize_name(match[1]): match[2] for match in matches}
    versions = pins()
    assert {n: v for n, v in locked.items() if versions.get(n, v) != v} == {}

    in_file = (
        (ROOT / "docker" / "requirements.in").read_text(encoding="utf-8").splitlines()
    )
    of_the_hub = [line for line in in_file if line and not line.startswith("#")]
    wanted = [*PROJECT["dependencies"], *EXTRAS["lab"], *EXTRAS["cuda13"], *of_the_hub]
    assert {name_of(text) for text in wanted} <= set(locked)
    # The hub's packages bring these, which the workbook alone does not need.
    unpinned = {
        n for n in locked if n not in versions and not CHOSEN_BY_TORCH.fullmatch(n)
    }
    assert unpinned == {
        "aiodns", "aiohappyeyeballs", "aiohttp", "aiosignal", "certipy", "cryptography",
        "frozenlist", "jupyterhub", "multidict", "nbgitpuller", "oauthlib", "pamela",
        "propcache", "pycares", "yarl",
    }  # fmt: skip
