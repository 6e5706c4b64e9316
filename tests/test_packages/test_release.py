"""What is released of the packages: versions, licenses, pages, recipes, and what `make
release` refuses.
"""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from labkit.core.paths import INSTRUMENTS, PROJECTS, ROOT
from scripts import recipes, release

ADDRESS = "https://github.com/owner/name"
# The headings of Keep a Changelog 1.1.0.
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
# Of a recipe that prints times, what it prints on every machine.
PRINTED = {
    "Run DistributedDataParallel from a notebook": r"^4 ranks, 1 different set of weigh",
    "Find out why all_reduce hangs": r"^  rank 0 waits in all_reduce",
    "Find the rank that slows the others down": r"^rank \d is the slowest$",
    "Why is my GPU idle?": r"share of the time",
    "Which lines make Python wait for the GPU?": r"total \+= loss\.item\(\)",
    "What takes the memory of a training step?": r"^ +[\d.]+ MB optimizer state$",
}


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_package_says_one_version_its_license_and_what_it_needs_of_the_others(name):
    project = release.project(name)
    release.require_same_version(name)
    assert project["license-files"] == ["LICENSE"]
    assert (PROJECTS / name / "LICENSE").read_text().startswith("MIT License\n")
    assert "Typing :: Typed" in project["classifiers"]
    for requirement in map(Requirement, project["dependencies"]):
        if requirement.name in INSTRUMENTS:
            major = int(release.project(requirement.name)["version"].partition(".")[0])
            assert requirement.specifier.contains(
                release.project(requirement.name)["version"]
            )
            assert not requirement.specifier.contains(f"{major + 1}.0")


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_changelog_says_what_is_public_and_how_a_name_goes(name):
    text = (PROJECTS / name / "CHANGELOG.md").read_text(encoding="utf-8")
    promise = text.partition("## What a version promises")[2].partition("## [")[0]
    assert f"`{name}.__all__`" in promise
    assert "DeprecationWarning" in promise
    assert set(re.findall(r"(?m)^### (\w+)$", text)) <= KINDS


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Write version and date of a gpufacts of one's own."""

    def write(version, heading):
        folder = tmp_path / "gpufacts"
        folder.mkdir(exist_ok=True)
        text = f'[project]\nname = "gpufacts"\nversion = "{version}"\n'
        (folder / "pyproject.toml").write_text(text)
        (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")

    monkeypatch.setattr(release, "PROJECTS", tmp_path)
    return write


def test_a_tag_names_its_package(planted, capsys):
    planted("1.2.0", "## [1.2.0] - 2026-12-01")
    assert release.main(["--tag", "gpufacts-1.2.0"]) == 0
    assert capsys.readouterr().out == "gpufacts\n"


@pytest.mark.parametrize(
    ("tag", "heading", "words"),
    [
        ("gpufact-1.2.0", "## [1.2.0] - 2026-12-01", "Packages: gpufacts, kern"),
        ("v1.2.0", "## [1.2.0] - 2026-12-01", "Expected a tag such as gpufacts-1.0.0"),
        ("main", "## [1.2.0] - 2026-12-01", "Expected a tag such as gpufacts-1.0.0"),
        ("gpufacts-1.2", "## [1.2.0] - 2026-12-01", "Expected the tag gpufacts-1.2.0"),
        ("gpufacts-1.2.0", "## [1.1.0] - 2026-12-01", "1.1.0 in CHANGELOG.md"),
        ("gpufacts-1.2.0", "## [1.2.0] - unreleased", "'unreleased': set it"),
        ("gpufacts-1.2.0", "## 1.2.0", "found none: write it above"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(planted, capsys, tag, heading, words):
    planted("1.2.0", heading)
    assert release.main(["--tag", tag]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_the_readme_of_a_wheel_leads_nowhere_that_only_a_clone_has(name, tmp_path):
    for address in ("", ADDRESS):
        folder = tmp_path / (address and "public")
        source = release.stage(name, folder, address)
        readme = (source / "README.md").read_text(encoding="utf-8")
        assert "./packages" not in readme
        assert "in a clone" not in readme
        # pip brings what a package needs
        assert "pip install gpufacts " not in readme
        assert re.findall(r"\]\((?!https:)[^)]*\)", readme) == []
        assert not (source / "tests").exists()
        with open(source / "pyproject.toml", "rb") as file:
            urls = tomllib.load(file)["project"].get("urls", {})
        assert urls.get("Repository", "") == address


def test_a_link_of_a_readme_leads_to_the_file_at_the_tag():
    text = "![A picture](step.png)\n\nSee [limits](docs/limits.md), [a](https://a.org)."
    alone = release.readme_of_release(text, "steptime-1.0.0", "")
    assert alone == "See limits, [a](https://a.org)."
    public = release.readme_of_release(text, "steptime-1.0.0", ADDRESS)
    at = "steptime-1.0.0/packages/steptime"
    assert f"![A picture]({ADDRESS}/raw/{at}/step.png)" in public
    assert f"[limits]({ADDRESS}/blob/{at}/docs/limits.md)" in public
    assert "[a](https://a.org)" in public


def test_what_does_not_belong_into_a_wheel_or_an_sdist_is_named():
    about = "ranks-1.0.0.dist-info"
    wheel = ["ranks/__init__.py", "ranks/py.typed", f"{about}/licenses/LICENSE"]
    assert release.wheel_faults(wheel, "ranks", "1.0.0") == []
    assert release.wheel_faults(wheel[:2], "ranks", "1.0.0") == [
        f"lacks {about}/licenses/LICENSE"
    ]
    assert release.wheel_faults([*wheel, "labkit/a.py"], "ranks", "1.0.0") == [
        "has labkit/a.py of another package"
    ]
    files = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml")
    sdist = ["ranks-1.0.0"]
    sdist += [f"ranks-1.0.0/{name}" for name in (*files, "docs/recipes.md")]
    assert release.sdist_faults(sdist, "ranks", "1.0.0") == []
    tests = [*sdist, "ranks-1.0.0/tests/test_a.py"]
    assert release.sdist_faults(tests, "ranks", "1.0.0") == [
        "has the folder tests",
        "has the test tests/test_a.py",
    ]


def test_the_workflow_is_run_by_hand_with_pinned_actions_and_no_password():
    path = ROOT / ".github" / "workflows" / "release.yml"
    text = path.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow[True] == "workflow_dispatch"  # YAML reads `on` as True
    publish = workflow["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["name"] == "${{ needs.build.outputs.package }}"
    assert "secrets." not in text
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r".+@[0-9a-f]{40}", name)] == []


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_page_has_three_recipes_and_each_can_be_run(name):
    text = recipes.page(name).read_text(encoding="utf-8")
    titles = [recipe.title for recipe in recipes.recipes(name)]
    assert len(titles) == 3
    assert titles == re.findall(r"(?m)^## (.+)$", text)
    assert text.count("```python") == 3
    assert all(recipe.shown.strip() for recipe in recipes.recipes(name))


@pytest.mark.slow
@pytest.mark.complete
@pytest.mark.parametrize(
    "recipe",
    [recipe for name in INSTRUMENTS for recipe in recipes.recipes(name)],
    ids=lambda recipe: f"{recipe.package}: {recipe.title}",
)
def test_a_recipe_prints_what_stands_below_it(recipe):
    printed = recipes.printed(recipe)
    if recipe.package in recipes.TIMED:
        pattern = PRINTED[recipe.title]
        assert re.search(pattern, recipe.shown, re.MULTILINE)
        assert re.search(pattern, printed, re.MULTILINE), printed
    else:
        assert printed == recipe.shown


def test_a_recipe_that_fails_says_which():
    recipe = recipes.Recipe("ranks", "Divide", "print('begun')\n1 / 0\n", "")
    with pytest.raises(RuntimeError, match=r"(?s)'Divide' fails:\nbegun\n.*line 2"):
        recipes.printed(recipe)
