// c = a b in bfloat16 on tensor cores, summed in float32: a is m x k, b is k x n, c is m x n, all row by row.
// k and n are multiples of 8 and all three start at a multiple of 16 bytes; m is free. Compute capability 8.0 or later.
//
// Expected: 2 m n k FLOP over the tensor cores' dense bfloat16 rate. mma.sync is Ampere's instruction: on Hopper it
// reaches about 0.6 of that rate, since only wgmma feeds the larger tensor cores fully (Luo et al., Benchmarking and
// dissecting the Nvidia Hopper GPU architecture via microbenchmarking, 2024). Device memory sees at least
// 2 (m k + k n + m n) bytes; a block's tile of 128 x 256 reads 2 (128 + 256) bytes a step in k for 65,536 FLOP.

typedef unsigned short bfloat16;  // the bits alone: no header of CUDA's is needed

#define ROWS 128     // a block's part of c is ROWS x COLUMNS, ...
#define COLUMNS 256
#define THREADS 256  // 8 warps, 2 x 4 of them; each owns 64 x 64 of c, as 4 x 8 products of 16 x 8
#ifndef DEPTH
#define DEPTH 32     // ... summed up in slices of DEPTH steps in k, a multiple of 32
#define STAGES 4     // slices in flight or in use: they share the memory that a block may have
#endif
// Padding of 8 numbers: the 8 rows that ldmatrix reads at once start at different multiples of 16 bytes modulo the
// banks' 128.
#define PITCH_A (DEPTH + 8)
#define PITCH_B (COLUMNS + 8)
#define STAGE_SIZE (ROWS * PITCH_A + DEPTH * PITCH_B)
#define GROUP 16     // rows of blocks that run side by side, see below

#if __CUDA_ARCH__ >= 800
// Sixteen bytes from global to shared memory past the registers; all zeros where `inside` is false.
__device__ __forceinline__ void copy16_async(bfloat16* to, const bfloat16* from, bool inside)
{
    const unsigned int address = (unsigned int)__cvta_generic_to_shared(to);
    const int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `open` of the groups closed by this thread are still on their way.
template <int open> __device__ __forceinline__ void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

// Four 8 x 8 matrices, lane l giving the address of row l % 8 of matrix l / 8. Lane l gets of each matrix the elements
// (l / 4, l % 4 * 2) and the one to the right of it in one register; `transposed`, those of the transposed matrix.
__device__ __forceinline__ void load_matrices(unsigned int (&to)[4], const bfloat16* row)
{
    const unsigned int address = (unsigned int)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned int (&to)[4], const bfloat16* row)
{
    const unsigned int address = (unsigned int)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}

// sums (16 x 8) += a (16 x 16) b (16 x 8), by the 32 lanes of a warp together.
__device__ __forceinline__ void
multiply_add(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats rounded to the nearest bfloat16, the first in the lower half.
__device__ __forceinline__ unsigned int pack(float first, float second)
{
    unsigned int both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
matmul_bfloat16(const bfloat16* __restrict__ a, const bfloat16* __restrict__ b, bfloat16* __restrict__ c,
                int m, int n, int k)
{
#if __CUDA_ARCH__ >= 800  // below, the tensor cores know no bfloat16 and the launcher refuses
    extern __shared__ uint4 dynamic_shared[];
    bfloat16* shared = reinterpret_cast<bfloat16*>(dynamic_shared);

    // Blocks run roughly in the order of blockIdx.x. GROUP rows of blocks at a time, column after column, keep those
    // that run together on a nearly square part of c, whose rows of a and columns of b then stay in the L2 cache.
    const int block_rows = (m + ROWS - 1) / ROWS, block_columns = (n + COLUMNS - 1) / COLUMNS;
    const int group = blockIdx.x / (GROUP * block_columns), in_group = blockIdx.x % (GROUP * block_columns);
    const int height = min(block_rows - group * GROUP, GROUP);
    const int first_row = (group * GROUP + in_group % height) * ROWS, first_column = in_group / height * COLUMNS;

    const int slices = (k + DEPTH - 1) / DEPTH;
    auto fetch = [&](int slice) {
        bfloat16* stage = shared + slice % STAGES * STAGE_SIZE;
        if (slice < slices) {
            #pragma unroll
            for (int i = 0; i < ROWS * DEPTH / 8 / THREADS; ++i) {
                const int chunk = threadIdx.x + i * THREADS;
                const int row = chunk / (DEPTH / 8), column = chunk % (DEPTH / 8) * 8;
                const bool inside = first_row + row < m && slice * DEPTH + column < k;
                const long long at = (long long)(first_row + row) * k + slice * DEPTH + column;
                copy16_async(stage + row * PITCH_A + column, inside ? a + at : a, inside);
            }
            #pragma unroll
            for (int i = 0; i < DEPTH * COLUMNS / 8 / THREADS; ++i) {
                const int chunk = threadIdx.x + i * THREADS;
                const int row = chunk / (COLUMNS / 8), column = chunk % (COLUMNS / 8) * 8;
                const bool inside = slice * DEPTH + row < k && first_column + column < n;
                const long long at = (long long)(slice * DEPTH + row) * n + first_column + column;
                copy16_async(stage + ROWS * PITCH_A + row * PITCH_B + column, inside ? b + at : b, inside);
            }
        }
        close_copies();  // an empty group too, so that the count of groups stays the count of slices
    };

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 64;
    unsigned int of_a[2][4][4], of_b[2][4][4];  // two steps of 16 in k: one is loaded while the other is multiplied
    auto load = [&](int slice, int step, int into) {
        const bfloat16* stage = shared + slice % STAGES * STAGE_SIZE;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_matrices(of_a[into][i],
                          stage + (warp_row + i * 16 + lane % 16) * PITCH_A + step * 16 + lane / 16 * 8);
            load_matrices_transposed(of_b[into][i], stage + ROWS * PITCH_A + (step * 16 + lane % 16) * PITCH_B +
                                                        warp_column + i * 16 + lane / 16 * 8);
        }
    };

    for (int slice = 0; slice < STAGES - 1; ++slice) fetch(slice);
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    load(0, 0, 0);

    float sums[4][8][4] = {};
    for (int slice = 0; slice < slices; ++slice) {
        #pragma unroll
        for (int step = 0; step < DEPTH / 16; ++step) {
            if (step == DEPTH / 16 - 1) {
                wait_for_copies<STAGES - 2>();  // the next slice has arrived ...
                __syncthreads();                // ... for every thread, and nobody reads this one any more
                load(slice + 1, 0, (step + 1) % 2);
            } else {
                load(slice, step + 1, (step + 1) % 2);
            }
            if (step == 0) fetch(slice + STAGES - 1);  // over slice - 1, which the barrier of the last turn released
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 8; ++j)
                    multiply_add(sums[i][j], of_a[step % 2][i], of_b[step % 2][j / 2][j % 2 * 2],
                                 of_b[step % 2][j / 2][j % 2 * 2 + 1]);
        }
    }

    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + warp_row + i * 16 + half * 8 + lane / 4;
                const int column = first_column + warp_column + j * 8 + lane % 4 * 2;
                if (row < m && column < n)
                    *reinterpret_cast<unsigned int*>(c + (long long)row * n + column) =
                        pack(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
            }
#endif
}
