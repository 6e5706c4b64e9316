"""Warps and cooperative groups: shuffles, votes, matches, sums of a warp, tiles of
threads.
"""

import numpy as np

from test_kerneltrace.cplusplus.case import Cases, Flaw, below, random, zeros

CASES = Cases()
X = random(128)
N = below(1000, 128)
FIVE = below(5, 128)
GROUPS = "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\nnamespace cg = cooperative_groups;\n"
CASES(
    "groups: a block and its tiles",
    GROUPS
    + """__device__ float reduce_sum(cg::thread_group g, float *temp, float val) {
    int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) {
        temp[lane] = val;
        g.sync();
        if (lane < i) val += temp[lane + i];
        g.sync();
    }
    return val;
}
__global__ void sum_kernel_block(float *sum, float *input) {
    extern __shared__ float temp[];
    auto g = cg::this_thread_block();
    float v = input[blockIdx.x * blockDim.x + threadIdx.x];
    float block_sum = reduce_sum(g, temp, v);
    if (g.thread_rank() == 0) sum[blockIdx.x] = block_sum;
}""",
    2,
    64,
    zeros(2),
    X,
    shared_bytes=256,
    want={0: X.reshape(2, 64).sum(axis=1)},
    flaws=[
        Flaw(
            "race",
            "val += temp[lane + i]",
            "        temp[lane] = val;\n        g.sync();",
            "        temp[lane] = val;",
        )
    ],
)
CASES(
    "groups: tiles of eight, with shuffles, votes and shared memory",
    GROUPS
    + """__global__ void eights(const int* x, int* y) {
    __shared__ int s[64];
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int t = threadIdx.x, v = x[blockIdx.x * 64 + t];
    for (int i = tile.size() / 2; i > 0; i /= 2) v += tile.shfl_down(v, i);
    v = tile.shfl(v, 0);
    s[t] = v + tile.any(v > 3500) + 10000 * __popc(tile.ballot(t % 3 == 0));
    tile.sync();
    y[blockIdx.x * 64 + t] = s[t ^ 7];
}""",
    2,
    64,
    N,
    zeros(128, dtype=np.int32),
    want={
        1: [
            (s := int(N.reshape(-1, 8)[i // 8].sum()))
            + (s > 3500)
            + 10000
            * sum(t % 3 == 0 for t in range(i % 64 // 8 * 8, i % 64 // 8 * 8 + 8))
            for i in range(128)
        ]
    },
    flaws=[Flaw("race", "s[t ^ 7]", "    tile.sync();\n", "")],
)
CASES(
    "a vote, a match, a sum and lane masks",
    """__global__ void votes(const int* x, int* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned same = __match_any_sync(0xffffffffu, x[i]);
    int leader = __ffs(same) - 1;
    int pred;
    unsigned all = __match_all_sync(0xffffffffu, x[i] >= 0, &pred);
    y[i] = __popc(same) + 100 * leader + 10000 * (__any_sync(~0u, x[i] == 4) + __all_sync(~0u, x[i] < 5))
         + 100000 * pred * (all == 0xffffffffu) + __reduce_add_sync(~0u, x[i]) + __reduce_max_sync(~0u, x[i]) * 1000000;
}""",
    2,
    64,
    FIVE,
    zeros(128, dtype=np.int32),
    want={
        1: [
            (w == w[i % 32]).sum()
            + 100 * int(np.argmax(w == w[i % 32]))
            + 10000 * (int((w == 4).any()) + 1)
            + 100000
            + w.sum()
            + 1000000 * w.max()
            for i in range(128)
            for w in [FIVE.reshape(4, 32)[i // 32]]
        ]
    },
)
CASES(
    "shuffles of half a warp, of doubles and of 64 bits",
    """__global__ void widths(const double* x, double* y, long long* z) {
    int t = threadIdx.x;
    double v = x[t];
    for (int d = 8; d; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d, 16);
    y[t] = v;
    z[t] = __shfl_sync(0xffffffff, (long long)t << 40, t + 5, 8);
}""",
    1,
    32,
    random(32, dtype=np.float64),
    zeros(32, dtype=np.float64),
    zeros(32, dtype=np.int64),
    want={
        1: random(32, dtype=np.float64).reshape(2, 16).sum(1).repeat(16),
        2: [((t & ~7) + (t + 5) % 8) << 40 for t in range(32)],
    },
)
CASES(
    "a sum in a branch with the mask of who is there",
    """__global__ void part(const float* x, float* y) {
    int t = threadIdx.x;
    float v = x[t];
    if (t % 32 < 16) {
        unsigned mask = __activemask();
        for (int d = 8; d > 0; d /= 2) v += __shfl_down_sync(0xffff, v, d);
        if (t % 32 == 0) y[t / 32] = v + (mask == 0xffff ? 0.f : 1000.f);
    }
}""",
    1,
    64,
    X[:64].copy(),
    zeros(2),
    want={1: X[:64].reshape(2, 32)[:, :16].sum(axis=1)},
    flaws=[
        Flaw(
            "lane",
            "__shfl_down_sync",
            "__shfl_down_sync(0xffff, v",
            "__shfl_down_sync(0xffffffff, v",
            "the mask 0xffffffff names 16 lanes that don't come here",
        ),
        Flaw(
            "lane",
            "__shfl_down_sync",
            "__shfl_down_sync(0xffff, v",
            "__shfl_down_sync(0x0fff, v",
            "is not in the mask that it passes itself",
        ),
    ],
)
