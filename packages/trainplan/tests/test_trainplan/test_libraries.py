"""What libraries run: their rules, a search that keeps to them, and configurations
whose options exist.
"""

import argparse
import contextlib
import csv
import dataclasses
import functools
import itertools
import json
import math
import random
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from trainplan.cluster import (
    MODELS,
    SOFTWARE,
    Cluster,
    Layout,
    Transformer,
    best_layout,
    configuration,
    model,
    step,
)
from trainplan.cluster.constants import MEDIAN_LEFT_OUT, MEMORY_SPREAD, WIDENED
from trainplan.cluster.divisibility import why_not
from trainplan.cluster.layout import RECOMPUTES, layers_of_stages
from trainplan.cluster.libraries import (
    broken_rule,
    rules,
    running,
    usual_software,
)
from trainplan.cluster.preference import idea, is_surer, preferred
from trainplan.cluster.search import habits
from trainplan.cluster.software import Software, versions
from trainplan.csv_tables import rows
from trainplan.errors import LayoutError

pytestmark = pytest.mark.slow  # searches, and many drawn layouts

LLAMA = model("Llama-3-70B")
MIXTURE = model("Qwen3-30B-A3B")
H100 = Cluster("H100 SXM5 80GB", 64)


def of(library, **fields):
    return Layout(software=SOFTWARE[library], **fields)


# --- rules ---


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (
            of("torchtitan", data=8, tensor=8, zero=1),
            "zero = 0 or 3 with replicas above 1 in torchtitan v0.2.2",
        ),
        (
            of("torchtitan", data=8, zero=3, tensor=8, recompute="selective"),
            "recompute = none or half or full",
        ),
        (
            of("Megatron-Core", data=8, tensor=2, pipeline=4, zero=2),
            "zero = 0 or 1 .* pipeline above 1 .*, got 2",
        ),
        (
            of("Megatron-Core", data=8, pipeline=8, schedule="DualPipe"),
            "schedule = 1F1B in Megatron-Core",
        ),
        (
            of("nanotron", data=4, tensor=8, pipeline=2, interleave=2),
            "interleave = 1 in nanotron",
        ),
        (
            of("DeepSpeed", data=4, tensor=8, pipeline=2, zero=2),
            "ZeRO-2 and ZeRO-3 are incompatible with pipeline",
        ),
        (of("DeepSpeed", data=64, zero=1, shard=8), "zero = 3 with shard above 1"),
        (of("llm-foundry", data=32, pipeline=2), "pipeline = 1 in llm-foundry"),
        (of("MaxText", data=64, zero=2), "zero = 0 or 3 .* in MaxText"),
    ],
)
def test_a_layout_that_a_library_does_not_run_is_refused_with_the_rule_and_its_source(
    layout, words
):
    with pytest.raises(LayoutError, match=words) as refused:
        step(LLAMA, H100, layout, 512)
    assert re.search(r"in \S+ \S+ \(.+\), got ", str(refused.value))
    own = dataclasses.replace(
        layout, software=dataclasses.replace(layout.software, library="")
    )
    assert step(LLAMA, H100, own, 512).seconds > 0  # a program of one's own may


def test_a_refusal_names_the_libraries_that_run_the_layout():
    layout = of("torchtitan", data=8, tensor=8, zero=1)
    with pytest.raises(
        LayoutError, match="run this layout: Megatron-Core, nanotron, DeepSpeed"
    ):
        step(LLAMA, H100, layout, 512)
    for library in running(LLAMA, layout):
        own = dataclasses.replace(layout, dtype=SOFTWARE[library].dtype)
        assert broken_rule(LLAMA, own, library) is None


def test_rules_know_the_model_too():
    apart = of("torchtitan", data=8, tensor=4, zero=3, expert=2, pipeline=1)
    assert "expert = multiple of tensor x context" in str(
        broken_rule(MIXTURE, apart, "torchtitan")
    )
    assert (
        broken_rule(MIXTURE, dataclasses.replace(apart, expert=8), "torchtitan") is None
    )
    staged = of("torchtitan", data=8, zero=3, pipeline=2)
    assert "pipeline = 1 with family = qwen3" in str(
        broken_rule(MIXTURE, staged, "torchtitan")
    )
    odd = dataclasses.replace(LLAMA, seq=3000)
    assert "seq = multiple of 2 x context" in str(
        broken_rule(odd, of("torchtitan", context=8), "Megatron-Core")
    )


