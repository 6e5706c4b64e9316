"""Programs that measure the workbook and its packages.

Some run what stands beside the packages' tests, which Python finds outside of pytest,
too, once this has been imported.
"""

import sys
from pathlib import Path

_PACKAGES = Path(__file__).parents[1] / "packages"
TEST_FOLDERS = [
    str(_PACKAGES / name / "tests") for name in ("kerneltrace", "ranks", "steptime")
]
sys.path[:0] = TEST_FOLDERS
