"""After how many steps compiling has paid."""

import math

import pytest

from trainplan import costs
from trainplan.errors import BadArgument


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ((8.0, 0.5, 0.25), 32),
        ((1.0, 1.0, 0.25), 2),  # 4/3, rounded up
        ((0.0, 0.5, 0.25), 0),
        ((0.0, 0.5, 0.5), 0),
        ((0.0, 0.25, 0.5), math.inf),
        ((8.0, 0.5, 0.5), math.inf),
        ((8.0, 0.25, 0.5), math.inf),
    ],
)
def test_break_even_steps(given, steps):
    assert costs.break_even_steps(*given) == steps


@pytest.mark.parametrize("given", [(-1.0, 0.5, 0.25), (1.0, 0.0, 0.25), (1.0, 0.5, -0.25), (math.nan, 0.5, 0.25)])
def test_break_even_of_nonsense_is_refused(given):
    with pytest.raises(BadArgument, match="Expected"):
        costs.break_even_steps(*given)
