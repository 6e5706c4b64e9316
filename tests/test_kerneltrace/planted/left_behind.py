"""Mistakes in what a launch leaves behind: results that depend on the order, missing ones, values of nowhere."""

from numba import cuda, float32, int32

from tests.test_kerneltrace.planted.case import Cases, floats, whole, zeros

CASES = Cases()


@CASES("order", 4, 32, whole(1), zeros(1))
def the_first_block_wins(flag, out):
    if cuda.threadIdx.x == 0 and cuda.atomic.cas(flag, 0, 0, 1) == 0:
        out[0] = cuda.blockIdx.x


@CASES("order", 2, 32, floats(64), whole(1), zeros(64))
def a_ticket_in_the_result(x, ticket, y):
    i = cuda.grid(1)
    y[i] = x[i] * cuda.atomic.add(ticket, 0, 1)


@CASES("untouched", 2, 32, floats(64), zeros(64))
def a_result_that_is_not_stored(x, y):
    i = cuda.grid(1)
    v = float32(0)
    if i < y.size:
        v += 2 * x[i]


@CASES("untouched", 2, 32, floats(64), zeros(64))
def a_guard_the_wrong_way_round(x, y):
    i = cuda.grid(1)
    if i > x.size:
        y[i] = 2 * x[i]


@CASES("unwritten", 3, 32, floats(100), zeros(100))
def a_grid_rounded_down(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


@CASES("unwritten", 1, 32, floats(100), zeros(100))
def a_stride_twice_too_long(x, y):
    for i in range(cuda.grid(1), x.size, 2 * cuda.gridsize(1)):
        y[i] = x[i]


@CASES("unwritten", 4, 32, zeros(100))
def a_fill_that_ends_too_soon(y):
    i = cuda.grid(1)
    if i < y.size - 3:
        y[i] = i


@CASES("unwritten", (1, 1), (16, 16), floats(16, 20), zeros(16, 20))
def a_matrix_wider_than_the_grid(a, b):
    j, i = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        b[i, j] = a[i, j]


@CASES("unset", 1, 32, floats(32), zeros(32))
def a_local_sum_that_begins_nowhere(x, y):
    i = cuda.grid(1)
    total = cuda.local.array(2, float32)
    total[0] = 0
    for k in range(2):
        total[k] += x[i]
    y[i] = total[0] + total[1]


@CASES("unset", 1, 32, zeros(32))
def a_local_row_half_filled(y):
    i = cuda.grid(1)
    row = cuda.local.array((2, 4), int32)
    for k in range(4):
        row[0, k] = k
    y[i] = row[i % 2, 3]


@CASES("outside", 1, 32, floats(32), zeros(32))
def a_neighbour_left_of_the_array(x, y):
    i = cuda.grid(1)
    y[i] = x[i] - x[i - 1]


@CASES("outside", 1, (8, 4), zeros(4, 8))
def indices_the_wrong_way_round(m):
    x, y = cuda.grid(2)
    m[x, y] = 1
