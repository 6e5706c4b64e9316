// The inline PTX of matmul_bfloat16.cu on the CPU, from its description in the PTX ISA (9.7, Instructions): cp.async,
// ldmatrix, mma.sync.m16n8k16 and cvt.rn.bf16x2.f32. An asynchronous copy lands as late as the waits allow, so that
// a wait too few reads what is not there yet.
#pragma once

inline float from_bfloat16(unsigned int bits)
{
    bits <<= 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline void copy16_async(bfloat16* to, const bfloat16* from, bool inside)
{
    cuda_on_cpu::now->copies.back().push_back([=] {
        *reinterpret_cast<uint4*>(to) = inside ? *reinterpret_cast<const uint4*>(from) : uint4{};
    });
}

inline void close_copies() { cuda_on_cpu::now->copies.emplace_back(); }

template <int open> void wait_for_copies()
{
    auto& groups = cuda_on_cpu::now->copies;
    while ((int)groups.size() - 1 > open) {
        for (auto& copy : groups.front()) copy();
        groups.erase(groups.begin());
    }
}

inline void load_matrices(unsigned int (&to)[4], const bfloat16* row)
{
    const int lane = cuda_on_cpu::now->lane;
    cuda_on_cpu::exchange(row, [&](auto row_of) {
        for (int i = 0; i < 4; ++i) std::memcpy(&to[i], row_of(8 * i + lane / 4) + lane % 4 * 2, 4);
        return *reinterpret_cast<const uint4*>(row);  // only to trap where a row is not aligned to 16 bytes
    });
}

inline void load_matrices_transposed(unsigned int (&to)[4], const bfloat16* row)
{
    const int lane = cuda_on_cpu::now->lane;
    cuda_on_cpu::exchange(row, [&](auto row_of) {
        for (int i = 0; i < 4; ++i) {
            const int first = 8 * i + lane % 4 * 2;
            to[i] = row_of(first)[lane / 4] | (unsigned int)row_of(first + 1)[lane / 4] << 16;
        }
        return *reinterpret_cast<const uint4*>(row);
    });
}

struct Fragments { unsigned int a[4], b[2]; };

inline void multiply_add(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1)
{
    const int lane = cuda_on_cpu::now->lane;
    const Fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    cuda_on_cpu::exchange(mine, [&](auto of) {
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            for (int k = 0; k < 16; ++k) {
                const unsigned int in_a = of(row % 8 * 4 + k % 8 / 2).a[k / 8 * 2 + row / 8];
                const unsigned int in_b = of(column * 4 + k % 8 / 2).b[k / 8];
                sums[i] += from_bfloat16(in_a >> k % 2 * 16 & 0xffff) * from_bfloat16(in_b >> k % 2 * 16 & 0xffff);
            }
        }
        return 0;
    });
}

inline unsigned int pack(float first, float second)
{
    auto round = [](float value) -> unsigned int {
        unsigned int bits;
        std::memcpy(&bits, &value, 4);
        return value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // to the nearest, ties to even
    };
    return round(first) | round(second) << 16;
}
