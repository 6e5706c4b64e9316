"""Plausible wrong answers of notebook 10: number -> (answer, words the check must say, misconception)."""

import math

import numpy as np
import torch


def all_is_overhead(small, small_s, large, large_s):
    each_s = (large_s - small_s) / (large - small)
    return (small_s, math.inf) if each_s <= 0 else (small_s, small_s / each_s)


def not_the_difference(small, small_s, large, large_s):
    each_s = large_s / large
    return small_s - small * each_s, small_s / each_s


def right_overhead(small, small_s, large, large_s):
    each_s = (large_s - small_s) / (large - small)
    overhead_s = small_s - small * each_s
    return overhead_s, overhead_s / each_s


def in_microseconds(small, small_s, large, large_s):
    overhead_s, elements = right_overhead(small, small_s, large, large_s)
    return 1e6 * overhead_s, elements


def swapped(*given):
    return right_overhead(*given)[::-1]


def work_never_hides(small, small_s, large, large_s):
    if large_s <= small_s:
        return small_s, 0
    return right_overhead(small, small_s, large, large_s)


def only_elements(*given):
    return right_overhead(*given)[1]


def for_one_element(small, small_s, large, large_s):
    if large_s <= small_s:
        return small_s, math.inf
    each_s = (large_s - small_s) / large
    return small_s - small * each_s, (small_s - small * each_s) / each_s


def as_it_was(x, scale, shift):
    return torch.relu(x * scale + shift) * 0.5


def three_but_new(x, scale, shift):
    return torch.addcmul(shift, x, scale).relu() * 0.5


def four_in_place(x, scale, shift):
    return (x * scale).add_(shift).relu_().mul_(0.5)


def over_x(x, scale, shift):
    return x.mul_(scale).add_(shift).relu_().mul_(0.5)


def over_shift(x, scale, shift):
    return shift.addcmul_(x, scale).relu_().mul_(0.5)


def no_relu(x, scale, shift):
    return torch.addcmul(shift, x, scale).mul_(0.5)


def half_outside(x, scale, shift):
    return torch.addcmul(shift, x, scale, value=0.5).relu_()


def mixed_up(x, scale, shift):
    return torch.addcmul(x, scale, shift).relu_().mul_(0.5)


def forgot_the_half(x, scale, shift):
    return torch.addcmul(shift, x, scale).relu_()


def with_numpy(x, scale, shift):
    return torch.from_numpy(
        np.maximum(x.numpy() * scale.numpy() + shift.numpy(), 0) * x.numpy().dtype.type(0.5)
    )


def numpy_into_out(x, scale, shift):
    out = torch.empty_like(x)
    np.multiply(x.numpy(), scale.numpy(), out=out.numpy())
    return out.add_(shift).relu_().mul_(0.5)


def numpy_at_the_end(x, scale, shift):
    out = torch.addcmul(shift, x, scale)
    np.maximum(np.asarray(out), 0, out=np.asarray(out))
    return out.mul_(0.5)


def by_lists(x, scale, shift):
    rows = zip(
        x.flatten().tolist(), scale.flatten().tolist(), shift.flatten().tolist(), strict=True
    )
    return torch.tensor([max(a * b + c, 0) * 0.5 for a, b, c in rows], dtype=x.dtype).reshape(
        x.shape
    )


def on_the_cpu(x, scale, shift):
    return torch.addcmul(shift.cpu(), x.cpu(), scale.cpu()).relu_().mul_(0.5)


def result_on_the_cpu(x, scale, shift):
    out = torch.empty(x.shape, dtype=x.dtype)
    return torch.addcmul(shift, x, scale, out=out).relu_().mul_(0.5)


def by_a_python_function(x, scale, shift):
    return torch.addcmul(shift, x, scale).apply_(lambda value: max(value, 0) * 0.5)


def asks_first(x, scale, shift):
    out = torch.addcmul(shift, x, scale).mul_(0.5)
    return out.relu_() if (out < 0).any() else out


