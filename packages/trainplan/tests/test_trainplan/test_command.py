"""`python -m trainplan`: what it prints, which names it takes, and what it refuses."""

import re
import shlex
import subprocess
import sys
from datetime import date

import pytest

from trainplan import deadlines
from trainplan.__main__ import main
from trainplan.cluster import Cluster, best_layout, model
from trainplan.cluster.gpu_search import USUAL_TOKENS
from trainplan.cluster.preference import idea
from trainplan.cluster.search import even_batch
from trainplan.command import asked


def command(text):
    """The words of a command line: a space in a name is written as _."""
    return [word.replace("_", " ") for word in text.split()]


@pytest.mark.slow
def test_the_search_is_that_of_best_layout(capsys):
    assert main(command("llama3-70b --gpus 512xH100 --tokens 15e12 --show 3")) == 0
    out = capsys.readouterr().out
    cluster = Cluster("H100 SXM5 80GB", 512)
    best = best_layout(
        model("Llama-3-70B"), cluster, USUAL_TOKENS // 8192, runners_up=2
    )
    # a long layout goes on in a line of its own
    rows = re.findall(r"(?m)^(tp=\S+)( .*)(?:\n(\w+=\S+)$)?", out)
    for row, planned in zip(rows, (best.step, *best.runners_up), strict=True):
        layout = row[0] + row[2]
        pasted = asked(command(f"llama3-70b --gpus 512xH100 --layout {layout}")).steps[
            0
        ]
        assert (pasted.layout, pasted.seconds) == (planned.layout, planned.seconds)
    assert f"{best.step.mfu:.1%}" in rows[0][1]
    assert f"{best.step.train_s(15e12) / 86_400:.0f} days" in rows[0][1]
    words = " ".join(out.split())
    assert (
        "Calculated, not measured. Of the first: Eight of ten published steps would be"
        " within" in words
    )
    assert "Searched: what torchtitan v0.2.2 runs." in words
    assert "[parallelism]" in out
    assert "'H100' is taken as H100 SXM5 80GB" in out


@pytest.mark.slow
def test_without_a_number_three_ideas_are_shown_with_what_was_published_near_them():
    plan = asked(command("llama3-70b --gpus 512xH100"))
    ideas = {idea(planned.layout) for planned in plan.steps}
    assert len(ideas) == len(plan.steps) == 3
    for planned in plan.steps:
        near = f"Nearest published to {planned.layout.short}: {planned.nearest.label}"
        assert any(note.startswith(near) for note in plan.notes)


def test_a_measured_run_is_held_against_the_nearest_published_one(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    layout = "--layout zero=3,recompute=full --software torch"
    words = f"llama3-8b --gpus 64xH100 {layout} --measured 5800"
    assert main(command(words)) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "measured 5,800" in out
    for row in ("calculated", "measured", "unexplained"):
        assert re.search(rf"(?m)^{row} +x \d", out)
    label = "nemo, 24.12 LLAMA3-8B, 8 x H100, FP8"
    named = [*command(words), "--against", label]
    assert main(named) == 0
    assert f"Against {label}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model_name", "gpus", "words"),
    [
        ("LLAMA 3 8B", "8xA100", ("Llama-3-8B", "8 x A100 SXM4 80GB")),
        ("llama_2_7b", "8xa100-sxm4-40gb", ("Llama-2-7B", "8 x A100 SXM4 40GB")),
        ("gpt7.5", "16×H200", ("GPT 7.5B", "16 x H200 SXM")),
        ("qwen3-30b", "8x4090", ("Qwen3-30B-A3B", "8 x GeForce RTX 4090")),
        ("qwen3 moe 30b a3b", "8xH100", ("Qwen3-30B-A3B", "8 x H100 SXM5 80GB")),
        ("DeepSeek-R1-Distill-Qwen-32B", "64xH100", ("Qwen2.5-32B", "64 x H100")),
    ],
)
def test_names_in_any_form_are_understood(model_name, gpus, words):
    plan = str(asked([model_name, "--gpus", gpus, "--layout", "tp=1,zero=3"]))
    assert all(word in plan for word in words)


