"""Plausible wrong answers of notebook 09: number -> (answer, words the check must say, misconception)."""

import functools
import math

import torch


def parts(sign, exponent, fraction):
    return (
        (-1) ** int(sign),
        int(exponent, 2),
        int(fraction, 2) / 2 ** len(fraction),
        2 ** (len(exponent) - 1) - 1,
    )


def no_hidden_one(sign, exponent, fraction):
    s, e, f, bias = parts(sign, exponent, fraction)
    return s * f * 2.0 ** (e - bias)


def no_subnormals(sign, exponent, fraction):
    s, e, f, bias = parts(sign, exponent, fraction)
    return s * (1 + f) * 2.0 ** (e - bias)


def subnormal_scale_of_zero(sign, exponent, fraction):
    s, e, f, bias = parts(sign, exponent, fraction)
    return s * ((e > 0) + f) * 2.0 ** (e - bias)


def bias_of_float16(sign, exponent, fraction):
    s, e, f, _ = parts(sign, exponent, fraction)
    return s * ((e > 0) + f) * 2.0 ** (max(e, 1) - 15)


def bias_off_by_one(sign, exponent, fraction):
    s, e, f, bias = parts(sign, exponent, fraction)
    return s * ((e > 0) + f) * 2.0 ** (max(e, 1) - bias - 1)


def ten_bits_of_fraction(sign, exponent, fraction):
    s, e, _, bias = parts(sign, exponent, fraction)
    return s * ((e > 0) + int(fraction, 2) / 2**10) * 2.0 ** (max(e, 1) - bias)


def no_sign(sign, exponent, fraction):
    _, e, f, bias = parts(sign, exponent, fraction)
    return ((e > 0) + f) * 2.0 ** (max(e, 1) - bias)


def no_negative_zero(sign, exponent, fraction):
    return no_sign(sign, exponent, fraction) * (-1 if sign == "1" else 1) or 0.0


def only_the_example(sign, exponent, fraction):
    return 1.5


def loop(numbers, add):
    total = 0.0
    for number in numbers:
        total = add(total, number)
    return total


def sorted_loop(numbers, add):
    return loop(sorted(numbers), add)


def builtin_sum(numbers, add):
    return sum(numbers)


def sums_in_float32_then_pretends(numbers, add):
    for number in numbers[1:]:
        add(number, 0.0)
    return math.fsum(numbers)


def tree(numbers, add):
    sums = list(numbers)
    while len(sums) > 1:
        sums = [add(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)] + sums[
            len(sums) // 2 * 2 :
        ]
    return sums[0]


def tree_of_powers_of_two(numbers, add):
    sums = list(numbers) or [0.0]
    while len(sums) > 1:
        sums = [add(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)]
    return sums[0]


def two_halves(numbers, add):
    middle = len(numbers) // 2
    if not middle:
        return loop(numbers, add)
    return add(functools.reduce(add, numbers[:middle]), functools.reduce(add, numbers[middle:]))


def padded_tree(numbers, add):
    padded = [
        *numbers,
        *[0.0] * (2 ** math.ceil(math.log2(max(len(numbers), 1))) - len(numbers)),
    ]
    return tree(padded, add)


def scaled_down(numbers, add):
    return (
        len(numbers) * tree([number / len(numbers) for number in numbers], add)
        if numbers
        else 0.0
    )


def weights_of(optimizer):
    return [
        w for group in optimizer.param_groups for w in group["params"] if w.grad is not None
    ]


def step_with(
    clear=True, scale_loss=True, unscale=True, look=True, skip=True, halve=True, grow=True, after=100, only_first=False,
    order=(0, 1), twice=False,
):  # fmt: skip
    """A step with faults switched on."""

    def step(loss, optimizer, scale, good):
        if clear:
            optimizer.zero_grad()
        (scale * loss if scale_loss else loss).backward()
        weights = weights_of(optimizer)
        for weight in weights:
            if unscale:
                weight.grad /= scale
            if twice:
                weight.grad /= scale
        looked_at = weights[:1] if only_first else weights
        finite = all(torch.isfinite(w.grad).all() for w in looked_at) if look else True
        if finite or not skip:
            optimizer.step()
        if not finite:
            found = (scale / 2 if halve else scale, 0)
        elif good + 1 == after and grow:
            found = (2 * scale, 0)
        else:
            found = (scale, good + 1)
        return found[order[0]], found[order[1]]

    return step


def steps_with_scaled_gradients(loss, optimizer, scale, good):
    optimizer.zero_grad()
    (scale * loss).backward()
    weights = [
        w for group in optimizer.param_groups for w in group["params"] if w.grad is not None
    ]
    if not all(torch.isfinite(w.grad).all() for w in weights):
        return scale / 2, 0
    optimizer.step()
    return (2 * scale, 0) if good + 1 == 100 else (scale, good + 1)


