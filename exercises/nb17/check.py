"""Checks of notebook 17: each repeats the broken training with the answer's mend. The cases are in cases.py."""

from __future__ import annotations

import functools

from exercises.nb17 import clinic

NUMBERS = ("17.3a", "17.3b", "17.3c", "17.4a", "17.4b", "17.5a", "17.5b", "17.5c", "17.6")
CHECKS = {number: functools.partial(clinic.judge, number) for number in NUMBERS}
