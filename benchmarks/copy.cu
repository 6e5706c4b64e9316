// out[i] = x[i], for n floats. Both arrays start at a multiple of 16 bytes.
//
// Expected: 8 n bytes move (each float read once, written once) and nothing is computed, so the time can't go below
// 8 n / (copy rate of the device), for arrays much larger than the L2 cache.

// Loads in flight hide the latency of memory: rate x latency bytes have to be on their way at any time (Little's law).
// Four independent 16-byte loads a thread are 64 bytes; with one, nearly all threads of the GPU would have to wait.
#define LOADS 4

extern "C" __global__ void copy(const float* __restrict__ x, float* __restrict__ out, long long n)
{
    const float4* x4 = reinterpret_cast<const float4*>(x);
    float4* out4 = reinterpret_cast<float4*>(out);
    const long long quads = n / 4;
    // Neighbors in a warp take neighboring quads, so that each of the four loads of a warp is 512 bytes in one piece.
    const long long first = (long long)blockIdx.x * blockDim.x * LOADS + threadIdx.x;

    float4 held[LOADS];
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const long long quad = first + (long long)i * blockDim.x;
        if (quad < quads) held[i] = x4[quad];
    }
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const long long quad = first + (long long)i * blockDim.x;
        if (quad < quads) out4[quad] = held[i];
    }

    const long long rest = 4 * quads + first;  // the first three threads take what doesn't fill a quad
    if (rest < n) out[rest] = x[rest];
}