def adds_to_old_gradients(loss, optimizer, scale, good):
    (scale * loss).backward()
    weights = [
        w for group in optimizer.param_groups for w in group["params"] if w.grad is not None
    ]
    for weight in weights:
        weight.grad /= scale
    if not all(torch.isfinite(w.grad).all() for w in weights):
        return scale / 2, 0
    optimizer.step()
    return (2 * scale, 0) if good + 1 == 100 else (scale, good + 1)


def unscales_after_the_step(loss, optimizer, scale, good):
    optimizer.zero_grad()
    (scale * loss).backward()
    if not all(torch.isfinite(w.grad).all() for w in weights_of(optimizer)):
        return scale / 2, 0
    optimizer.step()
    for weight in weights_of(optimizer):
        weight.grad /= scale
    return (2 * scale, 0) if good == 99 else (scale, good + 1)


def looks_for_inf_only(loss, optimizer, scale, good):
    optimizer.zero_grad()
    (scale * loss).backward()
    for weight in weights_of(optimizer):
        weight.grad /= scale
    if any(torch.isinf(w.grad).any() for w in weights_of(optimizer)):
        return scale / 2, 0
    optimizer.step()
    return (2 * scale, 0) if good == 99 else (scale, good + 1)


def looks_at_the_largest(loss, optimizer, scale, good):
    optimizer.zero_grad()
    (scale * loss).backward()
    for weight in weights_of(optimizer):
        weight.grad /= scale
    if any(not torch.isfinite(w.grad.max()) for w in weights_of(optimizer)):
        return scale / 2, 0
    optimizer.step()
    return (2 * scale, 0) if good == 99 else (scale, good + 1)


def zeros_what_is_not_finite(loss, optimizer, scale, good):
    optimizer.zero_grad()
    (scale * loss).backward()
    finite = all(torch.isfinite(w.grad).all() for w in weights_of(optimizer))
    for weight in weights_of(optimizer):
        weight.grad = torch.nan_to_num(weight.grad / scale, 0, 0, 0)
    optimizer.step()
    return (scale, good + 1) if finite else (scale / 2, 0)


def forgets_the_unused(loss, optimizer, scale, good):
    optimizer.zero_grad()
    (scale * loss).backward()
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad /= scale
    optimizer.step()
    return scale, good + 1


def clears_at_the_end(loss, optimizer, scale, good):
    found = step_with(clear=False)(loss, optimizer, scale, good)
    optimizer.zero_grad()
    return found


def first_group_only(loss, optimizer, scale, good):
    optimizer.zero_grad()
    (scale * loss).backward()
    weights = [w for w in optimizer.param_groups[0]["params"] if w.grad is not None]
    for weight in weights:
        weight.grad /= scale
    if not all(torch.isfinite(w.grad).all() for w in weights):
        return scale / 2, 0
    optimizer.step()
    return (2 * scale, 0) if good == 99 else (scale, good + 1)


def a_scale_of_its_own(loss, optimizer, scale, good):
    found = step_with()(loss, optimizer, 2.0**14, good)[1]
    return (2 * scale, 0) if good == 99 else (scale, found)


def doubles_before_it_looks(loss, optimizer, scale, good):
    new_scale, after = step_with()(loss, optimizer, scale, good)
    return (scale, 0) if good == 99 and new_scale < scale else (new_scale, after)


def goes_on_counting(loss, optimizer, scale, good):
    new_scale, after = step_with()(loss, optimizer, scale, good)
    return new_scale, after if new_scale <= scale else good + 1


