"""What is sent from process to process gets the verdict that it gets in one: solutions,
wrong answers, kernels, and what can be called in every form.
"""

import collections
import contextlib
import functools
import importlib
import io
import re
import socket
import threading

import numba
import numpy as np
import pytest
import torch
from numba import cuda

from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, time_limit
from labkit.measure.machine import threads
from teaching import hidden_check, judging, kernel_judge, kernel_source, learner
from teaching.channel import Channel
from tests.helpers import fake_ceilings, notebook_paths, solved
from tests.needs import marks_of
from tests.selection import sampled

pytestmark = pytest.mark.slow  # judges every exercise

SALT = "salt"
# the solution uses what the notebook has made before, which solved(number) hasn't
OF_THEIR_NOTEBOOK = (
    *("00.1", "00.6", "01.6", "05.5", "05.6", "06.5", "10.6b", "14.3", "14.5"),
    "18.5",
)


class InAThread:
    """In place of `sandbox.Program`: the learner's side in a thread of this process."""

    def __init__(self, number, answer):
        here, there = socket.socketpair()
        self._channel = Channel(here)
        side = learner.Learner(Channel(there))
        side._answer_of[number] = answer
        self._thread = threading.Thread(target=side.serve, daemon=True)
        self._thread.start()

    def send(self, message, seconds):
        self._channel.send(message, seconds)

    def receive(self, seconds):
        return self._channel.receive(seconds)

    def stop(self):
        self._channel.close()
        self._thread.join()


class KernelsHere:
    """In place of the process that judges kernels."""

    def judge(self, number, kernel, salt):
        state, words = kernel_judge.verdict(number, kernel.description, salt)
        return judging.Outcome(number, state, words)


@pytest.fixture(autouse=True)
def in_one_process(monkeypatch):
    monkeypatch.setattr(judging, "_kernel_judge", lambda **_: KernelsHere())
    # signals reach the main thread alone
    monkeypatch.setattr(
        learner, "_interrupted_after", lambda _: contextlib.nullcontext()
    )
    monkeypatch.setattr(time_limit, "RUN_S", 1000.0)
    monkeypatch.setattr(time_limit, "WAIT_S", 1000.0)
    for path in notebook_paths():
        name = f"exercises.nb{path.name[:2]}.check.measure_ceilings"
        monkeypatch.setattr(name, fake_ceilings, raising=False)
    with threads(1):
        yield


def graded(number, answer):
    """What a grader says of an answer that is sent."""
    handin = judging._Handin([], unprotected=False)
    vars(handin)["_program"] = InAThread(number, answer)
    with contextlib.closing(handin):
        return judging._verdict(handin, number, "", SALT)


def in_groups(numbers):
    return [pytest.param(n, id=n, marks=marks_of(n)) for n in sorted(numbers)]


@pytest.mark.parametrize("number", sampled(in_groups(judging.APART), 20))
def test_a_solution_passes_and_a_wrong_answer_does_not(number):
    if number not in OF_THEIR_NOTEBOOK:
        outcome = graded(number, solved(number))
        assert outcome.state == "passed", outcome
    module = importlib.import_module(f"exercises.nb{number[:2]}.wrong_answers")
    for answer, _, _ in module.WRONG[number]:
        outcome = graded(number, answer)
        assert outcome.state in ("not yet", "todo"), outcome


