"""The planner's page without a browser: what it answers to a form, and what is in it."""

import argparse
import base64
import io
import json
import re
import shlex
import subprocess
import sys
import zipfile
from html.parser import HTMLParser

import pytest

from trainplan import command
from trainplan.page import answers, build

pytestmark = pytest.mark.slow  # searches layouts

LLAMA = {"model": "llama3.1-8b", "gpu": "H100", "gpus": "64"}
LAYOUT = {"layout": "tp=2,zero=1", "library": "Megatron-Core"}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (LLAMA, "llama3.1-8b --gpus 64xH100"),
        (
            LLAMA | LAYOUT | {"run_tokens": "15e12", "sequence": " 4096 "},
            "llama3.1-8b --gpus 64xH100 --software Megatron-Core --layout tp=2,zero=1"
            " --tokens 15e12 --sequence 4096",
        ),
        (
            LLAMA | {"library": "TRL", "offload": "yes", "finetune": "lora:16"},
            "llama3.1-8b --gpus 64xH100 --software TRL --offload-activations"
            " --finetune lora:16",
        ),
        (
            {"way": "sizes", "sizes": "layers=2,hidden=512,heads=8,gated"}
            | {"model": "not meant", "gpu": "RTX 4090", "gpus": "2"}
            | {"gpus_per_node": "2", "step_tokens": "65536"},
            "--sizes layers=2,hidden=512,heads=8,gated --gpus '2xRTX 4090'"
            " --gpus-per-node 2 --global-batch 65536",
        ),
        (
            {"model": "llama3.1-8b", "gpu": "H100", "run_tokens": "1e11", "days": "9"},
            "llama3.1-8b --gpu H100 --tokens 1e11 --days 9",
        ),
    ],
)
def test_the_page_s_plan_is_that_of_the_command_line(fields, line):
    answer = answers.plan(fields)
    calculated = command.asked(shlex.split(line))
    table = calculated.table()
    assert answer["error"] == ""
    assert (answer["headings"], answer["rows"]) == (table.headings, table.rows)
    assert [
        (part["memory_bytes"], part["capacity_bytes"]) for part in answer["plans"]
    ] == [(step.memory_bytes, step.capacity_bytes) for step in calculated.steps]
    if calculated.gpus is None:
        assert answer["plans"][0]["configuration"] == calculated.configuration
    pasted = command.asked(shlex.split(answer["command"])[3:])
    assert pasted.table().rows == table.rows


def test_the_parts_of_memory_and_time_are_the_whole():
    for layout in answers.plan(LLAMA)["plans"]:
        memory = sum(part["amount"] for part in layout["memory"])
        assert memory == pytest.approx(layout["memory_bytes"], rel=0.005)
        for parts in (layout["memory"], layout["time"]):
            assert sum(part["share"] for part in parts) == pytest.approx(1, abs=0.005)


def test_a_pasted_config_is_planned_as_it_names_itself():
    named = CONFIG | {"_name_or_path": "mine/tiny"}
    for config, name in ((named, "mine/tiny"), (CONFIG, "your model")):
        fields = {"way": "config", "config": json.dumps(config)}
        answer = answers.plan(fields | {"gpu": "A100", "gpus": "8"})
        assert answer["title"][0].startswith(f"{name}: ")
        assert "--config config.json" in answer["command"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "Expected the model"),
        (LLAMA | {"model": "lama3"}, "The nearest are Llama"),
        (LLAMA | {"gpu": "H1000"}, "Nearest names: "),
        (LLAMA | {"gpus": "many"}, "Expected “GPUs” to be"),
        (LLAMA | {"gpus": "-8"}, "“GPUs” to be a whole number, such as 64, got '-8'"),
        ({"model": "llama3.1-8b", "gpus": "8"}, "Expected a GPU, such as H100"),
        (LLAMA | {"gpus_per_node": "0"}, "“GPUs in a node”"),
        (LLAMA | {"step_tokens": "-5"}, "Expected “Tokens a step” to be"),
        (LLAMA | {"sequence": "4096.5"}, "“Tokens a sequence”"),
        (LLAMA | {"run_tokens": "all"}, "“Tokens of the run”"),
        (LLAMA | {"layout": "xp=3"}, "“Layout”"),
        (LLAMA | {"library": "torchtitam"}, "“Library”"),
        ({"way": "config", "config": "{", "gpu": "H100", "gpus": "8"}, "can't be read"),
        ({"way": "sizes", "sizes": "layers=2", "gpu": "H100"}, "hidden, heads"),
        (LLAMA | {"model": "llama3.1-405b", "gpu": "T4"}, "No layout fits"),
        (LLAMA | {"days": "5"}, "“Tokens of the run”"),
        ({"model": "llama3.1-8b", "layout": "tp=2"}, "Expected “GPUs” beside “Layout”"),
    ],
)
def test_what_cannot_be_planned_is_said_in_the_page_s_words(fields, words):
    error = answers.plan(fields)["error"]
    assert words in error
    assert "--" not in error
    assert "/tmp" not in error


