"""The golden file of predictions holds. Other tests say whether they are right; this
one says that they changed.
"""

import pytest

from test_trainplan.predictions import predict, predictions

pytestmark = pytest.mark.slow  # searches over layouts


@pytest.mark.parametrize(
    "row",
    predictions(),
    ids=lambda row: f"{row['kind']} {next(iter(row['inputs'].values()))}",
)
def test_a_prediction_is_the_one_in_the_golden_file(row):
    again = "expected? `python -m test_trainplan.predictions` writes the file anew"
    assert predict(row) == pytest.approx(row["outputs"], rel=1e-6), again
