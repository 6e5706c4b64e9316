"""Tensor cores: mma.sync of several types, ldmatrix, and nvcuda::wmma. The layouts are
those of the PTX ISA.
"""

import numpy as np

from test_kerneltrace.cplusplus.case import Cases, Flaw, below, random, zeros
from test_kerneltrace.cplusplus.numbers import bf16
from test_kerneltrace.textbook.entry import Want

CASES = Cases()
A16 = random(16, 16)
B16 = random(16, 8) - 0.5
LANES = "    int lane = threadIdx.x, g = lane >> 2, t = lane & 3;\n"
SUM = """    d[g * 8 + 2 * t] = c[0]; d[g * 8 + 2 * t + 1] = c[1];
    d[(g + 8) * 8 + 2 * t] = c[2]; d[(g + 8) * 8 + 2 * t + 1] = c[3];
}"""
for kind, code, dtype in (("f16", "half", np.float16), ("bf16", "__nv_bfloat16", None)):
    a, b = (
        m.astype(dtype) if dtype else (bf16(m).view(np.uint32) >> 16).astype(np.uint16)
        for m in (A16, B16)
    )
    exact = [a.astype("f4"), b.astype("f4")] if dtype else [bf16(A16), bf16(B16)]
    CASES(
        f"mma.sync m16n8k16 of {kind}",
        f"""#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void k(const {code}* a, const {code}* b, float* d) {{
{LANES}    unsigned A[4], B[2];
    float c[4] = {{0, 0, 0, 0}};
    for (int i = 0; i < 4; ++i) A[i] = *(const unsigned*)&a[(g + 8 * (i & 1)) * 16 + 2 * t + 8 * (i >> 1)];
    for (int i = 0; i < 2; ++i) {{
        {code} pair[2] = {{b[(2 * t + 8 * i) * 8 + g], b[(2 * t + 8 * i + 1) * 8 + g]}};
        B[i] = *(unsigned*)pair;
    }}
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, "
                 "{{%0,%1,%2,%3}};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
{SUM}""",
        1,
        32,
        a,
        b,
        zeros(16, 8),
        want={2: exact[0] @ exact[1]},
        rtol=1e-4,
        flaws=[
            Flaw(
                "raised",
                'asm volatile("mma',
                "    asm volatile",
                "    if (lane < 16) asm volatile",
                "32 lanes",
            )
        ]
        if dtype
        else (),
    )
