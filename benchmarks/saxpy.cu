// y[i] = a x[i] + y[i], for n floats. Both arrays start at a multiple of 16 bytes.
//
// Expected: 12 n bytes (x and y read, y written) and 2 n FLOP: 1/6 FLOP a byte, far below any GPU's balance. The time
// can't go below 12 n / (copy rate of the device), for arrays much larger than the L2 cache.

#define LOADS 2  // of 16 bytes from each of the two arrays: 64 bytes in flight a thread, as in copy.cu

__device__ __forceinline__ float4 multiply_add(float a, float4 x, float4 y)
{
    return make_float4(a * x.x + y.x, a * x.y + y.y, a * x.z + y.z, a * x.w + y.w);
}

extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, long long n)
{
    const float4* x4 = reinterpret_cast<const float4*>(x);
    float4* y4 = reinterpret_cast<float4*>(y);
    const long long quads = n / 4;
    const long long first = (long long)blockIdx.x * blockDim.x * LOADS + threadIdx.x;

    float4 held_x[LOADS], held_y[LOADS];
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const long long quad = first + (long long)i * blockDim.x;
        if (quad < quads) {
            held_x[i] = x4[quad];
            held_y[i] = y4[quad];
        }
    }
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const long long quad = first + (long long)i * blockDim.x;
        if (quad < quads) y4[quad] = multiply_add(a, held_x[i], held_y[i]);
    }

    const long long rest = 4 * quads + first;  // the first three threads take what doesn't fill a quad
    if (rest < n) y[rest] = a * x[rest] + y[rest];
}
