"""What notebook 18's kernels call: rows of one head, where x has the shape (heads,
tokens, WIDTH), and a tile of the product of one expert. And a matmul with descriptors.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, N803 - Triton compiles annotations too, and kernels write constants in capitals

from kerneltrace.tiles import tl, triton


@triton.jit
def load_rows(x, rows, tokens, WIDTH: tl.constexpr):
    """Rows (a tile of numbers of rows) of the head program_id(1), a tile (rows, WIDTH);
    0 from `tokens` on.
    """
    row = tl.program_id(1) * tokens + rows[:, None]  # (rows, 1)
    column = tl.arange(0, WIDTH)[None, :]  # (1, WIDTH)
    at = row * WIDTH + column  # (rows, WIDTH)
    return tl.load(x + at, mask=rows[:, None] < tokens, other=0.0)


@triton.jit
def store_rows(x, rows, tokens, values, WIDTH: tl.constexpr):
    """Store a tile (rows, WIDTH) as rows of the head program_id(1), but for those from
    `tokens` on.
    """
    row = tl.program_id(1) * tokens + rows[:, None]  # (rows, 1)
    column = tl.arange(0, WIDTH)[None, :]  # (1, WIDTH)
    at = row * WIDTH + column  # (rows, WIDTH)
    tl.store(x + at, values, mask=rows[:, None] < tokens)


@triton.jit
def store_product(
    x,
    w,
    out,
    expert,
    row,
    end,
    column,
    width,
    columns,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr = 32,
):
    """Store a tile of out = x times one expert's matrix: from `row` on as many rows as
    are before `end`, from `column` on as many columns as there are.

    x: (rows, width), w: (experts, width, columns), out: (rows, columns).
    """
    m = row + tl.arange(0, TILE)[:, None]  # (TILE, 1)
    p = column + tl.arange(0, TILE)[None, :]  # (1, TILE)
    matrix = w + expert * width * columns
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, width, DEPTH):
        k = start + tl.arange(0, DEPTH)  # (DEPTH,)
        in_a = (m < end) & (k[None, :] < width)  # (TILE, DEPTH)
        in_b = (k[:, None] < width) & (p < columns)  # (DEPTH, TILE)
        a = tl.load(x + m * width + k[None, :], mask=in_a, other=0.0)
        b = tl.load(matrix + k[:, None] * columns + p, mask=in_b, other=0.0)
        total = tl.dot(a, b, total)
    tl.store(out + m * columns + p, total, mask=(m < end) & (p < columns))


@triton.jit
def described(
    a, b, c, n, TILE: tl.constexpr, DEPTH: tl.constexpr, SPECIAL: tl.constexpr
):
    """A matmul of n x n in float16 whose tiles are loaded by their place; `SPECIAL`
    asks for warp specialization.
    """
    row = tl.program_id(0) * TILE
    column = tl.program_id(1) * TILE
    in_a = tl.make_tensor_descriptor(a, [n, n], [n, 1], [TILE, DEPTH])
    in_b = tl.make_tensor_descriptor(b, [n, n], [n, 1], [DEPTH, TILE])
    in_c = tl.make_tensor_descriptor(c, [n, n], [n, 1], [TILE, TILE])
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in tl.range(0, n, DEPTH, warp_specialize=SPECIAL):
        part_a = in_a.load([row, k])  # (TILE, DEPTH)
        part_b = in_b.load([k, column])  # (DEPTH, TILE)
        total = tl.dot(part_a, part_b, total)
    in_c.store([row, column], total.to(tl.float16))
