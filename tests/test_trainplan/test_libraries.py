"""What libraries run: refusals by their rules, a search that keeps to them, and configurations whose options exist."""

import argparse
import contextlib
import csv
import dataclasses
import functools
import json
import random
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from trainplan.cluster import MODELS, SOFTWARE, Cluster, Layout, Transformer, best_layout, configuration, model, step
from trainplan.cluster.layout import RECOMPUTES, layers_of_stages, why_not
from trainplan.cluster.libraries import broken_rule, rules, running, versions
from trainplan.cluster.search import habits
from trainplan.cluster.software import Software
from trainplan.csv_tables import rows
from trainplan.errors import BadArgument, LayoutError

LLAMA, MIXTURE = model("Llama-3-70B"), model("Qwen3-30B-A3B")
H100 = Cluster("H100 SXM5 80GB", 64)


def of(library, **fields):
    return Layout(software=SOFTWARE[library], **fields)


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (of("torchtitan", data=8, tensor=8, zero=1), "zero = 0 or 3 with replicas above 1 in torchtitan v0.2.2"),
        (of("torchtitan", data=8, tensor=8), "zero = 3 with replicas above 1 and tensor above 1 .* > 1D parallelism"),
        (of("torchtitan", data=8, zero=3, tensor=8, recompute="selective"), "recompute = none or half or full"),
        (of("torchtitan", data=8, zero=3, tensor=8, sequence_parallel=False), "sequence_parallel = True with tensor"),
        (of("Megatron-Core", data=8, tensor=2, pipeline=4, zero=2), "zero = 0 or 1 .* pipeline above 1 .*, got 2"),
        (of("Megatron-Core", data=8, tensor=8, recompute="half"), "recompute = none or selective or full"),
        (of("Megatron-Core", data=8, pipeline=8, schedule="DualPipe"), "schedule = 1F1B in Megatron-Core"),
        (of("nanotron", data=8, tensor=8, zero=3), "zero = 0 or 1 .* nanotron .*Libraries|libraries that run"),
        (of("nanotron", data=4, tensor=8, pipeline=2, interleave=2), "interleave = 1 in nanotron"),
        (of("DeepSpeed", data=4, tensor=8, pipeline=2, zero=2), "ZeRO-2 and ZeRO-3 are incompatible with pipeline"),
        (of("DeepSpeed", data=64, zero=1, shard=8), "zero = 3 with shard above 1"),
        (of("llm-foundry", data=32, pipeline=2), "pipeline = 1 in llm-foundry"),
        (of("MaxText", data=64, zero=2), "zero = 0 or 3 .* in MaxText"),
    ],
)
def test_a_layout_that_a_library_does_not_run_is_refused_with_the_rule_and_its_source(layout, words):
    with pytest.raises(LayoutError, match=words) as refused:
        step(LLAMA, H100, layout, 512)
    assert re.search(r"in \S+ \S+ \(.+\), got ", str(refused.value))
    own = dataclasses.replace(layout, software=dataclasses.replace(layout.software, library=""))
    assert step(LLAMA, H100, own, 512).seconds > 0  # a program of one's own may


def test_a_refusal_names_the_libraries_that_run_the_layout():
    layout = of("torchtitan", data=8, tensor=8, zero=1)
    with pytest.raises(LayoutError, match="run this layout: Megatron-Core, nanotron, DeepSpeed"):
        step(LLAMA, H100, layout, 512)
    for library in running(LLAMA, layout):
        assert broken_rule(LLAMA, layout, library) is None
    assert broken_rule(LLAMA, layout, "") is None


def test_rules_know_the_model_too():
    apart = of("torchtitan", data=8, tensor=4, zero=3, expert=2, pipeline=1)
    assert "expert = multiple of tensor x context" in str(broken_rule(MIXTURE, apart, "torchtitan"))
    assert broken_rule(MIXTURE, dataclasses.replace(apart, expert=8), "torchtitan") is None
    staged = of("torchtitan", data=8, zero=3, pipeline=2)
    assert "pipeline = 1 with name = Qwen3-30B-A3B" in str(broken_rule(MIXTURE, staged, "torchtitan"))
    odd = dataclasses.replace(LLAMA, seq=3000)
    assert "seq = multiple of 2 x context" in str(broken_rule(odd, of("torchtitan", context=8), "Megatron-Core"))


