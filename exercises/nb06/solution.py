"""Solutions of notebook 06, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 06.4
def block_bytes(images, channels, outputs, size, kernel):
    """Bytes moved to and from memory: (four separate kernels, one fused kernel)."""
    side = size - kernel + 1
    x, weights = images * channels * size**2, outputs * channels * kernel**2
    sums, pooled = images * outputs * side**2, images * outputs * (side // 2) ** 2
    fused = 4 * (x + weights + outputs + pooled) + pooled
    return 4 * (x + weights + 6 * sums + outputs + pooled) + 8 * pooled, fused


# %% 06.5
@numba.njit(parallel=True)
def fused_forward(x, weight, bias, pooled, choice):
    """pooled = max_pool2d(relu(conv2d(x, weight, bias)), 2); choice: which of four cells."""
    images, outputs, rows, columns = pooled.shape
    channels, kernel = weight.shape[1:3]
    width, n = x.shape[3], (2 * rows - 1) * x.shape[3] + 2 * columns
    for image in numba.prange(images):
        sums = np.empty(n, x.dtype)
        for out in range(outputs):
            sums[:] = bias[out]
            for channel in range(channels):
                for dy in range(kernel):
                    for dx in range(kernel):
                        w = weight[out, channel, dy, dx]
                        shifted = x[image, channel].ravel()[dy * width + dx :]
                        for j in range(n):
                            sums[j] += w * shifted[j]
            for row in range(rows):
                for column in range(columns):
                    best, which = largest(sums, 2 * row * width + 2 * column, width)
                    pooled[image, out, row, column] = max(best, 0)
                    choice[image, out, row, column] = which if best > 0 else 4


# %% 06.6
@numba.njit(parallel=True, fastmath={"reassoc", "nsz"})
def fused_backward(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases):
    """Gradients of x and, image by image, of weight and bias; all three start as zeros."""
    images, outputs, rows, columns = grad_pooled.shape
    channels, kernel = weight.shape[1:3]
    width = x.shape[3]
    n = (2 * rows - 1) * width + 2 * columns
    for image in numba.prange(images):
        spread = np.empty(n, x.dtype)
        for out in range(outputs):
            spread[:] = 0
            for row in range(rows):
                for column in range(columns):
                    cell = choice[image, out, row, column]
                    if cell < 4:
                        gradient = grad_pooled[image, out, row, column]
                        spread[(2 * row + cell // 2) * width + 2 * column + cell % 2] = gradient
                        grad_biases[image, out] += gradient
            for channel in range(channels):
                plane = x[image, channel].ravel()
                for dy in range(kernel):
                    for dx in range(kernel):
                        shifted = plane[dy * width + dx :]
                        total = spread[0] * shifted[0]
                        for j in range(1, n):
                            total += spread[j] * shifted[j]
                        grad_weights[image, out, channel, dy, dx] = total
                if len(grad_x):
                    grad_plane = grad_x[image, channel].ravel()
                    for dy in range(kernel):
                        for dx in range(kernel):
                            w = weight[out, channel, dy, dx]
                            grad_shifted = grad_plane[dy * width + dx :]
                            for j in range(n):
                                grad_shifted[j] += w * spread[j]


# %% 06.7
def remember(ctx, inputs, output):
    """Keep what the backward pass will need, with ctx.save_for_backward(...)."""
    ctx.save_for_backward(output[1], *inputs[:2])  # choice, x and weight


def gradients(ctx, grad_pooled, grad_choice):
    """Gradients of x (None unless ctx.needs_input_grad[0]), weight and bias: block_backward."""
    wants_x = ctx.needs_input_grad[0]
    grad_x, grad_weight, grad_bias = block_backward(grad_pooled, *ctx.saved_tensors, wants_x)
    return grad_x if wants_x else None, grad_weight, grad_bias


cnn_block.register_autograd(gradients, setup_context=remember)
