"""Solutions of notebook 19, one block an exercise."""


# %% 19.3
def bits_per_byte(loss, tokens, n_bytes):
    """Bits a byte of a text of n_bytes, whose tokens cost a model a mean loss in nats."""
    return loss * tokens / math.log(2) / n_bytes


# %% 19.4a
def factors(below, rung):
    """(gain in seconds a token, gain in tokens): geometric means over seeds of below / rung."""
    machine = [a_s / a / (b_s / b) for (a_s, a), (b_s, b) in zip(below, rung, strict=True)]
    learning = [a / b for (_, a), (_, b) in zip(below, rung, strict=True)]
    return statistics.geometric_mean(machine), statistics.geometric_mean(learning)


# %% 19.4b
def orthogonal(gradient):
    """A matrix with the gradient's singular vectors and singular values of about 1."""
    x = gradient.T if len(gradient) > gradient.shape[1] else gradient
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if len(gradient) > gradient.shape[1] else x


# %% 19.6
def decode_s(weights, layers, width, context, batch, bytes_each, bytes_per_s):
    """Seconds that reading weights, keys and values takes, for one new token of each sequence."""
    cache = 2 * layers * width * context * batch
    return (weights + cache) * bytes_each / bytes_per_s
