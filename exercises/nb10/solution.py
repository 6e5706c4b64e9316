"""Solutions of notebook 10, one block an exercise."""

# %% 10.1
import math


def overhead(small, small_s, large, large_s):
    each_s = (large_s - small_s) / (large - small)
    if each_s <= 0:
        return small_s, math.inf
    overhead_s = small_s - small * each_s
    return overhead_s, overhead_s / each_s


# %% 10.2
def by_hand(x, scale, shift):
    return torch.addcmul(shift, x, scale).relu_().mul_(0.5)


# %% 10.3
def clipped(x, most):
    norm = x.square().mean().sqrt()
    limited = torch.where(norm > most, x * (most / norm), x)
    return limited - limited.mean(), norm


# %% 10.6a
def break_even_steps(compile_s, eager_s, compiled_s):
    if compile_s == 0 and compiled_s <= eager_s:
        return 0
    if compiled_s >= eager_s:
        return math.inf
    return math.ceil(compile_s / (eager_s - compiled_s))


# %% 10.6b
decisions = {
    "class": (False, break_even_steps(2 * 18, 0.015, 0.012)),  # of 5 * 23 = 115 steps
    "sweep": (True, break_even_steps(40 + 199 * 5, 0.030, 0.020)),  # of 400,000 steps
    "night": (False, break_even_steps(60, 0.100, 0.100)),  # the data takes 100 ms in any case
}
