"""Tiles in shared memory: histograms, transposes, stencils, products of matrices."""

import numpy as np

from tests.test_kerneltrace.cplusplus.case import Cases, Flaw, below, random, zeros
from tests.test_kerneltrace.textbook.entry import Want

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
    2, 256, BYTES, 1000, zeros(256, dtype=np.uint32), want={2: COUNTS},
    counts={"buffer load": Want(32, 32), "histo atomic": Want(16, 64)},
    flaws=[
        Flaw("race", "atomicAdd(&temp[buffer[i]], 1)", "temp[threadIdx.x] = 0;\n    __syncthreads();",
             "temp[threadIdx.x] = 0;"),
        Flaw("unset", "atomicAdd(&temp[buffer[i]], 1)", "temp[threadIdx.x] = 0;", "", "temp"),
        Flaw("race", "temp[buffer[i]]++", "atomicAdd(&temp[buffer[i]], 1)", "temp[buffer[i]]++"),
        Flaw("outside", "atomicAdd(&temp[buffer[i]], 1)", "temp[256]", "temp[255]", "temp[255]"),
    ],
)  # fmt: skip
CASES(
    "a privatised histogram, a copy for each warp",
    """#define BINS 64
__global__ void histogram(const int* __restrict__ x, int* __restrict__ h, size_t n) {
    __shared__ int private_[4][BINS + 1];
    const int warp = threadIdx.x >> 5;
    for (int i = threadIdx.x; i < 4 * (BINS + 1); i += blockDim.x) (&private_[0][0])[i] = 0;
    __syncthreads();
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        atomicAdd(&private_[warp][x[i] & (BINS - 1)], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) {
        int sum = 0;
        #pragma unroll
        for (int w = 0; w < 4; ++w) sum += private_[w][b];
        if (sum) atomicAdd(h + b, sum);
    }
}""",
    3, 128, BYTES.astype(np.int32), zeros(64, dtype=np.int32), 1000, want={1: np.bincount(BYTES % 64, minlength=64)},
    flaws=[Flaw("race", "sum += private_[w][b]", "x[i] & (BINS - 1)], 1);\n    __syncthreads();",
                "x[i] & (BINS - 1)], 1);")],
)  # fmt: skip
TRANSPOSE = """#define TILE_DIM 32
#define BLOCK_ROWS 8
__global__ void transpose(float *odata, const float *idata) {
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];
    int x = blockIdx.x * TILE_DIM + threadIdx.x;
    int y = blockIdx.y * TILE_DIM + threadIdx.y;
    int width = gridDim.x * TILE_DIM, height = gridDim.y * TILE_DIM;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE_DIM + threadIdx.x;
    y = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}"""
