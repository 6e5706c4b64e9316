"""Exercises of notebook 08: unusual answers that are right pass their checks."""

import functools

import numpy as np
import pytest
import torch

from exercises.nb08.wrong_answers import in_order, one_permutation, shift
from labkit.measure.machine import machine, threads
from labkit.train import data
from tests.helpers import check
from tests.selection import sampled


def seconds_an_image(prepare_s, train_s, workers, cores, train_cores):
    if workers == 0:
        return np.float64(1) / (prepare_s + train_s)
    return 1 / max(prepare_s / workers, train_s, (prepare_s + train_cores * train_s) / cores)


def by_list(prepare_s, train_s, workers, cores, train_cores):
    core_s = prepare_s + train_cores * train_s
    return min([workers / prepare_s, 1 / train_s, cores / core_s]) if workers else (prepare_s + train_s) ** -1


def as_tensor(prepare_s, train_s, workers, cores, train_cores):
    limits = torch.tensor([workers / prepare_s, 1 / train_s, cores / (prepare_s + train_cores * train_s)]).double()
    return limits.min() if workers else torch.tensor(1 / (prepare_s + train_s), dtype=torch.float64)


def in_one_slice(shards, rank, ranks, worker, workers):
    return shards[rank + ranks * worker :: ranks * (workers or 1)]


def by_number(shards, rank, ranks, worker, workers):
    mine = [shard for i, shard in enumerate(shards) if i % ranks == rank]
    return tuple(shard for i, shard in enumerate(mine) if i % max(workers, 1) == worker)


