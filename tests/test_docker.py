"""The image for a hub: every package has the version of constraints.txt and a hash, and none is missing."""

import importlib.metadata
import re
import tomllib

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from labkit.core.paths import ROOT
from tests.test_setup import pins

DOCKER = ROOT / "docker"
LOCK = (DOCKER / "requirements.txt").read_text(encoding="utf-8")
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
IMAGE = {
    **default_environment(), "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
    "platform_machine": "x86_64", "python_version": "3.12", "python_full_version": "3.12.0",
}  # fmt: skip
EXTRAS = ("lab", "cuda13")
OPEN = re.compile(r"cuda-(toolkit|bindings)|nvidia-.+")  # constraints.txt leaves these to torch, and says why
OF_THE_HUB = {
    "aiodns", "aiohappyeyeballs", "aiohttp", "aiosignal", "certipy", "cryptography", "frozenlist", "jupyterhub",
    "multidict", "nbgitpuller", "oauthlib", "pamela", "propcache", "pycares", "yarl",
}  # fmt: skip


def locked(text=LOCK):
    """Name -> version of each package; ValueError where a line is neither one with hashes nor a comment."""
    code = re.sub(r"(?m)^\s*#.*\n", "", text).replace("\\\n", "")
    found = {}
    for line in filter(str.strip, code.split("\n")):
        match = re.fullmatch(r"([a-z0-9.-]+)==(\S+)((\s+--hash=sha256:[0-9a-f]{64})+)\s*", line)
        if match is None:
            raise ValueError(line)
        found[canonicalize_name(match[1])] = match[2]
    return found


def wanted():
    """The requirements of the workbook and of the hub's own packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for extra in EXTRAS for text in project["optional-dependencies"][extra]]
    own = [line for line in (DOCKER / "requirements.in").read_text(encoding="utf-8").split("\n") if line[:1] not in "#"]
    return [Requirement(text) for text in (*project["dependencies"], *extras, *own)]


def missing(requirements, found):
    """Those of the requirements, and of what installed packages require in turn, that the image lacks."""
    asked, absent, queue = set(), [], [(one, "") for one in requirements]
    while queue:
        one, extra = queue.pop()
        name = canonicalize_name(one.name)
        if (one.marker and not one.marker.evaluate({**IMAGE, "extra": extra})) or (str(one), extra) in asked:
            continue
        asked.add((str(one), extra))
        if name not in found or not one.specifier.contains(found[name]):
            absent.append(str(one))
            continue
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if installed.version.split("+")[0] == found[name]:
            inner = [Requirement(text) for text in installed.requires or ()]
            queue += [(each, extra) for each in inner for extra in ("", *one.extras)]
    return absent


def test_each_package_has_the_version_of_constraints_and_a_hash():
    found, pinned = locked(), pins()
    assert {name: version for name, version in found.items() if pinned.get(name, version) != version} == {}
    assert {name for name in found if name not in pinned and not OPEN.fullmatch(name)} == OF_THE_HUB


@pytest.mark.parametrize(
    "line", ["six==1.17.0", f"six>=1 --hash=sha256:{64 * '0'}", f"six==1.17.0 --hash=md5:{32 * '0'}", "-e .", "--pre"]
)
def test_a_line_without_version_and_hash_is_found(line):
    with pytest.raises(ValueError, match=re.escape(line)):
        locked(LOCK + line + "\n")


def test_no_package_is_missing():
    assert missing(wanted(), locked()) == []


@pytest.mark.parametrize("name", ["torch", "tornado", "cupy-cuda13x", "nbgitpuller", "parso"])
def test_a_package_that_is_missing_is_found(name):
    assert missing(wanted(), {key: version for key, version in locked().items() if key != name})


def test_the_image_installs_nothing_without_a_hash_and_has_the_python_of_conda_s_environment():
    installs = [line for line in DOCKERFILE.split("\n") if "pip install" in line]
    assert len(installs) == 2
    assert all("--no-deps" in line for line in installs)
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    entries = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    (python,) = re.findall(r"FROM python:([\d.]+)-", DOCKERFILE)
    assert f"python={python}" in entries
    assert python == IMAGE["python_version"]


def test_the_command_that_locks_names_what_is_locked():
    command = next(line for line in LOCK.split("\n") if "uv pip compile" in line)
    for part in ("pyproject.toml docker/requirements.in", "-c constraints.txt", "--generate-hashes"):
        assert part in command
    assert re.findall(r"--extra (\S+)", command) == list(EXTRAS)
    assert f"--python-version {IMAGE['python_version']}" in command
