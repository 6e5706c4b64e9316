"""The README's example runs and prints what the README says, and its numbers are those
of the package.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ranks import MOST_RANKS
from test_ranks.ranks_faults import FAULTS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# which rank waits, and where, is not the same in each run
PRINTED = (
    r"\A4 ranks returned after [\d.]+ m?s \[1\.5, 1\.5, 1\.5\]$",
    r"^rank \d: idle all_reduce, [\d.]+ ms$",
    r"^rank 0: communication all_reduce, [\d.]+ ms$",
    r"^rank 2 failed first, [\d.]+ m?s after the start: ValueError: no data left\.$",
    r"^Traceback \(most recent call last\):$",
    r"^  rank 0 (waits in|is at work)\b",
)


@pytest.mark.complete
def test_the_example_prints_what_stands_below_it(tmp_path):
    (example,) = re.findall(r"(?ms)^```python\n(.*?)^```$", README)
    (printed,) = re.findall(r"(?ms)^```text\n(.*?)^```$", README)
    script = tmp_path / "mean.py"
    script.write_text(example, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for pattern in PRINTED:
        assert re.search(pattern, printed, re.M), pattern
        assert re.search(pattern, ended.stdout, re.M), pattern


def test_its_numbers_are_right():
    assert f"at most {MOST_RANKS} ranks" in README
    assert f"{len(FAULTS)} planted faults" in README
    assert len(README.splitlines()) <= 90
    assert "computes for 40 ms, the others for 20" in README
    picture = (ROOT / "draw_timeline.py").read_text(encoding="utf-8")
    assert "0.04 if dist.get_rank() == 2 else 0.02" in picture
