"""Copies that arrive later: cp.async, cuda::pipeline, cuda::barrier."""

from test_kerneltrace.cplusplus.case import Cases, Flaw, random, zeros

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
    "two stages of cp.async",
    STAGES,
    1,
    64,
    X,
    zeros(64),
    4,
    want={1: X.reshape(4, 64).sum(0)[::-1]},
    flaws=[
        Flaw(
            "unset",
            "sum += ",
            "__pipeline_wait_prior(1)",
            "__pipeline_wait_prior(2)",
            "asynchronous copy",
        ),
        Flaw(
            "race",
            "sum += ",
            "        __pipeline_wait_prior(1);\n        __syncthreads();",
            "        __pipeline_wait_prior(1);",
        ),
        Flaw(
            "race",
            "__pipeline_memcpy_async",
            "63 - t];\n        __syncthreads();",
            "63 - t];",
        ),
        Flaw(
            "outside",
            "__pipeline_memcpy_async",
            "if (tile + 1 < tiles) fetch",
            "if (tile < tiles) fetch",
        ),
    ],
)
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
    "cuda::barrier",
    BLOCK_BARRIER,
    1,
    64,
    X,
    zeros(64),
    want={1: X.reshape(4, 64).sum(0)[::-1]},
    flaws=[
        Flaw("race", "sum += s[63 - t]", "        bar.arrive_and_wait();\n", ""),
        Flaw(
            "unset",
            "bar.arrive",
            "    if (t == 0) init(&bar, blockDim.x);\n",
            "",
            "init",
        ),
        Flaw(
            "deadlock",
            "bar.arrive_and_wait",
            "init(&bar, blockDim.x)",
            "init(&bar, blockDim.x + 1)",
            "mbarrier",
        ),
    ],
)
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
    "cuda::pipeline of a block",
    PIPELINE,
    1,
    64,
    X,
    zeros(64),
    4,
    want={1: X.reshape(4, 64).sum(0)[::-1]},
    flaws=[
        Flaw(
            "unset",
            "sum += s[(i - 1)",
            "        pipe.consumer_wait();\n        sum += s[(i",
            "        sum += s[(i",
            "asynchronous copy",
        )
    ],
)
