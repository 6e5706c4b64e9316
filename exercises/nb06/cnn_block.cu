// pooled = max over 2 x 2 of relu(convolution(x, weight) + bias), float32, forward and backward.
//
// Arrays, row by row: x (N, C_IN, HEIGHT, WIDTH), weight (C_OUT, C_IN, KERNEL, KERNEL), bias (C_OUT),
// pooled and choice (N, C_OUT, POOLED_HEIGHT, POOLED_WIDTH). The sizes are constants of the compilation, so that loops
// unroll and arrays stay in registers; those below are the first block of SimpleCNN.
//
// Expected, forward: 8 N C_IN C_OUT KERNEL^2 POOLED_HEIGHT POOLED_WIDTH FLOP (a multiply-add is two, a pooled cell
// four sums) over the float32 rate; device memory sees x once and 5 bytes a pooled number, while separate library
// calls write the unpooled result, four times the size, three times (convolution, bias, ReLU) and read it three times
// (bias, ReLU, pooling). Whatever of that fits the L2 cache causes no traffic to device memory.
// Backward: a pooled number's gradient belongs to one of its four cells, so the weights' gradient needs
// 2 N C_IN C_OUT KERNEL^2 POOLED_HEIGHT POOLED_WIDTH FLOP, a quarter of the dense convolution's; the input's
// gradient is computed densely: 2 N C_IN C_OUT KERNEL^2 HEIGHT WIDTH FLOP.

#ifndef C_IN
#define C_IN 3
#define C_OUT 6
#define HEIGHT 32
#define WIDTH 32
#define KERNEL 5
#define PADDING 0
#define OUT_GROUP 6  // output channels a thread of the forward pass computes; divides C_OUT
#define IN_GROUP 1   // input channels a thread of the input's gradient computes; divides C_IN
#endif

#define TAPS (KERNEL * KERNEL)
#define PATCH (KERNEL + 1)  // rows and columns that 2 x 2 neighboring sums need
#define POOLED_HEIGHT ((HEIGHT + 2 * PADDING - KERNEL + 1) / 2)
#define POOLED_WIDTH ((WIDTH + 2 * PADDING - KERNEL + 1) / 2)
#define POOLED (POOLED_HEIGHT * POOLED_WIDTH)
#define CUT 4  // choice is 0 to 3 for the cell 2 row + column that was largest, or CUT where ReLU let nothing through
#define THREADS 256

// Adds to 2 x 2 sums of each of `channels` channels what one patch gives. The patch is read into registers once;
// `weights`, one row of channels a tap, are the same for all lanes of a warp, which one access then serves.
template <int channels>
__device__ __forceinline__ void
convolve(float (&sums)[4][channels], const float (&patch)[PATCH][PATCH], const float* weights)
{
    #pragma unroll
    for (int row = 0; row < KERNEL; ++row)
        #pragma unroll
        for (int column = 0; column < KERNEL; ++column)
            #pragma unroll
            for (int channel = 0; channel < channels; ++channel) {
                const float weight = weights[(row * KERNEL + column) * channels + channel];
                #pragma unroll
                for (int cell = 0; cell < 4; ++cell)
                    sums[cell][channel] += weight * patch[row + cell / 2][column + cell % 2];
            }
}

