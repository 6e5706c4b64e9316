import pytest

from exercises.nb15 import claim


@pytest.mark.parametrize(
    ("weak", "words"),
    [
        ((20.0, 11.0, 40.0), "and so are strong GPUs"),
        ((9.0, 5.0, 12.0), "the interval doesn't tell whether strong GPUs are"),
        ((5.0, 2.0, 9.0), "strong GPUs are not: more will do"),
    ],
)
def test_the_interval_decides_whether_strong_gpus_are_essential(weak, words):
    assert claim.condition(weak).endswith(words)


def test_the_reason_names_each_cluster_and_its_interval():
    reason = claim.because(190.4, "B200", {"4,096 A100": (1.0, 0.5, 2.0)})
    assert reason == "calculated: 190 years on one B200 at its peak; on 4,096 A100: 1.0 (0.5 to 2.0)"
