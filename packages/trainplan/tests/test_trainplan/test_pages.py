"""The README's example runs, and the table of errors is what the planner predicts."""

import math
import re
from pathlib import Path

import pytest

from trainplan.cluster import COMPARISONS, published_steps
from trainplan.cluster.validation import NOT_FITTED

pytestmark = pytest.mark.slow  # predicts all published runs

FOLDER = Path(__file__).parents[2]
README = (FOLDER / "README.md").read_text(encoding="utf-8")
VALIDATION = (FOLDER / "docs" / "validation.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_stands(capsys):
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", README)
    exec(code, {})
    out = capsys.readouterr().out
    assert "predicted 5,987 tokens/s a GPU, measured 5,800: +3.2%" in out
    assert re.search(r"(?m)^unexplained +x [01]\.\d\d$", out)
    assert "Rejected of" in out


@pytest.mark.parametrize("name", [*COMPARISONS, *NOT_FITTED])
def test_the_errors_of_a_published_set_are_the_page_s(name):
    agreement = published_steps(name)
    most = agreement.errors[math.ceil(0.9 * len(agreement.rows)) - 1]
    line = (
        f"| {name} | {len(agreement.rows)} | {agreement.median_error:.1%} |"
        f" {most:.1%} | {agreement.worst.error:+.1%} |"
    )
    assert line in VALIDATION.splitlines()


def test_the_page_has_every_set_and_the_readme_their_number():
    rows = re.findall(r"(?m)^\| ([^|]+) \| \d", VALIDATION)
    assert rows == [*COMPARISONS, *NOT_FITTED]
    assert len(rows) == 17
    assert "in seventeen sets, three of which" in " ".join(README.split())


def test_every_link_of_a_page_leads_somewhere():
    for page in (FOLDER / "README.md", *sorted((FOLDER / "docs").glob("*.md"))):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), link