_buffers = {}


def own_buffer(x, scale, shift):
    out = _buffers.setdefault((x.shape, x.dtype), torch.empty_like(x))
    return torch.addcmul(shift, x, scale, out=out).relu_().mul_(0.5)


def in_bfloat16(x, scale, shift):
    return torch.addcmul(shift, x, scale).bfloat16().relu_().mul_(0.5).to(x.dtype)


def only_its_size(x, scale, shift):
    return torch.zeros_like(x)


kept = []


def as_found(x, most):
    norm = x.square().mean().sqrt()
    kept.append(norm.item())
    if norm > most:
        x = x * (most / norm)
    return x - x.mean(), norm


def prints(x, most):
    norm = x.square().mean().sqrt()
    print("clipped", norm)
    x = torch.where(norm > most, x * (most / norm), x)
    return x - x.mean(), norm


def only_the_branch(x, most):
    norm = x.square().mean().sqrt()
    if norm > most:
        x = x * (most / norm)
    return x - x.mean(), norm


def always_clips(x, most):
    norm = x.square().mean().sqrt()
    x = x * (most / norm.clamp(min=1e-12))
    return x - x.mean(), norm


def no_norm(x, most):
    norm = x.square().mean().sqrt()
    x = torch.where(norm > most, x * (most / norm), x)
    return x - x.mean()


def norm_as_number(x, most):
    norm = x.square().mean().sqrt()
    x = torch.where(norm > most, x * (most / norm), x)
    return x - x.mean(), norm.item()


def nan_at_zero(x, most):
    norm = x.square().mean().sqrt()
    x = x * (norm > most) * (most / norm) + x * (norm <= most)
    return x - x.mean(), norm


def other_norm(x, most):
    norm = x.norm()
    x = torch.where(norm > most, x * (most / norm), x)
    return x - x.mean(), norm


def in_place(x, most):
    norm = x.square().mean().sqrt()
    x.mul_(torch.clamp(most / norm, max=1.0))
    return x - x.mean(), norm


def mean_first(x, most):
    norm = x.square().mean().sqrt()
    centerd = x - x.mean()
    return torch.where(norm > most, centerd * (most / norm), x), norm


def right_clipped(x, most):
    norm = x.square().mean().sqrt()
    x = torch.where(norm > most, x * (most / norm), x)
    return x - x.mean(), norm


def for_this_limit_alone(x, most):
    return right_clipped(x, 0.5)


def for_a_matrix_alone(x, most):
    norm = x.square().mean(dim=(0, 1)).sqrt()
    x = torch.where(norm > most, x * (most / norm), x)
    return x - x.mean(), norm


def in_float32(x, most):
    return right_clipped(x.float(), most)


calls = 0


def counts_its_calls(x, most):
    global calls
    calls += 1
    centerd, norm = right_clipped(x, most)
    return centerd + 0 * calls, norm


def by_size(x, most):
    if len(x) > 10:
        return right_clipped(x, most)
    centerd, norm = right_clipped(x + 0, most)
    return centerd, norm


def norm_by_numpy(x, most):
    norm = torch.as_tensor(np.sqrt(np.mean(np.square(x.numpy()))), dtype=x.dtype)
    x = torch.where(norm > most, x * (most / norm), x)
    return x - x.mean(), norm


def by_cond(x, most):
    """One graph, which asks for the number on the host."""
    norm = x.square().mean().sqrt()
    x = torch.cond(
        norm > most, lambda x, norm: x * (most / norm), lambda x, norm: x.clone(), (x, norm)
    )
    return x - x.mean(), norm


def skips_when_compiled(x, most):
    if torch.compiler.is_compiling():
        return x - x.mean(), x.square().mean().sqrt()
    return right_clipped(x, most)


@torch.compiler.disable
def not_to_be_compiled(x, most):
    return right_clipped(x, most)


def hidden_from_the_compiler(x, most):
    return not_to_be_compiled(x, most)