@pytest.mark.parametrize(
    ("name", "layout", "rule"),
    [
        # fewer key and value heads than tensor ranks
        (
            "GLM-4-9B",
            of("torchtitan", data=2, tensor=4, zero=3),
            "tensor = divisor of key_value_heads with tensor above 1",
        ),
        (
            "GLM-4-9B",
            of("nanotron", data=2, tensor=4),
            "tensor = divisor of key_value_heads with tensor above 1",
        ),
        ("GLM-4-9B", of("Megatron-Core", tensor=8), ""),
        ("GLM-4-9B", of("nanotron", data=4, tensor=2), ""),
        ("DeepSeek-V3", of("torchtitan", tensor=8, zero=0), ""),
        # heads of a width of their own
        ("Qwen3-30B-A3B", of("nanotron", data=8), "query_width = hidden"),
        ("GPT-OSS-20B", of("nanotron", data=8), "query_width = hidden"),
        ("Mixtral-8x7B", of("nanotron", data=8), ""),
        # families of torchtitan's models
        ("GPT-2-124M", of("torchtitan", data=8, zero=3), "gated = True"),
        (
            "GLM-4.5-Air",
            of("torchtitan", data=8, zero=3),
            "dense = 0 with family = qwen3",
        ),
        (
            "Llama-3.2-1B",
            of("torchtitan", data=4, pipeline=2, zero=3),
            "pipeline = 1 with family = qwen3",
        ),
        (
            "GPT-OSS-20B",
            of("torchtitan", data=4, context=2, zero=3),
            "context = 1 with family = gpt_oss",
        ),
    ],
)
def test_what_a_library_makes_of_a_model(name, layout, rule):
    broken = broken_rule(model(name), layout, layout.software.library)
    assert str(broken or "") == rule


@pytest.mark.parametrize(
    ("shape", "family", "flavor"),
    [
        (model("Llama-3.1-8B"), "llama3", "8B"),
        (dataclasses.replace(model("Llama-3.1-8B"), seq=4096), "llama3", "8B"),
        (dataclasses.replace(model("Llama-3.1-8B"), layers=8), "llama3", "mine"),
        (model("Mixtral-8x7B"), "qwen3", "mine"),
        (model("Llama-3.2-1B"), "qwen3", "mine"),
        (model("Gemma-7B"), "qwen3", "mine"),
        (model("Kimi-K2"), "deepseek_v3", "mine"),
        (model("GPT-OSS-20B"), "gpt_oss", "20b"),
    ],
)
def test_torchtitan_is_told_the_family_that_has_the_model_s_parts(
    shape, family, flavor
):
    planned = step(shape, H100, of("torchtitan", data=64, zero=3), 64)
    named = tomllib.loads(configuration(planned))["model"]
    assert (named["name"], named["flavor"]) == (family, flavor)


@pytest.mark.parametrize("name", ["Gemma-2-9B", "Gemma-3-4B"])
def test_torchtitan_has_windows_of_attention_in_gpt_oss_alone(name):
    within = dataclasses.replace(model(name), seq=model(name).window)
    assert usual_software(model(name)) is SOFTWARE["Megatron-Core"]
    assert usual_software(within) is SOFTWARE["torchtitan"]
    assert usual_software(model("GPT-OSS-20B")) is SOFTWARE["torchtitan"]


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("TRL", {"dtype": "bfloat16"}),
        ("TRL", {"dtype": "autocast float16"}),
        ("axolotl", {"optimizer": "adamw_8bit"}),
    ],
)
def test_a_search_keeps_to_the_levels_of_zero_that_a_dtype_or_optimizer_allows(
    library, words
):
    best = best_layout(
        model("Llama-3.2-1B"),
        Cluster("H100 SXM5 80GB", 8),
        64,
        software=SOFTWARE[library],
        runners_up=0,
        **words,
    )
    assert best.step.layout.zero == 0