TF = (random(16, 8) * 4).astype(np.float16).astype(np.float32)
CASES(
    "mma.sync m16n8k8 of tf32",
    f"""__global__ void k(const float* a, const float* b, float* d) {{
{LANES}    unsigned A[4], B[2];
    float c[4] = {{0, 0, 0, 0}};
    for (int i = 0; i < 4; ++i)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(A[i]) : "f"(a[(g + 8 * (i & 1)) * 8 + t + 4 * (i >> 1)]));
    for (int i = 0; i < 2; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(B[i]) : "f"(b[(t + 4 * i) * 8 + g]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, "
                 "{{%0,%1,%2,%3}};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
{SUM}""",
    1,
    32,
    TF,
    TF[:8].copy(),
    zeros(16, 8),
    want={2: TF @ TF[:8]},
    rtol=1e-4,
)
S8 = below(200, 16, 32, dtype=np.int16).astype(np.int8)
CASES(
    "mma.sync m16n8k32 of s8",
    f"""__global__ void k(const signed char* a, const signed char* bt, int* d) {{
{LANES}    int A[4], B[2], c[4] = {{0, 0, 0, 0}};
    for (int i = 0; i < 4; ++i) A[i] = *(const int*)&a[(g + 8 * (i & 1)) * 32 + 4 * t + 16 * (i >> 1)];
    for (int i = 0; i < 2; ++i) B[i] = *(const int*)&bt[g * 32 + 4 * t + 16 * i];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, "
                 "{{%0,%1,%2,%3}};" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
{SUM}""",
    1,
    32,
    S8,
    S8[:8].copy(),
    zeros(16, 8, dtype=np.int32),
    want={2: S8.astype(int) @ S8[:8].astype(int).T},
)
H = random(16, 16).astype(np.float16)
CASES(
    "ldmatrix, plain and transposed, with mma.sync",
    """#include <cuda_fp16.h>
__global__ void k(const half* a, const half* b, float* d) {
    __shared__ __align__(16) half sa[16 * 16], sb[16 * 16];
    int lane = threadIdx.x;
    ((uint4*)sa)[lane] = ((const uint4*)a)[lane];
    ((uint4*)sb)[lane] = ((const uint4*)b)[lane];
    __syncwarp();
    unsigned A[4], B[4];
    unsigned at = (unsigned)__cvta_generic_to_shared(&sa[(lane % 16) * 16 + lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(A[0]), "=r"(A[1]), "=r"(A[2]), "=r"(A[3]) : "r"(at));
    at = (unsigned)__cvta_generic_to_shared(&sb[(lane % 16) * 16 + lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(B[0]), "=r"(B[1]), "=r"(B[2]), "=r"(B[3]) : "r"(at));
    for (int n = 0; n < 2; ++n) {
        float c[4] = {0, 0, 0, 0};
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[2 * n]), "r"(B[2 * n + 1]));
        for (int i = 0; i < 4; ++i) d[(lane / 4 + 8 * (i / 2)) * 16 + 8 * n + lane % 4 * 2 + i % 2] = c[i];
    }
}""",
    1,
    32,
    H,
    H.T.copy(),
    zeros(16, 16),
    want={2: H.astype("f4") @ H.T.astype("f4")},
    rtol=1e-4,
    flaws=[
        Flaw("race", "ldmatrix.sync.aligned.m8n8.x4.shared", "    __syncwarp();\n", ""),
        Flaw(
            "unset",
            "ldmatrix.sync.aligned.m8n8.x4.shared",
            "((uint4*)sa)[lane] =",
            "if (lane < 31) ((uint4*)sa)[lane] =",
        ),
    ],
)
WMMA = """#include <mma.h>
using namespace nvcuda;
__global__ void gemm(const half* a, const half* b, float* c, float* d, int M, int N, int K, float alpha, float beta) {
    int warpM = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
    int warpN = blockIdx.y * blockDim.y + threadIdx.y;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a_frag;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b_frag;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc_frag, c_frag;
    wmma::fill_fragment(acc_frag, 0.0f);
    for (int i = 0; i < K; i += 16) {
        wmma::load_matrix_sync(a_frag, a + warpM * 16 * K + i, K);
        wmma::load_matrix_sync(b_frag, b + warpN * 16 * K + i, K);
        wmma::mma_sync(acc_frag, a_frag, b_frag, acc_frag);
    }
    wmma::load_matrix_sync(c_frag, c + warpM * 16 * N + warpN * 16, N, wmma::mem_row_major);
    for (int i = 0; i < c_frag.num_elements; i++)
        c_frag.x[i] = alpha * acc_frag.x[i] + beta * c_frag.x[i];
    wmma::store_matrix_sync(d + warpM * 16 * N + warpN * 16, c_frag, N, wmma::mem_row_major);
}"""
WA = random(32, 48).astype(np.float16)
WB = (random(48, 32) - 0.5).astype(np.float16)
WC = random(32, 32)
CASES(
    "wmma 16 x 16 x 16",
    WMMA,
    1,
    (64, 2),
    WA,
    WB.T.copy(),
    WC,
    zeros(32, 32),
    32,
    32,
    48,
    2.0,
    0.5,
    rtol=1e-4,
    want={3: 2 * (WA.astype("f4") @ WB.astype("f4")) + 0.5 * WC},
    # 4 warps, 3 steps: 16 rows of 32 bytes, a sector each; of d 16 rows of 64 bytes.
    counts={"a load": Want(12, 4 * 3 * 16), "d store": Want(8, 4 * 32)},
    flaws=[
        Flaw(
            "outside",
            "load_matrix_sync(a_frag",
            "a + warpM * 16 * K + i",
            "a + (warpM * 16 + 1) * K + i",
            "a[",
        )
    ],
)
for name, element, shape in (
    ("wmma with the sum in half, 32 x 8 x 16, from shared memory", "half", (32, 8, 16)),
    ("wmma of s8, 8 x 32 x 16", "signed char", (8, 32, 16)),
    ("wmma of bfloat16", "__nv_bfloat16", (16, 16, 16)),
    ("wmma of tf32", "wmma::precision::tf32", (16, 16, 8)),
    ("wmma of double", "double", (8, 8, 4)),
):
    m, n, k = shape
    made = {"half": np.float16, "signed char": np.int8, "double": np.float64}.get(
        element, np.float32
    )
    full = {"half": np.float16, "signed char": np.int32, "double": np.float64}.get(
        element, np.float32
    )
    a, b = (
        below(100, *s, dtype=np.int8) - np.int8(50)
        if made is np.int8
        else (4 * random(*s)).astype("f2").astype(made)
        for s in ((m, k), (k, n))
    )
    passed = [a, b]
    if "bfloat" in element:
        passed = [(bf16(x).view(np.uint32) >> 16).astype(np.uint16) for x in (a, b)]
        a = bf16(a)
        b = bf16(b)
    stored = {"wmma::precision::tf32": "float"}.get(element, element)
    total = {np.float16: "half", np.int32: "int", np.float64: "double"}.get(
        full, "float"
    )
    CASES(
        name,
        f"""#include <mma.h>
using namespace nvcuda;
__global__ void k(const {stored}* a, const {stored}* b, {total}* d) {{
    __shared__ __align__(32) {stored} s[{m * k}];
    for (int i = threadIdx.x; i < {m * k}; i += 32) s[i] = a[i];
    __syncwarp();
    wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, {element}, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, {element}, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, {m}, {n}, {k}, {total}> fc;
    wmma::fill_fragment(fc, ({total})1);
    wmma::load_matrix_sync(fa, s, {k});
    wmma::load_matrix_sync(fb, b, {n});
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d, fc, {m}, wmma::mem_col_major);
}}""",
        1,
        32,
        *passed,
        zeros(n, m, dtype=full),
        rtol=1e-2 if full is np.float16 else 1e-4,
        want={2: (a.astype("f8") @ b.astype("f8") + 1).T},
        # Of doubles each lane loads here what it stored itself.
        flaws=[Flaw("race", "load_matrix_sync(fa", "    __syncwarp();\n", "")]
        if element != "double"
        else [],
    )
