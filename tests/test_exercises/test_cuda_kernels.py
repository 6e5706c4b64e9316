"""The CUDA C++ kernels through their launchers: traced on the CPU everywhere, and run
on a GPU where one is.
"""

import functools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from benchmarks import array_kernels
from exercises import cuda_launch
from exercises.nb05 import fast_matmul
from exercises.nb06 import cnn_block
from kerneltrace import compile_cuda, trace
from labkit.core.errors import LabError

pytestmark = pytest.mark.slow  # compiles CUDA C++ with NVRTC and traces it

needs_nvrtc = pytest.mark.skipif(
    sys.platform == "darwin", reason="NVIDIA has no compiler for macOS"
)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
CPU = pytest.param("cpu", marks=needs_nvrtc)
GPU = pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])
FILES = [
    *array_kernels.FOLDER.glob("*.cu"),
    *fast_matmul.FOLDER.glob("*.cu"),
    cnn_block.FILE,
]
CUDA_FILES = {path.stem: path for path in FILES}
# its two blocks: C, D, H, W, K and padding
SIMPLE_CNN = [(3, 6, 32, 32, 5, 0), (6, 16, 14, 14, 5, 0)]


HARMLESS = {"unset", "unwritten"}
"""What may be found: the pipeline loads numbers that it then doesn't use, where a
product has few slices.
"""
compiled = functools.cache(
    lambda source, options: compile_cuda(
        source, compute_capability=(8, 0), options=options
    )
)


@pytest.fixture(params=[CPU, GPU])
def device(request, monkeypatch):
    """'cpu', where the launchers trace their kernels, in which no mistake may be; or
    'cuda'.
    """
    if request.param == "cpu":

        def run(file, kernel, grid, block, arguments, *, options=(), shared_bytes=0):
            assert (
                shared_bytes
                <= cuda_launch.properties(None).shared_memory_per_block_optin
            )
            built = compiled(file.read_text(encoding="utf-8"), options)
            done = trace(
                built, grid, block, *arguments, name=kernel, shared_bytes=shared_bytes
            )
            assert {finding.kind for finding in done.findings} <= HARMLESS, done

        monkeypatch.setattr(cuda_launch, "run", run)
        monkeypatch.setattr(cuda_launch, "check_devices", lambda **tensors: None)
        monkeypatch.setattr(cuda_launch, "properties", lambda device: gpu(8, 6))
    return request.param


def gpu(major, minor):
    """Stands in for torch's properties of a GPU with one multiprocessor."""
    return SimpleNamespace(
        major=major,
        minor=minor,
        multi_processor_count=1,
        shared_memory_per_block_optin=99 * 1024,
    )