@pytest.mark.parametrize(
    "line", ["llama3.1-8b --gpus 4xH100", "gemma-2-2b --gpus 4xRTX_4090"]
)
def test_the_advised_number_of_gpus_holds_the_model(line):
    assert asked(command(line)).steps[0].fits


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("mixtral", "mixtral is taken to be Mixtral-8x7B: 46.7 billion parameters"),
        ("mixtral", "46.7 billion parameters (12.9 billion active), 32 layers"),
        ("--sizes layers=2,hidden=256,heads=4,gated,vocab=999", "your model"),
        ("llama3.2-1b --finetune lora:16", "trained adapters"),
        ("llama3.2-1b --finetune full", "Llama-3.2-1B: 1.24 billion parameters"),
        (
            "llama3.2-1b --finetune qlora:8",
            "adapters of rank 8 beside all products, weights in 4 bit",
        ),
        ("llama3.2-1b --finetune lora:8:linear", "of rank 8 beside all products 1 x"),
        ("llama3.2-1b --optimizer muon", "Libraries that run it: Megatron-Core, "),
        ("llama3.2-1b --offload-activations", "Libraries that run it: MaxText, TRL"),
    ],
)
def test_the_model_is_named_or_given_by_its_sizes(arguments, words):
    gpu = "--gpus 1xH100 --layout zero=0"
    assert words in " ".join(str(asked(command(f"{arguments} {gpu}"))).split())


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        ("--dtype bf16", "autocast bfloat16"),
        ("--dtype fp8", "autocast float8"),
        ("--dtype FP8 --software Megatron-Core", "mixed float8"),
        ("--dtype fp32 --software torchtune", "float32"),
    ],
)
def test_a_number_s_short_name_is_the_library_s_precision(words, dtype):
    plan = asked(command(f"llama3.2-1b --gpus 8xH100 --show 1 {words}"))
    assert plan.steps[0].layout.dtype == dtype
    assert any(note.endswith(f"is taken as {dtype}.") for note in plan.notes)


def test_a_step_of_adapters_has_sixteen_sequences_a_gpu():
    plan = asked(command("llama3.2-1b --gpus 2xH100 --finetune lora:8 --show 1"))
    assert plan.steps[0].batch == 32


def test_a_run_of_years_and_a_speed_beyond_the_peak_are_said():
    long_run = asked(command("llama3.1-8b --gpus 8xH100 --tokens 15e12 --show 1"))
    assert "years. For how many GPUs end sooner" in str(long_run.table())
    measured = "llama3.1-8b --gpus 8xH100 --layout tp=1,zero=3 --measured"
    assert "which no run can" in str(asked(command(f"{measured} 60000")).table())
    assert "which no run can" not in str(asked(command(f"{measured} 7000")).table())


def test_the_batch_is_in_tokens_and_the_sequence_the_user_s():
    words = "llama3-8b --gpus 24xA100 --layout tp=1"
    planned = asked(
        [*command(words), "--sequence", "4096", "--global-batch", "393_216"]
    ).steps[0]
    assert (planned.model.seq, planned.batch) == (4096, 96)
    usual = asked(command(words)).steps[0]
    assert usual.batch % 24 == 0
    assert usual.tokens == pytest.approx(USUAL_TOKENS, rel=0.03)


@pytest.mark.slow
def test_a_batch_is_told_when_it_is_rounded_or_few_ranks_divide_it():
    def batch_notes(tokens):
        plan = asked(
            command(f"llama3-70b --gpus 512xH100 --show 1 --global-batch {tokens}")
        )
        return [note for note in plan.notes if "--global-batch" in note]

    assert batch_notes("4M") == [
        "--global-batch 4M is rounded to 488 sequences (3,997,696 tokens).",
        (
            "At most 8 data ranks divide 488 sequences, more divide 512 sequences"
            " (4,194,304 tokens): --global-batch 4194304."
        ),
    ]
    assert batch_notes("4194304") == []


def test_a_number_of_a_cloud_s_instances_is_said_to_count_gpus(capsys):
    assert main(command("llama3.1-8b --gpus 8xp5.48xlarge --layout zero=3")) == 0
    assert "Planned are 8 of these, not 8 instances." in " ".join(
        capsys.readouterr().out.split()
    )
    main(command("llama3.1-8b --gpus 8xH100 --layout zero=3"))
    assert "instances" not in capsys.readouterr().out


