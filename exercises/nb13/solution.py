"""Solutions of notebook 13, one block an exercise."""


# %% 13.2
def cut(sizes, ranks):
    """A list of ranks + 1 whole numbers, the first 0, the last len(sizes).

    `sizes` are the layers' bytes in order. Rank r has the layers from number r up to, but not
    including, number r + 1: [0, 2, 5] means layers 0 and 1, then 2, 3 and 4. The largest sum
    of `sizes` on any rank is as small as possible. Each rank has at least one layer.
    """
    from itertools import combinations, pairwise

    ways = ([0, *inner, len(sizes)] for inner in combinations(range(1, len(sizes)), ranks - 1))
    return min(ways, key=lambda found: max(sum(sizes[a:b]) for a, b in pairwise(found)))


# %% 13.4
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()  # all_reduce writes to it, and others use it too
        dist.all_reduce(total)
        return total


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


# %% 13.5
plan = {
    "query": ColwiseParallel(),
    "key": ColwiseParallel(),
    "value": ColwiseParallel(),
    "out": RowwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}


# %% 13.6
def cheapest_plan(saved, kept, forward_s, limit):
    """True (recompute) or False for each block; None if no plan has a peak of at most `limit`.

    saved[i]: bytes that block i holds for backward. kept[i]: bytes of its input, all that a
    recomputed block keeps; recomputing it costs forward_s[i] extra seconds. Of the plans that
    fit, return the one with the least extra time. There are at most 10 blocks.
    """
    from itertools import compress, product

    def peak(plan):
        stored = [k if again else s for again, s, k in zip(plan, saved, kept, strict=True)]
        return max(sum(stored[:i]) + saved[i] for i in range(len(saved)))

    plans = [plan for plan in product((False, True), repeat=len(saved)) if peak(plan) <= limit]
    return min(plans, key=lambda plan: sum(compress(forward_s, plan)), default=None)


# %% 13.7
def sent_bytes(params, blocks, hidden, tokens, ranks, element_bytes):
    """(bytes by FSDP, bytes by tensor parallelism, tokens at which both are equal).

    All `blocks` together have `params` parameters. In tensor parallelism, each block
    all-reduces `tokens * hidden` numbers four times per step.
    """
    share = (ranks - 1) / ranks
    by_fsdp = 3 * share * params * element_bytes  # gathered twice, reduced and scattered once
    by_tensor = blocks * 4 * 2 * share * tokens * hidden * element_bytes
    return by_fsdp, by_tensor, 3 * params / (8 * blocks * hidden)