// One thread a pooled place, for OUT_GROUP channels; blockIdx.y is the group of channels.
extern "C" __global__ void __launch_bounds__(THREADS)
cnn_block_forward(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                  float* __restrict__ pooled, unsigned char* __restrict__ choice, int images)
{
    __shared__ __align__(16) float weights[C_IN * TAPS * OUT_GROUP];  // channels last: a tap's are read together
    const int first_channel = blockIdx.y * OUT_GROUP;
    for (int i = threadIdx.x; i < C_IN * TAPS * OUT_GROUP; i += THREADS)
        weights[i] = weight[(first_channel + i % OUT_GROUP) * C_IN * TAPS + i / OUT_GROUP];
    __syncthreads();

    const int place = blockIdx.x * THREADS + threadIdx.x;
    if (place >= images * POOLED) return;
    const int image = place / POOLED, at = place % POOLED;
    const int top = at / POOLED_WIDTH * 2 - PADDING, left = at % POOLED_WIDTH * 2 - PADDING;

    float sums[4][OUT_GROUP] = {};
    #pragma unroll 1
    for (int channel = 0; channel < C_IN; ++channel) {
        // Straight from global memory: the neighbors' patches overlap, so most of these reads end in the L1 cache.
        const float* from = x + ((long long)image * C_IN + channel) * HEIGHT * WIDTH;
        float patch[PATCH][PATCH];
        #pragma unroll
        for (int row = 0; row < PATCH; ++row)
            #pragma unroll
            for (int column = 0; column < PATCH; ++column) {
                const int r = top + row, c = left + column;
                const bool inside = PADDING == 0 || (r >= 0 && r < HEIGHT && c >= 0 && c < WIDTH);
                patch[row][column] = inside ? from[r * WIDTH + c] : 0.0f;
            }
        convolve<OUT_GROUP>(sums, patch, weights + channel * TAPS * OUT_GROUP);
    }

    #pragma unroll
    for (int channel = 0; channel < OUT_GROUP; ++channel) {
        float best = sums[0][channel];
        int which = 0;
        #pragma unroll
        for (int cell = 1; cell < 4; ++cell)
            if (sums[cell][channel] > best || sums[cell][channel] != sums[cell][channel]) {  // NaN wins, as in torch
                best = sums[cell][channel];
                which = cell;
            }
        best += bias[first_channel + channel];  // the same for all four, and ReLU keeps their order: both can come last
        const long long to = ((long long)image * C_OUT + first_channel + channel) * POOLED + at;
        pooled[to] = best <= 0.0f ? 0.0f : best;
        choice[to] = best <= 0.0f ? CUT : which;
    }
}

// The gradient of x: the convolution of the unpooled gradient, spread out in shared memory, with the weights
// rotated by 180 degrees. One block an image; a thread takes 2 x 2 pixels of IN_GROUP channels.
#define BORDER (KERNEL - 1 - PADDING)
#define GRID_HEIGHT ((HEIGHT + 1) / 2 * 2 + KERNEL - 1)
#define GRID_WIDTH ((WIDTH + 1) / 2 * 2 + KERNEL - 1)
#define GROUPS (C_IN / IN_GROUP)

extern "C" __global__ void __launch_bounds__(THREADS)
cnn_block_grad_x(const float* __restrict__ grad_pooled, const unsigned char* __restrict__ choice,
                 const float* __restrict__ weight, float* __restrict__ grad_x)
{
    __shared__ __align__(16) float grid[C_OUT * GRID_HEIGHT * GRID_WIDTH];
    __shared__ __align__(16) float weights[C_OUT * C_IN * TAPS];  // (group, C_OUT, rotated tap, channel in the group)
    const long long image = blockIdx.x;
    for (int i = threadIdx.x; i < C_OUT * GRID_HEIGHT * GRID_WIDTH; i += blockDim.x) grid[i] = 0.0f;
    for (int i = threadIdx.x; i < C_OUT * C_IN * TAPS; i += blockDim.x) {
        const int in = i / (C_OUT * TAPS * IN_GROUP) * IN_GROUP + i % IN_GROUP;
        const int out = i / (TAPS * IN_GROUP) % C_OUT, tap = i / IN_GROUP % TAPS;
        weights[i] = weight[(out * C_IN + in) * TAPS + TAPS - 1 - tap];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < C_OUT * POOLED; i += blockDim.x) {
        const int which = choice[image * C_OUT * POOLED + i];
        const int row = i % POOLED / POOLED_WIDTH * 2 + which / 2, column = i % POOLED_WIDTH * 2 + which % 2;
        const int to = (i / POOLED * GRID_HEIGHT + BORDER + row) * GRID_WIDTH + BORDER + column;
        if (which != CUT) grid[to] = grad_pooled[image * C_OUT * POOLED + i];
    }
    __syncthreads();

    const int across = (WIDTH + 1) / 2, places = (HEIGHT + 1) / 2 * across;
    for (int item = threadIdx.x; item < places * GROUPS; item += blockDim.x) {
        const int top = item % places / across * 2, left = item % across * 2, group = item / places;
        float sums[4][IN_GROUP] = {};
        #pragma unroll 1
        for (int out = 0; out < C_OUT; ++out) {
            float patch[PATCH][PATCH];
            #pragma unroll
            for (int row = 0; row < PATCH; ++row)
                #pragma unroll
                for (int column = 0; column < PATCH; ++column)
                    patch[row][column] = grid[(out * GRID_HEIGHT + top + row) * GRID_WIDTH + left + column];
            convolve<IN_GROUP>(sums, patch, weights + (group * C_OUT + out) * TAPS * IN_GROUP);
        }
        #pragma unroll
        for (int channel = 0; channel < IN_GROUP; ++channel)
            #pragma unroll
            for (int cell = 0; cell < 4; ++cell) {
                const int row = top + cell / 2, column = left + cell % 2;
                const long long plane = image * C_IN + group * IN_GROUP + channel;
                if (row < HEIGHT && column < WIDTH)
                    grad_x[(plane * HEIGHT + row) * WIDTH + column] = sums[cell][channel];
            }
    }
}