def test_a_tpu_s_plan_is_for_maxtext():
    best = best_layout(model("Llama-3.2-1B"), Cluster("TPU v5e", 4), 64, runners_up=0)
    assert best.step.layout.software is SOFTWARE["MaxText"]


def test_tensor_ranks_fill_nodes_or_divide_them():
    shape = dataclasses.replace(LLAMA, heads=24, kv_heads=24, head_dim=128)
    cluster = Cluster("H100 SXM5 80GB", 24)
    with pytest.raises(LayoutError, match=r"the 8 GPUs of a node.*: 2 or 4"):
        step(shape, cluster, Layout(8, tensor=3), 64)
    trio = Cluster("H100 SXM5 80GB", 24, gpus_per_node=3)
    assert step(shape, trio, Layout(8, tensor=3), 64).seconds > 0
    assert step(LLAMA, H100, Layout(4, tensor=16), 64).seconds > 0


def test_every_rule_names_fields_that_exist_and_a_source():
    fields = {
        field.name
        for shape in (Layout, Transformer)
        for field in dataclasses.fields(shape)
    }
    fields |= {"replicas", "sharded", "family", "has_tied_head", "query_width"}
    fields |= {"inner", "key_value_heads"}
    for library in versions():
        for rule in rules(library):
            assert {rule.field, *(name for name, _ in rule.where)} <= fields
            assert {factor for factor in rule.factors if not factor.isdigit()} <= fields
            assert rule.row["source"]
    assert {software.library for software in SOFTWARE.values()} == {"", *versions()}
    with pytest.raises(ValueError, match="The nearest is 'torchtitan'"):
        Software(library="torchtitans")


def test_what_was_published_of_a_library_is_what_it_runs():
    """Of each table the runs of one library, each of which its rules allow."""
    library_of = {
        "torchtitan": "torchtitan",
        "nanotron": "nanotron",
        "llm-foundry": "llm-foundry",
        "MaxText": "MaxText",
        "llm-foundry H100": "llm-foundry",
        "nemo": "Megatron-Core",
        "megatron bridge": "Megatron-Core",
        "selective recomputation": "Megatron-Core",
    }
    of_libraries = [
        row for row in rows("published/planner_steps") if row["table"] in library_of
    ]
    assert len(of_libraries) > 250
    for row in of_libraries:
        shape = Transformer(**json.loads(row["model"]))
        layout = Layout(**json.loads(row["layout"]))
        assert broken_rule(shape, layout, library_of[row["table"]]) is None, (
            row["label"],
            layout,
        )


def test_nanotron_deals_layers_by_the_cost_of_blocks_and_head():
    """The example of its documentation, Llama-3-8B on 8 stages, begins with 5 and then
    has 4.
    """
    shape = model("Llama-3-8B")
    assert layers_of_stages(shape, 8, 1, SOFTWARE["nanotron"]) == (
        5,
        4,
        4,
        5,
        4,
        4,
        4,
        2,
    )
    assert layers_of_stages(shape, 8, 1, SOFTWARE["torch"]) == (4,) * 8
    small = dataclasses.replace(shape, layers=4)  # the head alone fills a stage
    with pytest.raises(LayoutError, match="a layer or more in each of 4 stages"):
        step(small, H100, of("nanotron", data=16, pipeline=4), 64)


# --- the search ---


