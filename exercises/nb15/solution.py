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


# %% 15.4
layout = lab.cluster.Layout(
    data=8, tensor=4, pipeline=2, zero=1, micro_batch=1, recompute="none"
)


# %% 15.6
def best_interval_s(save_s, gpus, gpu_hours_between):
    """Seconds of work between two saves that lose the least time.

    A save takes `save_s`; one GPU fails every `gpu_hours_between` hours on average, and when
    one fails, all go back to the last save. Lost share: save_s / interval for saving, and half
    an interval at each failure.
    """
    between_s = gpu_hours_between * 3600 / gpus
    return math.sqrt(2 * save_s * between_s)
