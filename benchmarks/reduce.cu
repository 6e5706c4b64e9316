// partial[block] = the sum of the block's share of x, for n floats; x starts at a multiple of 16 bytes.
// Launched twice: over x with many blocks, then over the partial sums with one. The order of the additions depends on
// n and the launch alone, so the same input gives the same bits each time, which atomic additions don't promise.
//
// Expected: 4 n bytes (each float read once) and n FLOP, so no faster than 4 n / (peak bandwidth), for x much larger
// than the L2 cache. A kernel that only reads may beat the rate of a copy by some percent.

#define THREADS 256
#define LOADS 4  // quads in flight a thread, as in copy.cu

__device__ __forceinline__ float sum_of_quad(float4 four)
{
    return (four.x + four.y) + (four.z + four.w);
}

__device__ __forceinline__ float sum_of_warp(float value)
{
    // Registers of other lanes are read directly: no shared memory and no barrier.
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffu, value, distance);
    return value;  // the whole sum in lane 0
}

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_sum(const float* __restrict__ x, float* __restrict__ partial, long long n)
{
    const float4* x4 = reinterpret_cast<const float4*>(x);
    const long long quads = n / 4;
    const long long step = (long long)gridDim.x * THREADS;
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;

    float sums[LOADS] = {};  // separate sums, so that one addition need not wait for another
    long long quad = thread;
    for (; quad + (LOADS - 1) * step < quads; quad += LOADS * step) {
        float4 held[LOADS];
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) held[i] = x4[quad + i * step];
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) sums[i] += sum_of_quad(held[i]);
    }
    for (; quad < quads; quad += step) sums[0] += sum_of_quad(x4[quad]);
    float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (4 * quads + thread < n) sum += x[4 * quads + thread];  // what doesn't fill a quad

    __shared__ float of_warp[THREADS / 32];
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = sum_of_warp(threadIdx.x < THREADS / 32 ? of_warp[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    }
}
