"""Plausible wrong answers of notebook 12: number -> (answer, words the check must say, misconception)."""

import itertools

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, linear
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

# 12.1


def share(reduction="sum", over=len, exchange="sum", split=None, loss_too=True, step=False):
    def gradients(model, images, labels):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        cut = split or (lambda tensor: tensor.tensor_split(ranks)[rank])
        x, y = cut(images), cut(labels)
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


def keeps_its_gradients(model, images, labels):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = (part.tensor_split(ranks)[rank] for part in (images, labels))
    model.zero_grad()
    loss = cross_entropy(model(x), y, reduction="sum") / len(images)
    loss.backward()
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()


def sums_means(model, images, labels):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = (part.tensor_split(ranks)[rank] for part in (images, labels))
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    for tensor in (loss.detach(), *(weight.grad for weight in model.parameters())):
        dist.all_reduce(tensor)
    return loss.item()


def adds_to_old_gradients(model, images, labels):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = (part.tensor_split(ranks)[rank] for part in (images, labels))
    loss = cross_entropy(model(x), y, reduction="sum") / len(images)
    loss.backward()
    for tensor in (loss.detach(), *(weight.grad for weight in model.parameters())):
        dist.all_reduce(tensor)
    return loss.item()


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
            x = (
                product(x, layer.weight) + layer.bias
                if isinstance(layer, torch.nn.Linear)
                else layer(x)
            )
        loss = cross_entropy(x, labels)
        loss.backward()
        return loss.item()

    return gradients


# 12.2


def loop(
    sampled=True, exchange="ddp", new_order=True, scale=0, returns=True, rounds=None, zero=True
):
    def mended(model, dataset, batch, rate, epochs):
        ranks = dist.get_world_size()
        sampler = (
            DistributedSampler(dataset, shuffle=new_order != "sorted") if sampled else None
        )
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


def ring(
    mean=False, cut="tensor_split", trips=2, direction=1, second="copy", shift=0, blocking=False
):
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
    return torch.tensor(
        [[float(v) for v in each.split(",")] for each in given], dtype=x.dtype
    ).sum(0)


_CALLS = itertools.count()


WRONG = {
    "12.1": [
        (keeps_its_gradients, "differ from rank to rank", "ranks-share-by-themselves"),
        (share(exchange="to rank 0"), "differ from rank to rank", "ranks-share-by-themselves"),
        (share(exchange="unawaited"), "differ from rank to rank", "ranks-share-by-themselves"),
        (sums_means, "a sum of means", "sum-for-mean"),
        (
            share(reduction="mean", over=lambda images: 1, exchange="mean"),
            "counts the images of a small share more",
            "mean-of-unequal-parts",
        ),
        (
            share(exchange="mean"),
            "divided by the number of ranks once too often",
            "sum-for-mean",
        ),
        (adds_to_old_gradients, "an earlier step are still in it", "gradients-add-up"),
        (share(split=lambda tensor: tensor), "no work is shared", "everyone-reads-all"),
        (
            share(split=lambda tensor: tensor[: len(tensor) // 2]),
            "read by two ranks",
            "everyone-reads-all",
        ),
        (share(split=leaves_out_the_rest), "No rank reads 1 image of", "rest-left-out"),
        (share(split=the_rest_goes_to_the_last), "differ by at most one", "uneven-shares"),
        (share(split=ceiling), "On 3 ranks", "uneven-shares"),
        (share(loss_too=False), "that of its own share", "ranks-share-by-themselves"),
        (share(step=True), "the weights changed", "other-formula"),
        (lambda model, images, labels: 0.5, "No rank reads 12 images of", "hard-coded"),
        (whole_batch_past_the_hook, "no work is shared", "goes-round-the-tool"),
        (
            whole_batch_by_its_weights(linear),
            "depends on images that a rank's model was not given",
            "goes-round-the-tool",
        ),
        (
            whole_batch_by_its_weights(lambda x, weight: (x[:, None] * weight).sum(-1)),
            "depends on images that a rank's model was not given",
            "goes-round-the-tool",
        ),
        (
            share(
                over=lambda images: max(1, len(images) // dist.get_world_size()),
                exchange="mean",
            ),
            "not all shares have images // ranks images",
            "mean-of-unequal-parts",
        ),
    ],
    "12.2": [
        (loop(sampled=False), "do the same work", "everyone-reads-all"),
        (loop(sampled=False, exchange="none"), "do the same work", "everyone-reads-all"),
        (same_seed_everywhere, "do the same work", "everyone-reads-all"),
        (loop(exchange="none"), "nothing averages the gradients", "ranks-share-by-themselves"),
        (loop(new_order=False), "set_epoch", "one-shuffle-is-enough"),
        (loop(new_order="sorted"), "set_epoch", "one-shuffle-is-enough"),
        (
            loop(new_order="two orders"),
            "the same order in epochs 0 and 2",
            "one-shuffle-is-enough",
        ),
        (
            loop(exchange="mean"),
            "they began with different weights",
            "ranks-share-by-themselves",
        ),
        (broadcast_then(loop(exchange="sum")), "summed over ranks", "sum-for-mean"),
        (loop(scale=1), "summed over ranks", "sum-for-mean"),
        (loop(scale=-1), "too short", "sum-for-mean"),
        (
            broadcast_then(loop(exchange="half")),
            "divided by 2, whatever their number",
            "right-for-one-case",
        ),
        (loop(zero=False), "the gradients of earlier steps", "gradients-add-up"),
        (
            broadcast_then(loop(exchange="weights at the end")),
            "in every step",
            "ranks-share-by-themselves",
        ),
        (big_batches, "`batch` is the batch of one rank", "what-grows-with-batch"),
        (small_batches, "isn't divided by the number of ranks again", "sum-for-mean"),
        (
            lambda *given: bool(loop()(*given)),
            "expected the trained model",
            "result-of-another-kind",
        ),
        (loop(rounds=1), "read by no rank", "does-less-work"),
        (lambda model, *rest: model, "none of the images", "does-less-work"),
        (
            rank_0_trains,
            "rank 1's model was given none of the images",
            "ranks-share-by-themselves",
        ),
    ],
    "12.3": [
        (calls_all_reduce, "It calls allreduce", "goes-round-the-tool"),
        (gathers, "It calls allgather", "whole-tensor-travels"),
        (whole_tensors_round, "Whole tensors travel", "whole-tensor-travels"),
        (to_rank_0, "In a ring each rank", "whole-tensor-travels"),
        (only_on_rank_0, "Every rank needs it", "ranks-share-by-themselves"),
        (ring(mean=True), "that is the average", "sum-for-mean"),
        (ring(cut="divisible"), "can't be divided", "rest-left-out"),
        (ring(cut="chunk"), "IndexError", "uneven-shares"),
        (ring(trips=1), "are wrong", "one-trip-is-enough"),
        (ring(second="add"), "added twice or to another part", "other-formula"),
        (ring(shift=1), "On 2 ranks", "off-by-one"),
        (ring(blocking=True), "wait for each other", "order-is-free"),
        (does_nothing, "returned what it was given", "does-less-work"),
        (one_message_a_number, "no part cut into smaller ones", "latency-is-free"),
        (through_the_store, "through torch.distributed's messages only", "goes-round-the-tool"),
        (
            lambda x: ring()(x.float()).double(),
            "right to some digits only",
            "low-precision-is-enough",
        ),
        (ring(trips=3), "n - 1 in each trip", "off-by-one"),
        (lambda x: 2.0, "expected a tensor", "result-of-another-kind"),
    ],
}
