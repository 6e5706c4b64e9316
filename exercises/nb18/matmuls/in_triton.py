"""A matmul in Triton: tiles by their place, and the compiler decides the rest."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, D103, N803

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HALVES = dict.fromkeys("abc", "*fp16") | {"n": "i32"}
SIZES = {"TILE": 128, "DEPTH": 64}
ALIGNED = {(argument,): [["tt.divisibility", 16]] for argument in range(4)}


@triton.jit
def matmul(a, b, c, n, TILE: tl.constexpr, DEPTH: tl.constexpr):
    row = tl.program_id(0) * TILE
    column = tl.program_id(1) * TILE
    in_a = tl.make_tensor_descriptor(a, [n, n], [n, 1], [TILE, DEPTH])
    in_b = tl.make_tensor_descriptor(b, [n, n], [n, 1], [DEPTH, TILE])
    in_c = tl.make_tensor_descriptor(c, [n, n], [n, 1], [TILE, TILE])
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, n, DEPTH):
        part_a = in_a.load([row, k])  # load
        part_b = in_b.load([k, column])
        total = tl.dot(part_a, part_b, total)  # multiply
    in_c.store([row, column], total.to(tl.float16))  # store


def code(capability, kernel=matmul, source=ASTSource):
    """PTX of the kernel for 80, 90 or 100."""
    types = HALVES | dict.fromkeys(SIZES, "constexpr")
    made = triton.compile(
        source(kernel, types, SIZES, ALIGNED),
        target=GPUTarget("cuda", capability, 32),
        # Triton's default until 3.9, which says that it will change
        options={"num_warps": 4, "enable_fp_fusion": True},
    )
    return made.asm["ptx"]
