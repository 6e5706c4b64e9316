"""Solutions of notebook 16, one block an exercise."""


# %% 16.2
def kept(below_s, rung_s):
    """Whether a rung stays, from the seconds of the same seeds without it and with it."""
    pairs = zip(below_s, rung_s, strict=True)
    n, faster = len(rung_s), sum(rung < below for below, rung in pairs)
    by_chance = sum(math.comb(n, k) for k in range(faster, n + 1)) / 2**n
    return max(rung_s) < math.inf and by_chance < 0.05


# %% 16.4
def fair_gains(seconds):
    """The gain of each technique, {name: factor}: the geometric mean over all orders."""
    names = max(seconds, key=len)
    orders = list(itertools.permutations(names))
    gains = dict.fromkeys(names, 1.0)
    for order in orders:
        on = frozenset()
        for name in order:
            gains[name] *= (seconds[on] / seconds[on | {name}]) ** (1 / len(orders))
            on |= {name}
    return gains


# %% 16.5
def search(techniques, seconds, budget_s):
    """Names of the techniques to switch on together, found within budget_s seconds of training."""
    chosen, seeds = frozenset(), range(3)
    before = [seconds(chosen, seed) for seed in seeds]
    left_s = budget_s - sum(took_s for took_s, _ in before)
    # a second time, since a later technique may replace an earlier one
    for name in 2 * techniques:
        after, other = [], chosen ^ {name}
        for seed in seeds:
            if left_s < 0:
                return chosen
            after.append(seconds(other, seed))
            left_s -= after[-1][0]
            if not after[-1][1] or after[-1][0] >= before[seed][0]:
                break  # missed the accuracy, or is no faster: one such seed is enough
        else:
            chosen, before = other, after
    return chosen


# %% 16.6
def calibrated(pairs):
    """(share within a factor of 2, middle of measured / guess) of a list of (guess, measured)."""
    ratios = [measured / guess for guess, measured in pairs]
    return sum(0.5 <= ratio <= 2 for ratio in ratios) / len(ratios), statistics.median(ratios)
