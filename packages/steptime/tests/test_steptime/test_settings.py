"""What is said of settings, and which line is to be edited."""

import contextlib
import inspect
import linecache
import logging
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from steptime.judge import settings
from steptime.judge.edited_lines import line_that_makes
from steptime.judge.settings import remarks, remarks_on_step
from steptime.limits import COMPILING
from steptime.loop.turn_patterns import seen
from steptime.loop.turns import Turn
from steptime.measure.operator_timing import OperatorCall
from steptime.measure.stack_samples import Lines

STEADY = [Turn(input_s=1e-3, step_s=1e-3) for _ in range(40)]
QUICK = [Turn(step_s=1e-3) for _ in range(40)]


def product(dtype):
    return OperatorCall("mm", 1e-3, 1e6, 1e3, dtype)


@contextlib.contextmanager
def traced():
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        yield
    finally:
        sys.settrace(before)


def said(turns=QUICK, dtype="float32", batches=None, device="cpu"):
    return " ".join(remarks(turns, [product(dtype)], batches, device))


@pytest.mark.parametrize(
    ("within", "options", "words"),
    [
        (lambda: torch.autograd.set_detect_anomaly(True), {}, "Anomaly mode is on"),
        (traced, {}, "is called at each line or call of Python (sys.settrace)"),
        (contextlib.nullcontext, {"dtype": "float64"}, "100% of the operators' time"),
        (contextlib.nullcontext, {"dtype": "bfloat16"}, "no units: float32 is faster"),
        (
            contextlib.nullcontext,
            {"turns": [Turn(step_s=1.0, graphs=1, compiling_s=0.9)] * 9},
            "compiles in 9 of 9 steps",
        ),
        (
            contextlib.nullcontext,
            {"turns": [Turn(step_s=1e-3 * (1 + 0.1 * i)) for i in range(40)]},
            "Steps grow: 1.45 ms in the first quarter, 4.45 ms in the last",
        ),
        (
            contextlib.nullcontext,
            {"turns": STEADY, "batches": DataLoader([1, 2])},
            "num_workers=0",
        ),
        (
            contextlib.nullcontext,
            {"turns": STEADY, "batches": DataLoader([1, 2], num_workers=2)},
            "persistent_workers=True keeps them",
        ),
    ],
)
def test_a_setting_that_costs_time_is_said_with_its_edit(
    monkeypatch, within, options, words
):
    monkeypatch.setattr(settings, "_processor_flags", lambda: {"avx2"})
    assert words not in said()
    with within():
        assert words in said(**options)


def test_copies_between_main_memory_and_a_gpu_are_said():
    copy = OperatorCall("between devices: _to_copy", 1e-3, 0.0, 0.0)
    (words,) = remarks(QUICK, [product("bfloat16"), copy], None, "cuda")
    assert words.startswith("50% of the operators' time is copies between main memory")


def test_a_loop_with_nothing_to_change_gets_no_remark(monkeypatch):
    monkeypatch.setattr(settings, "_processor_flags", lambda: {"avx512_bf16"})
    workers = DataLoader([1, 2], num_workers=1, persistent_workers=True)
    assert not said()
    assert not said(dtype="bfloat16")
    assert not said(turns=STEADY, batches=workers)
    assert not said(turns=QUICK, batches=DataLoader([1, 2]))


@pytest.mark.parametrize(
    ("threads", "busy", "said"),
    [(2, "others ran", True), (1, "others ran", False), (2, "", False)],
)
def test_on_a_busy_machine_threads_that_wait_for_each_other_are_said(
    monkeypatch, threads, busy, said
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    told = " ".join(remarks(QUICK, [product("float32")], None, "cpu", busy))
    assert ("one of torch's 2 threads waits for a core" in told) == said


def test_gradients_that_no_optimizer_uses_are_counted():
    frozen = nn.Linear(16, 16)
    head = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(head.parameters())
    head(frozen(torch.ones(2, 16))).sum().backward()
    assert "that no optimizer uses: set their requires_grad to False" in said()
    frozen.requires_grad_(False)
    for parameter in frozen.parameters():
        parameter.grad = None
    del optimizer


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: print(end=""), "print"),
        (lambda: logging.getLogger("a").error("x"), "logging"),
        (lambda: torch.save(1, "/dev/null"), "torch.save"),
    ],
)
def test_what_each_step_writes_is_said_and_what_some_write_is_not(call, name):
    weight = torch.ones(3, requires_grad=True)
    steps = iter(range(100))

    def step(every):
        weight.sum().backward()
        if next(steps) % every == 0:
            call()

    assert remarks_on_step(lambda: step(1)) == (
        f"Each step calls {name}: every hundredth is enough to look at.",
    )
    assert remarks_on_step(lambda: step(2)) == ()


def test_a_step_without_a_backward_pass_is_said_to_train_nothing():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())

    def step():
        model(torch.ones(2, 4))

    words = " ".join(remarks_on_step(step))
    assert "no backward pass" in words
    assert "call model.eval() for an evaluation" in words
    grad = torch.autograd.grad
    leaf = torch.ones(2, requires_grad=True)
    assert remarks_on_step(lambda: grad(leaf.sum(), leaf)) == ()


def test_a_compilation_in_each_step_is_compiling_by_its_own_seconds():
    turns = [Turn(step_s=1.0, graphs=1, compiling_s=0.75) for _ in range(20)]
    shown = seen(turns, Lines())
    assert shown.seconds_of[COMPILING] == pytest.approx(0.75)
    assert shown.step_s == pytest.approx(0.25)


def test_the_line_that_makes_an_object_is_named_where_there_is_one(
    monkeypatch, tmp_path
):
    class Unheard(nn.Module):
        pass

    value = Unheard()
    line = inspect.currentframe().f_lineno - 1
    assert line_that_makes(value) == f"{Path(__file__).name}, line {line}"
    script = types.ModuleType("a_script")
    script.__file__ = str(tmp_path / "train.py")
    (tmp_path / "train.py").write_text("\nmodel = nets.Unheard(3)\n")
    monkeypatch.setitem(sys.modules, "a_script", script)
    assert not line_that_makes(value), "several lines make one"
    cells = {"/tmp/ipykernel_1/2.py": (9, None, ["x = Rare(1)\n"], "")}
    monkeypatch.setattr(linecache, "cache", cells)
    assert line_that_makes(type("Rare", (), {})()) == "a cell, line 1"
