"""Mistakes in what a launch leaves behind: results that depend on the order, missing
ones, values of nowhere.
"""

from numba import cuda, float32

from test_kerneltrace.planted.case import Cases, floats, whole, zeros

CASES = Cases()


@CASES("order", 4, 32, whole(1), zeros(1))
def the_first_block_wins(flag, out):
    if cuda.threadIdx.x == 0 and cuda.atomic.cas(flag, 0, 0, 1) == 0:
        out[0] = cuda.blockIdx.x


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


@CASES("unset", 1, 32, floats(32), zeros(32))
def a_local_sum_that_begins_nowhere(x, y):
    i = cuda.grid(1)
    total = cuda.local.array(2, float32)
    total[0] = 0
    for k in range(2):
        total[k] += x[i]
    y[i] = total[0] + total[1]
