// c = a b in float32, for a of m x k, b of k x n and c of m x n floats, all row by row, of any m, n and k.
// All three start at a multiple of 16 bytes.
//
// Expected: 2 m n k FLOP over the GPU's float32 rate. Device memory sees at least 4 (m k + k n + m n) bytes, and 8 x
// 8 products a thread keep shared memory below the arithmetic: per step in k a thread reads 16 floats for 64
// multiply-adds.

#define TILE 128    // a block's part of c is TILE x TILE, ...
#define DEPTH 8     // ... summed up in slices of DEPTH steps in k
#define THREADS 256
#ifndef QUADS
#define QUADS 0     // 1 if k and n are multiples of 4, so that every row starts at a multiple of 16 bytes
#endif
#define QUADS_EACH (TILE * DEPTH / 4 / THREADS)  // quads of a slice of a that a thread loads, and of b
#define PITCH (TILE + 4)  // 4 floats of padding spread the transposed stores of a over the banks, and keep 16-byte rows

// Four floats of a row of a matrix, zeros beyond its edge. With QUADS a quad is inside or outside as a whole: one load
// under a condition and no branch, so that nothing has to wait for it before the arithmetic is done.
__device__ __forceinline__ float4 load4(const float* matrix, int row, int column, int rows, int columns)
{
    const float* at = matrix + (long long)row * columns + column;
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#if QUADS
    if (row < rows && column < columns) four = *reinterpret_cast<const float4*>(at);
#else
    if (row < rows && column < columns) four.x = at[0];
    if (row < rows && column + 1 < columns) four.y = at[1];
    if (row < rows && column + 2 < columns) four.z = at[2];
    if (row < rows && column + 3 < columns) four.w = at[3];
#endif
    return four;
}

__device__ __forceinline__ void store4(float* matrix, int row, int column, int rows, int columns, const float* four)
{
    float* at = matrix + (long long)row * columns + column;
#if QUADS
    if (row < rows && column < columns)
        *reinterpret_cast<float4*>(at) = make_float4(four[0], four[1], four[2], four[3]);
#else
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        if (row < rows && column + i < columns) at[i] = four[i];
#endif
}

// Eight floats of shared memory as two 16-byte reads, half a tile apart: neighboring threads read neighboring quads.
__device__ __forceinline__ void read8(const float* from, float* to)
{
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float4 four = *reinterpret_cast<const float4*>(from + half * (TILE / 2));
        to[4 * half] = four.x;
        to[4 * half + 1] = four.y;
        to[4 * half + 2] = four.z;
        to[4 * half + 3] = four.w;
    }
}

// Two blocks on a multiprocessor, so that one computes while the other waits: at most 128 registers a thread.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
matmul_float32(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    // Two slices: the next is filled while this one is read, so that a slice needs one barrier instead of two.
    __shared__ __align__(16) float tile_a[2][DEPTH][PITCH];  // transposed: a step in k is then a row, as in b
    __shared__ __align__(16) float tile_b[2][DEPTH][TILE];

    // A warp covers 4 x 8 of the 16 x 16 threads: its reads of a tile are 4 and 8 different quads, and no quarter of a
    // warp, by which 16-byte reads are served, meets a bank conflict.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_row = (warp / 2) * 4 + lane / 8, thread_column = (warp % 2) * 8 + lane % 8;
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;

    float4 next_a[QUADS_EACH], next_b[QUADS_EACH];
    auto fetch = [&](int depth) {  // global memory to registers
        #pragma unroll
        for (int i = 0; i < QUADS_EACH; ++i) {
            const int quad = threadIdx.x + i * THREADS;
            next_a[i] = load4(a, first_row + quad / (DEPTH / 4), depth + quad % (DEPTH / 4) * 4, m, k);
            next_b[i] = load4(b, depth + quad / 32, first_column + quad % 32 * 4, k, n);
        }
    };
    auto keep = [&](int slot) {  // registers to shared memory
        #pragma unroll
        for (int i = 0; i < QUADS_EACH; ++i) {
            const int quad = threadIdx.x + i * THREADS;
            tile_a[slot][quad % (DEPTH / 4) * 4][quad / (DEPTH / 4)] = next_a[i].x;
            tile_a[slot][quad % (DEPTH / 4) * 4 + 1][quad / (DEPTH / 4)] = next_a[i].y;
            tile_a[slot][quad % (DEPTH / 4) * 4 + 2][quad / (DEPTH / 4)] = next_a[i].z;
            tile_a[slot][quad % (DEPTH / 4) * 4 + 3][quad / (DEPTH / 4)] = next_a[i].w;
            *reinterpret_cast<float4*>(&tile_b[slot][quad / 32][quad % 32 * 4]) = next_b[i];
        }
    };

    float sums[8][8] = {};
    fetch(0);
    keep(0);
    __syncthreads();
    for (int depth = 0, slot = 0; depth < k; depth += DEPTH, slot ^= 1) {
        const bool more = depth + DEPTH < k;
        if (more) fetch(depth + DEPTH);  // arrives during the arithmetic below
        #pragma unroll
        for (int step = 0; step < DEPTH; ++step) {
            float of_a[8], of_b[8];
            read8(&tile_a[slot][step][thread_row * 4], of_a);
            read8(&tile_b[slot][step][thread_column * 4], of_b);
            #pragma unroll
            for (int i = 0; i < 8; ++i)
                #pragma unroll
                for (int j = 0; j < 8; ++j) sums[i][j] += of_a[i] * of_b[j];
        }
        if (more) keep(slot ^ 1);
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int half = 0; half < 2; ++half)
            store4(c, first_row + i / 4 * (TILE / 2) + thread_row * 4 + i % 4,
                   first_column + half * (TILE / 2) + thread_column * 4, m, n, &sums[i][4 * half]);
}
