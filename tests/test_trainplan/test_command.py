"""`python -m trainplan`: what it prints, which names it takes, and what it refuses with a sentence and status 2."""

import re
import subprocess
import sys

import pytest

from trainplan.__main__ import main
from trainplan.cluster import Cluster, Layout, best_layout, model, step
from trainplan.command import USUAL_TOKENS, asked


def test_the_search_is_that_of_best_layout(capsys):
    assert main(["llama3-70b", "--gpus", "512xH100", "--tokens", "15e12", "--show", "3"]) == 0
    out = capsys.readouterr().out
    best = best_layout(model("Llama-3-70B"), Cluster("H100 SXM5 80GB", 512), USUAL_TOKENS // 8192, runners_up=2)
    rows = [line for line in out.splitlines() if " tensor x " in line]
    assert [row.startswith(str(one.layout)) for row, one in zip(rows, (best.step, *best.runners_up), strict=True)]
    assert f"{best.step.mfu:.1%}" in rows[0]
    assert f"{best.step.train_s(15e12) / 86_400:.0f} days" in rows[0]
    assert "Calculated, not measured. Eight of ten published steps took 0.96 to 1.08 times as long" in out
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
    assert not plan.notes


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("llama3-70b", "Llama-3-70B"), ("LLAMA 3 8B", "Llama-3-8B"), ("llama_2_7b", "Llama-2-7B"),
        ("gpt-3", None), ("gpt-oss", "GPT-OSS-120B"), ("qwen3-30b", "Qwen3-30B-A3B"),
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


def test_what_does_not_fit_is_said_with_what_would_make_it_smaller():
    text = str(asked(["llama3-70b", "--gpus", "8xH100 SXM5 80GB", "--layout", "tp=8"]))
    assert re.search(r"It does not fit\. Expected at most .* GiB a GPU .* over; the largest part is", text)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["llama3-7b", "--gpus", "8xH100"], "got 'llama3-7b'. The nearest are Llama-"),
        (["", "--gpus", "8xH100"], "Expected a model"),
        (["llama3-8b", "--gpus", "H100"], "a number and a GPU, such as 512xH100, got 'H100'"),
        (["llama3-8b", "--gpus", "8xH1000"], "Nearest names: H100"),
        (["llama3-8b", "--gpus", "0xH100"], "--gpus to be a number of at least 1, such as 8 or 15e12, got '0'"),
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
    assert main([*command, str(tmp_path / "plan.nonsense")]) == 2
    assert main([*command, str(tmp_path / "no folder" / "plan.png")]) == 2
    assert "Expected a file that can be written, such as plan.png" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([*command, str(tmp_path / "plan.png")]) == 2
    assert "Expected matplotlib for a picture" in capsys.readouterr().err


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "trainplan", "llama3-8b", "--gpus", "8xH100", "--show", "1"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.startswith("Llama-3-8B: 8.03 billion parameters")
    assert subprocess.run(command[:3], capture_output=True).returncode == 2