@pytest.mark.parametrize(
    "library",
    [
        name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.nightly)
        for i, name in enumerate(SOFTWARE)
    ],
)
def test_a_search_finds_the_fastest_that_fits_of_all_that_the_library_runs(library):
    """Held against every combination, timed one by one: bounds and
    rules lose nothing.
    """
    software = SOFTWARE[library]
    runnable = [
        shape
        for shape in (model("Llama-2-7B"), MIXTURE)
        if broken_rule(shape, Layout(software=software), software.library) is None
    ]
    shape = random.Random(library).choice(runnable)
    shape = dataclasses.replace(shape, layers=8, seq=4096, name="")
    cluster = Cluster("H100 SXM5 80GB", 16)
    best = best_layout(shape, cluster, 32, software=software, runners_up=12)
    steps = (best.step, *best.runners_up)
    planned = [
        step(shape, cluster, layout, 32)
        for layout in every_layout(shape, cluster, 32, software)
    ]
    fitting = sorted(
        (each for each in planned if each.fits), key=lambda each: each.seconds
    )
    assert best.fastest.seconds == pytest.approx(fitting[0].seconds)
    others = [each.seconds for each in fitting if each.layout != best.layout]
    assert [each.seconds for each in best.runners_up] == pytest.approx(others[:12])
    tight_s = min((each.seconds for each in planned if each.tight), default=math.inf)
    if tight_s < fitting[0].seconds:
        assert best.tight.seconds == pytest.approx(tight_s)
    first = preferred(fitting)
    is_first = best.layout == first.layout
    assert is_first or is_surer(best.step, first, fitting[0].seconds)
    require_other_ideas(best_layout(shape, cluster, 32, software=software), fitting)
    alike_s = (1 + MEDIAN_LEFT_OUT) * best.fastest.seconds
    # all but the fastest itself
    assert best.alike == sum(each.seconds < alike_s for each in fitting) - 1
    assert best.tried == sum(best.rejected.values()) + 1
    assert all(
        broken_rule(shape, each.layout, software.library) is None for each in steps
    )
    version = versions().get(software.library)
    searched = (
        f"what {software.library} {version} runs"
        if version
        else "what a program of one's own could do"
    )
    assert f"Searched: {searched}" in str(best)


def require_other_ideas(best, fitting):
    """No two shown are of one idea, and each is as fast as the fastest of its idea."""
    shown = (best.step, *best.runners_up)
    ideas = [idea(each.layout) for each in shown]
    assert len(set(ideas)) == len(ideas) <= 3
    for each, own in zip(shown, ideas, strict=True):
        fastest_s = min(other.seconds for other in fitting if idea(other.layout) == own)
        surer_s = math.exp(WIDENED * best.fastest.nearest.distance)
        most = surer_s if each is best.step else 1
        assert each.seconds <= most * (1 + MEDIAN_LEFT_OUT) * fastest_s
    left_s = [each.seconds for each in fitting if idea(each.layout) not in ideas]
    if len(shown) == 3:
        assert min(left_s) >= min(each.seconds for each in best.runners_up)
    else:
        assert not left_s or min(left_s) > 1.5 * best.fastest.seconds


def every_layout(shape, cluster, batch, software):
    """All layouts of 16 GPUs that the library runs, with eight layers
    in equal chunks.
    """
    counts = (1, 2, 4, 8, 16)
    choices = itertools.product(
        counts,  # data ranks
        counts[:4],  # tensor ranks
        counts,  # pipeline ranks
        (1, 2, 4, 5),  # chunks
        range(4),  # ZeRO
        (*counts, 32),  # micro-batch
        [recompute for recompute in RECOMPUTES if recompute != "selective"],
        counts if shape.experts else (1,),
    )
    for data, tensor, pipeline, chunks, zero, micro_batch, recompute, expert in choices:
        # ten: eight layers, the embedding and the head
        divided = any(layers % (chunks * pipeline) == 0 for layers in (8, 10))
        if data * tensor * pipeline != 16 or (zero and data == 1):
            continue
        if chunks > 1 and (pipeline == 1 or not divided):
            continue
        layout = Layout(
            data, tensor, pipeline, chunks, zero, micro_batch, recompute, expert=expert,
            software=habits(software, pipeline),
        )  # fmt: skip
        if not why_not(shape, cluster, layout, batch):
            yield layout


