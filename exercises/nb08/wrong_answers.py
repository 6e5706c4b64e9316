"""Plausible wrong answers of notebook 08: number -> (answer, words the check must say, misconception)."""

import itertools
import operator

import numpy as np
import torch

from exercises.nb08.wrong_prefetchers import WRONG_PREFETCHERS
from labkit.measure.machine import machine
from labkit.train import data


def model(prepare_s, train_s, workers, cores, train_cores):
    if not workers:
        return 1 / (prepare_s + train_s)
    return min(workers / prepare_s, 1 / train_s, cores / (prepare_s + train_cores * train_s))


def without_cores(prepare_s, train_s, workers, cores, train_cores):
    return min(workers / prepare_s, 1 / train_s) if workers else 1 / (prepare_s + train_s)


def workers_up_to_cores(prepare_s, train_s, workers, cores, train_cores):
    return (
        min(min(workers, cores) / prepare_s, 1 / train_s)
        if workers
        else 1 / (prepare_s + train_s)
    )


def by_counting(shards, rank, ranks, worker, workers):
    return [
        shard
        for i, shard in enumerate(shards)
        if i % (ranks * workers) == rank + ranks * worker
    ]


def popped(shards, rank, ranks, worker, workers):
    return [shards.pop() for _ in range(len(shards) // (ranks * max(workers, 1)))]


def chunks(shards, rank, ranks, worker, workers):
    n = len(shards) // (ranks * max(workers, 1))
    first = (rank * max(workers, 1) + worker) * n
    return shards[first : first + n]


def chunked(shards, part, parts):
    n = -(-len(shards) // max(parts, 1))
    return shards[part * n : (part + 1) * n]


def rounded_up_chunks(shards, rank, ranks, worker, workers):
    return chunked(chunked(shards, rank, ranks), worker, workers)


def numbered_through(shards, rank, ranks, worker, workers):
    """Deals to all workers at once, the first rank's first: with few shards it gets them all."""
    return shards[rank * max(workers, 1) + worker :: ranks * max(workers, 1)]


def rest_to_the_last(shards, rank, ranks, worker, workers):
    mine, workers = shards[rank::ranks], max(workers, 1)
    n = len(mine) // workers
    return mine[worker * n :] if worker == workers - 1 else mine[worker * n : (worker + 1) * n]


def shift(images, most, down=None, right=None):
    n, _, height, width = images.shape
    windows = (
        torch.nn.functional.pad(images, (most,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    )
    down = torch.randint(0, 2 * most + 1, (n,)) if down is None else down
    right = torch.randint(0, 2 * most + 1, (n,)) if right is None else right
    return windows[torch.arange(n), :, down, right]


def same_for_all(images, most):
    down, right = torch.randint(0, 2 * most + 1, (2, 1)).expand(2, len(images))
    return shift(images, most, down, right)


def wraps_round(images, most):
    amounts = torch.randint(-most, most + 1, (len(images), 2)).tolist()
    rolled = [
        torch.roll(image, amount, (1, 2)) for image, amount in zip(images, amounts, strict=True)
    ]
    return torch.stack(rolled) if rolled else images.clone()


def diagonally(images, most):
    down = torch.randint(0, 2 * most + 1, (len(images),))
    return shift(images, most, down, down)


def in_pairs(images, most):
    down, right = torch.randint(0, 2 * most + 1, (2, len(images))).repeat_interleave(2, 1)[
        :, : len(images)
    ]
    return shift(images, most, down, right)


def second_half_like_the_first(images, most):
    half = torch.randint(0, 2 * most + 1, (2, (len(images) + 1) // 2))
    return shift(images, most, *half.repeat(1, 2)[:, : len(images)])


POOL = torch.rand(2, 1000, generator=torch.Generator().manual_seed(0))


def from_a_pool(images, most):
    """A thousand moves that were drawn once, from a random one on."""
    places = torch.randint(1000, ()) + torch.arange(len(images))
    return shift(images, most, *(POOL[:, places % 1000] * (2 * most + 1)).long())


def picked_from_a_pool(images, most):
    places = torch.randint(1000, (len(images),))
    return shift(images, most, *(POOL[:, places] * (2 * most + 1)).long())


def right_after_down(images, most):
    """Each image moves right as far as the one before moves down."""
    down = torch.randint(0, 2 * most + 1, (len(images),))
    return shift(images, most, down, down.roll(1))


def one_after_the_other(images, most):
    """Every amount equally often, in an order that only begins at random."""
    places, i = 2 * most + 1, torch.arange(len(images))
    start, further = torch.randint(0, places, (2, 1))
    return shift(images, most, (i + start) % places, (i // places + further) % places)


def one_way(images, most):
    return shift(images, most, *torch.randint(0, most + 1, (2, len(images))))


def without_the_end(images, most):
    return shift(images, most, *torch.randint(0, max(2 * most, 1), (2, len(images))))


def rounded(images, most):
    return shift(images, most, *(torch.rand(2, len(images)) * 2 * most).round().long())


def always_the_same(images, most):
    generator = torch.Generator().manual_seed(0)
    return shift(
        images, most, *torch.randint(0, 2 * most + 1, (2, len(images)), generator=generator)
    )


def by_the_pixels(images, most):
    generator = torch.Generator().manual_seed(int(images.long().sum()))
    return shift(
        images, most, *torch.randint(0, 2 * most + 1, (2, len(images)), generator=generator)
    )


def colors_apart(images, most):
    n, channels, height, width = images.shape
    return shift(images.reshape(n * channels, 1, height, width), most).reshape(images.shape)


def in_place(images, most):
    images[:] = shift(images, most)
    return images


def twice_as_far(images, most):
    height, width = images.shape[2:]
    windows = (
        torch.nn.functional.pad(images, (2 * most,) * 4)
        .unfold(2, height, 1)
        .unfold(3, width, 1)
    )
    return windows[
        torch.arange(len(images)), :, *torch.randint(0, 4 * most + 1, (2, len(images)))
    ]


def as_float(images, most):
    return shift(images, most).float()


def larger(images, most):
    return torch.nn.functional.pad(images, (most,) * 4)


def one_by_one(images, most):
    """Right, but a loop over images."""
    out = torch.empty_like(images)
    padded = torch.nn.functional.pad(images, (most,) * 4)
    for i in range(len(images)):
        down, right = torch.randint(0, 2 * most + 1, (2,)).tolist()
        out[i] = padded[i, :, down : down + images.shape[2], right : right + images.shape[3]]
    return out


def listed(images, most):
    moved = [shift(one[None], most) for one in images]
    return torch.cat(moved) if moved else images.clone()


def mapped(images, most):
    return torch.cat([images[:0], *map(lambda one: shift(one[None], most), images)])  # noqa: C417


def mapped_in_c(images, most):
    """No line of Python runs for an image, but two operators do."""
    shifts = torch.randint(-most, most + 1, (len(images), 2)).tolist()
    width = torch.nn.functional.pad(images, (most,) * 4)
    moved = map(torch.roll, width, shifts, itertools.repeat((1, 2)))
    inner = (
        slice(None),
        slice(most, most + images.shape[2]),
        slice(most, most + images.shape[3]),
    )
    cut = list(map(operator.getitem, moved, itertools.repeat(inner)))
    return torch.stack(cut) if cut else images.clone()


def in_numpy(images, most):
    padded = torch.nn.functional.pad(images, (most,) * 4).numpy()
    height, width = images.shape[2:]
    places = torch.randint(0, 2 * most + 1, (len(images), 2)).tolist()
    cut = [
        one[:, y : y + height, x : x + width]
        for one, (y, x) in zip(padded, places, strict=True)
    ]
    return torch.from_numpy(np.stack(cut)) if cut else images.clone()


def in_groups(images, most):
    """Ten images at a time: a tenth of the calls, which still grow with the batch."""
    return torch.cat([images[:0], *(shift(part, most) for part in images.split(10))])


def built(
    size=32,
    most=4,
    divide=255.0,
    drop_last=False,
    shuffled=True,
    moved=shift,
    wrong_rows=False,
    again=0,
    batch=None,
):
    """The right pipeline, but for what is changed."""

    def pipeline(shards, wanted):
        pixels, labels = (
            torch.from_numpy(part) for part in data.decoded_cache(shards, size=size)
        )
        n, rows_a_batch = len(labels), batch or wanted

        def epoch():
            order = torch.randperm(n) if shuffled else torch.arange(n)
            order[:again] = order[n - again :].clone() if again else order[:0]
            for rows in order.split(rows_a_batch):
                if drop_last and len(rows) < rows_a_batch:
                    return
                images = moved(pixels[rows], most).float() / divide
                yield (
                    images.to(machine().device),
                    labels[torch.randperm(n)[: len(rows)] if wrong_rows else rows].to(
                        machine().device
                    ),
                )

        return epoch

    return pipeline


def in_order(order_of):
    """The right pipeline, whose epoch number i takes n images in the order `order_of(i, n)`."""

    def pipeline(shards, batch):
        pixels, labels = (
            torch.from_numpy(part).to(machine().device) for part in data.decoded_cache(shards)
        )
        count = itertools.count()

        def epoch():
            for rows in order_of(next(count), len(labels)).split(batch):
                yield (
                    shift(pixels[rows].cpu(), 4).to(machine().device).float() / 255,
                    labels[rows],
                )

        return epoch

    return pipeline


def one_permutation(n):
    return torch.randperm(n, generator=torch.Generator().manual_seed(8))


def rotated(i, n):
    return one_permutation(n).roll(37 * (i + 1))


def to_and_fro(i, n):
    return one_permutation(n) if i % 2 else one_permutation(n).flip(0)


def whole_batches(i, n):
    """The same batches, one after the other in another order."""
    full = one_permutation(n)[: n // 64 * 64].reshape(-1, 64)
    return torch.cat([full.roll(i, 0).ravel(), one_permutation(n)[n // 64 * 64 :]])


def inside_batches(i, n):
    return torch.cat([part[torch.randperm(len(part))] for part in one_permutation(n).split(64)])


def inside_shards(i, n):
    return torch.cat([part[torch.randperm(len(part))] for part in torch.arange(n).split(50)])


def round_robin(i, n):
    """An image of each shard in turn, each shard in a new order."""
    return torch.stack(
        [part[torch.randperm(len(part))] for part in torch.arange(n).split(50)], 1
    ).flatten()


def every_seventh(i, n):
    return torch.arange(n).reshape(-1, [5, 8, 10, 20][i % 4]).T.ravel()


def neighbors_swapped(i, n):
    order = one_permutation(n).reshape(-1, 2)
    return torch.where(torch.rand(len(order), 1) < 0.5, order, order.flip(1)).ravel()


def labels_as(dtype):
    """The right pipeline, but for the labels' number format."""

    def pipeline(shards, batch):
        epoch = built()(shards, batch)
        return lambda: ((images, labels.to(dtype)) for images, labels in epoch())

    return pipeline


def synthetic(shards, batch):
    labels = torch.from_numpy(data.decoded_cache(shards)[1])
    images = torch.rand(len(labels), 3, 32, 32, device=machine().device)
    return lambda: zip(
        images.split(batch), labels.to(machine().device).split(batch), strict=True
    )


def prepared_once(shards, batch):
    batches = list(built()(shards, batch)())
    return lambda: iter(batches)


def shuffled_only(shards, batch):
    """Moved once, and put into a new order in every epoch."""
    parts = [torch.cat(part) for part in zip(*built()(shards, batch)(), strict=True)]

    def epoch():
        for rows in torch.randperm(len(parts[1]), device=parts[1].device).split(batch):
            yield parts[0][rows], parts[1][rows]

    return epoch


def one_epoch_for_all(shards, batch):
    batches = built()(shards, batch)()
    return lambda: batches


def repeats_the_first_batch(shards, batch):
    epoch = built()(shards, batch)

    def again():
        batches = list(epoch())
        full = [one for one in batches if len(one[1]) == batch]
        yield from itertools.islice(itertools.repeat(full[0]), len(full))
        yield batches[-1]

    return again


def image_by_image(shards, batch):
    files = data.JpegFiles(data.jpeg_files(shards), data.Prepare(32, shift=4))

    def epoch():
        for images, labels in data.loader(files, batch, shuffle=True):
            yield images.to(machine().device), labels.to(machine().device)

    return epoch


def skips_after_two_epochs(shards, batch):
    """Does its duty while it is watched, and then only hands out the last epoch's batches again, less one."""
    epoch, calls, kept = built()(shards, batch), itertools.count(), []

    def sometimes():
        if next(calls) < 2:
            kept[:] = list(epoch())
            return iter(kept)
        return iter(kept[1:])

    return sometimes


def prepared_epochs(n_epochs, *, reshuffled=False):
    """Prepares so many epochs, and hands them out in turn, perhaps in a new order."""

    def pipeline(shards, batch):
        epochs = itertools.cycle([list(built()(shards, batch)()) for _ in range(n_epochs)])

        def epoch():
            images, labels = (torch.cat(part) for part in zip(*next(epochs), strict=True))
            order = torch.randperm(len(labels)) if reshuffled else torch.arange(len(labels))
            return (
                (images[rows], labels[rows]) for rows in order.to(labels.device).split(batch)
            )

        return epoch

    return pipeline


def honest_for(n_epochs):
    """Does its duty in so many epochs, and then hands out the last one's batches again and again."""

    def pipeline(shards, batch):
        epoch, calls, kept = built()(shards, batch), itertools.count(), []

        def sometimes():
            if next(calls) < n_epochs:
                kept[:] = list(epoch())
            return iter(kept)

        return sometimes

    return pipeline


WRONG = {
    "08.2": [
        (without_cores, "share the cores", "workers-have-own-cores"),
        (workers_up_to_cores, "share the cores", "workers-have-own-cores"),
        (
            lambda p, t, w, c, tc: max(w / p, 1 / t, c / (p + tc * t)) if w else 1 / (p + t),
            "The slowest one decides",
            "in-turn-or-at-once",
        ),
        (lambda p, t, w, c, tc: 1 / (p + t), "The least of three", "in-turn-or-at-once"),
        (
            lambda p, t, w, c, tc: min(w / p, 1 / t, c / (p + tc * t)),
            "the seconds add up",
            "in-turn-or-at-once",
        ),
        (lambda p, t, w, c, tc: 1 / model(p, t, w, c, tc), "what we expect", "upside-down"),
        (
            lambda p, t, w, c, tc: 64 * model(p, t, w, c, tc),
            "what we expect",
            "what-grows-with-batch",
        ),
        (
            lambda p, t, w, c, tc: min(w / p, 1 / t, c / (p + t)) if w else 1 / (p + t),
            "2 of them for training",
            "workers-have-own-cores",
        ),
        (
            lambda p, t, w, c, tc: min(w / p, 1 / t, (c - tc) / p) if w else 1 / (p + t),
            "images/s",
            "workers-have-own-cores",
        ),
    ],
    "08.4": [
        (
            lambda shards, rank, ranks, worker, workers: shards,
            "each image comes again",
            "everyone-reads-all",
        ),
        (
            lambda shards, rank, ranks, worker, workers: shards[worker :: max(workers, 1)],
            "each image comes again",
            "everyone-reads-all",
        ),
        (
            lambda shards, rank, ranks, worker, workers: shards[rank::ranks],
            "each image comes again",
            "everyone-reads-all",
        ),
        (chunks, "nobody reads", "rest-left-out"),
        (rounded_up_chunks, "one worker of a rank gets", "uneven-shares"),
        (numbered_through, "one rank gets", "uneven-shares"),
        (rest_to_the_last, "one worker of a rank gets", "uneven-shares"),
        (
            lambda shards, rank, ranks, worker, workers: shards[rank::ranks][worker::workers],
            "raised ValueError",
            "zero-never-happens",
        ),
        (
            lambda shards, rank, ranks, worker, workers: shards[
                rank + worker :: ranks + workers
            ],
            "nobody reads",
            "other-formula",
        ),
        (
            lambda shards, rank, ranks, worker, workers: shards[
                rank * ranks + worker :: ranks * max(workers, 1)
            ],
            "shard",
            "other-formula",
        ),
        (
            lambda shards, rank, ranks, worker, workers: shards[rank],
            "expected a list",
            "result-of-another-kind",
        ),
        (
            lambda shards, rank, ranks, worker, workers: range(len(shards))[rank::ranks],
            "expected a list",
            "result-of-another-kind",
        ),
        (by_counting, "ZeroDivisionError", "zero-never-happens"),
        (popped, "has changed the list", "input-is-mine"),
        (
            lambda shards, rank, ranks, worker, workers: (
                shards[rank::ranks][worker::workers] if workers else []
            ),
            "nobody",
            "zero-never-happens",
        ),
    ],
    "08.6": [
        (
            same_for_all,
            "All images of a batch are moved by the same amount",
            "any-draw-is-random",
        ),
        (wraps_round, "comes in at the other", "edges-are-ordinary"),
        (diagonally, "draw the two apart", "any-draw-is-random"),
        (in_pairs, "would be by chance", "any-draw-is-random"),
        (one_after_the_other, "would be by chance", "any-draw-is-random"),
        (second_half_like_the_first, "would be by chance", "any-draw-is-random"),
        (from_a_pool, "would be by chance", "any-draw-is-random"),
        (picked_from_a_pool, "moves that were drawn before", "any-draw-is-random"),
        (right_after_down, "follows from how far one moves down", "any-draw-is-random"),
        (one_way, "not equally frequent", "any-draw-is-random"),
        (without_the_end, "not equally frequent", "any-draw-is-random"),
        (rounded, "not equally frequent", "any-draw-is-random"),
        (always_the_same, "the same amounts again", "any-draw-is-random"),
        (by_the_pixels, "the same amounts again", "any-draw-is-random"),
        (colors_apart, "moved apart", "other-formula"),
        (in_place, "has changed the images", "input-is-mine"),
        (twice_as_far, "more than most", "other-formula"),
        (as_float, "same shape and dtype", "result-of-another-kind"),
        (larger, "same shape and dtype", "result-of-another-kind"),
        (one_by_one, "Move the whole batch at once", "python-loop-per-item"),
        (listed, "Move the whole batch at once", "python-loop-per-item"),
        (mapped_in_c, "Move the whole batch at once", "python-loop-per-item"),
        (mapped, "Move the whole batch at once", "python-loop-per-item"),
        (in_numpy, "Move the whole batch at once", "python-loop-per-item"),
        (in_groups, "Move the whole batch at once", "python-loop-per-item"),
        (lambda images, most: images, "moved by the same amount", "does-less-work"),
        (
            lambda images, most: torch.zeros_like(images),
            "an image came out empty",
            "does-less-work",
        ),
        (
            lambda images, most: shift(images, most).flip(3),
            "is not the one that was given",
            "other-formula",
        ),
    ],
    "08.6b": WRONG_PREFETCHERS,
    "08.7": [
        (built(drop_last=True), "the last batch too", "rest-left-out"),
        (built(divide=1.0), "Divide by 255, once", "other-formula"),
        (built(divide=255.0**2), "Divide by 255, once", "sum-for-mean"),
        (built(size=28), "Expected images float32 (64, 3, 32, 32)", "result-of-another-kind"),
        (built(shuffled=False), "Shuffle anew in every epoch", "one-shuffle-is-enough"),
        (built(wrong_rows=True), "belong to another image", "pairs-mixed-up"),
        (built(again=40), "Every image once an epoch", "does-less-work"),
        (built(batch=200), "Expected batches of 64", "changes-the-training"),
        (built(most=0), "not at all", "does-less-work"),
        (built(moved=same_for_all), "by its own amount", "any-draw-is-random"),
        (
            built(moved=second_half_like_the_first),
            "by its own amount",
            "any-draw-is-random",
        ),
        (built(most=12), "none of the given ones", "other-formula"),
        (
            labels_as(torch.uint8),
            "and labels int64, got torch.float32 (64, 3, 32, 32) and torch.uint8",
            "result-of-another-kind",
        ),
        (labels_as(torch.int32), "and torch.int32", "result-of-another-kind"),
        (synthetic, "none of the given ones", "does-less-work"),
        (prepared_once, "Two epochs come in the same order", "one-shuffle-is-enough"),
        (in_order(rotated), "follows from another one", "one-shuffle-is-enough"),
        (in_order(to_and_fro), "follows from another one", "one-shuffle-is-enough"),
        (in_order(whole_batches), "follows from another one", "one-shuffle-is-enough"),
        (in_order(round_robin), "come from the same shard", "any-draw-is-random"),
        (in_order(inside_batches), "follows from another one", "one-shuffle-is-enough"),
        (in_order(inside_shards), "follows from another one", "one-shuffle-is-enough"),
        (in_order(every_seventh), "follows from another one", "one-shuffle-is-enough"),
        (in_order(neighbors_swapped), "follows from another one", "one-shuffle-is-enough"),
        (shuffled_only, "moved as in an epoch before", "cache-anywhere"),
        (one_epoch_for_all, "delivered 0 images of 200", "result-of-another-kind"),
        (repeats_the_first_batch, "Every image once an epoch", "does-less-work"),
        (image_by_image, "of the ceiling; 90 % are asked for", "python-loop-per-item"),
        (honest_for(2), "in the same order", "goes-round-the-tool"),
        (honest_for(3), "in the same order", "goes-round-the-tool"),
        (prepared_epochs(20), "Within 40 epochs one comes again", "cache-anywhere"),
        (
            prepared_epochs(20, reshuffled=True),
            "Within 40 epochs one comes again",
            "cache-anywhere",
        ),
        (skips_after_two_epochs, "another number of images", "goes-round-the-tool"),
        (
            lambda shards, batch: built()(shards, batch)(),
            "to return a function",
            "result-of-another-kind",
        ),
        (
            lambda shards, batch: lambda: None,
            "can't be iterated over",
            "result-of-another-kind",
        ),
    ],
}
