"""The workbook's folders, which stand beside labkit in a clone; Colab, Binder and `pip
install -e` use one too.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data"
RECORDED = DATA / "recorded"
NOTEBOOKS = ROOT / "notebooks"
EXERCISES = ROOT / "exercises"

# The packages that stand beside labkit, each of which works without it.
INSTRUMENTS = ("kerneltrace", "ranks", "steptime", "trainplan")
PACKAGES = ("labkit", *INSTRUMENTS)
