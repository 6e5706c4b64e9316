"""Sums, maxima and scans of a block: M. Harris's seven (Optimizing Parallel Reduction in CUDA, 2007), and later ones.

Counts by hand are those of 2 blocks of 64 threads (4 warps) on 128 numbers, or of 64 threads that begin with two each.
"""

import numpy as np

from tests.test_kerneltrace.cplusplus.case import Cases, Flaw, random, zeros
from tests.test_kerneltrace.textbook.entry import Want

CASES = Cases()
X = random(128)
SUMS = X.reshape(2, 64).sum(axis=1)
BEGIN = """extern "C" __global__ void reduce(const float *g_in, float *g_out) {
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    sdata[tid] = g_in[i];
    __syncthreads();
"""
END = """    if (tid == 0) g_out[blockIdx.x] = sdata[0];
}"""
NO_BARRIER = Flaw("race", "sdata[tid] +=", "        __syncthreads();\n    }", "    }", "no barrier lies between")
EARLY = Flaw("race", "if (tid == 0)", "    __syncthreads();\n    for", "    for")


def reduction(name, body, *flaws, counts=None, begin=BEGIN, x=X, sums=SUMS, end=END, **more):
    """A kernel that begins with a load to shared memory, and ends with a store of its first element."""
    CASES(
        name, begin + body + end, 2, 64, x, zeros(2), want={1: sums}, counts=counts or {}, flaws=flaws,
        **{"shared_bytes": 256, **more},
    )  # fmt: skip


