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


# %% 19.6a
def admit(sizes, free, places):
    blocks = [math.ceil(tokens / 16) for tokens in sizes[:places]]
    return sum(total <= free for total in itertools.accumulate(blocks))


def slots(table, free, n_tokens):
    needed = math.ceil(n_tokens / 16)
    table += [free.pop() for _ in range(needed - len(table))]
    free += [table.pop() for _ in range(len(table) - needed)]
    return [16 * table[i // 16] + i % 16 for i in range(n_tokens)]


# %% 19.6b
def accept(draft, target):
    right = [guess == token for guess, token in zip(draft, target, strict=False)]
    n_right = [*right, False].index(False)
    return target[: n_right + 1], n_right