@torch.no_grad()
def no_masters(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        weight -= lr * weight.grad
        master.copy_(weight)


@torch.no_grad()
def masters_not_copied(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master -= lr * weight.grad.float()


@torch.no_grad()
def step_in_bfloat16(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master.copy_(master.bfloat16() - lr * weight.grad)
        weight.copy_(master)


@torch.no_grad()
def uphill(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master += lr * weight.grad.float()
        weight.copy_(master)


@torch.no_grad()
def no_learning_rate(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master -= weight.grad.float()
        weight.copy_(master)


def weights_become_float32(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master -= lr * weight.grad.float()
        weight.data = master.clone()


def new_tensors(weights, masters, lr):
    for i, weight in enumerate(weights):
        masters[i] = masters[i] - lr * weight.grad.float()
        weight.data.copy_(masters[i])


@torch.no_grad()
def only_the_first(weights, masters, lr):
    masters[0] -= lr * weights[0].grad.float()
    weights[0].copy_(masters[0])


def with_gradients_on(weights, masters, lr):
    for weight, master in zip(weights, masters, strict=True):
        master -= lr * weight.grad.float()
        weight.copy_(master)


WRONG = {
    "09.1": [
        (no_hidden_one, "1 plus its fraction", "bits-all-read-alike"),
        (no_subnormals, "subnormal: no 1 before the point", "bits-all-read-alike"),
        (subnormal_scale_of_zero, "the scale of exponent 1", "bits-all-read-alike"),
        (
            bias_of_float16,
            "the bias follows from the number of exponent bits",
            "right-for-one-case",
        ),
        (bias_off_by_one, "Off by a power of two", "off-by-one"),
        (ten_bits_of_fraction, "1 plus its fraction", "right-for-one-case"),
        (no_sign, "the sign is not", "other-formula"),
        (no_negative_zero, "expected -0", "zero-never-happens"),
        (only_the_example, "expected 1.", "hard-coded"),
    ],
    "09.2": [
        (loop, "small numbers no longer change it", "addition-order-is-free"),
        (sorted_loop, "small numbers no longer change it", "addition-order-is-free"),
        (two_halves, "small numbers no longer change it", "addition-order-is-free"),
        (builtin_sum, "only add may add", "goes-round-the-tool"),
        (
            sums_in_float32_then_pretends,
            "none of the sums that add gave",
            "goes-round-the-tool",
        ),
        (
            lambda numbers, add: add.format.round(math.fsum(numbers)),
            "AttributeError",
            "goes-round-the-tool",
        ),
        (tree, "raised IndexError", "zero-never-happens"),
        (tree_of_powers_of_two, "only add may add", "rest-left-out"),
        (padded_tree, "add was called", "other-formula"),
        (scaled_down, "neither a number given nor a sum of it", "other-formula"),
        (lambda numbers, add: 0.0, "only add may add", "hard-coded"),
    ],
    "09.3": [
        (
            step_with(scale_loss=False),
            "multiply the loss before backward()",
            "loss-scaling-by-halves",
        ),
        (
            steps_with_scaled_gradients,
            "divide before optimizer.step()",
            "loss-scaling-by-halves",
        ),
        (unscales_after_the_step, "divide before optimizer.step()", "loss-scaling-by-halves"),
        (
            step_with(scale_loss=False, unscale=False),
            "multiply the loss before backward()",
            "loss-scaling-by-halves",
        ),
        (step_with(twice=True), "too small", "sum-for-mean"),
        (adds_to_old_gradients, "clear old gradients", "gradients-add-up"),
        (clears_at_the_end, "clear old gradients first", "gradients-add-up"),
        (
            step_with(look=False),
            "optimizer.step() was called all the same",
            "loss-scaling-by-halves",
        ),
        (
            step_with(only_first=True),
            "optimizer.step() was called all the same",
            "loss-scaling-by-halves",
        ),
        (
            step_with(skip=False),
            "optimizer.step() was called all the same",
            "loss-scaling-by-halves",
        ),
        (
            looks_for_inf_only,
            "was nan, and optimizer.step() was called",
            "loss-scaling-by-halves",
        ),
        (
            looks_at_the_largest,
            "was -inf, and optimizer.step() was called",
            "right-for-one-case",
        ),
        (
            zeros_what_is_not_finite,
            "optimizer.step() was called all the same",
            "loss-scaling-by-halves",
        ),
        (step_with(halve=False), "expected (", "loss-scaling-by-halves"),
        (step_with(grow=False), "doubles after 100 good steps", "loss-scaling-by-halves"),
        (step_with(after=101), "doubles after 100 good steps", "off-by-one"),
        (step_with(after=99), "doubles after 100 good steps", "off-by-one"),
        (step_with(order=(1, 0)), "After a good step", "result-of-another-kind"),
        (forgets_the_unused, "raised TypeError", "zero-never-happens"),
        (goes_on_counting, "doubles after 100 good steps", "other-formula"),
        (first_group_only, "and another's was not", "right-for-one-case"),
        (a_scale_of_its_own, "The loss was multiplied by 16384", "other-formula"),
        (doubles_before_it_looks, "good=99: expected (", "other-formula"),
        (
            lambda *given: (given[2], given[3] + 1),
            "optimizer.step() was not called",
            "does-less-work",
        ),
        (lambda *given: 1.0, "Expected two numbers back", "result-of-another-kind"),
    ],
    "09.5": [
        (no_masters, "only numbers of bfloat16", "low-precision-is-enough"),
        (step_in_bfloat16, "only numbers of bfloat16", "low-precision-is-enough"),
        (masters_not_copied, "copy it over each time", "copy-or-same-memory"),
        (uphill, "lr times its weight's gradient", "other-formula"),
        (no_learning_rate, "lr times its weight's gradient", "other-formula"),
        (weights_become_float32, "it must stay torch.bfloat16", "result-of-another-kind"),
        (new_tensors, "in place", "copy-or-same-memory"),
        (only_the_first, "lr times its weight's gradient", "right-for-one-case"),
        (with_gradients_on, "leaf Variable", "autograd-follows-intent"),
    ],
}
