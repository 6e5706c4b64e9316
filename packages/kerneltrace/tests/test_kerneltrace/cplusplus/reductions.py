"""Reductions: M. Harris's first (Optimizing Parallel Reduction in CUDA, 2007), and one
by shuffles.
"""

import numpy as np

from test_kerneltrace.cplusplus.case import Cases, Flaw, random, zeros
from test_kerneltrace.textbook.entry import Want

CASES = Cases()
X = random(128)
CASES(
    "a reduction interleaved with a modulo",
    """extern "C" __global__ void reduce(const float *g_in, float *g_out) {
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    sdata[tid] = g_in[i];
    __syncthreads();
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0)
            sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) g_out[blockIdx.x] = sdata[0];
}""",
    2,
    64,
    X,
    zeros(2),
    shared_bytes=256,
    want={1: X.reshape(2, 64).sum(axis=1)},
    # 2 blocks of 64 threads, 4 warps
    counts={"g_in load": Want(4, 16), "g_out store": Want(2, 2)},
    flaws=[
        Flaw(
            "race",
            "sdata[tid] +=",
            "        __syncthreads();\n    }",
            "    }",
            "no barrier lies between",
        ),
        Flaw(
            "race",
            "sdata[tid] +=",
            "sdata[tid] = g_in[i];\n    __syncthreads();",
            "sdata[tid] = g_in[i];",
        ),
        Flaw(
            "barrier",
            "__syncthreads(); }",
            "sdata[tid] += sdata[tid + s];\n        __syncthreads();",
            "{ sdata[tid] += sdata[tid + s];\n        __syncthreads(); }",
        ),
    ],
)
X7 = random(1000)
SHUFFLE = """__inline__ __device__ float warpReduceSum(float val) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        val += __shfl_down_sync(0xffffffff, val, offset);
    return val;
}
__inline__ __device__ float blockReduceSum(float val) {
    static __shared__ float shared[32];
    int lane = threadIdx.x % warpSize, wid = threadIdx.x / warpSize;
    val = warpReduceSum(val);
    if (lane == 0) shared[wid] = val;
    __syncthreads();
    val = (threadIdx.x < blockDim.x / warpSize) ? shared[lane] : 0;
    if (wid == 0) val = warpReduceSum(val);
    return val;
}
"""
CASES(
    "a grid-stride reduction with warp shuffles",
    SHUFFLE
    + """__global__ void deviceReduceKernel(const float *in, float *out, int N) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += blockDim.x * gridDim.x) sum += in[i];
    sum = blockReduceSum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}""",
    2,
    128,
    X7,
    zeros(2),
    1000,
    want={1: np.pad(X7, (0, 24)).reshape(-1, 2, 128).sum(axis=(0, 2))},
    flaws=[
        Flaw("race", "? shared[lane] : 0", "    __syncthreads();\n", ""),
        Flaw(
            "unset",
            "? shared[lane]",
            "threadIdx.x < blockDim.x / warpSize",
            "threadIdx.x < warpSize",
            "shared[4]",
        ),
        Flaw("outside", "sum += in[i]", "i < N;", "i <= N;", "in[1000]"),
        Flaw(
            "undefined",
            "__shfl_down_sync",
            "if (wid == 0) val",
            "if (threadIdx.x < 3) val",
            "lane 16",
        ),
    ],
)