reduction(
    "Harris 1, interleaved with a modulo",
    """    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0)
            sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
""",
    NO_BARRIER,
    Flaw("race", "sdata[tid] +=", "sdata[tid] = g_in[i];\n    __syncthreads();", "sdata[tid] = g_in[i];"),
    Flaw("barrier", "__syncthreads(); }", "sdata[tid] += sdata[tid + s];\n        __syncthreads();",
         "{ sdata[tid] += sdata[tid + s];\n        __syncthreads(); }"),
    # Each of four warps adds with 16, 8, 4, 2, 1 lanes, and one warp of each block for the sixth time.
    counts={"g_in load": Want(4, 16), "g_out store": Want(2, 2)},
)  # fmt: skip
reduction(
    "Harris 2, with strided indices",
    """    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        int index = 2 * s * tid;
        if (index < blockDim.x)
            sdata[index] += sdata[index + s];
        __syncthreads();
    }
""",
    Flaw("outside", "sdata[index] +=", "index < blockDim.x", "index <= blockDim.x", "sdata"),
    Flaw("race", "sdata[index] +=", "        __syncthreads();\n    }", "    }"),
)
reduction(
    "Harris 3, sequential addressing",
    """    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s)
            sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
""",
    NO_BARRIER,
    Flaw("outside", "sdata[tid] +=", "s = blockDim.x / 2", "s = blockDim.x"),
    # s = 32, 16, 8, 4, 2, 1: one warp of each block adds each time, without conflicts; one lane reads at the end.
    counts={"g_in load": Want(4, 16), "g_out store": Want(2, 2), "sdata load": Want(2 * (6 * 2 + 1), wavefronts=26),
            "sdata store": Want(4 + 2 * 6, wavefronts=16)},
)  # fmt: skip
TWO_EACH = BEGIN.replace("blockIdx.x * blockDim.x +", "blockIdx.x * (2 * blockDim.x) +").replace(
    "g_in[i];", "g_in[i] + g_in[i + blockDim.x];"
)
X2 = random(256)
SUMS2 = X2.reshape(2, 128).sum(axis=1)
reduction(
    "Harris 4, first add during load",
    """    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) {
            sdata[tid] += sdata[tid + s];
        }
        __syncthreads();
    }
""",
    Flaw("outside", "g_in[i + blockDim.x + 1]", "g_in[i + blockDim.x]", "g_in[i + blockDim.x + 1]", "g_in[256]"),
    counts={"g_in load": Want(8, 32)},
    begin=TWO_EACH, x=X2, sums=SUMS2,
)  # fmt: skip
WARP_REDUCE = """__device__ void warpReduce(volatile float *sdata, unsigned int tid) {
    float v = sdata[tid];
    v += sdata[tid + 32]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 16]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 8]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 4]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 2]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 1]; __syncwarp(); sdata[tid] = v;
}
"""
reduction(
    "Harris 5, the last warp unrolled",
    """    for (unsigned int s = blockDim.x / 2; s > 32; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid < 32) warpReduce(sdata, tid);
""",
    Flaw("race", "v += sdata[tid + 16]", "sdata[tid] = v; __syncwarp();\n    v += sdata[tid + 8]",
         "sdata[tid] = v;\n    v += sdata[tid + 8]"),
    begin=WARP_REDUCE + TWO_EACH, x=X2, sums=SUMS2, shared_bytes=4 * 96,
)  # fmt: skip
COMPLETE = (
    WARP_REDUCE
    + "template <unsigned int blockSize>\n"
    + TWO_EACH.removeprefix('extern "C" ').replace("reduce(", "reduce_all(")
    + """    if (blockSize >= 512) { if (tid < 256) sdata[tid] += sdata[tid + 256]; __syncthreads(); }
    if (blockSize >= 256) { if (tid < 128) sdata[tid] += sdata[tid + 128]; __syncthreads(); }
    if (blockSize >= 128) { if (tid < 64) sdata[tid] += sdata[tid + 64]; __syncthreads(); }
    if (tid < 32) warpReduce(sdata, tid);
"""
)
reduction(
    "Harris 6, a template, completely unrolled", "",
    begin=COMPLETE, end=END + "\ntemplate __global__ void reduce_all<64>(const float *, float *);", x=X2, sums=SUMS2,
    shared_bytes=4 * 96,
)  # fmt: skip
X7 = random(1000)
CASES(
    "Harris 7, many elements a thread",
    COMPLETE.replace("float *g_out)", "float *g_out, unsigned int n)").replace(
        "    unsigned int i = blockIdx.x * (2 * blockDim.x) + threadIdx.x;\n"
        "    sdata[tid] = g_in[i] + g_in[i + blockDim.x];",
        """    unsigned int i = blockIdx.x * (blockSize * 2) + tid;
    unsigned int gridSize = blockSize * 2 * gridDim.x;
    sdata[tid] = 0;
    while (i < n) {
        sdata[tid] += g_in[i] + (i + blockSize < n ? g_in[i + blockSize] : 0.0f);
        i += gridSize;
    }""",
    ).replace("    if (tid < 32) warp", "    if (tid < 32) warp") + END
    + "\ntemplate __global__ void reduce_all<128>(const float *, float *, unsigned int);",
    2, 128, X7, zeros(2), 1000, shared_bytes=512,
    want={1: np.pad(X7, (0, 24)).reshape(-1, 2, 256).sum(axis=(0, 2))},
    flaws=[
        Flaw("outside", "sdata[tid] += g_in", "(i + blockSize < n ? g_in[i + blockSize] : 0.0f)",
             "g_in[i + blockSize]"),
        Flaw("race", "v += sdata[tid + 16]", "sdata[tid + 64]; __syncthreads(); }", "sdata[tid + 64]; }"),
    ],
)  # fmt: skip
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
    2, 128, X7, zeros(2), 1000, want={1: np.pad(X7, (0, 24)).reshape(-1, 2, 128).sum(axis=(0, 2))},
    flaws=[
        Flaw("race", "? shared[lane] : 0", "    __syncthreads();\n", ""),
        Flaw("unset", "? shared[lane]", "threadIdx.x < blockDim.x / warpSize", "threadIdx.x < warpSize", "shared[4]"),
        Flaw("outside", "sum += in[i]", "i < N;", "i <= N;", "in[1000]"),
        Flaw("undefined", "__shfl_down_sync", "if (wid == 0) val", "if (threadIdx.x < 3) val", "lane 16"),
    ],
)  # fmt: skip
CASES(
    "a last block that adds up",
    """__device__ unsigned int count = 0;
__global__ void sum(const float* array, unsigned int N, volatile float* result) {
    __shared__ bool isLastBlockDone;
    __shared__ float part[64];
    float partial = 0;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < N; i += 64 * gridDim.x) partial += array[i];
    part[threadIdx.x] = partial;
    for (int d = 32; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
    }
    if (threadIdx.x == 0) {
        result[blockIdx.x] = part[0];
        __threadfence();
        unsigned int value = atomicInc(&count, gridDim.x);
        isLastBlockDone = (value == (gridDim.x - 1));
    }
    __syncthreads();
    if (isLastBlockDone && threadIdx.x == 0) {
        float total = 0;
        for (int i = 0; i < gridDim.x; ++i) total += result[i];
        result[0] = total;
        count = 0;
    }
}""",
    4, 64, X7, 1000, zeros(4), want={},
    flaws=[
        Flaw("race", "total += result[i]", "        __threadfence();\n", ""),
        Flaw("race", "part[threadIdx.x] +=", "        __syncthreads();\n        if", "        if"),
    ],
)  # fmt: skip
ROWS = random(4, 128)
SOFTMAX = """#include <cfloat>
__inline__ __device__ float warp_max(float v) {
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, mask, 32));
    return v;
}
__inline__ __device__ float warp_sum(float v) {
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) v += __shfl_xor_sync(0xffffffff, v, mask, 32);
    return v;
}
"""
E = np.exp(ROWS - ROWS.max(axis=1, keepdims=True))
CASES(
    "a softmax, a warp a row",
    SOFTMAX
    + """__global__ void softmax_forward(float* __restrict__ out, const float* __restrict__ inp, int N, int C) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= N) return;
    const float* x = inp + row * C;
    float maxval = -FLT_MAX, sum = 0.0f;
    for (int i = threadIdx.x; i < C; i += 32) maxval = fmaxf(maxval, x[i]);
    maxval = warp_max(maxval);
    for (int i = threadIdx.x; i < C; i += 32) sum += expf(x[i] - maxval);
    sum = warp_sum(sum);
    for (int i = threadIdx.x; i < C; i += 32) out[row * C + i] = expf(x[i] - maxval) / sum;
}""",
    2, (32, 2), zeros(4, 128), ROWS, 4, 128, want={0: E / E.sum(axis=1, keepdims=True)},
    counts={"inp load": Want(3 * 4 * 4), "out store": Want(4 * 4)},
    flaws=[
        Flaw("outside", "sum += expf", "i < C; i += 32) sum", "i <= C; i += 32) sum"),
    ],
)  # fmt: skip
NORM = (ROWS - ROWS.mean(axis=1, keepdims=True)) / np.sqrt(ROWS.var(axis=1, keepdims=True) + 1e-5)
CASES(
    "a layernorm, a block a row",
    SHUFFLE
    + """__global__ void layernorm(const float* x, const float* gamma, const float* beta, float* y, int C) {
    __shared__ float s_mean, s_rstd;
    const float* row = x + blockIdx.x * C;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < C; i += blockDim.x) sum += row[i];
    sum = blockReduceSum(sum);
    if (threadIdx.x == 0) s_mean = sum / C;
    __syncthreads();
    float var = 0.0f;
    for (int i = threadIdx.x; i < C; i += blockDim.x) { float d = row[i] - s_mean; var += d * d; }
    var = blockReduceSum(var);
    if (threadIdx.x == 0) s_rstd = rsqrtf(var / C + 1e-5f);
    __syncthreads();
    for (int i = threadIdx.x; i < C; i += blockDim.x)
        y[blockIdx.x * C + i] = (row[i] - s_mean) * s_rstd * gamma[i] + beta[i];
}""",
    4, 64, ROWS, np.full(128, 2, "f4"), np.ones(128, "f4"), zeros(4, 128), 128, want={3: 2 * NORM + 1}, rtol=1e-4,
    flaws=[
        Flaw("race", "row[i] - s_mean; var", "s_mean = sum / C;\n    __syncthreads();", "s_mean = sum / C;"),
        Flaw("unset", "row[i] - s_mean; var", "if (threadIdx.x == 0) s_mean", "if (threadIdx.x == 64) s_mean"),
    ],
)  # fmt: skip
SCAN = random(64)
CASES(
    "a scan after Hillis and Steele",
    """__global__ void scan(float *g_odata, float *g_idata, int n) {
    extern __shared__ float temp[];
    int thid = threadIdx.x;
    int pout = 0, pin = 1;
    temp[pout * n + thid] = (thid > 0) ? g_idata[thid - 1] : 0;
    __syncthreads();
    for (int offset = 1; offset < n; offset *= 2) {
        pout = 1 - pout;
        pin = 1 - pout;
        if (thid >= offset)
            temp[pout * n + thid] = temp[pin * n + thid] + temp[pin * n + thid - offset];
        else
            temp[pout * n + thid] = temp[pin * n + thid];
        __syncthreads();
    }
    g_odata[thid] = temp[pout * n + thid];
}""",
    1, 64, zeros(64), SCAN, 64, shared_bytes=512, want={0: np.append(0, SCAN.cumsum()[:-1])},
    flaws=[
        Flaw("race", "temp[pin * n + thid - offset]", "pout * n + thid] = temp[pin * n + thid] +",
             "thid] = temp[thid] +"),
        Flaw("outside", "g_idata[thid - 1]", "(thid > 0) ? g_idata[thid - 1] : 0", "g_idata[thid - 1]", "g_idata[-1]"),
    ],
)  # fmt: skip
CASES(
    "a scan after Blelloch, padded",
    """#define LOG_NUM_BANKS 5
#define CONFLICT_FREE_OFFSET(n) ((n) >> LOG_NUM_BANKS)
__global__ void prescan(float *g_odata, const float *g_idata, int n) {
    extern __shared__ float temp[];
    int thid = threadIdx.x, offset = 1;
    int ai = thid, bi = thid + n / 2;
    temp[ai + CONFLICT_FREE_OFFSET(ai)] = g_idata[ai];
    temp[bi + CONFLICT_FREE_OFFSET(bi)] = g_idata[bi];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (thid < d) {
            int a = offset * (2 * thid + 1) - 1, b = offset * (2 * thid + 2) - 1;
            temp[b + CONFLICT_FREE_OFFSET(b)] += temp[a + CONFLICT_FREE_OFFSET(a)];
        }
        offset *= 2;
    }
    if (thid == 0) temp[n - 1 + CONFLICT_FREE_OFFSET(n - 1)] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (thid < d) {
            int a = offset * (2 * thid + 1) - 1, b = offset * (2 * thid + 2) - 1;
            a += CONFLICT_FREE_OFFSET(a); b += CONFLICT_FREE_OFFSET(b);
            float t = temp[a];
            temp[a] = temp[b];
            temp[b] += t;
        }
    }
    __syncthreads();
    g_odata[ai] = temp[ai + CONFLICT_FREE_OFFSET(ai)];
    g_odata[bi] = temp[bi + CONFLICT_FREE_OFFSET(bi)];
}""",
    1, 64, zeros(128), X, 128, shared_bytes=4 * 132, want={0: np.append(0, X.cumsum()[:-1])},
    flaws=[
        Flaw("race", "temp[b + CONFLICT_FREE_OFFSET(b)] +=", "        __syncthreads();\n        if (thid < d) {\n"
             "            int a = offset * (2 * thid + 1) - 1, b = offset * (2 * thid + 2) - 1;\n            temp",
             "        if (thid < d) {\n"
             "            int a = offset * (2 * thid + 1) - 1, b = offset * (2 * thid + 2) - 1;\n            temp"),
        Flaw("race", "g_odata[bi] =", "    __syncthreads();\n    g_odata", "    g_odata"),
        Flaw("outside", "g_idata[bi]", "bi = thid + n / 2", "bi = thid + n"),
    ],
)  # fmt: skip
