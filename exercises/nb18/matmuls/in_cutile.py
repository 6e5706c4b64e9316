"""A matmul in cuTile: tiles by their place in an array, without pointers or masks."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, D103, N803

import io

import cuda.tile as ct
from cuda.tile import compilation


@ct.kernel
def matmul(a, b, c, TILE: ct.Constant[int], DEPTH: ct.Constant[int]):
    row = ct.bid(0)
    column = ct.bid(1)
    total = ct.full((TILE, TILE), 0, ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(TILE, DEPTH))):
        part_a = ct.load(a, index=(row, k), shape=(TILE, DEPTH))  # load
        part_b = ct.load(b, index=(k, column), shape=(DEPTH, TILE))
        total = ct.mma(part_a, part_b, total)  # multiply
    ct.store(c, index=(row, column), tile=total.astype(c.dtype))  # store


def code(capability):
    """The program of the kernel for 80, 90 or 100, as bytes."""
    matrix = compilation.ArrayConstraint(
        ct.float16,
        2,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(None, 1),
        stride_divisible_by=(16, 1),
        base_addr_divisible_by=16,
    )
    convention = compilation.CallingConvention.cutile_python_v1()
    arguments = [matrix, matrix, matrix, 128, 64]
    signature = compilation.KernelSignature(arguments, convention)
    made = io.BytesIO()
    compilation.export_kernel(
        matmul, [signature], made, gpu_code=f"sm_{capability}", output_format="cubin"
    )
    return made.getvalue()