def test_more_chunks_than_eight_and_context_ranks_are_searched():
    """Eighty layers in four stages of 20 chunks, as NVIDIA trains Llama 2 70B."""
    best = best_layout(
        model("Llama-2-70B"), Cluster("H100 SXM5 80GB", 32), 32, runners_up=1000
    )
    assert max(each.layout.interleave for each in (best.step, *best.runners_up)) > 8
    long = dataclasses.replace(model("Llama-3-8B"), seq=131_072)
    assert best_layout(long, H100, 4).layout.context > 1


def test_a_search_passes_over_what_a_library_cannot_run():
    # which 2 x 8 don't divide
    odd = dataclasses.replace(model("Llama-3-8B"), seq=8 * 2051)
    best = best_layout(odd, H100, 8, runners_up=50)
    layouts = [planned.layout for planned in (best.step, *best.runners_up)]
    assert all(
        layout.context * layout.tensor <= 4 for layout in layouts if layout.context > 1
    )
    deepseek = model("DeepSeek-V3")
    with pytest.raises(LayoutError, match="Expected kv_rank = 0 in nanotron"):
        best_layout(
            deepseek,
            Cluster("H100 SXM5 80GB", 2048),
            1024,
            software=SOFTWARE["nanotron"],
        )


def test_a_search_leaves_the_reserve_free():
    shape = model("Llama-2-70B")
    for reserve, most_bytes in ((0.0, 80e9), (0.08, 0.92 * 80e9)):
        cluster = Cluster("A100 SXM4 80GB", 64, reserve=reserve)
        software = SOFTWARE["torch"]
        best = best_layout(shape, cluster, 512, software=software, runners_up=20)
        # of which the interval's upper end fits
        most_bytes /= math.exp(MEMORY_SPREAD)
        fullest = max(each.memory_bytes for each in (best.step, *best.runners_up))
        assert 0.9 * most_bytes < fullest <= most_bytes


# --- configurations ---


@functools.cache
def options(library):
    """The options of a library by name: (kind, choices), from its sources at the
    version in the table.

    Megatron-Core's are from its own parser (megatron/training/arguments.py),
    torchtitan's from torchtitan/config/ job_config.py, nanotron's from
    src/nanotron/config.
    """
    with (Path(__file__).parent / "library_options.csv").open(
        newline="", encoding="utf-8"
    ) as file:
        read = [row for row in csv.DictReader(file) if row["library"] == library]
    assert {row["version"] for row in read} == {versions()[library]}
    return {row["option"]: (row["kind"], row["choices"].split()) for row in read}


@functools.cache
def megatron_parser():
    parser = argparse.ArgumentParser(
        allow_abbrev=False, exit_on_error=False, add_help=False
    )
    for option, (kind, choices) in options("Megatron-Core").items():
        if kind == "switch":
            parser.add_argument(option, action="store_true")
        else:
            value = {"int": int, "float": float}.get(kind.split()[0], str)
            parser.add_argument(
                option,
                type=value,
                choices=choices or None,
                nargs="+" if "list" in kind else None,
            )
    return parser


def require_option(library, name, value):
    kind, choices = options(library)[name]
    kinds = {"int": int, "bool": bool, "str": str, "float": float, "list": list}
    assert kind == "other" or type(value) is kinds[kind], (name, value)
    assert not choices or value in choices, (name, value)


def leaves(tree, prefix=""):
    for key, value in tree.items():
        yield from (
            leaves(value, f"{prefix}{key}.")
            if isinstance(value, dict)
            else [(prefix + key, value)]
        )


def drawn(library, count=60):
    """Steps of layouts that a library runs, drawn at random."""
    draw = random.Random(f"configurations of {library}")
    choices = {
        "data": (1, 2, 8),
        "tensor": (1, 2, 8),
        "pipeline": (1, 1, 2, 4),
        "context": (1, 1, 2),
        "interleave": (1, 2),
        "zero": (0, 1, 2, 3),
        "micro_batch": (1, 2),
        "recompute": RECOMPUTES,
        "expert": (1, 1, 8),
        "dtype": ("", "", "", "mixed bfloat16", "autocast bfloat16", "mixed float8"),
        "offload": (False,) * 4 + (True,),
        "shard": (None, None, 2),
    }
    while count:
        layout = of(
            library, **{field: draw.choice(values) for field, values in choices.items()}
        )
        cluster = Cluster("H100 SXM5 80GB", layout.gpus, min(layout.gpus, 8))
        batch = layout.data * layout.micro_batch * layout.pipeline * 4
        with contextlib.suppress(LayoutError):
            planned = step(draw.choice([*MODELS.values()]), cluster, layout, batch)
            if configuration(planned):  # none is written for state spaces
                yield planned
                count -= 1


