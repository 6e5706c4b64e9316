"""Checks of notebook 17: each repeats the broken training with the answer's mend. The
cases are in cases.py.
"""

from __future__ import annotations

import functools

from exercises.nb17 import clinic, guard
from exercises.nb17.cases import ALARM_OF

CHECKS = {number: functools.partial(clinic.judge, number) for number in ALARM_OF} | {
    "17.4b": guard.check
}