def test_every_rule_names_a_field_and_a_source_and_a_library_is_known_by_its_name():
    fields = {field.name for shape in (Layout, Transformer) for field in dataclasses.fields(shape)}
    fields |= {"replicas", "sharded"}
    for library in versions():
        for rule in rules(library):
            assert {rule.field, *(name for name, _ in rule.where)} <= fields
            assert rule.row["source"]
            assert {factor for factor in rule.factors if not factor.isdigit()} <= fields
    assert {software.library for software in SOFTWARE.values()} == {"", *versions()}
    with pytest.raises(BadArgument, match="The nearest is 'torchtitan'"):
        Software(library="torchtitans")


def test_what_was_published_of_a_library_is_what_it_runs():
    """Of each table the runs of one library, each of which its rules allow."""
    table_of = {
        "torchtitan": "torchtitan", "nanotron": "nanotron", "llm-foundry": "llm-foundry", "MaxText": "MaxText",
        "llm-foundry H100": "llm-foundry", "nemo": "Megatron-Core", "megatron bridge": "Megatron-Core",
        "selective recomputation": "Megatron-Core",
    }  # fmt: skip
    judged = 0
    for row in rows("published/planner_steps"):
        if library := table_of.get(row["table"]):
            shape = Transformer(**json.loads(row["model"]))
            fields = json.loads(row["layout"])
            assert broken_rule(shape, Layout(**fields), library) is None, (row["label"], fields)
            judged += 1
    assert judged > 250


# --- stages ----------------------------------------------------------------------------------------------------------


def test_nanotron_deals_layers_by_the_cost_of_blocks_and_head():
    """The example of its documentation, Llama-3-8B on 8 stages, begins with five layers and goes on with four."""
    assert layers_of_stages(model("Llama-3-8B"), 8, 1, SOFTWARE["nanotron"]) == (5, 4, 4, 5, 4, 4, 4, 2)
    even = layers_of_stages(model("Llama-3-8B"), 8, 1, SOFTWARE["torch"])
    assert even == (4,) * 8
    small = dataclasses.replace(model("Llama-3-8B"), layers=4)
    assert layers_of_stages(small, 4, 1, SOFTWARE["nanotron"]) is None  # the head alone fills a stage
    with pytest.raises(LayoutError, match="a layer or more in each of 4 stages"):
        step(small, H100, of("nanotron", data=16, pipeline=4), 64)


# --- the search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [*SOFTWARE])
def test_a_search_finds_the_fastest_that_fits_of_all_that_the_library_runs(library):
    """Held against every combination, timed one by one: bounds and rules lose nothing."""
    draw, software = random.Random(library), SOFTWARE[library]
    shape = dataclasses.replace(draw.choice((model("Llama-2-7B"), MIXTURE)), layers=8, seq=4096, name="")
    cluster, batch = Cluster("A100 SXM4 80GB", 16), 32
    found, every = best_layout(shape, cluster, batch, software=software, runners_up=12), []
    for data, tensor, pipeline, v, zero, size, recompute, expert in every_choice(shape):
        layout = Layout(
            data, tensor, pipeline, v, zero, size, recompute, expert=expert, software=habits(software, pipeline)
        )
        if (zero == 0 or data > 1) and not why_not(shape, cluster, layout, batch):
            made = step(shape, cluster, layout, batch)
            every += [made.seconds] * made.fits
    steps = (found.step, *found.runners_up)
    assert [one.seconds for one in steps] == pytest.approx(sorted(every)[:13])
    assert found.tried == sum(found.rejected.values()) + 1
    for one in steps:
        assert broken_rule(shape, one.layout, software.library) is None
    said = f"Searched: what {software.library} {versions()[software.library]} runs" if software.library else "one's own"
    assert said in str(found)