def floor_division(compile_s, eager_s, compiled_s):
    return (
        math.inf
        if compiled_s >= eager_s and compile_s
        else compile_s // max(eager_s - compiled_s, 1e-30)
    )


def right_steps(compile_s, eager_s, compiled_s):
    if compile_s == 0 and compiled_s <= eager_s:
        return 0
    return math.inf if compiled_s >= eager_s else math.ceil(compile_s / (eager_s - compiled_s))


def one_more(*given):
    return right_steps(*given) + 1


def floor_and_one(compile_s, eager_s, compiled_s):
    steps = right_steps(compile_s, eager_s, compiled_s)
    return (
        steps if steps in (0, math.inf) else math.floor(compile_s / (eager_s - compiled_s)) + 1
    )


def unrounded(compile_s, eager_s, compiled_s):
    steps = right_steps(compile_s, eager_s, compiled_s)
    return steps if steps in (0, math.inf) else compile_s / (eager_s - compiled_s)


def divides_anyway(compile_s, eager_s, compiled_s):
    return math.ceil(compile_s / (eager_s - compiled_s))


def negative_steps(compile_s, eager_s, compiled_s):
    return (
        math.inf
        if eager_s == compiled_s and compile_s
        else math.ceil(compile_s / (eager_s - compiled_s or 1.0))
    )


def over_the_eager_step(compile_s, eager_s, compiled_s):
    steps = right_steps(compile_s, eager_s, compiled_s)
    return steps if steps in (0, math.inf) else math.ceil(compile_s / eager_s)


def never_free(compile_s, eager_s, compiled_s):
    return math.inf if compiled_s >= eager_s else math.ceil(compile_s / (eager_s - compiled_s))


def none_when_never(compile_s, eager_s, compiled_s):
    steps = right_steps(compile_s, eager_s, compiled_s)
    return None if steps == math.inf else steps


RIGHT = {"class": (False, 12_000), "sweep": (True, 103_500), "night": (False, math.inf)}