def test_a_gpu_is_told_with_its_peaks_and_source():
    row = answers.which_gpu({"which": "NVIDIA H100 80GB HBM3"})
    facts = dict(row["facts"])
    assert row["name"].startswith("H100 SXM5 80GB")
    assert facts["bfloat16, dense"] == "989.4 TFLOP/s"
    assert facts["source"]
    assert "is taken as" in answers.which_gpu({"which": "A100"})["assumed"]
    assert "Nearest names" in answers.which_gpu({"which": "GPU 3000"})["error"]
    assert "Expected the name" in answers.which_gpu({})["error"]


# -- the page itself


class Form(HTMLParser):
    """The labels of a page's named inputs, by name; and its addresses."""

    def __init__(self, text):
        super().__init__()
        self.labels = {}
        self.addresses = []
        self.label = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.addresses += [values[name] for name in ("src", "href") if name in values]
        if tag == "label":
            self.label = ""
        if tag in ("input", "select", "textarea"):
            self.labels[values["name"]] = (self.label or "").strip()

    def handle_data(self, text):
        if self.label is not None and text.strip() and not self.label.strip():
            self.label = text


def test_every_field_has_a_label_and_an_option_of_the_command_line():
    labels = Form(build.page()).labels
    assert set(labels) == {*answers.FIELDS, "which"}
    assert all(labels.values())
    for field, option in answers.OPTIONS.items():
        assert answers.LABELS[option] == labels[field]
    parser = command._parser()
    assert isinstance(parser, argparse.ArgumentParser)
    others = {"-h", "--help", "--by", "--picture", "--show", "--against"}
    assert set(answers.LABELS) == set(parser._option_string_actions) - others


def test_the_page_shows_an_example_before_python_is_there():
    text = build.page()
    (content,) = re.findall(r'id="example">(.*?)</script>', text)
    shown = json.loads(content)
    assert shown["answer"] == json.loads(json.dumps(answers.plan(shown["fields"])))
    assert shown["answer"]["error"] == ""


def test_the_page_reads_pyodide_s_address_alone():
    text = build.page()
    address = build.usual_address()
    assert Form(text).addresses == []
    outside = set(re.findall(r"https?://[^\s\"'<;]+", text))
    assert {each for each in outside if each.startswith("https://cdn")} == {address}
    assert f"connect-src {address};" in text
    assert "default-src 'none'" in text
    other = build.page("http://127.0.0.1:1/p/")
    assert address not in other
    assert "connect-src http://127.0.0.1:1/p/;" in other


def test_the_packages_in_the_page_plan_with_nothing_else(tmp_path):
    assert build.packages() == build.packages()
    (packed,) = re.findall(r'data-pyodide="[^"]+">([^<]+)<', build.page())
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
        archive.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from trainplan.page import answers\n"
        f"print(answers.reply({json.dumps(json.dumps({'kind': 'plan', 'fields': LLAMA}))}))"
    )
    # without the packages that are installed here
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert answer["error"] == ""
    assert answer["rows"] == [list(row) for row in answers.plan(LLAMA)["rows"]]
