"""A matmul in Helion: PyTorch on tiles, which becomes a kernel in Triton."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, D103

import linecache

import helion
import helion.language as hl
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@helion.kernel(static_shapes=True)
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty((a.size(0), b.size(1)), dtype=a.dtype, device=a.device)
    for row, column in hl.tile([a.size(0), b.size(1)]):
        total = hl.zeros([row, column], dtype=torch.float32)
        for k in hl.tile(a.size(1)):
            part_a = a[row, k]  # load
            part_b = b[k, column]
            total = torch.addmm(total, part_a, part_b)  # multiply
        c[row, column] = total  # store
    return c


def code(capability):
    """PTX of the kernel in Triton that Helion writes, for 80, 90 or 100."""
    matrix = torch.empty(4096, 4096, dtype=torch.float16)
    config = helion.Config(block_sizes=[128, 128, 64], num_warps=4, num_stages=3)
    written = matmul.bind((matrix, matrix)).to_triton_code(config)
    file = "<written by Helion>"  # Triton reads a kernel's source by its file
    linecache.cache[file] = len(written), None, written.splitlines(True), file
    names = {"__name__": "written_by_helion"}
    exec(compile(written, file, "exec"), names)
    aligned = {(argument,): [["tt.divisibility", 16]] for argument in range(3)}
    halves = dict.fromkeys("abc", "*fp16")
    made = triton.compile(
        ASTSource(names["_helion_matmul"], halves, {}, aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": 4, "num_stages": 3},
    )
    return made.asm["ptx"]
