"""Solutions of notebook 14, one block an exercise."""

# ruff: noqa: SIM905 - a text that is split is how the notebook writes a list of steps


# %% 14.2
def bubble(ranks, microbatches, forward_s, backward_s, transfer_s):
    """GPipe's idle share of the ranks' time, 0 to 1; the times are per micro-batch.

    A transfer keeps no rank busy, but the next rank can't start before it is over.
    """
    idle_s = (ranks - 1) * (forward_s + backward_s + 2 * transfer_s)
    work_s = microbatches * (forward_s + backward_s)
    return idle_s / (idle_s + work_s)


# %% 14.3
order = [
    "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4".split(),  # as many F first as there are ranks from here on
    "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4".split(),
    "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4".split(),  # nobody comes after it: B follows its F at once
]


# %% 14.5
def split_order(ranks, microbatches):
    """A list of steps for each rank, with "F0", "B0" and "W0" of every micro-batch."""
    order = []
    for rank in range(ranks):
        ahead = min(ranks - rank, microbatches)
        steps = [f"F{i}" for i in range(ahead)]
        for i in range(microbatches):
            steps.append(f"B{i}")
            if i >= rank:  # later ranks hold less, and so may put off more of their W
                steps.append(f"W{i - rank}")
            if i + ahead < microbatches:
                steps.append(f"F{i + ahead}")
        left = range(max(microbatches - rank, 0), microbatches)
        order.append(steps + [f"W{i}" for i in left])
    return order


# %% 14.5b
fold = [  # rank 0: the second chunk's B and W come as soon as its F is done
    "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 B0.0 W0.0 F2.1 B2.1 W2.1 B1.0 W1.0 B2.0 W2.0".split(),
    "F0.0 F0.1 F1.0 F1.1 B0.1 W0.1 F2.0 B0.0 W0.0 F2.1 B1.1 W1.1 B1.0 B2.1 B2.0 W1.0 W2.1 W2.0".split(),
]


# %% 14.6
def balance(seconds, ranks):
    """How many layers each rank gets, a list; `seconds` has one entry per layer, in order.

    Every rank gets at least one. There are few layers: trying all cuts is allowed.
    """

    def edges(cuts):
        return list(itertools.pairwise((0, *cuts, len(seconds))))

    every = itertools.combinations(range(1, len(seconds)), ranks - 1)
    best = min(every, key=lambda cuts: max(sum(seconds[a:b]) for a, b in edges(cuts)))
    return [b - a for a, b in edges(best)]
