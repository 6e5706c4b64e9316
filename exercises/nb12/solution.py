"""Solutions of notebook 12, one block an exercise."""


# %% 12.1
def gradients(model, images, labels):
    """Leave the whole batch's mean-loss gradients in `model` on every rank; return the loss.

    `model` may read this rank's share only. Their sizes differ by one at most, and can be 0.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = (part.tensor_split(ranks)[rank] for part in (images, labels))
    model.zero_grad()
    loss = cross_entropy(model(x), y, reduction="sum") / len(images)
    loss.backward()
    for tensor in (loss.detach(), *(weight.grad for weight in model.parameters())):
        dist.all_reduce(tensor)  # detach() shares loss's memory, so the loss is summed too
    return loss.item()


# %% 12.2
def mended(model, dataset, batch, rate, epochs):
    """Train `model` by plain SGD with `batch` images a step on each rank, and return it.

    In each epoch each image is read by one rank (or a few by two, if need be), in a new order.
    All copies end with the weights of one process that reads all ranks' batches each step.
    """
    sampler = DistributedSampler(dataset)
    net = DDP(model)  # all copies begin with rank 0's weights; backward averages the gradients
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # else each epoch has the same order
        for images, labels in DataLoader(dataset, batch, sampler=sampler):
            plainly(net, images, labels)
            optimizer.step()
    return model


# %% 12.3
def ring_all_reduce(x):
    """Return the sum of x, a 1-d tensor, over all ranks, on every rank; x may be overwritten.

    Each rank sends only to its right neighbor: 2 (n - 1) messages, each one part of x.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = x.tensor_split(ranks)  # they share x's memory; of a short x some are empty
    for step in range(2 * (ranks - 1)):
        part = parts[(rank - step - 1) % ranks]
        inbox = torch.empty_like(part)
        request = dist.isend(parts[(rank - step) % ranks], (rank + 1) % ranks)
        dist.recv(inbox, (rank - 1) % ranks)
        request.wait()
        part.copy_(part + inbox if step < ranks - 1 else inbox)  # first add up, then spread
    return x