// A block's part of the gradients of weight and bias: partial (blocks, C_OUT * C_IN * TAPS + C_OUT), from every
// gridDim.x-th image. One thread an output channel and a tap; it keeps a sum for each input channel in registers.
#define PITCH (WIDTH + 2 * PADDING + KERNEL)  // the taps' rows then start KERNEL banks apart
#define IMAGE ((HEIGHT + 2 * PADDING) * PITCH)

struct Cell {
    float gradient;
    int at;  // the place in the padded image under the first tap
};

extern "C" __global__ void __launch_bounds__((C_OUT * TAPS + 31) / 32 * 32)
cnn_block_grad_weight(const float* __restrict__ grad_pooled, const unsigned char* __restrict__ choice,
                      const float* __restrict__ x, float* __restrict__ partial, int images)
{
    __shared__ float padded[C_IN * IMAGE];
    __shared__ __align__(8) Cell cells[C_OUT * POOLED];
    const int out = threadIdx.x / TAPS, tap = threadIdx.x % TAPS;
    const float* under_tap = padded + tap / KERNEL * PITCH + tap % KERNEL;
    float sums[C_IN] = {}, sum = 0.0f;

    for (int i = threadIdx.x; i < C_IN * IMAGE; i += blockDim.x) padded[i] = 0.0f;
    for (long long image = blockIdx.x; image < images; image += gridDim.x) {
        __syncthreads();  // no thread still reads the previous image
        for (int i = threadIdx.x; i < C_IN * HEIGHT * WIDTH; i += blockDim.x) {
            const int channel = i / (HEIGHT * WIDTH), row = i / WIDTH % HEIGHT + PADDING, column = i % WIDTH + PADDING;
            padded[channel * IMAGE + row * PITCH + column] = x[image * C_IN * HEIGHT * WIDTH + i];
        }
        for (int i = threadIdx.x; i < C_OUT * POOLED; i += blockDim.x) {
            const int which = choice[image * C_OUT * POOLED + i];
            const int row = i % POOLED / POOLED_WIDTH * 2 + which / 2, column = i % POOLED_WIDTH * 2 + which % 2;
            const float gradient = grad_pooled[image * C_OUT * POOLED + i];
            cells[i] = which == CUT ? Cell{0.0f, 0} : Cell{gradient, row * PITCH + column};
        }
        __syncthreads();
        if (out < C_OUT) {
            #pragma unroll 4
            for (int i = 0; i < POOLED; ++i) {
                const Cell cell = cells[out * POOLED + i];
                sum += cell.gradient;
                #pragma unroll
                for (int channel = 0; channel < C_IN; ++channel)
                    sums[channel] += cell.gradient * under_tap[cell.at + channel * IMAGE];
            }
        }
    }

    if (out >= C_OUT) return;
    float* mine = partial + (long long)blockIdx.x * (C_OUT * C_IN * TAPS + C_OUT);
    #pragma unroll
    for (int channel = 0; channel < C_IN; ++channel) mine[(out * C_IN + channel) * TAPS + tap] = sums[channel];
    if (tap == 0) mine[C_OUT * C_IN * TAPS + out] = sum;
}

// total[i] = the sum of column i of partial (blocks, columns), in a fixed order: a run repeats to the bit.
// 32 x 8 threads: 32 neighboring columns, and eight threads that share the rows of each.
extern "C" __global__ void
sum_columns(const float* __restrict__ partial, float* __restrict__ total, int blocks, int columns)
{
    __shared__ float shares[8][32];
    const int column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (column < columns)
        for (int block = threadIdx.y; block < blocks; block += 8) sum += partial[(long long)block * columns + column];
    shares[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
        for (int i = 1; i < 8; ++i) sum += shares[i][threadIdx.x];
        total[column] = sum;
    }
}
