"""Kernels as a share of what bounds them, and what the notebooks' speed-ups bring, side
by side in one run on a GPU.

usage: python -m benchmarks.gpu [WORDS]    only the groups whose name contains WORDS
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator

# a benchmark must not add to the reader's results
os.environ["LABKIT_HOME"] = tempfile.mkdtemp(prefix="labkit-bench-")

import torch
from torch import Tensor, nn
from torch.nn import functional

import labkit as lab
from benchmarks import array_kernels, graphs, precision
from benchmarks.gpu_timing import Share, seconds
from exercises.nb05 import fast_matmul
from exercises.nb06 import cnn_block as fused_block
from exercises.nb07 import slow_script
from labkit.core.display import Table
from labkit.core.units import format_si

FLOATS = 2**28  # a GiB: many times any L2 cache
SIDE = 2**14  # of the transposed matrix, a GiB too
MATMUL_N = 8192
BATCH = 1024
SCRIPT_IMAGES = 512


def _check(got: Tensor, wanted: Tensor, rel: float) -> None:
    """A kernel that is fast and wrong is not fast: AssertionError unless the norm of
    the difference is within `rel`.
    """
    error = float((got.double() - wanted.double()).norm() / wanted.double().norm())
    assert error <= rel, f"relative error {error:.2g}, at most {rel:.2g} expected"


def memory() -> Iterator[Share]:
    """Bytes that have to move over seconds, as a share of the rate of the device's own
    copy.
    """
    x, y, out = (torch.randn(FLOATS, device="cuda") for _ in range(3))
    array_kernels.copy(x, out)
    _check(out, x, 0)
    wanted = y + 1.5 * x
    array_kernels.saxpy(1.5, x, y)
    _check(y, wanted, 1e-6)
    del wanted
    _check(array_kernels.reduce_sum(x.abs()), x.abs().sum(dtype=torch.float64), 1e-5)
    matrix = x.view(SIDE, SIDE)
    turned = out.view(SIDE, SIDE)
    for tile in (32, 64):
        _check(array_kernels.transpose(matrix, out=turned, tile=tile), matrix.T, 0)
    took = seconds(
        {
            "copy_": lambda: out.copy_(x),
            "add": lambda: torch.add(x, 1, out=out),
            "copy": lambda: array_kernels.copy(x, out),
            "saxpy": lambda: array_kernels.saxpy(1e-9, x, y),
            "torch saxpy": lambda: y.add_(x, alpha=1e-9),
            "transpose 32": lambda: array_kernels.transpose(
                matrix, out=turned, tile=32
            ),
            "transpose 64": lambda: array_kernels.transpose(
                matrix, out=turned, tile=64
            ),
            "torch transpose": lambda: turned.copy_(matrix.T),
            "sum": lambda: array_kernels.reduce_sum(x),
            "torch sum": lambda: x.sum(),
        }
    )
    ceiling = 8 * FLOATS / min(took["copy_"], took["add"])

    def share(
        name: str, target: float, way: str, bytes_a_float: int, peer: str
    ) -> Share:
        rate, other = (bytes_a_float * FLOATS / took[each] for each in (way, peer))
        detail = (
            f"{format_si(rate, 'B/s')}, copy rate {format_si(ceiling, 'B/s')}, {peer}"
            f" {format_si(other, 'B/s')}"
        )
        return Share(name, target, rate / ceiling, detail)

    yield share("copy", 0.95, "copy", 8, "copy_")
    yield share("SAXPY", 0.95, "saxpy", 12, "torch saxpy")
    tile = min((32, 64), key=lambda side: took[f"transpose {side}"])
    yield share(
        f"padded transpose, tile {tile}", 0.9, f"transpose {tile}", 8, "torch transpose"
    )
    yield share("reduction", 0.9, "sum", 4, "torch sum")


def matmul_float32() -> Iterator[Share]:
    """float32 products of 8192 x 8192, as a share of cuBLAS without TF32."""
    from numba import cuda

    from exercises.nb04 import numba_kernels

    a, b, out = (torch.randn(MATMUL_N, MATMUL_N, device="cuda") for _ in range(3))
    tiles = MATMUL_N // numba_kernels.BLOCK_TILE
    launch = numba_kernels.matmul_blocked[(tiles, tiles), numba_kernels.THREADS]
    views = tuple(cuda.as_cuda_array(tensor) for tensor in (a, b, out))
    ways = {
        "cuBLAS": lambda: torch.mm(a, b, out=out),
        "CUDA C++": lambda: fast_matmul.matmul(a, b, out=out),
        "numba": lambda: launch(*views),
    }
    with lab.float32_precision("ieee"):
        wanted = a @ b
        for name in ("CUDA C++", "numba"):
            out.fill_(torch.nan)
            torch.cuda.synchronize()  # numba launches on a stream of its own choice
            ways[name]()
            torch.cuda.synchronize()
            _check(out, wanted, 1e-5)
        took = seconds(ways)
    for name, target in (("CUDA C++", 0.85), ("numba", 0.5)):
        yield _against(f"float32 matmul, {name}", target, took[name], took["cuBLAS"])


def matmul_bfloat16() -> Iterator[Share]:
    """bfloat16 products of 8192 x 8192 on tensor cores, as a share of cuBLAS."""
    a, b, out = (
        torch.randn(MATMUL_N, MATMUL_N, device="cuda").bfloat16() for _ in range(3)
    )
    wanted = a.float() @ b.float()
    out.fill_(torch.nan)
    _check(fast_matmul.matmul(a, b, out=out), wanted, 2**-8)
    took = seconds(
        {
            "cuBLAS": lambda: torch.mm(a, b, out=out),
            "CUDA C++": lambda: fast_matmul.matmul(a, b, out=out),
        }
    )
    yield _against("bfloat16 matmul, CUDA C++", 0.6, took["CUDA C++"], took["cuBLAS"])


def _against(name: str, target: float, took_s: float, cublas_s: float) -> Share:
    mine, theirs = (
        format_si(2 * MATMUL_N**3 / each, "FLOP/s") for each in (took_s, cublas_s)
    )
    return Share(name, target, cublas_s / took_s, f"{mine}, cuBLAS {theirs}")


class _Fused(torch.autograd.Function):
    """The fused block under autograd."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        pooled, choice = fused_block.cnn_block_forward(x, weight, bias)
        ctx.save_for_backward(x, weight, choice)
        return pooled

    @staticmethod
    def backward(ctx, grad):
        x, weight, choice = ctx.saved_tensors
        wanted = ctx.needs_input_grad[0]
        return fused_block.cnn_block_backward(
            grad.contiguous(), choice, x, weight, input_gradient=wanted
        )