@pytest.mark.parametrize("gpus", [24, 3072])
@pytest.mark.parametrize("batch", [7, 488])
def test_the_batch_that_is_advised_has_a_layout(gpus, batch):
    shape = model("Llama-3-8B")
    cluster = Cluster("B300 SXM", gpus)
    _, near = even_batch(shape, cluster, batch)
    assert even_batch(shape, cluster, near)[1] == near
    assert best_layout(shape, cluster, near, runners_up=0).step.batch == near


def test_a_row_takes_80_columns_and_loses_nothing(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    layout = "tp=8,pp=16,cp=2,vp=3,mb=2,zero=3,recompute=selective"
    main(
        command(
            "gpt-3_175b --gpus 3072xA100 --tokens 15e12 --global-batch 12582912"
            f" --layout {layout}"
        )
    )
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    row, *more = out[out.index("\ntp=") + 1 :].splitlines()
    assert (row.split()[0] + more[0]).startswith(layout)


@pytest.mark.slow
def test_a_library_by_its_name_is_searched_and_told_what_to_run(capsys):
    words = "llama3-8b --gpus 16xH100 --show 2 --software "
    for name, first in (
        ("megatron-core", "pretrain_gpt.py"),
        ("torchtitan", "[model]"),
    ):
        assert main(command(words + name)) == 0
        assert first in capsys.readouterr().out
    plan = asked(command(words + "nanotron"))
    assert {planned.layout.software.library for planned in plan.steps} == {"nanotron"}
    fastest = plan.steps[0]
    pasted = asked(command(f"{words} nanotron --layout {fastest.layout.short}"))
    assert pasted.steps[0].seconds == fastest.seconds
    assert pasted.configuration == plan.configuration
    assert "parallelism:" in plan.configuration


@pytest.mark.parametrize(
    ("line", "words", "status"),
    [
        ("llama3.2-1b", ("The fewest GPUs that hold it: 1 x", "US$/h"), 0),
        ("llama3.2-1b --tokens 20e9 --days 5", ("The cheapest within bounds:",), 0),
        (
            "llama3.2-1b --tokens 20B --by friday --gpu H100,A100",
            ("in at most 5 days", "likely", "x H100 SXM5", "x A100 SXM4"),
            0,
        ),
        (
            "llama3.2-1b --tokens 1e9 --dollars $500 --gpu=H100",
            ("for at most 500 US$", "The fastest within bounds:", "2026-09-20"),
            0,
        ),
        (
            "llama3.2-1b --tokens 1e9 --dollars 500 --gpu RTX_4090 --rent 0.4",
            ("x GeForce RTX 4090", "US$"),
            0,
        ),
        (
            "llama3.2-1b --tokens 1e12 --dollars 9 --gpu H100",
            ("Nothing stays within bounds. The nearest:", "are likely to do"),
            2,
        ),
        (
            "llama3.2-1b --tokens 1e9 --gpus 8xH100 --days 3",
            ("In at most 3 days: likely.", "[parallelism]"),
            0,
        ),
        (
            "llama3.2-1b --tokens 1e12 --gpus 8xH100 --dollars 99",
            ("For at most 99 US$: no.",),
            2,
        ),
        (
            "llama3.2-1b --tokens 50M --days 3 --gpu H100",
            ("50.0 million tokens are 11.9 steps",),
            0,
        ),
    ],
)
def test_a_question_without_a_number_of_gpus_or_with_bounds(
    line, words, status, capsys, monkeypatch
):
    monkeypatch.setattr(deadlines, "today", lambda: date(2026, 11, 29))
    assert main(command(line)) == status
    out = " ".join(capsys.readouterr().out.split())
    assert [each for each in words if each not in out] == []


def test_the_whole_plan_of_an_offer_is_what_the_printed_command_prints():
    line = "llama3.2-1b --tokens 20e9 --days 5 --sequence 4096 --gpu B200,GB200"
    offered = asked(command(line))
    shown = offered.notes[-1].partition("python -m trainplan ")[2]
    planned = asked(shlex.split(shown))
    assert planned.steps[0].layout == offered.steps[0].layout
    assert planned.steps[0].seconds == offered.steps[0].seconds
    assert planned.offer.bill.usd == offered.offer.bill.usd


def test_help_says_what_mfu_and_the_statuses_are(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "MFU is the share of the peak that 6 N + 12 L h s FLOP a token take" in words
    assert "Exit status: 0 for a plan that fits, 2 for" in words


def test_what_does_not_fit_is_said_with_what_would_make_it_smaller(capsys):
    words = "llama3-70b --gpus 8xH100_SXM5_80GB --layout tp=8"
    assert main(command(words)) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"It does not fit\. Expected at most .* GiB a GPU, .* over; the largest"
        r" part is",
        out,
    )
    assert asked(command(words)).configuration == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("llama3-7b --gpus 8xH100", "got 'llama3-7b'. The nearest are Llama-"),
        ("--gpus 8xH100", "by --config or by --sizes, got none"),
        ("gpt2 --config a.json --gpus 8xH100", "got a name and --config"),
        ("--config missing.json --gpus 8xH100", "which can't be read"),
        ("--sizes layers=2 --gpus 8xH100", "Expected hidden, heads in --sizes"),
        ("--sizes layer=2 --gpus 8xH100", "The nearest is 'layers'"),
        ("gpt2 --finetune qlora --gpus 8xH100", "full, lora:RANK or qlora:RANK"),
        ("gpt2 --finetune lora:8:mlp --gpus 8xH100", "got lora:8:mlp"),
        (
            "llama3.1-8b --gpus 8xH100 --software trainer",
            "Trainer splits nothing among them: take larger GPUs",
        ),
        ("mixtral --finetune qlora:8 --gpus 8xH100", "Say --finetune lora:16"),
        ("gpt2 --optimizer adamm --gpus 8xH100", "The nearest is 'adam'"),
        (
            "gpt2 --optimizer adafactor --gpus 8xH100",
            "momentum or muon or lion in Megatron-Core",
        ),
        ("llama3.1-8b --optimizer lion --gpus 8xH100", "optimizer = adam or adamw in"),
        ("llama3.1-8b --offload-activations", "--gpus beside --offload-activations"),
        ("gpt75 --gpus 8xH100", "got 'gpt75'"),  # no GPT 7.5B: a point is no decoration
        ("llama3-8b --gpus H100", "a number and a GPU, such as 512xH100, got 'H100'"),
        (
            "llama3-8b --gpus 8xB400",
            "got 'B400'; its peaks are unknown. If there is such a device",
        ),
        ("llama3-8b --gpus 8x90", "got '90'; its peaks are unknown"),
        (
            "llama3-8b --gpus 0xH100",
            "--gpus to be a number of at least 1, such as 8 or 15e12, got '0'",
        ),
        (
            "llama3-8b --gpus 9999999999999999999999xH100",
            "--gpus to be a number of at most 10,000,000",
        ),
        ("llama3-8b --gpus 12xH100", "The nearest are 8 and 16"),
        ("llama3-8b --gpus 8xH100 --layout ep=2", "expert = 1 of a model without"),
        ("llama3-405b --gpus 88xA100", "Take about 112 GPUs"),
        (
            "llama3.1-8b --gpus 1xH100",
            "Take about 4 GPUs, larger ones, or train adapters alone",
        ),
        (
            "llama3.1-70b --gpus 1xH100 --finetune lora:16",
            "or keep the weights in 4 bit (--finetune qlora:16)",
        ),
        (
            "llama3.2-1b --gpus 1xH100 --sequence 262144",
            "or shorter sequences",
        ),
        ("gemma-2-2b --gpus 1xRTX_4090", "Take about 4 GPUs"),
        ("llama3-405b --gpus 8xT4", "No layout fits"),
        (
            "llama3.1-70b --gpus 4xRTX_4090 --finetune qlora:16",
            "over; the largest part is kept for the backward pass, 12.5 GiB. Take",
        ),
        (
            "llama3-8b --gpus 8xH100 --layout tp=3",
            "tensor to divide the 32 heads, got 3",
        ),
        (
            "llama3-8b --gpus 8xH100 --layout tp=8,tp=4",
            "part of --layout once, got tp twice",
        ),
        ("llama3-8b --gpus 8xH100 --layout tensor=2", "one of dp, tp, pp"),
        ("llama3-8b --gpus 8xH100 --layout tp", "tp to be a number of at least 0"),
        ("llama3-8b --gpus 8xH100 --measured 5800", "--layout beside --measured"),
        ("llama3-8b --gpus 8xH100 --layout tp=8 --measured slow", "--measured to be"),
        (
            "llama3-8b --gpus 8xH100 --layout tp=8 --against nemo",
            "--measured beside --against",
        ),
        (
            "llama3-8b --gpus 8xH100 --layout tp=8 --measured 5800 --against blog",
            "of a published step, got 'blog'. The nearest are",
        ),
        ("llama3-8b --gpus 8xH100 --tokens many", "--tokens to be a number"),
        ("llama3-8b --days 5", "Expected the tokens of the run (--tokens)"),
        ("llama3-8b --gpus 8xH100 --dollars 5", "Expected the tokens of the run"),
        (
            "llama3-8b --tokens 1e9 --days 5 --by friday",
            "Expected --days or --by, got both",
        ),
        ("llama3-8b --tokens 1e9 --by 2020-01-01", "to be a day to come, got 2020"),
        ("llama3-8b --tokens 1e9 --days soon", "Expected --days to be a number"),
        ("llama3-8b --tokens 1e9 --dollars -5", "--dollars to be a number of at least"),
        ("llama3-8b --layout tp=8", "Expected --gpus beside --layout"),
        ("llama3-8b --gpu 8xH100", "For that number say --gpus 8xH100"),
        ("llama3-8b --gpus 8xH100 --gpu A100", "for how many are needed, got both"),
        ("llama3-8b --rent 2", "Expected a single GPU (--gpu)"),
        (
            "llama3-8b --tokens 1e9 --dollars 500 --gpu RTX_4090",
            "RTX 4090: its rent is unknown. Say what an hour of one costs (--rent",
        ),
        (
            "llama3-8b --tokens 1e9 --dollars 500 --gpus 8xRTX_4090",
            "Expected a rent (--rent, usd_per_gpu_hour) beside the dollars",
        ),
        ("llama3-8b --gups 8xH100", "The nearest is --gpus"),
        ("llama3 8b --gpus 8xH100", "A name with a space in it stands in quotes"),
        ("llama3-8b --gpus", "Argument --gpus: expected one argument"),
        (
            "llama3-8b --gpus 8xH100 --sequence 2.5",
            "--sequence to be a whole number, got '2.5'",
        ),
        ("llama3-8b --gpus 8xH100 --dtype bf17", "dtype to be one of float32"),
        ("llama3-8b --gpus 8xH100 --software megatron", "The nearest is 'Megatron-"),
        (
            "llama3-8b --gpus 8xH100 --software unsloth",
            "llm-foundry; llm-foundry, torch 2.0; MaxText",
        ),
        (
            "--sizes layers=2,hidden=256,heads=4,experts=8,shared=2 --gpus 8xH100",
            "shared in --sizes to be a width, such as 2816",
        ),
        (
            "llama3-8b --gpus 8xH100 --software nanotron --layout tp=2,zero=3",
            "Expected zero = 0 or 1",
        ),
        (
            "llama3-405b --gpus 16384xH100 --global-batch 16M",
            (
                "got 1,953 sequences (15,998,976 tokens). Choose 2,048 sequences"
                " (16,777,216 tokens)"
            ),
        ),
    ],
)
def test_what_it_cannot_take_ends_with_a_sentence_and_status_2(words, told, capsys):
    assert main(command(words)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.slow
def test_a_picture_of_the_layouts(tmp_path, capsys, monkeypatch):
    words = ["llama3-8b", "--gpus", "8xH100", "--show", "2", "--picture"]
    picture = tmp_path / "plan.png"
    assert main([*words, str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    for name in ("plan.nonsense", "no folder/plan.png"):
        assert main([*words, str(tmp_path / name)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""  # it is refused before the search
        assert "Expected a file that can be written, such as plan.png" in printed.err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([*words, str(picture)]) == 2
    assert "Expected matplotlib for a picture" in capsys.readouterr().err


@pytest.mark.slow
def test_it_runs_as_a_module_and_a_reader_that_stops_is_no_error():
    module = [sys.executable, "-m", "trainplan"]
    for line in ("llama3-8b --gpus 8xH100 --layout tp=8", "--help"):
        with subprocess.Popen(
            [*module, *command(line)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running:
            running.stdout.close()
            assert running.stderr.read() == b""
            assert running.wait() == 0
    assert subprocess.run(module, capture_output=True, check=False).returncode == 2
