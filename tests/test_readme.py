"""README.md's snippets run as they stand."""

import os
import re
import subprocess
import sys

import pytest

from labkit.core.paths import ROOT
from labkit.measure.diagnosis import SECTIONS
from scripts import notebooks

SNIPPETS = re.findall(
    r"(?ms)^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8")
)


def printed(code, tmp_path):
    """What a stranger's folder shows."""
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    environ = os.environ | {
        "PYTHONPATH": str(ROOT),
        "LABKIT_HOME": str(tmp_path / "home"),
    }
    run = [sys.executable, "mine.py"]
    return subprocess.run(
        run, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
@pytest.mark.complete
def test_the_loop_gets_a_verdict_and_sections_that_exist(tmp_path):
    said = printed(SNIPPETS[0], tmp_path)
    (sections,) = re.findall(r"Read on in sections ([\d., ]+)\.", said)
    assert sections in SECTIONS.values()


@pytest.mark.slow
def test_the_kernel_is_reviewed(tmp_path):
    said = printed(SNIPPETS[1], tmp_path)
    assert re.search(r"a +global +4,096", said)
    assert re.search(r"uncoalesced, line 8, ", said)
    assert "smsp__" in said or "l1tex__" in said


def test_the_forty_minutes_are_forty():
    """Read at 150 words a minute and typed at 40, with the sections that a verdict
    names, by the count of a notebook's minutes; optional ones would count as nothing.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before_notebooks = text.partition("## Notebooks")[0]
    prose = re.sub(r"(?ms)^```.*?^```$", "", before_notebooks)
    reading = len(re.findall(r"\w+", prose)) / 150
    typing = sum(len(snippet.split()) for snippet in SNIPPETS) / 40
    for limit, numbers in SECTIONS.items():
        sections = 0
        for number in numbers.split(", "):
            (path,) = (ROOT / "notebooks").glob(f"{number[:2]}_*.ipynb")
            minutes = notebooks.section_minutes(path)[number[3]]
            assert minutes > 0, number
            sections += minutes
        assert reading + typing + sections <= 40, limit


def test_the_sections_that_a_verdict_names_exist():
    for number in ", ".join(SECTIONS.values()).split(", "):
        (path,) = (ROOT / "notebooks").glob(f"{number[:2]}_*.ipynb")
        assert f'"## {number[3]} ' in path.read_text(encoding="utf-8"), number
