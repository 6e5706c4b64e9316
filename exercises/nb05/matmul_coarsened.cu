// c = a b, float32, n x n numbers with n a multiple of 128. Each thread makes 4 x 8
// results and keeps them in registers. Reads go straight to global memory: it is there to
// show what a compiler's options change, and falls short of the library by far.
#ifndef BOUNDS
#define BOUNDS
#endif
#ifndef STEPS
#define STEPS 1  // how often the loop over k is unrolled
#endif
extern "C" __global__ void BOUNDS matmul(const float* a, const float* b, float* c, int n)
{
    const int row = 4 * (blockIdx.y * 16 + threadIdx.y);
    const int column = 8 * (blockIdx.x * 16 + threadIdx.x);
    float sum[4][8] = {};
    #pragma unroll STEPS
    for (int k = 0; k < n; ++k)
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 8; ++j)
                sum[i][j] += a[(row + i) * n + k] * b[k * n + column + j];
    for (int i = 0; i < 32; ++i) c[(row + i / 8) * n + column + i % 8] = sum[i / 8][i % 8];
}