def in_even_pieces(shards, rank, ranks, worker, workers):
    """Pieces whose lengths differ by one, as np.array_split makes them: [start, end) by integer arithmetic."""

    def piece(part, i, n):
        return part[i * len(part) // n : (i + 1) * len(part) // n]

    return piece(piece(shards, rank, ranks), worker, max(workers, 1))


def split_by_numpy(shards, rank, ranks, worker, workers):
    mine = np.array_split(np.arange(len(shards)), ranks)[rank]
    return np.array(shards)[np.array_split(mine, max(workers, 1))[worker]]


def last_first(shards, rank, ranks, worker, workers):
    return shards[::-1][rank::ranks][worker :: max(workers, 1)]


def by_indexing(images, most):
    n, channels, height, width = images.shape
    padded = torch.nn.functional.pad(images, (most,) * 4)
    down, right = torch.randint(2 * most + 1, (2, n, 1, 1, 1), device=images.device)
    rows = torch.arange(height, device=images.device)[:, None] + down
    columns = torch.arange(width, device=images.device) + right
    which = torch.arange(n, device=images.device).view(n, 1, 1, 1)
    return padded[which, torch.arange(channels, device=images.device).view(-1, 1, 1), rows, columns]


def by_gathering(images, most):
    n, channels, height, width = images.shape
    padded = torch.nn.functional.pad(images, (most,) * 4)
    down, right = (torch.randint(0, 2 * most + 1, (n, 1, 1, 1), device=images.device) for _ in range(2))
    rows = (down + torch.arange(height, device=images.device).view(1, 1, -1, 1)).expand(
        -1, channels, -1, width + 2 * most
    )
    columns = (right + torch.arange(width, device=images.device)).expand(-1, channels, height, -1)
    return padded.gather(2, rows).gather(3, columns)


def a_loop_over_places(images, most):
    """As many calls as there are places to move to, whatever the number of images."""
    places, (height, width) = 2 * most + 1, images.shape[2:]
    padded, moved = torch.nn.functional.pad(images, (most,) * 4), torch.empty_like(images)
    chosen = torch.randint(places**2, (len(images),), device=images.device)
    for place in range(places**2):
        y, x = divmod(place, places)
        moved[chosen == place] = padded[chosen == place, :, y : y + height, x : x + width]
    return moved


def rolled_and_cut(images, most):
    """Rows and columns are taken around the edge, and what came around is set to zero."""
    n, _, height, width = images.shape
    down, right = torch.randint(-most, most + 1, (2, n, 1), device=images.device)
    rows, columns = torch.arange(height, device=images.device) - down, torch.arange(width, device=images.device) - right
    inside = ((rows >= 0) & (rows < height))[:, None, :, None] & ((columns >= 0) & (columns < width))[:, None, None, :]
    which = torch.arange(n, device=images.device)[:, None, None]
    moved = images.permute(0, 2, 3, 1)[which, (rows % height)[:, :, None], (columns % width)[:, None, :]]
    return torch.where(inside, moved.permute(0, 3, 1, 2), 0).to(images.dtype)


def mapped_by_torch(images, most):
    padded = torch.nn.functional.pad(images, (most,) * 4)
    places = torch.randint(0, 2 * most + 1, (len(images), 2), device=images.device)
    rows, columns = (torch.arange(size, device=images.device) for size in images.shape[2:])

    def one(image, place):
        return image[:, (rows + place[0])[:, None], columns + place[1]]

    return torch.vmap(one)(padded, places) if len(images) else images.clone()


def from_numpy(images, most):
    """np.random instead of torch's generator, and stride tricks instead of unfold."""
    padded = np.pad(images.cpu().numpy(), ((0, 0), (0, 0), (most, most), (most, most)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, images.shape[2:], axis=(2, 3))
    y, x = np.random.default_rng().integers(0, 2 * most, (2, len(images)), endpoint=True)
    return torch.from_numpy(windows[np.arange(len(images)), :, y, x].copy()).to(images.device)


def many_at_a_time(images, most):
    """As many images in a call as a batch has."""
    return torch.cat([shift(part.cpu(), most) for part in images.split(64)]).to(images.device)


def written_out(shards, batch):
    """A list of batches, all moved at once."""
    pixels, labels = map(torch.from_numpy, data.decoded_cache(shards))

    def epoch():
        order = torch.from_numpy(np.random.default_rng().permutation(len(labels)))
        images, right = shift(pixels[order], 4) / 255, labels[order]
        return [
            [images[i : i + batch].to(machine().device), right[i : i + batch].to(machine().device)]
            for i in range(0, len(right), batch)
        ]

    return epoch


class Loading:
    """A callable object, whose epochs use one buffer again and again."""

    def __init__(self, shards, batch):
        self.pixels, self.labels = map(torch.from_numpy, data.decoded_cache(shards))
        self.batch, self.buffer = batch, torch.empty(batch, 3, 32, 32, device=machine().device)

    def __call__(self):
        for rows in torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(self.labels), self.batch, False):
            images = self.buffer[: len(rows)].copy_(shift(self.pixels[rows], 4)).div_(255)
            yield images, self.labels[rows].to(images.device)


def seeded_by_epoch(i, n):
    return torch.randperm(n, generator=torch.Generator().manual_seed(1000 + i))


def shuffled_again(i, n):
    return one_permutation(n)[torch.randperm(n)]


def sorted_by_noise(i, n):
    return torch.rand(n).argsort()


RIGHT = {
    "08.2": [seconds_an_image, by_list, as_tensor],
    "08.4": [in_one_slice, by_number, in_even_pieces, split_by_numpy, last_first],
    "08.6": [
        by_indexing, by_gathering, a_loop_over_places, rolled_and_cut, mapped_by_torch, from_numpy, many_at_a_time,
        functools.partial(shift, down=None),
    ],
    "08.7": [written_out, Loading, in_order(seeded_by_epoch), in_order(shuffled_again), in_order(sorted_by_noise)],
}  # fmt: skip


SHORT = [(number, answer) for number in RIGHT if number != "08.7" for answer in RIGHT[number]]


@pytest.mark.parametrize(("number", "answer"), [*SHORT, *sampled([("08.7", answer) for answer in RIGHT["08.7"]], 2)])
def test_a_right_answer_passes(number, answer, monkeypatch):
    # judged by what it delivers: whether it is fast enough depends on the machine
    monkeypatch.setattr("exercises.nb08.pipeline._share_of_ceiling", lambda epoch, judge: 1.0)
    with threads(1):
        outcome = check(number, answer)
    assert outcome.state == "passed", outcome
