"""Plausible wrong answers of notebook 12: number -> (answer, words the check must say)."""

import itertools

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, linear
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

# 12.1


def share(zero=True, reduction="sum", over=len, exchange="sum", split=None, loss_too=True, zeros=True, step=False):
    def gradients(model, images, labels):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        cut = split or (lambda tensor: tensor.tensor_split(ranks)[rank])
        x, y = cut(images), cut(labels)
        if zero:
            model.zero_grad()
        loss = cross_entropy(model(x), y, reduction=reduction) / over(images)
        loss.backward()
        if step:
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        for weight in model.parameters():
            if exchange == "sum":
                dist.all_reduce(weight.grad)
            elif exchange == "mean":
                dist.all_reduce(weight.grad)
                weight.grad /= ranks
            elif exchange == "unawaited":
                dist.all_reduce(weight.grad, async_op=True)
            elif exchange == "to rank 0":
                dist.reduce(weight.grad, 0)
        loss = loss.detach()
        if loss_too:
            dist.all_reduce(loss)
        return loss.item() / (ranks if exchange == "mean" else 1)

    return gradients


def leaves_out_the_rest(tensor):
    each = len(tensor) // dist.get_world_size()
    return tensor[dist.get_rank() * each :][:each]


def the_rest_goes_to_the_last(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    each = len(tensor) // ranks
    return tensor[rank * each : None if rank == ranks - 1 else (rank + 1) * each]


def ceiling(tensor):
    return tensor.split(-(-len(tensor) // dist.get_world_size()))[dist.get_rank()]


def whole_batch_past_the_hook(model, images, labels):
    """Shows its model a share, and computes with all."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model(images.tensor_split(ranks)[rank])
    model.zero_grad()
    loss = cross_entropy(model.forward(images), labels)
    loss.backward()
    return loss.item()


def whole_batch_by_its_weights(product):
    def gradients(model, images, labels):
        """Shows its model a share, and computes with all, without the model."""
        model(images.tensor_split(dist.get_world_size())[dist.get_rank()])
        model.zero_grad()
        x = images
        for layer in model.children():
            x = product(x, layer.weight) + layer.bias if isinstance(layer, torch.nn.Linear) else layer(x)
        loss = cross_entropy(x, labels)
        loss.backward()
        return loss.item()

    return gradients


# 12.2


def loop(sampled=True, exchange="ddp", new_order=True, scale=0, returns=True, rounds=None, zero=True):
    def mended(model, dataset, batch, rate, epochs):
        ranks = dist.get_world_size()
        sampler = DistributedSampler(dataset, shuffle=new_order != "sorted") if sampled else None
        loader = DataLoader(dataset, batch_size=batch, sampler=sampler, shuffle=sampler is None)
        net = DistributedDataParallel(model) if exchange == "ddp" else model
        optimizer = torch.optim.SGD(model.parameters(), lr=rate * ranks**scale)
        for epoch in range(rounds or epochs):
            if sampled and new_order is True:
                sampler.set_epoch(epoch)
            elif new_order == "two orders":
                sampler.set_epoch(epoch % 2)
            for images, labels in loader:
                if zero:
                    optimizer.zero_grad()
                cross_entropy(net(images), labels).backward()
                if exchange == "sum":
                    for weight in model.parameters():
                        dist.all_reduce(weight.grad)
                elif exchange in ("mean", "half"):
                    for weight in model.parameters():
                        dist.all_reduce(weight.grad)
                        weight.grad /= ranks if exchange == "mean" else 2
                optimizer.step()
        if exchange == "weights at the end":
            for weight in model.parameters():
                dist.all_reduce(weight.data)
                weight.data /= ranks
        return model if returns else None

    return mended


def same_seed_everywhere(model, dataset, batch, rate, epochs):
    """The copies stay equal, and do the same work."""
    torch.manual_seed(0)
    for weight in model.parameters():
        dist.broadcast(weight.data, 0)
    return loop(sampled=False, exchange="none")(model, dataset, batch, rate, epochs)


def broadcast_then(answer):
    def mended(model, dataset, batch, rate, epochs):
        for weight in model.parameters():
            dist.broadcast(weight.data, 0)
        return answer(model, dataset, batch, rate, epochs)

    return mended


def big_batches(model, dataset, batch, rate, epochs):
    return loop()(model, dataset, batch * dist.get_world_size(), rate, epochs)


def small_batches(model, dataset, batch, rate, epochs):
    return loop()(model, dataset, batch // dist.get_world_size(), rate, epochs)


def rank_0_trains(model, dataset, batch, rate, epochs):
    """The others wait, and get the result."""
    if dist.get_rank() == 0:
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for _ in range(epochs):
            for images, labels in DataLoader(dataset, batch_size=batch, shuffle=True):
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
    for weight in model.parameters():
        dist.broadcast(weight.data, 0)
    return model


# 12.3


def ring(mean=False, cut="tensor_split", trips=2, direction=1, second="copy", shift=0, blocking=False):
    def ring_all_reduce(x):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        right, left = (rank + direction) % ranks, (rank - direction) % ranks
        if cut == "divisible":
            each = len(x) // ranks
            parts = [x[i * each : (i + 1) * each] for i in range(ranks)]
        else:
            parts = getattr(x, cut)(ranks)
        for step in range(trips * (ranks - 1)):
            going, coming = (rank - step) % ranks, (rank - step - 1 + shift) % ranks
            inbox = torch.empty_like(parts[coming])
            if blocking:
                dist.recv(inbox, left)
                dist.send(parts[going], right)
            else:
                request = dist.isend(parts[going], right)
                dist.recv(inbox, left)
                request.wait()
            if step < ranks - 1 or second == "add":
                parts[coming].add_(inbox)
            else:
                parts[coming].copy_(inbox)
        return x / ranks if mean else x

    return ring_all_reduce


def whole_tensors_round(x):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    total, going = x.clone(), x
    for _ in range(ranks - 1):
        inbox = torch.empty_like(x)
        request = dist.isend(going, (rank + 1) % ranks)
        dist.recv(inbox, (rank - 1) % ranks)
        request.wait()
        total += inbox
        going = inbox
    return total


def to_rank_0(x, back=True):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        inbox = torch.empty_like(x)
        for other in range(1, ranks):
            dist.recv(inbox, other)
            x += inbox
        for other in range(1, ranks) if back else ():
            dist.send(x, other)
    else:
        dist.send(x, 0)
        if back:
            dist.recv(x, 0)
    return x


def only_on_rank_0(x):
    return to_rank_0(x, back=False)


def calls_all_reduce(x):
    dist.all_reduce(x)
    return x


def gathers(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.stack(parts).sum(0)


def does_nothing(x):
    dist.get_rank()
    return x


def one_message_a_number(x):
    """A ring of which each message carries one number."""
    for i in range(len(x)):
        x[i : i + 1] = ring()(x[i : i + 1].clone())
    return x


def through_the_store(x):
    store = dist.distributed_c10d._get_default_store()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    n = next(_CALLS)
    store.set(f"sum {n} {rank}", ",".join(map(repr, x.tolist())))
    given = [store.get(f"sum {n} {other}").decode() for other in range(ranks)]
    return torch.tensor([[float(v) for v in each.split(",")] for each in given], dtype=x.dtype).sum(0)


_CALLS = itertools.count()


WRONG = {
    "12.1": [
        (share(exchange="none"), "differ from rank to rank"),
        (share(exchange="to rank 0"), "differ from rank to rank"),
        (share(exchange="unawaited"), "differ from rank to rank"),
        (share(reduction="mean", over=lambda images: 1), "a sum of means"),
        (share(reduction="mean", over=lambda images: 1, exchange="mean"), "counts the images of a small share more"),
        (share(exchange="mean"), "divided by the number of ranks once too often"),
        (share(zero=False), "an earlier step are still in it"),
        (share(split=lambda tensor: tensor), "no work is shared"),
        (share(split=lambda tensor: tensor[: len(tensor) // 2]), "read by two ranks"),
        (share(split=leaves_out_the_rest), "are read by no rank"),
        (share(split=the_rest_goes_to_the_last), "differ by at most one"),
        (share(split=ceiling), "On 3 ranks"),
        (share(loss_too=False), "that of its own share"),
        (share(step=True), "the weights changed"),
        (lambda model, images, labels: 0.5, "are read by no rank"),
        (whole_batch_past_the_hook, "no work is shared"),
        (whole_batch_by_its_weights(linear), "depends on images that a rank's model was not given"),
        (
            whole_batch_by_its_weights(lambda x, weight: (x[:, None] * weight).sum(-1)),
            "depends on images that a rank's model was not given",
        ),
        (
            share(over=lambda images: max(1, len(images) // dist.get_world_size()), exchange="mean"),
            "not all shares have images // ranks images",
        ),
    ],
    "12.2": [
        (loop(sampled=False), "do the same work"),
        (loop(sampled=False, exchange="none"), "do the same work"),
        (same_seed_everywhere, "do the same work"),
        (loop(exchange="none"), "nothing averages the gradients"),
        (loop(new_order=False), "set_epoch"),
        (loop(new_order="sorted"), "set_epoch"),
        (loop(new_order="two orders"), "the same order in epochs 0 and 2"),
        (loop(exchange="mean"), "they began with different weights"),
        (broadcast_then(loop(exchange="sum")), "summed over ranks"),
        (loop(scale=1), "summed over ranks"),
        (loop(scale=-1), "too short"),
        (broadcast_then(loop(exchange="half")), "divided by 2, whatever their number"),
        (loop(zero=False), "the gradients of earlier steps"),
        (broadcast_then(loop(exchange="weights at the end")), "in every step"),
        (big_batches, "`batch` is the batch of one rank"),
        (small_batches, "isn't divided by the number of ranks again"),
        (lambda *given: bool(loop()(*given)), "expected the trained model"),
        (loop(rounds=1), "read by no rank"),
        (lambda model, *rest: model, "none of the images"),
        (rank_0_trains, "rank 1's model was given none of the images"),
    ],
    "12.3": [
        (calls_all_reduce, "It calls allreduce"),
        (gathers, "It calls allgather"),
        (whole_tensors_round, "Whole tensors travel"),
        (to_rank_0, "In a ring each rank"),
        (only_on_rank_0, "Every rank needs it"),
        (ring(mean=True), "that is the average"),
        (ring(cut="divisible"), "can't be divided"),
        (ring(cut="chunk"), "IndexError"),
        (ring(trips=1), "are wrong"),
        (ring(second="add"), "added twice or to another part"),
        (ring(shift=1), "On 2 ranks"),
        (ring(blocking=True), "wait for each other"),
        (does_nothing, "returned what it was given"),
        (one_message_a_number, "no part cut into smaller ones"),
        (through_the_store, "through torch.distributed's messages only"),
        (lambda x: ring()(x.float()).double(), "right to some digits only"),
        (ring(trips=3), "n - 1 in each trip"),
        (lambda x: 2.0, "expected a tensor"),
    ],
}
