"""Solutions of notebook 12, one block an exercise."""


# %% 12.1
def gradients(model, images, labels):
    """Leave the whole batch's mean-loss gradients in `model` on every rank; return the loss.

    Every rank is given the whole batch, but its model may read only its own share. Shares
    differ by one image at most and can be empty. Discard the gradients of earlier steps.
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

    In each epoch every image is read by one rank, in a new order; if they don't divide
    evenly, a few may be read twice. All copies end up equal to each other, and to one process
    that reads the batches of all ranks in each step.
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

    Each rank sends only to its right neighbour: 2 (n - 1) messages, each one part of x.
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
    """The number of ranks, 1 to `most`, with the shortest step; the exchange isn't hidden.

    The batch is fixed: one rank computes for compute_s, each of n ranks for its share.
    """

    def seconds(ranks):
        return compute_s / ranks + ring_seconds(n_bytes, ranks, alpha_s, bytes_per_s)

    return min(range(1, most + 1), key=seconds)
