// out[c][r] = a[r][c], for a of rows x columns floats, row by row.
//
// Expected: 8 rows columns bytes and no arithmetic, so a perfect transpose takes as long as a copy.
//
// Rows of both a and out are contiguous, but a row of one is a column of the other: reads that run along memory would
// make writes that run across it. So a block transposes a tile in shared memory, and both run along memory.

#ifndef TILE
#define TILE 32  // a multiple of 32: a warp then moves 128 bytes in one piece
#endif
#ifndef THREAD_ROWS
#define THREAD_ROWS 8  // TILE x THREAD_ROWS threads, each of which has TILE / THREAD_ROWS loads in flight at once
#endif

extern "C" __global__ void transpose(const float* __restrict__ a, float* __restrict__ out, int rows, int columns)
{
    // One float of padding a row: without it a column of the tile lies in a single bank, and its reads go one by one.
    __shared__ float tile[TILE][TILE + 1];

    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    #pragma unroll
    for (int i = 0; i < TILE; i += THREAD_ROWS)
        if (row + i < rows && column < columns)
            tile[threadIdx.y + i][threadIdx.x] = a[(long long)(row + i) * columns + column];

    __syncthreads();

    // The tile's place in out is mirrored, but threadIdx.x still runs along memory.
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    #pragma unroll
    for (int i = 0; i < TILE; i += THREAD_ROWS)
        if (row + i < columns && column < rows)
            out[(long long)(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}
