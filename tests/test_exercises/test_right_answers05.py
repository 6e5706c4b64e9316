"""Unusual answers to notebook 05's exercises that are right, and have to pass."""

import numpy as np
import pytest
import torch

from exercises.nb05.wrong_answers import GELU, fraction, parts
from tests.helpers import check
from tests.selection import sampled


@pytest.mark.parametrize(
    "changed",
    sampled(
        [
            {"map": "fma(x-y, x-y, 0)"},
            {"map": "x > y ? (x-y)*(x-y) : (y-x)*(y-x)"},
            {"map": "(T)(x-y) * static_cast<T>(x-y)"},
            {"map": "pow(x - y, 2)"},
            {"map": "x*x - 2*x*y + y*y"},
            {"map": "[](T d) { return d * d; }(x - y)"},
            {"map": "/* the square */ (x - y) *\n (x - y)"},
            {"reduce": "fma(a, 1.0, b)"},
            {"map": "x - y", "reduce": "hypot(a, b)", "post": "z = a"},
            {"post": "z = a > 0 ? sqrt(a) : 0"},
            {"post": "z = pow(a, 0.5)"},
            {"post": "z = exp(0.5 * log(a))"},
            {"identity": "T(0)"},
            {"identity": "1 - 1"},
        ],
        3,
    ),
)
def test_a_distance_in_other_words(changed):
    outcome = check("05.4", parts(**changed))
    assert outcome.state == "passed", outcome


def body(text, before=""):
    head = GELU.split("    if (i < n) {")[0]
    return f"{before}{head}{text}}}"


def elementwise(value, before=""):
    return body(f"if (i < n) {{ float v = x[i]; y[i] = {value}; }}", before)


FORMULA = "0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)))"
INNER = "0.7978845608f * (v + 0.044715f * v * v * v)"
CONSTANTS = "__constant__ float half_ = 0.5f, slope = 0.7978845608f;\n"
FUNCTION = f"__device__ __noinline__ float g(float v) {{ return {FORMULA}; }}\n"


@pytest.mark.parametrize(
    "source",
    [
        elementwise(f"v / (1.0f + expf(-2.0f * ({INNER})))"),
        elementwise(f"__fdividef(v, 1.0f + __expf(-2.0f * ({INNER})))"),
        elementwise(f"v / (1.0f + exp2f(-2.885390082f * ({INNER})))"),
        elementwise(f"v * __saturatef(0.5f * (1.0f + tanhf({INNER})))"),
        elementwise("half_ * v * (1.0f + tanhf(slope * (v + 0.044715f * powf(v, 3.0f))))", CONSTANTS),
        elementwise("g(v)", FUNCTION),
        body(f"for (int j = i; j < n; j += gridDim.x * blockDim.x) {{ float v = x[j]; y[j] = {FORMULA}; }}"),
        body(f"if (i >= n) return; const float v = __ldg(x + i); y[i] = {FORMULA};"),
        body(
            "__shared__ float s[256]; if (i < n) s[threadIdx.x] = x[i]; __syncthreads(); "
            f"if (i < n) {{ float v = s[threadIdx.x]; y[i] = {FORMULA}; }}"
        ),
        body(f"for (int j = 4 * i; j < n && j < 4 * i + 4; ++j) {{ float v = x[j]; y[j] = {FORMULA}; }}"),
    ],
)
def test_gelu_in_other_words(source):
    outcome = check("05.5", source)
    assert outcome.state == "passed", outcome


def whole(builds):
    return {cap: one for cap, one in builds.items() if not one.spill_store_bytes and not one.spill_load_bytes}


def by_hand(builds, block):
    def blocks(one):
        warps = -(-block // 32)
        by_registers = 16384 // (-(-one.registers // 8) * 256) * 4 // warps
        by_shared = 164 * 1024 // (-(-(one.shared_bytes + 1024) // 128) * 128) if one.shared_bytes else 32
        return min(64 // warps, 32, by_registers, by_shared)

    return max(whole(builds), key=lambda cap: (blocks(builds[cap]), cap))


def as_numpys_number(builds, block):
    return np.int64(sorted(whole(builds), key=lambda cap: (fraction(builds[cap], block), cap))[-1])


@pytest.mark.parametrize("best_cap", [by_hand, as_numpys_number])
def test_a_cap_chosen_in_another_way(best_cap):
    assert check("05.6", best_cap).state == "passed"


def masked(x):
    shared = torch.from_dlpack(x)
    shared[shared < 0] = 0
    return shared


def copied_back(x):
    shared = torch.asarray(x)
    return shared.copy_(shared.clamp(min=0))


@pytest.mark.parametrize("rectify", [masked, copied_back, lambda x: torch.from_dlpack(x.__dlpack__()).relu_()])
def test_negative_numbers_set_to_zero_in_another_way(rectify):
    assert check("05.7", rectify).state == "passed"
