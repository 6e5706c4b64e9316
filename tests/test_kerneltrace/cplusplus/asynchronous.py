"""Copies that arrive later: cp.async, cuda::pipeline, cuda::barrier, groups."""

from tests.test_kerneltrace.cplusplus.case import Cases, Flaw, random, zeros

CASES = Cases()
X = random(256)
STAGES = """#include <cuda_pipeline.h>
__global__ void k(const float4* x, float* y, int tiles) {
    __shared__ float4 s[2][16];
    int t = threadIdx.x;
    auto fetch = [&](int tile) {
        if (t < 16) __pipeline_memcpy_async(&s[tile % 2][t], &x[tile * 16 + t], sizeof(float4));
        __pipeline_commit();
    };
    fetch(0);
    float sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) fetch(tile + 1);
        else __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += ((float*)s[tile % 2])[63 - t];
        __syncthreads();
    }
    y[t] = sum;
}"""
CASES(
    "two stages of cp.async", STAGES, 1, 64, X, zeros(64), 4, want={1: X.reshape(4, 64).sum(0)[::-1]},
    flaws=[
        Flaw("unset", "sum += ", "__pipeline_wait_prior(1)", "__pipeline_wait_prior(2)", "asynchronous copy"),
        Flaw("race", "sum += ", "        __pipeline_wait_prior(1);\n        __syncthreads();",
             "        __pipeline_wait_prior(1);"),
        Flaw("race", "__pipeline_memcpy_async", "63 - t];\n        __syncthreads();", "63 - t];"),
        Flaw("outside", "__pipeline_memcpy_async", "if (tile + 1 < tiles) fetch", "if (tile < tiles) fetch"),
    ],
)  # fmt: skip
BLOCK_BARRIER = """#include <cuda/barrier>
__global__ void k(const float* x, float* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t == 0) init(&bar, blockDim.x);
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
        s[t] = x[64 * i + t];
        bar.arrive_and_wait();
        sum += s[63 - t];
        auto token = bar.arrive();
        bar.wait(std::move(token));
    }
    y[t] = sum;
}""".replace("std::move(token)", "(decltype(token)&&)token")
CASES(
    "cuda::barrier", BLOCK_BARRIER, 1, 64, X, zeros(64), want={1: X.reshape(4, 64).sum(0)[::-1]},
    flaws=[
        Flaw("race", "sum += s[63 - t]", "        bar.arrive_and_wait();\n", ""),
        Flaw("unset", "bar.arrive", "    if (t == 0) init(&bar, blockDim.x);\n", "", "init"),
        Flaw("deadlock", "bar.arrive_and_wait", "init(&bar, blockDim.x)", "init(&bar, blockDim.x + 1)", "mbarrier"),
    ],
)  # fmt: skip
CASES(
    "cuda::barrier between producers and consumers",
    """#include <cuda/barrier>
using barrier = cuda::barrier<cuda::thread_scope_block>;
__global__ void k(const float* x, float* y, int n) {
    __shared__ float buffer[2][32];
    __shared__ barrier ready[2], filled[2];
    if (threadIdx.x < 2) { init(ready + threadIdx.x, 64); init(filled + threadIdx.x, 64); }
    __syncthreads();
    int t = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int i = 0; i < n; ++i) {
            ready[i % 2].arrive_and_wait();
            buffer[i % 2][t] = x[32 * i + t];
            barrier::arrival_token token = filled[i % 2].arrive();
        }
    } else {
        barrier::arrival_token token0 = ready[0].arrive(), token1 = ready[1].arrive();
        float sum = 0;
        for (int i = 0; i < n; ++i) {
            filled[i % 2].arrive_and_wait();
            sum += buffer[i % 2][31 - t];
            barrier::arrival_token token = ready[i % 2].arrive();
        }
        y[t] = sum;
    }
}""",
    1, 64, X, zeros(32), 8, want={1: X.reshape(8, 32).sum(0)[::-1]},
    flaws=[
        Flaw("race", "sum += buffer", "            ready[i % 2].arrive_and_wait();\n", ""),
        Flaw("unset", "sum += buffer", "            filled[i % 2].arrive_and_wait();\n", ""),
    ],
)  # fmt: skip
PIPELINE = """#include <cooperative_groups.h>
#include <cuda/pipeline>
__global__ void k(const float* x, float* y, int batches) {
    __shared__ float s[2][64];
    auto block = cooperative_groups::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto pipe = cuda::make_pipeline(block, &state);
    pipe.producer_acquire();
    cuda::memcpy_async(block, s[0], x, sizeof(float) * 64, pipe);
    pipe.producer_commit();
    float sum = 0;
    for (int i = 1; i < batches; ++i) {
        pipe.producer_acquire();
        cuda::memcpy_async(block, s[i % 2], x + 64 * i, sizeof(float) * 64, pipe);
        pipe.producer_commit();
        pipe.consumer_wait();
        sum += s[(i - 1) % 2][63 - threadIdx.x];
        pipe.consumer_release();
    }
    pipe.consumer_wait();
    sum += s[(batches - 1) % 2][63 - threadIdx.x];
    pipe.consumer_release();
    y[threadIdx.x] = sum;
}"""
CASES(
    "cuda::pipeline of a block", PIPELINE, 1, 64, X, zeros(64), 4, want={1: X.reshape(4, 64).sum(0)[::-1]},
    flaws=[Flaw("unset", "sum += s[(i - 1)", "        pipe.consumer_wait();\n        sum += s[(i",
             "        sum += s[(i",
                "asynchronous copy")],
)  # fmt: skip
CASES(
    "cuda::pipeline of a thread",
    """#include <cuda/pipeline>
__global__ void k(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&s[t], &x[t], sizeof(float), pipe);
    pipe.producer_commit();
    pipe.consumer_wait();
    __syncthreads();
    y[t] = s[63 - t];
    pipe.consumer_release();
}""",
    1, 64, X[:64].copy(), zeros(64), want={1: X[:64][::-1]},
    flaws=[Flaw("race", "y[t] = s[63 - t]", "    __syncthreads();\n", "")],
)  # fmt: skip
CASES(
    "groups: memcpy_async and wait",
    """#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
__global__ void k(const float* x, float* y, int n) {
    extern __shared__ float s[];
    auto block = cg::this_thread_block();
    float sum = 0;
    for (int i = 0; i < n; i += 64) {
        cg::memcpy_async(block, s, x + i, sizeof(float) * 64);
        cg::wait(block);
        sum += s[63 - block.thread_rank()];
        block.sync();
    }
    y[threadIdx.x] = sum;
}""",
    1, 64, X, zeros(64), 256, shared_bytes=256, want={1: X.reshape(4, 64).sum(0)[::-1]},
    flaws=[
        Flaw("unset", "sum += s", "        cg::wait(block);\n", "        block.sync();\n", "asynchronous copy"),
        Flaw("race", "memcpy_async(block", "        block.sync();\n", ""),
    ],
)  # fmt: skip
