"""Which layout a search advises, and what makes a run slower than a published one."""

import math
from dataclasses import replace

import pytest

from gpufacts import find
from trainplan.cluster import (
    MODELS,
    SOFTWARE,
    Cluster,
    Compared,
    Layout,
    best_layout,
    held_against,
    model,
    published_steps,
    step,
)
from trainplan.cluster.constants import MEDIAN_LEFT_OUT, WIDENED
from trainplan.cluster.preference import (
    Preference,
    idea,
    is_surer,
    preference,
    preferred,
    recipe,
)
from trainplan.cluster.software import versions
from trainplan.csv_tables import rows

LLAMA = model("Llama-3-8B")
H100 = Cluster("H100 SXM5 80GB", 64)
FSDP = Layout(data=64, zero=3, recompute="full", dtype="mixed bfloat16")


# --- which of layouts that are as fast ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gpu", "gpus", "library"),
    [
        ("Llama-3-8B", "H100 SXM5 80GB", 64, "torchtitan"),
        ("Llama-3-70B", "H100 SXM5 80GB", 512, "torchtitan"),
        ("Mistral-7B", "A100 SXM4 80GB", 8, "torchtitan"),
        ("Llama-3-405B", "H100 SXM5 80GB", 1024, "Megatron-Core"),
        ("Llama-2-70B", "A100 SXM4 80GB", 256, "Megatron-Core"),
        ("Qwen3-30B-A3B", "H100 SXM5 80GB", 32, "Megatron-Core"),
        ("Llama-3-70B", "H100 SXM5 80GB", 64, "nanotron"),
    ],
)
def test_the_advice_is_as_fast_as_can_be_told_and_has_more_to_be_said_for_it(
    name, gpu, gpus, library
):
    shape = model(name)
    cluster = Cluster(gpu, gpus)
    best = best_layout(shape, cluster, 512, software=SOFTWARE[library])
    fastest = best.fastest
    slower = best.step.seconds / fastest.seconds
    further = fastest.nearest.distance - best.step.nearest.distance
    assert slower <= (1 + MEDIAN_LEFT_OUT) * math.exp(WIDENED * max(further, 0))
    assert preference(best.step) <= preference(fastest)
    words = str(best)
    if best.layout != fastest.layout:
        assert (
            f"The fastest calculated is {fastest.layout.short}, {slower - 1:.1%}"
            in (words)
        )
    for shown in (best.step, *best.runners_up):
        assert f"Nearest published to {shown.layout.short}: {shown.nearest.label}" in (
            words
        )
    stages = best.layout.pipeline * best.layout.interleave
    is_single = stages > 1 and shape.layers <= stages
    assert ("chunks of a single layer" in words) == is_single
    ideas = [idea(shown.layout) for shown in (best.step, *best.runners_up)]
    assert len(set(ideas)) == len(ideas) <= 3
    # the advice doesn't depend on how many others are asked for
    same = best_layout(shape, cluster, 512, software=SOFTWARE[library], runners_up=0)
    assert same.layout == best.layout


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"doubts": 1}, {"doubts": 2}),
        ({"doubts": 1, "single": True}, {"doubts": 2}),
        ({"chunks": 5}, {"single": True}),
        ({"recipe": 0, "chunks": 5}, {"recipe": 1}),
        ({"chunks": 2}, {"chunks": 5, "tenths": 8}),
        ({"tenths": 8, "kinds": 3}, {"tenths": 9}),
        ({"kinds": 1, "seconds": 1.02}, {"kinds": 2}),
        ({"seconds": 1.0}, {"seconds": 1.01}),
    ],
)
def test_what_speaks_against_a_layout_is_weighed_in_order(first, second):
    plain = Preference(1, False, 2, 1, 10, 1, 1.0)
    assert plain._replace(**first) < plain._replace(**second)


def test_the_preferred_of_steps_is_no_slower_than_can_be_told():
    batch = 512
    layouts = [
        Layout(data=64, zero=3, dtype="mixed bfloat16"),
        replace(FSDP, recompute="half"),
        replace(FSDP, data=32, pipeline=2, interleave=16),
        FSDP,
    ]
    steps = [step(LLAMA, H100, layout, batch) for layout in layouts]
    fastest_s = min(each.seconds for each in steps)
    chosen = preferred(steps)
    assert chosen.seconds <= (1 + MEDIAN_LEFT_OUT) * fastest_s
    assert not is_surer(chosen, chosen, fastest_s)  # it has no fewer doubts than itself


def test_recipes_are_of_models_libraries_and_gpus_that_are_known():
    recipes = rows("recipes")
    assert len(recipes) > 100
    for row in recipes:
        assert row["library"] in versions()
        assert row["model"] in MODELS
        assert row["source"]
        if row["gpu"]:
            assert find(row["gpu"])
            ranks = math.prod(
                int(row[name]) for name in ("tensor", "pipeline", "context")
            )
            assert int(row["gpus"]) % ranks == 0, row["name"]


def test_a_recipe_of_the_library_is_named():
    layout = Layout(
        data=2,
        tensor=4,
        pipeline=8,
        interleave=5,
        zero=1,
        software=SOFTWARE["Megatron-Core"],
    )
    planned = step(model("Llama-3-70B"), H100, layout, 256)
    assert recipe(planned).startswith("llama3_70b_pretrain_64gpu_h100_fp8cs_config")
    assert preference(planned).recipe == 0
    fewer = replace(layout, interleave=2)
    assert preference(step(model("Llama-3-70B"), H100, fewer, 256)).recipe == 1
    own = replace(layout, software=SOFTWARE["torch"])
    assert recipe(step(model("Llama-3-70B"), H100, own, 256)) == ""