def test_every_flag_for_megatron_core_is_one_that_its_parser_takes():
    for planned in drawn("Megatron-Core"):
        layout = planned.layout
        words = shlex.split(configuration(planned).replace("\\\n", " "))
        flags = megatron_parser().parse_args(
            words[words.index("pretrain_gpt.py") + 1 :]
        )
        assert flags.tensor_model_parallel_size == layout.tensor
        assert flags.pipeline_model_parallel_size == layout.pipeline
        assert flags.context_parallel_size == layout.context
        assert (flags.micro_batch_size, flags.global_batch_size) == (
            layout.micro_batch,
            planned.batch,
        )
        assert (flags.num_layers, flags.hidden_size) == (
            planned.model.layers,
            planned.model.hidden,
        )
        assert flags.seq_length == planned.model.seq
        assert flags.use_distributed_optimizer == (layout.zero > 0)
        assert flags.use_megatron_fsdp == (layout.zero > 1)
        # Megatron-Core's default is 0.1
        assert flags.attention_dropout == flags.hidden_dropout == 0.0
        stages = flags.pipeline_model_parallel_layout
        assert (flags.num_virtual_stages_per_pipeline_rank or 1) == (
            1 if stages else layout.interleave
        )
        if stages:
            assert (
                sum(map(int, re.findall(r"t\*(\d+)", stages))) == planned.model.layers
            )
            assert stages.count("|") == layout.pipeline * layout.interleave - 1


def test_every_key_for_torchtitan_is_one_of_its_configuration():
    for planned in drawn("torchtitan"):
        layout = planned.layout
        keys = tomllib.loads(configuration(planned))
        for name, value in leaves(keys):
            require_option("torchtitan", name, value)
        ranks = keys["parallelism"]
        shares = (
            ranks["data_parallel_replicate_degree"]
            * ranks["data_parallel_shard_degree"]
        )
        assert (
            shares * layout.tensor * layout.pipeline * layout.context
            == planned.cluster.gpus
        )
        training = keys["training"]
        assert (
            training["global_batch_size"] % (training["local_batch_size"] * shares) == 0
        )
        assert ("pipeline_parallel_schedule" in ranks) == (layout.pipeline > 1)
        if per_stage := ranks.get("pipeline_parallel_layers_per_stage"):
            layers = (
                planned.model.layers
                + 2 * ranks["pipeline_parallel_first_stage_less_layers"]
            )
            even = -(-layers // per_stage) == layout.pipeline * layout.interleave
            assert even or "module_fqns_per_model_part" in configuration(planned)


def test_every_key_for_nanotron_is_one_of_its_configuration():
    for planned in drawn("nanotron"):
        keys = yaml.safe_load(configuration(planned))
        kind = (
            "Qwen2" if "is_qwen2_config" in keys["model"]["model_config"] else "Llama"
        )
        for name, value in leaves(keys):
            require_option(
                "nanotron",
                name.replace("model_config.", f"model_config.{kind}."),
                value,
            )
        ranks = keys["parallelism"]
        assert (
            ranks["dp"] * ranks["tp"] * ranks["pp"] * ranks["context_parallel_size"]
            == planned.cluster.gpus
        )
        tokens = keys["tokens"]
        assert (
            ranks["dp"]
            * tokens["micro_batch_size"]
            * tokens["batch_accumulation_per_replica"]
            == planned.batch
        )


def test_a_step_for_no_library_has_no_configuration():
    assert configuration(step(LLAMA, H100, Layout(8, 8), 64)) == ""
    assert configuration(step(LLAMA, H100, of("DeepSpeed", data=8, tensor=8), 64)) == ""
