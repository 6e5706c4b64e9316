"""Exercise 15.4 takes whatever the planner's own search chooses, for each library."""

import pytest

from exercises.nb15.check import fits
from labkit.lesson.checks import NotYet
from tests.selection import sampled
from trainplan.cluster import SOFTWARE, Cluster, Layout, best_layout, model

LLAMA = model("Llama-2-70B")
CLUSTER = Cluster("A100 SXM4 80GB", 64)
# 8 bit, which an A100 hasn't, and whole copies, of which none fits
SEARCHED = [name for name in SOFTWARE if name not in ("DeepSeek", "Trainer")]


@pytest.mark.parametrize("name", sampled(SEARCHED, 3))
def test_the_search_s_own_layouts_pass(name):
    best = best_layout(LLAMA, CLUSTER, 512, software=SOFTWARE[name])
    for layout in (best.layout, best.fastest.layout):
        assert "It fits" in fits(layout)


@pytest.mark.parametrize("name", sampled(SEARCHED, 3))
def test_a_layout_that_shrinks_is_refused_for_each_library(name):
    software = SOFTWARE[name]
    own = {"data": 8, "tensor": 4, "pipeline": 2, "zero": 1, "software": software}
    for shrinks in ({"dtype": "float32"}, {"optimizer": "sgd"}, {"offload": True}):
        with pytest.raises(NotYet, match="split, not to shrink"):
            fits(Layout(**own, **shrinks))
