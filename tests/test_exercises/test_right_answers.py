"""Right answers that do it in another way than the solutions: each must pass.

Those for kernels, ranks, TensorFlow, JAX and tiles stand in files of their own.
"""

import itertools
import math

import numba
import numpy as np
import pytest
import torch
from numba import prange
from torch.nn import functional

from exercises.nb05.wrong_answers import GELU, parts
from exercises.nb06 import wrong_answers as of_06
from exercises.nb06.wrong_answers import backward_with, forward_with
from exercises.nb08 import pipeline
from exercises.nb08.wrong_answers import in_order, shift
from labkit.lesson import exercise_files
from labkit.measure.machine import machine, threads
from labkit.train import data
from tests.helpers import check
from tests.test_exercises import virtual_clock


def body(text, before=""):
    head = GELU.split("    if (i < n) {")[0]
    return f"{before}{head}{text}}}"


def elementwise(value, before=""):
    return body(f"if (i < n) {{ float v = x[i]; y[i] = {value}; }}", before)


FORMULA = "0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)))"
INNER = "0.7978845608f * (v + 0.044715f * v * v * v)"
FUNCTION = f"__device__ __noinline__ float g(float v) {{ return {FORMULA}; }}\n"


def masked(x):
    shared = torch.from_dlpack(x)
    shared[shared < 0] = 0
    return shared


def a_row_for_each_thread(x, weight, bias, pooled, choice):
    scratch = np.empty((numba.get_num_threads(), *pooled.shape[1:]), x.dtype)
    for image in numba.prange(len(x)):
        here = np.s_[image : image + 1]
        mine = numba.get_thread_id()
        forward_with(x[here], weight, bias, scratch[mine : mine + 1], choice[here])
        pooled[image] = scratch[mine]


def image_by_image(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases):
    for image in prange(len(x)):
        here = np.s_[image : image + 1]
        mine = grad_pooled[here].copy()
        backward_with(
            mine,
            choice[here],
            x[here],
            weight,
            grad_x[here],
            grad_weights[here],
            grad_biases[here],
        )


def by_moments(kernels, start, end):
    """Counts how many kernels run, moment by moment."""
    moments = sorted(
        [
            (min(max(t, start), end), step)
            for pair in kernels
            for t, step in zip(pair, (1, -1), strict=True)
        ]
    )
    busy = running = 0
    for (now, step), (after, _) in itertools.pairwise([*moments, (end, 0)]):
        running += step
        busy += (after - now) * (running > 0)
    return busy / (end - start)


def losses_of(job, steps):
    return [job.step(job.prepare()) for _ in range(steps)]


def one_ahead(job, steps):
    batch = job.prepare()
    total = 0.0
    for i in range(steps):
        total = total + job.step(batch)
        if i < steps - 1:
            batch = job.prepare()
    return float(total) / steps


def with_a_flag(job, steps):
    total = 0.0
    bad: bool | torch.Tensor = False
    for _ in range(steps):
        loss = job.step(job.prepare())
        bad = torch.isnan(loss) | bad  # stays on the device
        total = total + loss
    return math.nan if bad else total.item() / steps


def as_tensor(prepare_s, train_s, workers, cores, train_cores):
    limits = torch.tensor(
        [workers / prepare_s, 1 / train_s, cores / (prepare_s + train_cores * train_s)]
    ).double()
    return (
        limits.min()
        if workers
        else torch.tensor(1 / (prepare_s + train_s), dtype=torch.float64)
    )


