"""Rows of one head, as notebook 18's attention loads and stores them: x has the shape
(heads, tokens, WIDTH).
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, N803 - Triton compiles annotations too, and kernels write constants in capitals

from kerneltrace.tiles import tl, triton


@triton.jit
def load_rows(x, rows, tokens, WIDTH: tl.constexpr):
    """Rows (a tile of numbers of rows) of the head program_id(1), a tile (rows, WIDTH);
    0 from `tokens` on.
    """
    at = (tl.program_id(1) * tokens + rows[:, None]) * WIDTH + tl.arange(0, WIDTH)[
        None, :
    ]
    return tl.load(x + at, mask=rows[:, None] < tokens, other=0.0)


@triton.jit
def store_rows(x, rows, tokens, values, WIDTH: tl.constexpr):
    """Store a tile (rows, WIDTH) as rows of the head program_id(1), but for those from
    `tokens` on.
    """
    at = (tl.program_id(1) * tokens + rows[:, None]) * WIDTH + tl.arange(0, WIDTH)[
        None, :
    ]
    tl.store(x + at, values, mask=rows[:, None] < tokens)
