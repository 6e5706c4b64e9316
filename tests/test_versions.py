"""Versions agree: pyproject.toml, constraints.txt, conda's environment.yml and the
image for a hub.
"""

import contextlib
import importlib.metadata
import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from labkit.core.paths import ROOT
from scripts import constraints, versions as other_versions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
EXTRAS = PROJECT["optional-dependencies"]
IMAGE = (ROOT / "docker" / "requirements.txt").read_text(encoding="utf-8")
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
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
# A package of uv's lists: its name, its version, where it is installed, its hashes.
LOCKED = re.compile(
    r"([a-z0-9.-]+)==(\S+)(\s+;[^\\]+?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*"
)


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


def locked(text):
    """{package: version} of a list in which each package has hashes."""
    code = re.sub(r"(?m)^\s*#.*\n", "", text).replace("\\\n", "")
    matches = [LOCKED.fullmatch(line) for line in code.splitlines() if line.strip()]
    assert all(matches)
    return {canonicalize_name(match[1]): match[2] for match in matches}


def test_the_lock_has_all_that_set_up_installs_but_torch_and_its_cuda():
    versions = locked(LOCK)
    apart = constraints.FOLLOWS_TORCH.fullmatch
    assert [name for name in versions if apart(name)] == []
    assert versions == {name: pins()[name] for name in versions}
    extras = [*EXTRAS["lab"], *EXTRAS["test"], *EXTRAS["cpu"], *EXTRAS["cuda12"]]
    wanted = {name_of(text) for text in (*PROJECT["dependencies"], *extras)}
    # What these need in turn, as far as it is installed here.
    for name in versions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            needed = map(Requirement, importlib.metadata.requires(name) or [])
            wanted |= {
                canonicalize_name(requirement.name)
                for requirement in needed
                if not requirement.marker or requirement.marker.evaluate({"extra": ""})
            }
    assert {
        name for name in wanted if name not in versions and not apart(name)
    } == set()


def test_one_version_of_a_package_is_pinned_for_all_pythons():
    pin = "numpy==2.4.6 ; python_full_version < '3.12'\n"
    assert constraints.entries(pin) == {"numpy": pin}
    with pytest.raises(RuntimeError, match=r"two versions.*constraints\.in"):
        constraints.entries(f"{pin}numpy==2.5.5 ; python_full_version >= '3.12'\n")


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
    image = locked(IMAGE)
    versions = pins()
    assert {n: v for n, v in image.items() if versions.get(n, v) != v} == {}

    in_file = (
        (ROOT / "docker" / "requirements.in").read_text(encoding="utf-8").splitlines()
    )
    of_the_hub = [line for line in in_file if line and not line.startswith("#")]
    wanted = [*PROJECT["dependencies"], *EXTRAS["lab"], *EXTRAS["cuda13"], *of_the_hub]
    assert {name_of(text) for text in wanted} <= set(image)
    # The hub's packages bring these, which the workbook alone does not need.
    unpinned = {
        name
        for name in image
        if name not in versions and not constraints.FOLLOWS_CUDA.fullmatch(name)
    }
    assert unpinned == {
        "aiodns", "aiohappyeyeballs", "aiohttp", "aiosignal", "certipy", "cryptography",
        "frozenlist", "jupyterhub", "multidict", "nbgitpuller", "oauthlib", "pamela",
        "propcache", "pycares", "yarl",
    }  # fmt: skip


UV = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in
  *"python find"*3.13) echo /where/python3.13;;
  *"python find"*) exit 1;;
esac
"""


def test_a_row_of_versions_has_an_environment_that_is_made_once(monkeypatch, tmp_path):
    calls = tmp_path / "calls"
    program = tmp_path / "uv"
    program.write_text(UV.format(calls=calls))
    program.chmod(0o755)
    monkeypatch.setattr(other_versions, "ROOT", tmp_path)
    monkeypatch.setattr(other_versions, "uv", lambda: str(program))
    folder = tmp_path / "build" / "versions" / "newest"
    folder.mkdir(parents=True)
    for _ in range(2):
        assert other_versions.environment("newest", None) == folder / "bin" / "python"
    find_14, find_13, make, install = calls.read_text().splitlines()
    assert find_14.endswith("3.14")
    assert find_13.endswith("3.13")
    assert f"--python /where/python3.13 {folder}" in make
    assert f"--python {folder} --upgrade -e" in install
    with pytest.raises(SystemExit, match=r"Python 3\.11 is needed.*--python"):
        other_versions.environment("oldest", None)


def test_rows_of_versions_install_extras_that_there_are():
    for row in other_versions.ROWS.values():
        extras = re.search(r"\.\[(.*)\]", " ".join(row.requirements))[1].split(",")
        assert set(extras) <= set(EXTRAS)
