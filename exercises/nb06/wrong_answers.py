"""Plausible wrong answers of notebook 06: number -> (answer, words the check must say, misconception)."""

import functools

import numba
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d


def sizes(images, channels, outputs, size, kernel):
    side = size - kernel + 1
    pooled = images * outputs * (side // 2) ** 2
    return (
        images * channels * size**2,
        outputs * channels * kernel**2,
        images * outputs * side**2,
        pooled,
    )


def bytes_of(separate, fused):
    """A wrong `block_bytes` from formulas of x, weights, sums, pooled and outputs."""

    def block_bytes(images, channels, outputs, size, kernel):
        found = (*sizes(images, channels, outputs, size, kernel), outputs)
        return separate(*found), fused(*found)

    return block_bytes


def right_separate(x, w, s, p, o):
    return 4 * (x + w + 6 * s + o + p) + 8 * p


def right_fused(x, w, s, p, o):
    return 4 * (x + w + o + p) + p


def even_side(images, channels, outputs, size, kernel):
    """Right where the side of the sums is even only: pooled counted as a quarter of the sums."""
    x, w, s, _ = sizes(images, channels, outputs, size, kernel)
    return right_separate(x, w, s, s / 4, outputs), right_fused(x, w, s, s / 4, outputs)


def in_numbers(images, channels, outputs, size, kernel):
    side = size - kernel + 1
    x, weights = images * channels * size**2, outputs * channels * kernel**2
    sums, pooled = images * outputs * side**2, images * outputs * (side // 2) ** 2
    return x + weights + 6 * sums + outputs + 3 * pooled, x + weights + outputs + pooled


def writes_only(images, channels, outputs, size, kernel):
    side = size - kernel + 1
    x, weights = images * channels * size**2, outputs * channels * kernel**2
    sums, pooled = images * outputs * side**2, images * outputs * (side // 2) ** 2
    fused = 4 * (x + weights + outputs + pooled) + pooled
    return 4 * (x + weights + 3 * sums + outputs + pooled) + 8 * pooled, fused


def sides_rounded_up(images, channels, outputs, size, kernel):
    side = size - kernel + 1
    x, weights = images * channels * size**2, outputs * channels * kernel**2
    sums, pooled = images * outputs * side**2, images * outputs * ((side + 1) // 2) ** 2
    fused = 4 * (x + weights + outputs + pooled) + pooled
    return 4 * (x + weights + 6 * sums + outputs + pooled) + 8 * pooled, fused


def forward_with(x, weight, bias, pooled, choice, *, stride=None, start=None, late=False, turned=False, ties=False,
                 sums_of=None, dead=True):  # fmt: skip
    """The right kernel, with one thing wrong."""
    images, outputs, rows, columns = pooled.shape
    channels, kernel = weight.shape[1], weight.shape[2]
    width = x.shape[3] if stride is None else stride(columns, kernel)
    n = (2 * rows - 1) * width + 2 * columns
    for image in range(images):
        for out in range(outputs):
            first = 0 if late else bias[out]
            sums = np.full(n, first, sums_of or x.dtype)
            for channel in range(channels):
                plane = x[image, channel].ravel()
                for dy in range(kernel):
                    for dx in range(kernel):
                        w = weight[out, channel, kernel - 1 - dy, kernel - 1 - dx] if turned else (
                            weight[out, channel, dy, dx])  # fmt: skip
                        shifted = plane[dy * width + dx :][:n]
                        sums[: len(shifted)] += (w * shifted).astype(sums.dtype)
            for row in range(rows):
                for column in range(columns):
                    at = 2 * row * width + 2 * column
                    cells = [sums[at], sums[at + 1], sums[at + width], sums[at + width + 1]]
                    best = max(cells)
                    which = 3 - cells[::-1].index(best) if ties else cells.index(best)
                    pooled[image, out, row, column] = max(best, 0) + (bias[out] if late else 0)
                    choice[image, out, row, column] = which if best > 0 or not dead else 4


def forward(**wrong):
    """A function of the right five parameters that is wrong in one way."""

    def fused_forward(x, weight, bias, pooled, choice):
        forward_with(x, weight, bias, pooled, choice, **wrong)

    return fused_forward


def first_image_only(x, weight, bias, pooled, choice):
    forward_with(x[:1], weight, bias, pooled[:1], choice[:1])


def four_images_only(x, weight, bias, pooled, choice):
    pooled[:], choice[:] = 0, 4
    forward_with(x[:4], weight, bias, pooled[:4], choice[:4])


def four_outputs_only(x, weight, bias, pooled, choice):
    pooled[:], choice[:] = 0, 4
    forward_with(x, weight[:4], bias, pooled[:, :4], choice[:, :4])


def without_a_bias(x, weight, bias, pooled, choice):
    forward_with(x, weight, 0 * bias, pooled, choice)


def cut_off_at_100(x, weight, bias, pooled, choice):
    forward_with(x, weight, bias, pooled, choice)
    np.minimum(pooled, 100, out=pooled)


def never_quite_0(x, weight, bias, pooled, choice):
    forward_with(x, weight, bias, pooled, choice)
    np.maximum(pooled, 0.01, out=pooled)


def leaks(x, weight, bias, pooled, choice):
    forward_with(x, weight, bias, pooled, choice)
    pooled[choice == 4] = -0.01


def numbers_cells_by_columns(x, weight, bias, pooled, choice):
    forward_with(x, weight, bias, pooled, choice)
    choice[:] = np.array([0, 2, 1, 3, 4])[choice]


def takes_the_mean(x, weight, bias, pooled, choice):
    forward_with(x, weight, bias, pooled, choice)
    sums = conv2d(*map(torch.from_numpy, (x, weight, bias))).relu()
    pooled[:] = avg_pool2d(sums, 2).numpy()


def changes_its_images(x, weight, bias, pooled, choice):
    forward_with(x, weight, bias, pooled, choice)
    np.maximum(x, 0, out=x)


def shares_its_results(x, weight, bias, pooled, choice):
    best, which = np.empty_like(pooled[:1]), np.empty_like(choice[:1])
    for image in numba.prange(len(x)):
        forward_with(x[image : image + 1], weight, bias, best, which)
        pooled[image], choice[image] = best[0], which[0]


def shares_its_weights(x, weight, bias, pooled, choice):
    of_one_output = np.empty_like(weight[:1])  # in the end it always holds the last output's
    for image in numba.prange(len(x)):
        here = np.s_[image : image + 1]
        for out in range(len(weight)):
            of_one_output[0] = weight[out]
            forward_with(
                x[here],
                of_one_output,
                bias[out:],
                pooled[here, out : out + 1],
                choice[here, out : out + 1],
            )


def shares_its_spread(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases):
    spread = np.zeros_like(grad_pooled[0])
    for image in numba.prange(len(x)):
        here = np.s_[image : image + 1]
        spread[:] = grad_pooled[image]
        backward_with(
            spread[None],
            choice[here],
            x[here],
            weight,
            grad_x[here],
            grad_weights[here],
            grad_biases[here],
        )


def adds_in_one_place(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases):
    total = np.zeros_like(grad_biases[0])
    for image in numba.prange(len(x)):
        here = np.s_[image : image + 1]
        backward_with(
            grad_pooled[here],
            choice[here],
            x[here],
            weight,
            grad_x[here],
            grad_weights[here],
            grad_biases[here],
        )
        total += grad_biases[image]


@numba.njit(parallel=True)
def spread_over_rows(scratch, x):
    for image in numba.prange(len(x)):
        scratch[:] = x[image]


def a_helper_that_races(x, weight, bias, pooled, choice):
    spread_over_rows(np.empty_like(x[0]), x)
    forward_with(x, weight, bias, pooled, choice)


def returns_its_result(x, weight, bias, pooled, choice):
    return np.maximum(x, 0)


def other_parameters(images, weight, bias, pooled, choice):
    pass


def backward_with(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases, *, mask=True, bias_sum=True,
                  add_x=True, all_cells=False, always_x=False, of=None, square=False):  # fmt: skip
    """The right kernel, with one thing wrong."""
    images, outputs, rows, columns = grad_pooled.shape
    channels, kernel = weight.shape[1], weight.shape[2]
    for image in range(images):
        for out in range(outputs):
            for row in range(rows):
                for column in range(rows if square else columns):
                    cell = int(choice[image, out, row, column])
                    if cell == 4 and mask:
                        continue
                    back = grad_pooled[image, out, row, column]
                    before = grad_biases[image, out] if bias_sum else 0
                    grad_biases[image, out] = np.add(before, back, dtype=of)
                    for here in range(4) if all_cells else [cell % 4]:
                        top, left = 2 * row + here // 2, 2 * column + here % 2
                        under = np.s_[top : top + kernel, left : left + kernel]
                        for channel in range(channels):
                            part = (back * x[image, channel][under]).astype(of or x.dtype)
                            grad_weights[image, out, channel] += part
                            if len(grad_x) or always_x:
                                old = grad_x[image, channel][under] if add_x else 0
                                grad_x[image, channel][under] = (
                                    old + back * weight[out, channel]
                                )


def backward(**wrong):
    """A function of the right seven parameters that is wrong in one way."""

    def fused_backward(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases):
        backward_with(
            grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases, **wrong
        )

    return fused_backward


def four_outputs_give_to_a_pixel(
    grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases
):
    backward_with(grad_pooled, choice, x, weight, grad_x[:0], grad_weights, grad_biases)
    others = np.zeros_like(grad_weights), np.zeros_like(grad_biases)
    backward_with(grad_pooled[:, :4], choice, x, weight, grad_x, *others)


def four_images_go_back(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases):
    backward_with(grad_pooled[:4], choice, x, weight, grad_x, grad_weights, grad_biases)


def changes_the_weights(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases):
    backward_with(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases)
    weight[:] = 0


def as_layers(x, weight, bias):
    return max_pool2d(conv2d(x, weight, bias).relu(), 2)


def pooled_shape(x, weight):
    return len(x), len(weight), *((side - weight.shape[-1] + 1) // 2 for side in x.shape[2:])


def fake(x, weight, bias):
    return x.new_empty(pooled_shape(x, weight)), x.new_empty(
        pooled_shape(x, weight), dtype=torch.uint8
    )


def fake_of_the_input(x, weight, bias):
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.uint8)


def fake_on_the_cpu(x, weight, bias):
    shape = pooled_shape(x, weight)
    return torch.empty(shape, dtype=x.dtype), torch.empty(shape, dtype=torch.uint8)


def fake_rounded_up(x, weight, bias):
    shape = len(x), len(weight), *((side - weight.shape[-1] + 2) // 2 for side in x.shape[2:])
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.uint8)


def fake_of_one_dtype(x, weight, bias):
    pooled = x.new_empty(pooled_shape(x, weight))
    return pooled, torch.empty_like(pooled)


def remember(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def remember_on_ctx(ctx, inputs, output):
    ctx.inputs = inputs


def gradients_from_ctx(ctx, grad_pooled, grad_choice):
    return torch_gradients(*ctx.inputs, grad_pooled)


def torch_gradients(x, weight, bias, grad_pooled, of=as_layers):
    with torch.enable_grad():
        inputs = [tensor.detach().requires_grad_() for tensor in (x, weight, bias)]
        return torch.autograd.grad(of(*inputs), inputs, grad_pooled)


def gradients(ctx, grad_pooled, grad_choice):
    return torch_gradients(*ctx.saved_tensors, grad_pooled)


def without_bias(ctx, grad_pooled, grad_choice):
    return (*gradients(ctx, grad_pooled, grad_choice)[:2], None)


def bias_not_summed_over_the_batch(ctx, grad_pooled, grad_choice):
    *others, _ = gradients(ctx, grad_pooled, grad_choice)
    x, weight, bias = ctx.saved_tensors
    return (*others, torch_gradients(x[:1], weight, bias, grad_pooled[:1])[2])


def no_relu_mask(ctx, grad_pooled, grad_choice):
    def without_relu(x, weight, bias):
        return max_pool2d(conv2d(x, weight, bias), 2)

    return torch_gradients(*ctx.saved_tensors, grad_pooled, of=without_relu)


def swapped(ctx, grad_pooled, grad_choice):
    of_x, of_weight, of_bias = gradients(ctx, grad_pooled, grad_choice)
    return of_weight, of_x, of_bias


def through_numpy(ctx, grad_pooled, grad_choice):
    found = gradients(ctx, grad_pooled, grad_choice)
    return tuple(torch.from_numpy(part.numpy()) for part in found)


@functools.cache
def operator(name, fake=fake, remember=remember, gradients=gradients, scale=1.0):
    """An operator over torch's own layers, registered under `name`, with the parts that are given (None: none)."""

    def block(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        pooled = scale * as_layers(x, weight, bias)
        return pooled, torch.zeros_like(pooled, dtype=torch.uint8)

    made = torch.library.custom_op(f"wrong06::{name}", block, mutates_args=())
    if fake is not None:
        made.register_fake(fake)
    if gradients is not None:
        made.register_autograd(gradients, setup_context=remember)
    return made


def weights_for_each_image(images, channels, outputs, size, kernel):
    x, w, s, p = sizes(images, channels, outputs, size, kernel)
    return right_separate(x, images * w, s, p, outputs), right_fused(
        x, images * w, s, p, outputs
    )


def with_an_index_of_8_bytes(images, channels, outputs, size, kernel):
    found = (*sizes(images, channels, outputs, size, kernel), outputs)
    return right_separate(*found), right_fused(*found) + 7 * found[3]


def with_sums_as_large_as_the_image(images, channels, outputs, size, kernel):
    found = (*sizes(images, channels, outputs, size, 1)[:1], outputs * channels * kernel**2)
    found = (*found, *sizes(images, channels, outputs, size, 1)[2:], outputs)
    return right_separate(*found), right_fused(*found)


WRONG = {
    "06.4": [
        (in_numbers, "0.25x", "wrong-unit"),  # numbers, not bytes
        (writes_only, "what does each read", "half-the-work-counted"),
        (
            bytes_of(lambda x, w, s, p, o: right_separate(x, w, s, p, o) - 8 * p, right_fused),
            "4 + 8 bytes",
            "other-formula",
        ),
        (
            bytes_of(right_separate, lambda x, w, s, p, o: right_fused(x, w, s, p, o) + 4 * s),
            "4 + 1 bytes",
            "other-formula",
        ),
        (sides_rounded_up, "what is written was written", "rounding-is-cosmetic"),
        (
            lambda *given: np.add(bytes_of(right_separate, right_fused)(*given), [4, 0]),
            "bytes is close, but",
            "other-formula",
        ),
        (even_side, "what is written was written", "right-for-one-case"),
        (
            lambda *given: bytes_of(right_separate, right_fused)(*given)[::-1],
            "what we expect",
            "result-of-another-kind",
        ),
        (
            lambda *given: bytes_of(right_separate, right_fused)(*given)[0],
            "Expected two numbers",
            "result-of-another-kind",
        ),
        (
            lambda *given: (224_760, 19_992),
            "what we expect",
            "hard-coded",
        ),  # the first case only
        (weights_for_each_image, "what does each read", "what-grows-with-batch"),
        (with_an_index_of_8_bytes, "4 + 1 bytes", "other-formula"),
        (with_sums_as_large_as_the_image, "what does each read", "edges-are-ordinary"),
    ],
    "06.5": [
        (
            forward(stride=lambda columns, kernel: 2 * columns + kernel - 1),
            "the last column of which is not pooled",
            "other-formula",
        ),
        (forward(ties=True), "of equal ones the first", "other-formula"),
        (forward(dead=False), "that is 4", "gradient-goes-everywhere"),
        (forward(late=True), "before ReLU", "other-formula"),
        (forward(turned=True), "turned round", "axes-swapped"),
        (forward(sums_of=np.float16), "of which type is the sum?", "low-precision-is-enough"),
        (
            forward(sums_of=np.float32),
            "not to the precision of float64",
            "low-precision-is-enough",
        ),
        (first_image_only, "was never written", "right-for-one-case"),
        (four_images_only, "five images", "right-for-one-case"),
        (four_outputs_only, "five images", "right-for-one-case"),
        (without_a_bias, "The bias is missing", "other-formula"),
        (cut_off_at_100, "100 times as large", "right-for-one-case"),
        (never_quite_0, "which pixels should it see", "other-formula"),
        (returns_its_result, "was never written", "result-of-another-kind"),
        (other_parameters, "Expected the kernel's parameters", "result-of-another-kind"),
        (forward(), "not compiled", "result-of-another-kind"),
        (changes_its_images, "it has changed x, which others still need", "input-is-mine"),
        (leaks, "ReLU leaves nothing below 0", "other-formula"),
        (numbers_cells_by_columns, "2 * row + column of the largest", "axes-swapped"),
        (takes_the_mean, "which pixels should it see", "other-formula"),
        (
            shares_its_results,
            "best[0, 0, 0, 0] is written for more than one index of prange",
            "scratch-shared",
        ),
        (shares_its_weights, "is written for more than one index of prange", "scratch-shared"),
        (
            a_helper_that_races,
            "scratch[0, 0, 0] is written for more than one index of prange",
            "scratch-shared",
        ),
    ],
    "06.6": [
        (backward(mask=False), "ReLU let nothing through", "gradient-goes-everywhere"),
        (backward(bias_sum=False), "the sum of all that come back", "gradients-add-up"),
        (backward(add_x=False), "A pixel lay under several weights", "gradients-add-up"),
        (
            backward(all_cells=True),
            "times the pixel that this weight met",
            "gradient-goes-everywhere",
        ),
        (backward(square=True), "10 x 7 pixels", "right-for-one-case"),
        (backward(of=np.float16), "of which type is the sum?", "low-precision-is-enough"),
        (four_outputs_give_to_a_pixel, "several outputs", "right-for-one-case"),
        (four_images_go_back, "five images", "right-for-one-case"),
        (backward(always_x=True), "nobody who needs grad_x", "other-formula"),
        (forward(), "Expected the kernel's parameters", "result-of-another-kind"),
        (backward(), "not compiled", "result-of-another-kind"),
        (
            changes_the_weights,
            "it has changed weight, which others still need",
            "input-is-mine",
        ),
        (shares_its_spread, "is written for more than one index of prange", "scratch-shared"),
        (
            adds_in_one_place,
            "total[0] is written for more than one index of prange",
            "scratch-shared",
        ),
    ],
    "06.7": [
        (as_layers, "Expected the operator", "result-of-another-kind"),
        (operator("no_fake", fake=None), "raised", "operators-describe-themselves"),
        (
            operator("fake_of_the_input", fake=fake_of_the_input),
            "pooled should be",
            "operators-describe-themselves",
        ),
        (
            operator("fake_on_the_cpu", fake=fake_on_the_cpu),
            "is on the CPU, wherever x is",
            "operators-describe-themselves",
        ),
        (
            operator("fake_rounded_up", fake=fake_rounded_up),
            "pooled should be",
            "rounding-is-cosmetic",
        ),
        (
            operator("fake_of_one_dtype", fake=fake_of_one_dtype),
            "choice should be torch.uint8",
            "operators-describe-themselves",
        ),
        (
            operator("no_gradient", gradients=None),
            "The backward pass raised",
            "operators-describe-themselves",
        ),
        (
            operator("nothing_saved", remember=lambda ctx, inputs, output: None),
            "The backward pass raised",
            "operators-describe-themselves",
        ),
        (
            operator("on_ctx", remember=remember_on_ctx, gradients=gradients_from_ctx),
            "keeps a tensor as ctx.inputs",
            "operators-describe-themselves",
        ),
        (
            operator("without_bias", gradients=without_bias),
            "no gradient of bias",
            "other-formula",
        ),
        (
            operator("batch", gradients=bias_not_summed_over_the_batch),
            "the gradient of bias is not torch's",
            "other-formula",
        ),
        (
            operator("no_relu_mask", gradients=no_relu_mask),
            "is not torch's",
            "gradient-goes-everywhere",
        ),
        (
            operator("swapped", gradients=swapped),
            "The backward pass raised",
            "result-of-another-kind",
        ),
        (operator("half", scale=0.5), "the pooled values are not torch's", "other-formula"),
        (
            operator("through_numpy", gradients=through_numpy),
            "torch.compile can't trace it",
            "python-in-graph",
        ),
    ],
}