def cnn_block() -> Iterator[Share]:
    """Both blocks of SimpleCNN, batch 1,024, float32: the fused kernels against torch's
    layers one by one.
    """
    model = lab.models.SimpleCNN().cuda()
    convolutions = [layer for layer in model.features if isinstance(layer, nn.Conv2d)]
    parameters = [
        parameter for layer in convolutions for parameter in layer.parameters()
    ]
    images = torch.randn(BATCH, 3, 32, 32, device="cuda")
    grad = torch.randn(BATCH, 16, 5, 5, device="cuda")

    def eager() -> Tensor:
        x = images
        for layer in convolutions:
            x = functional.max_pool2d(
                functional.relu(functional.conv2d(x, layer.weight, layer.bias)), 2
            )
        return x

    def fused() -> Tensor:
        x = images
        for layer in convolutions:
            x = _Fused.apply(x, layer.weight, layer.bias)
        return x

    def trained(forward: Callable[[], Tensor]) -> Callable[[], tuple[Tensor, ...]]:
        return lambda: torch.autograd.grad(forward(), parameters, grad)

    with lab.float32_precision("ieee"):
        with torch.no_grad():
            _check(fused(), eager(), 1e-4)
            yield from _speedups("forward", eager, fused)
        for got, wanted in zip(trained(fused)(), trained(eager)(), strict=True):
            # a tie that rounding decides sends a gradient to the neighboring cell
            _check(got, wanted, 1e-3)
        yield from _speedups("forward and backward", trained(eager), trained(fused))