# --- what is counted of attention ---


@pytest.mark.parametrize(
    ("seq", "is_said"), [(8192, False), (32_768, True), (131_072, True)]
)
def test_mfu_is_said_without_what_a_mask_hides_where_that_is_much(seq, is_said):
    shape = replace(LLAMA, seq=seq)
    planned = step(shape, Cluster("H100 SXM5 80GB", 8), Layout(1, 8), 8)
    assert ("a causal mask hides" in str(planned)) == is_said
    square = 12 * shape.layers * shape.hidden * seq
    share = 1 - square / 2 / shape.flop_per_token
    assert planned.causal_mfu == pytest.approx(share * planned.mfu)


# --- why a run is slower than a published one ---

TE = SOFTWARE["Transformer Engine"]


def measured(layout=FSDP, cluster=H100, shape=LLAMA, batch=512, speed=None, **against):
    """A run as fast as it is calculated to be, if no speed is given."""
    speed = speed or step(shape, cluster, layout, batch).tokens_per_s_per_gpu
    return held_against(shape, cluster, layout, batch, speed, **against)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("recompute", {"layout": replace(FSDP, recompute="none")}),
        ("ZeRO", {"layout": replace(FSDP, zero=1)}),
        ("micro-batch", {"layout": replace(FSDP, micro_batch=4)}),
        ("precision", {"layout": replace(FSDP, dtype="mixed float8")}),
        ("ranks", {"layout": replace(FSDP, data=16, tensor=4)}),
        ("device", {"cluster": Cluster("A100 SXM4 80GB", 64)}),
        ("GPUs", {"cluster": Cluster("H100 SXM5 80GB", 512), "batch": 4096}),
        ("sequences a GPU", {"batch": 64}),
        ("sequence", {"shape": replace(LLAMA, seq=4096)}),
        ("model", {"shape": replace(model("Llama-2-7B"), seq=8192)}),
        ("attention", {"shape": replace(LLAMA, fused_attention=False)}),
        ("compile", {"layout": replace(FSDP, software=SOFTWARE["torch eager"])}),
    ],
)
def test_a_difference_is_worth_what_the_planner_calculates_for_it_alone(name, theirs):
    fields = {"layout": FSDP, "cluster": H100, "shape": LLAMA, "batch": 512, **theirs}
    layout = fields["layout"]
    if fields["cluster"].gpus != layout.gpus:
        fields["layout"] = replace(layout, data=fields["cluster"].gpus)
    other = measured(**fields)
    mine = measured(against=other)
    (row,) = mine.differences.rows
    assert row.name == name
    assert row.mine != row.theirs
    assert row.worth == pytest.approx(other.predicted / mine.predicted)
    assert mine.differences.unexplained == pytest.approx(1)
    slower = measured(speed=0.8 * mine.predicted, against=other)
    assert slower.differences.unexplained == pytest.approx(1 / 0.8)


def test_worths_close_the_gap_to_any_published_run():
    """Also where one change alone makes a layout that doesn't divide."""
    runs = [
        published_steps(table).rows[-1]
        for table in ("llm-foundry", "torchtitan", "megatron bridge", "MaxText")
    ]
    for mine in runs:
        for theirs in runs:
            held = measured(
                mine.by.layout,
                mine.by.cluster,
                mine.by.model,
                mine.by.batch,
                mine.published,
                against=theirs,
            )
            found = held.differences
            assert found.predicted == pytest.approx(theirs.predicted / mine.predicted)
            rest = (1 + mine.error) / (1 + theirs.error)
            assert found.unexplained == pytest.approx(rest)
            worths = [abs(math.log(row.worth)) for row in found.rows]
            assert worths == sorted(worths, reverse=True)


def test_without_another_run_it_is_the_nearest_published_one():
    run = published_steps("megatron bridge").rows[0]
    held = measured(
        run.by.layout,
        run.by.cluster,
        run.by.model,
        run.by.batch,
        0.9 * run.published,
    )
    assert held.differences.rows == ()
    assert held.differences.unexplained == pytest.approx(1 / 0.9)
    words = str(held.differences)
    assert run.label in words
    assert "Nothing that is compared differs" in words
    assert "All of the gap lies in what isn't compared" in words
    named = measured(speed=5000, against=f"megatron bridge, {run.label}")
    assert isinstance(named.against, Compared)
    with pytest.raises(ValueError, match="The nearest are"):
        measured(speed=5000, against="megatron bridges")


def test_qwen3_on_h100_against_the_blog_s_run():
    """NVIDIA/Megatron-LM, issue 2762: 120 TFLOP/s on 32 H100, and a blog's 277 on 8."""
    shape = replace(model("Qwen3-30B-A3B"), seq=4096)
    flop = shape.flop_per_token
    blog = measured(
        Layout(
            data=8, expert=8, zero=3, micro_batch=4, dtype="mixed bfloat16", software=TE
        ),
        Cluster("H100 SXM5 80GB", 8),
        shape,
        speed=277e12 / flop,
    )
    mine = measured(
        Layout(data=32, expert=8, zero=1, dtype="mixed bfloat16", software=TE),
        Cluster("H100 SXM5 80GB", 32),
        shape,
        speed=120e12 / flop,
        against=blog,
    )
    found = mine.differences
    assert {"micro-batch", "GPUs"} <= {row.name for row in found.rows}
    assert found.measured == pytest.approx(277 / 120)
    assert found.unexplained == pytest.approx(found.measured / found.predicted)
