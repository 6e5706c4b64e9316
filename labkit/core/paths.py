"""The workbook's folders, which stand beside labkit in a clone; Colab, Binder and `pip
install -e` use one too.
"""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data"
RECORDED = DATA / "recorded"
# Tests read copies where somebody has worked in the notebooks.
NOTEBOOKS = Path(os.environ.get("LABKIT_NOTEBOOKS") or ROOT / "notebooks")
EXERCISES = ROOT / "exercises"

# The projects beside labkit, each of which works without it.
PROJECTS = ROOT / "packages"
INSTRUMENTS = ("gpufacts", "kerneltrace", "ranks", "steptime", "trainplan")
# The folder of each package's modules.
SOURCES = {
    "labkit": ROOT / "labkit",
    **{name: PROJECTS / name / name for name in INSTRUMENTS},
}
PACKAGES = tuple(SOURCES)
# What PYTHONPATH needs where nothing is installed.
IMPORT_FOLDERS = (ROOT, *(PROJECTS / name for name in INSTRUMENTS))
# Tables of measurements that others published.
PUBLISHED = (
    DATA / "published",
    PROJECTS / "kerneltrace" / "kerneltrace_published",
    PROJECTS / "trainplan" / "trainplan_published",
    SOURCES["trainplan"] / "data" / "published",
)
