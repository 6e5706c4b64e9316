import pytest

from exercises.nb15 import claim
from trainplan.cluster import Cluster, Layout, model, step


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


def test_nothing_is_judged_that_no_published_run_is_like():
    weak = claim.condition(
        (20.0, 11.0, 40.0), ("no published step was compared on this device",)
    )
    assert weak.endswith("isn't judged: no published step was compared on this device")
    shape = model("Llama-2-70B")
    node = Cluster("A100 SXM4 80GB", 64)
    like, unlike = (
        step(
            shape,
            node,
            Layout(64, zero=3, recompute="full", optimizer=o, offload=off),
            128,
        )
        for o, off in (("adam", False), ("adam", True))
    )
    assert claim.needs({"gain": "1.1x"}, like) == ""
    assert "offloaded" in claim.needs({"gain": "1.1x"}, like, unlike)


def test_the_reason_names_each_cluster_and_its_interval():
    reason = claim.because(190.4, "B200", {"4,096 A100": (1.0, 0.5, 2.0)})
    assert (
        reason
        == "calculated: 190 years on one B200 at its peak; on 4,096 A100: 1.0 (0.5 to"
        " 2.0)"
    )