def every_choice(shape):
    experts = (1, 2, 4, 8, 16) if shape.experts else (1,)
    for data, tensor, pipeline in [
        (d, t, 16 // d // t) for d in (1, 2, 4, 8, 16) for t in (1, 2, 4, 8) if 16 % (d * t) == 0
    ]:
        chunks = (
            (1,)
            if pipeline == 1
            else tuple(v for v in (1, 2, 4, 5) if 8 % (v * pipeline) == 0 or 10 % (v * pipeline) == 0)
        )
        for v in chunks or (1,):
            for zero in range(4):
                for size in (1, 2, 4, 8, 16, 32):
                    for recompute in RECOMPUTES:
                        if recompute != "selective":
                            for expert in experts:
                                yield data, tensor, pipeline, v, zero, size, recompute, expert


def test_a_search_passes_over_context_ranks_that_a_library_cannot_give_the_sequence():
    odd = dataclasses.replace(model("Llama-3-8B"), seq=8 * 2051)  # which 2 x 8 don't divide
    found = best_layout(odd, H100, 8, runners_up=50)
    assert all(
        one.layout.context * one.layout.tensor <= 4 for one in (found.step, *found.runners_up) if one.layout.context > 1
    )
    with pytest.raises(LayoutError, match="Expected kv_rank = 0 in nanotron"):
        best_layout(model("DeepSeek-V3"), Cluster("H100 SXM5 80GB", 2048), 1024, software=SOFTWARE["nanotron"])


def test_by_default_a_search_is_for_torchtitan_and_says_so():
    found = best_layout(LLAMA, H100, 512)
    assert found.layout.software.library == "torchtitan"
    assert found.layout.zero == 3
    assert f"Searched: what torchtitan {versions()['torchtitan']} runs." in found.notes
    assert found.rejected["that torchtitan doesn't run"] > 0


# --- configurations --------------------------------------------------------------------------------------------------


@functools.cache
def options(library):
    """The options of a library by name: (kind, choices). Read from its sources at the version in the table.

    Megatron-Core's from its own parser (megatron/training/arguments.py), torchtitan's from torchtitan/config/
    job_config.py, nanotron's from src/nanotron/config.
    """
    with (Path(__file__).parent / "library_options.csv").open(newline="", encoding="utf-8") as file:
        read = [row for row in csv.DictReader(file) if row["library"] == library]
    assert {row["version"] for row in read} == {versions()[library]}
    return {row["option"]: (row["kind"], row["choices"].split()) for row in read}


def parsed_by_megatron(text):
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False, add_help=False)
    for option, (kind, choices) in options("Megatron-Core").items():
        if kind == "switch":
            parser.add_argument(option, action="store_true")
        else:
            of_kind = {"int": int, "float": float}.get(kind.split()[0], str)
            parser.add_argument(option, type=of_kind, choices=choices or None, nargs="+" if "list" in kind else None)
    words = shlex.split(text.replace("\\\n", " "))
    return parser.parse_args(words[words.index("pretrain_gpt.py") + 1 :])


def judged(library, name, value):
    kind, choices = options(library)[name]
    kinds = {"int": int, "bool": bool, "str": str, "float": float, "list": list}
    assert kind == "other" or type(value) is kinds[kind], (name, value)
    assert not choices or value in choices, (name, value)


def leaves(tree, prefix=""):
    for key, value in tree.items():
        yield from leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]


def read_yaml(text):
    """A YAML file of nested mappings of JSON values, as `configuration` writes."""
    tree = {}
    path = [tree]
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        depth, (key, _, value) = (len(line) - len(line.lstrip())) // 2, line.strip().partition(":")
        del path[depth + 1 :]
        path[depth][key] = json.loads(value) if value.strip() else {}
        path.append(path[depth][key])
    return tree


