"""Solutions of notebook 13, one block an exercise."""


# %% 13.4
def add_up(x):
    """The sum of x over all ranks, on every rank, in a new tensor."""
    total = x.clone()  # all_reduce writes to it, and others use x too
    dist.all_reduce(total)
    return total


Copy = make_operator(pass_on, add_up)
Sum = make_operator(add_up, pass_on)


# %% 13.5
plan = {
    "query": ColwiseParallel(),
    "key": ColwiseParallel(),
    "value": ColwiseParallel(),
    "out": RowwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}


# %% 13.8
def merge(out_1, lse_1, out_2, lse_2):
    """(out, lse) of attention over the keys of both parts, by autograd's functions.

    out: (..., T, size), the mean of a part's values, weighted by the softmax of its scores.
    lse: (..., T, 1), log(sum(exp(scores))), up to 1000 in size; -inf where part 2 has no keys.
    """
    lse = torch.logaddexp(lse_1, lse_2)
    return out_1 * (lse_1 - lse).exp() + out_2 * (lse_2 - lse).exp(), lse


# %% 13.9
def within_capacity(chosen, experts, factor):
    """For each token True if it is kept: booleans, a tensor of chosen's shape, (tokens,).

    chosen[i]: the number of token i's expert, 0 to experts - 1. An expert keeps the first
    ceil(factor * tokens / experts) of the tokens that chose it, in order.
    """
    mine = nn.functional.one_hot(chosen, experts)  # (tokens, experts)
    before = (mine.cumsum(0) - mine)[torch.arange(len(chosen)), chosen]
    return before < math.ceil(factor * len(chosen) / experts)


# %% 13.9b
def rows_to(chosen, per_rank, ranks):
    """Rows that a rank sends to each rank, itself included: a tensor of `ranks` integers.

    chosen: (tokens, k), the numbers of each token's k experts; expert e is on rank
    e // per_rank. A token with several experts on a rank is sent there once.
    """
    places = chosen // per_rank  # (tokens, k)
    return torch.stack([(places == rank).any(1).sum() for rank in range(ranks)])