def test_the_page_names_each_exercise_that_is_practice():
    page = (ROOT / "docs" / "teaching" / "grading.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"(?s)all others are\s+graded:\s+(.+?)\.\n\n", page)
    practice = set(exercise_files.numbers()) - set(judging.APART)
    assert re.split(r",\s+", listed) == sorted(practice, key=exercise_files.order)


def test_a_semester_assesses_no_practice():
    rows = (ROOT / "docs" / "teaching" / "semester.csv").read_text(encoding="utf-8")
    syllabi = (ROOT / "docs" / "teaching" / "syllabi.md").read_text(encoding="utf-8")
    named = [row.rsplit(",", 1)[1] for row in rows.splitlines()]
    named += re.findall(r"\*\*Assessment:\*\* exercises .*", syllabi)
    assessed = set(re.findall(r"\d\d\.\d\d?[a-z]?", " ".join(named)))
    assert len(assessed) > 20
    assert assessed <= set(judging.APART)


class Callable:
    """An object that is called, and whose method is."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)

    def method(self, *arguments):
        return self.function(*arguments)


FORMS = {
    "jitted": lambda f: numba.njit(f),
    "cached": functools.cache,
    "partial": functools.partial,
    "vectorized": np.vectorize,
    "method": lambda f: Callable(f).method,
    "object": Callable,
    "class method": lambda f: classmethod(lambda _, *a: f(*a)).__get__(None, int),
    "lambda": lambda f: lambda *arguments: f(*arguments),
}
RESULTS = {
    "masked": np.ma.masked_array,
    "array": np.asarray,
    "tensor": torch.as_tensor,
    "number of NumPy": lambda result: np.asarray(result)[()],
    "tuple": lambda result: tuple(result),
    "generator": lambda result: (each for each in result),
}


def with_result(function, form):
    def formed(*arguments):
        return form(function(*arguments))

    return formed


def functions():
    """The exercises whose answer is a plain function, always the same ones."""
    pairs = []
    for number in sorted(set(judging.APART) - set(OF_THEIR_NOTEBOOK)):
        if number[:2] < "18" or number[:2] in ("19", "22"):
            pairs += [(number, name) for name in (*FORMS, *RESULTS)]
    return pairs


@pytest.mark.parametrize(("number", "form"), sampled(functions(), 40))
def test_the_verdict_is_the_same_in_every_form(number, form):
    answer = solved(number)
    if not callable(answer) or kernel_source.is_kernel(answer):
        return
    if form in FORMS:
        formed = FORMS[form](answer)
    else:
        formed = with_result(answer, RESULTS[form])
    here = hidden_check.judge(number, formed, SALT)
    there = graded(number, formed)
    assert there.state == here.state, (here, there)


def test_a_stub_is_open():
    def stub(one, every, n):
        """Percent."""

    for answer in (stub, ...):
        assert graded("00.3", answer).state == "todo"


def test_tensors_of_every_dtype_arrive_as_they_were():
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64):
        sent = torch.randn(3, 2).to(dtype)
        name, shape, content = learner.bytes_of(sent.T)
        received = learner.tensor_of(name, shape, content)
        assert received.dtype == dtype
        assert learner.bytes_of(received) == (name, shape, content)
        assert received[1, 0] == sent[0, 1]
    with pytest.raises(Exception, match="no kind of number"):
        learner.tensor_of("load", (1,), b"1")


def sent(value):
    packed = io.BytesIO()
    learner.Packer(packed, []).dump(value)
    return judging._Plain(packed.getvalue(), None).load()


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (np.array(["shard-0", "shard-1"]), np.array(["shard-0", "shard-1"])),
    ],
)
def test_what_is_like_a_plain_value_arrives_as_one(value, plain):
    arrived = sent(value)
    assert type(arrived) is type(plain)
    assert np.array_equal(arrived, plain)


def test_an_iterator_arrives_as_one():
    arrived = sent(str(n) for n in (1, 2))
    assert next(arrived) == "1"
    assert list(arrived) == ["2"]


# What no kernel needs, in kernels that would cheat; the words that say so.
HOSTILE = {
    "x.__class__": "__class__",
    "cuda.cudadrv": "cudadrv",
    "__import__('os')": "__import__",
    "open('/etc/passwd')": "open",
    "[i for i in x]": "ListComp",
    "(lambda: 1)()": "calls what has no name",
    "f'{x!r}'": "JoinedStr",
    "np.load": "load",
    "().__class__.__base__": "__base__",
    "getattr(x, 'base')": "getattr",
}


@pytest.mark.parametrize("code", HOSTILE)
def test_a_source_that_is_no_kernel_runs_nothing(code):
    names = {"cuda": ("module", "numba.cuda"), "np": ("module", "numpy")}
    description = {
        "language": "cuda",
        "is_device": False,
        "source": f"@cuda.jit\ndef double(x, out):\n    out[0] = {code}\n",
        "names": names,
    }
    with pytest.raises(kernel_source.NoKernel, match=HOSTILE[code]):
        kernel_source.rebuilt(description)
    state, words = kernel_judge.verdict("03.1", description, SALT)
    assert state == "not yet"
    assert HOSTILE[code] in words


def test_a_kernel_takes_numbers_and_other_kernels_along():
    factor = 2

    @cuda.jit(device=True)
    def times(number):
        return factor * number

    @cuda.jit
    def double(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = times(x[i])

    assert graded("03.1", double).state == "passed"
    for name, meaning in {
        "cuda": ("module", "os"),
        "times": ("word", ("numba.cuda", "cudadrv")),
        "factor": ("number", "text"),
    }.items():
        description = kernel_source.described(double)
        description["names"][name] = meaning
        with pytest.raises(kernel_source.NoKernel):
            kernel_source.rebuilt(description)