def _speedups(
    name: str, eager: Callable[[], object], fused: Callable[[], object]
) -> Iterator[Share]:
    """Called as a reader would, and replayed as CUDA graphs, which leaves the time on
    the GPU alone.
    """
    for how, prepared in (("", _as_it_is), (", as CUDA graphs", _graph)):
        took = seconds({"eager": prepared(eager), "fused": prepared(fused)})
        with _autotuned():
            tuned_s = seconds({"eager": prepared(eager)})["eager"]
        detail = ", ".join(
            f"{way} {1e6 * each:.0f} µs"
            for way, each in (*took.items(), ("eager with cuDNN autotuned", tuned_s))
        )
        yield Share(
            f"fused CNN blocks, {name}{how}", 2.0, took["eager"] / took["fused"], detail
        )


def _as_it_is(call: Callable[[], object]) -> Callable[[], object]:
    return call


@contextlib.contextmanager
def _autotuned() -> Iterator[None]:
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = False


def _graph(call: Callable[[], object]) -> Callable[[], object]:
    """The call recorded once: a replay spares the launches, which such small kernels
    are hardly longer than.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def launches() -> Iterator[Share]:
    """A launch-bound network's training step as one CUDA graph."""
    yield from graphs.launch_bound()


def mixed_precision() -> Iterator[Share]:
    """A training step in mixed precision, its accuracy held against float32's."""
    yield from (Share(*row) for row in precision.mixed_precision(seconds))


def planted_script() -> Iterator[Share]:
    """The script of notebook 07 without its six faults, against the script as it is
    found.
    """
    pixels, labels = lab.data.digits(size=32, channels=3)
    images = (pixels[:SCRIPT_IMAGES] * 255).round().to(torch.uint8).numpy()
    inputs = images, labels[:SCRIPT_IMAGES].numpy(), "cuda"
    taken = {}
    for name, faults in (("as found", tuple(slow_script.FAULTS)), ("mended", ())):
        slow_script.train(lab.models.SimpleCNN().cuda(), *inputs, faults=faults)

        def run(faults: tuple[str, ...] = faults) -> None:
            slow_script.train(lab.models.SimpleCNN().cuda(), *inputs, faults=faults)

        taken[name] = lab.time_call(
            run, label=name, sync=torch.cuda.synchronize, budget_s=2, min_runs=2
        ).median_s
    detail = ", ".join(f"{name} {took_s:.3g} s" for name, took_s in taken.items())
    yield Share(
        "notebook 07's script, mended against as found",
        10,
        taken["as found"] / taken["mended"],
        detail,
    )


GROUPS = (
    memory,
    matmul_float32,
    matmul_bfloat16,
    cnn_block,
    launches,
    mixed_precision,
    planted_script,
)


def rows(words: str = "") -> list[tuple[str, ...]]:
    """The table's rows. A group that fails gives a row that says so, and the others go
    on.
    """
    lines: list[tuple[str, ...]] = []
    for group in GROUPS:
        if words not in group.__name__:
            continue
        try:
            lines += [share.row() for share in group()]
        except Exception as error:
            # a device is lent for minutes: one failure must not cost the other figures
            lines.append(
                (group.__name__, "", "", "FAILED", f"{type(error).__name__}: {error}")
            )
        torch.cuda.empty_cache()
        print(f"{group.__name__} measured", file=sys.stderr)
    return lines


def main(words: str) -> None:
    """Measure and print the table; without a GPU, say so."""
    if not torch.cuda.is_available():
        print(
            "These figures need a CUDA GPU, and torch finds none: nothing was measured."
        )
        return
    headings = ("figure", "target", "share or speed-up", "", "measured")
    print(Table(tuple(rows(words)), headings, f"On {torch.cuda.get_device_name()}"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