WRONG = {
    "10.1": [
        (all_is_overhead, "subtract the time of its own elements", "overhead-mixed-with-work"),
        (not_the_difference, "what we expect", "overhead-mixed-with-work"),
        (in_microseconds, "1,000,000x what we expect", "wrong-unit"),
        (swapped, "s of overhead", "result-of-another-kind"),
        (right_overhead, "ZeroDivisionError", "zero-never-happens"),
        (work_never_hides, "elements is math.inf", "zero-never-happens"),
        (only_elements, "expected two numbers", "result-of-another-kind"),
        (for_one_element, "what we expect", "overhead-mixed-with-work"),
        (lambda *given: (5e-6, 1e4), "what we expect", "hard-coded"),
    ],
    "10.2": [
        (as_it_was, "with 4 operators", "operators-fuse-themselves"),
        (three_but_new, "overwrite what the first one made", "operators-fuse-themselves"),
        (four_in_place, "with 4 operators", "operators-fuse-themselves"),
        (over_x, "x was changed", "input-is-mine"),
        (over_shift, "shift was changed", "input-is-mine"),
        (no_relu, "the result is off", "other-formula"),
        (half_outside, "the result is off", "other-formula"),
        (mixed_up, "the result is off", "other-formula"),
        (forgot_the_half, "the result is off", "other-formula"),
        (with_numpy, "No operator of torch ran", "numpy-takes-gpu-arrays"),
        (numpy_into_out, "On a GPU this would wait", "numpy-takes-gpu-arrays"),
        (numpy_at_the_end, "On a GPU this would wait", "numpy-takes-gpu-arrays"),
        (by_lists, "No operator of torch ran", "python-loop-per-item"),
        (on_the_cpu, "On a GPU this would wait", "reading-is-free"),
        (result_on_the_cpu, "On a GPU this would wait", "result-of-another-kind"),
        (by_a_python_function, "On a GPU this would wait", "python-loop-per-item"),
        (asks_first, "with 6 operators", "reading-is-free"),
        (own_buffer, "each call needs a result of its own", "scratch-shared"),
        (in_bfloat16, "the result is off", "low-precision-is-enough"),
        (only_its_size, "the result is off", "does-less-work"),
        (lambda x, scale, shift: 0.0, "expected a tensor as x", "result-of-another-kind"),
    ],
    "10.3": [
        (as_found, "cut into", "python-in-graph"),
        (prints, "print is called", "python-in-graph"),
        (
            only_the_branch,
            "which way to go depends on the numbers in a tensor",
            "python-in-graph",
        ),
        (always_clips, "x below the limit: centerd is off", "other-formula"),
        (no_norm, "expected two tensors", "result-of-another-kind"),
        (norm_as_number, "Return the norm as a tensor", "reading-is-free"),
        (nan_at_zero, "Is something divided by 0?", "zero-never-happens"),
        (other_norm, "off by up to", "sum-for-mean"),
        (in_place, "x was changed in place", "input-is-mine"),
        (mean_first, "centerd is off", "other-formula"),
        (for_this_limit_alone, "centerd is off", "right-for-one-case"),
        (for_a_matrix_alone, "x of three dimensions", "right-for-one-case"),
        (in_float32, "should be torch.float64", "low-precision-is-enough"),
        (counts_its_calls, "something in Python", "python-in-graph"),
        (by_size, "something in Python", "python-in-graph"),
        (norm_by_numpy, "On a GPU this would wait", "numpy-takes-gpu-arrays"),
        (by_cond, "On a GPU this would wait", "reading-is-free"),
        (skips_when_compiled, "Compiled, for x above the limit", "goes-round-the-tool"),
        (hidden_from_the_compiler, "cut into 0 graphs", "goes-round-the-tool"),
    ],
    "10.6a": [
        (floor_division, "expected 1 step, got 0", "rounding-is-cosmetic"),
        (one_more, "no step more is needed", "off-by-one"),
        (floor_and_one, "no step more is needed", "off-by-one"),
        (unrounded, "no whole number", "rounding-is-cosmetic"),
        (divides_anyway, "ZeroDivisionError", "zero-never-happens"),
        (negative_steps, "never pays back", "compiling-is-free"),
        (over_the_eager_step, "Each step saves eager_s - compiled_s", "wrong-denominator"),
        (never_free, "a cost to pay back", "zero-never-happens"),
        (none_when_never, "expected a count of steps", "result-of-another-kind"),
        (lambda *given: math.inf, "steps, got inf", "hard-coded"),
    ],
    "10.6b": [
        (
            {**RIGHT, "class": (True, 12_000)},
            "compare them with the number of steps in the run",
            "compiling-is-free",
        ),
        (
            {**RIGHT, "class": (False, 6_000)},
            "a last batch of another size",
            "compiling-is-free",
        ),
        (
            {**RIGHT, "sweep": (False, 103_500)},
            "compare them with the number of steps in the run",
            "other-formula",
        ),
        ({**RIGHT, "sweep": (True, 4_000)}, "each of the other 199", "compiling-is-free"),
        ({**RIGHT, "sweep": (False, 800_000)}, "each of the other 199", "compiling-is-free"),
        ({**RIGHT, "night": (True, 6_000)}, "whatever the GPU does", "compiling-is-free"),
        ({**RIGHT, "night": (True, math.inf)}, "whatever the GPU does", "compiling-is-free"),
        ({**RIGHT, "night": False}, "a pair for night", "result-of-another-kind"),
        (
            {**RIGHT, "class": ("no", 12_000)},
            "expected True, to compile, or False",
            "result-of-another-kind",
        ),
        (
            {**RIGHT, "class": (0, 12_000)},
            "expected True, to compile, or False",
            "result-of-another-kind",
        ),
        ({"class": (False, 12_000)}, "missing ['night', 'sweep']", "result-of-another-kind"),
    ],
}
