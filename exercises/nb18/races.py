"""Races of this notebook's kernels with PyTorch's: which kernel PyTorch took, and what
is calculated for yours where it can't be launched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from exercises.nb18 import compiled, evidence
from kerneltrace import Estimate, tiles
from kerneltrace.errors import UnknownDevice
from labkit.core.parameters import checked
from labkit.lesson.boards import SpeedBoard
from labkit.measure import catalog
from labkit.measure.bench import Comparison
from labkit.measure.machine import machine, pick
from labkit.measure.profiling import quiet_profiler

_KERNELS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": "its flash kernel for CPUs",
    "aten::_scaled_dot_product_flash_attention": "FlashAttention-2",
    "aten::_scaled_dot_product_cudnn_attention": "cuDNN's kernel",
    "aten::_scaled_dot_product_efficient_attention": "its memory-efficient kernel",
    "aten::_scaled_dot_product_fused_attention_overrideable": "the device's own kernel",
}
"""Operators that scaled_dot_product_attention calls, one for each of
torch.nn.attention.SDPBackend, and what each runs.
"""
_IN_STEPS = "no kernel of its own: it computes in steps"
H100 = "H100 SXM5 80GB"


@checked
def attention_kernel(call: Callable[[], object]) -> str:
    """Which kernel torch.nn.functional.scaled_dot_product_attention takes in `call()`,
    by the operators that torch.profiler sees.
    """
    cpu = torch.profiler.ProfilerActivity.CPU
    # events of all cycles, of which there is one: else torch warns
    profiler = torch.profiler.profile(activities=[cpu], acc_events=True)
    with quiet_profiler(), profiler as profile:
        call()
    operators = {event.key for event in profile.key_averages()}
    names = [name for operator, name in _KERNELS.items() if operator in operators]
    kernel = names[0] if names else _IN_STEPS
    activated = getattr(torch.nn.attention, "current_flash_attention_impl", str)()
    if kernel == "FlashAttention-2" and activated:
        kernel = f"FlashAttention, as activated: {activated}"
    return f"PyTorch {torch.__version__} takes {kernel}"


@checked
def race(
    board: SpeedBoard,
    ways: Mapping[str, Callable[[], object]],
    yours: Callable[[], object] | None,
    estimate: Callable[[Any], Estimate] | None = None,
    *,
    dots: bool = True,
    dtype: str = "float16",
) -> Comparison:
    """Time ways in turn on a board, the reader's kernel among them where it is solved
    and can be launched.

    `dots` says whether it multiplies matrices. Where it can't be launched, its time is
    what `estimate` calculates, for numbers of `dtype`, for this machine's GPU, or for
    an H100 where there is none.
    """
    can_launch = compiled.launches(dots=dots)
    if not can_launch:
        needs = compiled.NEEDS if dots else "a CUDA GPU and Triton"
        numbers = {f"{name}, {dtype}": s for name, s in calculated(estimate).items()}
        board.absent("yours", needs, calculated=numbers)
    own = {"yours": yours} if yours and can_launch else {}
    budget_s = pick(ci=0.3, cpu=1.0, gpu=1.0)
    return board.compare({**ways, **own}, sync=machine().sync, budget_s=budget_s)


def of_softmax(
    board: SpeedBoard,
    ways: Mapping[str, Callable[[], object]],
    softmax: Any,
    x: Tensor,
    out: Tensor,
) -> Comparison:
    """Race ways of the softmax of the rows of x (rows, columns) with the reader's
    kernel, which stores to `out`; it is false while it is open.

    Where it can't be launched, its time is calculated from four of its programs.
    """
    if not softmax:
        return race(board, ways, None, dots=False)
    rows, columns = x.shape
    grid = (rows,)
    tile = {"BLOCK": tiles.triton.next_power_of_2(columns)}

    def estimate(device: Any) -> Estimate:
        few = x[:4].cpu(), out[:4].cpu()
        trace = tiles.trace(softmax, rows, *few, columns, **tile, programs=4)
        return trace.estimate(device)

    return race(
        board,
        ways,
        lambda: softmax[grid](x, out, columns, **tile),
        estimate,
        dots=False,
        dtype="float32",
    )


def of_attention(
    board: SpeedBoard,
    ways: Mapping[str, Callable[[], object]],
    attention: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
) -> Comparison:
    """Race ways of causal attention of (1, heads, tokens, 64) with the reader's kernel,
    which stores to `out`; it is false while it is open. Print which kernel PyTorch's
    call took, the first of the ways.

    The reader's runs in the fastest of three configurations: rows of a tile, and warps.
    """
    call = next(iter(ways.values()))
    if not attention:
        compared = race(board, ways, None)
    else:
        _, heads, tokens, width = q.shape
        scale = width**-0.5
        fastest = tuned(attention, [(64, 4), (64, 8), (128, 8)])
        programs = grid(tokens, heads)
        compared = race(
            board,
            ways,
            lambda: fastest[programs](q, k, v, out, tokens, scale, WIDTH=width),
            estimate(evidence.causal_trace(attention), tokens, heads),
        )
    print(attention_kernel(call))
    return compared


@checked
def calculated(estimate: Callable[[Any], Estimate] | None) -> dict[str, float]:
    """Seconds that `estimate(device)` gives for this machine's GPU, or for an H100
    where there is none, by the device's name; nothing without an estimate, and for a
    GPU whose rates are unknown.

    Below compute capability 8.0 it is the time of scalar arithmetic.
    """
    if estimate is None:
        return {}
    gpus = machine().gpus
    try:
        device = catalog.find(gpus[0].name if gpus else H100)
        return {device.name: estimate(device).seconds}
    except UnknownDevice:
        return {}


@checked
def tuned(attention: Any, sizes: Sequence[tuple[int, int]]) -> Any:
    """The reader's attention under @triton.autotune: for each number of tokens Triton
    times these tiles' rows and numbers of warps, and keeps the fastest.
    """
    if not hasattr(attention, "fn"):
        return attention  # without @triton.jit, which its check says
    tried = [tiles.triton.Config({"TILE": rows}, num_warps=n) for rows, n in sizes]
    return tiles.triton.autotune(tried, key=["tokens"])(attention)


def grid(tokens: int, heads: int) -> Callable[[Mapping[str, int]], tuple[int, int]]:
    """A program for each tile of queries, of the chosen size, and each head."""
    return lambda chosen: (-(-tokens // chosen["TILE"]), heads)


@checked
def estimate(
    trace: tiles.TileTrace, tokens: int, heads: int
) -> Callable[[Any], Estimate]:
    """What calculates, for a GPU, the time of more tokens and heads than those of a
    trace of causal attention of one head.

    The program of tile i has a loop of i + 1 turns: of n tiles (n + 1) / 2 on average.
    """
    rows = 64
    longer = (tokens // rows + 1) / (trace.programs + 1)
    places = tokens // rows, heads
    return lambda gpu: trace.estimate(gpu, grid=places, longer=longer)
