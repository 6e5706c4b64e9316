"""Solutions of notebook 15, one block an exercise."""


# %% 15.1
def two_level_s(n_bytes, nodes, per_node, inside, between):
    """Seconds of an all-reduce of `n_bytes` in three phases, each of them a ring.

    inside and between are links: .alpha_s seconds per hop, .bytes_per_s in one direction. In a
    ring of n, reduce-scatter takes n - 1 hops and sends (n - 1)/n of its bytes; all-gather
    takes as much again, and an all-reduce is both.
    """

    def ring_s(n, size, link):
        return (n - 1) * link.alpha_s + (n - 1) / n * size / link.bytes_per_s

    within = 2 * ring_s(per_node, n_bytes, inside)
    return within + 2 * ring_s(nodes, n_bytes / per_node, between)


# %% 15.2
def place(sent, ranks, per_node, inside, between):
    """Names of the dimensions, innermost first, in the order that takes the least time.

    sent has the bytes that a GPU sends, by dimension; ranks the number of ranks of each. inside
    and between are bytes/s. A dimension is on the inner wire if its ranks times those of all
    dimensions further in are at most `per_node`. The dimensions' seconds add up.
    """

    def seconds(order):
        total, product = 0.0, 1
        for name in order:
            product *= ranks[name]
            total += sent[name] / (inside if product <= per_node else between)
        return total

    return min(itertools.permutations(sent), key=seconds)


# %% 15.4
layout = lab.cluster.Layout(
    data=8, tensor=4, pipeline=2, zero=1, micro_batch=1, recompute="none"
)


# %% 15.5
def run_cost(params, tokens, gpus, flop_per_s, mfu, usd_per_hour, power_w):
    """{"days", "GPU hours", "US$", "kWh"} of a run: 6 FLOP per parameter and token.

    Each GPU reaches `mfu` (0 to 1) of its `flop_per_s`, is rented at `usd_per_hour` and draws
    `power_w` all the time.
    """
    hours = 6 * params * tokens / (gpus * flop_per_s * mfu) / 3600
    gpu_hours = gpus * hours
    return {
        "days": hours / 24,
        "GPU hours": gpu_hours,
        "US$": gpu_hours * usd_per_hour,
        "kWh": gpu_hours * power_w / 1000,
    }


# %% 15.6
def best_interval_s(save_s, gpus, gpu_hours_between):
    """Seconds of work between two saves that lose the least time.

    A save takes `save_s`; one GPU fails every `gpu_hours_between` hours on average, and when
    one fails, all go back to the last save. Lost share: save_s / interval for saving, and half
    an interval at each failure.
    """
    between_s = gpu_hours_between * 3600 / gpus
    return math.sqrt(2 * save_s * between_s)
