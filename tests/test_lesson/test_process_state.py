"""What an answer changes in the process is put back, however it ends: seeds, threads,
modes and the folder.
"""

import os
import random

import numpy as np
import pytest
import torch

from labkit.lesson import checks, process_state
from labkit.lesson.exercise_files import Exercise


def tf32():
    torch.set_float32_matmul_precision("medium")
    # from here on torch refuses to read its older switches
    torch.backends.cudnn.rnn.fp32_precision = "ieee"


# What an answer may do to each state of the table, by the state's name.
def other_cudnn_tf32():
    """The other setting than now, which a test before may have changed."""
    torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32


HOSTILE = {
    "working directory": lambda: os.chdir("/"),
    "random": lambda: random.seed(1),
    "NumPy's random": lambda: np.random.seed(1),
    "NumPy's printing": lambda: np.set_printoptions(precision=1),
    "NumPy's errors": lambda: np.seterr(all="raise"),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "grad mode": lambda: torch.set_grad_enabled(False),
    "anomaly mode": lambda: torch.set_anomaly_enabled(True),
    "autocast": lambda: (
        torch.set_autocast_enabled("cuda", True),
        torch.set_autocast_dtype("cpu", torch.float16),
    ),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "cuDNN": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "float32 precision": tf32,
    "cuDNN's TF32": other_cudnn_tf32,
    "torch's random": lambda: torch.manual_seed(1),
}
ENDS = {
    "returns": None,
    "raises": ValueError("of course"),
    "leaves": SystemExit(),
    "is stopped": KeyboardInterrupt(),
}


@pytest.fixture
def judged(monkeypatch):
    """Let a check call the answer, and return what became of it: an Outcome, or None
    after Ctrl-C.
    """

    def judge(answer):
        monkeypatch.setattr(
            checks,
            "exercise",
            lambda number: Exercise(lambda a: a() or "Right.", ("", "")),
        )
        try:
            return checks.check("99.1", answer)
        except KeyboardInterrupt:
            return None

    return judge


def read():
    """Every state and its present value."""
    return [(state, state.get()) for state in process_state.rows()]


def changed(before):
    """The names of the states whose value is no longer the one of before."""
    return [
        state.name for state, value in before if process_state._value(state) != value
    ]


def test_there_is_a_hostile_answer_for_every_state():
    assert {state.name for state in process_state.rows()} == {*HOSTILE, "CUDA's random"}


def assert_all_is_as_before(judged, names, error):
    before = read()
    inside = []

    def answer():
        within = read()
        for name in names:
            HOSTILE[name]()
        inside.extend(changed(within))
        if error:
            raise error

    outcome = judged(answer)
    assert set(names) <= set(inside)
    assert changed(before) == []
    assert (outcome is None) == isinstance(error, KeyboardInterrupt)
    assert "restart" not in str(outcome)


@pytest.mark.parametrize("name", HOSTILE)
def test_every_state_is_as_before(name, judged):
    assert_all_is_as_before(judged, [name], None)


@pytest.mark.parametrize("end", ENDS)
def test_several_states_are_as_before_however_the_answer_ends(end, judged):
    names = [
        "working directory",
        "NumPy's random",
        "default dtype",
        "grad mode",
        "threads",
    ]
    assert_all_is_as_before(judged, names, ENDS[end])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_random_state_of_cuda_is_as_before(judged):
    torch.rand(1, device="cuda")
    before = torch.cuda.get_rng_state()
    judged(lambda: torch.rand(1, device="cuda"))
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_an_answer_that_enters_inference_mode_leaves_it(judged):
    entered = []

    def enter():
        entered.append(torch.inference_mode())
        entered[0].__enter__()
        assert torch.is_inference_mode_enabled()

    assert judged(enter).state == "passed"
    assert not torch.is_inference_mode_enabled()
    assert torch.ones(2, requires_grad=True).sum().requires_grad
    with torch.no_grad():
        judged(enter)
        assert not torch.is_grad_enabled()
        # what is entered puts back what it found when it goes: here, as everywhere, no
        # gradients
        entered.clear()


def test_what_cannot_be_put_back_is_told(judged, monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)

    def remove():
        os.chdir("/")
        gone.rmdir()

    assert (
        judged(remove).message
        == "Right. Your answer changed working directory for good: restart the kernel."
    )
