"""Solutions of notebook 12, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 12.1
def gradients(model, images, labels):
    """Leave the gradients of the whole batch's mean loss in `model` on every rank; return it.

    Every rank is given the whole batch, of which its model may read its share alone. Shares
    differ by one image at most, and can be empty. Gradients of an earlier step must not count.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = images.tensor_split(ranks)[rank], labels.tensor_split(ranks)[rank]
    model.zero_grad()
    loss = cross_entropy(model(x), y, reduction="sum") / len(images)
    loss.backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()


# %% 12.2
def mended(model, dataset, batch, rate, epochs):
    """On every rank: train by plain SGD, return the model. A rank's batch has `batch` images.

    In each epoch every image is read by one rank, in a new order; where they don't divide, a
    few may be read twice. All copies end equal, and equal to one process that reads the ranks'
    batches of each step together.
    """
    from torch.utils.data import DistributedSampler

    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch, sampler=sampler)
    net = DDP(model)  # all copies begin with rank 0's weights; backward averages the gradients
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # else each epoch has the same order
        for images, labels in loader:
            optimizer.zero_grad()
            cross_entropy(net(images), labels).backward()
            optimizer.step()
    return model


# %% 12.3
def ring_all_reduce(x):
    """Return the sum of x, a 1-d tensor, over all ranks, on every rank; x may be overwritten.

    Each rank sends to its right neighbour alone, 2 (n - 1) messages of a part of x each.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    parts = x.tensor_split(ranks)  # they share x's memory; of a short x some are empty
    for step in range(2 * (ranks - 1)):
        part = parts[(rank - step - 1) % ranks]
        inbox = torch.empty_like(part)
        request = dist.isend(parts[(rank - step) % ranks], right)
        dist.recv(inbox, left)
        request.wait()
        if step < ranks - 1:
            part += inbox  # the first trip adds up
        else:
            part.copy_(inbox)  # the second spreads the sums
    return x


# %% 12.4
def ring_seconds(n_bytes, ranks, alpha_s, bytes_per_s):
    """Seconds of a ring all-reduce of n_bytes; a message of b bytes takes alpha + b / rate."""
    return 2 * (ranks - 1) * (alpha_s + n_bytes / ranks / bytes_per_s)


# %% 12.4b
def best_ranks(compute_s, n_bytes, alpha_s, bytes_per_s, most):
    """The number of ranks, 1 to `most`, with the least time of a step, exchange not hidden.

    The batch is fixed: one rank computes for compute_s, n ranks for a share each.
    """

    def seconds(ranks):
        return compute_s / ranks + ring_seconds(n_bytes, ranks, alpha_s, bytes_per_s)

    return min(range(1, most + 1), key=seconds)
