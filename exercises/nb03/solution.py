"""Solutions of notebook 03, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 03.1
@cuda.jit
def double(x, out):
    """out[i] = 2 * x[i]; one thread per element, perhaps more threads than elements."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < x.size:  # threads beyond the end have nothing to do
        out[i] = 2 * x[i]


# %% 03.2
@cuda.jit
def relu(x, out):
    """out[i] is x[i], or 0 where x[i] is negative; any number of blocks and threads."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = max(x[i], np.float32(0))  # a plain 0 would make it arithmetic in float64


# %% 03.5
@cuda.jit
def histogram(values, counts):
    """counts[v] += 1 for every v of values; one thread per value."""
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i], 1)


# %% 03.6
@cuda.jit
def saxpy(a, x, y):
    """y[i] = a * x[i] + y[i]; any number of blocks and threads."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = a * x[i] + y[i]


# %% 03.7
@cuda.jit
def blur(image, out):
    """out[row, column] is the mean of that pixel of image and of its neighbors that exist."""
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total, count = np.float32(0), 0
        for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
            for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
                total += image[r, c]
                count += 1
        out[row, column] = total / np.float32(count)
