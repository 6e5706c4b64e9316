"""What traced kernels compute: places, memory and arguments, against NumPy."""

import numpy as np
import pytest
from numba import cuda, float64, int32

from kerneltrace import trace
from kerneltrace.errors import KernelError
from test_kerneltrace.tracing import filled, run, with_assert

# -- where am I


@with_assert
@pytest.mark.parametrize(
    ("grid_", "block"), [(5, 7), ((3, 2), (4, 5)), ((2, 3, 2), (3, 2, 4))]
)
def test_every_thread_knows_its_place(grid_, block):
    def place(out):
        x, y, z = cuda.grid(3)
        tx = cuda.threadIdx.x
        ty = cuda.threadIdx.y
        tz = cuda.threadIdx.z
        assert x == cuda.blockIdx.x * cuda.blockDim.x + tx
        assert (y, z) == (
            cuda.blockIdx.y * cuda.blockDim.y + ty,
            cuda.blockIdx.z * cuda.blockDim.z + tz,
        )
        sx, sy, sz = cuda.gridsize(3)
        assert (sx, sy, sz) == (
            cuda.gridDim.x * cuda.blockDim.x,
            cuda.gridDim.y * cuda.blockDim.y,
            cuda.gridDim.z * cuda.blockDim.z,
        )
        out[z, y, x] = 1 + x + sx * (y + sy * z)

    g, b = ((*(s if isinstance(s, tuple) else (s,)), 1, 1) for s in (grid_, block))
    shape = tuple(g[axis] * b[axis] for axis in (2, 1, 0))
    out = np.zeros(shape, np.int64)
    run(place, grid_, block, out)
    assert (out == 1 + np.arange(out.size).reshape(shape)).all()


# -- memory


def test_shared_memory_of_every_block_is_its_own():
    def k(out):
        s = cuda.shared.array((2, 8), int32)
        t = cuda.threadIdx.x
        b = cuda.blockIdx.x
        s[0, t] = 10 * b + t
        s[1, t] = -1
        cuda.syncthreads()
        out[cuda.grid(1)] = s[0, 7 - t] + s[1, t]

    assert filled(k, 3, 8, 24) == [10 * b + 6 - t for b in range(3) for t in range(8)]


def test_local_arrays_belong_to_a_thread():
    def k(out):
        mine = cuda.local.array((2, 2), float64)
        i = cuda.grid(1)
        mine[0, 1] = i
        mine[1, 0] = 3
        mine[0, 1] *= mine[1, 0]
        out[i] = mine[0, 1]

    assert filled(k, 2, 4, 8) == [3 * i for i in range(8)]


WEIGHTS = np.array([0.25, 0.5, 0.25])


def test_constant_arrays():
    def k(out, x):
        w = cuda.const.array_like(WEIGHTS)
        i = cuda.grid(1)
        out[i] = w[0] * x[i] + w[1] * x[i + 1] + WEIGHTS[2] * x[i + 2]

    x = np.arange(10.0) ** 2
    traced = run(k, 1, 8, out := np.zeros(8), x)
    np.testing.assert_allclose(out, np.convolve(x, WEIGHTS, "valid"))
    assert traced.count(space="constant").requests == 3


def test_views_slices_and_strides():
    def k(m, y):
        i = cuda.grid(1)
        row = m[i]
        part = m[i, 1:3]
        y[i] = row[0] + part[1] + m[i][::-1][0] + m.T[1, i] + len(part) + m.shape[1]

    m = np.arange(32).reshape(4, 8)
    for passed in (
        m,
        np.asfortranarray(m),
        np.arange(64).reshape(4, 16)[:, ::2],
        m[::-1],
        m[:, ::-1],
    ):
        y = np.zeros(4, np.int64)
        run(k, 1, 4, passed, y)
        assert (
            y.tolist()
            == (
                passed[:, 0] + passed[:, 2] + passed[:, -1] + passed[:, 1] + 2 + 8
            ).tolist()
        )


POINT = np.dtype(
    [("x", np.float32), ("tag", np.int16), ("pos", np.float64, 3)], align=True
)


def test_structured_arrays():
    def k(p, y):
        i = cuda.grid(1)
        q = p[i]
        q.x += 1.5
        p[i].tag = i - 1
        p[i]["pos"][2] = q.x * 2
        p[i].pos[0] -= 1
        y[i] = q.x + p[i].tag + p.x[i]

    p = np.zeros(4, POINT)
    p["x"] = np.arange(4)
    y = np.zeros(4)
    run(k, 1, 4, p, y)
    x = np.arange(4) + 1.5
    assert (p["x"] == x).all()
    assert p["tag"].tolist() == [-1, 0, 1, 2]
    assert p["pos"].tolist() == [[-1, 0, 2 * v] for v in x]
    assert (y == 2 * x + p["tag"]).all()


def test_a_record_is_copied_field_by_field():
    def k(p):
        i = cuda.grid(1)
        p[i] = p[i + 4]

    with pytest.raises(
        KernelError, match=r"whole record of p.* Copy it field by field"
    ):
        trace(k, 1, 4, np.zeros(8, POINT))


def test_arrays_without_dimension_and_without_elements():
    def k(total, nothing):
        i = cuda.grid(1)
        if i < nothing.size:
            nothing[i] = 1
        if i == 7:
            total[()] = i

    total = np.zeros((), np.int64)
    run(k, 1, 8, total, np.zeros(0))
    assert total == 7


@pytest.mark.slow
def test_torch_tensors_share_their_memory():
    torch = pytest.importorskip("torch")

    def k(x, y):
        i = cuda.grid(1)
        y[i] = 2 * x[i]

    y = torch.zeros(8)
    run(k, 1, 8, torch.arange(8.0, requires_grad=True), y)
    assert y.tolist() == [2.0 * i for i in range(8)]


def test_arguments_of_every_kind():
    def k(out, n, f, flag, pair, extra=7):
        out[0] = n
        out[1] = f
        out[2] = flag
        out[3] = pair[1]
        out[4] = extra

    assert filled(k, 1, 1, 5, 3, 2.5, True, (1, 9), dtype=np.float64) == [
        3,
        2.5,
        1,
        9,
        7,
    ]
    assert filled(
        k, 1, 1, 5, np.int16(3), np.float32(2.5), np.bool_(0), (1, 9), 8, dtype=float
    ) == [3, 2.5, 0, 9, 8]


def test_writers_are_the_last_threads_that_wrote_each_element():
    def k(x):
        x[cuda.blockIdx.x, cuda.threadIdx.x] = 1
        if cuda.threadIdx.x == 2:
            x[cuda.blockIdx.x, 0] = 2

    blocks, threads = trace(k, 2, 3, np.zeros((2, 4))).writers("x")
    assert blocks.tolist() == [[0, 0, 0, -1], [1, 1, 1, -1]]
    assert threads.tolist() == [[2, 1, 2, -1], [2, 1, 2, -1]]
