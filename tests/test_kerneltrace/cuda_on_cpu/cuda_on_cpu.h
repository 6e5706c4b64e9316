// Lets g++ compile a .cu file and run its kernels on the CPU, for tests of correctness. Every CUDA thread is a fiber
// (ucontext); blocks run one after another. A barrier parks a fiber until all of its block, or warp, have come.
//
// What a launch finds: threads that wait at a barrier others never reach, accesses beyond the end of an array (its last
// byte borders on a forbidden page), misaligned vectors and indices outside a local or shared array (-fsanitize traps).
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define CUDA_ON_CPU
#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__
#define __shared__ thread_local  // one copy for the only block that runs, inside a function as well as `extern`

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned int x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Index { int x = 0, y = 0, z = 0; };
inline Index threadIdx, blockIdx, blockDim, gridDim;
using std::max;
using std::min;

constexpr int DYNAMIC_BYTES = 227 * 1024;
inline thread_local uint4 dynamic_shared[DYNAMIC_BYTES / sizeof(uint4)];

namespace cuda_on_cpu {

struct Barrier { int arrived = 0, turn = 0, members = 0; };
struct Warp {
    Barrier barrier;
    const void* slots[32];  // what each lane shows the others between two barriers
};
struct Fiber {
    ucontext_t context;
    Index thread;
    int warp, lane;
    bool done;
    std::vector<std::vector<std::function<void()>>> copies;  // asynchronous copies, in groups; the last is still open
};

inline ucontext_t scheduler;
inline std::vector<Fiber> fibers;
inline std::vector<Warp> warps;
inline Barrier block;
inline Fiber* now;
inline long long progress;
inline int status;
inline std::function<void()> kernel;

inline void pass_if_full(Barrier& barrier)
{
    if (barrier.arrived < barrier.members || barrier.members == 0) return;
    barrier.arrived = 0;
    ++barrier.turn;
    ++progress;
}

inline void wait(Barrier& barrier)
{
    const int turn = barrier.turn;
    ++barrier.arrived;
    pass_if_full(barrier);
    while (barrier.turn == turn) swapcontext(&now->context, &scheduler);
}

inline void run_thread()
{
    kernel();
    now->done = true;
    ++progress;
    for (Barrier* barrier : {&block, &warps[now->warp].barrier}) {  // who has returned is no longer waited for
        --barrier->members;
        pass_if_full(*barrier);
    }
}

inline void run_block(bool backwards)
{
    static std::vector<char> stacks;
    constexpr int STACK = 1 << 16;
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    stacks.resize((size_t)threads * STACK);
    fibers.assign(threads, Fiber{});
    warps.assign((threads + 31) / 32, Warp{});
    block = Barrier{0, 0, threads};
    std::memset(dynamic_shared, 0xff, DYNAMIC_BYTES);  // NaN: what nobody wrote must not pass for a number
    for (int i = 0; i < threads; ++i) {
        Fiber& fiber = fibers[i];
        fiber.thread = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        fiber.warp = i / 32;
        fiber.lane = i % 32;
        fiber.copies.resize(1);
        ++warps[fiber.warp].barrier.members;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = stacks.data() + (size_t)i * STACK;
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, run_thread, 0);
    }
    for (int left = threads; left > 0;) {
        const long long before = progress;
        left = 0;
        for (int i = 0; i < threads; ++i) {
            now = &fibers[backwards ? threads - 1 - i : i];
            if (now->done) continue;
            threadIdx = now->thread;
            swapcontext(&scheduler, &now->context);
            if (status) return;
            left += !now->done;
        }
        if (left && progress == before) {
            status = -1;
            return;
        }
    }
}

inline void on_signal(int signal)
{
    status = signal;
    setcontext(&scheduler);
}

// 0, -1 where a barrier waits for ever, or the signal of a forbidden access.
inline int launch(Index grid, Index threads, bool backwards, std::function<void()> call)
{
    struct sigaction mine = {}, old[3];
    mine.sa_handler = on_signal;
    const int signals[] = {SIGSEGV, SIGILL, SIGTRAP};
    for (int i = 0; i < 3; ++i) sigaction(signals[i], &mine, &old[i]);
    gridDim = grid;
    blockDim = threads;
    kernel = std::move(call);
    status = 0;
    const int blocks = grid.x * grid.y * grid.z;
    for (int i = 0; i < blocks && !status; ++i) {
        const int at = backwards ? blocks - 1 - i : i;
        blockIdx = {at % grid.x, at / grid.x % grid.y, at / (grid.x * grid.y)};
        run_block(backwards);
    }
    for (int i = 0; i < 3; ++i) sigaction(signals[i], &old[i], nullptr);
    return status;
}

// Shows `value` to the lanes of the warp, and calls `read` with what they all show.
template <class T, class Read> auto exchange(const T& value, Read read)
{
    Warp& warp = warps[now->warp];
    warp.slots[now->lane] = &value;
    wait(warp.barrier);
    auto result = read([&](int lane) -> const T& { return *static_cast<const T*>(warp.slots[lane]); });
    wait(warp.barrier);
    return result;
}

}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::wait(cuda_on_cpu::block); }

inline float __shfl_down_sync(unsigned int, float value, int distance)
{
    const int lane = cuda_on_cpu::now->lane;
    return cuda_on_cpu::exchange(value, [&](auto of) { return lane + distance < 32 ? of(lane + distance) : value; });
}