def drawn(library, count):
    """Steps of layouts that a library runs, drawn at random."""
    draw = random.Random(f"configurations of {library}")
    while count:
        data, tensor, pipeline, context = (
            draw.choice(some) for some in ((1, 2, 8), (1, 2, 8), (1, 1, 2, 4), (1, 1, 2))
        )
        layout = Layout(
            data, tensor, pipeline, draw.choice((1, 2)), draw.randrange(4), draw.choice((1, 2)),
            draw.choice(RECOMPUTES), dtype=draw.choice(("mixed bfloat16", "autocast bfloat16", "mixed float8")),
            context=context, expert=draw.choice((1, 1, 8)), offload=draw.random() < 0.2,
            shard=draw.choice((None, None, 2)), software=SOFTWARE[library],
        )  # fmt: skip
        cluster = Cluster("H100 SXM5 80GB", layout.gpus, min(layout.gpus, 8))
        with contextlib.suppress(LayoutError):
            yield step(draw.choice([*MODELS.values()]), cluster, layout, data * layout.micro_batch * pipeline * 4)
            count -= 1


def test_every_flag_for_megatron_core_is_one_that_its_parser_takes():
    for made in drawn("Megatron-Core", 150):
        layout, given = made.layout, parsed_by_megatron(configuration(made))
        sizes = (given.tensor_model_parallel_size, given.pipeline_model_parallel_size, given.context_parallel_size)
        assert sizes == (layout.tensor, layout.pipeline, layout.context)
        stages = given.pipeline_model_parallel_layout
        assert (given.num_virtual_stages_per_pipeline_rank or 1) == (1 if stages else layout.interleave)
        assert (given.micro_batch_size, given.global_batch_size) == (layout.micro_batch, made.batch)
        assert (given.num_layers, given.hidden_size, given.seq_length) == (
            made.model.layers, made.model.hidden, made.model.seq,
        )  # fmt: skip
        assert given.use_distributed_optimizer == (layout.zero > 0)
        assert given.use_megatron_fsdp == (layout.zero > 1)
        assert given.attention_dropout == given.hidden_dropout == 0.0  # Megatron-Core's own default is 0.1
        if stages:
            assert sum(map(int, re.findall(r"t\*(\d+)", stages))) == made.model.layers
            assert stages.count("|") == layout.pipeline * layout.interleave - 1


def test_every_key_for_torchtitan_is_one_of_its_configuration():
    for made in drawn("torchtitan", 150):
        layout, given = made.layout, tomllib.loads(configuration(made))
        for name, value in leaves(given):
            judged("torchtitan", name, value)
        ranks = given["parallelism"]
        shares = ranks["data_parallel_replicate_degree"] * ranks["data_parallel_shard_degree"]
        assert shares * layout.tensor * layout.pipeline * layout.context == made.cluster.gpus
        local, whole = given["training"]["local_batch_size"], given["training"]["global_batch_size"]
        assert whole % (local * shares) == 0
        assert ("pipeline_parallel_schedule" in ranks) == (layout.pipeline > 1)
        if per_stage := ranks.get("pipeline_parallel_layers_per_stage"):
            less = ranks["pipeline_parallel_first_stage_less_layers"]
            fits = -(-(made.model.layers + 2 * less) // per_stage) == layout.pipeline * layout.interleave
            assert fits or "module_fqns_per_model_part" in configuration(made)


def test_every_key_for_nanotron_is_one_of_its_configuration():
    for made in drawn("nanotron", 150):
        given = read_yaml(configuration(made))
        kind = "Qwen2" if "is_qwen2_config" in given["model"]["model_config"] else "Llama"
        for name, value in leaves(given):
            judged("nanotron", name.replace("model_config.", f"model_config.{kind}."), value)
        ranks = given["parallelism"]
        assert ranks["dp"] * ranks["tp"] * ranks["pp"] * ranks["context_parallel_size"] == made.cluster.gpus
        tokens = given["tokens"]
        assert ranks["dp"] * tokens["micro_batch_size"] * tokens["batch_accumulation_per_replica"] == made.batch


def test_a_step_for_no_library_has_no_configuration():
    assert configuration(step(LLAMA, H100, Layout(8, 8), 64)) == ""
    assert configuration(step(LLAMA, H100, of("DeepSpeed", data=8, tensor=8), 64)) == ""
