"""Tiles in shared memory: histograms, transposes, stencils, products of matrices."""

import numpy as np

from test_kerneltrace.cplusplus.case import Cases, Flaw, below, random, zeros
from test_kerneltrace.textbook.entry import Want

CASES = Cases()
BYTES = below(256, 1000, dtype=np.uint8)
COUNTS = np.bincount(BYTES, minlength=256)
CASES(
    "a histogram of bytes, one of each block in shared memory",
    """__global__ void histo_kernel(unsigned char *buffer, long size, unsigned int *histo) {
    __shared__ unsigned int temp[256];
    temp[threadIdx.x] = 0;
    __syncthreads();
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    int offset = blockDim.x * gridDim.x;
    while (i < size) {
        atomicAdd(&temp[buffer[i]], 1);
        i += offset;
    }
    __syncthreads();
    atomicAdd(&(histo[threadIdx.x]), temp[threadIdx.x]);
}""",
    2,
    256,
    BYTES,
    1000,
    zeros(256, dtype=np.uint32),
    want={2: COUNTS},
    counts={"buffer load": Want(32, 32), "histo atomic": Want(16, 64)},
    flaws=[
        Flaw(
            "race",
            "atomicAdd(&temp[buffer[i]], 1)",
            "temp[threadIdx.x] = 0;\n    __syncthreads();",
            "temp[threadIdx.x] = 0;",
        ),
        Flaw(
            "unset",
            "atomicAdd(&temp[buffer[i]], 1)",
            "temp[threadIdx.x] = 0;",
            "",
            "temp",
        ),
        Flaw(
            "race",
            "temp[buffer[i]]++",
            "atomicAdd(&temp[buffer[i]], 1)",
            "temp[buffer[i]]++",
        ),
        Flaw(
            "outside",
            "atomicAdd(&temp[buffer[i]], 1)",
            "temp[256]",
            "temp[255]",
            "temp[255]",
        ),
    ],
)
LINE = random(256)
PADDED = np.pad(LINE, 3)
CASES(
    "a stencil of seven points with its halo",
    """#define RADIUS 3
#define BLOCK_SIZE 64
__constant__ float coefficients[2 * RADIUS + 1] = {1, 2, 3, 4, 3, 2, 1};
__global__ void stencil_1d(const float *in, float *out, int n) {
    __shared__ float temp[BLOCK_SIZE + 2 * RADIUS];
    int gindex = threadIdx.x + blockIdx.x * blockDim.x;
    int lindex = threadIdx.x + RADIUS;
    temp[lindex] = in[gindex];
    if (threadIdx.x < RADIUS) {
        temp[lindex - RADIUS] = gindex >= RADIUS ? in[gindex - RADIUS] : 0;
        temp[lindex + BLOCK_SIZE] = gindex + BLOCK_SIZE < n ? in[gindex + BLOCK_SIZE] : 0;
    }
    __syncthreads();
    float result = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++)
        result += coefficients[offset + RADIUS] * temp[lindex + offset];
    out[gindex] = result;
}""",
    4,
    64,
    LINE,
    zeros(256),
    256,
    want={1: sum(c * PADDED[k : k + 256] for k, c in enumerate((1, 2, 3, 4, 3, 2, 1)))},
    flaws=[
        Flaw("race", "result += coefficients", "    __syncthreads();\n", ""),
        Flaw(
            "outside",
            "gindex + BLOCK_SIZE",
            "gindex + BLOCK_SIZE < n ? in[gindex + BLOCK_SIZE] : 0",
            "in[gindex + BLOCK_SIZE]",
            "in[256]",
        ),
        Flaw(
            "unset",
            "result += coefficients",
            "threadIdx.x < RADIUS",
            "threadIdx.x < RADIUS - 1",
            "temp",
        ),
        Flaw(
            "outside",
            "temp[lindex + offset]",
            "offset <= RADIUS",
            "offset <= RADIUS + 1",
        ),
    ],
)
A = random(64, 64)
B = np.random.default_rng(3).random((64, 64)).astype("f4")
CASES(
    "a product of matrices with float4, registers and two buffers",
    """template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN)) sgemm(int M, int N, int K, float alpha, float *A, float *B,
                                                               float beta, float *C) {
    __shared__ __align__(16) float As[2][BK * BM];
    __shared__ __align__(16) float Bs[2][BK * BN];
    const int threadCol = threadIdx.x % (BN / TN), threadRow = threadIdx.x / (BN / TN);
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;
    const unsigned innerRowA = threadIdx.x / (BK / 4), innerColA = threadIdx.x % (BK / 4);
    const unsigned innerRowB = threadIdx.x / (BN / 4), innerColB = threadIdx.x % (BN / 4);
    float threadResults[TM * TN] = {0.0f}, regM[TM], regN[TN];
    int buf = 0;
    auto load = [&](int b) {
        float4 tmp = reinterpret_cast<float4 *>(&A[innerRowA * K + innerColA * 4])[0];
        As[b][(innerColA * 4 + 0) * BM + innerRowA] = tmp.x;
        As[b][(innerColA * 4 + 1) * BM + innerRowA] = tmp.y;
        As[b][(innerColA * 4 + 2) * BM + innerRowA] = tmp.z;
        As[b][(innerColA * 4 + 3) * BM + innerRowA] = tmp.w;
        reinterpret_cast<float4 *>(&Bs[b][innerRowB * BN + innerColB * 4])[0] =
            reinterpret_cast<float4 *>(&B[innerRowB * N + innerColB * 4])[0];
    };
    load(0);
    __syncthreads();
    for (unsigned bkIdx = 0; bkIdx < K; bkIdx += BK, buf ^= 1) {
        A += BK;
        B += BK * N;
        if (bkIdx + BK < K) load(buf ^ 1);
        for (unsigned dotIdx = 0; dotIdx < BK; ++dotIdx) {
            for (unsigned i = 0; i < TM; ++i) regM[i] = As[buf][dotIdx * BM + threadRow * TM + i];
            for (unsigned i = 0; i < TN; ++i) regN[i] = Bs[buf][dotIdx * BN + threadCol * TN + i];
            for (unsigned m = 0; m < TM; ++m)
                for (unsigned n = 0; n < TN; ++n) threadResults[m * TN + n] += regM[m] * regN[n];
        }
        __syncthreads();
    }
    for (unsigned m = 0; m < TM; m += 1)
        for (unsigned n = 0; n < TN; n += 4) {
            float4 tmp = reinterpret_cast<float4 *>(&C[(threadRow * TM + m) * N + threadCol * TN + n])[0];
            tmp.x = alpha * threadResults[m * TN + n] + beta * tmp.x;
            tmp.y = alpha * threadResults[m * TN + n + 1] + beta * tmp.y;
            tmp.z = alpha * threadResults[m * TN + n + 2] + beta * tmp.z;
            tmp.w = alpha * threadResults[m * TN + n + 3] + beta * tmp.w;
            reinterpret_cast<float4 *>(&C[(threadRow * TM + m) * N + threadCol * TN + n])[0] = tmp;
        }
}
template __global__ void sgemm<32, 32, 8, 4, 4>(int, int, int, float, float *, float *, float, float *);""",
    (2, 2),
    64,
    64,
    64,
    64,
    2.0,
    A,
    B,
    0.5,
    np.ones((64, 64), "f4"),
    want={7: 2 * (A @ B) + 0.5},
    # 4 blocks x 8 steps x 2 warps; of A a warp loads 16 rows of 8 numbers, of B four
    # rows of 32.
    counts={
        "A load": Want(64, 1024),
        "B load": Want(64, 1024),
        "C store": Want(32, 512),
    },
    flaws=[
        Flaw("race", "regM[i] = As", "load(buf ^ 1)", "load(buf)"),
        Flaw(
            "misaligned",
            "&B[innerRowB * N",
            "&B[innerRowB * N + innerCol",
            "&B[innerRowB * N + 1 + innerCol",
        ),
        Flaw("outside", "&A[innerRowA * K", "if (bkIdx + BK < K) load", "load", "A["),
    ],
)
