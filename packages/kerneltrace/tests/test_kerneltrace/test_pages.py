"""What the README shows is what it prints."""

import re
import subprocess
import sys

from test_kerneltrace.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_of_the_readme_prints_counts_a_race_and_an_estimate(tmp_path):
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", README)
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, tmp_path / "example.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"\[race\] line 11: .*\(line 14\)", run.stdout)
    assert "32 sectors a request, where 4 would do" in run.stdout
    assert "column_means on A100 SXM4 80GB: " in run.stdout


def test_the_pages_that_it_links_are_there():
    links = re.findall(r"\]\(([^):]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []
