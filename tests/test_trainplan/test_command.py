"""`python -m trainplan`: what it prints, which names it takes, and what it refuses with a sentence and status 2."""

import itertools
import re
import subprocess
import sys

import pytest

from trainplan.__main__ import main
from trainplan.cluster import Cluster, Layout, best_layout, model, step
from trainplan.cluster.search import even_batch
from trainplan.command import USUAL_TOKENS, asked


def test_the_search_is_that_of_best_layout(capsys):
    assert main(["llama3-70b", "--gpus", "512xH100", "--tokens", "15e12", "--show", "3"]) == 0
    out = capsys.readouterr().out
    best = best_layout(model("Llama-3-70B"), Cluster("H100 SXM5 80GB", 512), USUAL_TOKENS // 8192, runners_up=2)
    rows = [line for line in out.splitlines() if line.startswith("tp=")]
    for row, one in zip(rows, (best.step, *best.runners_up), strict=True):
        pasted = asked(["llama3-70b", "--gpus", "512xH100", "--layout", row.split()[0]]).steps[0]
        assert (pasted.layout, pasted.seconds) == (one.layout, one.seconds)
    assert f"{best.step.mfu:.1%}" in rows[0]
    assert f"{best.step.train_s(15e12) / 86_400:.0f} days" in rows[0]
    words = " ".join(out.split())
    assert "Calculated, not measured. Of the first: Eight of ten published steps would be within" in words
    assert "Calculated for torchtitan (with torch" in words
    assert "Searched: what torchtitan v0.2.2 runs." in words
    assert "[parallelism]" in out
    assert "'H100' is taken for H100 SXM5 80GB" in out


def test_a_given_layout_is_the_step_that_it_says():
    plan = asked(["llama3-70b", "--gpus", "512 x H100 SXM5 80GB", "--layout", "tp=8,pp=4,zero=1,mb=2,recompute=full"])
    expected = step(
        model("Llama-3-70B"),
        Cluster("H100 SXM5 80GB", 512),
        Layout(16, 8, 4, zero=1, micro_batch=2, recompute="full"),
        512,
    )
    assert [one.seconds for one in plan.steps] == [expected.seconds]
    assert plan.steps[0].memory == expected.memory
    assert "run" not in plan.table().headings
    assert plan.notes == ("Libraries that run it: Megatron-Core, nanotron, DeepSpeed.",)
    assert plan.configuration == ""  # it is calculated for a program of one's own


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("llama3-70b", "Llama-3-70B"), ("LLAMA 3 8B", "Llama-3-8B"), ("llama_2_7b", "Llama-2-7B"),
        ("gpt-3", None), ("gpt7.5", "GPT 7.5B"), ("gpt-oss", "GPT-OSS-120B"), ("qwen3-30b", "Qwen3-30B-A3B"),
    ],
)  # fmt: skip
def test_a_model_s_name_in_any_form(name, full, capsys):
    status = main([name, "--gpus", "64xA100 SXM4 80GB", "--layout", "tp=4,zero=3"])
    told = capsys.readouterr()
    assert (status, told.out[: len(full or "")]) == (0 if full else 2, full or "")
    assert full or "GPT-3 175B" in told.err


@pytest.mark.parametrize(
    ("gpus", "found"),
    [
        ("8xA100", "8 x A100 SXM4 80GB"), ("8xa100-sxm4-40gb", "8 x A100 SXM4 40GB"), ("16×H200", "16 x H200 SXM"),
        ("512*B200", "512 x B200 SXM"), ("8x4090", "8 x GeForce RTX 4090"), ("8xL4", "8 x L4 ("),
    ],
)  # fmt: skip
def test_a_gpu_s_name_in_any_form(gpus, found):
    assert found in str(asked(["llama3-8b", "--gpus", gpus, "--layout", "tp=1,zero=3"]))


def test_the_batch_is_in_tokens_and_the_sequence_the_user_s():
    plan = asked(
        ["llama3-8b", "--gpus", "24xA100", "--sequence", "4096", "--global-batch", "393_216", "--layout", "tp=1"]
    )
    assert (plan.steps[0].model.seq, plan.steps[0].batch) == (4096, 96)
    usual = asked(["llama3-8b", "--gpus", "24xA100", "--layout", "tp=1"]).steps[0]
    assert usual.batch % 24 == 0
    assert usual.tokens == pytest.approx(USUAL_TOKENS, rel=0.03)


def test_a_batch_is_told_when_it_is_rounded_or_few_ranks_divide_it():
    def batch_notes(tokens, *more):
        plan = asked(["llama3-70b", "--gpus", "512xH100", "--show", "1", "--global-batch", tokens, *more])
        return [note for note in plan.notes if "--global-batch" in note], plan

    notes, _ = batch_notes("4M")
    assert notes == [
        "--global-batch 4M is rounded to 488 sequences (3,997,696 tokens).",
        "At most 8 data ranks divide 488 sequences, more divide 512 sequences (4,194,304 tokens): "
        "--global-batch 4194304.",
    ]
    notes, plan = batch_notes("4194304")
    assert notes == []
    assert "512 sequences (4,194,304 tokens) a step" in str(plan)
    assert len(batch_notes("4M", "--layout", "tp=8,pp=8")[0]) == 1
    single = ["llama3-8b", "--gpus", "8xH100", "--global-batch", "8192", "--layout", "tp=8"]
    assert "1 sequence (8,192 tokens) a step" in str(asked(single))


@pytest.mark.parametrize(("gpus", "batch"), [*itertools.product((8, 24, 512, 3072), (7, 61, 488))])
def test_the_batch_that_is_advised_has_a_layout(gpus, batch):
    shape, cluster = model("Llama-3-8B"), Cluster("B300 SXM", gpus)
    _, near = even_batch(shape, cluster, batch)
    assert even_batch(shape, cluster, near)[1] == near
    assert best_layout(shape, cluster, near, runners_up=0).step.batch == near


def test_the_notes_are_as_wide_as_the_terminal(monkeypatch, capsys):
    command = ["llama3-405b", "--gpus", "1024xA100", "--dtype", "float32", "--layout"]
    narrow = {}
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        main([*command, "tp=8,pp=16,zero=1,mb=2,recompute=full"])
        narrow[columns] = capsys.readouterr().out
        sentences = [line for line in narrow[columns].splitlines() if not line.startswith(("tp=", "layout  "))]
        assert max(map(len, sentences)) <= int(columns)
    assert narrow["80"].split() == narrow["120"].split()
    assert "16 chunks (pp x vp) hold 126 layers + embedding + head." in narrow["120"]
    assert narrow["120"].count("; but ") == 1
    assert "\ntp=8,pp=16,mb=2,zero=1,recompute=full  " in narrow["120"]