def random(*shape, device, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(device, dtype)


def error(found, wanted):
    """Norm of the difference over the norm of what is wanted, which is in float64."""
    return float((found.double() - wanted).norm() / wanted.norm())


SIZES = [1, 31, 1023, 9001]


@pytest.mark.parametrize("n", SIZES)
def test_copy(n, device):
    x = random(n, device=device)
    out = torch.full_like(x, torch.nan)
    array_kernels.copy(x, out)
    assert torch.equal(out, x)


@pytest.mark.parametrize("n", SIZES)
def test_saxpy(n, device):
    x = random(n, device=device)
    y = random(n, 1, device=device).flatten()
    wanted = 1.7 * x.double() + y.double()
    array_kernels.saxpy(1.7, x, y)
    assert error(y, wanted) < 1e-6


@pytest.mark.parametrize("tile", [32, 64])
@pytest.mark.parametrize("shape", [(1, 1), (31, 33), (1, 200), (130, 70)])
def test_transpose(shape, tile, device):
    a = random(*shape, device=device)
    out = a.new_full((shape[1], shape[0]), torch.nan)
    assert torch.equal(array_kernels.transpose(a, out=out, tile=tile), a.T)


@pytest.mark.parametrize("n", [*SIZES, 70_001])
def test_reduce_sum(n, device):
    # without cancellation, so that the relative error means something
    x = random(n, device=device).abs()
    assert error(array_kernels.reduce_sum(x), x.double().sum()) < 1e-6


@pytest.mark.parametrize(
    "mnk", [(1, 1, 1), (130, 70, 50), (5, 300, 17), (129, 132, 68)], ids=str
)
def test_matmul_float32(mnk, device):
    m, n, k = mnk
    a = random(m, k, device=device)
    b = random(k, n, device=device)
    out = a.new_full((m, n), torch.nan)
    assert error(fast_matmul.matmul(a, b, out=out), a.double() @ b.double()) < 1e-5


@pytest.mark.parametrize("mnk", [(1, 8, 8), (130, 72, 56), (300, 264, 200)], ids=str)
def test_matmul_bfloat16(mnk, device):
    m, n, k = mnk
    a, b = (
        random(*shape, device=device, dtype=torch.bfloat16)
        for shape in ((m, k), (k, n))
    )
    out = a.new_full((m, n), torch.nan)
    # of a result to bfloat16's 8 bits; sums in bfloat16 would be far worse
    rounding = 2**-8
    assert error(fast_matmul.matmul(a, b, out=out), a.double() @ b.double()) < rounding


LARGE_BLOCKS = [pytest.param(sizes, marks=pytest.mark.complete) for sizes in SIMPLE_CNN]


@pytest.mark.parametrize(
    "sizes", [*LARGE_BLOCKS, (3, 8, 15, 17, 3, 1), (1, 1, 4, 4, 1, 0)], ids=str
)
def test_cnn_block_forward_and_backward(sizes, device):
    c, d, height, width, k, padding = sizes
    x = random(5, c, height, width, device=device)
    weight = random(d, c, k, k, device=device)
    bias = random(d, device=device)
    pooled, choice = cnn_block.cnn_block_forward(x, weight, bias, padding=padding)
    grad = random(*pooled.shape, device=device)
    found = cnn_block.cnn_block_backward(grad, choice, x, weight, padding=padding)

    exact = [t.double().requires_grad_() for t in (x, weight, bias)]
    wanted = functional.max_pool2d(
        functional.relu(functional.conv2d(*exact, padding=padding)), 2
    )
    wanted.backward(grad.double())
    assert error(pooled, wanted.detach()) < 1e-5
    for mine, tensor in zip(found, exact, strict=True):
        assert error(mine, tensor.grad) < 1e-5


def test_nan_is_not_lost_in_the_pooling(device):
    x = random(1, 1, 4, 4, device=device)
    weight = torch.ones(1, 1, 1, 1, device=device)
    bias = torch.zeros(1, device=device)
    x[0, 0, 1, 1] = torch.nan
    pooled, _ = cnn_block.cnn_block_forward(x, weight, bias)
    assert torch.equal(
        pooled.isnan().flatten().cpu(), torch.tensor([True, False, False, False])
    )


def test_nothing_is_launched_for_nothing(device):
    empty = torch.empty(0, device=device)
    array_kernels.copy(empty, empty)
    assert array_kernels.reduce_sum(empty).item() == 0
    assert fast_matmul.matmul(
        empty.view(0, 3), torch.ones(3, 2, device=device)
    ).shape == (0, 2)
    assert (fast_matmul.matmul(empty.view(2, 0), empty.view(0, 3)) == 0).all()


# What the launchers refuse, in words.


def block_of(*shapes):
    return cnn_block.cnn_block_forward(*map(torch.ones, shapes))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda x: array_kernels.copy(x, x),
            r"x on a CUDA GPU, got it on cpu\. x\.cuda\(\)",
        ),
        (lambda x: array_kernels.copy([1.0], x), "Expected x to be a torch tensor"),
        (
            lambda x: array_kernels.reduce_sum(x.double()),
            "x to be torch.float32, got torch.float64",
        ),
        (lambda x: array_kernels.saxpy(1.0, x.T[:2], x[:2]), r"x\.contiguous\(\)"),
        (
            lambda x: array_kernels.copy(x[0, 1:], x[0, :3]),
            r"offset of \d+: .* x\.clone\(\)",
        ),
        (lambda x: array_kernels.transpose(x, tile=16), "tile to be 32 or 64, got 16"),
        (
            lambda x: fast_matmul.matmul(x[:, :3], x[:2]),
            "as many rows as a has columns",
        ),
        (lambda x: fast_matmul.matmul(x.half(), x), "float32 or bfloat16 matrices"),
        (
            lambda x: block_of((1, 3, 8, 8), (6, 4, 5, 5), (6,)),
            r"weight \(D, 3, K, K\)",
        ),
        (lambda x: block_of((1, 3, 4, 4), (6, 3, 4, 4), (6,)), "no pooled place"),
        (lambda x: block_of((1, 64, 56, 56), (64, 64, 3, 3), (64,)), "too large"),
    ],
)
def test_bad_input_is_refused_in_words(call, words):
    with pytest.raises(LabError, match=words):
        call(torch.ones(4, 4))


def test_other_shapes_and_old_gpus_are_refused(device, monkeypatch):
    with pytest.raises(
        LabError, match=r"Expected out to have shape \(3,\), got \(4,\)"
    ):
        array_kernels.copy(torch.ones(3, device=device), torch.ones(4, device=device))
    ones = torch.ones(8, 12, dtype=torch.bfloat16, device=device)
    with pytest.raises(
        LabError, match="multiples of 8 for bfloat16, got k = 12 and n = 8"
    ):
        fast_matmul.matmul(ones, ones.view(12, 8))
    monkeypatch.setattr(cuda_launch, "properties", lambda device: gpu(7, 5))
    with pytest.raises(LabError, match=r"needs compute capability 8\.0 .* got 7\.5"):
        fast_matmul.matmul(ones, ones.view(12, 8))


# That the check itself can fail: the same kernels with one thing broken.


def damaged(file, right, wrong):
    source = CUDA_FILES[file].read_text(encoding="utf-8")
    assert source.count(right) == 1, right
    return source.replace(right, wrong)


@needs_nvrtc
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            "wait_for_copies<STAGES - 2>();  // the next",
            "wait_for_copies<STAGES - 1>();  // the next",
        ),
        ("load(slice + 1, 0, (step + 1) % 2);", "load(slice, 0, (step + 1) % 2);"),
        ("i * 16 + lane % 16) * PITCH_A", "i * 16 + lane % 8) * PITCH_A"),
    ],
)
def test_a_damaged_pipeline_gives_a_wrong_result(right, wrong):
    source = damaged("matmul_bfloat16", right, wrong)
    a = random(100, 104, device="cpu", dtype=torch.bfloat16)
    b = random(104, 64, device="cpu", dtype=torch.bfloat16)
    out = torch.full((100, 64), torch.nan, dtype=torch.bfloat16)
    stages = 4 * 2 * (128 * 40 + 32 * 264)  # bytes
    done = trace(
        source,
        1,
        256,
        a,
        b,
        out,
        np.int32(100),
        np.int32(64),
        np.int32(104),
        shared_bytes=stages,
    )
    early = any("asynchronous copy" in finding.words for finding in done.findings)
    assert early or not error(out, a.double() @ b.double()) < 2**-8
    assert early == ("wait_for_copies" in right)