WIDE = random(32, 64)
ROUTES = {"idata load": Want(64, 256), "odata store": Want(64, 256)}  # 2048 numbers: 64 rows of 32, 4 sectors each
CASES(
    "a transpose with a padded tile", TRANSPOSE, (2, 1), (32, 8), zeros(64, 32), WIDE, want={0: WIDE.T},
    counts={**ROUTES, "tile load": Want(64, wavefronts=64), "tile store": Want(64, wavefronts=64)},
    flaws=[
        Flaw("race", "odata[(y + j) * height + x]", "    __syncthreads();\n", ""),
        Flaw("outside", "odata[(y + j) * height + x]", "x = blockIdx.y * TILE_DIM", "x = blockIdx.x * TILE_DIM",
             "odata"),
        Flaw("outside", "tile[threadIdx.y + j]", "tile[TILE_DIM][TILE_DIM + 1]", "tile[TILE_DIM - 1][TILE_DIM + 1]"),
    ],
)  # fmt: skip
CASES(
    "a transpose with conflicts of 32 ways", TRANSPOSE.replace("TILE_DIM + 1", "TILE_DIM"), (2, 1), (32, 8),
    zeros(64, 32), WIDE, want={0: WIDE.T},
    counts={**ROUTES, "tile load": Want(64, wavefronts=64 * 32, ways=32), "tile store": Want(64, wavefronts=64)},
)  # fmt: skip
SQUARE = random(64, 64)
CASES(
    "a transpose, blocks in the order of diagonals",
    TRANSPOSE.replace(
        "    int x = blockIdx.x * TILE_DIM + threadIdx.x;\n    int y = blockIdx.y * TILE_DIM + threadIdx.y;",
        "    int by = blockIdx.x, bx = (blockIdx.x + blockIdx.y) % gridDim.x;\n"
        "    int x = bx * TILE_DIM + threadIdx.x, y = by * TILE_DIM + threadIdx.y;",
    ).replace("blockIdx.y * TILE_DIM + threadIdx.x;", "by * TILE_DIM + threadIdx.x;")
    .replace("y = blockIdx.x * TILE_DIM", "y = bx * TILE_DIM"),
    (2, 2), (32, 8), zeros(64, 64), SQUARE, want={0: SQUARE.T}, counts={"odata store": Want(128, 512)},
)  # fmt: skip
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
    4, 64, LINE, zeros(256), 256,
    want={1: sum(c * PADDED[k : k + 256] for k, c in enumerate((1, 2, 3, 4, 3, 2, 1)))},
    flaws=[
        Flaw("race", "result += coefficients", "    __syncthreads();\n", ""),
        Flaw("outside", "gindex + BLOCK_SIZE", "gindex + BLOCK_SIZE < n ? in[gindex + BLOCK_SIZE] : 0",
             "in[gindex + BLOCK_SIZE]", "in[256]"),
        Flaw("unset", "result += coefficients", "threadIdx.x < RADIUS", "threadIdx.x < RADIUS - 1", "temp"),
        Flaw("outside", "temp[lindex + offset]", "offset <= RADIUS", "offset <= RADIUS + 1"),
    ],
)  # fmt: skip
PLANE = random(32, 32)
AROUND = np.pad(PLANE, 1)
BLURRED = sum(AROUND[i : i + 32, j : j + 32] for i in range(3) for j in range(3)) / 9
CASES(
    "a blur of an image, a tile with its border on all sides",
    """__global__ void blur(const float* img, float* out, int w, int h) {
    __shared__ float s[18][18];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    for (int i = threadIdx.y; i < 18; i += 16)
        for (int j = threadIdx.x; j < 18; j += 16) {
            int gx = blockIdx.x * 16 + j - 1, gy = blockIdx.y * 16 + i - 1;
            bool inside = gx >= 0 && gx < w && gy >= 0 && gy < h;
            s[i][j] = inside ? img[gy * w + gx] : 0.f;
        }
    __syncthreads();
    if (x < w && y < h) {
        float sum = 0.f;
        for (int dy = 0; dy < 3; ++dy)
            for (int dx = 0; dx < 3; ++dx) sum += s[threadIdx.y + dy][threadIdx.x + dx];
        out[y * w + x] = sum / 9.f;
    }
}""",
    (2, 2), (16, 16), PLANE, zeros(32, 32), 32, 32, want={1: BLURRED},
    flaws=[
        Flaw("race", "sum += s[", "    __syncthreads();\n", ""),
        Flaw("outside", "s[i][j] =", "gy >= 0 && gy < h", "gy < h", "img"),
    ],
)  # fmt: skip
A, B = random(64, 64), np.random.default_rng(3).random((64, 64)).astype("f4")
MATMUL = """#define TILE 16
__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float acc = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        int k = t * TILE;
        As[threadIdx.y][threadIdx.x] = (row < M && k + threadIdx.x < K) ? A[row * K + k + threadIdx.x] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = (col < N && k + threadIdx.y < K) ? B[(k + threadIdx.y) * N + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) acc += As[threadIdx.y][i] * Bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}"""
CASES(
    "a product of matrices, tile by tile", MATMUL, (4, 4), (16, 16), A, B, zeros(64, 64), 64, 64, 64, want={2: A @ B},
    # 16 blocks x 4 tiles x 8 warps; a warp holds two rows of 16, of which each is two sectors.
    counts={"A load": Want(512, 2048), "B load": Want(512, 2048), "C store": Want(128, 512)},
    flaws=[
        Flaw("race", "Bs[threadIdx.y][threadIdx.x] =", "Bs[i][threadIdx.x];\n        __syncthreads();",
             "Bs[i][threadIdx.x];"),
        Flaw("race", "acc += As", ": 0.0f;\n        __syncthreads();", ": 0.0f;"),
        Flaw("outside", "As[threadIdx.y][threadIdx.x] =", "row * K + k + threadIdx.x]",
             "row * K + k + threadIdx.x + 1]",
             "A[4096]"),
        Flaw("barrier", "__syncthreads", "        __syncthreads();\n        for",
             "        if (threadIdx.y < 8) __syncthreads();\n"
             "        for"),
    ],
)  # fmt: skip
CASES(
    "a product of odd matrices", MATMUL, (3, 2), (16, 16), A[:20, :30].copy(), B[:30, :40].copy(), zeros(20, 40), 20,
    40, 30, want={2: A[:20, :30] @ B[:30, :40]},
    flaws=[
        Flaw("outside", "C[row * N + col]", "if (row < M && col < N) C", "C", "C["),
        Flaw("outside", "Bs[threadIdx.y][threadIdx.x] =", "col < N && k + threadIdx.y < K", "col < N", "B["),
    ],
)  # fmt: skip
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
    (2, 2), 64, 64, 64, 64, 2.0, A, B, 0.5, np.ones((64, 64), "f4"), want={7: 2 * (A @ B) + 0.5},
    # 4 blocks x 8 steps x 2 warps; of A a warp loads 16 rows of 8 numbers, of B four rows of 32.
    counts={"A load": Want(64, 1024), "B load": Want(64, 1024), "C store": Want(32, 512)},
    flaws=[
        Flaw("race", "regM[i] = As", "load(buf ^ 1)", "load(buf)"),
        Flaw("misaligned", "&B[innerRowB * N", "&B[innerRowB * N + innerCol",
             "&B[innerRowB * N + 1 + innerCol"),
        Flaw("outside", "&A[innerRowA * K", "if (bkIdx + BK < K) load", "load", "A["),
    ],
)  # fmt: skip