@pytest.mark.parametrize("layout", ["tp=2", "tp=8,pp=16,cp=2,vp=3,mb=2,zero=3,recompute=selective"])
def test_a_row_takes_80_columns_and_loses_nothing(layout, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    command = ["gpt-3 175b", "--gpus", "3072xA100", "--tokens", "15e12", "--global-batch", "12582912"]
    main([*command, "--layout", layout])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    row, *more = out[out.index("\ntp=") + 1 :].splitlines()
    assert (row.split()[0] + more[0]).startswith(layout)


def test_a_library_by_its_name_is_searched_and_told_what_to_run(capsys):
    command = ["llama3-8b", "--gpus", "16xH100", "--show", "2", "--software"]
    for name, first in (("megatron-core", "pretrain_gpt.py"), ("nanotron", "parallelism:"), ("torchtitan", "[model]")):
        assert main([*command, name]) == 0
        assert first in capsys.readouterr().out
    plan = asked([*command, "nanotron"])
    assert {one.layout.software.library for one in plan.steps} == {"nanotron"}
    pasted = asked(["llama3-8b", "--gpus", "16xH100", "--software", "nanotron", "--layout", plan.steps[0].layout.short])
    assert pasted.steps[0].seconds == plan.steps[0].seconds
    assert (pasted.configuration, pasted.notes[-1]) == (plan.configuration, plan.notes[0])
    assert main([*command, "megatron"]) == 2
    assert "The nearest is 'megatron-" in capsys.readouterr().err
    assert main(["llama3-8b", "--gpus", "16xH100", "--software", "nanotron", "--layout", "tp=2,zero=3"]) == 2
    assert "Expected zero = 0 or 1 with replicas above 1 in nanotron" in capsys.readouterr().err


def test_help_says_what_mfu_and_the_statuses_are(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "MFU is the share of the peak that 6 N + 12 L h s FLOP a token take" in words
    assert "Exit status: 0 for a plan that fits, 2 for" in words


def test_what_does_not_fit_is_said_with_what_would_make_it_smaller():
    command = ["llama3-70b", "--gpus", "8xH100 SXM5 80GB", "--layout", "tp=8"]
    text = str(asked(command))
    assert main(command) == 2
    assert re.search(r"It does not fit\. Expected at most .* GiB a GPU, .* over; the largest part is", text)
    assert asked(command).configuration == ""


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["llama3-7b", "--gpus", "8xH100"], "got 'llama3-7b'. The nearest are Llama-"),
        (["", "--gpus", "8xH100"], "Expected a model"),
        (["llama3-8b", "--gpus", "H100"], "a number and a GPU, such as 512xH100, got 'H100'"),
        (["llama3-8b", "--gpus", "8xH1000"], "Nearest names: H100"),
        (["llama3-8b", "--gpus", "0xH100"], "--gpus to be a number of at least 1, such as 8 or 15e12, got '0'"),
        (["gpt2", "--gpus", "8xH100"], "got 'gpt2'. The nearest are GPT 22B"),
        (["gpt7", "--gpus", "8xH100"], "got 'gpt7'. The nearest are GPT 7.5B"),
        (["gpt75", "--gpus", "8xH100"], "got 'gpt75'"),
        (["gpt5", "--gpus", "8xH100"], "got 'gpt5'. The nearest are GPT 530B"),
        (["llama3-7", "--gpus", "8xH100"], "got 'llama3-7'. The nearest are Llama-3-70B"),
        (["llama3-8b", "--gpus", "8xH20"], "got 'H20'; its peaks are unknown. Nearest names: H200"),
        (["llama3-8b", "--gpus", "8x90"], "got '90'; its peaks are unknown"),
        (["llama3-8b", "--gpus", "9999999999999999999999xH100"], "--gpus to be a number of at most 10,000,000"),
        (["llama3-8b", "--gpus", "8xH100", "--tokens", "1e30"], "--tokens to be a number of at most 1e+18"),
        (["llama3-8b", "--gpus", "8xH100", "--show", "1e9"], "--show to be a number of at most 1,000, such as"),
        (["llama3-405b", "--gpus", "88xA100"], "Take about 96 GPUs"),
        (["llama3-8b", "--gpus", "8xH100", "--layout", "tp=8,tp=4"], "part of --layout once, got tp twice"),
        (["llama3-8b", "--gpus", "8xH100", "--picture", ""], "a folder that exists, got ''"),
        (
            ["llama3-405b", "--gpus", "16384xH100", "--global-batch", "16M"],
            "got 1,953 sequences (15,998,976 tokens). Choose 2,048 sequences (16,777,216 tokens)",
        ),
        (["llama3-8b", "--gpus", "12xH100"], "The nearest are 8 and 16"),
        (["llama3-8b", "--gpus", "8xH100", "--layout", "tp=3"], "tensor to divide the 32 heads, got 3"),
        (["llama3-8b", "--gpus", "8xH100", "--layout", "tp=2,dp=8"], "take data = 4"),
        (["llama3-8b", "--gpus", "8xH100", "--layout", "tensor=2"], "one of dp, tp, pp"),
        (["llama3-8b", "--gpus", "8xH100", "--layout", "tp"], "tp to be a number of at least 0"),
        (["llama3-8b", "--gpus", "8xH100", "--layout", "zero=4"], "zero to be one of 0, 1, 2, 3, got 4"),
        (["llama3-8b", "--gpus", "8xH100", "--layout", "recompute=all"], "recompute to be one of 'none'"),
        (["llama3-8b", "--gpus", "8xH100", "--tokens", "many"], "--tokens to be a number"),
        (["llama3-8b", "--gpus", "8xH100", "--tokens", "-1"], "--tokens to be a number"),
        (["llama3-8b", "--gpus", "8xH100", "--sequence", "2.5"], "--sequence to be a whole number, got '2.5'"),
        (["llama3-8b", "--gpus", "8xH100", "--global-batch", "nan"], "--global-batch to be a number"),
        (["llama3-8b", "--gpus", "8xH100", "--show", "0"], "--show to be a number of at least 1"),
        (["llama3-8b", "--gpus", "8xH100", "--dtype", "bf16"], "dtype to be one of float32"),
        (["llama3-405b", "--gpus", "8xT4"], "No layout fits"),
    ],
)  # fmt: skip
def test_what_it_cannot_take_ends_with_a_sentence_and_status_2(argv, words, capsys):
    assert main([part if part != "-1" else " -1" for part in argv]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err
    assert "Traceback" not in told.err


def test_a_picture_of_the_layouts(tmp_path, capsys, monkeypatch):
    command = ["llama3-8b", "--gpus", "8xH100", "--show", "2", "--picture"]
    assert main([*command, str(tmp_path / "plan.png")]) == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    for name in ("plan.nonsense", "plan", "no folder/plan.png"):
        assert main([*command, str(tmp_path / name)]) == 2
        told = capsys.readouterr()
        assert told.out == ""  # it is refused before the search
        assert "Expected a file that can be written, such as plan.png" in told.err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([*command, str(tmp_path / "plan.png")]) == 2
    assert "Expected matplotlib for a picture" in capsys.readouterr().err


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "trainplan", "llama3-8b", "--gpus", "8xH100", "--show", "1"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.startswith("Llama-3-8B: 8.03 billion parameters")
    assert subprocess.run(command[:3], capture_output=True).returncode == 2


def test_a_reader_that_stops_is_no_error():
    command = [sys.executable, "-m", "trainplan", "llama3-8b", "--gpus", "8xH100", "--layout", "tp=8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 0