def in_even_pieces(shards, rank, ranks, worker, workers):
    """Pieces whose lengths differ by one, as np.array_split makes them: [start, end) by
    integer arithmetic.
    """

    def piece(part, i, n):
        return part[i * len(part) // n : (i + 1) * len(part) // n]

    return piece(piece(shards, rank, ranks), worker, max(workers, 1))


def by_one_number(images, most):
    amounts = 2 * most + 1
    both = torch.randint(amounts**2, (len(images),))
    return shift(images, most, both // amounts, both % amounts)


def as_often_as_the_others(images, most):
    """Each pair of amounts as often as any other, in a random order."""
    amounts = 2 * most + 1
    both = torch.randperm(len(images)) % amounts**2
    return shift(images, most, both // amounts, both % amounts)


def by_determinants(small, small_s, large, large_s):
    if large_s <= small_s:
        return small_s, math.inf
    fixed = small_s * large - large_s * small
    return fixed / (large - small), fixed / (large_s - small_s)


def rolled_and_cut(images, most):
    """Rows and columns are taken around the edge, and what came around
    is set to zero.
    """
    n, _, height, width = images.shape
    down, right = torch.randint(-most, most + 1, (2, n, 1), device=images.device)
    rows = torch.arange(height, device=images.device) - down
    columns = torch.arange(width, device=images.device) - right
    inside = ((rows >= 0) & (rows < height))[:, None, :, None] & (
        (columns >= 0) & (columns < width)
    )[:, None, None, :]
    which = torch.arange(n, device=images.device)[:, None, None]
    moved = images.permute(0, 2, 3, 1)[
        which, (rows % height)[:, :, None], (columns % width)[:, None, :]
    ]
    return torch.where(inside, moved.permute(0, 3, 1, 2), 0).to(images.dtype)


class Loading:
    """A callable object, whose epochs use one buffer again and again."""

    def __init__(self, shards, batch):
        self.pixels, self.labels = map(torch.from_numpy, data.decoded_cache(shards))
        self.batch = batch
        self.buffer = torch.empty(batch, 3, 32, 32, device=machine().device)

    def __call__(self):
        for rows in torch.utils.data.BatchSampler(
            torch.utils.data.RandomSampler(self.labels), self.batch, False
        ):
            images = (
                self.buffer[: len(rows)].copy_(shift(self.pixels[rows], 4)).div_(255)
            )
            yield images, self.labels[rows].to(images.device)


def seeded_by_epoch(i, n):
    return torch.randperm(n, generator=torch.Generator().manual_seed(1000 + i))


def by_ldexp(sign, exponent, fraction):
    bias = 2 ** (len(exponent) - 1) - 1
    power = int(exponent, 2)
    digits = int(fraction, 2)
    size = np.ldexp(
        digits + (power > 0) * 2.0 ** len(fraction),
        max(power, 1) - bias - len(fraction),
    )
    return np.copysign(size, -1 if sign == "1" else 1)


def in_torch(numbers, add):
    sums = list(torch.tensor(numbers))
    while len(sums) > 1:
        sums = [
            add(*sums[i : i + 2]) if i + 1 < len(sums) else sums[i]
            for i in range(0, len(sums), 2)
        ]
    return sums[0] if sums else torch.zeros(())


def by_sgd(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master.grad = weight.grad.float()
    torch.optim.SGD(masters, lr).step()
    for weight, master in zip(weights, masters, strict=True):
        weight.data.copy_(master)


def by_solve(small, big, small_norms, big_norms):
    squares = [np.mean(np.square(norms)) for norms in (small_norms, big_norms)]
    signal, noise = np.linalg.solve(np.array([[1, 1 / small], [1, 1 / big]]), squares)
    return noise / signal


def by_clamp(x, most):
    norm = x.square().mean().sqrt()
    limited = x * (most / norm).clamp(max=1.0)  # 1 for infinity
    return limited - limited.mean(), norm


def by_floor(compile_s, eager_s, compiled_s):
    if compiled_s < eager_s:
        return -int(-compile_s // (eager_s - compiled_s))
    return math.inf if compile_s or compiled_s > eager_s else 0


def found_by(kind):
    """16.5's own search, whose result is of another kind; it is called with generators
    of names.
    """

    def search(techniques, seconds, budget_s):
        given = {"math": math, "itertools": itertools}
        exec(exercise_files.solutions("16")["16.5"], given)
        return kind(
            given["search"](
                techniques, lambda on, seed: seconds(iter(on), seed), budget_s
            )
        )

    return search


def yields(names):
    yield from names


RIGHT = {
    "05.4": [
        parts(map="x > y ? (x-y)*(x-y) : (y-x)*(y-x)"),
        parts(map="[](T d) { return d * d; }(x - y)"),
        parts(map="x - y", reduce="hypot(a, b)", post="z = a"),
        parts(identity="T(0)", post="z = pow(a, 0.5)"),
    ],
    "05.5": [
        elementwise(f"v / (1.0f + expf(-2.0f * ({INNER})))"),
        elementwise("g(v)", FUNCTION),
        body(
            "for (int j = i; j < n; j += gridDim.x * blockDim.x) { float v = x[j];"
            f" y[j] = {FORMULA}; }}"
        ),
        body(
            "__shared__ float s[256]; if (i < n) s[threadIdx.x] = x[i];"
            " __syncthreads(); if (i < n) { float v = s[threadIdx.x]; y[i] ="
            f" {FORMULA}; }}"
        ),
    ],
    "05.7": [masked],
    "07.1": [by_moments],
    "07.2": [
        lambda job, steps: torch.stack(losses_of(job, steps)).mean().item(),
        one_ahead,
        with_a_flag,
    ],
    "08.2": [as_tensor],
    "08.4": [in_even_pieces],
    "08.6": [rolled_and_cut, by_one_number, as_often_as_the_others],
    "08.7": [Loading, in_order(seeded_by_epoch)],
    "09.1": [lambda *bits: torch.tensor(by_ldexp(*bits))],
    "09.2": [in_torch],
    "09.5": [by_sgd],
    "10.1": [lambda *times: np.array(by_determinants(*times))],
    "10.2": [
        lambda x, a, b: (
            torch.addcmul(b, x, a, out=torch.empty_like(x)).clamp_min_(0).mul_(0.5)
        ),
        lambda x, a, b: functional.leaky_relu_(torch.addcmul(b, x, a), 0.0).mul_(0.5),
    ],
    "10.3": [by_clamp],
    "10.6a": [lambda *seconds: np.float64(by_floor(*seconds))],
    "10.6b": [
        {
            "class": [False, 12_001],
            "sweep": (np.True_, 103_500.0),
            "night": (False, float("inf")),
        }
    ],
    "11.3": [
        lambda step, batch, warm_up: np.interp(
            step, [0, warm_up], [0.02, 0.02 * batch / 32]
        )
    ],
    "11.4": [by_solve],
    "16.5": [found_by(yields), found_by(dict.fromkeys)],
}
CASES = [
    pytest.param(number, answer, id=f"{number}-{i}")
    for number, answers in RIGHT.items()
    for i, answer in enumerate(answers)
]


@pytest.mark.parametrize(("number", "answer"), CASES)
def test_another_right_answer_passes(number, answer, monkeypatch):
    virtual_clock.use(monkeypatch)
    # 08.7 by what it delivers: whether it is fast enough depends on the machine
    monkeypatch.setattr(pipeline, "_share_of_ceiling", lambda epoch, judge: 1.0)
    with threads(1):
        outcome = check(number, answer)
    assert outcome.state == "passed", outcome


@pytest.mark.parametrize(
    ("number", "kernel"), [("06.5", a_row_for_each_thread), ("06.6", image_by_image)]
)
def test_threads_that_share_nothing_are_left_alone(number, kernel):
    outcome = check(number, kernel)
    # Python's run of it, which watches prange, is passed
    assert "Right, but not compiled" in outcome.message, outcome


@pytest.mark.complete
def test_an_operator_passes_however_often_it_was_defined_before():
    # torch compiles the same function for 8 operators, then refuses
    for i in range(10):
        outcome = check("06.7", of_06.operator(f"again_{i}"))
        assert outcome.state == "passed", outcome
