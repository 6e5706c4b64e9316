"""Plausible wrong answers of notebook 05: number -> (answer, words the check must say, misconception)."""

import numpy as np
import torch

from kerneltrace import occupancy


def with_numpys_arange(logits, labels, xp):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return (
        xp.log(xp.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
    ).mean()


def with_a_range(logits, labels, xp):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return (xp.log(xp.exp(shifted).sum(axis=1)) - shifted[range(len(labels)), labels]).mean()


def fetched(logits, labels, xp):
    if xp is not np:
        logits, labels = logits.get(), labels.get()
    return right(logits, labels, np)


def converted(logits, labels, xp):
    return right(np.asarray(logits), np.asarray(labels), np)


def right(logits, labels, xp):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return (
        xp.log(xp.exp(shifted).sum(axis=1)) - shifted[xp.arange(len(labels)), labels]
    ).mean()


def overflowing(logits, labels, xp):
    with np.errstate(all="ignore"):
        return (
            xp.log(xp.exp(logits).sum(axis=1)) - logits[xp.arange(len(labels)), labels]
        ).mean()


def changes_the_logits(logits, labels, xp):
    logits -= logits.max(axis=1, keepdims=True)
    return right(logits, labels, xp)


def log_of_zero(logits, labels, xp):
    shifted = logits - logits.max(axis=1, keepdims=True)
    share = xp.exp(shifted) / xp.exp(shifted).sum(axis=1, keepdims=True)
    return -xp.log(share[xp.arange(len(labels)), labels]).mean()


def row_by_row(logits, labels, xp):
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        shifted = row - row.max()
        total = total + xp.log(xp.exp(shifted).sum()) - shifted[label]
    return total / len(labels)


def sum_not_mean(logits, labels, xp):
    return right(logits, labels, xp) * len(labels)


def as_a_float(logits, labels, xp):
    return float(right(logits, labels, xp))


def at_the_first_label(logits, labels, xp):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return (xp.log(xp.exp(shifted).sum(axis=1)) - shifted[:, labels[0]]).mean()


def parts(map="(x - y) * (x - y)", reduce="a + b", post="z = sqrt(a)", identity="0"):  # noqa: A002
    return {"map": map, "reduce": reduce, "post": post, "identity": identity}


GELU = r"""
extern "C" __global__ void gelu(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float v = x[i];
        const float inner = 0.7978845608f * (v + 0.044715f * v * v * v);
        y[i] = 0.5f * v * (1.0f + tanh(inner));
    }
}
"""
TANH_APPROX = """__device__ float tanh_approx(float v)
{ float made; asm("tanh.approx.f32 %0, %1;" : "=f"(made) : "f"(v)); return made; }
extern"""
IN_HALF = "#include <cuda_fp16.h>\n" + GELU.replace(
    "= x[i];", "= __half2float(__float2half(x[i]));"
)


def fraction(build, block):
    return occupancy(
        block,
        registers=build.registers,
        shared_bytes=build.shared_bytes,
        compute_capability=(8, 0),
    ).fraction


def without_spills(builds):
    return {cap: build for cap, build in builds.items() if build.spill_store_bytes == 0}


def whatever_spills(builds, block):
    return max(builds, key=lambda cap: fraction(builds[cap], block))


def largest_without_spills(builds, block):
    return max(without_spills(builds))


def smallest_without_spills(builds, block):
    return min(without_spills(builds))


def the_first_of_the_best(builds, block):
    return min(without_spills(builds), key=lambda cap: (-fraction(builds[cap], block), cap))


def without_shared_memory(builds, block):
    whole = without_spills(builds)

    def by_registers(cap):
        return occupancy(
            block, registers=whole[cap].registers, compute_capability=(8, 0)
        ).fraction

    return max(whole, key=lambda cap: (by_registers(cap), cap))


def by_a_rounded_share(rounded):
    def best_cap(builds, block):
        whole = without_spills(builds)
        return max(whole, key=lambda cap: (rounded(fraction(whole[cap], block)), cap))

    return best_cap


def first_in_order(builds, block):
    whole = without_spills(builds)
    return max(whole, key=lambda cap: fraction(whole[cap], block))


def last_in_order(builds, block):
    return first_in_order(dict(reversed(builds.items())), block)


def by_the_cap(builds, block):
    def filled(cap):
        shared = whole[cap].shared_bytes
        return occupancy(
            block, registers=cap, shared_bytes=shared, compute_capability=(8, 0)
        ).fraction

    whole = {
        cap: build
        for cap, build in builds.items()
        if build.spill_store_bytes + build.spill_load_bytes == 0
    }
    return max(whole, key=lambda cap: (filled(cap), cap))


def stored_spills_only(builds, block):
    whole = without_spills(builds)
    return max(whole, key=lambda cap: (fraction(whole[cap], block), cap))


def loaded_spills_only(builds, block):
    whole = {cap: build for cap, build in builds.items() if build.spill_load_bytes == 0}
    return max(whole, key=lambda cap: (fraction(whole[cap], block), cap))


def for_blocks_of_256(builds, block):
    whole = without_spills(builds)
    return max(whole, key=lambda cap: (fraction(whole[cap], 256), cap))


def blocks_by(registers, most=32):
    """A choice by an occupancy worked out by hand, with `registers` a block of some warps."""

    def best_cap(builds, block):
        def blocks(build):
            reserved = -(-(build.shared_bytes + 1024) // 128) * 128
            shared = 164 * 1024 // reserved if build.shared_bytes else most
            warps = -(-block // 32)
            return min(64 // warps, most, 65536 // registers(build.registers, warps), shared)

        whole = {
            cap: one
            for cap, one in builds.items()
            if one.spill_store_bytes + one.spill_load_bytes == 0
        }
        return max(whole, key=lambda cap: (blocks(whole[cap]), cap))

    return best_cap


def copied(x):
    return torch.tensor(np.from_dlpack(x)).clamp_(min=0)


def out_of_place(x):
    return torch.from_dlpack(x).clamp(min=0)


def numpys_only(x):
    return torch.from_numpy(x).clamp_(min=0)


def contiguous_first(x):
    return torch.from_dlpack(x).contiguous().clamp_(min=0)


def as_float(x):
    return torch.from_dlpack(x).float().clamp_(min=0)


def through_numpy(x):
    return torch.from_numpy(np.from_dlpack(x)).clamp_(min=0)


def drops_small_ones(x):
    return torch.nn.functional.threshold_(torch.from_dlpack(x), 1e-3, 0)


def returns_the_array(x):
    torch.from_dlpack(x).clamp_(min=0)
    return x


def with_one_maximum_for_all(logits, labels, xp):
    s = logits - logits.max()
    return (xp.log(xp.exp(s).sum(axis=1)) - s[xp.arange(len(labels)), labels]).mean()


def with_a_binary_logarithm(logits, labels, xp):
    s = logits - logits.max(axis=1, keepdims=True)
    return (xp.log2(xp.exp(s).sum(axis=1)) - s[xp.arange(len(labels)), labels]).mean()


def with_clipped_logits(logits, labels, xp):
    s = xp.clip(logits, -80, 80)
    return (xp.log(xp.exp(s).sum(axis=1)) - s[xp.arange(len(labels)), labels]).mean()


def with_a_maximum_of_at_least_0(logits, labels, xp):
    s = logits - logits.max(axis=1, keepdims=True, initial=0)
    return (xp.log(xp.exp(s).sum(axis=1)) - s[xp.arange(len(labels)), labels]).mean()


def with_the_mean_taken_away(logits, labels, xp):
    s = logits - logits.mean(axis=1, keepdims=True)
    return (xp.log(xp.exp(s).sum(axis=1)) - s[xp.arange(len(labels)), labels]).mean()


def with_a_sum_in_float16(logits, labels, xp):
    s = logits - logits.max(axis=1, keepdims=True)
    total = xp.exp(s).sum(axis=1, dtype=xp.float16)
    return (xp.log(total) - s[xp.arange(len(labels)), labels]).mean()


def for_another_capability(builds, block):
    def filled(build):
        resources = {"registers": build.registers, "shared_bytes": build.shared_bytes}
        return occupancy(block, **resources, compute_capability=(8, 6)).fraction

    whole = without_spills(builds)
    return max(whole, key=lambda cap: (filled(whole[cap]), cap))


def registers_of_the_best(builds, block):
    whole = without_spills(builds)
    return whole[max(whole, key=lambda cap: (fraction(whole[cap], block), cap))].registers


def half_full_is_enough(builds, block):
    whole = without_spills(builds)
    return max([cap for cap in whole if fraction(whole[cap], block) >= 0.5] or whole)


def turned_positive(x):
    return torch.from_dlpack(x).abs_()


def through_a_new_tensor(x):
    return torch.from_dlpack(x).relu()


def flattened_first(x):
    t = torch.from_dlpack(x)
    t.reshape(-1).clamp_(min=0)
    return t


def cut_at_1(x):
    return torch.from_dlpack(x).clamp_(min=0, max=1)


WRONG = {
    "05.1": [
        (with_numpys_arange, "make every new array with xp", "numpy-takes-gpu-arrays"),
        (with_a_range, "Make the indices there, with xp.arange", "numpy-takes-gpu-arrays"),
        (fetched, "fetched numbers from the GPU", "reading-is-free"),
        (converted, "does not turn into one of NumPy's", "numpy-takes-gpu-arrays"),
        (overflowing, "subtract each row's largest", "exp-never-overflows"),
        (changes_the_logits, "changed the caller's logits", "input-is-mine"),
        (log_of_zero, "take the log of the sum only", "exp-never-overflows"),
        (row_by_row, "a kernel launch on a GPU", "python-loop-per-item"),
        (sum_not_mean, "the mean over the rows", "sum-for-mean"),
        (as_a_float, "makes the CPU wait", "reading-is-free"),
        (at_the_first_label, "minus the logit at the label", "other-formula"),
        (with_one_maximum_for_all, "take the log of the sum only", "exp-never-overflows"),
        (with_a_binary_logarithm, "the mean over the rows", "other-formula"),
        (with_clipped_logits, "the mean over the rows", "exp-never-overflows"),
        (with_a_maximum_of_at_least_0, "each row's largest", "right-for-one-case"),
        (with_the_mean_taken_away, "each row's largest", "exp-never-overflows"),
        (with_a_sum_in_float16, "rounded to float16", "low-precision-is-enough"),
    ],
    "05.4": [
        (
            parts(map="x - y", reduce="a + b * b"),
            "Taken one after the other it would be right",
            "reduce-has-one-order",
        ),
        (
            parts(map="sqrt((x - y) * (x - y))", post="z = a"),
            "the root comes once, at the end",
            "averaged-at-the-wrong-place",
        ),
        (
            parts(map="fabs(x - y)", post="z = a"),
            "the root comes once, at the end",
            "averaged-at-the-wrong-place",
        ),
        (parts(identity="1"), "identity changes nothing", "reduce-has-one-order"),
        (parts(post="z = a"), "That is its square", "other-formula"),
        (parts(post="sqrt(a)"), "set the output, `z = ...`", "result-of-another-kind"),
        (parts(map="(x - y) ^ 2"), "exclusive or", "cuda-c-is-python"),
        (parts(map="(x - y) ** 2"), "C++ has no **", "cuda-c-is-python"),
        (
            parts(map="a * a"),
            'identifier "a" is undefined. Here map is made of x and y',
            "result-of-another-kind",
        ),
        (parts(post="z = math.sqrt(a)"), 'identifier "math" is undefined', "cuda-c-is-python"),
        (parts(post="z = sqrt(a);"), "where no semicolon may stand", "result-of-another-kind"),
        (parts(post="z = sqrt(-a)"), "makes NaN of it", "other-formula"),
        (parts(reduce="a - b"), "A sum of squares is never negative", "reduce-has-one-order"),
        (
            parts(map="(x - y) * (x - y) * 1.0f", post="z = (float)sqrt(a)"),
            "rounds to float",
            "low-precision-is-enough",
        ),
        (
            parts(identity="1e-300 - 1e-299"),
            "A sum of squares is never negative",
            "reduce-has-one-order",
        ),
        (
            parts(post="z = sqrt(a / n)"),
            'identifier "n" is undefined',
            "result-of-another-kind",
        ),
        (parts(reduce="b"), "reduce makes one of two", "reduce-has-one-order"),
        (
            parts(map="(int)(x - y) * (x - y)"),
            "map makes a number of one pair",
            "other-formula",
        ),
        (
            parts(map="(x - y) * (x - y)); while (1); ("),
            "where no semicolon may stand",
            "attacks-the-check",
        ),
        (parts(reduce="max(a, b)"), "reduce makes one of two", "other-formula"),
        (parts(post="z = pow(a, 1/2)"), "write 1.0/2", "cuda-c-is-python"),
        (parts(identity="0.0/0"), "makes NaN of it", "other-formula"),
        (parts(identity="x"), "identity is made of numbers alone", "result-of-another-kind"),
        (
            parts(map="(x - y) *\n (x - y)", post="z = sqrt(a + 1)"),
            "post comes once",
            "other-formula",
        ),
        (parts(map="(float)(x - y) * (x - y)"), "rounds to float", "low-precision-is-enough"),
        (parts(reduce="(float)(a + b)"), "rounds to float", "low-precision-is-enough"),
        (parts(post="z = sqrtf(a)"), "rounds to float", "low-precision-is-enough"),
        (parts(identity=0), "Expected identity as text", "result-of-another-kind"),
    ],
    "05.5": [
        (GELU.replace("f *", " *").replace("f +", " +"), "double precision", "double-is-free"),
        (GELU.replace("0.044715f", "0.044715"), "double precision", "double-is-free"),
        (
            GELU.replace("tanh(inner)", "tanh((double)inner)"),
            "double precision",
            "double-is-free",
        ),
        (GELU.replace("0.5f", "1 / 2"), "In C++ 1 / 2 is 0", "cuda-c-is-python"),
        (GELU.replace("0.5f", "0"), "Compare with the formula", "other-formula"),
        (GELU.replace("tanh(inner)", "inner"), "Compare with the formula", "other-formula"),
        (
            GELU.replace("tanh(inner)", "tanh_approx(inner)").replace("extern", TANH_APPROX, 1),
            "Compare with the formula",
            "low-precision-is-enough",
        ),
        (
            GELU.replace("0.044715f", "0.0447f"),
            "Compare with the formula",
            "low-precision-is-enough",
        ),
        (
            GELU.replace("1.0f + tanh(inner)", "erff(v * 0.70710678f) + 1.0f"),
            "With erf it is another gelu",
            "other-formula",
        ),
        (
            GELU.replace(
                "tanh(inner)", "(expf(2.0f * inner) - 1.0f) / (expf(2.0f * inner) + 1.0f)"
            ),
            "is nan",
            "exp-never-overflows",
        ),
        (
            GELU.replace("if (i < n) {", "while (x[0] < 1e9f) if (i < n) {"),
            "a loop does not end",
            "attacks-the-check",
        ),
        (
            GELU.replace("y[i] =", "y[i] +="),
            "Compare with the formula",
            "memory-starts-at-zero",
        ),
        (GELU.replace("if (i < n) ", ""), "keep `if (i < n)`", "missing-guard"),
        (GELU.replace("i < n", "i <= n"), "x[37], which is not there", "off-by-one"),
        (
            GELU.replace("blockIdx.x * blockDim.x + ", ""),
            "nothing is written to y[16]",
            "one-block-is-the-grid",
        ),
        (GELU.replace("y[i] =", "y[i + 1] ="), "y[37], which is not there", "off-by-one"),
        (
            GELU.replace("1.0f + tanh", "1.0f - tanh"),
            "Compare with the formula",
            "other-formula",
        ),
        (GELU.replace("1.0f", "1 / 2"), "Compare with the formula", "cuda-c-is-python"),
        (GELU.replace("v * v * v", "v * v"), "Compare with the formula", "other-formula"),
        (
            GELU.replace("const float* x, float* y", "float* y, const float* x"),
            "the order x, y, n",
            "result-of-another-kind",
        ),
        (GELU.replace('extern "C" ', ""), 'keep extern "C"', "result-of-another-kind"),
        (
            GELU.replace("0.7978845608f", "0.8f"),
            "Compare with the formula",
            "low-precision-is-enough",
        ),
        (GELU.replace("0.5f * ", ""), "Compare with the formula", "other-formula"),
        (GELU.replace("tanh(inner)", "tanh(v)"), "Compare with the formula", "other-formula"),
        (IN_HALF, "16 bits", "low-precision-is-enough"),
        (GELU.replace("gelu(", "gelu2("), "one kernel called gelu", "result-of-another-kind"),
        (GELU.replace("0.5f", "0.5g"), "NVRTC rejected line", "result-of-another-kind"),
        (
            "float gelu(float x);",
            "Expected the CUDA C++ source as text",
            "result-of-another-kind",
        ),
    ],
    "05.6": [
        (whatever_spills, "spills", "occupancy-by-one-number"),
        (largest_without_spills, "an SM is filled to", "occupancy-by-one-number"),
        (smallest_without_spills, "an SM is filled to", "occupancy-by-one-number"),
        (the_first_of_the_best, "which leaves the compiler the most room", "other-formula"),
        (without_shared_memory, "by registers and shared memory", "occupancy-by-one-number"),
        (for_blocks_of_256, "Of equally good caps take the largest", "right-for-one-case"),
        (first_in_order, "which leaves the compiler the most room", "right-for-one-case"),
        (last_in_order, "which leaves the compiler the most room", "right-for-one-case"),
        (
            by_a_rounded_share(lambda share: round(share, 1)),
            "36 and 40 of 64 warps",
            "low-precision-is-enough",
        ),
        (
            by_a_rounded_share(lambda share: int(10 * share)),
            "20 and 24 of 64 warps",
            "low-precision-is-enough",
        ),
        (by_the_cap, "For caps above what was needed: ", "occupancy-by-one-number"),
        (stored_spills_only, "stores and loads 16 B", "occupancy-by-one-number"),
        (loaded_spills_only, "stores and loads 16 B", "occupancy-by-one-number"),
        (lambda builds, block: 80, "none of the caps", "hard-coded"),
        (
            blocks_by(lambda registers, warps: registers * 32 * warps),
            "48 and 51 registers",
            "padding-is-free",
        ),
        (
            blocks_by(lambda registers, warps: -(-registers // 8) * 256 * warps),
            "an SM is filled to",
            "padding-is-free",
        ),
        (
            blocks_by(
                lambda registers, warps: -(-registers // 8) * 256 * -(-warps // 4) * 4, most=64
            ),
            "32 of which fit",
            "other-formula",
        ),
        (
            lambda builds, block: max(builds.values(), key=lambda b: b.registers).registers,
            "an SM is filled to",
            "occupancy-by-one-number",
        ),
        (for_another_capability, "an SM is filled to", "right-for-one-case"),
        (registers_of_the_best, "none of the caps", "result-of-another-kind"),
        (half_full_is_enough, "an SM is filled to", "occupancy-by-one-number"),
    ],
    "05.7": [
        (copied, "something was copied", "copy-or-same-memory"),
        (out_of_place, "something was copied", "copy-or-same-memory"),
        (contiguous_first, "something was copied", "copy-or-same-memory"),
        (as_float, "something was copied", "copy-or-same-memory"),
        (numpys_only, "raised", "numpy-takes-gpu-arrays"),
        (through_numpy, "NumPy takes no array that is on a GPU", "numpy-takes-gpu-arrays"),
        (drops_small_ones, "with its negative numbers set to 0", "other-formula"),
        (returns_the_array, "expected a torch tensor", "result-of-another-kind"),
        (turned_positive, "with its negative numbers set to 0", "other-formula"),
        (through_a_new_tensor, "something was copied", "copy-or-same-memory"),
        (flattened_first, "with its negative numbers set to 0", "copy-or-same-memory"),
        (cut_at_1, "with its negative numbers set to 0", "other-formula"),
    ],
}
